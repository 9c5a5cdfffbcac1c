"""Strings as integers: each gets the next number, for good, and is kept once, as bytes in one array.

A million words take some 25 bytes each beside their letters. `intern_spans` numbers all tokens of a column in one
compiled call, straight from Arrow's buffers.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from headrace.jit import compiled

Bytes = NDArray[np.uint8]
Ints = NDArray[np.int32]
Longs = NDArray[np.int64]

_FRONT: Final = 1 << 16
_FNV: Final = -3750763034362895579
_PRIME: Final = 1099511628211


@compiled
def _hash(data: Bytes, begin: int, end: int) -> int:
    value = np.int64(_FNV)
    for at in range(begin, end):
        value = (value ^ np.int64(data[at])) * np.int64(_PRIME)
    return value ^ (value >> np.int64(29))


@compiled
def _find(data: Bytes, begin: int, end: int, slots: Ints, letters: Bytes, ends: Longs) -> tuple[int, int]:
    """The number of these bytes or -1, and the slot where it stands or would."""
    mask = len(slots) - 1
    at = _hash(data, begin, end) & mask
    while slots[at] >= 0:
        number = slots[at]
        first = ends[number - 1] if number > 0 else 0
        if ends[number] - first == end - begin:
            same = True
            for offset in range(end - begin):
                if letters[first + offset] != data[begin + offset]:
                    same = False
                    break
            if same:
                return number, at
        at = (at + 1) & mask
    return -1, at


@compiled
def _rehash(slots: Ints, letters: Bytes, ends: Longs, count: int) -> None:
    mask = len(slots) - 1
    first = 0
    for number in range(count):
        at = _hash(letters, first, ends[number]) & mask
        while slots[at] >= 0:
            at = (at + 1) & mask
        slots[at] = number
        first = ends[number]


@compiled
def _find_all(
    data: Bytes, begins: Longs, stops: Longs, slots: Ints, letters: Bytes, ends: Longs, count: int, out: Ints
) -> int:
    """Number each span, new ones too; there is room for all. Returns how many strings there are then."""
    for each in range(len(begins)):
        number, at = _find(data, begins[each], stops[each], slots, letters, ends)
        if number < 0:
            first = ends[count - 1] if count > 0 else 0
            for offset in range(stops[each] - begins[each]):
                letters[first + offset] = data[begins[each] + offset]
            ends[count] = first + stops[each] - begins[each]
            number = count
            slots[at] = number
            count += 1
        out[each] = number
    return count


class Vocabulary:
    """Strings numbered from 0 in the order in which they came."""

    def __init__(self) -> None:
        self._slots = np.full(1024, -1, np.int32)
        self._letters = np.empty(4096, np.uint8)
        self._ends = np.empty(512, np.int64)
        self._count = 0
        # Queries and rare tokens ask for one word at a time; a call of compiled code costs more than a look here.
        self._front: dict[str, int] = {}

    def __len__(self) -> int:
        return self._count

    @property
    def size_bytes(self) -> int:
        return self._slots.nbytes + self._letters.nbytes + self._ends.nbytes

    def intern(self, text: str) -> int:
        """The number of a string, which it gets now if it has none."""
        number = self._front.get(text)
        if number is None:
            data = np.frombuffer(text.encode("utf-8", "surrogatepass"), np.uint8)
            number = int(self.intern_spans(data, np.zeros(1, np.int64), np.array([len(data)], np.int64))[0])
            if len(self._front) >= _FRONT:
                self._front.clear()
            self._front[text] = number
        return number

    def intern_spans(self, data: Bytes, begins: Longs, ends: Longs) -> Ints:
        """The number of each span of `data`."""
        out = np.empty(len(begins), np.int32)
        for first in range(0, len(begins), 1 << 16):
            part = slice(first, first + (1 << 16))
            # Room is made for all to be new, in parts, so that it is not made for a whole batch of known words.
            self._make_room(len(begins[part]), int((ends[part] - begins[part]).sum()))
            self._count = int(
                _find_all(
                    data, begins[part], ends[part], self._slots, self._letters, self._ends, self._count, out[part]
                )
            )
        return out

    def only(self, numbers: NDArray[np.int64]) -> "Vocabulary":
        """A vocabulary of these strings alone, which are numbered in this order."""
        found = Vocabulary()
        found.intern_spans(self._letters, np.where(numbers > 0, self._ends[numbers - 1], 0), self._ends[numbers])
        return found

    def text(self, number: int) -> str:
        first = int(self._ends[number - 1]) if number else 0
        return self._letters[first : int(self._ends[number])].tobytes().decode("utf-8", "surrogatepass")

    def _make_room(self, strings: int, letters: int) -> None:
        count = self._count
        used = int(self._ends[count - 1]) if count else 0
        if used + letters > len(self._letters):
            self._letters = np.resize(self._letters, int((used + letters) * 1.25))
        if count + strings > len(self._ends):
            self._ends = np.resize(self._ends, int((count + strings) * 1.25))
        if 3 * (count + strings) > 2 * len(self._slots):
            size = len(self._slots)
            while 3 * (count + strings) > 2 * size:
                size *= 2
            self._slots = np.full(size, -1, np.int32)
            _rehash(self._slots, self._letters, self._ends, count)
