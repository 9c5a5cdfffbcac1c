"""All aggregates of an operator together: from rows to kept columns, from kept columns to results."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headrace.pipelines.operators.aggregation.algebra import Aggregate, Loaded
from headrace.pipelines.operators.aggregation.cells import Cell
from headrace.pipelines.operators.aggregation.sums import Count
from headrace.pipelines.operators.errors import BadAggregate, BadField, nearest
from headrace.pipelines.operators.grouping import Groups, Longs

ROWS = "*"  # every partial result counts its rows, to know whether it has changed


@dataclass(frozen=True)
class Folded:
    """Partial results of all aggregates, row by row."""

    fold: "Fold"
    loaded: tuple[Loaded, ...]

    def reduce(self, groups: Groups) -> "Folded":
        return self._each(lambda cell: cell.reduce(groups))

    def over(self, lows: Longs, highs: Longs) -> "Folded":
        return self._each(lambda cell: cell.over(lows, highs))

    def take(self, rows: Longs) -> "Folded":
        return self._each(lambda cell: cell.take(rows))

    def with_nothing(self, count: int) -> "Folded":
        """The same, and behind them so many of no rows."""
        if not count:
            return self
        columns = [pa.concat_arrays(pair) for pair in zip(self.stored(), self.fold.nothing(count), strict=True)]
        return self.fold.load(columns)

    @property
    def rows(self) -> Longs:
        """How many rows went into each."""
        return np.asarray(self.loaded[0].cells[0].values)  # type: ignore[attr-defined]

    def stored(self) -> list[pa.Array]:
        return [column for (_, each, kind), held in self._parts() for column in each.store(held, kind)]

    def results(self) -> list[pa.Array]:
        return [each.finish(held, kind).cast(each.result(kind)) for (_, each, kind), held in self._parts()[1:]]

    def _parts(self) -> list[tuple[tuple[str, Aggregate, pa.DataType], Loaded]]:
        return list(zip(self.fold.parts, self.loaded, strict=True))

    def _each(self, change: Callable[[Cell], Cell]) -> "Folded":
        return Folded(self.fold, tuple(loaded.map(change) for loaded in self.loaded))


@dataclass(frozen=True)
class Fold:
    """Aggregates with their names and the types of their fields; the first counts rows."""

    parts: tuple[tuple[str, Aggregate, pa.DataType], ...]

    @property
    def state(self) -> list[pa.Field]:
        return [pa.field(f"{name}.{part}", held) for name, each, kind in self.parts for part, held in each.state(kind)]

    @property
    def results(self) -> list[pa.Field]:
        return [pa.field(name, each.result(kind)) for name, each, kind in self.parts[1:]]

    def lift(self, rows: pa.RecordBatch, time: Longs) -> list[pa.Array]:
        """A partial result of each row, as kept columns."""
        nothing = pa.nulls(0)
        return [
            column
            for _, each, _ in self.parts
            for column in each.lift(rows.column(each.field) if each.field else nothing, time)
        ]

    def nothing(self, count: int) -> list[pa.Array]:
        """So many partial results of no rows, as kept columns."""
        return [column for _, each, kind in self.parts for column in each.nothing(kind, count)]

    def load(self, columns: Sequence[pa.Array]) -> Folded:
        """Kept columns, to be combined."""
        loaded, at = [], 0
        for _, each, kind in self.parts:
            count = len(each.state(kind))
            loaded.append(each.load([_whole(column) for column in columns[at : at + count]]))
            at += count
        return Folded(self, tuple(loaded))


def fold(aggregates: Mapping[str, Aggregate], rows: pa.Schema) -> Fold:
    """Aggregates over rows of that schema; refuses a field that is not there or has the wrong type."""
    parts: list[tuple[str, Aggregate, pa.DataType]] = [(ROWS, Count(None), pa.null())]
    for name, each in aggregates.items():
        if not isinstance(each, Aggregate):
            raise BadAggregate(f"{name}={each!r} is not an aggregate: write for example {name}=agg.count()")
        if each.field is not None and each.field not in rows.names:
            raise BadField(f"{name}: there is no column {each.field!r}: {nearest(each.field, rows.names)}")
        kind = rows.field(each.field).type if each.field is not None else pa.null()
        each.state(kind)
        parts.append((name, each, kind))
    return Fold(tuple(parts))


def _whole(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
