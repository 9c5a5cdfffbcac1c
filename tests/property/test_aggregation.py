"""Each aggregate in windows, in groups that lose rows too, and by Python's exact numbers: the same result.

Among the values: nulls, NaN, infinities, decimals and whole numbers whose sums pass beyond their type for a while.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from decimal import ROUND_HALF_UP, Context, Decimal, localcontext
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.pipelines.operators import aggregates as agg
from headrace.pipelines.operators import top_n
from headrace.pipelines.operators.aggregation.fold import fold
from headrace.pipelines.operators.aggregation.ordering import RANKINGS
from headrace.pipelines.operators.errors import BadAggregate
from headrace.pipelines.operators.grouping import group_rows
from tests.property import grouped_model
from tests.property.storage_model import examples

AGGREGATES = {
    "rows": agg.count(),
    "values": agg.count("x"),
    "sum_i": agg.sum("i"),
    "sum_x": agg.sum("x"),
    "sum_d": agg.sum("d"),
    "sum_f": agg.sum("f"),
    "avg_i": agg.avg("i"),
    "avg_d": agg.avg("d"),
    "avg_f": agg.avg("f"),
    "least_x": agg.min("x"),
    "most_x": agg.max("x"),
    "least_f": agg.min("f"),
    "most_f": agg.max("f"),
    "least_s": agg.min("s"),
    "most_d": agg.max("d"),
    "different_s": agg.count_distinct("s"),
    "different_f": agg.count_distinct("f"),
}
doubles = st.floats(width=64) | st.sampled_from([math.nan, math.inf, -math.inf, -0.0, 5e-324, 1e308])
rows = st.fixed_dictionaries(
    {
        "g": st.just("a"),
        "h": st.just(1),
        "i": st.none() | st.integers(-(2**31), 2**31 - 1),
        "x": st.none() | st.integers(-(2**63), 2**63 - 1),
        "d": st.none() | st.integers(-(10**10) + 1, 10**10 - 1).map(lambda n: Decimal(n).scaleb(-2)),
        "f": st.none() | doubles,
        "s": st.none() | st.text(max_size=2),
    }
)
Row = dict[str, Any]


def exact_double(values: Sequence[float]) -> float:
    """The double nearest to the sum."""
    finite = [value for value in values if math.isfinite(value)]
    others = sum(value for value in values if not math.isfinite(value)) if len(finite) < len(values) else 0.0
    if len(finite) < len(values):
        return others
    total = sum(map(Fraction, finite), Fraction(0))
    try:
        return float(total)
    except OverflowError:
        return math.inf if total > 0 else -math.inf


def expected(table: Sequence[Row]) -> Row:
    """By Python's own numbers."""
    of = {name: [row[name] for row in table if row[name] is not None] for name in "ixdfs"}
    nan_last = [(math.isnan(value), value) for value in of["f"]]
    with localcontext(Context(prec=80)):
        mean = sum(of["d"]) / len(of["d"]) if of["d"] else None
        mean = None if mean is None else mean.quantize(Decimal("0.000001"), ROUND_HALF_UP)
        total = sum(of["d"], Decimal(0)) if of["d"] else None
    sum_f = exact_double(of["f"]) if of["f"] else None
    return {
        "rows": len(table),
        "values": len(of["x"]),
        "sum_i": sum(of["i"]) if of["i"] else None,
        "sum_x": sum(of["x"]) if of["x"] else None,
        "sum_d": total,
        "sum_f": sum_f,
        "avg_i": sum(of["i"]) / len(of["i"]) if of["i"] else None,
        "avg_d": mean,
        "avg_f": None if sum_f is None else sum_f / len(of["f"]),
        "least_x": min(of["x"], default=None),
        "most_x": max(of["x"], default=None),
        "least_f": min(nan_last)[1] if nan_last else None,
        "most_f": max(nan_last)[1] if nan_last else None,
        "least_s": min(of["s"], key=str.encode, default=None),
        "most_d": max(of["d"], default=None),
        "different_s": len(set(of["s"])),
        "different_f": len({repr(value + 0.0) for value in of["f"]}),
    }


def windowed(table: Sequence[Row], aggregates: Any) -> Row:
    """As a window, of partial results of two rows each that are kept and read again."""
    batch = pa.RecordBatch.from_pylist(list(table), schema=pa.schema(grouped_model.COLUMNS))
    made = fold(aggregates, batch.schema)
    parts = made.load(made.lift(batch, np.arange(len(table)))).reduce(group_rows(np.arange(len(table)) // 2))
    whole = made.load(parts.stored()).over(np.array([0]), np.array([-(-len(table) // 2)]))
    return {name: column[0].as_py() for name, column in zip(aggregates, whole.results(), strict=True)}


def grouped_rows(table: Sequence[Row], others: Sequence[Row], aggregates: Any, **run: Any) -> Row:
    """As a group to which other rows came and went, in several micro-batches."""
    groups = grouped_model.Groups(["g"], aggregates, **run)
    stays = dict(enumerate(table))
    passing = dict(enumerate(others, len(table)))
    emitted: Counter[str] = Counter()
    values: dict[str, Row] = {}
    there: grouped_model.Table = {}
    writes = [*passing.items(), *stays.items()]
    half = len(writes) // 2
    for second, some in enumerate((writes[:half], writes[half:], [(key, None) for key in passing])):
        if not some:
            continue
        for row in groups.batch(grouped_model.changes(there, some, second)):
            shown = {name: row[name] for name in aggregates}
            emitted[repr(shown)] += row["_weight"]
            values[repr(shown)] = shown
    (last,) = [text for text, count in emitted.items() if count]
    assert emitted[last] == 1
    return values[last]


def alike(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return one == other or (math.isnan(one) and math.isnan(other))
    return bool(one == other)


def fits(given_rows: Sequence[Row]) -> bool:
    """Whether no sum on the way is beyond a bigint: a group shows its sum after each micro-batch."""
    sizes = sum(abs(row["x"]) for row in given_rows if row["x"] is not None)
    return sizes < 2**63


@examples(25)
@given(st.lists(rows, min_size=1, max_size=8), st.lists(rows, max_size=5), st.integers(1, 3))
def test_windows_and_groups_equal_exact_numbers(table: list[Row], others: list[Row], buckets: int) -> None:
    aggregates = AGGREGATES if fits([*table, *others]) else {n: a for n, a in AGGREGATES.items() if n != "sum_x"}
    want = {name: value for name, value in expected(table).items() if name in aggregates}
    groups = grouped_rows(table, others, aggregates, buckets=buckets)
    assert {name: groups[name] for name in want if not alike(groups[name], want[name])} == {}, want
    with np.errstate(over="ignore", invalid="ignore"):  # its doubles are added as doubles
        windows = windowed(table, aggregates)
    # Equal but for what rounding does.
    rounded = ("sum_f", "avg_f", "avg_i")
    assert {n: windows[n] for n in want if n not in rounded and not alike(windows[n], want[n])} == {}, want
    assert windows["avg_i"] is None or windows["avg_i"] == pytest.approx(want["avg_i"], rel=1e-9, abs=1e-3)


@examples(15)
@given(st.lists(rows, min_size=1, max_size=8), st.lists(rows, max_size=5), st.sampled_from([None, *RANKINGS]))
def test_first_rows_of_windows_and_groups_are_equal(table: list[Row], others: list[Row], ties: str | None) -> None:
    top = top_n(3, ["-i", "s"], "s", "x", "d", ties=ties)
    of_group = grouped_rows(table, others, {"top": top, "all": agg.collect("x")})
    # A window computes it of a column of rows.
    columns = pa.schema([field for field in pa.schema(grouped_model.COLUMNS) if field.name in top.names])
    kind = pa.struct([columns.field(name) for name in top.names])
    cells = pa.array([{name: row[name] for name in top.names} for row in table], kind)
    batch = pa.RecordBatch.from_arrays([cells], names=["rows"])
    made = fold({"top": replace(top, field="rows")}, batch.schema)
    whole = made.load(made.lift(batch, np.arange(len(table)))).over(np.array([0]), np.array([len(table)]))
    assert whole.results()[0][0].as_py() == of_group["top"]
    # The same values; a window has them in the order of time, a group in their own.
    assert sorted(windowed(table, {"all": agg.collect("x")})["all"]) == of_group["all"]


@pytest.mark.parametrize(("name", "values"), [("x", [2**63 - 1, 1]), ("x", [-(2**63), -1])])
def test_a_sum_that_does_not_fit_is_refused_and_one_that_comes_back_is_exact(name: str, values: list[int]) -> None:
    def row(value: int | None) -> Row:
        return {"g": "a", "h": 1, "i": None, "x": value, "d": None, "f": None, "s": None}

    sums = {"sum": agg.sum(name)}
    with pytest.raises(BadAggregate, match="more than a bigint holds"):
        windowed([row(value) for value in values], sums)
    back = [row(value) for value in (*values, -values[1])]
    assert windowed(back, sums) == {"sum": values[0]}
    groups = grouped_model.Groups(["g"], sums)
    there: grouped_model.Table = {}
    writes = list(enumerate(back))
    (emitted,) = groups.batch(grouped_model.changes(there, writes, 0))
    assert emitted["sum"] == values[0]
    with pytest.raises(BadAggregate, match="more than a bigint holds"):
        groups.batch(grouped_model.changes(there, [(2, None)], 1))
