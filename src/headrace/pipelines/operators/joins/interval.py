"""A join of two streams over keyed state, for jobs that want their late rows: handed on, or joined all the same. Pure.

Both sides come in one stream. State: a table for each side with its rows, as long as a row yet to come can join them:
a left row until the watermark (less what is allowed to be late) has reached its time plus the upper bound, a right row
until it has reached its time less the lower one. A pair is emitted when the later of its two rows comes. A row without
a partner is emitted when the watermark alone has reached that end; if a partner that is allowed to be late comes after
that, the row is retracted.
"""

from dataclasses import dataclass, replace
from typing import Final, NamedTuple, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.pipelines.keyed.operator import (
    NEVER,
    Batch,
    Changes,
    Clock,
    Due,
    Keyed,
    Plan,
    Rows,
    State,
    Table,
    Timers,
    Times,
    Values,
    put_together,
)
from headrace.pipelines.operators.grouping import Longs, find, lowest, sort_rows
from headrace.pipelines.operators.joins.sides import Bounds
from headrace.pipelines.operators.stragglers import Stragglers, aside_field, set_aside
from headrace.pipelines.operators.times import EARLIEST, in_words, times_of, without_nulls
from headrace.pipelines.operators.windows.results import RETRACTED


class Side(NamedTuple):
    """Rows of one side: the number of each row's key, and its time."""

    key: Longs
    time: Longs


class Pairs(NamedTuple):
    """Row numbers on the left and on the right; one pair a place."""

    left: Longs
    right: Longs


def pairs(left: Side, right: Side, bounds: Bounds) -> Pairs:
    """All pairs, in the order of the left rows, and for each of them in the order of the right's times."""
    order = sort_rows(right.key, right.time)
    key, time = right.key[order], right.time[order]
    first = find(key, time, left.key, left.time + bounds.low_us, side="left")
    behind = find(key, time, left.key, left.time + bounds.high_us, side="right")
    many = behind - first
    ours = np.repeat(np.arange(len(left.key)), many)
    # Places first, first + 1, … of each left row, all in one stretch.
    begins = np.cumsum(many) - many
    places = np.arange(len(ours)) - np.repeat(begins - first, many)
    return Pairs(ours, order[places])


def fresh_pairs(left: Side, right: Side, old_left: int, old_right: int, bounds: Bounds) -> Pairs:
    """The pairs that have at least one new row; the first `old_…` rows of each side are those known before."""
    news = Side(left.key[old_left:], left.time[old_left:])
    with_new_left = pairs(news, right, bounds)
    known = Side(left.key[:old_left], left.time[:old_left])
    with_new_right = pairs(known, Side(right.key[old_right:], right.time[old_right:]), bounds)
    return Pairs(
        np.concatenate([with_new_left.left + old_left, with_new_right.left]),
        np.concatenate([with_new_left.right, with_new_right.right + old_right]),
    )


Flags = NDArray[np.bool_]
AT: Final = "at"


@dataclass(frozen=True)
class Held:
    """Rows of one side: whose, when, the row itself, whether it found a partner, whether it was emitted to have none.

    The first `old` of them were there before this call.
    """

    key: Longs
    time: Longs
    rows: pa.Array
    matched: Flags
    emitted: Flags
    old: int

    @property
    def side(self) -> Side:
        return Side(self.key, self.time)

    def some(self, chosen: Longs) -> Self:
        taken = self.rows.take(pa.array(chosen))
        return replace(self, key=self.key[chosen], time=self.time[chosen], rows=taken,
                       matched=self.matched[chosen], emitted=self.emitted[chosen], old=len(chosen))  # fmt: skip


@dataclass(frozen=True)
class JoinSide:
    """`reach_us` behind its time a row's last partner may lie; `lonely` rows are emitted when that has passed.

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
        known = [pa.array(held.matched), pa.array(held.emitted)] if self.tracked else []
        return Keyed(held.key, pa.RecordBatch.from_arrays([pa.array(held.time), held.rows, *known], schema=self.schema))

    def bound(self, horizon: int) -> int:
        """Rows before this time can have no further partner at all, the allowed late ones included."""
        return horizon - self.reach_us + 1

    def timers(self, count: int, held: Held, reached: int, allowed_us: int) -> Longs:
        """When each key is to be woken: to emit lonely rows, and to let go of those that are over."""
        if not self.lonely:
            return np.full(count, NEVER, np.int64)
        ends = held.time + self.reach_us
        settled = (ends <= reached) & (held.matched | held.emitted)
        return lowest(count, held.key, np.where(settled, ends + allowed_us, ends), NEVER)


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
        return pa.schema([pa.field(LEFT, self.left), *right, *taken_back, aside_field(self._late_row, self.stragglers)])

    def plan(self, keys: pa.Schema, rows: pa.Schema) -> Plan:
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
        found = self._pairs(left, right, without_nulls(batch.keys))
        emit = [*self._news(left, right, found), aside]
        left.matched[found.left] = True
        right.matched[found.right] = True
        emit += [self._over_at_once(side, held, horizon) for side, held in zip(self.sides, (left, right), strict=True)]
        return self._kept(batch.keys.num_rows, (left, right), emit, reached, emitted=False)

    def on_timers(self, due: Due, state: State, times: Times) -> Changes:
        """Rows that found no partner are emitted; rows that are over go."""
        reached = max(times.watermark_us, EARLIEST)
        emit, rest = [], []
        for side in self.sides:
            held = side.held(state, _NONE, _NONE, None)
            if side.lonely:
                alone = side.over(held, reached) & ~held.matched & ~held.emitted
                emit.append(self._lonely(side, held, np.flatnonzero(alone), retracted=False))
                held.emitted[alone] = True
            rest.append(held)
        return self._kept(len(due), (rest[0], rest[1]), emit, reached, emitted=True)

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
        """What is emitted of pairs: first what they take back, then the pairs, or for a semi join the left rows."""
        taken = []
        for side, held, rows in zip(self.sides, (left, right), found, strict=True):
            if side.lonely and held.emitted.any():
                back = np.zeros(len(held.key), np.bool_)
                back[rows] = True
                taken.append(self._lonely(side, held, np.flatnonzero(back & held.emitted), retracted=True))
                held.emitted[back] = False
        if self.how == "anti":
            return taken
        if self.how == "semi":
            first = np.zeros(len(left.key), np.bool_)
            first[found.left] = True
            return [*taken, self._lonely(self.sides[0], left, np.flatnonzero(first & ~left.matched), retracted=False)]
        if not len(found.left):
            return taken
        emitted = {LEFT: left.rows.take(pa.array(found.left)), RIGHT: right.rows.take(pa.array(found.right))}
        return [*taken, self._emitted(left.key[found.left], emitted, retracted=False)]

    def _over_at_once(self, side: JoinSide, held: Held, horizon: int) -> Keyed | None:
        """New rows whose partners would all be late: state, which may be rid of such times already, is not for them."""
        if not side.lonely:
            return None
        alone = (held.time < side.bound(horizon)) & ~held.matched & ~held.emitted
        alone[: held.old] = False
        held.emitted[alone] = True
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
        self, count: int, both: tuple[Held, Held], emit: list[Keyed | None], reached: int, *, emitted: bool
    ) -> Changes:
        """State and timers from what each side holds; `emitted` says whether lonely rows are emitted up to now."""
        allowed = self.stragglers.allowed_us
        put, append, delete, expire = {}, {}, {}, {}
        timers = np.full(count, NEVER, np.int64)
        for side, held in zip(self.sides, both, strict=True):
            gone = held.time < side.bound(reached - allowed)
            if side.lonely and not emitted:
                gone &= held.matched | held.emitted
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
            if reached > EARLIEST and (emitted or not side.lonely):
                expire[side.name] = side.bound(reached - allowed)
        return Changes(
            emit=put_together(*emit),
            put=put,
            append=append,
            delete=delete,
            expire=expire,
            event_timers=Timers(np.arange(count), timers) if any(side.lonely for side in self.sides) else None,
        )

    @property
    def _late_row(self) -> pa.Schema:
        return pa.schema([pa.field("side", pa.string()), pa.field("left", self.left), pa.field("right", self.right)])

    def _aside(
        self, batch: Batch, time: Longs, late: NDArray[np.bool_], timeless: NDArray[np.bool_], reached: int
    ) -> Keyed | None:
        side = pc.if_else(batch.rows.column(IS_LEFT), "left", "right")
        whole = [side, batch.rows.column(LEFT), batch.rows.column(RIGHT)]
        return set_aside(
            self.output,
            batch.key,
            pa.RecordBatch.from_arrays(whole, schema=self._late_row),
            late=late,
            timeless=timeless,
            window=(time, time),
            reached_us=reached,
        )
