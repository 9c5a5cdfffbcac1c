"""Values of the log as those of columns, and back to something that compares."""

# ruff: noqa: DTZ001 - timestamps without a zone are what is tested

import math
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pytest

from headrace.stores.values import Family, Micros, Misfit, canonicalize, family_of_value, reader_of


@pytest.mark.parametrize(
    ("family", "value", "expected"),
    [
        (Family.INTEGER, 5, 5),
        (Family.INTEGER, "5", 5),
        (Family.BOOLEAN, True, True),
        (Family.BOOLEAN, 0, False),
        (Family.FLOAT, 1, 1.0),
        (Family.FLOAT, "Infinity", math.inf),
        (Family.DECIMAL, "12.340", Decimal("12.340")),
        (Family.DECIMAL, 0.1, Decimal("0.1")),
        (Family.TEXT, {"a": 1}, '{"a":1}'),
        (Family.TEXT, 5, "5"),
        (Family.JSON, '{"a": 1}', '{"a": 1}'),
        (Family.JSON, "no json", '"no json"'),
        (Family.JSON, [1], "[1]"),
        (Family.BINARY, "AAE=", b"\x00\x01"),
        (Family.DATE, 19_000, date(2022, 1, 8)),
        (Family.DATE, "2022-01-08", date(2022, 1, 8)),
        (Family.TIME, 3_600_000_001, time(1, 0, 0, 1)),
        (Family.TIMESTAMP, Micros(1_500_000), datetime(1970, 1, 1, 0, 0, 1, 500_000)),
        (Family.TIMESTAMP, "2024-05-01T10:00:00Z", datetime(2024, 5, 1, 10)),
        (Family.INSTANT, "2024-05-01T12:00:00+02:00", datetime(2024, 5, 1, 10, tzinfo=UTC)),
        (Family.TIMESTAMP, "infinity", "infinity"),
    ],
)
def test_a_value_of_the_log_for_a_column(family: Family, value: Any, expected: Any) -> None:
    assert reader_of(family)(value) == expected


@pytest.mark.parametrize(
    ("family", "value"),
    [
        (Family.INTEGER, "five"),
        (Family.INTEGER, 1.5),
        (Family.INTEGER, {"a": 1}),
        (Family.BOOLEAN, "perhaps"),
        (Family.DECIMAL, "1,5"),
        (Family.BINARY, "*"),
        (Family.DATE, 10**12),
        (Family.FLOAT, [1]),
    ],
)
def test_a_value_that_does_not_fit(family: Family, value: Any) -> None:
    with pytest.raises(Misfit):
        reader_of(family)(value)


@pytest.mark.parametrize(
    ("family", "log", "store"),
    [
        (Family.DECIMAL, "12.50", Decimal("12.5")),
        (Family.DECIMAL, "1E+3", Decimal("1000.000")),
        (Family.BOOLEAN, True, 1),
        (Family.BINARY, "AAE=", b"\x00\x01"),
        (Family.DATE, 0, date(1970, 1, 1)),
        (Family.TIME, "01:00:00", timedelta(hours=1)),
        (Family.TIMESTAMP, 0, datetime(1970, 1, 1)),
        (Family.INSTANT, "1970-01-01T02:00:00+02:00", datetime(1970, 1, 1, tzinfo=UTC)),
        (Family.JSON, '{"b": 1, "a": 2}', '{"a":2,"b":1}'),
        (Family.FLOAT, "NaN", math.nan),
        (Family.ARRAY, [1, None, "x"], [1, None, "x"]),
        (Family.INTEGER, None, None),
    ],
)
def test_both_sides_compare_as_equal(family: Family, log: Any, store: Any) -> None:
    assert canonicalize(log, family) == canonicalize(store, family)


def test_decimals_are_compared_to_their_last_digit() -> None:
    digits = "123456789012345678901234567890123456.78"
    assert canonicalize(digits, Family.DECIMAL) == digits
    assert canonicalize(digits, Family.DECIMAL) != canonicalize(digits[:-1] + "9", Family.DECIMAL)
    assert canonicalize("1E+999999999", Family.DECIMAL) == "1E+999999999"


def test_new_columns_take_the_family_of_their_first_value() -> None:
    found = [family_of_value(value) for value in (None, True, 1, 2**70, 0.5, "x", [1], {"a": 1})]
    assert found == [
        None, Family.BOOLEAN, Family.INTEGER, Family.DECIMAL, Family.FLOAT, Family.TEXT, Family.JSON, Family.JSON,
    ]  # fmt: skip
