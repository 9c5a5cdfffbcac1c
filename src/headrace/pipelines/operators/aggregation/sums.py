"""Aggregates that count and add: what windows keep of them, and the parts of groups, which can be subtracted from."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as fn

from headrace.pipelines.keyed.operator import Keyed, Table, Values
from headrace.pipelines.operators.aggregation import exact
from headrace.pipelines.operators.aggregation.algebra import (
    Aggregate,
    Arrays,
    Call,
    Loaded,
    Part,
    Step,
    differ,
    valid_in,
)
from headrace.pipelines.operators.aggregation.cells import Moments, Sum
from headrace.pipelines.operators.grouping import Longs


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _count(values: pa.Array) -> pa.Array:
    return pa.array(valid_in(values).astype(np.int64))


@dataclass(frozen=True)
class _Numbers(Aggregate):
    """What sum and average keep: exact pieces, or a double, and how many values there were."""

    def state(self, kind: pa.DataType) -> list[tuple[str, pa.DataType]]:
        if not _is_number(kind):
            raise self._refuse(kind, "only numbers can be summed: cast it to one first")
        pieces = self._pieces(kind)
        sums = [(f"limb{at}", pa.int64()) for at in range(pieces)] if pieces else [("sum", pa.float64())]
        return [("n", pa.int64()), *sums]

    def lift(self, values: pa.Array, time: Longs) -> Arrays:
        if self._pieces(values.type):
            return [_count(values), *map(pa.array, exact.split(values))]
        return [_count(values), values.cast(pa.float64(), safe=False).fill_null(0.0)]

    def load(self, columns: Sequence[pa.Array]) -> Loaded:
        return Loaded(tuple(Sum(np.asarray(column)) for column in columns))

    def store(self, loaded: Loaded, kind: pa.DataType) -> Arrays:
        return [pa.array(cell.values) for cell in loaded.cells]  # type: ignore[attr-defined]

    def _pieces(self, kind: pa.DataType) -> int:
        raise NotImplementedError

    def _read(self, loaded: Loaded) -> tuple[Any, list[Any]]:
        n, *sums = [cell.values for cell in loaded.cells]  # type: ignore[attr-defined]
        return n, sums


@dataclass(frozen=True)
class Count(_Numbers):
    """Rows, or values that are not null."""

    def state(self, kind: pa.DataType) -> list[tuple[str, pa.DataType]]:
        return [("n", pa.int64())]

    def result(self, kind: pa.DataType) -> pa.DataType:
        return pa.int64()

    def lift(self, values: pa.Array, time: Longs) -> Arrays:
        return [_count(values) if self.field else pa.array(np.ones(len(time), np.int64))]

    def nothing(self, kind: pa.DataType, count: int) -> Arrays:
        return [pa.array(np.zeros(count, np.int64))]

    def native(self, time: Column) -> Column:
        return fn.count(self.column if self.field else fn.lit(1))

    def part(self, name: str, rows: pa.Schema, *, inserts: bool) -> Part:
        return Sums(self, pa.null())


@dataclass(frozen=True)
class Total(_Numbers):
    """A sum."""

    sparks = "sum"

    def result(self, kind: pa.DataType) -> pa.DataType:
        if pa.types.is_decimal(kind):
            return pa.decimal128(min(38, kind.precision + 10), kind.scale)
        return pa.int64() if pa.types.is_integer(kind) else pa.float64()

    def finish(self, loaded: Loaded, kind: pa.DataType) -> pa.Array:
        n, sums = self._read(loaded)
        what = f"a sum of {self.field!r}"
        if pa.types.is_decimal(kind):
            return exact.join_decimals(sums, n > 0, self.result(kind), what)
        return pa.array(exact.join(sums, what) if self._pieces(kind) else sums[0], mask=n == 0)

    def _pieces(self, kind: pa.DataType) -> int:
        return 0 if pa.types.is_floating(kind) else exact.count_limbs(kind)

    def part(self, name: str, rows: pa.Schema, *, inserts: bool) -> Part:
        kind = self.kind_in(rows)
        return Doubles(name, self.field or "", mean=False) if pa.types.is_floating(kind) else Sums(self, kind)


@dataclass(frozen=True)
class Mean(_Numbers):
    """An average."""

    sparks = "avg"

    def result(self, kind: pa.DataType) -> pa.DataType:
        if pa.types.is_decimal(kind):
            return pa.decimal128(min(kind.precision + 4, 38), min(kind.scale + 4, 38))  # as Spark bounds it
        return pa.float64()

    def finish(self, loaded: Loaded, kind: pa.DataType) -> pa.Array:
        n, sums = self._read(loaded)
        if pa.types.is_decimal(kind):
            return exact.divide_decimals(sums, n, kind.scale, self.result(kind), f"an average of {self.field!r}")
        return pa.array(sums[0] / np.maximum(n, 1), mask=n == 0)

    def _pieces(self, kind: pa.DataType) -> int:
        return 4 if pa.types.is_decimal(kind) else 0

    def part(self, name: str, rows: pa.Schema, *, inserts: bool) -> Part:
        kind = self.kind_in(rows)
        if pa.types.is_floating(kind):
            return Doubles(name, self.field or "", mean=True)
        return WholeMean(self, kind) if pa.types.is_integer(kind) else DecimalMean(self, kind)


@dataclass(frozen=True)
class Deviation(Aggregate):
    """A sample's standard deviation."""

    sparks = "stddev_samp"

    def state(self, kind: pa.DataType) -> list[tuple[str, pa.DataType]]:
        if not _is_number(kind):
            raise self._refuse(kind, "only numbers deviate: cast it to one first")
        return [("n", pa.int64()), ("mean", pa.float64()), ("squares", pa.float64())]

    def result(self, kind: pa.DataType) -> pa.DataType:
        return pa.float64()

    def lift(self, values: pa.Array, time: Longs) -> Arrays:
        return [_count(values), values.cast(pa.float64(), safe=False).fill_null(0.0), pa.array(np.zeros(len(values)))]

    def load(self, columns: Sequence[pa.Array]) -> Loaded:
        return Loaded((Moments(*(np.asarray(column) for column in columns)),))

    def store(self, loaded: Loaded, kind: pa.DataType) -> Arrays:
        (cell,) = loaded.cells
        assert isinstance(cell, Moments)
        return [pa.array(cell.count), pa.array(cell.mean), pa.array(cell.squares)]

    def finish(self, loaded: Loaded, kind: pa.DataType) -> pa.Array:
        (cell,) = loaded.cells
        assert isinstance(cell, Moments)
        return pa.array(np.sqrt(cell.squares / np.maximum(cell.count - 1, 1)), mask=cell.count < 2)


@dataclass(frozen=True)
class Sums(Part):
    """An aggregate whose partial results are whole numbers that add up: counts, exact sums, averages of decimals."""

    aggregate: Aggregate
    kind: pa.DataType

    @property
    def result(self) -> pa.DataType:
        return self.aggregate.result(self.kind)

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.aggregate.state(self.kind))

    def step(self, call: Call, held: list[Longs]) -> Step:
        lifted = [np.asarray(column, np.int64) * call.weight for column in self._lifted(call)]
        kept = [old + call.add_up(column) for old, column in zip(held, lifted, strict=True)]
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
        return [_count(values), *map(pa.array, exact.split(values))]

    def _results(self, numbers: list[Longs]) -> pa.Array:
        n, low, high = numbers
        total = (high + (low >> 32)) * 2.0**32 + (low & 0xFFFFFFFF)
        return pa.array(total / np.where(n == 0, 1, n), mask=n == 0)


@dataclass(frozen=True)
class DecimalMean(Sums):
    """An average of decimals. It differs from `Sums` by its name alone, which is stored with state."""


@dataclass(frozen=True)
class Doubles(Part):
    """A sum or an average of doubles, exact."""

    name: str
    source: str
    mean: bool

    @property
    def result(self) -> pa.DataType:
        return pa.float64()

    @property
    def tables(self) -> tuple[Table, ...]:
        return (Values(f"{self.name}.pieces", exact.PIECES),)

    def step(self, call: Call, held: list[Longs]) -> Step:
        (table,) = self.tables
        values = call.rows.column(self.source).cast(pa.float64())
        valid = valid_in(values)
        rows = np.flatnonzero(valid & (call.weight != 0))
        n = held[0] + call.add_up(valid * call.weight)
        old = call.state.read(table.name)
        limb, part = (np.asarray(column, np.int64) for column in old.rows.columns)
        fresh = exact.split_doubles(call.key[rows], np.asarray(values.fill_null(0.0))[rows], call.weight[rows])
        both = [np.concatenate(pair) for pair in zip((old.key, limb, part), fresh, strict=True)]
        key, new_limb, new_part = exact.add_pieces(*both)
        before = self._results(call.count, held[0], old.key, limb, part)
        after = self._results(call.count, n, key, new_limb, new_part)
        touched = np.zeros(call.count, np.bool_)
        touched[fresh[0]] = True
        had, has = np.zeros(call.count, np.bool_), np.zeros(call.count, np.bool_)
        had[old.key], has[key] = True, True
        mine = np.flatnonzero(touched[key])
        columns = [pa.array(new_limb[mine], pa.int16()), pa.array(new_part[mine])]
        put = Keyed(key[mine], pa.RecordBatch.from_arrays(columns, schema=exact.PIECES))
        gone = np.flatnonzero(had & ~has).astype(np.int64)
        return Step([n], before, after, differ(before, after), put={table.name: put}, delete={table.name: gone})

    def _results(self, count: int, n: Longs, key: Longs, limb: Longs, part: Longs) -> pa.Array:
        sums = exact.join_doubles(count, key, limb, part)
        with np.errstate(invalid="ignore"):
            return pa.array(sums / np.where(n == 0, 1, n) if self.mean else sums, mask=n == 0)
