"""Aggregates as partial results: exact values, nulls, types, and that combining does not change anything."""

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headrace.pipelines.operators import aggregates as agg
from headrace.pipelines.operators.aggregation.fold import fold
from headrace.pipelines.operators.errors import BadAggregate, BadField
from headrace.pipelines.operators.grouping import group_rows

NAN = float("nan")
SMALL, LARGE = {"a": 0, "b": "q"}, {"a": 1, "b": "z"}
PAIR = pa.struct([("a", pa.int64()), ("b", pa.string())])
LONG = Decimal("-1000000000.001")
OF_VALUES = [agg.sum, agg.avg, agg.min, agg.max, agg.first, agg.last, agg.stddev]


def computed(kind: pa.DataType, values: list[Any], aggregate: Any, times: list[int] | None = None) -> Any:
    """By rows at once, and by parts that are kept and read again; both have to be equal."""
    rows = pa.RecordBatch.from_pylist([{"v": value} for value in values], schema=pa.schema([("v", kind)]))
    made = fold({"a": aggregate}, rows.schema)
    time = np.array(times or range(len(values)), np.int64)
    whole = made.load(made.lift(rows, time)).reduce(group_rows(np.zeros(len(values), np.int64)))
    parts = made.load(made.lift(rows, time)).reduce(group_rows(np.arange(len(values)) // 2))
    kept = pa.RecordBatch.from_arrays(parts.stored(), schema=pa.schema(made.state))
    again = made.load(kept.columns).over(np.array([0]), np.array([kept.num_rows]))
    (first,), (second,) = whole.results()[0].to_pylist(), again.results()[0].to_pylist()
    assert repr(first) == repr(second)
    assert whole.results()[0].type == made.results[0].type
    return first


@pytest.mark.parametrize(
    ("kind", "values", "least", "greatest"),
    [
        (pa.int64(), [3, None, -7, 2**63 - 1], -7, 2**63 - 1),
        (pa.int8(), [3, -7, None], -7, 3),
        (pa.float64(), [1.5, NAN, None, -2.0], -2.0, NAN),
        (pa.float32(), [1.5, -2.0, 8.0], -2.0, 8.0),
        (pa.string(), ["b", "a", None, "é", "a\x00"], "a", "é"),
        (pa.binary(), [b"b", b"", None], b"", b"b"),
        (pa.bool_(), [True, None, False], False, True),
        (pa.decimal128(20, 3), [Decimal("1.5"), LONG, None], LONG, Decimal("1.500")),
        (pa.list_(pa.int64()), [[2], [1, 9], None, [1], []], [], [2]),
        (pa.list_(pa.string()), [["b"], ["a", None], ["a", "z"]], ["a", None], ["b"]),
        (PAIR, [LARGE, {"a": 1, "b": None}, None, SMALL], SMALL, LARGE),
        (pa.date32(), [date(2026, 1, 1), date(1969, 1, 1)], date(1969, 1, 1), date(2026, 1, 1)),
        (
            pa.timestamp("us", "UTC"),
            [datetime(2026, 1, 1, tzinfo=UTC), None, datetime(1960, 1, 1, tzinfo=UTC)],
            datetime(1960, 1, 1, tzinfo=UTC),
            datetime(2026, 1, 1, tzinfo=UTC),
        ),
    ],
    ids=str,
)  # fmt: skip
def test_least_and_greatest_of_every_type(kind: pa.DataType, values: list[Any], least: Any, greatest: Any) -> None:
    assert computed(kind, values, agg.min("v")) == least
    found = computed(kind, values, agg.max("v"))
    assert found == greatest or (found != found and greatest != greatest)


@pytest.mark.parametrize("aggregate", [each("v") for each in OF_VALUES])
def test_of_nothing_comes_nothing(aggregate: Any) -> None:
    assert computed(pa.int64(), [None, None, None], aggregate) is None


def test_counts() -> None:
    values = [1, None, 1, 2]
    assert computed(pa.int64(), values, agg.count()) == 4
    assert computed(pa.int64(), values, agg.count("v")) == 3
    assert computed(pa.int64(), values, agg.count_distinct("v")) == 2
    assert computed(pa.string(), [None, None], agg.count_distinct("v")) == 0


def test_sums_are_exact() -> None:
    assert computed(pa.int64(), [2**62, -(2**62), 2**62, 5], agg.sum("v")) == 2**62 + 5
    assert computed(pa.int32(), [2**31 - 1] * 5, agg.sum("v")) == 5 * (2**31 - 1)
    digits = Decimal("99999999999999999999.99")
    assert computed(pa.decimal128(22, 2), [digits] * 3 + [-digits], agg.sum("v")) == digits * 2
    assert computed(pa.decimal128(5, 2), [Decimal("-1.01"), None, Decimal("-2.02")], agg.sum("v")) == Decimal("-3.03")


def test_a_sum_that_does_not_fit_is_refused() -> None:
    with pytest.raises(BadAggregate, match="more than a bigint holds: cast"):
        computed(pa.int64(), [2**63 - 1, 1], agg.sum("v"))
    with pytest.raises(BadAggregate, match="is more than decimal"):
        computed(pa.decimal128(38, 0), [Decimal("9" * 38)] * 3, agg.sum("v"))


def test_averages() -> None:
    assert computed(pa.int64(), [1, 2, None, 6], agg.avg("v")) == 3.0
    assert computed(pa.decimal128(5, 2), [Decimal("0.01")] * 2 + [Decimal("0.02")], agg.avg("v")) == Decimal("0.013333")
    assert computed(pa.decimal128(5, 2), [Decimal("-1.01"), Decimal("-1.00")], agg.avg("v")) == Decimal("-1.005000")


def test_averages_of_whole_numbers_beyond_the_digits_of_a_double() -> None:
    assert computed(pa.int64(), [2**63 - 1, 2**53 + 1, None], agg.avg("v")) == (2.0**63 + 2.0**53) / 2
    assert computed(pa.int64(), [2**53 + 1, 2**53 + 1], agg.stddev("v")) == 0.0


@pytest.mark.parametrize("count", [1, 130, 2000])
@pytest.mark.parametrize("value", ["-59355123254.39", "-3242747286760", "58655257.03", "-92233720368547.75", "-0.01",
                                   "7123456789012345678901234567890.12"])  # fmt: skip
def test_an_average_of_equal_decimals_is_the_decimal(value: str, count: int) -> None:
    """Of many below 0, whose pieces are large and cancel out."""
    assert computed(pa.decimal128(38, 2), [Decimal(value)] * count, agg.avg("v")) == Decimal(value)


def test_deviation_keeps_its_digits() -> None:
    assert computed(pa.float64(), [1e9 + 1, 1e9 + 2, 1e9 + 3, None], agg.stddev("v")) == pytest.approx(1.0, rel=1e-9)
    assert computed(pa.int64(), [5], agg.stddev("v")) is None


def test_first_and_last_go_by_time_and_then_by_value() -> None:
    assert computed(pa.string(), ["c", "b", None, "a"], agg.first("v"), [2, 1, 0, 1]) == "a"
    assert computed(pa.string(), ["c", "b", None, "a"], agg.last("v"), [2, 1, 9, 2]) == "c"
    assert computed(pa.int64(), [3, None, 1, 2], agg.collect("v"), [5, 4, 3, 3]) == [1, 2, 3]
    assert computed(pa.int64(), [None], agg.collect("v")) == []
    assert computed(PAIR, [{"a": 2, "b": "x"}, {"a": 1, "b": "y"}], agg.first("v"), [1, 1]) == {"a": 1, "b": "y"}
    assert computed(pa.list_(pa.int64()), [[2], None, [1, 1]], agg.collect("v"), [1, 0, 1]) == [[1, 1], [2]]
    assert computed(PAIR, [{"a": 2, "b": None}, {"a": 2, "b": None}, {"a": 1, "b": None}], agg.count_distinct("v")) == 2


def test_zero_is_zero() -> None:
    assert computed(pa.float64(), [0.0, -0.0, NAN, NAN], agg.count_distinct("v")) == 2


def test_one_of_your_own() -> None:
    product = agg.custom(
        "v",
        state=pa.float64(),
        result=pa.float64(),
        lift=lambda values: values.cast(pa.float64()),
        merge=lambda states: float(np.prod(states.to_numpy())),
        finish=lambda states: states,
    )
    assert computed(pa.int64(), [2, None, 3, 7], product) == 42.0
    assert computed(pa.int64(), [None], product) is None


ROWS = pa.schema([("amount", pa.int64()), ("name", pa.string()), ("tags", pa.map_(pa.string(), pa.string()))])


@pytest.mark.parametrize(
    ("aggregate", "error", "said"),
    [
        (agg.sum("amont"), BadField, "did you mean 'amount'"),
        (agg.sum("name"), BadAggregate, "only numbers can be summed"),
        (agg.stddev("name"), BadAggregate, "only numbers"),
        (agg.max("tags"), BadAggregate, "has no order"),
        (agg.count_distinct("tags"), BadAggregate, "cannot be compared"),
        ("count", BadAggregate, r"agg.count\(\)"),
    ],
)
def test_mistakes_are_told(aggregate: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        fold({"a": aggregate}, ROWS)
