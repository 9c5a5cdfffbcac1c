"""One side of a join in state: its table, the rows held with what is known of each, and when each is over. Pure."""

from dataclasses import dataclass, replace
from typing import Final, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.pipelines.keyed.operator import NEVER, Keyed, Rows, State, Table, Values
from headrace.pipelines.operators.grouping import Longs, lowest
from headrace.pipelines.operators.interval_join_pairs import Side

Flags = NDArray[np.bool_]
AT: Final = "at"


@dataclass(frozen=True)
class Held:
    """Rows of one side: whose, when, the row itself, whether it found a partner, whether it was told to have none.

    The first `old` of them were there before this call.
    """

    key: Longs
    time: Longs
    rows: pa.Array
    matched: Flags
    told: Flags
    old: int

    @property
    def side(self) -> Side:
        """Keys and times only."""
        return Side(self.key, self.time)

    def some(self, chosen: Longs) -> Self:
        """Some of the rows."""
        taken = self.rows.take(pa.array(chosen))
        return replace(self, key=self.key[chosen], time=self.time[chosen], rows=taken,
                       matched=self.matched[chosen], told=self.told[chosen], old=len(chosen))  # fmt: skip


@dataclass(frozen=True)
class JoinSide:
    """`reach_us` behind its time a row's last partner may lie; `lonely` rows are told when that has passed.

    `tracked`: whether a row has to remember that it found a partner. `once`: whether that is all it is kept for.
    """

    name: str
    reach_us: int
    kind: pa.DataType
    lonely: bool
    tracked: bool
    once: bool

    @property
    def schema(self) -> pa.Schema:
        """The columns in state."""
        known = [pa.field("matched", pa.bool_()), pa.field("told", pa.bool_())] if self.tracked else []
        return pa.schema([pa.field(AT, pa.int64()), pa.field("row", self.kind), *known])

    @property
    def table(self) -> Table:
        """Rows that remember something are replaced as a whole, others only come and expire."""
        return Values(self.name, self.schema, AT) if self.tracked else Rows(self.name, self.schema, AT)

    def held(self, state: State, key: Longs, time: Longs, rows: pa.Array | None) -> Held:
        """What is kept of the call's keys, and new rows behind it."""
        kept = state.read(self.name)
        old = len(kept)
        held = kept.rows.column(1)
        new = np.zeros(len(key), np.bool_)
        flags = [np.asarray(kept.rows.column(at)) for at in (2, 3)] if self.tracked else [np.zeros(old, np.bool_)] * 2
        return Held(
            np.concatenate([kept.key, key]),
            np.concatenate([np.asarray(kept.rows.column(0)), time]),
            held if rows is None else pa.concat_arrays([held, rows]),
            np.concatenate([flags[0], new]),
            np.concatenate([flags[1], new]),
            old,
        )

    def over(self, held: Held, reached: int) -> Flags:
        """Which rows can have no further partner among rows that are not late."""
        return held.time + self.reach_us <= reached

    def stored(self, held: Held) -> Keyed:
        """Rows as state keeps them."""
        known = [pa.array(held.matched), pa.array(held.told)] if self.tracked else []
        return Keyed(held.key, pa.RecordBatch.from_arrays([pa.array(held.time), held.rows, *known], schema=self.schema))

    def bound(self, horizon: int) -> int:
        """Rows before this time can have no further partner at all, the allowed late ones included."""
        return horizon - self.reach_us + 1

    def timers(self, count: int, held: Held, reached: int, allowed_us: int) -> Longs:
        """When each key is to be woken: to tell lonely rows, and to let go of those that are over."""
        if not self.lonely:
            return np.full(count, NEVER, np.int64)
        ends = held.time + self.reach_us
        settled = (ends <= reached) & (held.matched | held.told)
        return lowest(count, held.key, np.where(settled, ends + allowed_us, ends), NEVER)
