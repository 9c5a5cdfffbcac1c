"""Numbered places with a number in each, a row of a few such places for each partial result."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.jit import compiled
from headrace.pipelines.operators.aggregation.cells import Cell
from headrace.pipelines.operators.grouping import Groups, Longs

ADD, GREATEST = 0, 1


@dataclass(frozen=True)
class Tally(Cell):
    """Row i has the places `places[starts[i]:starts[i + 1]]`, which rise, with their `numbers`.

    Where two rows have the same place, numbers are added, or the greatest stays (`how`). With `most`, a row keeps so
    many places at most: of all numbers the greatest one that is left out is taken off, and `missed` adds up by how much
    (J. Misra, D. Gries, 1982; merged as in P. Agarwal et al., Mergeable Summaries, 2012).
    """

    starts: Longs
    places: Longs
    numbers: Longs
    missed: Longs
    how: int = ADD
    most: int = 0

    @property
    def sizes(self) -> Longs:
        return np.diff(self.starts)

    @property
    def owners(self) -> Longs:
        """Of each place, the row that it is of."""
        return np.repeat(np.arange(len(self.starts) - 1), self.sizes)

    def take(self, rows: Longs) -> "Tally":
        sizes = self.sizes[rows]
        starts = np.append(0, np.cumsum(sizes))
        at = np.arange(starts[-1]) + np.repeat(self.starts[rows] - starts[:-1], sizes)
        return Tally(starts, self.places[at], self.numbers[at], self.missed[rows], self.how, self.most)

    def reduce(self, groups: Groups) -> "Tally":
        return self._together(groups.order, groups.starts, groups.ends)

    def over(self, lows: Longs, highs: Longs) -> "Tally":
        return self._together(np.arange(len(self.starts) - 1), lows, highs)

    def _together(self, order: Longs, lows: Longs, highs: Longs) -> "Tally":
        if not len(lows):
            return self.take(lows)
        least = int(self.places.min()) if len(self.places) else 0
        span = int(self.places.max()) - least + 1 if len(self.places) else 1
        running = np.append(0, np.cumsum(self.sizes[order]))
        room = np.minimum(running[highs] - running[lows], min(span, self.most) if self.most else span)
        starts = np.append(0, np.cumsum(room))
        places, numbers = np.empty(starts[-1], np.int64), np.empty(starts[-1], np.int64)
        used, missed = np.zeros(len(lows), np.int64), np.zeros(len(lows), np.int64)
        _join(self.starts, self.places, self.numbers, self.missed, order, lows, highs, self.how, self.most, least, span,
              starts, places, numbers, used, missed)  # fmt: skip
        wide = Tally(starts, places, numbers, missed, self.how, self.most)
        if (used == room).all():
            return wide
        packed = np.append(0, np.cumsum(used))
        at = np.arange(packed[-1]) + np.repeat(starts[:-1] - packed[:-1], used)
        return Tally(packed, places[at], numbers[at], missed, self.how, self.most)


@compiled
def _join(
    starts: Longs, places: Longs, numbers: Longs, missed: Longs, order: Longs, lows: Longs, highs: Longs, how: int,
    most: int, least: int, span: int, out_starts: Longs, out_places: Longs, out_numbers: Longs, used: Longs,
    out_missed: Longs,
) -> None:  # fmt: skip
    held = np.zeros(span, np.int64)
    seen = np.zeros(span, np.bool_)
    touched = np.empty(span, np.int64)
    for group in range(len(lows)):
        count = 0
        for at in range(lows[group], highs[group]):
            row = order[at]
            out_missed[group] += missed[row]
            for cell in range(starts[row], starts[row + 1]):
                place = places[cell] - least
                number = numbers[cell]
                if not seen[place]:
                    seen[place] = True
                    touched[count] = place
                    count += 1
                    held[place] = number
                elif how == 0:
                    held[place] += number
                elif number > held[place]:
                    held[place] = number
        mine = touched[:count]
        mine.sort()
        off = 0
        if most > 0 and count > most:
            found = np.empty(count, np.int64)
            for at in range(count):
                found[at] = held[mine[at]]
            found.sort()
            off = found[count - most - 1]
            out_missed[group] += off
        to = out_starts[group]
        for at in range(count):
            place = mine[at]
            if held[place] > off:
                out_places[to] = place + least
                out_numbers[to] = held[place] - off
                to += 1
            seen[place] = False
        used[group] = to - out_starts[group]


def tally_of(places: pa.ListArray, numbers: pa.ListArray | None, how: int, most: int = 0) -> Tally:
    """Kept lists as a tally; without numbers they are in `places` too, and to be set by the caller."""
    sizes = np.asarray(places.value_lengths().fill_null(0), np.int64)
    starts = np.append(0, np.cumsum(sizes))
    flat = np.asarray(places.flatten(), np.int64)
    of = np.asarray(numbers.flatten(), np.int64) if numbers is not None else flat
    return Tally(starts, flat, of, np.zeros(len(sizes), np.int64), how, most)


def as_lists(starts: Longs, values: NDArray[Any], kind: pa.DataType) -> pa.ListArray:
    """Values one behind the other as lists, row i from `starts[i]` on."""
    return pa.ListArray.from_arrays(pa.array(starts.astype(np.int32)), pa.array(values).cast(kind))


def singles(valid: NDArray[Any]) -> Longs:
    """Where the lists begin of rows that have one value each, or none."""
    return np.append(0, np.cumsum(valid.astype(np.int64)))


def bytes_of(column: pa.Array) -> tuple[NDArray[np.uint8], Longs]:
    """All bytes of a binary column, and where each row's begin; a null has none."""
    column = column.cast(pa.large_binary()).fill_null(b"")
    whole = pa.concat_arrays([column])  # without what lies before and behind a slice
    _, offsets, data = whole.buffers()
    starts = np.frombuffer(offsets, np.int64)[whole.offset : whole.offset + len(whole) + 1]
    flat = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
    return flat, starts


def binary_of(data: NDArray[np.uint8], starts: Longs) -> pa.Array:
    """Bytes one behind the other as a binary column."""
    buffers = [None, pa.py_buffer(np.ascontiguousarray(starts, np.int64)), pa.py_buffer(np.ascontiguousarray(data))]
    return pa.Array.from_buffers(pa.large_binary(), len(starts) - 1, buffers).cast(pa.binary())
