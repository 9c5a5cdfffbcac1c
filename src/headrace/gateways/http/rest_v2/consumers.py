"""Consumers that live here for programs that ask for records one request at a time: members of real consumer groups.

Each has a thread, which beats and does what it is asked in order. What always holds: there are so many at most; one
that nobody asks for a while is removed, and leaves its group; records are handed out in the order of their offsets, and
what is committed lies behind what was handed out.
"""

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Final, NamedTuple, TypeVar
from uuid import uuid4

import re2

from headrace.client.address import Address
from headrace.client.cluster import PATIENT, Cluster
from headrace.client.connection import ConnectionSettings
from headrace.client.consumer_member import ConsumerMember
from headrace.client.errors import ClientError
from headrace.client.fetch import FetchOptions
from headrace.client.groups import Committed
from headrace.client.reader import ReadRecord
from headrace.gateways.http.rest_v2.forms import (
    ILLEGAL_STATE,
    INSTANCE_EXISTS,
    INSTANCE_UNKNOWN,
    SUBSCRIBED_OTHERWISE,
    UNPROCESSABLE,
    NewConsumer,
    RestError,
)
from headrace.gateways.http.settings import HttpSettings
from headrace.model import TopicPartition

T = TypeVar("T")
_OPTIONS: Final = FetchOptions(
    max_wait_ms=300, max_bytes=4 * 1024 * 1024, partition_max_bytes=1024 * 1024, committed=True
)
_BEAT_EVERY_S: Final = 0.5
_LOOK_EVERY_S: Final = 10.0  # for topics that a pattern matches
_MOST_WAITING: Final = 16  # requests of one consumer
_END_WITHIN_S: Final = 5.0


class Taken(NamedTuple):
    """A record that is handed out."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None


class Instance:
    """One consumer."""

    def __init__(self, group: str, name: str, made: NewConsumer, bootstrap: Sequence[Address], settings: HttpSettings):
        self.group = group
        self.name = name
        self.form = made.form
        self.made = made
        self.used_at = time.monotonic()
        self._settings = settings
        connection = ConnectionSettings(client_id=f"headrace-http-{name}"[:200], connect_timeout_s=3.0)
        self._member = ConsumerMember(
            Cluster(bootstrap, connection, retry=PATIENT.at_most(3)),
            group,
            from_earliest=made.from_earliest,
            options=_OPTIONS,
            on_revoked=self._on_revoked,
        )
        self._topics: list[str] = []
        self._pattern: Any = None
        self._matched_at = 0.0
        self._ahead: deque[ReadRecord] = deque()  # fetched, and not handed out
        self._handed: dict[TopicPartition, int] = {}  # the next offset, not committed yet
        self._orders: queue.Queue[tuple[Callable[[], Any], Future[Any]] | None] = queue.Queue(_MOST_WAITING)
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"headrace-consumer-{name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Leave the group soon; from any thread."""
        self._closing.set()

    def join(self) -> None:
        self._thread.join(_END_WITHIN_S)

    @property
    def is_ended(self) -> bool:
        return self._closing.is_set()

    def order(self, do: Callable[[], T]) -> "Future[T]":
        """Have something done in the thread of this consumer."""
        self.used_at = time.monotonic()
        future: Future[T] = Future()
        if self._closing.is_set():
            raise unknown_instance()
        try:
            self._orders.put_nowait((do, future))
        except queue.Full:
            raise RestError(42900, "too many requests of this consumer are under way: wait for their answers") from None
        return future

    # --- in the thread

    def _run(self) -> None:
        while not self._closing.is_set():
            try:
                order = self._orders.get(timeout=_BEAT_EVERY_S)
            except queue.Empty:
                with suppress(ClientError):  # whoever asks next is told, if it is still so
                    self._member.beat()
                continue
            if order is not None:
                self._carry_out(*order)
        while not self._orders.empty():
            order = self._orders.get_nowait()
            if order is not None:
                order[1].set_exception(unknown_instance())
        with suppress(ClientError):
            if self.made.commits_itself:
                self._commit_handed()
        self._member.close()

    def _carry_out(self, do: Callable[[], Any], future: "Future[Any]") -> None:
        try:
            future.set_result(do())
        except Exception as error:  # noqa: BLE001 - whoever asked is told
            future.set_exception(error)
        self.used_at = time.monotonic()

    def _on_revoked(self, partitions: Collection[TopicPartition]) -> None:
        if self.made.commits_itself:
            with suppress(ClientError):
                self._commit_handed()
        self._let_go(partitions)

    def _let_go(self, partitions: Collection[TopicPartition]) -> None:
        for where in partitions:
            self._handed.pop(where, None)
        self._ahead = deque(read for read in self._ahead if read.partition not in partitions)

    # --- what it reads

    def subscribe(self, topics: Sequence[str], pattern: str | None) -> None:
        if self._member.assigned and not self._member.is_member:
            raise RestError(ILLEGAL_STATE, "this consumer was assigned partitions: make another one to subscribe")
        if self._topics or self._pattern is not None:
            was_pattern = self._pattern is not None
            if was_pattern != (pattern is not None):
                raise RestError(SUBSCRIBED_OTHERWISE, "this consumer is subscribed otherwise: delete that first")
        if pattern is not None:
            try:
                self._pattern = re2.compile(pattern)
            except re2.error:
                raise RestError(UNPROCESSABLE, f"topic_pattern {pattern[:80]!r} is no regular expression") from None
            self._matched_at = 0.0
            self._match()
            return
        self._topics = list(topics)
        self._member.subscribe(self._topics)
        self._member.beat()

    def _match(self) -> None:
        """Subscribe to the topics that the pattern matches now, and that may be read."""
        if self._pattern is None or time.monotonic() - self._matched_at < _LOOK_EVERY_S:
            return
        self._matched_at = time.monotonic()
        found = [each for each in self._member.topic_names() if self._settings.may_consume(each)]
        self._topics = [each for each in found if self._pattern.fullmatch(each)]
        self._member.subscribe(self._topics)
        self._member.beat()

    def subscription(self) -> list[str]:
        return self._topics

    def unsubscribe(self) -> None:
        self._topics, self._pattern = [], None
        if self._member.is_member:
            self._member.unsubscribe()

    def assign(self, partitions: Sequence[TopicPartition]) -> None:
        if self._member.is_member:
            raise RestError(ILLEGAL_STATE, "this consumer is subscribed to topics: delete that first, then assign")
        self._member.assign(partitions)

    def assignment(self) -> list[TopicPartition]:
        self._member.beat()
        return sorted(self._member.assigned)

    def seek(self, offsets: Mapping[TopicPartition, int]) -> None:
        self._check_assigned(offsets)
        self._let_go(offsets)
        self._member.seek(offsets)

    def seek_to(self, partitions: Collection[TopicPartition], *, beginning: bool) -> None:
        self._check_assigned(partitions)
        self._let_go(partitions)
        self._member.seek_to(partitions, beginning=beginning)

    def _check_assigned(self, partitions: Collection[TopicPartition]) -> None:
        self._member.beat()
        for where in partitions:
            if where not in self._member.assigned:
                raise RestError(ILLEGAL_STATE, f"{where} is not assigned to this consumer: it may have been taken away")

    # --- records

    def records(self, timeout_ms: int, max_bytes: int, is_gone: Callable[[], bool] = lambda: False) -> list[Taken]:
        """What there is, or what comes within this time; one record at least if there is one, however large. Where
        whoever asked is gone meanwhile, nothing is handed out: it would be committed, and nobody would have had it."""
        if not self._member.is_member and not self._member.assigned:
            raise RestError(ILLEGAL_STATE, "this consumer is subscribed to nothing, and nothing is assigned to it")
        self._match()
        if self.made.commits_itself:
            self._commit_handed()
        until = time.monotonic() + timeout_ms / 1000
        while True:
            count, size = self._ready(max_bytes)
            left_ms = int((until - time.monotonic()) * 1000)
            is_enough = count < len(self._ahead) or (count and size >= self.made.min_bytes)
            if is_enough or left_ms <= 0 or self._closing.is_set():
                break
            if is_gone():
                return []
            try:
                self._ahead.extend(self._member.poll(min(left_ms, 500)))
            except ClientError:
                count, _ = self._ready(max_bytes)  # some may have been taken away
                if not count:
                    raise
                break  # what is in the way is said to the next request, if it still is
        return [] if is_gone() else [self._hand_out() for _ in range(count)]

    def _ready(self, max_bytes: int) -> tuple[int, int]:
        """How many of the records that were fetched fit into an answer, and how large they are."""
        count = size = 0
        for read in self._ahead:
            length = len(read.record.key or b"") + len(read.record.value or b"")
            if count and size + length > max_bytes:
                break
            count, size = count + 1, size + length
        return count, size

    def _hand_out(self) -> Taken:
        read = self._ahead.popleft()
        record = read.record
        self._handed[read.partition] = record.offset + 1
        return Taken(
            *read.partition,
            record.offset,
            None if record.key is None else bytes(record.key),
            None if record.value is None else bytes(record.value),
        )

    # --- offsets

    def commit(self, offsets: Mapping[TopicPartition, Committed] | None) -> None:
        """These, or what was handed out."""
        if offsets is None:
            self._commit_handed()
        else:
            self._member.commit(offsets)

    def _commit_handed(self) -> None:
        if self._handed:
            self._member.commit({where: Committed(offset, "") for where, offset in self._handed.items()})
            self._handed.clear()

    def committed(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, Committed]:
        return self._member.committed(partitions)


class Consumers:
    """All of them; for the event loop."""

    def __init__(self, bootstrap: Sequence[Address], settings: HttpSettings) -> None:
        self._bootstrap = bootstrap
        self._settings = settings
        self._instances: dict[tuple[str, str], Instance] = {}

    def __len__(self) -> int:
        return len(self._instances)

    def make(self, group: str, made: NewConsumer) -> Instance:
        name = made.name or f"rest-consumer-{uuid4()}"
        if (group, name) in self._instances:
            raise RestError(INSTANCE_EXISTS, f"group {group!r} has a consumer {name!r} already: delete it first")
        if len(self._instances) >= self._settings.instances:
            raise RestError(50301, f"there are {len(self._instances):,} consumers, which is all that may be")
        found = self._instances[group, name] = Instance(group, name, made, self._bootstrap, self._settings)
        found.start()
        return found

    def get(self, group: str, name: str) -> Instance:
        found = self._instances.get((group, name))
        if found is None:
            raise unknown_instance()
        return found

    def remove(self, group: str, name: str) -> None:
        self.get(group, name).close()
        del self._instances[group, name]

    def end_idle(self) -> None:
        now = time.monotonic()
        for key, each in list(self._instances.items()):
            if now - each.used_at > self._settings.instance_s:
                each.close()
                del self._instances[key]

    def close(self) -> None:
        instances = list(self._instances.values())
        self._instances.clear()
        for each in instances:
            each.close()
        for each in instances:
            each.join()


def unknown_instance() -> RestError:
    return RestError(INSTANCE_UNKNOWN, "there is no such consumer: it was deleted, or not asked for anything too long")
