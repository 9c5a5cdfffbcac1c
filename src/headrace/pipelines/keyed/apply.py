"""`keyed`: an operator as a function of a DataFrame."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from headrace.errors import nearest
from headrace.pipelines.errors import BadOption
from headrace.pipelines.keyed.keys import check_types
from headrace.pipelines.keyed.operator import BadKey, Clock, Operator
from headrace.pipelines.keyed.packing import EMITTED_DDL, HASH, PACKED_DDL, Prepare, pack, unpack
from headrace.pipelines.spark.plan import has_watermark, lost_watermark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BUCKETS: Final = 8
_MOST_BUCKETS: Final = 1 << 15
_MODES: Final = {Clock.NONE: "none", Clock.EVENT: "eventTime", Clock.WALL: "processingTime"}


@dataclass(frozen=True)
class Part:
    """Rows for an operator that come in another form: `prepare` makes of it the operator's input and its hashes."""

    frame: "DataFrame"
    prepare: Prepare


def keyed(
    operator: Operator,
    *,
    by: Sequence[str],
    buckets: int = BUCKETS,
    behind_us: int = 0,
    parts: "Sequence[Part | DataFrame]" = (),
) -> "Callable[[DataFrame], DataFrame]":
    """A function for `df.transform(…)`: the operator's output, behind the columns `by`.

    `parts` are where the DataFrame's rows are taken from instead, if its own way to them is not the cheapest.

    `behind_us` is how far behind the query's watermark rows may be that another operator has held up.

    `buckets` is how many parts the keys are divided into, each served by one call; it stays for the life of a
    checkpoint. A few times the number of cores does; with state beyond some ten million rows, more.
    """
    if isinstance(by, str):
        raise BadKey(f"by={by!r} is text: write by=[{by!r}]")
    if not by:
        raise BadKey("by names no column: write by=['…'] with the columns that make a key")
    if not 1 <= buckets <= _MOST_BUCKETS:
        raise BadOption(f"buckets={buckets}: write a number from 1 to {_MOST_BUCKETS}")
    return lambda frame: _apply(frame, operator, list(by), buckets, behind_us, parts or (frame,))


def _apply(
    frame: "DataFrame",
    operator: Operator,
    by: list[str],
    buckets: int,
    behind_us: int,
    parts: "Sequence[Part | DataFrame]",
) -> "DataFrame":
    from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

    from headrace.pipelines.keyed.stateful import KeyedProcessor
    from headrace.pipelines.spark.wall_clock import end_when_read
    from headrace.pipelines.spark.watermarks import keep_input_watermarks

    for place, name in enumerate(by):
        if name in by[:place]:
            raise BadKey(f"by names {name!r} twice: name it once")
        if name not in frame.columns:
            raise BadKey(
                f"by names {name!r}, which the DataFrame does not have: {nearest(name, frame.columns, 'it has')}"
            )
    rows = to_arrow_schema(frame.schema, timezone="UTC")
    keys = pa.schema([rows.field(name) for name in by])
    check_types(keys)
    plan = replace(operator.plan(keys, rows), behind_us=behind_us)
    if both := sorted(set(plan.output.names) & set(by)):
        raise BadKey(f"the operator's output has a column {both[0]!r} as the key has: rename one of them")
    if plan.clock is Clock.EVENT and frame.isStreaming and not has_watermark(frame):
        raise BadOption(
            "the operator waits for event time, and the DataFrame has no watermark: write .withWatermark('time', "
            "'10 minutes') before it"
        )
    if plan.clock is not Clock.NONE and (reason := lost_watermark(frame)):
        raise BadOption(f"the operator would wait for ever: {reason}")
    if not frame.isStreaming:
        # What serves state is started with the first stream, and state is needed here too.
        _ = frame.sparkSession.streams
    output = from_arrow_schema(pa.schema([*keys, *plan.output]))
    made = (_packed(part, by, buckets, rows, plan.to_all) for part in parts)
    packed = reduce(lambda one, other: one.union(other), made)
    emitted = packed.groupBy("bucket").transformWithStateInPandas(
        KeyedProcessor(operator, plan, keys, buckets, is_bounded=not frame.isStreaming),
        EMITTED_DDL,
        "append",
        _MODES[plan.clock],
    )
    if plan.clock is Clock.WALL and frame.isStreaming:
        emitted = end_when_read(emitted)
    if plan.clock is not Clock.NONE:
        keep_input_watermarks(frame)
    return emitted.mapInArrow(unpack, output)


def _packed(part: "Part | DataFrame", by: list[str], buckets: int, rows: pa.Schema, to_all: str | None) -> "DataFrame":
    from pyspark.sql.functions import col, xxhash64

    if isinstance(part, Part):
        return part.frame.mapInArrow(pack(buckets, rows, to_all, part.prepare), PACKED_DDL)
    hashed = part.withColumn(HASH, xxhash64(*(col(f"`{name}`") for name in by)))
    return by_places(hashed).mapInArrow(pack(buckets, rows, to_all), PACKED_DDL)


def by_places(frame: "DataFrame") -> "DataFrame":
    """For `mapInArrow` of what goes by places and knows the names: PySpark would take one with a dot for a path."""
    if not any("." in name for name in frame.columns):
        return frame
    return frame.toDF(*(f"c{place}" for place in range(len(frame.columns))))
