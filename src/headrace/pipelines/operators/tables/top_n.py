"""`top_n`: the first rows of a group in an order, for `group_changes`."""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from headrace.errors import nearest
from headrace.pipelines.operators.errors import BadAggregate, BadField
from headrace.pipelines.operators.fields import as_names
from headrace.pipelines.operators.ordering import is_ordered
from headrace.pipelines.operators.partials import Aggregate
from headrace.pipelines.operators.tables.grouped_heads import Ordered

_MOST = 10_000


@dataclass(frozen=True)
class TopN(Aggregate):
    """The first `n` rows by `order` (names, and whether from the greatest down), shown with `columns`."""

    n: int
    order: tuple[tuple[str, bool], ...]
    columns: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Every column that it looks at: those of the order, then the others, which decide between equal ones."""
        return tuple(dict.fromkeys([*(name for name, _ in self.order), *self.columns]))

    @property
    def named(self) -> str:
        """As a user wrote it."""
        order = [f"{'-' if down else ''}{name}" for name, down in self.order]
        return f"top_n({self.n}, {order[0] if len(order) == 1 else order!r})"

    def state(self, kind: pa.DataType) -> list[tuple[str, pa.DataType]]:  # noqa: ARG002 - it has none
        """It is kept as rows, not as a partial result."""
        raise BadAggregate(f"{self.named} is an aggregate of tables: use it in group_changes, or agg.collect here")

    def part(self, name: str, rows: pa.Schema) -> Ordered:
        """What is kept of it, for rows of that schema."""
        for column in self.names:
            if column not in rows.names:
                raise BadField(f"{name}: there is no column {column!r}: {nearest(column, rows.names, 'there are')}")
            if not is_ordered(kind := rows.field(column).type):
                raise BadAggregate(
                    f"{name}: {self.named} keeps rows in order, and column {column!r} is {kind}, which has none: take "
                    "a field of it, or a text made of it"
                )
        down = dict(self.order)
        return Ordered(
            name,
            tuple(pa.field(column, rows.field(column).type) for column in self.names),
            tuple(down.get(column, False) for column in self.names),
            self.n,
            self.columns,
        )


def top_n(n: int, order_by: str | Sequence[str], *columns: str) -> TopN:
    """The first `n` rows of a group by `order_by`, as an array of rows with `columns` (or with those of the order).

    `"-score"` orders from the greatest down. Nulls come last, NaN counts as greater than every number, and among equal
    rows those with lesser `columns` come first, so that nothing depends on how rows came.
    """
    if isinstance(n, bool) or not isinstance(n, int) or not 1 <= n <= _MOST:
        raise BadAggregate(f"top_n keeps n={n!r} rows: write a whole number from 1 to {_MOST}")
    order: dict[str, bool] = {}
    for each in as_names(order_by):
        order.setdefault(each.removeprefix("-"), each.startswith("-"))
    if not order or "" in order:
        raise BadAggregate('top_n has no order: write for example top_n(10, "-score", "name")')
    return TopN(None, n, tuple(order.items()), tuple(dict.fromkeys(columns)) or tuple(order))
