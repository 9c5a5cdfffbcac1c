"""Followers: they read a partition in order, up to the last stable offset, and write what comes of it somewhere else.

Each has a task of its own that sleeps until something was appended or is due; what may be long is done in turns. How
far it came is written to the schedule (`delivery/schedule.py`), a hidden topic, together with what came of it.

What always holds: a follower has written what came of a record before it counts as followed; whatever cannot be written
is tried again until it is; and if it is not certain what is in a log, since a sync failed, everything is read anew, as
after a crash.
"""

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from headrace.broker.coordinator_log import COMPACTED, batches_of, report_unusable
from headrace.broker.topics import Topic
from headrace.broker.turns import Deferred, Steps
from headrace.delivery.headers import ORIGIN
from headrace.delivery.schedule import SCHEDULE_TOPIC, Entry, PartitionId, Place, Schedule, Waiting, read_waiting
from headrace.errors import HeadraceError
from headrace.records import (
    BatchHeader,
    CorruptBatch,
    Record,
    RecordsError,
    build_batch,
    header_at,
    headers_in,
    records_of,
)
from headrace.records.record import bounded_body_of, decode
from headrace.storage.errors import LogDeleted, NotDurable, OffsetOutOfRange, StorageError
from headrace.storage.log import Log
from headrace.storage.segment import FileSlice
from headrace.telemetry.logs import get_logger

if TYPE_CHECKING:
    from headrace.broker.runtime import Runtime

RETRY_S: Final = 1.0  # what could not be written is tried again after this time
_LONGEST_SLEEP_MS: Final = 5000  # of whoever waits for a time: somebody may set the clock
_READ_BYTES: Final = 256 * 1024
_SCANNED_BYTES: Final = 1024 * 1024
PORTION_BYTES: Final = 1024 * 1024  # of messages that are in memory at a time, unless one alone has more
_RECORDS_A_STEP: Final = 50
_RECORDS_A_PLACE: Final = 5000  # that are read again after a crash
_log = get_logger(__name__)


class Lost(HeadraceError):
    """It is not certain any more what is in a log that was written to."""


class ScheduleLog:
    """The hidden topic in which is written what waits, and how far was followed."""

    def __init__(self, runtime: "Runtime") -> None:
        self._runtime = runtime
        self._cuts = 0
        self.on_lost: Callable[[], None] = lambda: None

    @property
    def _log(self) -> Log | None:
        topic = self._runtime.topics.owned(SCHEDULE_TOPIC)
        return topic.partitions[0] if topic else None

    def partitions(self) -> list[Log]:
        return [] if self._log is None else [self._log]

    @property
    def is_made(self) -> bool:
        return self._log is not None

    async def make(self) -> None:
        topics = self._runtime.topics
        await self._runtime.in_thread(
            lambda: topics.owned(SCHEDULE_TOPIC) or topics.create(SCHEDULE_TOPIC, 1, COMPACTED, by_broker=True)
        )

    async def load(self) -> Schedule:
        """Read all of it, in a thread."""
        if self._log is not None:
            await self.when_durable()
            self._cuts = self._log.cuts
        return await self.read_all(Schedule())

    async def read_all(self, schedule: Schedule) -> Schedule:
        log = self._log
        if log is not None:
            await self._runtime.look_up(lambda: _take_all(log, schedule))
        return schedule

    def append(self, entries: Sequence[Entry]) -> int:
        """Write entries in one batch; where the first of them stands."""
        log = self._log
        assert log is not None
        now_ms = self._runtime.now_ms()
        batch = build_batch([Record(place, now_ms, entry.key, entry.value) for place, entry in enumerate(entries)])
        try:
            info = log.append(
                batch, now_ms=now_ms, leader_epoch=self._runtime.leader_epoch, from_client=False, cuts=self._cuts
            )
        except NotDurable as error:
            raise Lost(str(error)) from error
        self._runtime.appended(log, info.last_offset + 1, self._settle)
        return info.base_offset

    def _settle(self, error: StorageError | None) -> None:
        if error:
            self.on_lost()

    def when_durable(self) -> Deferred[None]:
        """Set once all that was written so far is on the disk."""
        log = self._log
        assert log is not None
        return when_durable(self._runtime, log, log.end_offset)

    def read(self, refs: Sequence[int]) -> Steps[tuple[dict[int, Waiting], set[int]]]:
        """The messages that stand at these places, without those that do not wait any more; and which are still unread.

        A portion of bytes is read, unless one message alone has more.
        """
        log = self._log
        assert log is not None
        found: dict[int, Waiting] = {}
        wanted = set(refs)
        reached, size = -1, 0
        for ref in sorted(wanted):
            if ref <= reached:
                continue
            yield
            piece, _ = log.read(ref, 1)
            data = piece.read() if piece is not None else b""
            header = header_at(data) if data else None
            if header is None or header.base_offset > ref:
                continue  # compaction took it: something newer stands for it
            for record in records_of(memoryview(data)[: header.size]):
                if record.offset not in wanted or record.value is None:
                    continue
                if size >= PORTION_BYTES:
                    return found, {each for each in wanted if each >= record.offset}
                found[record.offset] = waiting = read_waiting(record.value)
                size += size_of(waiting.record)
            reached = header.last_offset
        return found, set()


def size_of(record: Record) -> int:
    return len(record.key or b"") + len(record.value or b"") + sum(len(each.value or b"") for each in record.headers)


def _take_all(log: Log, schedule: Schedule) -> None:
    unusable = 0
    for batch in batches_of(log):
        try:
            for record in records_of(batch):
                schedule.take(record.offset, record.key or b"", record.value)
        except Exception as error:  # noqa: BLE001 - bytes that were damaged keep the broker from nothing else
            unusable += 1
            report_unusable(log, header_at(batch).base_offset, error, unusable)


def when_durable(runtime: "Runtime", log: Log, offset: int) -> Deferred[None]:
    """Set once everything before an offset is on the disk; fails with `Lost` if that cannot be said."""
    done: Deferred[None] = Deferred()
    runtime.appended(log, offset, lambda error: done.fail(Lost(str(error))) if error else done.set(None))
    return done


# --- reading


class _Batch(NamedTuple):
    header: BatchHeader
    data: memoryview


def committed_batches(log: Log, offset: int, before: int, max_bytes: int = _READ_BYTES) -> list[_Batch]:
    """Batches from the one with an offset on, without markers and what was aborted; `before` is a stable offset."""
    piece, aborted = log.read(offset, max_bytes, committed=True, before=before)
    data = memoryview(piece.read() if isinstance(piece, FileSlice) else b"")
    starts = sorted((each.first_offset, each.producer_id) for each in aborted)
    open_aborted: set[int] = set()
    batches = []
    for position, header in headers_in(data):
        while starts and starts[0][0] <= header.last_offset:
            open_aborted.add(starts.pop(0)[1])
        if header.is_control:
            open_aborted.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in open_aborted):
            batches.append(_Batch(header, data[position : position + header.size]))
    return batches


def copies_between(log: Log, start: int, end: int) -> Iterator[tuple[Record, bytes]]:
    """The copies that the broker has appended to a log between two offsets, and their origins; for a thread.

    A client can write the header of an origin, and not a batch that is a copy.
    """
    start = max(start, log.start_offset)
    while start < end:
        piece, _ = log.read(start, _SCANNED_BYTES, before=end)
        data = memoryview(piece.read() if piece is not None else b"")
        start = end if not data else start
        for position, header in headers_in(data):
            start = header.next_offset
            batch = data[position : position + header.size]
            if header.is_copy:
                with suppress(RecordsError):
                    for record in records_of(batch):
                        yield from (
                            (record, each.value) for each in record.headers if each.key == ORIGIN and each.value
                        )


_LATEST_MS = 2**62  # of two such times each is within 64 bits of the other


class Reader:
    """Reads the committed records of a partition one after the other; one batch at a time is uncompressed."""

    def __init__(self, log: Log, offset: int) -> None:
        self._log = log
        self.offset = offset  # of the next record: all before it were handed out, or are not to be
        self._open: BatchHeader | None = None  # of the batch of which records were handed out, maybe all of them
        self._records: Iterator[Record] = iter(())
        self._batches: deque[_Batch] = deque()  # that were read, and follow it

    @property
    def whole_offset(self) -> int:
        """Up to where batches were handed out as a whole."""
        if self._open is None or self.offset >= self._open.next_offset:
            return self.offset
        return self._open.base_offset

    def read(self, limit: int, before: int) -> Steps[list[Record]]:
        """No more than so many records, in steps, and no more than a portion of bytes unless one alone has more.

        None if there is nothing before an offset, which must be stable.
        """
        records: list[Record] = []
        size = 0
        while len(records) < limit and size < PORTION_BYTES:
            record = next(self._records, None)
            if record is not None:
                if record.offset >= self.offset:
                    records.append(record)
                    size += size_of(record)
                    self.offset = record.offset + 1
                    if not len(records) % _RECORDS_A_STEP:
                        yield
            elif self._batches:
                yield from self._open_batch(*self._batches.popleft())
            elif self.offset < before:
                self._read_on(before)
            else:
                break
        return records

    def _read_on(self, before: int) -> None:
        """Read batches, or go on behind where there are none."""
        try:
            self._batches.extend(committed_batches(self._log, self.offset, before))
        except OffsetOutOfRange:
            self.offset = max(self.offset, self._log.start_offset)  # retention was faster
            return
        if not self._batches:
            self.offset = self._behind(before)

    def _open_batch(self, header: BatchHeader, data: memoryview) -> Steps[None]:
        try:
            body = yield from bounded_body_of(data, header)
        except RecordsError as error:
            self._pass_by(header, error)
        else:
            self._records = self._records_in(header, body)

    def _records_in(self, header: BatchHeader, body: bytes) -> Iterator[Record]:
        self._open = header
        reached = header.base_offset - 1
        try:
            for record in decode(header, body):
                # As its client wrote it: an offset far ahead would have all that follow, of whomever, passed by, and
                # what cannot stand in one batch with others could not be copied.
                if not reached < record.offset <= header.last_offset:
                    raise CorruptBatch(f"a record has the offset {record.offset}, which is not its own")
                if abs(record.timestamp) > _LATEST_MS:
                    raise CorruptBatch(f"a record has the time {record.timestamp}, which is none")
                reached = record.offset
                yield record
        except RecordsError as error:
            self._pass_by(header, error)
        self._open = None
        self.offset = max(self.offset, header.next_offset)

    def _pass_by(self, header: BatchHeader, error: RecordsError) -> None:
        self.offset = max(self.offset, header.next_offset)
        _log.error(
            "a batch cannot be looked into, and what it asks for is not followed",
            log=str(self._log.topic_partition),
            offset=header.base_offset,
            reason=str(error),
        )

    def _behind(self, before: int) -> int:
        """Where the next batch begins behind what was read in vain, all of it markers or aborted; or the end."""
        piece, _ = self._log.read(self.offset, _READ_BYTES, before=before)
        data = piece.read() if piece is not None else b""
        return max((header.next_offset for _, header in headers_in(data)), default=before)


# --- following


class Follower(ABC):
    """The follower of one partition; a kind of them says what becomes of the records."""

    def __init__(self, runtime: "Runtime", schedule: ScheduleLog, topic: Topic, partition: int, place: Place) -> None:
        self.runtime = runtime
        self.schedule = schedule
        self.topic_id = topic.id
        self.name = topic.name
        self.at = PartitionId(topic.id, partition)
        self.log = topic.partitions[partition]
        self._written = place  # how far it came, as the schedule has it
        self.begun = asyncio.Event()  # it is on the disk where it begins
        self._news = asyncio.Event()
        self.failure: Exception | None = None  # why it cannot go on now

    @abstractmethod
    async def begin(self) -> None:
        """Take up what was under way."""

    @abstractmethod
    async def work(self) -> bool:
        """Do a portion of what there is to do; whether there may be more."""

    def next_time_ms(self) -> int | None:
        """When there is something to do even if nothing is appended."""
        return None

    @property
    def needed_offset(self) -> int:
        """From where on it reads its log, or would after a crash."""
        return self._written.offset

    def is_place_due(self, reached: int) -> bool:
        """Whether how far it came is to be written: what lies behind is not freed, and is read after a crash."""
        return reached - self._written.offset >= (1 if self.log.config.frees_acknowledged else _RECORDS_A_PLACE)

    def place_written(self, place: Place) -> None:
        """It is in the schedule how far it came: what is before that may be freed."""
        self._written = place
        if self.log.config.frees_acknowledged:
            self.runtime.finished.note(self.topic_id, self.at.partition)

    def wake(self) -> None:
        self._news.set()

    async def run(self) -> None:
        """Work for as long as the log is there."""
        self.runtime.waiting.add(self.log, self.wake)
        try:
            if not self.schedule.is_made:
                await self._try(self.schedule.make)
            await self._try(self.begin)
            while True:
                self._news.clear()
                if not await self._try(self.work):
                    await self._sleep()
        except LogDeleted:
            pass
        except Lost as error:
            _log.error("a follower begins anew", log=str(self.log.topic_partition), reason=str(error))
            self.schedule.on_lost()
        except Exception as error:
            _log.error(
                "a partition is not followed any more, and groups have nothing new of it until the broker is restarted",
                log=str(self.log.topic_partition),
                reason=repr(error),
            )
            raise
        finally:
            self.runtime.waiting.remove(self.log, self.wake)
            self.begun.set()  # or never: nobody is to wait for it

    async def _try(self, work: Callable[[], Awaitable[bool | None]]) -> bool:
        while True:
            try:
                more = await work()
            except (Lost, LogDeleted):
                raise
            except (StorageError, OSError) as error:
                if self.failure is None:
                    _log.error(
                        "a partition cannot be followed now", log=str(self.log.topic_partition), reason=str(error)
                    )
                self.failure = error
                await asyncio.sleep(RETRY_S)
            else:
                if self.failure is not None:
                    _log.info("a partition is followed again", log=str(self.log.topic_partition))
                self.failure = None
                return bool(more)

    async def _sleep(self) -> None:
        next_ms = self.next_time_ms()
        if next_ms is None:
            await self._news.wait()
            return
        delay_ms = min(max(0, next_ms - self.runtime.now_ms()), _LONGEST_SLEEP_MS)
        handle = asyncio.get_running_loop().call_later(delay_ms / 1000, self.wake)
        try:
            await self._news.wait()
        finally:
            handle.cancel()
