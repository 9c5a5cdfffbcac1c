"""One endpoint at work: its topic is read, its records are sent, and what came of each is taken down.

What always holds: it needs nobody else to go on, and holds up nobody; it keeps no more records than its lanes have room
for; and what it took down is taken away together with the place that it leads to.
"""

import random
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from headrace.client.address import Address
from headrace.client.cluster import PATIENT, Cluster
from headrace.client.connection import ConnectionSettings
from headrace.client.errors import (
    ClientError,
    OffsetOutOfRange,
    TopicGrown,
    TopicReplaced,
    UnknownPartition,
    UnknownTopic,
)
from headrace.client.fetch import FetchOptions
from headrace.client.offsets import bounds
from headrace.client.reader import ReadRecord, read_records
from headrace.connect.keep_running import KeepRunning
from headrace.delivery.letters import Letter
from headrace.errors import HeadraceError
from headrace.gateways.errors import GatewayError
from headrace.gateways.webhook_sender.endpoint import Endpoint
from headrace.gateways.webhook_sender.lanes import Item, Lanes, Place, Rate
from headrace.gateways.webhook_sender.places import Health
from headrace.gateways.webhook_sender.registry import Request, as_record
from headrace.gateways.webhooks.secrets import Secrets
from headrace.gateways.webhooks.signatures import sign_standard, standard_key
from headrace.http_client import InvalidServer
from headrace.model import TopicPartition
from headrace.reach import Reach
from headrace.records import Record
from headrace.retry import Backoff
from headrace.stores.webhook.sender import Sender, WebhookFailed

_CHANCE: Final = random.SystemRandom()  # a program that seeds `random` keeps its own; forks differ
_OPTIONS: Final = FetchOptions(max_wait_ms=500, max_bytes=1024 * 1024, partition_max_bytes=256 * 1024, committed=True)
_LOOK_EVERY_S: Final = 5.0  # for partitions that were added
_WAIT_S: Final = 0.5
_MOST_LOGGED: Final = 10_000
_GONE: Final = 410  # as Standard Webhooks have it: the receiver wants no more
# What is wrong with the record itself, and will be tomorrow. A 401 or a 404 is mended at the receiver.
_OF_THE_RECORD: Final = frozenset({400, 405, 406, 411, 413, 414, 415, 422, 431})
_LONGEST_ERROR: Final = 300


class _Restart(Exception):
    """The topic is another one."""


class Surroundings(NamedTuple):
    """What all endpoints of a gateway share."""

    gateway: str
    bootstrap: Sequence[Address]
    reach: Reach
    secrets_folder: str


class Report(NamedTuple):
    """What came since the last one, and how far it is now."""

    log: list[bytes]
    letters: list[Letter]
    places: Mapping[int, Place]
    topic: str
    health: Health
    finished: list[Request]
    taken_back: list[bytes]
    """Dead letters of records that were taken after all."""


@dataclass(slots=True)
class _Content:
    """What of a record is sent."""

    record: Record | None  # none of a test
    topic_id: str
    message_id: str


@dataclass(slots=True)
class _Outcome:
    status: int = 0
    error: str = ""
    told_pause_s: float = 0.0
    ms: int = 0

    @property
    def is_success(self) -> bool:
        return 200 <= self.status < 300


@dataclass(eq=False)
class Courier:
    endpoint: Endpoint
    around: Surroundings
    stored: Mapping[str, Mapping[int, Place]]  # by the topic's name and id
    health: Health
    news: threading.Event  # set when there is something to report
    waiting: str = ""
    problem: str = ""
    delivered: int = 0
    delivered_bytes: int = 0
    given_up: int = 0
    is_restart_wanted: bool = False
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _ending: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)
    _log: deque[bytes] = field(default_factory=lambda: deque(maxlen=_MOST_LOGGED))
    _letters: list[Letter] = field(default_factory=list)
    _finished: list[Request] = field(default_factory=list)
    _taken_back: list[bytes] = field(default_factory=list)
    _requests: deque[Request] = field(default_factory=deque)
    _asked: set[str] = field(default_factory=set)
    topic: str = ""
    """Name and id of the topic that the places are in."""
    _read: int = 0
    _was_awaited: bool = False  # the topic was not there when it was looked for

    def __post_init__(self) -> None:
        endpoint = self.endpoint
        self._lanes = Lanes(
            endpoint.order,
            endpoint.concurrency,
            Rate(endpoint.rate),
            Backoff(endpoint.first_pause_s, endpoint.longest_pause_s),
            endpoint.give_up_ms,
        )
        self._secrets = endpoint.secrets
        if endpoint.secret_name:
            path = f"{self.around.secrets_folder}/{endpoint.secret_name}" if self.around.secrets_folder else ""
            self._secrets = Secrets(f"endpoint {endpoint.id}", path=path)
        self._sender: Sender | None = None

    # --- for the gateway

    def start(self) -> None:
        for work in (self._keep_reading, self._send, self._keep_resending):
            self._begin(work)

    def ask(self, request: Request) -> None:
        """Have something done once."""
        with self._changed:
            if request.id in self._asked:
                return
            self._asked.add(request.id)
            if request.do != "test":
                self._requests.append(request)
                self._changed.notify_all()
                return
        self._begin(lambda: self._test(request))

    def stop(self) -> None:
        """Begin nothing more; what is under way ends by itself."""
        self._ending.set()
        with self._changed:
            self._changed.notify_all()

    @property
    def is_over(self) -> bool:
        return (
            self._ending.is_set() and not self._lanes.running and not any(map(threading.Thread.is_alive, self._threads))
        )

    @property
    def is_busy(self) -> bool:
        return self._lanes.running > 0

    def report(self) -> Report:
        """What was taken down, which is taken away by this."""
        with self._changed:
            log, letters, finished, taken_back = list(self._log), self._letters, self._finished, self._taken_back
            self._log.clear()
            self._letters, self._finished, self._taken_back = [], [], []
            places = {partition: self._lanes.place(partition) for partition in self._lanes.partitions()}
            return Report(log, letters, places, self.topic, self.health, finished, taken_back)

    def _begin(self, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=work, name=f"headrace-webhook-{self.endpoint.id}", daemon=True)
        self._threads = [each for each in self._threads if each.is_alive()]
        self._threads.append(thread)
        thread.start()

    def _cluster(self) -> Cluster:
        settings = ConnectionSettings(client_id=f"headrace-webhook-{self.endpoint.id}")
        return Cluster(self.around.bootstrap, settings, retry=PATIENT.at_most(2))

    # --- reading

    def _keep_reading(self) -> None:
        keep = KeepRunning(f"webhook {self.endpoint.id}", self, self._ending, lambda: self._read, GatewayError)
        try:
            keep.run(self._read_on)
        except _Restart:
            self.news.set()
        except HeadraceError as error:
            self.problem = str(error)
        except Exception as error:  # noqa: BLE001 - one that ends by a defect must not look like one that runs
            self.problem = f"{type(error).__name__}: {error}"

    def _read_on(self) -> None:
        name = self.endpoint.topic
        with self._cluster() as cluster:
            try:
                topic = cluster.topic(name, refresh=True)
            except UnknownTopic:
                self._was_awaited = True
                raise
            starts = self._resume(cluster, f"{name}/{topic.id_text}")
            self.waiting = ""
            looked_at = time.monotonic()
            reached: dict[TopicPartition, int] = {}
            for records in read_records(cluster, starts, options=_OPTIONS, ids={name: topic.id_text}, reached=reached):
                for read in records:
                    self._offer("", read, topic.id_text)
                    if self._ending.is_set():
                        return
                with self._changed:
                    for where, offset in reached.items():
                        self._lanes.skip("", where.partition, offset)
                if self._ending.is_set():
                    return
                if records:
                    self.news.set()
                if time.monotonic() - looked_at >= _LOOK_EVERY_S:
                    looked_at = time.monotonic()
                    if len(cluster.topic(name, refresh=True).partitions) > len(starts):
                        raise TopicGrown(name)

    def _resume(self, cluster: Cluster, topic: str) -> dict[TopicPartition, int]:
        """Where to go on: behind what was read, or what is stored, or where a new endpoint begins."""
        if self.topic not in ("", topic):  # the places are of a topic that is gone
            self.is_restart_wanted = True
            self._ending.set()
            raise _Restart
        self.topic = topic
        stored = self.stored.get(topic, {})
        held = bounds(cluster, cluster.partitions(self.endpoint.topic), committed=True)
        with self._changed:
            known = set(self._lanes.partitions())
            # A partition that was added later, and a topic that was made later or again, are read from their start.
            is_known = any(each.startswith(f"{self.endpoint.topic}/") for each in self.stored)
            is_first = not known and not is_known and not self._was_awaited
            for where, bound in held.items():
                if where.partition in known:
                    continue
                usual = bound.end if is_first and not self.endpoint.from_start else bound.start
                place = stored.get(where.partition, Place(usual))
                offset = min(max(place.offset, bound.start), bound.end)
                self._lanes.begin("", where.partition, offset, place.ahead)
            self.news.set()
            return {
                where: min(max(self._lanes.reached(where.partition) or 0, bound.start), bound.end)
                for where, bound in held.items()
            }

    def _offer(self, source: str, read: ReadRecord, topic_id: str) -> None:
        """Add a record, if it is to be sent, once there is room."""
        record, partition = read.record, read.partition.partition
        self._read += 1
        if self.endpoint.filter is not None and not self.endpoint.filter.matches(record):
            with self._changed:
                self._lanes.skip(source, partition, record.offset + 1)
            return
        content = _Content(
            record, topic_id, self.endpoint.message_id(topic_id or self.endpoint.topic, partition, record.offset)
        )
        size = len(record.value or b"") + len(record.key or b"") + 200
        lane = None if record.key is None else bytes(record.key)
        item = Item(source, partition, record.offset, lane, size, content)
        place = self.stored.get(self.topic, {}).get(partition)
        if not source and place is not None and (tried := place.tries.get(record.offset)) is not None:
            item.attempts, item.first_ms = tried
        with self._changed:
            while not self._lanes.has_room and not self._ending.is_set():
                self._changed.wait(_WAIT_S)
            if not self._ending.is_set():
                self._lanes.add(item)
                self._changed.notify_all()

    # --- sending again

    def _keep_resending(self) -> None:
        while not self._ending.is_set():
            with self._changed:
                while not self._requests and not self._ending.is_set():
                    self._changed.wait(_WAIT_S)
                request = self._requests[0] if self._requests else None
            if request is None or self._ending.is_set():
                return
            try:
                self._resend(request)
            except (UnknownTopic, UnknownPartition, TopicReplaced, OffsetOutOfRange) as error:
                self.problem = str(error)
            except ClientError:
                self._ending.wait(1.0)
                continue
            if self._ending.is_set():
                return
            with self._changed:
                self._requests.popleft()
                self._lanes.end(request.key)
                self._finished.append(request)
            self.news.set()

    def _resend(self, request: Request) -> None:
        where = TopicPartition(self.endpoint.topic, request.partition)
        with self._cluster() as cluster:
            topic = cluster.topic(where.topic, refresh=True)
            held = bounds(cluster, [where], committed=True)[where]
            start, end = max(request.start, held.start), min(request.end, held.end)
            with self._changed:
                reached = self._lanes.reached(where.partition, request.key)
                if reached is None:
                    self._lanes.begin(request.key, where.partition, start)
                else:  # the broker was away in between: what was read then is under way
                    start = max(start, reached)
            if start < end:
                reading = read_records(cluster, {where: start}, until={where: end}, options=_OPTIONS)
                for records in reading:
                    for read in records:
                        self._offer(request.key, read, topic.id_text)
                        if self._ending.is_set():
                            return
        with self._changed:
            while not self._lanes.is_over(request.key) and not self._ending.is_set():
                self._changed.wait(_WAIT_S)

    # --- sending

    def _send(self) -> None:
        while True:
            with self._changed:
                item = None
                while not self._ending.is_set():
                    now_ms = _now_ms()
                    item = self._lanes.take(now_ms)
                    if item is not None:
                        break
                    wait_ms = self._lanes.wait_ms(now_ms)
                    self._changed.wait(None if wait_ms is None else max(wait_ms, 1) / 1000)
            if item is None:
                return
            self._begin_attempt(item)

    def _begin_attempt(self, item: Item) -> None:
        threading.Thread(
            target=self._attempt, args=(item,), name=f"headrace-webhook-{self.endpoint.id}", daemon=True
        ).start()

    def _attempt(self, item: Item) -> None:
        content: _Content = item.content
        assert content.record is not None
        outcome = self._post(content.message_id, bytes(content.record.value or b""), content.record)
        now_ms = _now_ms()
        with self._changed:
            attempt = item.attempts + 1
            if outcome.is_success:
                self._lanes.done(item)
                if item.source and self._requests and self._requests[0].takes_back:
                    self._taken_back.append(self._letter(item, "").id)
                self.delivered += 1
                self.delivered_bytes += len(content.record.value or b"")
                self.health = self.health.delivered(now_ms)
                self.problem = ""
                said = "delivered"
            else:
                said = self._failed(item, outcome, now_ms)
            self._take_down(content, item, attempt, outcome, said, now_ms)
            self._changed.notify_all()
        self.news.set()

    def _failed(self, item: Item, outcome: _Outcome, now_ms: int) -> str:
        endpoint = self.endpoint
        if outcome.status in _OF_THE_RECORD:
            self._lanes.done(item)
            self._give_up(item, outcome.error)
            return "refused"
        is_again = self._lanes.failed(item, now_ms, _CHANCE.random(), outcome.told_pause_s)
        disable_ms = 0 if outcome.status == _GONE else endpoint.disable_ms
        self.health = self.health.failed(
            now_ms, outcome.error, disable_ms=disable_ms, disable_failures=endpoint.disable_failures
        )
        self.problem = outcome.error
        if self.health.disabled_ms:
            self._ending.set()
        if is_again:
            return "failed"
        self._give_up(item, outcome.error)
        return "given-up"

    def _give_up(self, item: Item, reason: str) -> None:
        self.given_up += 1
        self._letters.append(self._letter(item, reason))

    def _letter(self, item: Item, reason: str) -> Letter:
        content: _Content = item.content
        record = content.record
        assert record is not None
        return Letter(
            self.endpoint.topic,
            item.partition,
            item.offset,
            record.timestamp,
            None if record.key is None else bytes(record.key),
            None if record.value is None else bytes(record.value),
            reason,
            "",
            job_of(self.endpoint.id),
            tuple(record.headers),
            topic_id=content.topic_id,
        )

    def _test(self, request: Request) -> None:
        """One request that is no record's, and is not tried again."""
        content = _Content(None, "", f"test_{request.id}")
        body = as_record({"type": "headrace.test", "timestamp": _now_ms(), "data": {"endpoint": self.endpoint.id}})
        outcome = self._post(content.message_id, body, None)
        with self._changed:
            said = "delivered" if outcome.is_success else "failed"
            self._take_down(content, None, 1, outcome, said, _now_ms())
            self._finished.append(request)
        self.news.set()

    def _post(self, message_id: str, body: bytes, record: Record | None) -> _Outcome:
        began = time.monotonic()
        try:
            answer = self._sender_now().send(body, self._headers(message_id, body, record))
        except WebhookFailed as error:
            found = _Outcome(error=str(error))
        except HeadraceError as error:  # a secret that is not there, a URL that cannot be
            found = _Outcome(error=str(error))
        except Exception as error:  # noqa: BLE001 - whatever a request ends with, the record is not delivered
            found = _Outcome(error=type(error).__name__)
        else:
            found = _Outcome(answer.status, told_pause_s=_pause_in(answer.retry_after))
            if not found.is_success:
                found.error = f"{self._sender_now().host} answered with status {answer.status}"
        found.ms = round((time.monotonic() - began) * 1000)
        found.error = found.error[:_LONGEST_ERROR]
        return found

    def _sender_now(self) -> Sender:
        if self._sender is None:
            endpoint = self.endpoint
            try:
                self._sender = Sender(
                    endpoint.url,
                    reach=self.around.reach,
                    timeout_s=endpoint.timeout_s,
                    headers=endpoint.headers,
                    connections=endpoint.concurrency,
                    ca_file=endpoint.ca_file or None,
                )
            except InvalidServer as error:
                raise GatewayError(f"endpoint {endpoint.id}: its URL {error}") from None
        return self._sender

    def _headers(self, message_id: str, body: bytes, record: Record | None) -> dict[str, str]:
        now_s = int(time.time())
        found = {
            "content-type": self.endpoint.content_type,
            "user-agent": "headrace-webhooks",
            "webhook-id": message_id,
            "webhook-timestamp": str(now_s),
        }
        for header in record.headers if record is not None else ():
            name = header.key.lower()
            if name == "content-type" or name in self.endpoint.forward_headers:
                text = bytes(header.value or b"").decode("ascii", "replace")
                if text.isascii() and text.isprintable():  # else it would be a header of its own
                    found[name] = text
        if self._secrets is not None:
            if self.endpoint.secret_name and not self.around.secrets_folder:
                raise GatewayError(f"endpoint {self.endpoint.id} wants a secret: name a folder in secrets")
            keys = [standard_key(secret) for secret in self._secrets.current()]
            found["webhook-signature"] = sign_standard(keys, message_id, now_s, body)
        return found

    def _take_down(
        self, content: _Content, item: Item | None, attempt: int, outcome: _Outcome, said: str, now_ms: int
    ) -> None:
        entry: dict[str, Any] = {"at_ms": now_ms, "endpoint": self.endpoint.id, "id": content.message_id}
        if item is not None:
            entry |= {"topic": self.endpoint.topic, "partition": item.partition, "offset": item.offset}
        entry |= {"attempt": attempt, "outcome": said, "status": outcome.status, "ms": outcome.ms}
        if outcome.error:
            entry["error"] = outcome.error
        if item is not None and item.source:
            entry["resent"] = True
        if item is None:
            entry["test"] = True
        self._log.append(as_record(entry))


def job_of(endpoint_id: str) -> str:
    """What dead letters of an endpoint call it."""
    return f"webhook:{endpoint_id}"


def _pause_in(text: str) -> float:
    """The seconds in a Retry-After; a date is not read: its clock is another one's."""
    return float(text) if text.isascii() and text.isdecimal() and len(text) < 9 else 0.0


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
