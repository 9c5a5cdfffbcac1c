"""The map of latest offsets as arrays, and the two loops over records that use it, compiled.

A key stands in the table as a hash of 128 bits (SipHash-1-3), made with a secret of this pass: nobody can prepare two
keys that are taken for one, and by chance it does not happen (one pair in 10²⁶ passes over a million keys). Three
numbers a key are a quarter of what a dictionary takes.

Of the offsets that were noted, the latest of each key are marked, a bit for each: what remains of a batch that was
noted is then a look at the bits, without its keys, and often nothing does.

What always holds: for every batch the outcome is that of `OffsetMap`, which also says what is wrong with a body that
the loops cannot walk. A batch that was not noted itself is never judged by marks, and with offsets that do not grow
from record to record there are none.
"""

import numpy as np
from numpy.typing import NDArray

from headrace.jit import compiled
from headrace.records import BatchHeader
from headrace.records.errors import CorruptBatch
from headrace.records.record import walk
from headrace.storage.compaction.retained import Selected

Bytes = NDArray[np.uint8]
Words = NDArray[np.uint64]

_FEWEST_SLOTS = 1 << 14
_MOST_MARKS = 1 << 28  # bits, of 32 MiB
_BROKEN = -1
_LAST = np.int64(2**63 - 2)  # so that there is one more
_NO_MARKS = np.empty(0, np.uint8)
_FREE = np.uint64(0)
_INIT_0, _INIT_1 = np.uint64(0x736F6D6570736575), np.uint64(0x646F72616E646F6D)
_INIT_2, _INIT_3 = np.uint64(0x6C7967656E657261), np.uint64(0x7465646279746573)
_WIDE, _FIRST_END, _SECOND_END = np.uint64(0xEE), np.uint64(0xEE), np.uint64(0xDD)  # of the 128-bit form


class OffsetTable:
    """A table with open addressing that doubles before it is three quarters full."""

    def __init__(self, max_keys: int, secret: bytes) -> None:
        self._max_keys = max_keys
        self._secret = np.frombuffer(secret, np.uint64)
        self._table = np.zeros((_FEWEST_SLOTS, 3), np.uint64)
        self._count = 0
        self._out = np.empty(1 << 16, np.uint8)
        self._first = self._last = -1  # offsets that were noted
        self._bases = np.zeros(1 << 10, np.uint8)  # which of them, from the first on, are the first of a batch
        self._grows = True  # whether each offset that was noted is behind the one before
        self._marks = _NO_MARKS  # of the latest offset of each key, from the first on
        self._marked_to = -1
        self.latest_offset = -1

    def __len__(self) -> int:
        return self._count

    def try_out(self) -> None:
        """Load or compile the loops; raises whatever keeps them from running here."""
        nothing = np.empty(0, np.uint8)
        nothing.flags.writeable = False
        move_entries(self._table, self._table[:0])
        note_keys(nothing, 0, 0, 0, self._secret, self._table)
        mark_latest(self._table, 0, _NO_MARKS)
        is_marked(_NO_MARKS, 0, 0)
        select_records(nothing, 0, 0, -1, False, self._secret, self._table, 0, _NO_MARKS, self._out)

    @property
    def is_full(self) -> bool:
        return self._count >= self._max_keys

    def note(self, header: BatchHeader, body: bytes) -> None:
        if header.record_count > len(body):  # before there is room for them all: a count may be anything
            _explain(header, body)
        slots = len(self._table)
        while (self._count + header.record_count) * 4 > slots * 3:
            slots *= 2
        if slots > len(self._table):
            larger = np.zeros((slots, 3), np.uint64)
            move_entries(self._table, larger)
            self._table = larger
        arena = np.frombuffer(body, np.uint8)
        last_delta = header.last_offset - header.base_offset
        added, grows = note_keys(
            arena, header.record_count, header.base_offset, last_delta, self._secret, self._table
        )  # fmt: skip
        if added < 0:
            self._grows = False
            _explain(header, body)
        self._count += added
        self._grows = self._grows and grows and header.base_offset > self._last
        if self._first < 0:
            self._first = header.base_offset
        self._last = header.last_offset
        self._marked_to = -1
        at = header.base_offset - self._first
        if 0 <= at < _MOST_MARKS:
            if at // 8 >= len(self._bases):
                more = np.zeros(max(at // 8 + 1 - len(self._bases), len(self._bases)), np.uint8)
                self._bases = np.concatenate((self._bases, more))
            self._bases[at // 8] |= 1 << at % 8

    def _mark(self) -> None:
        """Mark the latest offset of each key, once all are noted."""
        self._marked_to = self.latest_offset
        size = min(min(self._last, self.latest_offset) + 1 - self._first, _MOST_MARKS)
        self._marks = _NO_MARKS
        if self._first >= 0 and self._grows and size > 0:
            self._marks = np.zeros((size + 7) // 8, np.uint8)
            mark_latest(self._table, self._first, self._marks)

    def _judges(self, header: BatchHeader) -> bool:
        """Whether the marks say what remains of a batch."""
        if self._marked_to != self.latest_offset or self._marked_to < 0:
            self._mark()
        at = header.base_offset - self._first
        if at < 0 or header.last_offset > self.latest_offset:
            return False
        is_marked_whole = header.last_offset - self._first < self._marks.size * 8
        return is_marked_whole and bool(self._bases[at // 8] >> at % 8 & 1)

    def supersedes(self, header: BatchHeader) -> bool:
        if not self._judges(header):
            return False
        return not is_marked(self._marks, header.base_offset - self._first, header.last_offset - self._first)

    def select(self, header: BatchHeader, body: bytes, *, drops_tombstones: bool) -> Selected:
        if len(self._out) < len(body):
            self._out = np.empty(len(body), np.uint8)
        arena = np.frombuffer(body, np.uint8)
        count, size, latest_delta, has_tombstone = select_records(
            arena, header.record_count, header.base_offset, self.latest_offset, drops_tombstones, self._secret,
            self._table, self._first, self._marks if self._judges(header) else _NO_MARKS, self._out,
        )  # fmt: skip
        if count < 0:
            _explain(header, body)
        smaller = body if count == header.record_count else self._out[:size].tobytes()
        return Selected(count, smaller, latest_delta, bool(has_tombstone))


def _explain(header: BatchHeader, body: bytes) -> None:
    """Raise what is wrong with a body that was not walked to its end."""
    for _ in walk(body, header.record_count):
        pass
    raise CorruptBatch("its records cannot be walked", header.base_offset)


# --- compiled


@compiled
def number_at(arena: Bytes, position: int, limit: int) -> tuple[int, int]:
    """A zig-zag varint of at most 64 bits, and the position behind it; -1 for the position where it does not end."""
    if position < limit:
        single = np.int64(arena[np.uint64(position)])
        if single < 0x80:  # most are of one byte
            return (single >> 1) ^ -(single & 1), position + 1
    value = np.uint64(0)
    shift = np.uint64(0)
    while position < limit:
        byte = arena[np.uint64(position)]
        position += 1
        value |= np.uint64(byte & 0x7F) << shift
        if byte < 0x80:
            if shift == np.uint64(63) and byte > 1:
                return 0, _BROKEN
            return np.int64(value >> np.uint64(1)) ^ -np.int64(value & np.uint64(1)), position
        shift += np.uint64(7)
        if shift > np.uint64(63):
            break
    return 0, _BROKEN


@compiled
def record_at(arena: Bytes, position: int, limit: int) -> tuple[int, int, int, int, int, int]:
    """A record: its end (-1 if it is broken), timestamp and offset delta, key (where, how long), and value's length."""
    size, position = number_at(arena, position, limit)
    if position < 0 or size < 0 or size > limit - position:
        return _BROKEN, 0, 0, 0, 0, 0
    end = position + size
    timestamp_delta, position = number_at(arena, position + 1, limit)
    if position < 0:
        return _BROKEN, 0, 0, 0, 0, 0
    offset_delta, position = number_at(arena, position, limit)
    if position < 0:
        return _BROKEN, 0, 0, 0, 0, 0
    key_size, key_at = number_at(arena, position, limit)
    if key_at < 0 or key_size > end - key_at:
        return _BROKEN, 0, 0, 0, 0, 0
    value_size, value_at = number_at(arena, key_at + key_size if key_size > 0 else key_at, limit)
    if value_at < 0 or value_size >= end - value_at or value_at >= end:
        return _BROKEN, 0, 0, 0, 0, 0
    return end, timestamp_delta, offset_delta, key_at, key_size, value_size


@compiled
def offset_of(base_offset: int, offset_delta: int) -> int:
    """A record's offset. A client may claim any: less than none, or, which is the last one then, beyond 64 bits."""
    return _LAST if offset_delta > _LAST - base_offset else base_offset + offset_delta


@compiled
def turned(value: np.uint64, by: int) -> np.uint64:
    return (value << np.uint64(by)) | (value >> np.uint64(64 - by))


@compiled
def mixed(a: np.uint64, b: np.uint64, c: np.uint64, d: np.uint64) -> tuple[np.uint64, np.uint64, np.uint64, np.uint64]:
    """One round of SipHash."""
    a += b
    b = turned(b, 13) ^ a
    a = turned(a, 32)
    c += d
    d = turned(d, 16) ^ c
    a += d
    d = turned(d, 21) ^ a
    c += b
    b = turned(b, 17) ^ c
    c = turned(c, 32)
    return a, b, c, d


@compiled
def word_at(arena: Bytes, at: np.uint64) -> np.uint64:
    """Eight bytes as a number, the lowest first; one load, since an index without a sign needs no check for one."""
    return (
        np.uint64(arena[at])
        | np.uint64(arena[at + np.uint64(1)]) << np.uint64(8)
        | np.uint64(arena[at + np.uint64(2)]) << np.uint64(16)
        | np.uint64(arena[at + np.uint64(3)]) << np.uint64(24)
        | np.uint64(arena[at + np.uint64(4)]) << np.uint64(32)
        | np.uint64(arena[at + np.uint64(5)]) << np.uint64(40)
        | np.uint64(arena[at + np.uint64(6)]) << np.uint64(48)
        | np.uint64(arena[at + np.uint64(7)]) << np.uint64(56)
    )


@compiled
def hash_key(arena: Bytes, at: int, size: int, secret: Words) -> tuple[np.uint64, np.uint64]:
    """SipHash-1-3 of a key, in its form of 128 bits."""
    a, b = secret[0] ^ _INIT_0, secret[1] ^ _INIT_1 ^ _WIDE
    c, d = secret[0] ^ _INIT_2, secret[1] ^ _INIT_3
    whole = size - size % 8
    for start in range(at, at + whole, 8):
        word = word_at(arena, np.uint64(start))
        d ^= word
        a, b, c, d = mixed(a, b, c, d)
        a ^= word
    word = np.uint64(size) << np.uint64(56)
    for index in range(size - whole):
        word |= np.uint64(arena[at + whole + index]) << np.uint64(8 * index)
    d ^= word
    a, b, c, d = mixed(a, b, c, d)
    a ^= word
    c ^= _FIRST_END
    for _ in range(3):
        a, b, c, d = mixed(a, b, c, d)
    first = a ^ b ^ c ^ d
    b ^= _SECOND_END
    for _ in range(3):
        a, b, c, d = mixed(a, b, c, d)
    return first, a ^ b ^ c ^ d


# A slot is the two halves of a hash, and the offset and one more: what is new is free. All three are in one cache line
# mostly, and the memory is what a pass over many keys waits for.


@compiled
def slot_of(first: np.uint64, second: np.uint64, table: Words) -> np.uint64:
    """Where a key is in the table, or would be."""
    mask = np.uint64(table.shape[0] - 1)
    slot = first & mask
    while table[slot, 2] != _FREE and (table[slot, 0] != first or table[slot, 1] != second):
        slot = (slot + np.uint64(1)) & mask
    return slot


@compiled
def move_entries(table: Words, larger: Words) -> None:
    """Put all entries into a larger table."""
    for index in range(table.shape[0]):
        if table[index, 2] != _FREE:
            slot = slot_of(table[index, 0], table[index, 1], larger)
            larger[slot, 0] = table[index, 0]
            larger[slot, 1] = table[index, 1]
            larger[slot, 2] = table[index, 2]


@compiled
def note_keys(
    arena: Bytes, count: int, base_offset: int, last_delta: int, secret: Words, table: Words
) -> tuple[int, bool]:
    """Note the offsets of a batch's keys; how many keys are new, or -1 if the body is broken.

    And whether each offset is behind the one before, and none behind the last that the header names.
    """
    position, limit, added, before, grows = 0, arena.shape[0], 0, -1, True
    for _ in range(count):
        position, _, offset_delta, key_at, key_size, _ = record_at(arena, position, limit)
        if position < 0:
            return _BROKEN, False
        grows = grows and offset_delta > before
        before = offset_delta
        if key_size >= 0:
            first, second = hash_key(arena, key_at, key_size, secret)
            slot = slot_of(first, second, table)
            if table[slot, 2] == _FREE:
                table[slot, 0] = first
                table[slot, 1] = second
                added += 1
            table[slot, 2] = np.uint64(offset_of(base_offset, offset_delta) + 1)
    if position != limit:
        return _BROKEN, False
    return added, grows and before <= last_delta


@compiled
def mark_latest(table: Words, first_offset: int, marks: Bytes) -> None:
    """Set the bit of each offset in the table that has one."""
    most = marks.shape[0] * 8
    for index in range(table.shape[0]):
        if table[index, 2] != _FREE:
            at = np.int64(table[index, 2]) - 1 - first_offset
            if 0 <= at < most:
                marks[at >> 3] |= np.uint8(1 << (at & 7))


@compiled
def is_marked(marks: Bytes, start: int, end: int) -> bool:
    """Whether any of these bits is set, the last one included."""
    for at in range(start, min(end + 1, marks.shape[0] * 8)):
        if marks[at >> 3] >> np.uint8(at & 7) & np.uint8(1):
            return True
    return False


@compiled
def select_records(
    arena: Bytes, count: int, base_offset: int, latest_offset: int, drops_tombstones: bool, secret: Words,
    table: Words, first_marked: int, marks: Bytes, out: Bytes,
) -> tuple[int, int, int, bool]:  # fmt: skip
    """Copy what remains; how many records (-1 if the body is broken) of how many bytes, and what `Selected` says."""
    most = marks.shape[0] * 8
    position, limit, kept, size, latest, has_tombstone = 0, arena.shape[0], 0, 0, 0, False
    for _ in range(count):
        start = position
        position, timestamp_delta, offset_delta, key_at, key_size, value_size = record_at(arena, position, limit)
        if position < 0:
            return _BROKEN, 0, 0, False
        offset = offset_of(base_offset, offset_delta)
        if offset <= latest_offset:
            if key_size < 0:
                continue
            at = offset - first_marked
            if 0 <= at < most:
                if not marks[at >> 3] >> np.uint8(at & 7) & np.uint8(1):
                    continue
            else:
                first, second = hash_key(arena, key_at, key_size, secret)
                if np.int64(table[slot_of(first, second, table), 2]) > offset + 1:
                    continue
            if value_size < 0:
                if drops_tombstones:
                    continue
                has_tombstone = True
        latest = timestamp_delta if not kept else max(latest, timestamp_delta)
        kept += 1
        for index in range(position - start):
            out[np.uint64(size + index)] = arena[np.uint64(start + index)]
        size += position - start
    if position != limit:
        return _BROKEN, 0, 0, False
    return kept, size, latest, has_tombstone
