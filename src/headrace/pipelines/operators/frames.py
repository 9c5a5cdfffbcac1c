"""What operators look up in a DataFrame, and how one is put on keyed state."""

from collections.abc import Callable, Collection, Mapping, Sequence

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from headrace.pipelines.keyed.apply import BUCKETS, keyed
from headrace.pipelines.keyed.operator import Operator
from headrace.pipelines.operators.aggregation.algebra import Aggregate
from headrace.pipelines.operators.errors import BadAggregate, BadField, BadTime, BadWindow, nearest, require
from headrace.pipelines.operators.stragglers import ASIDE
from headrace.pipelines.operators.time_marks import TimeMark, given_again, time_mark, time_marks
from headrace.pipelines.spark.plan import has_watermark, lost_watermark, stateful_step

Transform = Callable[[DataFrame], DataFrame]
_ALL = "_all"
_TABLE = "_weight"  # the column by which a table as changes is known


def event_time_of(frame: DataFrame, time: str | None, what: str) -> TimeMark:
    """The column that `what` goes by, which carries the time; what could never end or would count twice is refused."""
    check_events(frame, what)
    if reason := lost_watermark(frame):
        raise BadWindow(f"{what} would wait for ever: {reason}")
    marks = time_marks(frame)
    if time is not None:
        require([time], frame.columns, f"time in {what}")
        found = time_mark(frame, time)
        if found is None and frame.isStreaming:
            raise BadWindow(
                f"{what} goes by {time!r}, which has no watermark, and would never end: {_mend(frame, time)}"
            )
        found = found or TimeMark(time)
    elif len(marks) == 1:
        found = marks[0]
    else:
        names = [mark.column for mark in marks]
        said = f"{' and '.join(names)} do: name one with time=…" if names else _mend(frame, "…")
        raise BadWindow(
            f"{what} needs to know when it has seen everything, by the column that carries a watermark: {said}"
        )
    kind = frame.schema[found.column].dataType.simpleString()
    if kind not in ("timestamp", "timestamp_ntz"):
        raise BadTime(
            f"{what} goes by {found.column!r}, which is {kind} and not a timestamp: make one with "
            f'event_time("{found.column}")'
        )
    return found


def check_events(frame: DataFrame, what: str) -> None:
    """Refuse rows that are taken back or given again, and late rows beside results: `what` counts each row once."""
    if _TABLE in frame.columns:
        raise BadWindow(
            f"{what} is for events, and this is a table as changes, whose rows go again ({_TABLE} -1): write "
            'group_changes(by=[…]) with a column of the time, as in .withColumn("hour", date_trunc("hour", "at"))'
        )
    if ASIDE in frame.columns:
        raise BadWindow(f"{what} stands behind results with late rows beside them: write .transform(on_time) before it")
    if again := given_again(frame):
        raise BadWindow(
            f"{what} counts each row once, and what stands before it is given more than once (see "
            f"{next(iter(again))!r}): leave out correct(…) and early=… there, or make it a table with appended() and "
            "group it with group_changes"
        )


def _mend(frame: DataFrame, time: str) -> str:
    """What to write where no column carries a watermark."""
    if has_watermark(frame) and stateful_step(frame):
        return (
            "keep the column that carries it behind the step before (window_end, or the events' time), or write "
            f'.transform(event_time("{time}", delay="0 seconds")) with how far behind the watermark these times may be'
        )
    return f'write .transform(event_time("{time}", delay="10 minutes")) before it'


def arrow_schema(frame: DataFrame) -> pa.Schema:
    """The columns as keyed state sees them."""
    from pyspark.sql.pandas.types import to_arrow_schema

    found: pa.Schema = to_arrow_schema(frame.schema, timezone="UTC")
    return found


def check_names(
    frame: DataFrame, by: Sequence[str], aggregates: Mapping[str, Aggregate], taken: Collection[str], what: str = "by"
) -> None:
    """Refuse keys and fields that are not there, and names that the output has already."""
    require(by, frame.columns, what)
    for name, each in aggregates.items():
        if name in by or name in taken:
            raise BadField(f"an aggregate is called {name!r}, as another column of the output is: choose another name")
        for column in each.names if isinstance(each, Aggregate) else ():
            if column not in frame.columns:
                raise BadField(f"{name}: there is no column {column!r}: {nearest(column, frame.columns)}")


def prepare(
    frame: DataFrame, aggregates: Mapping[str, Aggregate], *, of_table: bool = False
) -> tuple[DataFrame, dict[str, Aggregate]]:
    """The columns that aggregates are computed of added to a frame, and the aggregates over them."""
    made: dict[str, Aggregate] = {}
    columns: dict[str, Column] = {}
    for name, each in aggregates.items():
        try:
            made[name], given = each.prepare(of_table=of_table)
            frame.select(*given.values())
        except AnalysisException as error:
            why = str(error).partition("\n")[0].partition(" SQLSTATE")[0]
            what = each.named if each.where is None else f"where={each.where!r}"
            raise BadAggregate(f"{name}: {what} cannot be evaluated: {why}") from None
        columns |= given
    return frame.withColumns(columns) if columns else frame, made


def needed(frame: DataFrame, by: Sequence[str], time: str, aggregates: Mapping[str, Aggregate]) -> DataFrame:
    """Only what the operator looks at."""
    fields = [each.field for each in aggregates.values() if each.field is not None]
    return frame.select(*(f"`{name}`" for name in dict.fromkeys([*by, time, *fields])))


def over_keys(
    frame: DataFrame,
    by: Sequence[str],
    make: Callable[[pa.Schema], Operator],
    buckets: int | None,
    behind_us: int = 0,
) -> DataFrame:
    """An operator on keyed state, its watermark so much earlier than the query's; without keys there is one for all."""
    rows = arrow_schema(frame)
    if by:
        return frame.transform(keyed(make(rows), by=list(by), buckets=buckets or BUCKETS, behind_us=behind_us))
    name = _ALL
    while name in map(str.lower, frame.columns):
        name = f"_{name}"
    whole = frame.withColumn(name, fn.lit(0))
    operator = make(arrow_schema(whole))
    return whole.transform(keyed(operator, by=[name], buckets=1, behind_us=behind_us)).drop(name)
