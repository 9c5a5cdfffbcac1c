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
- `again`: columns that say that a result is given more than once (`retracted`, `final`). They are noted as such
  themselves. As long as one of them is there, under whatever name, the rows are no events, and an operator that would
  count them twice refuses them.

Rows of a union are as far behind as those of any of its inputs may be. Where the column is the time in one input and
not in the other, or not in the same way, the union has no column that carries the time.

A join of Spark's own holds rows up too, and lowers the watermark for all that stands behind it by itself.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from headrace.pipelines.spark.plan import united_metadata

DELAY: Final = "spark.watermarkDelayMs"
"""What Spark notes on a column with a watermark."""
MARK: Final = "headrace.time"
"""What we note on a column that carries the time of results."""
AGAIN: Final = "headrace.again"
"""What we note on a column that says that a result is given more than once: how it was called then."""
WINDOW_TIME: Final = "_window_time"
"""The time itself, where it is not the column as it stands."""


@dataclass(frozen=True)
class TimeMark:
    """The column, and what is said about it."""

    column: str
    back_us: int = 0
    lag_us: int = 0
    again: tuple[str, ...] = ()

    def put(self, frame: DataFrame) -> DataFrame:
        noted: dict[str, dict[str, object]] = {name: {AGAIN: name} for name in self.again}
        noted[self.column] = {MARK: {"back_us": self.back_us, "lag_us": self.lag_us}}
        return _note(frame, noted)

    @property
    def ends_lag_us(self) -> int:
        """How much earlier the watermark is for what ends behind the times in it."""
        return max(self.lag_us - 1, 0)

    def value(self) -> Column:
        column = fn.col(f"`{self.column}`")
        return column - fn.expr(f"INTERVAL {self.back_us} MICROSECOND") if self.back_us else column

    def at_hand(self, frame: DataFrame) -> "tuple[DataFrame, TimeMark]":
        """The frame with a column that is the time, and the mark of that column."""
        if not self.back_us:
            return frame, self
        return frame.withColumn(WINDOW_TIME, self.value()), replace(self, column=WINDOW_TIME, back_us=0)

    def for_spark(self, frame: DataFrame) -> DataFrame:
        """The frame with the column as one that has a watermark, for operators of Spark's own."""
        if DELAY in frame.schema[self.column].metadata or not frame.isStreaming:
            return frame
        return _note(frame, {self.column: {DELAY: 0}})


def time_marks(frame: DataFrame) -> list[TimeMark]:
    """What carries time in a frame: the results' own columns, or where there are none, those of an input."""
    metadata = _metadata(frame)
    own = {name for name, parts in metadata.items() if any(MARK in said for said in parts)}
    found = {name: _read(name, parts, streams=frame.isStreaming) for name, parts in metadata.items()}
    marks = [mark for mark in found.values() if mark]
    return [mark for mark in marks if mark.column in own] or marks


def time_mark(frame: DataFrame, column: str) -> TimeMark | None:
    """What is said about one column; None if it carries no time."""
    return _read(column, _metadata(frame)[column], streams=frame.isStreaming)


def given_again(frame: DataFrame) -> dict[str, str]:
    """The columns of a frame that say that its results are given more than once, and what they were called first."""
    return {name: said[AGAIN] for name, parts in _metadata(frame).items() for said in parts if AGAIN in said}


def without_marks(frame: DataFrame, columns: "Collection[str]") -> DataFrame:
    """The frame without what is said about some columns, which do not carry its time any more."""
    known = {field.name: field.metadata for field in frame.schema.fields if field.name in columns}
    return _note(frame, {name: {} for name, said in known.items() if MARK in said or DELAY in said})


def _metadata(frame: DataFrame) -> "dict[str, list[dict[str, Any]]]":
    """Of each column, what is noted on it in every input of a union, or once."""
    united = united_metadata(frame)
    return {field.name: united.get(field.name) or [field.metadata] for field in frame.schema.fields}


def _read(column: str, parts: "Sequence[Mapping[str, Any]]", *, streams: bool) -> TimeMark | None:
    """What holds for all rows of a column; None if that is nothing."""
    known = [each.get(MARK, {"back_us": 0, "lag_us": 0}) for each in parts if MARK in each or DELAY in each]
    lacks = streams and len(known) < len(parts) and any(MARK in each for each in parts)
    if not known or lacks or len({each["back_us"] for each in known}) > 1:
        return None
    return TimeMark(column, known[0]["back_us"], max(each["lag_us"] for each in known))


def _note(frame: DataFrame, noted: dict[str, dict[str, object]]) -> DataFrame:
    """The same columns, some of them with other notes of time."""
    if not noted:
        return frame
    columns = []
    for field in frame.schema.fields:
        column = fn.col(f"`{field.name}`")
        if field.name in noted:
            others = {name: said for name, said in field.metadata.items() if name not in (MARK, DELAY, AGAIN)}
            column = column.alias(field.name, metadata=others | noted[field.name])
        columns.append(column)
    return frame.select(*columns)
