"""What waits to be delivered, in memory and as it is written down.

The schedule is a compacted log of the broker's own. A message that waits is in it as a whole, so that it does not
matter how long its topic keeps records; beside it stands how far each partition was followed, and which of its records
are duplicates. What was followed and what came of it are written in one batch, and so in one step.

In memory a message that waits is two numbers, when it is due and where it stands in the log. One that has a name, by
which it can be cancelled or replaced, is found by it as well; so is one that repeats, whose name is that of its record
unless it was given another.

What always holds: reading the log from its start gives what was known when its last batch was written.
"""

import json
from array import array
from collections.abc import Collection, Iterator, Mapping
from heapq import heapify, heappop, heappush
from struct import Struct
from typing import Final, NamedTuple

from headrace.delivery.duplicates import Duplicates
from headrace.delivery.headers import Delivery, Origin
from headrace.records import Codec, Record, build_batch, records_of

SCHEDULE_TOPIC: Final = "__headrace_schedule"

_PLACE, _BOUND, _MESSAGE, _NAMED, _DUPLICATES = range(5)
_KEY: Final = Struct(">B16s")
_NUMBER: Final = Struct(">q")
_PARTITION: Final = Struct(">i")
_VALUE: Final = Struct(">Biqi")  # version, partition, when it is due, which time it is; a batch with the record follows
_VERSION: Final = 0
_COMPRESSED_FROM: Final = 4096  # bytes


class PartitionId(NamedTuple):
    topic_id: bytes
    partition: int


class Place(NamedTuple):
    """How far a partition was followed, and since when."""

    offset: int
    since: int
    newest_id_ms: int = -1  # the time of the newest record with a deduplication id; -1 if there was none
    ends: Mapping[PartitionId, int] = {}  # where the partitions ended then that copies go to

    def within(self, end: int) -> "Place":
        """The place in a log that ends here: a power cut may have taken what lay behind, and others come instead."""
        return self._replace(offset=min(self.offset, end), since=min(self.since, end))


class Waiting(NamedTuple):
    """A message that waits."""

    partition: int
    due_ms: int
    number: int
    record: Record

    def origin(self, topic: str) -> Origin:
        return Origin(topic, self.partition, self.record.offset, self.number)


class Entry(NamedTuple):
    """A record of the schedule; without a value it says that what was there before is over."""

    key: bytes
    value: bytes | None


# --- as it is written


def write_place(at: PartitionId, place: Place | None, *, is_bound: bool = False) -> Entry:
    """How far a partition was followed for its own messages, or for the copies of them that other topics get."""
    key = _KEY.pack(_BOUND if is_bound else _PLACE, at.topic_id) + _PARTITION.pack(at.partition)
    if place is None:
        return Entry(key, None)
    ends = [[topic_id.hex(), partition, end] for (topic_id, partition), end in place.ends.items()]
    content = place._replace(ends={})._asdict() | {"ends": ends}
    return Entry(key, json.dumps(content).encode())


def _read_place(value: bytes) -> Place:
    content = json.loads(value)
    ends = {PartitionId(bytes.fromhex(topic_id), partition): end for topic_id, partition, end in content.pop("ends")}
    return Place(**content, ends=ends)


def write_duplicates(at: PartitionId, chunk: int, bits: bytes | bytearray | None) -> Entry:
    return Entry(
        _KEY.pack(_DUPLICATES, at.topic_id) + _PARTITION.pack(at.partition) + _NUMBER.pack(chunk),
        None if bits is None else bytes(bits),
    )


def name_of(delivery: Delivery, topic: str, partition: int, offset: int) -> bytes | None:
    """By which a message that waits is found again; None if nobody has to."""
    if delivery.schedule_id is not None:
        return b"=" + delivery.schedule_id
    return b"@" + Origin(topic, partition, offset).text if delivery.repeat is not None else None


def given_name(schedule_id: bytes) -> bytes:
    return b"=" + schedule_id


def write_waiting(topic_id: bytes, name: bytes | None, waiting: Waiting) -> Entry:
    head = _VALUE.pack(_VERSION, waiting.partition, waiting.due_ms, waiting.number)
    # What came in a small batch, compressed, is not to take a thousand times as much of the disk.
    codec = Codec.ZSTD if len(waiting.record.value or b"") >= _COMPRESSED_FROM else Codec.NONE
    batch = build_batch([waiting.record], codec=codec)
    return Entry(_message_key(topic_id, name, waiting.partition, waiting.record.offset), head + batch)


def write_done(topic_id: bytes, name: bytes | None, partition: int, offset: int) -> Entry:
    """That a message does not wait any more."""
    return Entry(_message_key(topic_id, name, partition, offset), None)


def _message_key(topic_id: bytes, name: bytes | None, partition: int, offset: int) -> bytes:
    if name is not None:
        return _KEY.pack(_NAMED, topic_id) + name
    return _KEY.pack(_MESSAGE, topic_id) + _PARTITION.pack(partition) + _NUMBER.pack(offset)


def read_waiting(value: bytes) -> Waiting:
    _, partition, due_ms, number = _VALUE.unpack_from(value)
    (record,) = records_of(value[_VALUE.size :])
    return Waiting(partition, due_ms, number, record)


# --- in memory

_BUCKET_MS: Final = 60_000
_REF_BITS: Final = 64


class Timers:
    """What is due when: pairs of a time and a reference, which is a number.

    Only what is due in the next minute is in order; the rest is in buckets of a minute, at 16 bytes a pair.
    """

    def __init__(self) -> None:
        self._near: list[int] = []  # a heap of both numbers in one
        self._far: dict[int, array[int]] = {}
        self._buckets: list[int] = []  # a heap of those in `_far`
        self._near_end = 0  # buckets before this one are in `_near`
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, due_ms: int, ref: int) -> None:
        self._count += 1
        bucket = due_ms // _BUCKET_MS
        if bucket < self._near_end:
            heappush(self._near, due_ms << _REF_BITS | ref)
            return
        if bucket not in self._far:
            self._far[bucket] = array("q")
            heappush(self._buckets, bucket)
        self._far[bucket].extend((due_ms, ref))

    def next_due_ms(self) -> int | None:
        """When the next is due, or its minute begins."""
        if self._near:
            return self._near[0] >> _REF_BITS
        return self._buckets[0] * _BUCKET_MS if self._buckets else None

    def pop_due(self, now_ms: int, limit: int) -> list[tuple[int, int]]:
        """Take out what is due, the earliest first, no more than so many."""
        due: list[tuple[int, int]] = []
        while len(due) < limit:
            while self._buckets and self._buckets[0] <= now_ms // _BUCKET_MS and not self._near:
                self._move_near(heappop(self._buckets))
            if not self._near or self._near[0] >> _REF_BITS > now_ms:
                break
            both = heappop(self._near)
            due.append((both >> _REF_BITS, both & (1 << _REF_BITS) - 1))
        self._count -= len(due)
        return due

    def _move_near(self, bucket: int) -> None:
        pairs = self._far.pop(bucket)
        self._near = [due_ms << _REF_BITS | ref for due_ms, ref in zip(pairs[::2], pairs[1::2], strict=True)]
        heapify(self._near)
        self._near_end = bucket + 1


class _Named(NamedTuple):
    ref: int
    partition: int
    due_ms: int


class Schedule:
    """All that the log says, as it is read, or of some topics; and then what the followers of partitions begin with."""

    def __init__(self, topic_ids: Collection[bytes] | None = None) -> None:
        self._topic_ids = topic_ids
        self.places: dict[PartitionId, Place] = {}
        self.bound: dict[PartitionId, Place] = {}
        self.duplicates: dict[PartitionId, Duplicates] = {}
        self._named: dict[bytes, dict[bytes, _Named]] = {}  # by topic
        self._waiting: dict[PartitionId, array[int]] = {}  # due, reference and offset of each
        self._done: dict[PartitionId, dict[int, int]] = {}  # where that stands, by offset

    def take(self, ref: int, key: bytes, value: bytes | None) -> None:
        """Take in a record that is in the log at `ref`."""
        kind, topic_id = _KEY.unpack_from(key)
        if self._topic_ids is not None and topic_id not in self._topic_ids:
            return
        if kind == _NAMED:
            self._take_named(topic_id, key[_KEY.size :], ref, value)
            return
        (partition,) = _PARTITION.unpack_from(key, _KEY.size)
        at = PartitionId(topic_id, partition)
        if kind in (_PLACE, _BOUND):
            places = self.places if kind == _PLACE else self.bound
            if value is None:
                places.pop(at, None)
            else:
                places[at] = _read_place(value)
            return
        (number,) = _NUMBER.unpack_from(key, _KEY.size + _PARTITION.size)
        if kind == _DUPLICATES:
            self.duplicates.setdefault(at, Duplicates()).put(number, value)
        elif kind == _MESSAGE and value is None:
            self._done.setdefault(at, {})[number] = ref
        elif kind == _MESSAGE and value is not None:
            _, _, due_ms, _ = _VALUE.unpack_from(value)
            self._waiting.setdefault(at, array("q")).extend((due_ms, ref, number))

    def _take_named(self, topic_id: bytes, name: bytes, ref: int, value: bytes | None) -> None:
        names = self._named.setdefault(topic_id, {})
        if value is None:
            names.pop(name, None)
        else:
            _, partition, due_ms, _ = _VALUE.unpack_from(value)
            names[name] = _Named(ref, partition, due_ms)

    def topic_ids(self) -> set[bytes]:
        return {at.topic_id for at in (*self.places, *self.bound, *self._waiting, *self.duplicates)} | set(self._named)

    def names(self, topic_id: bytes) -> dict[bytes, int]:
        """Where the messages of a topic stand that have a name."""
        return {name: named.ref for name, named in self._named.get(topic_id, {}).items()}

    def fill(self, at: PartitionId, timers: Timers, delivered: Mapping[int, object]) -> list[Entry]:
        """Have a partition's messages wait; but for those without a name, by offset, that were delivered already.

        Of these it is still to be written that they are done.
        """
        done = self._done.pop(at, {})
        overdue = []
        waiting = self._waiting.pop(at, array("q"))
        for position in range(0, len(waiting), 3):
            due_ms, ref, offset = waiting[position : position + 3]
            if ref < done.get(offset, -1):  # behind it stands another one, whose offset was free after a power cut
                continue
            if offset in delivered:
                overdue.append(write_done(at.topic_id, None, at.partition, offset))
            else:
                timers.add(due_ms, ref)
        for named in self._named.get(at.topic_id, {}).values():
            if named.partition == at.partition:
                timers.add(named.due_ms, named.ref)
        return overdue

    def entries_of(self, topic_id: bytes) -> Iterator[Entry]:
        """That all is over that is written of a topic which is not there any more."""
        for places in (self.places, self.bound):
            for at in [each for each in places if each.topic_id == topic_id]:
                yield write_place(at, None, is_bound=places is self.bound)
        for at in [each for each in self.duplicates if each.topic_id == topic_id]:
            yield from (write_duplicates(at, chunk, None) for chunk in self.duplicates[at].chunks)
        for at in [each for each in self._waiting if each.topic_id == topic_id]:
            done, waiting = self._done.get(at, {}), self._waiting[at]
            yield from (
                write_done(topic_id, None, at.partition, offset)
                for ref, offset in zip(waiting[1::3], waiting[2::3], strict=True)
                if ref >= done.get(offset, -1)
            )
        yield from (write_done(topic_id, name, 0, 0) for name in self._named.get(topic_id, {}))
