"""`top_n`: the first rows in an order, of a window or of a group; `ranked`, `top_rows` and `latest`: as rows."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as fn

from headrace.pipelines.operators.aggregation.algebra import Arrays, Loaded, Where, valid_in
from headrace.pipelines.operators.aggregation.cells import Bag, Cut
from headrace.pipelines.operators.aggregation.heads import RANK_FIELD, Ordered
from headrace.pipelines.operators.aggregation.ordered import Listed, as_bag, from_bag, lists_of
from headrace.pipelines.operators.aggregation.ordering import RANKINGS, first_ranked, is_ordered, places
from headrace.pipelines.operators.errors import BadAggregate, BadField, as_names
from headrace.pipelines.operators.grouping import Longs

_MOST = 10_000


@dataclass(frozen=True)
class TopN(Listed):
    """The first `n` rows by `order` (names, and whether from the greatest down), shown with `columns`.

    In windows it is computed of a column of rows with all its `names`, in groups of a table of the columns themselves.
    """

    is_native = False

    n: int
    order: tuple[tuple[str, bool], ...]
    columns: tuple[str, ...]
    ties: str | None = None
    present: str | None = None
    """In groups of a table, a column that is null where the condition does not hold."""

    @property
    def names(self) -> tuple[str, ...]:
        """Every column that it looks at: those of the order, then the others, which decide between equal ones."""
        return tuple(dict.fromkeys([*(name for name, _ in self.order), *self.columns]))

    @property
    def descending(self) -> tuple[bool, ...]:
        """Of each of the names, whether from the greatest down."""
        down = dict(self.order)
        return tuple(down.get(column, False) for column in self.names)

    @property
    def named(self) -> str:
        order = [f"{'-' if down else ''}{name}" for name, down in self.order]
        return f"top_n({self.n}, {order[0] if len(order) == 1 else order!r})"

    def prepare(self, *, of_table: bool = False) -> tuple[Self, dict[str, Column]]:
        if of_table:
            return self.prepare_present()
        name, column = self.make_column(
            fn.struct(*(f"`{each}`" for each in self.names)), f"rows {', '.join(self.names)}"
        )
        return replace(self, field=name, where=None), {name: column}

    def state(self, kind: pa.DataType) -> list[tuple[str, pa.DataType]]:
        if not pa.types.is_struct(kind):
            raise BadAggregate(f"{self.named} is computed of rows, and of {kind} it cannot be")
        self._check(pa.schema(list(kind)))
        return [("top", pa.list_(kind))]

    def result(self, kind: pa.DataType) -> pa.DataType:
        shown = [pa.field(name, kind.field(name).type) for name in self.columns]
        return pa.list_(pa.struct([*shown, *([RANK_FIELD] if self.ties else [])]))

    def lift(self, values: pa.Array, time: Longs) -> Arrays:
        return [lists_of(valid_in(values), values.drop_null())]

    def load(self, columns: Sequence[pa.Array]) -> Loaded:
        (lists,) = columns
        rows = lists.flatten()
        parts = rows.flatten()
        place = places(parts, self.descending)
        tie = places(parts[: len(self.order)], self.descending[: len(self.order)])
        dense, first, at = np.unique(place, return_index=True, return_inverse=True)
        cut = Cut(self.n, self.ties, tie[first] if len(dense) else tie)
        return Loaded((as_bag(lists, at.astype(np.int64), distinct=False, cut=cut),), (rows.take(pa.array(first)),))

    def finish(self, loaded: Loaded, kind: pa.DataType) -> pa.Array:
        (cell,) = loaded.cells
        assert isinstance(cell, Bag)
        assert cell.cut is not None
        lists, given = from_bag(loaded), self.result(kind)
        cells = [lists.values.field(name) for name in self.columns]
        if self.ties:
            sizes = np.asarray(lists.value_lengths())
            owner = np.repeat(np.arange(len(sizes)), sizes)
            tie = cell.cut.tie[np.asarray(cell.lists.flatten())]
            _, rank = first_ranked(owner, tie, np.ones(len(tie), np.int64), self.n, self.ties)
            cells.append(pa.array(rank))
        made = pa.StructArray.from_arrays(cells, fields=list(given.value_type))
        return pa.ListArray.from_arrays(lists.offsets, made, type=given)

    def part(self, name: str, rows: pa.Schema, *, inserts: bool) -> Ordered:
        self._check(rows)
        return Ordered(
            name,
            tuple(pa.field(column, rows.field(column).type) for column in self.names),
            self.descending,
            self.n,
            self.columns,
            (self.present,) if self.present else (),
            ranking=self.ties,
            order=len(self.order) if self.ties else None,
            inserts=inserts,
        )

    def _check(self, rows: pa.Schema) -> None:
        for column in self.names:
            if not is_ordered(kind := rows.field(column).type):
                raise BadAggregate(
                    f"{self.named} keeps rows in order, and column {column!r} is {kind}, which has none: take "
                    "a field of it, or a text made of it"
                )


def top_n(n: int, order_by: str | Sequence[str], *columns: str, ties: str | None = None, where: Where = None) -> TopN:
    """The first `n` rows by `order_by`, as an array of rows with `columns` (or with those of the order).

    For windows and for `group_changes`. `"-score"` orders from the greatest down. Nulls come last, NaN counts as
    greater than every number, and among equal rows those with lesser `columns` come first, so that nothing depends on
    how rows came.

    `ties` adds the `rank` of each row, as SQL ranks: `"row_number"` counts on among equal ones and gives `n` rows,
    `"rank"` gives equal ones the same number and leaves out as many behind them, `"dense_rank"` leaves none out. All
    rows whose rank is at most `n` are there, with the latter two more than `n` if some are equal in the order.
    `ranked("…")` makes rows of the array. `where` is a condition on rows, as with every aggregate.
    """
    if isinstance(n, bool) or not isinstance(n, int) or not 1 <= n <= _MOST:
        raise BadAggregate(f"top_n keeps n={n!r} rows: write a whole number from 1 to {_MOST}")
    order: dict[str, bool] = {}
    for each in as_names(order_by):
        order.setdefault(each.removeprefix("-"), each.startswith("-"))
    if not order or "" in order:
        raise BadAggregate('top_n has no order: write for example top_n(10, "-score", "name")')
    if ties is not None and ties not in RANKINGS:
        raise BadAggregate(f"ties={ties!r} in top_n: write one of {', '.join(RANKINGS)}, or leave it out")
    shown = tuple(dict.fromkeys(columns)) or tuple(order)
    if ties is not None and RANK_FIELD.name in shown:
        raise BadField(
            f"top_n with ties={ties!r} adds a column {RANK_FIELD.name!r}, and there is one already: rename it"
        )
    return TopN(None, n, tuple(order.items()), shown, ties, where=where)
