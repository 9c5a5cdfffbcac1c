"""What operators look up in a DataFrame, and how one is put on keyed state."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.pipelines.keyed.apply import BUCKETS, keyed
from headrace.pipelines.keyed.operator import Operator
from headrace.pipelines.operators.errors import BadField, BadTime, BadWindow
from headrace.pipelines.operators.fields import nearest, require
from headrace.pipelines.operators.partials import Aggregate

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Transform = Callable[["DataFrame"], "DataFrame"]
DELAY = "spark.watermarkDelayMs"  # what Spark notes on a column with a watermark
_ALL = "_all"


def event_time_of(frame: "DataFrame", time: str | None, what: str) -> str:
    """The column that windows go by: the one that has a watermark."""
    marked = [field.name for field in frame.schema.fields if DELAY in field.metadata]
    if time is not None:
        require([time], frame.columns, f"time in {what}")
        if frame.isStreaming and time not in marked:
            raise BadWindow(
                f"{what} goes by {time!r}, which has no watermark, and would never end: write "
                f'.transform(event_time("{time}", delay="10 minutes")) before it'
            )
    elif len(marked) != 1:
        said = f"{' and '.join(marked)} have one: name it with time=…" if marked else (
            'write .transform(event_time("…", delay="10 minutes")) before it'
        )  # fmt: skip
        raise BadWindow(f"{what} needs to know when it has seen everything, by the column with a watermark: {said}")
    found = time or marked[0]
    kind = frame.schema[found].dataType.simpleString()
    if kind not in ("timestamp", "timestamp_ntz"):
        raise BadTime(
            f'{what} goes by {found!r}, which is {kind} and no timestamp: make one with event_time("{found}")'
        )
    return found


def arrow_schema(frame: "DataFrame") -> pa.Schema:
    """The columns as keyed state sees them."""
    from pyspark.sql.pandas.types import to_arrow_schema

    found: pa.Schema = to_arrow_schema(frame.schema, timezone="UTC")
    return found


def check_names(
    frame: "DataFrame", by: Sequence[str], aggregates: Mapping[str, Aggregate], taken: Collection[str]
) -> None:
    """Refuse keys and fields that are not there, and names that the output has already."""
    require(by, frame.columns, "by")
    for name, each in aggregates.items():
        if name in by or name in taken:
            raise BadField(f"an aggregate is called {name!r}, as another column of the output is: call it otherwise")
        if isinstance(each, Aggregate) and each.field is not None and each.field not in frame.columns:
            raise BadField(f"{name}: there is no column {each.field!r}: {nearest(each.field, frame.columns)}")


def needed(frame: "DataFrame", by: Sequence[str], time: str, aggregates: Mapping[str, Aggregate]) -> "DataFrame":
    """Only what the operator looks at."""
    fields = [each.field for each in aggregates.values() if each.field is not None]
    return frame.select(*(f"`{name}`" for name in dict.fromkeys([*by, time, *fields])))


def over_keys(
    frame: "DataFrame", by: Sequence[str], make: Callable[[pa.Schema], Operator], buckets: int | None
) -> "DataFrame":
    """An operator on keyed state; without keys there is one key for all."""
    from pyspark.sql import functions as fn

    rows = arrow_schema(frame)
    if by:
        return frame.transform(keyed(make(rows), by=list(by), buckets=buckets or BUCKETS))
    whole = frame.withColumn(_ALL, fn.lit(0))
    operator = make(arrow_schema(whole))
    return whole.transform(keyed(operator, by=[_ALL], buckets=1)).drop(_ALL)
