"""Hits by mail: gathered into digests exactly once, then sent through the project's outbox.

    hits ─▶ what waits for each owner ─▶ NAME.digests ─▶ outbox ─▶ SMTP
            one transaction with the place            claimed, sent, remembered

What always holds: every hit is in one digest and no other, whatever was killed meanwhile; whoever begins under the same
name fences the one before. A digest that the server has answered for is not sent again once that is remembered; one
that was under way when the program died is sent again, with the same Message-ID and the same words, for the receiver to
tell: SMTP has nothing by which more could be promised.
"""

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from headrace.client.address import Address
from headrace.client.admin import delete_records, ensure_topic
from headrace.client.cluster import Cluster
from headrace.client.connection import ConnectionSettings
from headrace.client.errors import ClientError, Refused, TopicGrown, VersionNotSpoken
from headrace.client.fetch import FetchOptions
from headrace.client.offsets import bounds
from headrace.client.reader import ReadRecord, read_records
from headrace.connect.delivery import Entry, Sender, read_committed
from headrace.connect.keep_running import KeepRunning
from headrace.errors import HeadraceError
from headrace.model import TopicPartition
from headrace.pipelines.sink.effects.delivery import Deliveries
from headrace.pipelines.sink.effects.delivery import Pace as Attempts
from headrace.pipelines.sink.effects.ledger import Ledger, open_ledger
from headrace.reporting import Show, run_reported
from headrace.retry import Backoff
from headrace.searches.digests import Digest, Waiting
from headrace.searches.hits import read_hit
from headrace.searches.mail_settings import MailSettings
from headrace.searches.postman import Postman, Stopped
from headrace.searches.settings import SearchError
from headrace.status import FAILED, RUNNING, SEARCHES, STOPPED, WAITING, Status
from headrace.stores.batch import Numbered, Target
from headrace.stores.compacted_topic import CompactedTopic
from headrace.stores.mail.sender import InvalidAddress, check_address

STATES: Final = "__headrace_search_mail"
_OPTIONS: Final = FetchOptions(max_wait_ms=200, committed=True)
_COMMIT_EVERY_S: Final = 1.0
_ADDRESSES_EVERY_S: Final = 2.0
_ATTEMPTS: Final = Attempts(attempts=10, first_pause_s=1.0, longest_pause_s=300.0, parallel=4)
_KEPT: Final = {"retention.ms": "-1", "cleanup.policy": "delete"}
_QUICK: Final = FetchOptions(max_wait_ms=100, committed=True)
_SEND_FOR_S: Final = 0.5  # before new digests are looked for
_LOOK_AGAIN_S: Final = 0.5
_LOOK_ANEW_S: Final = 10.0  # for what was given up and is to be sent again, and for what need not be kept
_LOOK_EVERY_S: Final = 5.0  # for partitions that were added
_REMEMBERED_MS: Final = 7 * 86_400_000


@dataclass(slots=True)
class Addresses:
    """Where each owner's mail goes: what the section says, or else the topic."""

    said: Mapping[str, str]
    topic: str
    _read: dict[str, str] = field(default_factory=dict)
    _looked_at: float = float("-inf")
    _follower: CompactedTopic | None = None

    def follow(self, cluster: Cluster) -> None:
        """Begin anew over this cluster."""
        self._looked_at = float("-inf")
        self._follower = (
            CompactedTopic(cluster, self.topic, forget=self._read.clear, is_for_others=True) if self.topic else None
        )

    def refresh(self) -> None:
        """What the topic says now; once in a while."""
        if self._follower is None or time.monotonic() - self._looked_at < _ADDRESSES_EVERY_S:
            return
        self._looked_at = time.monotonic()
        for record in self._follower.read_news():
            owner = bytes(record.key or b"").decode(errors="replace")
            self._read.pop(owner, None)
            with contextlib.suppress(InvalidAddress, UnicodeDecodeError):  # then the owner has none
                if record.value is not None:
                    self._read[owner] = check_address(bytes(record.value).decode(), "the address")

    def of(self, owner: str) -> str | None:
        return self.said.get(owner) or self._read.get(owner)


@dataclass(slots=True)
class MailProgress:
    hits: int = 0
    without_address: int = 0
    owners: int = 0
    digests: int = 0
    lag: int = 0
    given_up: int = 0
    waiting: str = ""
    problem: str = ""


@dataclass(slots=True)
class Told:
    """Why nothing is sent just now."""

    waiting: str = ""
    problem: str = ""


@dataclass(slots=True)
class MailRunner:
    """Gathers in one thread and sends in another."""

    settings: MailSettings
    bootstrap: Sequence[Address]
    stopping: threading.Event = field(default_factory=threading.Event)
    backoff: Backoff = field(default_factory=Backoff)
    progress: MailProgress = field(default_factory=MailProgress)
    sending: Told = field(default_factory=Told)
    addresses: Addresses = field(init=False)
    postman: Postman = field(init=False)

    def __post_init__(self) -> None:
        self.addresses = Addresses(self.settings.addresses, self.settings.addresses_topic)
        self.postman = Postman(self.settings, self.addresses.of, self.stopping)

    def run(self) -> None:
        """Until it is told to stop; raises what waiting does not mend."""
        errors: list[BaseException] = []

        def send() -> None:
            try:
                self._keep(self._send, self.sending, lambda: self.postman.sent)
            except BaseException as error:  # noqa: BLE001 - raised where it is seen
                errors.append(error)
                self.stopping.set()

        thread = threading.Thread(target=send, name="headrace-mail-send", daemon=True)
        thread.start()
        try:
            self._keep(self._gather, self.progress, lambda: self.progress.hits)
        finally:
            self.stopping.set()
            thread.join()
        if errors:
            raise errors[0]

    def _keep(self, work: Callable[[Cluster], None], told: Told | MailProgress, done: Callable[[], int]) -> None:
        def attempt() -> None:
            with Cluster(self.bootstrap, ConnectionSettings(client_id="headrace-mail")) as cluster:
                work(cluster)

        name = self.settings.name

        def refused(refusal: Refused) -> HeadraceError:
            return SearchError(f"the broker refuses what mail {name} asks or writes ({refusal})")

        with contextlib.suppress(Stopped):
            KeepRunning(f"mail.{name}", told, self.stopping, done, refused, self.backoff).run(attempt)

    # --- gathering

    def _gather(self, cluster: Cluster) -> None:
        settings = self.settings
        cluster.topic(settings.hits, refresh=True)
        ensure_topic(cluster, STATES, partitions=1, configs={"cleanup.policy": "compact"})
        ensure_topic(cluster, settings.digests, partitions=1, configs=_KEPT)
        self.addresses.follow(cluster)
        sender = Sender(cluster, f"headrace-mail-{settings.name}", settings.name)
        sender.begin()
        try:
            work = _Gathering(settings, cluster, sender, self.progress, self.addresses)
            work.resume()
            for _ in work.turns():
                self.progress.waiting = self.progress.problem = ""
                if self.stopping.is_set():
                    work.commit()
                    return
        except Exception:
            # What is left open would hold up every reader of the topic until it runs out of time.
            with contextlib.suppress(ClientError):
                sender.abort()
            raise

    # --- sending

    def _send(self, cluster: Cluster) -> None:
        settings = self.settings
        ensure_topic(cluster, settings.digests, partitions=1, configs=_KEPT)
        topic = cluster.topic(settings.digests, refresh=True)
        where = TopicPartition(settings.digests, 0)
        with open_outbox(settings) as ledger:
            while not ledger.try_alone():
                # What it has under way is its own: both would send it.
                self.sending.waiting = f"for another mail {settings.name}, which sends from this outbox"
                if self.stopping.wait(_LOOK_AGAIN_S):
                    return
            held = bounds(cluster, [where], committed=True)[where]
            start = min(max(ledger.last_batch(topic.id_text) + 1, held.start), held.end)
            reading = read_records(cluster, {where: start}, options=_QUICK, ids={where.topic: topic.id_text})
            with Deliveries(ledger, self.postman, _ATTEMPTS) as deliveries:
                looked_at = float("-inf")
                for records in reading:
                    self.sending.waiting = self.sending.problem = ""
                    if self.stopping.is_set():
                        return
                    self._take_in(ledger, topic.id_text, records)
                    is_time = time.monotonic() - looked_at >= _LOOK_ANEW_S
                    deliveries.load(is_anew=is_time)
                    end = time.monotonic() + _SEND_FOR_S
                    while not deliveries.is_idle and (left := end - time.monotonic()) > 0:
                        deliveries.turn(left)
                    if is_time:
                        looked_at = time.monotonic()
                        self._tidy(cluster, ledger, TopicPartition(settings.digests, 0), topic.id_text)

    def _take_in(self, ledger: Ledger, topic_id: str, records: Sequence[ReadRecord]) -> None:
        if not records:
            return
        found = []
        for read in records:
            value = bytes(read.record.value or b"{}")
            with contextlib.suppress(ValueError, KeyError, TypeError, RecursionError):  # anybody may write to a topic
                digest = Digest.from_json(json.loads(value))
                found.append((digest.message_id(self.settings.name), None, value.decode()))
        ledger.take_in(Numbered(topic_id, records[-1].record.offset), found)

    def _tidy(self, cluster: Cluster, ledger: Ledger, where: TopicPartition, topic_id: str) -> None:
        """What is in the outbox need not be in the topic as well, nor what was sent long ago in the outbox."""
        self.progress.given_up = ledger.count_failed()
        ledger.forget_done(time.time_ns() // 1_000_000 - _REMEMBERED_MS)
        taken = ledger.last_batch(topic_id) + 1
        if taken > bounds(cluster, [where], committed=True)[where].start:
            with contextlib.suppress(Refused, VersionNotSpoken):  # we may not be allowed to
                delete_records(cluster, {where: taken})


def open_outbox(settings: MailSettings) -> contextlib.AbstractContextManager[Ledger]:
    """The outbox of a section; the folder of a file is made, and a file that nobody else can read."""
    if settings.outbox.startswith("sqlite:///"):
        path = Path(settings.outbox.removeprefix("sqlite:///"))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)  # addresses, and what somebody looks for, are nobody else's
    return open_ledger(settings.outbox, Target("headrace_outbox", f"mail:{settings.name}", on_new_query="continue"))


class _Gathering:
    """One run of the gathering, between taking over and the first error."""

    def __init__(
        self, settings: MailSettings, cluster: Cluster, sender: Sender, progress: MailProgress, addresses: Addresses
    ) -> None:
        self._settings = settings
        self._cluster = cluster
        self._sender = sender
        self._progress = progress
        self._addresses = addresses
        self._waiting: dict[str, Waiting] = {}
        self._changed: set[str] = set()
        self._offsets: dict[int, int] = {}
        self._committed: dict[int, int] = {}
        self._id = ""
        self._digests: list[Entry] = []
        self._committed_at = float("-inf")
        self._looked_at = time.monotonic()
        self._hits = self._strangers = 0

    def _key(self, **what: Any) -> bytes:
        return json.dumps({"mail": self._settings.name, **what}, separators=(",", ":")).encode()

    def resume(self) -> None:
        """Go on from what was committed."""
        topic = self._cluster.topic(self._settings.hits)
        self._id = topic.id_text
        known: dict[int, int] = {}
        is_first = True
        for key, value in read_committed(self._cluster, STATES, self._is_own).items():
            name, said = json.loads(key), json.loads(value)
            if "owner" in name:
                self._waiting[name["owner"]] = Waiting.from_json(name["owner"], said)
                continue
            is_first = False
            if said.get("topic", self._settings.hits) != self._settings.hits:
                # Another topic would be read from its start, and all that is in it be mailed.
                raise SearchError(
                    f"mail {self._settings.name} gathers the hits of topic {said['topic']}: give [mail.NAME] another "
                    f"name for those of {self._settings.hits}"
                )
            if said["id"] == self._id:
                known[name["partition"]] = said["offset"]
        for where, bound in bounds(
            self._cluster, self._cluster.partitions(self._settings.hits), committed=True
        ).items():
            usual = bound.end if is_first and not self._settings.from_start else bound.start
            self._offsets[where.partition] = min(max(known.get(where.partition, usual), bound.start), bound.end)
        self._committed = known
        self.commit()

    def _is_own(self, key: bytes) -> bool:
        try:
            found = json.loads(key)
        except ValueError:
            return False
        return isinstance(found, dict) and found.get("mail") == self._settings.name

    def turns(self) -> Iterator[None]:
        starts = {TopicPartition(self._settings.hits, part): at for part, at in self._offsets.items()}
        for records in read_records(self._cluster, starts, options=_OPTIONS, ids={self._settings.hits: self._id}):
            self._addresses.refresh()
            now_ms = time.time_ns() // 1_000_000
            for read in records:
                self._offsets[read.partition.partition] = read.record.offset + 1
                self._take(read.record.value, now_ms)
            self._make_due(now_ms)
            is_time = time.monotonic() - self._committed_at >= _COMMIT_EVERY_S
            if self._digests or (is_time and (self._changed or self._offsets != self._committed)):
                self.commit()
            if time.monotonic() - self._looked_at >= _LOOK_EVERY_S:
                self._look_for_partitions()
            yield

    def _look_for_partitions(self) -> None:
        self._looked_at = time.monotonic()
        self._cluster.topic(self._settings.hits, refresh=True)
        held = bounds(self._cluster, self._cluster.partitions(self._settings.hits), committed=True)
        self._progress.lag = sum(
            max(bound.end - self._offsets.get(where.partition, 0), 0) for where, bound in held.items()
        )
        if len(held) > len(self._offsets):
            self.commit()
            raise TopicGrown(self._settings.hits)

    def _take(self, value: bytes | None, now_ms: int) -> None:
        hit = read_hit(None, None if value is None else bytes(value))
        if hit is None:
            return
        if self._addresses.of(hit.owner) is None:
            self._strangers += 1
            return
        waiting = self._waiting.get(hit.owner) or Waiting(hit.owner)
        self._waiting[hit.owner] = waiting.with_hit(hit, now_ms, self._settings.pace)
        self._changed.add(hit.owner)
        self._hits += 1

    def _make_due(self, now_ms: int) -> None:
        for owner, waiting in list(self._waiting.items()):
            due_ms = waiting.due_ms(now_ms, self._settings.pace)
            if due_ms is not None and due_ms <= now_ms:
                digest, self._waiting[owner] = waiting.digest(now_ms, self._settings.pace)
                value = json.dumps(digest.as_json(), ensure_ascii=True, separators=(",", ":")).encode()
                self._digests.append((owner.encode(errors="replace"), value, now_ms, ()))
                self._changed.add(owner)

    def commit(self) -> None:
        """What waits, the digests and the place, in one transaction; nothing if nothing has moved."""
        self._committed_at = time.monotonic()
        now_ms = time.time_ns() // 1_000_000
        said = {"id": self._id, "topic": self._settings.hits}
        entries: list[Entry] = [
            (self._key(partition=part), json.dumps({"offset": at, **said}).encode(), now_ms, ())
            for part, at in self._offsets.items()
            if self._committed.get(part) != at
        ]
        for owner in self._changed:
            value = json.dumps(self._waiting[owner].as_json(), separators=(",", ":")).encode()
            entries.append((self._key(owner=owner), value, now_ms, ()))
        if not entries:
            return
        gathered = {TopicPartition(STATES, 0): entries}
        if self._digests:
            gathered[TopicPartition(self._settings.digests, 0)] = self._digests
        self._sender.commit(gathered)
        self._committed = dict(self._offsets)
        self._progress.hits += self._hits
        self._progress.without_address += self._strangers
        self._progress.digests += len(self._digests)
        self._progress.owners = sum(1 for each in self._waiting.values() if each.count)
        self._changed.clear()
        self._digests, self._hits, self._strangers = [], 0, 0


# --- with a status


@dataclass(frozen=True, slots=True)
class _Mail:
    runner: MailRunner

    @property
    def name(self) -> str:
        return f"mail.{self.runner.settings.name}"

    @property
    def records(self) -> int:
        return self.runner.progress.hits + self.runner.progress.without_address

    def status(self, per_s: float, error: HeadraceError | None, *, is_over: bool) -> Status:
        settings, progress, postman = self.runner.settings, self.runner.progress, self.runner.postman
        sending = self.runner.sending
        waiting = progress.waiting or sending.waiting
        state = (WAITING if waiting else RUNNING) if not is_over else FAILED if error else STOPPED
        return Status.of(
            self.name,
            "mail",
            state,
            problem=str(error) if error else progress.problem or sending.problem or postman.problem,
            waiting=waiting if state == WAITING else "",
            source=settings.hits,
            target=settings.server.host,
            records=self.records,
            per_s=per_s,
            hits=progress.hits,
            sent=postman.sent,
            owners=progress.owners,
            without_address=progress.without_address,
            given_up=progress.given_up,
            lag_records=progress.lag,
        )


def run_mail(
    settings: MailSettings, bootstrap: Sequence[Address], stop: threading.Event, show: Show
) -> dict[str, HeadraceError]:
    """Run one until it is told to stop; its status is kept."""
    part = _Mail(MailRunner(settings, bootstrap, stop))
    return run_reported(part, part.runner.run, SEARCHES, bootstrap, show)
