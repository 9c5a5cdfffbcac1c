"""Time as columns hold it, microseconds since 1970, and as people write it: `10 minutes`, `1 hour 30 seconds`."""

import re
from datetime import timedelta
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.pipelines.operators.errors import BadTime
from headrace.pipelines.operators.grouping import Longs


def times_of(column: pa.Array) -> tuple[Longs, NDArray[Any]]:
    """Microseconds since 1970, and where there are any."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    valid = np.asarray(column.is_valid())
    kind = column.type
    if pa.types.is_timestamp(kind) and kind.unit != "us":
        column = column.cast(pa.timestamp("us", kind.tz))
    plain = column.view(pa.int64()) if pa.types.is_timestamp(kind) else column.cast(pa.int64())
    return np.asarray(plain.fill_null(0)), valid


def some_rows(rows: pa.RecordBatch, chosen: Longs) -> pa.RecordBatch:
    """Some rows, in their order; all of them are not copied."""
    return rows if len(chosen) == rows.num_rows else rows.take(pa.array(chosen))


def without_nulls(rows: pa.RecordBatch) -> NDArray[np.bool_]:
    """Which rows have a value in every column."""
    found = np.ones(rows.num_rows, np.bool_)
    for column in rows.columns:
        found &= np.asarray(column.is_valid())
    return found


_UNITS: Final = {
    "microsecond": 1,
    "us": 1,
    "millisecond": 1_000,
    "ms": 1_000,
    "second": 1_000_000,
    "s": 1_000_000,
    "minute": 60_000_000,
    "min": 60_000_000,
    "m": 60_000_000,
    "hour": 3_600_000_000,
    "h": 3_600_000_000,
    "day": 86_400_000_000,
    "d": 86_400_000_000,
    "week": 604_800_000_000,
    "w": 604_800_000_000,
}
_PART: Final = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*,?", re.IGNORECASE)
Interval = str | timedelta

TIMESTAMP: Final = pa.timestamp("us", "UTC")
EARLIEST: Final = -(2**61)
"""Before every time, with room for arithmetic."""
LATEST: Final = 2**61
"""Behind every time."""


def microseconds(given: Interval, what: str) -> int:
    """An interval's length; `what` says in an error whose it is."""
    if isinstance(given, timedelta):
        return round(given / timedelta(microseconds=1))
    at, total = 0, 0.0
    text = str(given)
    while at < len(text):
        part = _PART.match(text, at)
        unit = part and (part[2].lower() if part[2].lower() in _UNITS else part[2].lower().removesuffix("s"))
        if not part or unit not in _UNITS:
            if re.search(r"month|year", text, re.IGNORECASE):
                raise BadTime(f"{what} is {text!r}, and months and years differ in length: write days, as in '30 days'")
            raise BadTime(
                f"{what} is {text!r}, which is not a length of time: write for example '10 minutes' or '1 hour'"
            )
        total += float(part[1]) * _UNITS[unit]
        at = part.end()
    if not text.strip():
        raise BadTime(f"{what} is empty: write a length of time, for example '10 minutes'")
    return round(total)


def positive(given: Interval, what: str) -> int:
    """An interval that is longer than nothing."""
    found = microseconds(given, what)
    if found <= 0:
        raise BadTime(f"{what} is {given!r}, and has to be longer than nothing: write for example '1 minute'")
    return found


def in_words(length_us: int) -> str:
    """An interval as people write it, in the largest unit that it is a multiple of."""
    for unit in ("week", "day", "hour", "minute", "second", "millisecond", "microsecond"):
        count, rest = divmod(length_us, _UNITS[unit])
        if not rest and count:
            return f"{count} {unit}{'s' * (abs(count) != 1)}"
    return "0 seconds"


def spell(length_us: int) -> str:
    """An interval as Spark reads it."""
    return f"{length_us} microseconds"


def timestamps(values: Longs, nulls: NDArray[np.bool_] | None = None) -> pa.Array:
    """Microseconds as a timestamp column, null where that is said."""
    return pa.array(values, pa.int64(), mask=nulls).view(pa.timestamp("us")).cast(TIMESTAMP)
