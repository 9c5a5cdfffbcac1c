"""A topic by two ways: live from its group, and from the log what the group did not bring. Pure.

What always holds: of each partition records are emitted in the order of their offsets, none twice and none left out. A
live message that does not follow what was emitted last has the log read up to it; meanwhile live ones wait, and when
there is no room for more of them the oldest are let go, because the log has them too.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from headrace.gateways.multicast.message import Headers, Message, Origin

HELD_BYTES: Final = 16 * 1024 * 1024
_MESSAGE_BYTES: Final = 300


class TopicRecord(NamedTuple):
    """A record of the topic, whichever way it came."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int
    is_live: bool  # it came by the group


@dataclass(slots=True)
class _Partition:
    next: int  # offset
    target: int = 0  # the log is read up to here
    held: deque[TopicRecord] = field(default_factory=deque)
    after: deque[int] = field(default_factory=deque)  # of each that is held, the offset before it


class Joining:
    def __init__(self, positions: dict[int, int], held_bytes: int = HELD_BYTES) -> None:
        """`positions` is the next offset of each partition."""
        self._partitions = {partition: _Partition(offset) for partition, offset in positions.items()}
        self._limit_bytes = held_bytes
        self.held_bytes = 0
        self.doubles = 0

    @property
    def positions(self) -> dict[int, int]:
        """The next offset of each partition."""
        return {number: partition.next for number, partition in self._partitions.items()}

    @property
    def targets(self) -> dict[int, int]:
        """Partitions whose log is to be read, each up to this offset."""
        return {number: each.target for number, each in self._partitions.items() if each.next < each.target}

    def live(self, message: Message, origin: Origin) -> list[TopicRecord]:
        """What a message of the group makes ready."""
        partition = self._partitions.get(origin.partition)
        if partition is None:  # it was added to the topic
            partition = self._partitions[origin.partition] = _Partition(0)
        if origin.offset < partition.next:
            self.doubles += 1
            return []
        record = TopicRecord(
            origin.partition, origin.offset, message.key, message.value, message.headers, message.timestamp_ms,
            is_live=True,
        )  # fmt: skip
        is_reading = partition.next < partition.target
        if not is_reading and _follows(origin.offset, origin.after, partition.next):
            partition.next = origin.offset + 1
            return [record]
        partition.target = max(partition.target, origin.offset)
        if partition.held and partition.held[-1].offset >= origin.offset:
            self.doubles += 1  # of another session of the gateway; the log has what lies between
            return []
        partition.held.append(record)
        partition.after.append(origin.after)
        self.held_bytes += _size_of(record)
        while self.held_bytes > self._limit_bytes:
            self._let_go()
        return []

    def _let_go(self) -> None:
        """Of the partition with most, the oldest: then the log is read up to what is behind it."""
        most = max(self._partitions.values(), key=lambda each: len(each.held))
        oldest = most.held.popleft()
        most.after.popleft()
        self.held_bytes -= _size_of(oldest)
        most.target = max(most.target, oldest.offset + 1)

    def read(self, number: int, records: list[TopicRecord], reached: int) -> list[TopicRecord]:
        """What the log brings of a partition: its records, and up to which offset there are no others."""
        partition = self._partitions[number]
        emitted = [record for record in records if record.offset >= partition.next]
        partition.next = max(partition.next, reached, emitted[-1].offset + 1 if emitted else 0)
        self._drain(partition, emitted)
        return emitted

    def _drain(self, partition: _Partition, emitted: list[TopicRecord]) -> None:
        while partition.held:
            record = partition.held[0]
            if record.offset >= partition.next:
                if not _follows(record.offset, partition.after[0], partition.next):
                    partition.target = max(partition.target, record.offset)
                    return
                emitted.append(record)
                partition.next = record.offset + 1
            self.held_bytes -= _size_of(record)
            partition.held.popleft()
            partition.after.popleft()

    def look(self, ends: dict[int, int]) -> None:
        """Have the log read up to here: something of the group was lost, and nobody knows what."""
        for number, end in ends.items():
            partition = self._partitions.setdefault(number, _Partition(0))
            partition.target = max(partition.target, end)

    def begins_at(self, number: int, start: int) -> tuple[int, int] | None:
        """The log begins only here; the offsets that are missed, first and behind the last, if any are."""
        partition = self._partitions[number]
        if start <= partition.next:
            return None
        missed = partition.next, start
        partition.next = start
        return missed


def _follows(offset: int, after: int, upcoming: int) -> bool:
    """Whether nothing lies between what was emitted last and this."""
    return offset == upcoming or 0 <= after < upcoming


def _size_of(record: TopicRecord) -> int:
    size = _MESSAGE_BYTES + len(record.key or b"") + len(record.value or b"")
    return size + sum(len(name) + len(value or b"") + 150 for name, value in record.headers)
