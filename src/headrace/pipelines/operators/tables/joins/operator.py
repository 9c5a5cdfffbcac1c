"""The join of two tables over keyed state: what each side gains and loses, and what the result does. Pure.

State: `left` and `right`, the log of each side's rows by the columns they are joined on, and `totals`, how long each
log is and how many rows it adds up to. A change of one side reads the other side's log and appends to its own; its own
is read only when more of it is dead than alive, and then written anew. So what is kept stays within twice the rows that
are there, and the changes of a side with many rows a key do not rewrite them.

A pair of rows is there as often as one is there times the other, so what a pair changes by is after × after - before ×
before: only pairs of which one changed are looked at. A row that an outer join keeps stands alone as long as there is
nothing on the other side.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.pipelines.keyed.operator import Batch, Changes, Keyed, Longs, Plan, Rows, State, Times, Untimed, Values
from headrace.pipelines.operators.tables.form import JOINED_FORM, TIME_TYPE, WEIGHT_TYPE
from headrace.pipelines.operators.tables.joins.log import LOG, LOG_ORDER, Delta, Side, Versions, beside, read_some
from headrace.pipelines.operators.tables.joins.net import Net, keep_apart, net
from headrace.pipelines.operators.times import some_rows, without_nulls

Flags = NDArray[np.bool_]
NONE = -1


@dataclass(frozen=True)
class Joined:
    """Rows of the result: a place on the left and one on the right (`NONE`: nothing), and by how much each changes."""

    key: Longs
    left: Longs
    right: Longs
    weight: Longs


def pairs(left: Net, right: Net) -> Joined:
    """What the pairs change by."""
    changed_left, changed_right = np.flatnonzero(left.change), np.flatnonzero(right.change)
    kept_left = np.flatnonzero(left.change == 0)
    first, second = _meet(left.key, changed_left, right.key, np.arange(len(right)))
    more_first, more_second = _meet(left.key, kept_left, right.key, changed_right)
    one, other = np.concatenate([first, more_first]), np.concatenate([second, more_second])
    weight = left.after[one] * right.after[other] - left.before[one] * right.before[other]
    some = np.flatnonzero(weight)
    one, other = one[some], other[some]
    return Joined(left.key[one], left.pick[one], right.pick[other], weight[some])


def alone(rows: Net, empty_before: Flags, empty_after: Flags) -> tuple[Longs, Longs, Longs]:
    """Keys, places and weights of rows that begin or cease to stand alone; the flags are of the other side's keys."""
    weight = rows.after * empty_after[rows.key] - rows.before * empty_before[rows.key]
    some = np.flatnonzero(weight)
    return rows.key[some], rows.pick[some], weight[some]


def _meet(left: Longs, some_left: Longs, right: Longs, some_right: Longs) -> tuple[Longs, Longs]:
    """All pairs of the rows named that have the same key; both sides are in the order of keys."""
    keys, others = left[some_left], right[some_right]
    low = np.searchsorted(others, keys, side="left")
    count = np.searchsorted(others, keys, side="right") - low
    steps = np.arange(int(count.sum())) - np.repeat(np.cumsum(count) - count, count)
    return np.repeat(some_left, count), some_right[np.repeat(low, count) + steps]


LEFT, RIGHT, TOTALS = "left", "right", "totals"
_TOTALS = pa.schema([(f"{side}_{what}", pa.int32()) for side in (LEFT, RIGHT) for what in ("entries", "rows")])


@dataclass(frozen=True)
class _Turn:
    """One side in a call: the rows that were read and that are new (`pool`), what they add up to, and its totals."""

    side: Side
    delta: Delta
    kept: int
    pool: pa.RecordBatch
    net: Net
    rewritten: Flags
    entries: Longs
    rows_before: Longs
    rows_after: Longs


@dataclass(frozen=True)
class TableJoin(Untimed):
    """The operator: the types of both sides' rows, and whose rows stay that find none on the other side."""

    left: pa.StructType
    right: pa.StructType
    keeps_left: bool
    keeps_right: bool
    prefix: str = ""

    @property
    def sides(self) -> tuple[Side, Side]:
        return Side(LEFT, self.left), Side(RIGHT, self.right)

    @property
    def output(self) -> pa.Schema:
        left, right = self.sides
        named = [field.with_name(f"{self.prefix}{field.name}") for field in right.columns]
        columns = [field.with_nullable(True) for field in [*left.columns, *named]]
        return pa.schema([*columns, *JOINED_FORM])

    def plan(self, keys: pa.Schema, rows: pa.Schema) -> Plan:
        logs = (Rows(LEFT, LOG, LOG_ORDER), Rows(RIGHT, LOG, LOG_ORDER))
        left, right = self.sides
        unmatched = {"left": self.keeps_left, "right": self.keeps_right}
        kept = [side for side, is_kept in unmatched.items() if is_kept]
        parameters = {"left columns": left.columns, "right columns": right.columns, "kept without a match": kept}
        return Plan(self.output, (*logs, Values(TOTALS, _TOTALS)), parameters=parameters)

    def on_rows(self, batch: Batch, state: State, times: Times) -> Changes:
        count = batch.keys.num_rows
        # In SQL a key with a null in it equals nothing, itself included.
        unmatched = ~without_nulls(batch.keys)
        deltas = [side.delta(batch.key, batch.rows.column(side.name)) for side in self.sides]
        held = state.read(TOTALS)
        totals = np.zeros((4, count), np.int64)
        totals[:, held.key] = [np.asarray(column) for column in held.rows.columns]
        touched = [np.bincount(delta.key, minlength=count) > 0 for delta in deltas]
        left, right = (
            self._turn(side, delta, totals[2 * at : 2 * at + 2], touched[1 - at] & ~unmatched, unmatched, state)
            for at, (side, delta) in enumerate(zip(self.sides, deltas, strict=True))
        )
        found = pairs(left.net, right.net)
        results = [(found.key, found.left, found.right, found.weight)]
        if self.keeps_left:
            results += [(key, at, _none(at), weight) for key, at, weight in self._alone(left, right, unmatched)]
        if self.keeps_right:
            results += [(key, _none(at), at, weight) for key, at, weight in self._alone(right, left, unmatched)]
        emit = self._emitted(left, right, Joined(*(np.concatenate(part) for part in zip(*results, strict=True))))
        return self._kept(left, right, emit)

    def _turn(self, side: Side, delta: Delta, totals: Longs, asked: Flags, unmatched: Flags, state: State) -> _Turn:
        """Read what is needed of a side, and add it up with what is new; `asked` are keys that the other side meets."""
        entries, rows = totals
        count = len(entries)
        fresh = ~unmatched[delta.key]
        key, weight = delta.key[fresh], delta.weight[fresh]
        rows_after = rows + np.bincount(key, weight, count).astype(np.int64)
        length = entries + np.bincount(key, minlength=count)
        rewritten = (length > entries) & (length > 2 * np.maximum(rows_after, 0))
        wanted = asked | rewritten
        # A row that goes and does not know its version is looked up, so that what was emitted is retracted as it was.
        wanted[key[(weight < 0) & ~delta.known[fresh]]] = True
        held = read_some(state, side.name, wanted & (entries > 0))
        pool = pa.concat_batches([held.rows, delta.rows])
        kept = len(held)
        new = kept + np.flatnonzero(fresh)
        together = wanted[key] & (bool(kept) | rewritten[key])
        of = np.concatenate([held.key, key[together]])
        places = np.concatenate([np.arange(kept), new[together]])
        known = net(of, some_rows(pool, places), kept)
        others = keep_apart(key[~together], weight[~together])
        merged = _merge(known, places, others, new[~together])
        written = merged.key[np.where(rewritten[merged.key], merged.after, merged.change) != 0]
        length = np.where(rewritten, 0, entries) + np.bincount(written, minlength=count)
        return _Turn(side, delta, kept, pool, merged, rewritten, np.stack([entries, length]), rows, rows_after)

    def _alone(self, turn: _Turn, other: _Turn, unmatched: Flags) -> list[tuple[Longs, Longs, Longs]]:
        """Rows that stand alone from now on or no longer, and those whose key matches nothing."""
        never = np.flatnonzero(unmatched[turn.delta.key])
        return [
            alone(turn.net, other.rows_before <= 0, other.rows_after <= 0),
            (turn.delta.key[never], turn.kept + never, turn.delta.weight[never]),
        ]

    def _emitted(self, left: _Turn, right: _Turn, found: Joined) -> Keyed | None:
        if not len(found.key):
            return None
        columns: list[pa.Array] = []
        times: list[pa.Array] = []
        versions: list[tuple[Versions, Longs]] = []
        for turn, places in ((left, found.left), (right, found.right)):
            rows, where = _take_used(turn.pool, places)
            cells, its_versions = turn.side.opened(rows)
            time = rows.column("time").view(pa.int64())
            if rows.num_rows == len(places) and (where == np.arange(len(places))).all():
                columns += cells.columns
            else:
                taken = pa.array(where, mask=where < 0)
                columns += [column.take(taken) for column in cells.columns]
                time = time.take(taken)
            times.append(time)
            versions.append((its_versions, where))
        weight = pa.array(found.weight).cast(WEIGHT_TYPE)
        latest = pc.max_element_wise(*times).view(TIME_TYPE)
        made = [*columns, weight, beside(versions, len(found.key)), latest]
        return Keyed(found.key, pa.RecordBatch.from_arrays(made, schema=self.output))

    def _kept(self, left: _Turn, right: _Turn, emit: Keyed | None) -> Changes:
        append, delete = {}, {}
        for turn in (left, right):
            key, places, weight = _choose_written(turn)
            if len(key):
                append[turn.side.name] = Keyed(key, _put_weight(turn.pool.take(pa.array(places)), weight))
            delete[turn.side.name] = np.flatnonzero(turn.rewritten & (turn.entries[0] > 0))
        before, after = (left.entries[at] + right.entries[at] for at in (0, 1))
        totals = [left.entries[1], left.rows_after, right.entries[1], right.rows_after]
        were = [left.entries[0], left.rows_before, right.entries[0], right.rows_before]
        differs = (np.stack(totals) != np.stack(were)).any(axis=0)
        written = np.flatnonzero(differs & (after > 0))
        cells = [pa.array(column[written].astype(np.int32)) for column in totals]
        delete[TOTALS] = np.flatnonzero((before > 0) & (after == 0))
        put = {TOTALS: Keyed(written, pa.RecordBatch.from_arrays(cells, schema=_TOTALS))}
        return Changes(emit=emit, put=put, append=append, delete=delete)


def _none(places: Longs) -> Longs:
    return np.full(len(places), NONE, np.int64)


def _merge(known: Net, places: Longs, others: Net, other_places: Longs) -> Net:
    """Both in the order of keys, with the places that their rows have in the pool."""
    key = np.concatenate([known.key, others.key])
    order = np.argsort(key, kind="stable")
    return Net(
        key[order],
        np.concatenate([known.before, others.before])[order],
        np.concatenate([known.change, others.change])[order],
        np.concatenate([places[known.pick], other_places[others.pick]])[order],
    )


def _take_used(pool: pa.RecordBatch, places: Longs) -> tuple[pa.RecordBatch, Longs]:
    """The rows that are named, and where each now is; `NONE` stays."""
    there = places >= 0
    is_used = np.zeros(pool.num_rows, np.bool_)
    is_used[places[there]] = True
    pool = pool.select(["time", "row", "marks"])
    if there.all() and len(places) <= 2 * np.count_nonzero(is_used):
        # Rows that are named but once or twice are opened as often, which is less work than to look each up.
        return pool.take(pa.array(places)), np.arange(len(places))
    where = np.full(len(places), NONE, np.int64)
    where[there] = (np.cumsum(is_used) - 1)[places[there]]
    return pool.filter(pa.array(is_used)), where


def _choose_written(turn: _Turn) -> tuple[Longs, Longs, Longs]:
    """What goes to the log: of the keys that are written anew all that is there, of the others what is new."""
    weight = np.where(turn.rewritten[turn.net.key], turn.net.after, turn.net.change)
    some = np.flatnonzero(weight)
    return turn.net.key[some], turn.net.pick[some], weight[some]


def _put_weight(log: pa.RecordBatch, weight: Longs) -> pa.RecordBatch:
    place = LOG.get_field_index("weight")
    columns = log.columns
    columns[place] = pa.array(weight.astype(np.int32))
    return pa.RecordBatch.from_arrays(columns, schema=LOG)
