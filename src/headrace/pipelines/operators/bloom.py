"""`deduplicate` in bounded memory: Bloom filters, in blocks that a hash of the key chooses, one a stretch of time.

State: `filters`, for each block of keys the bits of each stretch in which a row of it was let through. A stretch is a
quarter of `within`; it is asked as long as a row yet to come may be that near to it, and dropped whole. A filter never
forgets, so no row is let through twice; it may take a key that is new for one that it has seen, and how many rows that
may have been is added up from how full the filters were.
"""

from dataclasses import dataclass
from math import ceil, log
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.jit import compiled
from headrace.pipelines.keyed.operator import Batch, Changes, Clock, Due, Keyed, Plan, State, Timers, Times, Values
from headrace.pipelines.operators.errors import BadWindow
from headrace.pipelines.operators.grouping import Longs, find, group_rows, highest, sort_rows
from headrace.pipelines.operators.stragglers import ASIDE, Stragglers, aside_field, set_aside
from headrace.pipelines.operators.times import EARLIEST, in_words, times_of

_BLOCK: Final = 1024
"""Bytes of a block: so few that a micro-batch rewrites little, so many that all blocks are about equally full."""
_PARTS: Final = 4
"""Into how many stretches `within` is divided: a row up to so much of it further away may be left out, too."""
_UNEVEN: Final = 1.15
"""Some blocks get more keys than others."""
LEFT_OUT, WRONG = "left out", "perhaps wrong"
"""Reasons in `_aside` of what is counted: rows left out, and millionths of rows left out wrongly."""
FILTERS = "filters"
_FILTERS = pa.schema([("at", pa.int64()), ("bits", pa.binary(_BLOCK))])


@dataclass(frozen=True)
class Filters:
    """How large filters have to be: `blocks` of them for each stretch of time, with so many bits for each key."""

    blocks: int
    hashes: int

    @classmethod
    def of(cls, error: float, expected: int, *, rotates: bool) -> "Filters":
        """For so many keys in `within`, of which a row asks as many stretches as there are, and one more."""
        each = error / (_PARTS + 1) if rotates else error
        keys = expected / _PARTS if rotates else expected
        bits = -log(each) / log(2) ** 2
        return cls(max(ceil(keys * bits * _UNEVEN / (8 * _BLOCK)), 1), max(round(bits * log(2)), 1))


def check_filters(error: float | None, expected: int | None) -> None:
    """Refuse sizes that no filter has."""
    if (error is None) != (expected is None):
        raise BadWindow(
            "deduplicate by Bloom filters has to know both how many keys there are in within= and how many rows may be "
            "left out wrongly: write expected=1_000_000 and error=0.001"
        )
    if error is not None and (isinstance(error, bool) or not 1e-9 <= error <= 0.5):
        raise BadWindow(f"deduplicate: error={error!r}: write a share of the rows from 1e-9 to 0.5")
    if expected is not None and (
        isinstance(expected, bool) or not isinstance(expected, int) or not 1 <= expected <= 10**10
    ):
        raise BadWindow(f"deduplicate: expected={expected!r}: write how many different keys there are, up to 10^10")


@dataclass(frozen=True)
class ProbablyFirst:
    """The operator, keyed by block: `content` is the column with the hash that chooses bits."""

    content: str
    filters: Filters
    time: str | None
    within: int | None
    carried: tuple[str, ...]
    stragglers: Stragglers
    rows: pa.Schema

    @property
    def output(self) -> pa.Schema:
        carried = [self.rows.field(name).with_nullable(True) for name in self.carried]
        return pa.schema([*carried, aside_field(self.rows, self.stragglers)])

    def plan(self, keys: pa.Schema, rows: pa.Schema) -> Plan:
        within = "ever" if self.within is None else in_words(self.within)
        parameters = {"time": self.time or "none", "within": within, "blocks": self.filters.blocks,
                      "hashes": self.filters.hashes}  # fmt: skip
        clock = Clock.NONE if self.within is None else Clock.EVENT
        return Plan(self.output, (Values(FILTERS, _FILTERS, "at"),), clock, parameters=parameters)

    @property
    def stretch(self) -> int:
        return max((self.within or 1) // _PARTS, 1)

    def on_rows(self, batch: Batch, state: State, times: Times) -> Changes:
        """Rows whose key no filter near to them seems to have."""
        count = batch.keys.num_rows
        if self.within is None or self.time is None:
            time, reached = np.zeros(len(batch), np.int64), EARLIEST
            given, aside = np.arange(len(batch)), None
        else:
            time, has_time = times_of(batch.rows.column(self.time))
            reached = max(times.watermark_us, EARLIEST)
            late = has_time & (time <= reached)
            aside = set_aside(self.output, batch.key, batch.rows, late=late, timeless=~has_time,
                              window=(time - self.within, time), reached_us=reached)  # fmt: skip
            given = np.flatnonzero(has_time & ~late)
        if not len(given):
            return Changes(emit=aside)
        order = given[sort_rows(batch.key[given], time[given])]
        key, time = batch.key[order], time[order]
        held = state.read(FILTERS)
        own = time // self.stretch * self.stretch
        groups = group_rows(np.concatenate([held.key, key]), np.concatenate([np.asarray(held.rows.column(0)), own]))
        whose = np.concatenate([held.key, key])[groups.firsts]
        at = np.concatenate([np.asarray(held.rows.column(0)), own])[groups.firsts]
        bits = np.zeros((len(at), _BLOCK), np.uint8)
        if len(held):
            flat = np.frombuffer(b"".join(held.rows.column(1).to_pylist()), np.uint8)
            bits[find(whose, at, held.key, np.asarray(held.rows.column(0)), side="left")] = flat.reshape(-1, _BLOCK)
        near = self.within or 0
        lows = find(whose, at, key, (time - near) // self.stretch * self.stretch, side="left")
        highs = find(whose, at, key, (time + near) // self.stretch * self.stretch, side="right")
        content = np.asarray(batch.rows.column(self.content).fill_null(0), np.int64)[order].view(np.uint64)
        through = np.zeros(len(key), np.bool_)
        mine = find(whose, at, key, own, side="left")
        wrong = _choose(content, mine, lows, highs, self.filters.hashes, bits, through)
        rows = np.sort(order[through])
        emit = self._emitted(batch, rows, len(key) - len(rows), wrong, aside)
        touched = np.zeros(count, np.bool_)
        touched[key[through]] = True
        kept = np.flatnonzero(touched[whose])
        data = pa.Array.from_buffers(pa.binary(_BLOCK), len(kept), [None, pa.py_buffer(bits[kept].tobytes())])
        put = Keyed(whose[kept], pa.RecordBatch.from_arrays([pa.array(at[kept]), data], schema=_FILTERS))
        if self.within is None:
            return Changes(emit=emit, put={FILTERS: put})
        last = highest(count, whose, at, EARLIEST)
        timers = Timers(np.arange(count), last + self.stretch + self.within)
        return Changes(emit=emit, put={FILTERS: put}, event_timers=timers, expire=self._gone(reached))

    def on_timers(self, due: Due, state: State, times: Times) -> Changes:
        """Stretches that no row yet to come can be near to."""
        return Changes(expire=self._gone(times.watermark_us))

    def _gone(self, reached: int) -> dict[str, int]:
        """Also while rows come: a block is hardly ever silent."""
        return {FILTERS: (reached - (self.within or 0)) // self.stretch * self.stretch} if reached > EARLIEST else {}

    def _emitted(self, batch: Batch, rows: Longs, left_out: int, wrong: float, aside: Keyed | None) -> Keyed | None:
        """The rows, what was set aside, and the counts of what was left out."""
        kind = self.output.field(ASIDE).type
        carried = batch.rows.select(self.carried).take(pa.array(rows)).columns
        parts = [pa.RecordBatch.from_arrays([*carried, pa.nulls(len(rows), kind)], schema=self.output)]
        keys = [batch.key[rows]]
        counts = [{"reason": why, "rows": n} for why, n in ((LEFT_OUT, left_out), (WRONG, round(wrong * 1e6))) if n]
        if counts:
            cells = [pa.nulls(len(counts), field.type) for field in list(self.output)[:-1]]
            parts.append(pa.RecordBatch.from_arrays([*cells, pa.array(counts, kind)], schema=self.output))
            keys.append(np.zeros(len(counts), np.int64))
        if aside is not None:
            parts.append(aside.rows)
            keys.append(aside.key)
        return Keyed(np.concatenate(keys), pa.concat_batches(parts))


@compiled
def _mixed(content: np.uint64, number: int) -> int:
    """A number of a bit, from a hash and the number of the hash function (the finisher of SplitMix64)."""
    found = content + np.uint64(number + 1) * np.uint64(0x9E3779B97F4A7C15)
    found = (found ^ (found >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    found = (found ^ (found >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return int((found ^ (found >> np.uint64(31))) & np.uint64(8191))


@compiled
def _choose(
    content: NDArray[np.uint64], mine: Longs, lows: Longs, highs: Longs, hashes: int, bits: NDArray[np.uint8],
    through: NDArray[np.bool_],
) -> float:  # fmt: skip
    """Row by row: whether a filter has all its bits; if none has, they are set in the row's own. How many of the rows
    left out were so by chance, if each is as likely as the filters are full: a row that is let through stands for those
    like it that were not. Where hardly any is let through, every row that is left out may have been new."""
    full = np.zeros(len(bits), np.int64)
    for at in range(len(bits)):
        for byte in range(bits.shape[1]):
            value = bits[at, byte]
            while value:
                value &= value - 1
                full[at] += 1
    size = bits.shape[1] * 8
    wrong = 0.0
    for row in range(len(content)):
        seen = False
        none = 1.0
        for at in range(lows[row], highs[row]):
            none *= 1.0 - (full[at] / size) ** hashes
        for at in range(lows[row], highs[row]):
            has_all = True
            for number in range(hashes):
                bit = _mixed(content[row], number)
                if not bits[at, bit >> 3] >> (bit & 7) & 1:
                    has_all = False
                    break
            if has_all:
                seen = True
                break
        if seen:
            wrong += 1.0 - none if none < 0.1 else 0.0
            continue
        through[row] = True
        wrong += (1.0 - none) / none if none >= 0.1 else 0.0
        at = mine[row]
        for number in range(hashes):
            bit = _mixed(content[row], number)
            if not bits[at, bit >> 3] >> (bit & 7) & 1:
                bits[at, bit >> 3] |= 1 << (bit & 7)
                full[at] += 1
    return wrong
