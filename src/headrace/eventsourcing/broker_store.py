"""Events in a topic of our broker, which checks an append and appends it in one step (`headrace.events`).

An append is one record batch in the topic's one partition: whole or not at all, in whatever streams its events are. The
broker refuses it if an event is not the next one of its stream, or if something matches its condition; it finds the
events of a stream, or of a query, by an index. The topic is a Kafka topic like any other to everybody who reads it.
"""

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Final, NoReturn

from headrace.client.admin import ensure_topic
from headrace.client.cluster import Cluster
from headrace.client.errors import ClientError, Refused, UnknownTopic
from headrace.client.events import FEATURE, Selected, append_events, select_events
from headrace.client.offsets import EARLIEST, LATEST, list_offsets
from headrace.delivery.events import Selection
from headrace.delivery.redaction import REDACTION, read_redaction
from headrace.eventsourcing.errors import (
    BoundaryConflict,
    Conflict,
    ErasureRefused,
    EventSourcingError,
    InvalidAppend,
    StoreUnavailable,
)
from headrace.eventsourcing.event_records import (
    make_command_id,
    offset_after,
    position_of,
    query_on_wire,
    read_events,
    records_of_append,
)
from headrace.eventsourcing.model import (
    ALL,
    ANY,
    Appended,
    Condition,
    NewEvent,
    Query,
    StoredEvent,
    StreamAppend,
    StreamInfo,
    check_append,
    where,
)
from headrace.eventsourcing.pool import Pool
from headrace.eventsourcing.store import OnProgress
from headrace.eventsourcing.stream_list import list_streams_in
from headrace.eventsourcing.traces import trace_tag
from headrace.model import TopicPartition
from headrace.protocol.errors import ErrorCode
from headrace.records import build_batch

MAX_APPEND_BYTES: Final = 16 * 1024 * 1024
KEPT: Final = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "max.message.bytes": str(MAX_APPEND_BYTES),
    "message.timestamp.after.max.ms": str(2**63 - 1),  # the time of an event is the application's
}
_LAST: Final = 2**62
_MATCHED: Final = re.compile(r"the event at offset (\d+) matches")  # in what the broker says of a condition
_ATTEMPTS: Final = 20  # of an append that nothing seems to be in the way of
_POLL_S: Final = 0.5
_REDACTION_S: Final = 60.0  # the broker writes a segment anew
_LOOK_S: Final = 0.01
_SELECTED_BYTES: Final = 16 * 1024, 1024 * 1024  # at least and at most, in an answer
_EVENT_BYTES: Final = 1024  # as a guess
_WINDOW, _LARGEST_WINDOW = 128, 16 * 1024  # events that are read at once from the end on


class ClusterPool(Pool[Cluster]):
    """Clients of a cluster, which connect anew by themselves."""

    def __init__(self, connect: Callable[[], Cluster]) -> None:
        super().__init__(connect, outlives_errors=True)

    @contextmanager
    def take(self) -> Iterator[Cluster]:
        """A client; whatever fails on it is `StoreUnavailable`."""
        with self.borrow() as cluster:
            try:
                yield cluster
            except ClientError as error:
                raise StoreUnavailable(str(error)) from error

    def has_topic(self, topic: str) -> bool:
        with self.take() as cluster:
            try:
                cluster.topic(topic)
            except UnknownTopic:
                return False
            return True


class UnchangingTopic:
    """What stores in topics say about erasure: a log is not changed, and loses no more than its beginning."""

    def redact(self, event: StoredEvent, stand_in: bytes, trace: NewEvent) -> Appended:  # noqa: ARG002
        raise ErasureRefused(f"{event} is in a Kafka that never changes a record: keep events that may have to be "
                             "redacted in SQLite, in PostgreSQL or on a Headrace broker")  # fmt: skip

    def archive(
        self,
        stream: str,
        contents: Iterable[tuple[int, bytes]],  # noqa: ARG002
        trace: NewEvent,  # noqa: ARG002
        expected: int,  # noqa: ARG002
    ) -> NoReturn:
        raise ErasureRefused(f"stream {stream!r} is in a topic, which loses events of all streams or of none: archive "
                             "streams that are in SQLite or PostgreSQL")  # fmt: skip

    def find_archived(self, query: Query) -> None:  # noqa: ARG002
        return None

    def find_snapshot(self, stream: str) -> None:  # noqa: ARG002
        return None


class BrokerEventStore(UnchangingTopic):
    """An event store in a topic, which is made if it is not there."""

    def __init__(self, connect: Callable[[], Cluster], topic: str, *, create: bool = True) -> None:
        self._pool = ClusterPool(connect)
        self._connect = connect
        self._where = TopicPartition(topic, 0)
        try:
            self._open(topic, create=create)
        except BaseException:
            self._pool.close()
            raise

    def _open(self, topic: str, *, create: bool) -> None:
        with self._pool.take() as cluster:
            if FEATURE not in cluster.any_broker().features:
                raise EventSourcingError(
                    f"{cluster} is not a Headrace broker, and cannot check an append: use a store for Kafka, which has "
                    "one writer"
                )
            if create:
                ensure_topic(cluster, topic, configs={FEATURE: "true", **KEPT})
            if len(cluster.topic(topic).partitions) != 1:
                raise EventSourcingError(f"topic {topic!r} has several partitions: events of a store are in one")
            try:
                select_events(cluster, self._where, Selection(stream="-", first=_LAST))
            except Refused as refusal:
                if refusal.code is not ErrorCode.INVALID_REQUEST:
                    raise
                raise EventSourcingError(f"topic {topic!r} keeps no events: set {FEATURE}=true for it") from None

    @property
    def topic(self) -> str:
        return self._where.topic

    @property
    def bootstrap_servers(self) -> str:
        with self._pool.take() as cluster:
            return str(cluster)

    def __str__(self) -> str:
        return f"topic {self.topic}"

    def close(self) -> None:
        self._pool.close()

    # --- appending

    def append(
        self, appends: Sequence[StreamAppend], *, condition: Condition | None = None, command_id: str = ""
    ) -> Appended:
        check_append(appends, condition, command_id)
        command = make_command_id(command_id)
        attempts = _ATTEMPTS
        with self._pool.take() as cluster:
            while True:
                versions = {
                    each.stream: self._version(cluster, each.stream) if each.expected == ANY else each.expected
                    for each in appends
                }
                records = records_of_append(appends, versions, command, condition)
                try:
                    done = append_events(cluster, self._where, build_batch(records))
                except Refused as refusal:
                    if not self._explain(cluster, refusal, appends, condition, versions):
                        attempts -= 1
                        if not attempts:
                            raise
                    continue
                if done.is_repeat:
                    events = self._events_of(cluster, command)
                    is_own = done.is_again and bool(events) and events[0].id == appends[0].events[0].id
                    return _appended(events, done.base_offset, is_repeat=not is_own)
                ends = {each.stream: versions[each.stream] + len(each.events) for each in appends}
                return Appended(position_of(done.base_offset + len(records) - 1), ends)

    def _version(self, cluster: Cluster, stream: str) -> int:
        return select_events(cluster, self._where, Selection(stream=stream, first=_LAST)).stream_version

    def _explain(
        self,
        cluster: Cluster,
        refusal: Refused,
        appends: Sequence[StreamAppend],
        condition: Condition | None,
        versions: Mapping[str, int],
    ) -> bool:
        """Raise what an append was refused for; whether a stream that may be at any version has moved on."""
        if refusal.code in (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.INVALID_RECORD, ErrorCode.INVALID_TIMESTAMP):
            raise InvalidAppend(f"the broker does not take the append: {refusal}") from None
        if refusal.code is not ErrorCode.POLICY_VIOLATION:
            raise refusal
        if condition is not None and (matched := _MATCHED.search(str(refusal))) is not None:
            position = position_of(int(matched[1]))  # which may not be there to be read, any more or yet
            raise BoundaryConflict(condition.query, condition.after, position) from None
        has_moved = False
        for each in appends:
            actual = self._version(cluster, each.stream)
            if each.expected not in (ANY, actual):
                raise Conflict(each.stream, each.expected, actual) from None
            has_moved = has_moved or actual != versions[each.stream]
        return has_moved

    def find_command(self, command_id: str) -> Appended | None:
        if not command_id:
            return None
        with self._pool.take() as cluster:
            events = self._events_of(cluster, command_id)
        return _appended(events, 0, is_repeat=True) if events else None

    def _events_of(self, cluster: Cluster, command: str) -> list[StoredEvent]:
        """What an append did that was done before."""
        return list(read_events(select_events(cluster, self._where, Selection(command=command)).records))

    # --- redaction

    def redact(self, event: StoredEvent, stand_in: bytes, trace: NewEvent) -> Appended:
        """The trace is what asks the broker for it; when that is durable the event is replaced, after a crash too."""
        while True:
            # As far as it can be read: a trace that is not durable yet is a conflict, and is found thereafter.
            [last] = self.read_stream(event.stream, backward=True, limit=1)
            appended = self._find_redaction(event)
            try:
                if appended is None:
                    appended = self.append([StreamAppend(event.stream, [trace], last.version)])
                break
            except Conflict:
                time.sleep(_LOOK_S)  # perhaps another has redacted it
        deadline = time.monotonic() + _REDACTION_S
        while True:
            for found in self.read_stream(event.stream, after=event.version - 1, to=event.version):
                if found.data == stand_in:
                    return appended
            if time.monotonic() > deadline:
                raise StoreUnavailable(f"the trace is stored, and {event} is not redacted yet: see the broker's log")
            time.sleep(_LOOK_S)

    def _find_redaction(self, event: StoredEvent) -> Appended | None:
        for found in self.read(where(types=[REDACTION], tags=[trace_tag(event.stream)]), after=event.position):
            told = read_redaction(found.data)
            if told is not None and (told.stream, told.version) == (event.stream, event.version):
                return Appended(found.position, {event.stream: found.version}, is_repeat=True)
        return None

    # --- reading

    def _select(self, selection: Selection | None, offset: int = 0, limit: int | None = None) -> Selected:
        """Some of what is asked for; not many more bytes than so many events may have."""
        least, most = _SELECTED_BYTES
        max_bytes = most if limit is None else min(most, max(least, limit * _EVENT_BYTES))
        with self._pool.take() as cluster:
            try:
                return select_events(cluster, self._where, selection, offset, max_bytes=max_bytes)
            except Refused as refusal:
                start = list_offsets(cluster, {self._where: EARLIEST})[self._where].offset
                if refusal.code is not ErrorCode.OFFSET_OUT_OF_RANGE or start <= offset:
                    raise
                # The beginning of the log was deleted.
                return select_events(cluster, self._where, selection, start, max_bytes=max_bytes)

    def read_stream(
        self, stream: str, *, after: int = 0, to: int | None = None, limit: int | None = None, backward: bool = False
    ) -> Iterator[StoredEvent]:
        first, last = max(after, 0) + 1, _LAST if to is None else to
        if limit == 0 or last < first:
            return iter(())
        if backward:
            last = min(last, self._select(Selection(stream=stream, first=_LAST)).stream_version)
            return islice(
                read_backward(lambda low, high: self._read_versions(stream, low, high), first, last + 1, limit), limit
            )
        if limit is not None:
            last = min(last, first + limit - 1)
        return self._read_versions(stream, first, last + 1)

    def _read_versions(self, stream: str, first: int, before: int) -> Iterator[StoredEvent]:
        while first < before:
            selected = self._select(Selection(stream=stream, first=first, last=before - 1))
            version = first - 1
            for event in read_events(selected.records):
                version = event.version
                yield event
            if selected.next_offset >= selected.end:
                return
            first = version + 1

    def read(
        self,
        query: Query = ALL,
        *,
        after: int = 0,
        to: int | None = None,
        limit: int | None = None,
        backward: bool = False,
    ) -> Iterator[StoredEvent]:
        first, end = offset_after(after), self.last_position()
        end = end if to is None else min(to, end)
        if backward:
            found = read_backward(lambda low, high: self._read_offsets(query, low, high), first, end, limit)
        else:
            found = self._read_offsets(query, first, end, limit)
        return islice(found, limit)

    def _read_offsets(self, query: Query, first: int, before: int, limit: int | None = None) -> Iterator[StoredEvent]:
        selection = None if query.is_everything else Selection(query=query_on_wire(query), before=before)
        while first < before:
            selected = self._select(selection, first, limit)
            for event in read_events(selected.records):
                if first < event.position <= before:
                    yield event
            if selected.next_offset <= first:
                return  # nothing is left, though there should be: it was deleted
            first = selected.next_offset

    def list_streams(
        self, category: str = "", *, after: str = "", on_progress: OnProgress | None = None
    ) -> Iterator[StreamInfo]:
        query = where(category=category) if category else ALL
        return list_streams_in(self.read(query), after, self.last_position(), on_progress)

    def read_everything(self, after: int, to: int) -> Iterator[StoredEvent]:
        return self.read(after=after, to=to)

    def beside(self, name: str, *, create: bool) -> "BrokerEventStore | None":
        topic = f"{self._where.topic}-{name}"
        return BrokerEventStore(self._connect, topic) if create or self._pool.has_topic(topic) else None

    # --- waiting

    def last_position(self) -> int:
        with self._pool.take() as cluster:
            return list_offsets(cluster, {self._where: LATEST})[self._where].offset

    def wait(self, after: int, timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        while not self._pool.is_closed:
            last = self.last_position()
            left_s = deadline - time.monotonic()
            if last > after or left_s <= 0:
                return last > after
            with self._pool.take() as cluster:
                select_events(cluster, self._where, None, last, max_wait_ms=int(min(left_s, _POLL_S) * 1000) + 1)
        return False


def _appended(events: Sequence[StoredEvent], base_offset: int, *, is_repeat: bool) -> Appended:
    """What an append did whose events are these; they may have been deleted since."""
    position = events[-1].position if events else position_of(base_offset)
    return Appended(position, {each.stream: each.version for each in events}, is_repeat=is_repeat)


def read_backward(
    read: Callable[[int, int], Iterator[StoredEvent]], first: int, end: int, limit: int | None
) -> Iterator[StoredEvent]:
    """What `read` finds between two numbers, the last first, a window at a time."""
    size = _WINDOW if limit is None else min(limit, _WINDOW)
    while end > first:
        low = max(first, end - size)
        yield from reversed(list(read(low, end)))
        end, size = low, min(size * 4, _LARGEST_WINDOW)
