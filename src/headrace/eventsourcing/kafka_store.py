"""Events in a topic of any Kafka, which cannot check an append: one writer at a time does, and all others are fenced.

Whoever writes holds the transactional id of the topic, reads the log to its end, keeps an index of it, checks an append
against that, and writes it in a transaction. Another store that writes takes the id over: a transaction that was open
is aborted, and the one before has to take it over again, and to read on, before its next append. So several processes
may write, and slow each other down. Whoever reads keeps such an index, too.

What always holds: an append is committed only by who has read everything that was committed before it; and when
`append` returns, every reader sees it.
"""

import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import Final

from headrace.client.admin import ensure_topic
from headrace.client.cluster import Cluster
from headrace.client.errors import Refused
from headrace.client.events import select_events
from headrace.client.fetch import FetchOptions
from headrace.client.offsets import LATEST, list_offsets
from headrace.client.reader import read_records
from headrace.client.transactions import Transaction, Transactions
from headrace.client.writer import send
from headrace.delivery import events as wire
from headrace.eventsourcing.broker_store import KEPT, ClusterPool, UnchangingTopic, read_backward
from headrace.eventsourcing.errors import (
    BoundaryConflict,
    Conflict,
    EventSourcingError,
    InvalidAppend,
    InvalidStore,
    StoreUnavailable,
)
from headrace.eventsourcing.event_records import (
    make_command_id,
    offset_after,
    position_of,
    query_on_wire,
    read_stored,
    records_of_append,
)
from headrace.eventsourcing.model import (
    ALL,
    ANY,
    Appended,
    Condition,
    Query,
    StoredEvent,
    StreamAppend,
    StreamInfo,
    check_append,
    where,
)
from headrace.eventsourcing.store import OnProgress
from headrace.eventsourcing.stream_list import list_streams_in
from headrace.model import TopicPartition
from headrace.protocol.errors import ErrorCode
from headrace.records import Record, build_batch, headers_in, records_of
from headrace.storage.event_index import MEMORY, EventIndex, IndexFailed, LiveIndex, is_foreign
from headrace.storage.filesystem import OsFileSystem

_CHANCE: Final = random.SystemRandom()  # a program that seeds `random` keeps its own; forks differ
_TRANSACTION_MS: Final = 60_000
_PATIENCE_S: Final = 60.0
_POLL_S: Final = 0.5
_PAUSE_S: Final = 0.002
_AT_ONCE: Final = 512
_READ_BYTES: Final = 64 * 1024
_COMMITTED: Final = FetchOptions(committed=True)
_FILES: Final = OsFileSystem()
_FENCED: Final = (
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.UNKNOWN_PRODUCER_ID,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.UNKNOWN_SERVER_ERROR,  # of a coordinator while another takes over: the command id tells what became of it
)


class _Fenced(Exception):
    """Another writer has taken over: nothing was committed, or the log says so once it is read on."""


class KafkaEventStore(UnchangingTopic):
    """An event store in a topic, which is made if it is not there.

    `index` is a file for its index, for one store at a time; else it is in memory, and made by each store anew.
    """

    def __init__(self, connect: Callable[[], Cluster], topic: str, *, index: str = MEMORY) -> None:
        self._pool = ClusterPool(connect)
        self._connect = connect
        self._where = TopicPartition(topic, 0)
        self._lock = threading.RLock()  # for the index, and for whoever writes
        self._transaction: Transaction | None = None
        self._sequence = 0
        self._unlock: Callable[[], None] = lambda: None
        try:
            with self._pool.take() as cluster:
                ensure_topic(cluster, topic, configs=KEPT)
                found = cluster.topic(topic, refresh=True)
            if len(found.partitions) != 1:
                raise EventSourcingError(f"topic {topic!r} has several partitions: events of a store are in one")
            if index != MEMORY:
                self._unlock = _lock_index(index)
            self._index = _open_index(index, f"{topic} {found.id_text}")
            self._live = LiveIndex(self._index)
        except BaseException:
            self._pool.close()
            self._unlock()
            raise

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
        with self._lock:
            self._index.close()
            self._unlock()
            self._unlock = lambda: None

    # --- the log, and the index of it

    def _stable(self, cluster: Cluster) -> int:
        """Up to where everything is committed or aborted."""
        return list_offsets(cluster, {self._where: LATEST}, committed=True)[self._where].offset

    def _catch_up(self, cluster: Cluster) -> None:
        """Read what was committed since; with the lock."""
        end, live = self._stable(cluster), self._live
        if end < live.index.place:  # another log under this name, or one that was shortened
            self._index.clear()
            live = self._live = LiveIndex(self._index)
        if end <= live.end:
            return
        for portion in read_records(cluster, {self._where: live.end}, until={self._where: end}, options=_COMMITTED):
            if portion:
                self._note((each.record for each in portion), portion[-1].record.offset + 1)
        self._note((), end)  # behind it may be markers

    def _note(self, records: Iterable[Record], end: int) -> None:
        events = []
        for record in records:
            with suppress(wire.InvalidEvent):
                events.append((record.offset, wire.read_event(record)))
        self._live.note(events, end)
        if self._live.has_portion:
            self._live.begin_portion()()
            self._live.end_portion()

    # --- appending

    def append(
        self, appends: Sequence[StreamAppend], *, condition: Condition | None = None, command_id: str = ""
    ) -> Appended:
        check_append(appends, condition, command_id)
        command = make_command_id(command_id)
        deadline = time.monotonic() + _PATIENCE_S
        pause_s = _PAUSE_S
        is_again = False
        with self._lock, self._pool.take() as cluster:
            while True:
                try:
                    return self._append_once(cluster, appends, condition, command, is_again=is_again)
                except _Fenced:
                    self._transaction, is_again = None, True
                if time.monotonic() > deadline:
                    raise StoreUnavailable(
                        f"other writers take over topic {self._where.topic!r} again and again: on a Kafka that is not "
                        "Headrace's broker let one process append"
                    )
                time.sleep(_CHANCE.uniform(0, pause_s))
                pause_s = min(pause_s * 2, 1.0)

    def _append_once(
        self,
        cluster: Cluster,
        appends: Sequence[StreamAppend],
        condition: Condition | None,
        command: str,
        *,
        is_again: bool,
    ) -> Appended:
        transactions = Transactions(cluster)
        if self._transaction is None:
            self._take_over(transactions)
        self._catch_up(cluster)
        known = self._live.reader()
        actual = {each.stream: known.find_last(wire.stream_term(each.stream.encode())) for each in appends}
        versions = {each.stream: actual[each.stream] if each.expected == ANY else each.expected for each in appends}
        records = records_of_append(appends, versions, command, condition)
        try:
            repeated = _run(wire.check_append([wire.read_event(record) for record in records], known))
        except wire.VersionConflict as conflict:
            raise Conflict(conflict.stream, versions[conflict.stream], actual[conflict.stream]) from None
        except wire.ConditionConflict as conflict:
            assert condition is not None
            raise BoundaryConflict(condition.query, condition.after, position_of(conflict.offset)) from None
        if repeated is not None:
            done = self._read_command(cluster, command)
            # It may be what this very append did, whose answer was lost when another writer took over.
            is_own = is_again and done[0].id == appends[0].events[0].id
            return Appended(done[-1].position, {each.stream: each.version for each in done}, is_repeat=not is_own)
        base = self._commit(cluster, transactions, records)
        self._note((each._replace(offset=base + each.offset) for each in records), base + len(records))
        ends = {each.stream: versions[each.stream] + len(each.events) for each in appends}
        return Appended(position_of(base + len(records) - 1), ends)

    def _take_over(self, transactions: Transactions) -> None:
        """Fence whoever wrote before; its transaction is over when this returns."""
        try:
            self._transaction = transactions.begin(f"headrace-events-{self._where.topic}", _TRANSACTION_MS)
        except Refused as refusal:
            if refusal.code in _FENCED:
                raise _Fenced from None
            raise
        self._sequence = 0

    def _commit(self, cluster: Cluster, transactions: Transactions, records: Sequence[Record]) -> int:
        """Write records in a transaction, and wait until readers see them; the offset of the first."""
        transaction = self._transaction
        assert transaction is not None
        batch = build_batch(
            records,
            producer_id=transaction.producer_id,
            producer_epoch=transaction.epoch,
            base_sequence=self._sequence,
            transactional=True,
        )
        try:
            transactions.add(transaction, [self._where])
            written = send(cluster, {self._where: batch}, transactional_id=transaction.transactional_id)[self._where]
            if not transactions.commit(transaction):
                raise _Fenced
        except Refused as refusal:
            if refusal.code in _FENCED:
                raise _Fenced from None
            self._transaction = None  # what it has written is aborted by whoever takes over
            if refusal.code in (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.INVALID_RECORD, ErrorCode.INVALID_TIMESTAMP):
                raise InvalidAppend(f"the broker does not take the append: {refusal}") from None
            raise
        except BaseException:
            self._transaction = None
            raise
        self._sequence = (self._sequence + len(records)) % 2**31
        self._wait_for_marker(cluster, written.base_offset + len(records))
        return written.base_offset

    def _wait_for_marker(self, cluster: Cluster, end: int) -> None:
        deadline = time.monotonic() + _PATIENCE_S
        while self._stable(cluster) <= end:  # the marker itself is one more
            if time.monotonic() > deadline:
                raise StoreUnavailable("the append is committed, and its marker is not written yet: ask for it later")
            time.sleep(_PAUSE_S)

    def find_command(self, command_id: str) -> Appended | None:
        if not command_id:
            return None
        with self._lock, self._pool.take() as cluster:
            self._catch_up(cluster)
            done = self._read_command(cluster, command_id)
        if not done:
            return None
        return Appended(done[-1].position, {each.stream: each.version for each in done}, is_repeat=True)

    def _read_command(self, cluster: Cluster, command: str) -> list[StoredEvent]:
        """The events of a command, which are all in one batch."""
        named = (wire.COMMAND, command.encode())
        for _, offset in self._live.reader().find(wire.command_term(command.encode()), 0, 1):
            data = memoryview(select_events(cluster, self._where, None, offset, max_bytes=_READ_BYTES).records)
            for position, header in islice(headers_in(data), 1):
                records = records_of(data[position : position + header.size])
                events = [read_stored(record) for record in records if named in record.headers]
                return [event for event in events if event is not None]
        return []

    # --- reading

    def read_stream(
        self, stream: str, *, after: int = 0, to: int | None = None, limit: int | None = None, backward: bool = False
    ) -> Iterator[StoredEvent]:
        term = wire.stream_term(stream.encode())
        first = max(after, 0) + 1
        with self._lock, self._pool.take() as cluster:
            self._catch_up(cluster)
            last = self._live.reader().find_last(term)
        last = last if to is None else min(to, last)

        def find(low: int, high: int) -> Iterator[int | None]:
            return wire.find_versions(term, self._live.reader().find, low, high - 1)

        if not backward and limit is not None:
            last = min(last, first + limit - 1)
        if backward:
            return islice(
                read_backward(lambda low, high: self._read_found(find(low, high)), first, last + 1, limit), limit
            )
        return self._read_found(find(first, last + 1))

    def read(
        self,
        query: Query = ALL,
        *,
        after: int = 0,
        to: int | None = None,
        limit: int | None = None,
        backward: bool = False,
    ) -> Iterator[StoredEvent]:
        first = offset_after(after)
        with self._lock, self._pool.take() as cluster:
            self._catch_up(cluster)
            end = self._live.end
        end = end if to is None else min(to, end)

        def read(low: int, high: int) -> Iterator[StoredEvent]:
            if query.is_everything:
                return self._read_all(low, high)
            return self._read_found(self._find(query, low, high))

        return islice(read_backward(read, first, end, limit) if backward else read(first, end), limit)

    def _find(self, query: Query, first: int, before: int) -> Iterator[int | None]:
        for offset in wire.find_matches(query_on_wire(query), self._live.reader().find, first):
            if offset is not None and offset >= before:
                return
            yield offset

    def _read_all(self, first: int, before: int) -> Iterator[StoredEvent]:
        if first >= before:
            return
        with self._pool.take() as cluster:
            for portion in read_records(cluster, {self._where: first}, until={self._where: before}, options=_COMMITTED):
                for each in portion:
                    event = read_stored(each.record)
                    if event is not None:
                        yield event

    def _read_found(self, offsets: Iterator[int | None]) -> Iterator[StoredEvent]:
        """The events at these offsets, which ascend."""
        wanted: list[int] = []
        while True:
            with self._lock:
                wanted = list(islice((offset for offset in offsets if offset is not None), _AT_ONCE))
            if not wanted:
                return
            yield from self._read_at(wanted)

    def _read_at(self, wanted: Sequence[int]) -> Iterator[StoredEvent]:
        number = 0
        while number < len(wanted):
            with self._pool.take() as cluster:
                records = select_events(cluster, self._where, None, wanted[number], max_bytes=_READ_BYTES).records
            data = memoryview(records)
            before = number
            for position, header in headers_in(data):
                end = number
                while end < len(wanted) and wanted[end] < header.next_offset:
                    end += 1
                if end > number:
                    chosen = set(wanted[number:end])
                    for record in records_of(data[position : position + header.size]):
                        event = read_stored(record) if record.offset in chosen else None
                        if event is not None:
                            yield event
                number = end
            if number == before:
                number += 1  # it was deleted

    def list_streams(
        self, category: str = "", *, after: str = "", on_progress: OnProgress | None = None
    ) -> Iterator[StreamInfo]:
        query = where(category=category) if category else ALL
        return list_streams_in(self.read(query), after, self.last_position(), on_progress)

    def read_everything(self, after: int, to: int) -> Iterator[StoredEvent]:
        return self.read(after=after, to=to)

    def beside(self, name: str, *, create: bool) -> "KafkaEventStore | None":
        topic = f"{self._where.topic}-{name}"
        return KafkaEventStore(self._connect, topic) if create or self._pool.has_topic(topic) else None

    # --- waiting

    def last_position(self) -> int:
        with self._pool.take() as cluster:
            return self._stable(cluster)

    def wait(self, after: int, timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        while not self._pool.is_closed:
            last = self.last_position()
            left_s = deadline - time.monotonic()
            if last > after or left_s <= 0:
                return last > after
            with self._pool.take() as cluster:
                wait_ms = int(min(left_s, _POLL_S) * 1000) + 1
                if select_events(cluster, self._where, None, last, max_wait_ms=wait_ms).records:
                    time.sleep(_PAUSE_S)  # it is there, and not committed yet
        return False


def _lock_index(path: str) -> Callable[[], None]:
    """Keep other stores away from an index: both would write the same portions."""
    try:
        return _FILES.lock(f"{path}.lock")
    except BlockingIOError:
        raise InvalidStore(f"the index of events {path} is in use, another store uses it: name another file") from None
    except OSError as error:
        raise InvalidStore(f"the index of events {path} cannot be used ({error.strerror}): name another file") from None


def _open_index(path: str, owner: str) -> EventIndex:
    if is_foreign(path):
        raise InvalidStore(f"{path} is not an index of events, or a damaged one: name another file, or delete this one")
    try:
        return EventIndex(_FILES, path, owner)
    except (IndexFailed, OSError) as error:
        raise InvalidStore(f"the index of events {path} cannot be used ({error}): name another file") from error


def _run(steps: Iterator[None]) -> int | None:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
