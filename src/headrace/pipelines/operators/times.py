"""Time as columns hold it, microseconds since 1970, and as people write it: `10 minutes`, `1 hour 30 seconds`."""

from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace import durations
from headrace.durations import Interval, in_words
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


__all__ = [
    "EARLIEST",
    "LATEST",
    "TIMESTAMP",
    "Interval",
    "in_words",
    "microseconds",
    "positive",
    "some_rows",
    "spell",
    "times_of",
    "timestamps",
    "without_nulls",
]

TIMESTAMP: Final = pa.timestamp("us", "UTC")
EARLIEST: Final = -(2**61)
"""Before every time, with room for arithmetic."""
LATEST: Final = 2**61
"""Behind every time."""


def microseconds(given: Interval, what: str) -> int:
    """An interval's length; `what` says in an error whose it is."""
    try:
        return durations.microseconds(given, what)
    except durations.InvalidDuration as error:
        raise BadTime(str(error)) from None


def positive(given: Interval, what: str) -> int:
    """An interval that is longer than nothing."""
    try:
        return durations.positive(given, what)
    except durations.InvalidDuration as error:
        raise BadTime(str(error)) from None


def spell(length_us: int) -> str:
    """An interval as Spark reads it."""
    return f"{length_us} microseconds"


def timestamps(values: Longs, nulls: NDArray[np.bool_] | None = None) -> pa.Array:
    """Microseconds as a timestamp column, null where that is said."""
    return pa.array(values, pa.int64(), mask=nulls).view(pa.timestamp("us")).cast(TIMESTAMP)
