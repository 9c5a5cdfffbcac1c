"""Topics that keep events (`headrace.events`): appends are checked by an index beside the log, and read by it.

The index of a partition (`storage/event_index.py`) is made of its log alone. What was appended last is in memory, in
the same turn as it is in the log, and goes to the index on the disk in portions, once it is durable; after a crash the
rest is read from the log again. So check and append are one step, and nothing is acknowledged that the index could
miss.

What always holds: whoever is checked sees everything that was appended before, since one batch at a time is between its
check and its append; an append whose index is not up to date is refused, and may be sent again; and no more is in
memory than a few portions, however much is in the log.
"""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from headrace.broker.errors import BrokerError
from headrace.broker.queues.followers import RETRY_S, Lost, when_durable
from headrace.broker.topics import Topic
from headrace.broker.turns import Steps
from headrace.delivery.events import (
    COMMAND,
    Entry,
    Event,
    InvalidEvent,
    Selection,
    check_append,
    command_term,
    entries_of,
    find_matches,
    find_versions,
    read_event,
    stream_term,
    type_term,
)
from headrace.delivery.redaction import REDACTION, make_stand_in, read_redaction
from headrace.protocol.errors import ErrorCode
from headrace.records import BatchHeader, Record, RecordsError, build_batch, headers_in, records_of
from headrace.records.record import body_of, decode
from headrace.storage.errors import LogDeleted, OffsetOutOfRange, StorageError
from headrace.storage.event_index import (
    MEMORY,
    PORTION,
    EventIndex,
    IndexFailed,
    LiveIndex,
    LiveReader,
    is_damage,
    remove_index,
)
from headrace.storage.filesystem import OsFileSystem
from headrace.storage.log import Log
from headrace.storage.redaction import replace_values
from headrace.telemetry.logs import get_logger

if TYPE_CHECKING:
    from headrace.broker.runtime import Runtime

_SUFFIX: Final = ".events"
_MOST_IN_MEMORY: Final = 16 * PORTION  # entries; if the disk is slower than that, producers have to wait
_BUILT_BYTES: Final = 1024 * 1024  # of the log, that are read at once to make the index from it
_READ_BYTES: Final = 32 * 1024
_TRACES_AT_ONCE: Final = 256
_log = get_logger(__name__)


class Selected(NamedTuple):
    """Batches with the events that were asked for, and no others."""

    records: bytes
    next_offset: int  # where to go on; the high watermark if there are no more now
    stream_version: int  # of the stream that was asked for


class PartitionEvents:
    """The events of one partition. All of it on the event loop but `select`."""

    def __init__(self, runtime: "Runtime", log: Log, path: str, owner: str) -> None:
        self._runtime = runtime
        self._log = log
        self.path = path
        self._owner = owner
        self._index: EventIndex | None = None
        self._live: LiveIndex | None = None
        self._cuts = -1
        self._is_built = asyncio.Event()
        self._is_over = False
        self._news = asyncio.Event()
        self._is_entered = False
        self._is_failing = False
        self._failure: Exception | None = None  # of a look-up
        self._traces = asyncio.Event()
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._run()), loop.create_task(self._redact())]

    # --- following the log

    @property
    def is_ready(self) -> bool:
        """Whether all that is in the log is known here; if not, somebody is about to look."""
        log = self._log
        if self._is_built.is_set() and self._live and (self._cuts != log.cuts or self._live.end != log.end_offset):
            self._is_built.clear()  # a part of it was cut off, or the broker itself wrote to it
            self._news.set()
        return self._is_built.is_set() and not self._is_over

    async def wait(self) -> None:
        """Return once everything is known, or never will be."""
        while not self.is_ready and not self._is_over:
            await self._is_built.wait()

    async def _run(self) -> None:
        try:
            while True:
                try:
                    await self._build()
                    await self._write_portions()
                    if self._failure is not None:
                        await self._fail(self._failure)
                except LogDeleted:
                    return
                except Lost:
                    self._is_built.clear()  # what is in memory may not be in the log any more
                except (StorageError, IndexFailed, OSError) as error:
                    self._is_built.clear()
                    await self._fail(error)
        finally:
            self._is_over = True
            self._is_built.set()  # nobody is to wait for it

    def report(self, error: Exception) -> None:
        """A look-up failed: the index is opened anew, and made anew if it is damaged."""
        self._failure = error
        self._is_built.clear()
        self._news.set()

    async def _fail(self, error: Exception) -> None:
        if not self._is_failing:
            _log.error("an index of events cannot be kept now", log=str(self._log.topic_partition), reason=str(error))
        self._is_failing, self._failure = True, None
        if self._index is not None and isinstance(error, IndexFailed):
            index, self._index = self._index, None
            await self._runtime.in_background(index.close)
            if is_damage(error):
                await self._runtime.in_background(self._remove_files)
        await asyncio.sleep(RETRY_S)

    async def _build(self) -> None:
        """Have everything in the index that is in the log; until then nobody appends."""
        log, runtime = self._log, self._runtime
        if self._index is None:
            self._index = await runtime.in_background(lambda: EventIndex(OsFileSystem(), self.path, self._owner))
        index = self._index
        while True:
            self._cuts = log.cuts
            if index.place > log.end_offset:  # it is of another log: this one was shortened
                await runtime.in_background(index.clear)
            end = runtime.high_watermark(log)
            if index.place < end:
                await runtime.in_background(partial(_build_portion, log, index, end))
            elif end < log.end_offset:
                await when_durable(runtime, log, log.end_offset)
            else:
                break
        self._live = LiveIndex(index)
        self._is_built.set()
        self._is_failing = False

    async def _write_portions(self) -> None:
        """Write what is in memory whenever it is a portion."""
        live = self._live
        assert live is not None
        while True:
            self._news.clear()
            if not self.is_ready:
                return
            if not live.has_portion:
                await self._news.wait()
                continue
            end, write = live.end, live.begin_portion()
            await when_durable(self._runtime, self._log, end)
            await self._runtime.in_background(write)
            live.end_portion()

    # --- redaction

    def redact_soon(self) -> None:
        """Traces were appended: what they say is done as soon as they are durable."""
        self._traces.set()

    async def _redact(self) -> None:
        """Carry out what traces in the log ask for; at the start all of them, for a crash may have come first."""
        log, runtime = self._log, self._runtime
        place, cuts = 0, log.cuts
        while True:
            await self.wait()
            if self._is_over or self._live is None:
                return
            self._traces.clear()
            if log.cuts != cuts:
                place, cuts = 0, log.cuts
            live, end = self._live, self._live.end
            try:
                await when_durable(runtime, log, end)
                reader = live.reader(elsewhere=True)
                now_ms = runtime.clock.now_ms()
                await runtime.in_background(partial(redact_events, log, reader, place, end, now_ms))
            except LogDeleted:
                return
            except (Lost, StorageError, IndexFailed, OSError, RecordsError) as error:
                _log.error("events cannot be redacted now", log=str(log.topic_partition), reason=str(error))
                await asyncio.sleep(RETRY_S)
                continue
            place = end
            await self._traces.wait()

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()

    def let_go(self) -> None:
        """Close the index, when nobody works with it any more."""
        if self._index is not None:
            self._index.close()

    def remove(self) -> None:
        self.let_go()
        self._remove_files()

    def _remove_files(self) -> None:
        if self.path != MEMORY:
            remove_index(OsFileSystem(), self.path)

    # --- appending

    def enter(self) -> Steps[None]:
        """Wait until no other batch is between its check and its append."""
        while self._is_entered:
            yield
        self._is_entered = True

    def leave(self) -> None:
        self._is_entered = False

    def check(self, header: BatchHeader, events: Sequence[Event]) -> Steps[int | None]:
        """Refuse events that are not the next ones; if their commands were appended before, the offset of the first."""
        live = self._live
        if not self.is_ready or live is None or live.count > _MOST_IN_MEMORY:
            raise self._not_ready()
        if header.producer_id >= 0:
            try:
                if self._log.producers.check(header) is not None:
                    return None  # it is there already, and the log answers where
            except StorageError:
                return None  # the log refuses it, and says why
        try:
            repeated = yield from check_append(events, live.reader())
        except IndexFailed as error:
            self.report(error)
            raise self._not_ready() from None
        if live is not self._live or not self.is_ready:  # the log was cut meanwhile
            raise self._not_ready()
        return repeated

    def _not_ready(self) -> BrokerError:
        return BrokerError(
            ErrorCode.NOT_ENOUGH_REPLICAS,
            f"the index of {self._log.topic_partition} is not up to date yet: nothing was appended, send it again",
        )

    def note(self, base_offset: int, events: Sequence[Event]) -> None:
        """Events were appended; in the turn in which they were."""
        live = self._live
        if live is None or base_offset != live.end:  # a batch that was there already
            return
        live.note(enumerate(events, base_offset), base_offset + len(events))
        if live.has_portion:
            self._news.set()

    # --- reading, in a thread

    def select(self, selection: Selection, offset: int, max_bytes: int, before: int) -> Selected:
        """The events that are asked for, of those before an offset; of a query, from an offset on."""
        assert self._live is not None
        reader = self._live.reader(elsewhere=True)
        batches = _Batches(self._log)
        if selection.command:
            places = reader.find(command_term(selection.command.encode()), 0, 1)
            return Selected(_select_command(batches, selection.command, places, before), before, 0)
        version = 0
        if selection.stream:
            term = stream_term(selection.stream.encode())
            version = reader.find_last(term)
            offsets: Iterator[int | None] = find_versions(term, reader.find, selection.first, selection.last)
        else:
            offsets = find_matches(selection.query, reader.find, offset)
            before = min(before, selection.before)
        records, next_offset = _collect(batches, offsets, max_bytes, before)
        return Selected(records, next_offset, version)


def redact_events(log: Log, reader: LiveReader, first: int, before: int, now_ms: int) -> None:
    """Replace the data of events that traces between two offsets are about, unless that was done before.

    A trace is about an event before it in its own stream, with data of the digest that it names.
    """
    term, values = type_term(REDACTION), dict[int, bytes]()
    while places := reader.find(term, first, _TRACES_AT_ONCE):
        for _, offset in places:
            first = offset + 1
            trace = _record_at(log, offset) if offset < before else None
            told = read_redaction(trace.value or b"") if trace is not None else None
            if trace is None or told is None or trace.key != told.stream.encode():
                continue
            for version, target in reader.find(stream_term(trace.key), told.version, 1):
                record = _record_at(log, target) if version == told.version and target < offset else None
                if record is not None and sha256(record.value or b"").digest() == told.digest:
                    values[target] = make_stand_in(told.digest)
    if values:
        replaced = replace_values(log, values, now_ms)
        _log.info("events were redacted", log=str(log.topic_partition), events=replaced)


def _record_at(log: Log, offset: int) -> Record | None:
    found = _Batches(log).find(offset)
    return next(decode(found[0], body_of(found[1], found[0]), {offset}), None) if found is not None else None


def _build_portion(log: Log, index: EventIndex, end: int) -> None:
    """Take a portion of the log into its index; records that are not events are passed by."""
    place = max(index.place, log.start_offset)
    entries: list[Entry] = []
    while place < end and len(entries) < PORTION:
        try:
            piece, _ = log.read(place, _BUILT_BYTES, before=end)
        except OffsetOutOfRange:
            place = max(place, log.start_offset)
            continue
        data = memoryview(piece.read() if piece is not None else b"")
        place = end if not data else place
        for position, header in headers_in(data):
            place = header.next_offset
            if not (header.is_control or header.is_transactional or header.is_copy):
                entries += entries_of(_events_in(data[position : position + header.size]))
    index.write(entries, place)


def _events_in(batch: memoryview) -> list[tuple[int, Event]]:
    events = []
    try:
        records = records_of(batch)
    except RecordsError:
        return []
    for record in records:
        with suppress(InvalidEvent):  # from before the topic kept events
            events.append((record.offset, read_event(record)))
    return events


class _Batches:
    """The batches that hold some offsets, which ascend."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._data = memoryview(b"")
        self._headers: Iterator[tuple[int, BatchHeader]] = iter(())
        self._current: tuple[BatchHeader, memoryview] | None = None

    def find(self, offset: int) -> tuple[BatchHeader, memoryview] | None:
        """The batch with this offset; None if it is gone."""
        is_fresh = False
        while True:
            if self._current is not None and self._current[0].next_offset > offset:
                return self._current if self._current[0].base_offset <= offset else None
            found = next(self._headers, None)
            if found is not None:
                position, header = found
                self._current = header, self._data[position : position + header.size]
                continue
            if is_fresh:
                return None
            is_fresh = True
            try:
                piece, _ = self._log.read(offset, _READ_BYTES)
            except OffsetOutOfRange:
                return None
            self._data = memoryview(piece.read() if piece is not None else b"")
            self._headers = iter(headers_in(self._data))


def _collect(batches: _Batches, offsets: Iterator[int | None], max_bytes: int, before: int) -> tuple[bytes, int]:
    """Batches with the records at these offsets, up to a size; and where to go on."""
    pieces: list[bytes] = []
    size = 0
    current: tuple[BatchHeader, memoryview] | None = None
    wanted: list[int] = []
    next_offset = before
    for offset in offsets:
        if offset is None:
            continue
        if offset >= before:
            break
        batch = batches.find(offset)
        if batch is None:
            continue
        if batch is not current:
            if current is not None:
                pieces.append(_with_only(current, wanted))
                size += len(pieces[-1])
                if size >= max_bytes:
                    current, next_offset = None, offset
                    break
            current, wanted = batch, []
        wanted.append(offset)
    if current is not None:
        pieces.append(_with_only(current, wanted))
    return b"".join(pieces), next_offset


def _with_only(batch: tuple[BatchHeader, memoryview], wanted: Sequence[int]) -> bytes:
    header, data = batch
    if len(wanted) == header.record_count:
        return bytes(data)
    return _rebuild(header, list(decode(header, body_of(data, header), set(wanted))))


def _rebuild(header: BatchHeader, records: Sequence[Record]) -> bytes:
    if not records:
        return b""
    return build_batch(records, leader_epoch=header.leader_epoch, log_append_time=header.is_log_append_time)


def _select_command(batches: _Batches, command: str, places: Sequence[tuple[int, int]], before: int) -> bytes:
    """The events of a command: they are all in the batch of the first."""
    batch = batches.find(places[0][1]) if places and places[0][1] < before else None
    if batch is None:
        return b""
    named = (COMMAND, command.encode())
    return _rebuild(batch[0], [record for record in records_of(batch[1]) if named in record.headers])


def _owner(topic_id: bytes, partition: int) -> str:
    return f"{UUID(bytes=topic_id)}-{partition}"


class Events:
    """The partitions of topics that keep events."""

    def __init__(self, runtime: "Runtime", folder: str | None) -> None:
        """Without a folder the indexes are in memory, and made from the log at every start."""
        self._runtime = runtime
        self._folder = folder
        self._partitions: dict[Log, PartitionEvents] = {}
        self._is_looking = False
        self._is_closed = False

    def path_of(self, topic_id: bytes, partition: int) -> str:
        """Where an index is: by the topic's id, so that it is no successor's of the same name."""
        return MEMORY if self._folder is None else f"{self._folder}/{_owner(topic_id, partition)}{_SUFFIX}"

    def start(self) -> None:
        self._look()
        if self._folder is not None:
            kept = {events.path for events in self._partitions.values()}
            self._runtime.run_in_background(lambda: self._remove_others(kept))

    def _remove_others(self, kept: set[str]) -> None:
        """Remove the indexes of topics that are gone, or keep no events any more."""
        filesystem = OsFileSystem()
        names = filesystem.list(self._folder) if self._folder and filesystem.exists(self._folder) else []
        for path in (f"{self._folder}/{name}" for name in names if name.endswith(_SUFFIX)):
            if path not in kept:
                remove_index(filesystem, path)

    def of(self, topic: Topic, partition: int) -> PartitionEvents:
        log = topic.partitions[partition]
        if not log.config.headrace_events:
            raise BrokerError(
                ErrorCode.INVALID_REQUEST, f"{log.topic_partition} has no index of events: set headrace.events=true"
            )
        events = self._partitions.get(log)
        if events is None:
            path, owner = self.path_of(topic.id, partition), _owner(topic.id, partition)
            events = self._partitions[log] = PartitionEvents(self._runtime, log, path, owner)
        return events

    def topics_changed(self) -> None:
        """Look at the topics soon, once for all changes of a while."""
        if not self._is_looking and not self._is_closed:
            self._is_looking = True
            asyncio.get_running_loop().call_soon(self._look)

    def _look(self) -> None:
        """Have an index for every partition that wants one, and for no other."""
        self._is_looking = False
        if self._is_closed:
            return
        wanted = set()
        for topic in list(self._runtime.topics.by_name.values()):
            for index, log in enumerate(topic.partitions):
                if log.config.headrace_events:
                    self.of(topic, index)
                    wanted.add(log)
        for log in self._partitions.keys() - wanted:
            events = self._partitions.pop(log)
            events.close()
            self._runtime.run_in_background(events.remove)

    async def settle(self, altered: Topic) -> None:
        """Return once a topic that was made or altered just now can be written to, if it keeps events."""
        topic = self._runtime.topics.by_id.get(altered.id)
        for index, log in enumerate(topic.partitions if topic else ()):
            if topic and log.config.headrace_events:
                await self.of(topic, index).wait()

    def close(self) -> None:
        self._is_closed = True
        for events in self._partitions.values():
            events.close()

    def let_go(self) -> None:
        """Close the files, when no thread works with them any more."""
        for events in self._partitions.values():
            events.let_go()
