"""What an aggregate of a group is while changes come in: something kept that every change is added to or taken from.

Here: what such a part gets and gives, and the parts that are sums. All parts are linear: what is kept depends only on
the sum of all weighted rows, never on their order or on how they were cut into calls, and rows that are taken away
before they came are as good as any. So the difference between what a part says before and after a call adds up over
calls and micro-batches.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.pipelines.keyed.operator import Keyed, State, Table, Values
from headrace.pipelines.operators import limbs
from headrace.pipelines.operators.grouping import Groups, Longs, grouped
from headrace.pipelines.operators.partials import Aggregate, valid_in
from headrace.pipelines.operators.tables import grouped_floats

Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Call:
    """The rows of a call: row i belongs to group `key[i]` of `count`, and counts `weight[i]` times."""

    count: int
    key: Longs
    rows: pa.RecordBatch
    weight: Longs
    state: State

    @cached_property
    def _groups(self) -> Groups:
        return grouped(self.key)

    def summed(self, values: Longs) -> Longs:
        """Values of rows added up a group."""
        groups = self._groups
        found = np.zeros(self.count, np.int64)
        if len(groups.starts):
            found[self.key[groups.firsts]] = np.add.reduceat(values[groups.order], groups.starts)
        return found


@dataclass(frozen=True)
class Step:
    """What a part made of a call: its numbers from now on, its results before and after, and where these differ."""

    kept: list[Longs]
    before: pa.Array
    after: pa.Array
    altered: Flags
    put: Mapping[str, Keyed] = field(default_factory=dict)
    append: Mapping[str, Keyed] = field(default_factory=dict)
    delete: Mapping[str, Longs] = field(default_factory=dict)


class Part(Protocol):
    """One aggregate of a group."""

    @property
    def result(self) -> pa.DataType:
        """The type of what comes out."""
        ...

    @property
    def columns(self) -> tuple[str, ...]:
        """Whole numbers that it keeps, one of each a group, 0 at the beginning."""
        ...

    @property
    def tables(self) -> tuple[Table, ...]:
        """Tables that it keeps besides."""
        ...

    def step(self, call: Call, held: list[Longs]) -> Step:
        """The rows of a call added; `held` are its numbers so far."""
        ...


@dataclass(frozen=True)
class Sums:
    """An aggregate whose partial results are whole numbers that add up: counts, exact sums, averages of decimals."""

    aggregate: Aggregate
    kind: pa.DataType

    @property
    def result(self) -> pa.DataType:
        return self.aggregate.result(self.kind)

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.aggregate.state(self.kind))

    @property
    def tables(self) -> tuple[Table, ...]:
        return ()

    def step(self, call: Call, held: list[Longs]) -> Step:
        lifted = [np.asarray(column, np.int64) * call.weight for column in self._lifted(call)]
        kept = [old + call.summed(column) for old, column in zip(held, lifted, strict=True)]
        before, after = self._results(held), self._results(kept)
        return Step(kept, before, after, differ(before, after))

    def _lifted(self, call: Call) -> list[pa.Array]:
        name = self.aggregate.field
        return self.aggregate.lift(pa.nulls(0) if name is None else call.rows.column(name), call.key)

    def _results(self, numbers: list[Longs]) -> pa.Array:
        loaded = self.aggregate.load([pa.array(each) for each in numbers])
        return self.aggregate.finish(loaded, self.kind).cast(self.result)


@dataclass(frozen=True)
class WholeMean(Sums):
    """An average of whole numbers: the exact sum, divided once."""

    @property
    def columns(self) -> tuple[str, ...]:
        return ("n", "low", "high")

    def _lifted(self, call: Call) -> list[pa.Array]:
        values = call.rows.column(self.aggregate.field or "").cast(pa.int64())
        return [pa.array(valid_in(values).astype(np.int64)), *map(pa.array, limbs.split(values))]

    def _results(self, numbers: list[Longs]) -> pa.Array:
        n, low, high = numbers
        exact = (high + (low >> 32)) * 2.0**32 + (low & 0xFFFFFFFF)
        return pa.array(exact / np.where(n == 0, 1, n), mask=n == 0)


@dataclass(frozen=True)
class DecimalMean(Sums):
    """An average of decimals, rounded half up: where the sum allows it in machine words, else digit by digit."""

    def _results(self, numbers: list[Longs]) -> pa.Array:
        n, *pieces = numbers
        more = 10 ** (self.result.scale - self.kind.scale)
        about = sum(piece * 2.0 ** (32 * at) for at, piece in enumerate(pieces))
        small = (np.abs(about) < 2.0**61 / more) & (n > 0)
        total = np.where(small, pieces[0] + (pieces[1] << 32), 0)  # the higher pieces are nothing modulo 2^64
        by = np.where(small, n, 1)
        size = (2 * np.abs(total) * more + by) // (2 * by)
        mean = np.where(total < 0, -size, size)
        words = [mean & 0xFFFFFFFF, (mean >> 32) & 0xFFFFFFFF, (mean >> 63) & 0xFFFFFFFF, mean >> 63]
        found = limbs.decimals(words, small, self.result, f"an average of {self.aggregate.field!r}")
        rest = np.flatnonzero(~small & (n != 0))
        if not len(rest):
            return found
        exact = super()._results([each[rest] for each in numbers])
        return pc.replace_with_mask(found, pa.array(~small & (n != 0)), exact)


@dataclass(frozen=True)
class Doubles:
    """A sum or an average of doubles, as `grouped_floats` keeps it."""

    name: str
    source: str
    mean: bool

    @property
    def result(self) -> pa.DataType:
        return pa.float64()

    @property
    def columns(self) -> tuple[str, ...]:
        return ("n",)

    @property
    def tables(self) -> tuple[Table, ...]:
        return (Values(f"{self.name}.pieces", grouped_floats.PIECES),)

    def step(self, call: Call, held: list[Longs]) -> Step:
        (table,) = self.tables
        values = call.rows.column(self.source).cast(pa.float64())
        valid = valid_in(values)
        rows = np.flatnonzero(valid & (call.weight != 0))
        n = held[0] + call.summed(valid * call.weight)
        old = call.state.read(table.name)
        limb, part = (np.asarray(column, np.int64) for column in old.rows.columns)
        fresh = grouped_floats.split(call.key[rows], np.asarray(values.fill_null(0.0))[rows], call.weight[rows])
        both = [np.concatenate(pair) for pair in zip((old.key, limb, part), fresh, strict=True)]
        key, new_limb, new_part = grouped_floats.added(*both)
        before = self._results(call.count, held[0], old.key, limb, part)
        after = self._results(call.count, n, key, new_limb, new_part)
        touched = np.zeros(call.count, np.bool_)
        touched[fresh[0]] = True
        had, has = np.zeros(call.count, np.bool_), np.zeros(call.count, np.bool_)
        had[old.key], has[key] = True, True
        mine = np.flatnonzero(touched[key])
        columns = [pa.array(new_limb[mine], pa.int16()), pa.array(new_part[mine])]
        put = Keyed(key[mine], pa.RecordBatch.from_arrays(columns, schema=grouped_floats.PIECES))
        gone = np.flatnonzero(had & ~has).astype(np.int64)
        return Step([n], before, after, differ(before, after), put={table.name: put}, delete={table.name: gone})

    def _results(self, count: int, n: Longs, key: Longs, limb: Longs, part: Longs) -> pa.Array:
        sums = grouped_floats.rounded(count, key, limb, part)
        with np.errstate(invalid="ignore"):
            return pa.array(sums / np.where(n == 0, 1, n) if self.mean else sums, mask=n == 0)


@dataclass(frozen=True)
class Marks:
    """Adds up marks that an operator before has set: +1 for a value that is new, -1 for one that is gone."""

    column: str

    @property
    def result(self) -> pa.DataType:
        return pa.int64()

    @property
    def columns(self) -> tuple[str, ...]:
        return ("n",)

    @property
    def tables(self) -> tuple[Table, ...]:
        return ()

    def step(self, call: Call, held: list[Longs]) -> Step:
        marks = np.asarray(call.rows.column(self.column).fill_null(0), np.int64)
        n = held[0] + call.summed(marks)
        return Step([n], pa.array(held[0]), pa.array(n), n != held[0])


def differ(one: pa.Array, other: pa.Array) -> Flags:
    """Where two columns of plain values differ; null equals null, NaN equals NaN."""
    equal: Any = pc.equal(one, other)
    if pa.types.is_floating(one.type):
        equal = pc.or_(equal, pc.and_(pc.is_nan(one), pc.is_nan(other)))
    both = pc.and_(one.is_null(), other.is_null())
    return ~np.asarray(pc.or_(equal.fill_null(False), both))
