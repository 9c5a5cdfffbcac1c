"""A join of two streams over keyed state, for jobs that want their late rows: handed on, or joined all the same. Pure.

Both sides come in one stream. State: a table for each side with its rows, as long as a row yet to come can join them:
a left row until the watermark (less what is allowed to be late) has reached its time plus the upper bound, a right row
until it has reached its time less the lower one. A pair is told when the later of its two rows comes. A row without
a partner is told when the watermark alone has reached that end; one that is allowed to be late and finds it then
takes that back.
"""

# ruff: noqa: ARG002 - the engine hands over more than each operator needs

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.pipelines.keyed.operator import NEVER, Batch, Changes, Clock, Due, Keyed, Plan, State, Timers, Times
from headrace.pipelines.operators.grouping import Longs
from headrace.pipelines.operators.interval_join_bounds import Bounds
from headrace.pipelines.operators.interval_join_pairs import Pairs, Side, fresh_pairs
from headrace.pipelines.operators.interval_join_sides import Held, JoinSide
from headrace.pipelines.operators.stragglers import Stragglers, aside_field, set_aside
from headrace.pipelines.operators.times import EARLIEST, in_words, times_of
from headrace.pipelines.operators.windows.results import RETRACTED

LEFT: Final = "_left"
RIGHT: Final = "_right"
TIME: Final = "_time"
IS_LEFT: Final = "_is_left"
KINDS: Final = ("inner", "left", "right", "full", "semi", "anti")
ONLY_LEFT: Final = ("semi", "anti")
LONELY_LEFT: Final = ("left", "full", "anti")
LONELY_RIGHT: Final = ("right", "full")
_NONE: Final = np.zeros(0, np.int64)


@dataclass(frozen=True)
class IntervalJoin:
    """The operator; `left` and `right` are the rows' types, structs."""

    how: str
    bounds: Bounds
    stragglers: Stragglers
    left: pa.DataType
    right: pa.DataType

    @property
    def sides(self) -> tuple[JoinSide, JoinSide]:
        """Left and right."""
        lonely, once = self.how in LONELY_LEFT, self.how in ONLY_LEFT
        other = self.how in LONELY_RIGHT
        return (
            JoinSide("left", self.bounds.high_us, self.left, lonely, lonely or once, once),
            JoinSide("right", -self.bounds.low_us, self.right, other, other, once=False),
        )

    @property
    def output(self) -> pa.Schema:
        """What comes out behind the keys: the two rows, and what is to be said about them."""
        right = [] if self.how in ONLY_LEFT else [pa.field(RIGHT, self.right)]
        taken_back = [pa.field(RETRACTED, pa.bool_())] if self.stragglers.corrects else []
        return pa.schema([pa.field(LEFT, self.left), *right, *taken_back, aside_field(self._told, self.stragglers)])

    def plan(self, keys: pa.Schema, rows: pa.Schema) -> Plan:
        """Tables and columns."""
        late = in_words(self.stragglers.allowed_us) if self.stragglers.corrects else "never"
        within = f"({in_words(self.bounds.low_us)}, {in_words(self.bounds.high_us)})"
        parameters = {"how": self.how, "within": within, "stragglers corrected": late}
        return Plan(self.output, tuple(side.table for side in self.sides), Clock.EVENT, parameters=parameters)

    def on_rows(self, batch: Batch, state: State, times: Times) -> Changes:
        """New rows find their partners, and wait for others."""
        reached = max(times.watermark_us, EARLIEST)
        horizon = reached - self.stragglers.allowed_us
        time, has_time = times_of(batch.rows.column(TIME))
        late = has_time & (time <= horizon)
        aside = self._aside(batch, time, late, ~has_time, reached)
        kept = has_time & ~late
        is_left = np.asarray(batch.rows.column(IS_LEFT))
        left, right = (
            self._held(side, state, batch, np.flatnonzero(kept & mine), time)
            for side, mine in zip(self.sides, (is_left, ~is_left), strict=True)
        )
        found = self._pairs(left, right, _without_nulls(batch.keys))
        emit = [*self._news(left, right, found), aside]
        left.matched[found.left] = True
        right.matched[found.right] = True
        emit += [self._over_at_once(side, held, horizon) for side, held in zip(self.sides, (left, right), strict=True)]
        return self._kept(batch.keys.num_rows, (left, right), emit, reached, told=False)

    def on_timers(self, due: Due, state: State, times: Times) -> Changes:
        """Rows that found no partner are told; rows that are over go."""
        reached = max(times.watermark_us, EARLIEST)
        emit, rest = [], []
        for side in self.sides:
            held = side.held(state, _NONE, _NONE, None)
            if side.lonely:
                alone = side.over(held, reached) & ~held.matched & ~held.told
                emit.append(self._lonely(side, held, np.flatnonzero(alone), retracted=False))
                held.told[alone] = True
            rest.append(held)
        return self._kept(len(due), (rest[0], rest[1]), emit, reached, told=True)

    def _held(self, side: JoinSide, state: State, batch: Batch, new: Longs, time: Longs) -> Held:
        rows = batch.rows.column(LEFT if side.name == "left" else RIGHT).take(pa.array(new))
        return side.held(state, batch.key[new], time[new], rows)

    def _pairs(self, left: Held, right: Held, joins: NDArray[np.bool_]) -> Pairs:
        if joins.all():
            return fresh_pairs(left.side, right.side, left.old, right.old, self.bounds)
        # A key with a null in it equals no other, itself included.
        places = np.flatnonzero(joins[right.key])
        old = int(np.searchsorted(places, right.old))
        found = fresh_pairs(left.side, Side(right.key[places], right.time[places]), left.old, old, self.bounds)
        return Pairs(found.left, places[found.right])

    def _news(self, left: Held, right: Held, found: Pairs) -> list[Keyed | None]:
        """What is told of pairs: first what they take back, then the pairs, or for a semi join the left rows."""
        taken = []
        for side, held, rows in zip(self.sides, (left, right), found, strict=True):
            if side.lonely and held.told.any():
                back = np.zeros(len(held.key), np.bool_)
                back[rows] = True
                taken.append(self._lonely(side, held, np.flatnonzero(back & held.told), retracted=True))
                held.told[back] = False
        if self.how == "anti":
            return taken
        if self.how == "semi":
            first = np.zeros(len(left.key), np.bool_)
            first[found.left] = True
            return [*taken, self._lonely(self.sides[0], left, np.flatnonzero(first & ~left.matched), retracted=False)]
        if not len(found.left):
            return taken
        told = {LEFT: left.rows.take(pa.array(found.left)), RIGHT: right.rows.take(pa.array(found.right))}
        return [*taken, self._emitted(left.key[found.left], told, retracted=False)]

    def _over_at_once(self, side: JoinSide, held: Held, horizon: int) -> Keyed | None:
        """New rows whose partners would all be late: state, which may be rid of such times already, is not for them."""
        if not side.lonely:
            return None
        alone = (held.time < side.bound(horizon)) & ~held.matched & ~held.told
        alone[: held.old] = False
        held.told[alone] = True
        return self._lonely(side, held, np.flatnonzero(alone), retracted=False)

    def _lonely(self, side: JoinSide, held: Held, chosen: Longs, *, retracted: bool) -> Keyed | None:
        if not len(chosen):
            return None
        rows = {LEFT if side.name == "left" else RIGHT: held.rows.take(pa.array(chosen))}
        return self._emitted(held.key[chosen], rows, retracted=retracted)

    def _emitted(self, key: Longs, rows: dict[str, pa.Array], *, retracted: bool) -> Keyed:
        given = rows | {RETRACTED: pa.array(np.full(len(key), retracted))}
        columns = [given[each.name] if each.name in given else pa.nulls(len(key), each.type) for each in self.output]
        return Keyed(key, pa.RecordBatch.from_arrays(columns, schema=self.output))

    def _kept(
        self, count: int, both: tuple[Held, Held], emit: list[Keyed | None], reached: int, *, told: bool
    ) -> Changes:
        """State and timers from what each side holds; `told` says that lonely rows have been told up to now."""
        allowed = self.stragglers.allowed_us
        put, append, delete, expire = {}, {}, {}, {}
        timers = np.full(count, NEVER, np.int64)
        for side, held in zip(self.sides, both, strict=True):
            gone = held.time < side.bound(reached - allowed)
            if side.lonely and not told:
                gone &= held.matched | held.told
            if side.once:
                # Once it is known to have a partner there is nothing more to say of it.
                gone |= held.matched
            if side.tracked:
                rest = held.some(np.flatnonzero(~gone))
                put[side.name] = side.stored(rest)
                delete[side.name] = np.setdiff1d(np.arange(count), rest.key)
                timers = np.minimum(timers, side.timers(count, rest, reached, allowed))
            elif len(held.key) > held.old:
                append[side.name] = side.stored(held.some(np.arange(held.old, len(held.key))))
            if reached > EARLIEST and (told or not side.lonely):
                expire[side.name] = side.bound(reached - allowed)
        told_rows = [each for each in emit if each is not None]
        return Changes(
            emit=_together(told_rows),
            put=put,
            append=append,
            delete=delete,
            expire=expire,
            event_timers=Timers(np.arange(count, dtype=np.int64), timers)
            if any(s.lonely for s in self.sides)
            else None,
        )

    @property
    def _told(self) -> pa.Schema:
        return pa.schema([pa.field("side", pa.string()), pa.field("left", self.left), pa.field("right", self.right)])

    def _aside(
        self, batch: Batch, time: Longs, late: NDArray[np.bool_], timeless: NDArray[np.bool_], reached: int
    ) -> Keyed | None:
        side = pc.if_else(batch.rows.column(IS_LEFT), "left", "right")
        whole = [side, batch.rows.column(LEFT), batch.rows.column(RIGHT)]
        return set_aside(
            self.output,
            batch.key,
            pa.RecordBatch.from_arrays(whole, schema=self._told),
            late=late,
            timeless=timeless,
            window=(time, time),
            reached_us=reached,
        )


def _without_nulls(keys: pa.RecordBatch) -> NDArray[np.bool_]:
    found = np.ones(keys.num_rows, np.bool_)
    for column in keys.columns:
        found &= np.asarray(column.is_valid())
    return found


def _together(told: list[Keyed]) -> Keyed | None:
    if len(told) < 2:
        return told[0] if told else None
    return Keyed(np.concatenate([each.key for each in told]), pa.concat_batches([each.rows for each in told]))
