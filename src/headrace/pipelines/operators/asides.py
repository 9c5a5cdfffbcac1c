"""Rows that an operator sets aside, as it emits them beside its results. Pure."""

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.pipelines.keyed.operator import Keyed
from headrace.pipelines.operators.grouping import Longs
from headrace.pipelines.operators.partials import PREPARED
from headrace.pipelines.operators.stragglers import ASIDE, LATE, NO_TIME, Stragglers

TIME = pa.timestamp("us", "UTC")


def aside_field(rows: pa.Schema, choice: Stragglers) -> pa.Field:
    """The column for what is set aside: whole rows if they are handed on, else only how many."""
    parts = [pa.field("reason", pa.string()), pa.field("rows", pa.int64())]
    if choice.hands_on:
        parts += [
            pa.field("window_start", TIME),
            pa.field("window_end", TIME),
            pa.field("lateness_ms", pa.int64()),
            pa.field("row", pa.struct([field for field in rows if not field.name.startswith(PREPARED)])),
        ]
    return pa.field(ASIDE, pa.struct(parts))


def set_aside(
    output: pa.Schema,
    key: Longs,
    rows: pa.RecordBatch,
    *,
    late: NDArray[np.bool_],
    timeless: NDArray[np.bool_],
    window: tuple[Longs, Longs],
    reached_us: int,
) -> Keyed | None:
    """What to emit for rows that are late or have no time; `window` is the one each late row missed."""
    kind = output.field(ASIDE).type
    if not (late.any() or timeless.any()):
        return None
    if kind.get_field_index("row") < 0:
        told = [(LATE, int(late.sum())), (NO_TIME, int(timeless.sum()))]
        cells = [{"reason": reason, "rows": number} for reason, number in told if number]
        made: Any = pa.array(cells, kind)
        return _emitted(output, np.zeros(len(cells), np.int64), made)
    chosen = np.flatnonzero(late | timeless)
    is_late = late[chosen]
    nothing = ~is_late
    picked, row = rows.take(pa.array(chosen)), kind.field("row").type
    start, end = (np.where(is_late, edge[chosen], 0) for edge in window)
    lateness = np.where(is_late, reached_us - end, 0) // 1000
    made = pa.StructArray.from_arrays(
        [
            pa.array(np.where(is_late, LATE, NO_TIME)).cast(pa.string()),
            pa.array(np.ones(len(chosen), np.int64)),
            pa.array(start, pa.int64(), mask=nothing).view(pa.timestamp("us")).cast(TIME),
            pa.array(end, pa.int64(), mask=nothing).view(pa.timestamp("us")).cast(TIME),
            pa.array(lateness, pa.int64(), mask=nothing),
            pa.StructArray.from_arrays([picked.column(field.name) for field in row], fields=list(row)),
        ],
        fields=list(kind),
    )
    return _emitted(output, key[chosen], made)


def _emitted(output: pa.Schema, key: Longs, made: pa.Array) -> Keyed:
    columns = [made if field.name == ASIDE else pa.nulls(len(key), field.type) for field in output]
    return Keyed(key, pa.RecordBatch.from_arrays(columns, schema=output))


def timestamps(values: Longs) -> pa.Array:
    """Microseconds as a timestamp column."""
    return pa.array(values, pa.int64()).view(pa.timestamp("us")).cast(TIME)
