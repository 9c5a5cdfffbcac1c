"""What can be computed of the rows of a window or of a group.

    from headrace.pipelines.operators import aggregates as agg

    tumbling("1 minute", by="shop", total=agg.sum("amount"), paid=agg.count(where="status = 'paid'"))

Nulls are left out, as in SQL: a sum of nothing is null, a count of nothing 0. `first`, `last` and `collect` go by event
time, and among rows of the same time by value, so that no result depends on the order in which rows came. Numbers,
texts, times, and rows (structs) and arrays of them have an order, column by column and value by value; maps have none.

`where` computes an aggregate of the rows alone that a condition holds for, as SQL's FILTER does: SQL text, or a column
of Spark's. With `group_changes` there are `count`, `sum`, `avg`, `min`, `max`, `min_by`, `max_by`, `count_distinct`,
`collect` and `top_n`, because the others cannot take back a row that is gone.
"""

# Declared once, and rendered for Spark and for keyed state alike.

# ruff: noqa: A001 - `agg.sum` is what everybody would write; methods are described in `Aggregate`

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.pipelines.operators.aggregation import distinct, ordered, sums
from headrace.pipelines.operators.aggregation import slope as slopes
from headrace.pipelines.operators.aggregation.algebra import PREPARED, Aggregate, Arrays, Loaded, Where, valid_in
from headrace.pipelines.operators.aggregation.cells import Cell
from headrace.pipelines.operators.aggregation.sketches import distinct as registers
from headrace.pipelines.operators.aggregation.sketches import frequent, percentiles
from headrace.pipelines.operators.errors import BadAggregate
from headrace.pipelines.operators.grouping import Groups, Longs
from headrace.pipelines.operators.times import Interval, positive

__all__ = [
    "Aggregate", "approx_count_distinct", "approx_percentile", "avg", "collect", "count", "count_distinct", "custom",
    "distinct_sketch", "first", "frequent_items", "frequent_sketch", "last", "max", "max_by", "min", "min_by",
    "percentile_sketch", "slope", "stddev", "sum",
]  # fmt: skip


def count(field: str | None = None, *, where: Where = None) -> Aggregate:
    """How many rows; with a field, in how many it is not null."""
    return sums.Count(field, where=where)


def sum(field: str, *, where: Where = None) -> Aggregate:
    """Whole numbers and decimals exactly, and refused where the sum does not fit; as wide as Spark's."""
    return sums.Total(field, where=where)


def avg(field: str, *, where: Where = None) -> Aggregate:
    """A double; of decimals a decimal with four more digits."""
    return sums.Mean(field, where=where)


def min(field: str, *, where: Where = None) -> Aggregate:
    """The least; text by its bytes."""
    return ordered.Best(field, greatest=False, where=where)


def max(field: str, *, where: Where = None) -> Aggregate:
    """The greatest; NaN is greater than every number."""
    return ordered.Best(field, greatest=True, where=where)


def min_by(field: str, by: str, *, where: Where = None) -> Aggregate:
    """The field of the row with the least `by`; of several the least that is not null. A null `by` is left out."""
    return ordered.BestBy(field, False, by, where=where)


def max_by(field: str, by: str, *, where: Where = None) -> Aggregate:
    """The field of the row with the greatest `by`; of several the greatest. A null `by` is left out."""
    return ordered.BestBy(field, True, by, where=where)


def stddev(field: str, *, where: Where = None) -> Aggregate:
    """The sample's standard deviation; null of fewer than two values."""
    return sums.Deviation(field, where=where)


def first(field: str, *, where: Where = None) -> Aggregate:
    """The earliest value by event time."""
    return ordered.Edge(field, latest=False, where=where)


def last(field: str, *, where: Where = None) -> Aggregate:
    """The latest value by event time."""
    return ordered.Edge(field, latest=True, where=where)


def count_distinct(field: str, *, where: Where = None) -> Aggregate:
    """How many different values; all of them are kept as long as the window is."""
    return distinct.Distinct(field, where=where)


def collect(field: str, *, where: Where = None) -> Aggregate:
    """All values as an array, in the order of event time."""
    return ordered.Collected(field, where=where)


def slope(field: str, *, per: Interval = "1 second", where: Where = None) -> Aggregate:
    """By how much the value grows in so much time, by least squares over event time; null of rows of one time."""
    return slopes.Slope(field, positive(per, "per in slope"), where=where)


def approx_count_distinct(
    field: str | None = None, *, sketches: str | None = None, error: float = 0.02, where: Where = None
) -> Aggregate:
    """About how many different values, in a state that does not grow with them.

    `error` is the standard error: two of three results are closer than that, 19 of 20 closer than twice that. 0.02
    keeps up to 4,096 registers for each key and window, half of it four times as many; from 0.001 to 0.26. With
    `sketches` it is computed of a column of `distinct_sketch`. The values are hashed by Spark; maps cannot be.
    """
    _check_sketch("approx_count_distinct", field, sketches, error, 0.001, 0.26)
    return registers.Registers(field or sketches, error, sketches is not None, where=where)


def distinct_sketch(
    field: str | None = None, *, sketches: str | None = None, error: float = 0.02, where: Where = None
) -> Aggregate:
    """What `approx_count_distinct` counts by, as bytes that can be put together later: minutes into hours.

    `sketches` is a column of such bytes, made with the same `error` or a smaller one. They have the form of Apache
    DataSketches' HLL_8, and Spark's `hll_sketch_estimate` and `hll_union_agg` read them; only those that were made here
    can be put together with each other, because the values are hashed in another way there.
    """
    _check_sketch("distinct_sketch", field, sketches, error, 0.001, 0.26)
    return registers.Registers(field or sketches, error, sketches is not None, True, where=where)


def approx_percentile(
    field: str | None = None,
    at: float | Sequence[float] = 0.5,
    *,
    sketches: str | None = None,
    error: float = 0.01,
    where: Where = None,
) -> Aggregate:
    """About the value that a share `at` of all values is at or below; several shares give an array.

    The result is no further from the exact value (of SQL's `percentile_disc`) than `error` times that value, always:
    with 0.01 a 99th percentile of 250 ms is between 247.5 and 252.5. The state has a bucket for each percent of
    magnitude that occurs, whatever the number of rows; from 0.001 to 0.5. With `sketches` it is computed of a column of
    `percentile_sketch`. NaN is greater than every number.
    """
    _check_sketch("approx_percentile", field, sketches, error, 0.001, 0.5)
    shares = tuple(at) if isinstance(at, Sequence) else (at,)
    if not shares or not all(isinstance(each, int | float) and 0 <= each <= 1 for each in shares):
        raise BadAggregate(f"approx_percentile: at={at!r} is no share: write for example 0.99, or [0.5, 0.99]")
    several = isinstance(at, Sequence)
    return percentiles.Buckets(field or sketches, error, shares, several, sketches is not None, where=where)


def percentile_sketch(
    field: str | None = None, *, sketches: str | None = None, error: float = 0.01, where: Where = None
) -> Aggregate:
    """What `approx_percentile` reads, as bytes that can be put together later.

    `sketches` is a column of such bytes, made with the same `error`.
    """
    _check_sketch("percentile_sketch", field, sketches, error, 0.001, 0.5)
    return percentiles.Buckets(field or sketches, error, (), False, sketches is not None, True, where=where)


def frequent_items(
    field: str | None = None,
    share: float = 0.01,
    *,
    sketches: str | None = None,
    error: float | None = None,
    where: Where = None,
) -> Aggregate:
    """The values that more than `share` of the rows have, the most frequent first, as an array of rows.

    Each has a `value`, its `count`, which is not too high, and `at_most`, which is not too low: the two are no further
    apart than `error` (by default a tenth of the share) times the number of rows. Every value with more than the share
    is there, and none with less than `share - error`. State: `1 / error` values for each key and window. As long as
    there are no more different ones, the counts are exact; beyond that, which values near the edge are there may depend
    on how rows were cut into batches. With `sketches` it is computed of a column of `frequent_sketch`.
    """
    if not isinstance(share, int | float) or not 0 < share < 1:
        raise BadAggregate(f"frequent_items: share={share!r} is no share of the rows: write for example 0.01")
    chosen = share / 10 if error is None else error
    _check_sketch("frequent_items", field, sketches, chosen, 0.00001, 0.5)
    if chosen > share:
        raise BadAggregate(f"frequent_items: error={error!r} is greater than share={share!r}: write a tenth of it")
    return frequent.Frequent(field or sketches, chosen, share, sketches is not None, where=where)


def frequent_sketch(
    field: str | None = None, *, sketches: str | None = None, error: float = 0.001, where: Where = None
) -> Aggregate:
    """What `frequent_items` reads, as a row (`n`, `missed`, `values`, `counts`) that can be put together later.

    `sketches` is a column of such rows. Of all that is put together the greatest `error` holds for the whole.
    """
    _check_sketch("frequent_sketch", field, sketches, error, 0.00001, 0.5)
    return frequent.Frequent(field or sketches, error, 0.0, sketches is not None, True, where=where)


def _check_sketch(what: str, field: str | None, sketches: str | None, error: float, least: float, most: float) -> None:
    if (field is None) == (sketches is None):
        raise BadAggregate(f"{what} is computed of a field or of sketches: name one of the two")
    if isinstance(error, bool) or not isinstance(error, int | float) or not least <= error <= most:
        raise BadAggregate(f"{what}: error={error!r}: write a number from {least:g} to {most:g}")


def custom(
    field: str,
    *,
    state: pa.DataType,
    result: pa.DataType,
    lift: Callable[[pa.Array], pa.Array],
    merge: Callable[[pa.Array], Any],
    finish: Callable[[pa.Array], pa.Array],
    where: Where = None,
) -> Aggregate:
    """One of your own, over Arrow, for windows: a sketch, a quantile, a mean of another kind.

    - `lift` makes a state of each value: a column in, a column of type `state` out, null for what is left out.
    - `merge` makes one state of several: a column of states in, none of them null, one state out (a scalar of Arrow's
      or a Python value). It is called once for each key and pane, in any grouping and order, also on what it gave
      before: `merge([a, merge([b, c])])` has to be `merge([a, b, c])`.
    - `finish` makes results of states: a column of type `state` in, a column of type `result` out. A window of which
      nothing was lifted has a null state.

    They run on Spark's workers and may use what your file defines and imports. A state is written down between
    micro-batches, so it should stay small: a list of all values grows with the window. Under a checkpoint its type
    cannot change. docs/how-to/windows.md has an example.
    """
    return Custom(field, state, result, lift, merge, finish, where=where)


@dataclass(frozen=True)
class Made(Cell):
    """States that a user's own function merges."""

    states: pa.Array
    join: Callable[[pa.Array], Any]

    def take(self, rows: Longs) -> "Made":
        return Made(self.states.take(pa.array(rows)), self.join)

    def reduce(self, groups: Groups) -> "Made":
        states = self.states.take(pa.array(groups.order))
        return self._joined(
            [states.slice(low, high - low) for low, high in zip(groups.starts, groups.ends, strict=True)]
        )

    def over(self, lows: Longs, highs: Longs) -> "Made":
        return self._joined([self.states.slice(low, high - low) for low, high in zip(lows, highs, strict=True)])

    def _joined(self, parts: list[pa.Array]) -> "Made":
        found = [self.join(some) if len(some := part.drop_null()) else None for part in parts]
        plain = [each.as_py() if isinstance(each, pa.Scalar) else each for each in found]
        return Made(pa.array(plain, self.states.type), self.join)


@dataclass(frozen=True)
class Custom(Aggregate):
    """An aggregate of the user's own."""

    is_native = False

    kept: pa.DataType
    given: pa.DataType
    make: Callable[[pa.Array], pa.Array]
    join: Callable[[pa.Array], Any]
    end: Callable[[pa.Array], pa.Array]

    def state(self, kind: pa.DataType) -> list[tuple[str, pa.DataType]]:
        return [("state", self.kept)]

    def result(self, kind: pa.DataType) -> pa.DataType:
        return self.given

    def lift(self, values: pa.Array, time: Longs) -> Arrays:
        states = self.make(values).cast(self.kept)
        if (self.field or "").startswith(PREPARED):  # what a condition leaves out is null, whatever is made of a null
            states = states.take(pa.array(np.arange(len(states)), mask=~valid_in(values)))
        return [states]

    def load(self, columns: Sequence[pa.Array]) -> Loaded:
        return Loaded((Made(columns[0], self.join),))

    def store(self, loaded: Loaded, kind: pa.DataType) -> Arrays:
        return [loaded.cells[0].states]  # type: ignore[attr-defined]

    def finish(self, loaded: Loaded, kind: pa.DataType) -> pa.Array:
        return self.end(loaded.cells[0].states).cast(self.given)  # type: ignore[attr-defined]
