"""Which column of a DataFrame carries event time, and how far behind the watermark its times may lie.

A query has one watermark, set once by `event_time` on each input. An operator behind others does not get another one,
which would wait for results that wait for it; it goes by the same, and by a mark on the column that carries the time
on. The mark is metadata of the column, so it goes wherever Spark takes the column: through `select`, `where`, renaming,
and through keyed state.

How an operator declares the time of what it emits: `frame.transform(TimeMark("window_end", back_us=1, lag_us=1).put)`.

- `back_us`: the time is the column less this. The result of a window belongs to the last moment in it, one microsecond
  before its end: a minute that ends at the full hour is in the hour that ends then.
- `lag_us`: in a micro-batch whose predecessor had the watermark W, no time emitted lies *at or before* W - `lag_us`.
  With 0 every row is behind W, as of an input whose rows keep their promise. Whoever reads the column judges rows, and
  closes what it has, by a watermark that is so much earlier; and adds what it holds rows up itself. A window may take
  a microsecond less, because it ends behind every time that is in it.
- `again`: columns that say that a result is given more than once (`retracted`, `final`). As long as one of them is
  there the rows are no events, and an operator that would count them twice refuses them.

A join of Spark's own holds rows up too, and lowers the watermark for all that stands behind it by itself.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection

    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructField

DELAY: Final = "spark.watermarkDelayMs"
"""What Spark notes on a column with a watermark."""
MARK: Final = "headrace.time"
"""What we note on a column that carries the time of results."""
WINDOW_TIME: Final = "_window_time"
"""The time itself, where it is not the column as it stands."""


@dataclass(frozen=True)
class TimeMark:
    """The column, and what is said about it."""

    column: str
    back_us: int = 0
    lag_us: int = 0
    again: tuple[str, ...] = ()

    def put(self, frame: "DataFrame") -> "DataFrame":
        """The frame with its column marked."""
        said = {"back_us": self.back_us, "lag_us": self.lag_us, "again": list(self.again)}
        return _noted(frame, {self.column: {MARK: said}})

    @property
    def ends_lag_us(self) -> int:
        """How much earlier the watermark is for what ends behind the times in it."""
        return max(self.lag_us - 1, 0)

    def value(self) -> "Column":
        """The time."""
        from pyspark.sql import functions as fn

        column = fn.col(f"`{self.column}`")
        return column - fn.expr(f"INTERVAL {self.back_us} MICROSECOND") if self.back_us else column

    def at_hand(self, frame: "DataFrame") -> "tuple[DataFrame, TimeMark]":
        """The frame with a column that is the time, and the mark of that column."""
        if not self.back_us:
            return frame, self
        return frame.withColumn(WINDOW_TIME, self.value()), replace(self, column=WINDOW_TIME, back_us=0)

    def for_spark(self, frame: "DataFrame") -> "DataFrame":
        """The frame with the column as one that has a watermark, for operators of Spark's own."""
        if DELAY in frame.schema[self.column].metadata or not frame.isStreaming:
            return frame
        return _noted(frame, {self.column: {DELAY: 0}})


def time_marks(frame: "DataFrame") -> list[TimeMark]:
    """What carries time in a frame: the results' own columns, or where there are none, those of an input."""
    marked = [_read(field) for field in frame.schema.fields if MARK in field.metadata]
    return marked or [TimeMark(field.name) for field in frame.schema.fields if DELAY in field.metadata]


def time_mark(frame: "DataFrame", column: str) -> TimeMark | None:
    """What is said about one column; None if it carries no time."""
    field = frame.schema[column]
    if MARK in field.metadata:
        return _read(field)
    return TimeMark(column) if DELAY in field.metadata else None


def given_again(frame: "DataFrame") -> list[str]:
    """The columns of a frame that say that its results are given more than once; none if each is given once."""
    return [name for mark in time_marks(frame) for name in mark.again if name in frame.columns]


def without_marks(frame: "DataFrame", columns: "Collection[str]") -> "DataFrame":
    """The frame without what is said about some columns, which do not carry its time any more."""
    known = {field.name: field.metadata for field in frame.schema.fields if field.name in columns}
    return _noted(frame, {name: {} for name, said in known.items() if MARK in said or DELAY in said})


def _read(field: "StructField") -> TimeMark:
    said = field.metadata[MARK]
    return TimeMark(field.name, said["back_us"], said["lag_us"], tuple(said["again"]))


def _noted(frame: "DataFrame", noted: dict[str, dict[str, object]]) -> "DataFrame":
    """The same columns, some of them with other notes of time."""
    from pyspark.sql import functions as fn

    if not noted:
        return frame
    columns = []
    for field in frame.schema.fields:
        column = fn.col(f"`{field.name}`")
        if field.name in noted:
            others = {name: said for name, said in field.metadata.items() if name not in (MARK, DELAY)}
            column = column.alias(field.name, metadata=others | noted[field.name])
        columns.append(column)
    return frame.select(*columns)
