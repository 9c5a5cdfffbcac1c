"""Columns of time as microseconds, and the rows that have one."""

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

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
