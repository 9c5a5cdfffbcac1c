"""Conditions of one row, and rows that are hard on them: for whatever has to evaluate them alike."""

import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pyarrow as pa

SCHEMA = pa.schema(
    [
        ("i", pa.int64()),
        ("j", pa.int32()),
        ("x", pa.float64()),
        ("y", pa.float64()),
        ("s", pa.string()),
        ("n", pa.string()),
        ("b", pa.bool_()),
        ("t", pa.timestamp("us", "UTC")),
        ("d", pa.decimal128(10, 2)),
    ]
)
_NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
ROWS = [
    (0, 0, 0.0, -0.0, "", "0", True, _NOON, Decimal("0.00")),
    (1, -1, 1.5, 2.5, "a", "1.5", False, _NOON + timedelta(microseconds=1), Decimal("1.50")),
    (2**63 - 1, 2**31 - 1, math.inf, 1.0, "Z", "x", True, _NOON - timedelta(days=9), Decimal("99999999.99")),
    (-(2**63), -(2**31), -math.inf, 1e308, "ab%", "-7", False, datetime(1969, 7, 20, tzinfo=UTC), Decimal("-0.01")),
    (-7, 3, math.nan, math.nan, "äß", "NaN", None, _NOON, Decimal("1.00")),
    (7, -3, -0.5, 0.25, "a_b\\", "true", True, None, None),
    (None, None, None, None, None, None, None, _NOON, Decimal("-12.34")),
    (3_037_000_500, 2, 1e-300, 3.0, "B", " 4 ", False, _NOON, Decimal("12.34")),
    (2**53 + 1, 5, 9007199254740993.0, -2.0, "a", "2030-01-01 12:00:00", True, _NOON, Decimal("5.00")),
]
CONDITIONS = [
    "i + 1 > 0",
    "i - j",
    "i * i",
    "i * -1",
    "i * 2",
    "i - 1 - 1",
    "(i div 3) * 3",
    "(i div 3) * -4",
    "(i div 4) * 4",
    "(i div 4) * -4",
    "-i",
    "abs(i)",
    "i / j",
    "i div j",
    "i % j",
    "i % 0",
    "j + j",
    "j * 2147483647",
    "i + x",
    "x + y",
    "x / y",
    "x % y",
    "x * 1e10",
    "i > x",
    "i = x",
    "x = y",
    "x <> x",
    "x > 1e300",
    "x <=> y",
    "i <=> j",
    "s > 'a'",
    "s < 'b' AND s <> ''",
    "s = n",
    "n > 1",
    "n = b",
    "n = t",
    "b = true OR i > 0",
    "NOT b AND x IS NULL",
    "b",
    "i IS NULL OR x > 0 AND s IS NOT NULL",
    "i IN (0, 1, 7)",
    "s IN ('a', 'B', NULL)",
    "x IN (0, 1.5)",
    "i BETWEEN -7 AND 7",
    "CASE WHEN i > 0 THEN i WHEN i < 0 THEN -1 ELSE 0 END",
    "CASE WHEN b THEN x ELSE y END",
    "CASE s WHEN 'a' THEN 1 ELSE 2 END",
    "IF(x > 0, 1, 0.5)",
    "coalesce(x, y, 0.0)",
    "coalesce(i, j)",
    "nullif(i, 7)",
    "greatest(x, y)",
    "least(i, j)",
    "greatest(s, n)",
    "sqrt(x)",
    "exp(x)",
    "ln(x)",
    "log10(y)",
    "floor(x)",
    "ceil(x)",
    "round(y, 1)",
    "round(x * 10)",
    "round(i, -1)",
    "round(j, -2)",
    "round(i, -19)",
    "round(i, 1)",
    "ceil(d)",
    "floor(d)",
    "power(y, 2)",
    "pow(x, y)",
    "sign(x)",
    "radians(x) + degrees(y)",
    "CAST(x AS BIGINT)",
    "CAST(n AS DOUBLE)",
    "CAST(n AS BIGINT)",
    "CAST(i AS STRING)",
    "CAST(i AS DOUBLE) * 0.5",
    "CAST(b AS BIGINT)",
    "CAST(i AS BOOLEAN)",
    "CAST(d AS BIGINT)",
    "t > '2030-01-01 12:00:00'",
    "t - INTERVAL 1 HOUR < TIMESTAMP '2030-01-01 11:30:00'",
    "t + INTERVAL 9 DAYS = TIMESTAMP '2030-01-01 12:00:00'",
    "t - TIMESTAMP '2030-01-01 12:00:00' >= INTERVAL 0 SECONDS",
    "lower(s) = s",
    "upper(s)",
    "length(s)",
    "substring(s, 2)",
    "substring(s, -2, 1)",
    "substring(s, -5, 4)",
    "trim(n)",
    "s || n",
    "concat(s, '-', n)",
    "s LIKE 'a%'",
    "s LIKE 'a\\\\_%'",
    "s LIKE '%\\\\%'",
    "s RLIKE '^[a-c]'",
    "d + d > 1",
    "d * 2",
    "d > 1.4",
    "d = 1.5",
    "d - 0.5",
    "d < i",
    "`i` > 0 AND `s` = 'it''s'",
]


def batch() -> pa.RecordBatch:
    columns = [pa.array(column, field.type) for column, field in zip(zip(*ROWS, strict=True), SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def alike(found: object, expected: object, digits: int | None = None) -> bool:
    """Whether two values are the same: NaN is NaN, 1 is not True; with `digits` fractions may differ behind them."""
    if isinstance(found, float) and isinstance(expected, float):
        if found != found or expected != expected:
            return found != found and expected != expected
        return found == expected or (digits is not None and math.isclose(found, expected, rel_tol=10.0**-digits))
    if isinstance(found, Decimal | int | float) and isinstance(expected, Decimal | int | float):
        return isinstance(found, bool) == isinstance(expected, bool) and found == expected
    if isinstance(found, date) and isinstance(expected, date):
        return found == expected
    return type(found) is type(expected) and found == expected
