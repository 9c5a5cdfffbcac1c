"""What becomes of rows that come after their window was closed, and of rows without a usable time.

Chosen per operator: `drop()` counts them, `side_output()` hands them on beside the results, `correct("1 hour")`
retracts the result and emits it again with the row in it, for so long, and counts what comes later still. Whatever is
chosen, each such row is counted, and the count is in the query's progress.

An operator emits such rows beside its results, in the column `_aside` (`set_aside`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from headrace.pipelines.keyed.operator import Keyed
from headrace.pipelines.observed import LATE_ROWS
from headrace.pipelines.operators.aggregation.algebra import PREPARED
from headrace.pipelines.operators.errors import BadWindow
from headrace.pipelines.operators.grouping import Longs
from headrace.pipelines.operators.times import TIMESTAMP, Interval, positive, timestamps

ASIDE = "_aside"
LATE, NO_TIME = "late", "no time"
_HANDED_ON = ("reason", "window_start", "window_end", "lateness_ms", "row")
_COUNTED = {LATE: "late", NO_TIME: "no_time"}
_numbers = count(1)


@dataclass(frozen=True)
class Stragglers:
    """A choice: how long results are corrected, and whether rows are handed on."""

    allowed_us: int = 0
    corrects: bool = False
    hands_on: bool = False


def drop() -> Stragglers:
    """Late rows are counted and left out."""
    return Stragglers()


def side_output() -> Stragglers:
    """Late rows come out beside the results; `on_time` and `late_rows` tell the two apart."""
    return Stragglers(hands_on=True)


def correct(allowed: Interval, *, then: Stragglers | None = None) -> Stragglers:
    """For so long after a window's end a late row takes its result back and gives it again, with its revision.

    What comes later still is treated as `then` says: by default dropped and counted.
    """
    if then is not None and then.corrects:
        raise BadWindow("correct(…, then=correct(…)) corrects twice: write one correct(…) with the longer time")
    return Stragglers(positive(allowed, "the time allowed in correct"), True, then is not None and then.hands_on)


def on_time(frame: DataFrame) -> DataFrame:
    """The results of an operator with `side_output()`."""
    return frame.where(f"{_marked(frame)} IS NULL").drop(ASIDE)


def late_rows(frame: DataFrame) -> DataFrame:
    """The late rows of an operator with `side_output()`.

    Columns: `reason` (late, no time), `window_start`, `window_end` (of the latest window that was missed),
    `lateness_ms` (how long that window had been closed, by the watermark), and the row's own columns as `row`.
    """
    return frame.where(f"{_marked(frame)} IS NOT NULL").select(*(f"{ASIDE}.{name}" for name in _HANDED_ON))


def routed(frame: DataFrame, *, results: str, late: str) -> DataFrame:
    """Results and late rows as JSON for two topics, in the columns `topic` and `value`: one query writes both.

    Two frames in a union would run the operator twice.
    """
    aside = fn.col(_marked(frame))
    result = fn.to_json(fn.struct(*(fn.col(f"`{name}`") for name in frame.columns if name != ASIDE)))
    handed_on = fn.to_json(fn.struct(*(aside[name].alias(name) for name in _HANDED_ON)))
    return frame.select(
        fn.when(aside.isNull(), results).otherwise(late).alias("topic"),
        fn.when(aside.isNull(), result).otherwise(handed_on).alias("value"),
    )


def next_number() -> int:
    """Names of observed counts have to differ within a query."""
    return next(_numbers)


def count_without_time(frame: DataFrame, at: Column) -> DataFrame:
    """For operators of Spark's own, which count late rows themselves: how many rows have no time."""
    if not frame.isStreaming:
        return frame
    late, timeless = fn.lit(0).cast("bigint").alias("late"), fn.count_if(at.isNull()).alias("no_time")
    return frame.observe(f"{LATE_ROWS}.{NO_TIME}.{next_number()}", late, timeless)


def count_late_rows(
    frame: DataFrame, choice: Stragglers, name: str = LATE_ROWS, more: Mapping[str, str] = MappingProxyType({})
) -> DataFrame:
    """What an operator emitted, with what was set aside counted, and left out if nobody asked for it.

    `more` are further reasons, of rows that are counted and never handed on, and what their counts are called.
    """
    rows, reason = fn.col(f"{ASIDE}.rows"), fn.col(f"{ASIDE}.reason")
    counts = [
        fn.coalesce(fn.sum(fn.when(reason == why, rows)), fn.lit(0)).alias(called)
        for why, called in {**_COUNTED, **more}.items()
    ]
    observed = frame.observe(f"{name}.{next_number()}", *counts)
    if choice.hands_on:
        return observed.where(f"{ASIDE} IS NULL OR {ASIDE}.row IS NOT NULL") if more else observed
    return observed.where(f"{ASIDE} IS NULL").drop(ASIDE)


def _marked(frame: DataFrame) -> str:
    if ASIDE not in frame.columns:
        raise BadWindow("there are no late rows to tell apart: give the operator stragglers=side_output()")
    return ASIDE


def aside_field(rows: pa.Schema, choice: Stragglers) -> pa.Field:
    """The column for what is set aside: whole rows if they are handed on, else only how many."""
    parts = [pa.field("reason", pa.string()), pa.field("rows", pa.int64())]
    if choice.hands_on:
        parts += [
            pa.field("window_start", TIMESTAMP),
            pa.field("window_end", TIMESTAMP),
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
        counted = [(LATE, int(late.sum())), (NO_TIME, int(timeless.sum()))]
        cells = [{"reason": reason, "rows": number} for reason, number in counted if number]
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
            timestamps(start, nothing),
            timestamps(end, nothing),
            pa.array(lateness, pa.int64(), mask=nothing),
            pa.StructArray.from_arrays([picked.column(field.name) for field in row], fields=list(row)),
        ],
        fields=list(kind),
    )
    return _emitted(output, key[chosen], made)


def _emitted(output: pa.Schema, key: Longs, made: pa.Array) -> Keyed:
    columns = [made if field.name == ASIDE else pa.nulls(len(key), field.type) for field in output]
    return Keyed(key, pa.RecordBatch.from_arrays(columns, schema=output))
