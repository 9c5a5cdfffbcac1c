"""What can be computed of the rows of a window. Declared once, and rendered for Spark and for keyed state alike.

    from headrace.pipelines.operators import aggregates as agg

    tumbling("1 minute", by="shop", total=agg.sum("amount"), orders=agg.count())

Nulls are left out, as in SQL: a sum of nothing is null, a count of nothing 0. `first`, `last` and `collect` go by event
time, and among rows of the same time by value, so that no result depends on the order in which rows came.
"""

# ruff: noqa: A001 - `agg.sum` is what everybody would write

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from headrace.pipelines.operators import custom_partials, ordered_partials, partials
from headrace.pipelines.operators.partials import Aggregate

__all__ = [
    "Aggregate", "avg", "collect", "count", "count_distinct", "custom", "first", "last", "max", "min", "stddev", "sum",
]  # fmt: skip


def count(field: str | None = None) -> Aggregate:
    """How many rows; with a field, in how many it is not null."""
    return partials.Count(field)


def sum(field: str) -> Aggregate:
    """Whole numbers and decimals exactly, and refused where the sum does not fit; as wide as Spark's."""
    return partials.Total(field)


def avg(field: str) -> Aggregate:
    """A double; of decimals a decimal with four more digits."""
    return partials.Mean(field)


def min(field: str) -> Aggregate:
    """The least; text by its bytes."""
    return ordered_partials.Best(field, greatest=False)


def max(field: str) -> Aggregate:
    """The greatest; NaN is greater than every number."""
    return ordered_partials.Best(field, greatest=True)


def stddev(field: str) -> Aggregate:
    """The sample's standard deviation; null of fewer than two values."""
    return partials.Deviation(field)


def first(field: str) -> Aggregate:
    """The earliest value by event time."""
    return ordered_partials.Edge(field, latest=False)


def last(field: str) -> Aggregate:
    """The latest value by event time."""
    return ordered_partials.Edge(field, latest=True)


def count_distinct(field: str) -> Aggregate:
    """How many different values; all of them are kept as long as the window is."""
    return ordered_partials.Distinct(field)


def collect(field: str) -> Aggregate:
    """All values as an array, in the order of event time."""
    return ordered_partials.Collected(field)


def custom(
    field: str,
    *,
    state: pa.DataType,
    result: pa.DataType,
    lift: Callable[[pa.Array], pa.Array],
    merge: Callable[[pa.Array], Any],
    finish: Callable[[pa.Array], pa.Array],
) -> Aggregate:
    """One of your own, over Arrow: a sketch, a quantile.

    `lift` makes a state of each value (a column in, a column of type `state` out, null for what is left out), `merge`
    one state of several (called once a window or pane, in any grouping and order), `finish` results of states.
    """
    return custom_partials.Custom(field, state, result, lift, merge, finish)
