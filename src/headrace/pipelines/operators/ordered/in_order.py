"""A step over rows in the order of event time, those of the same time by what is in them.

The bucket holds rows until the watermark has passed them (`Plan.ordered`), and a step keeps what it needs of earlier
ones in its tables. So nothing depends on how rows came.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as fn
from pyspark.sql.types import ArrayType, DataType, MapType, StructType, VariantType

from headrace.pipelines.keyed.operator import (
    Batch,
    Changes,
    Clock,
    Due,
    Keyed,
    Ordered,
    Plan,
    State,
    Table,
    Timers,
    Times,
)
from headrace.pipelines.operators.aggregation.algebra import PREPARED
from headrace.pipelines.operators.errors import BadWindow, as_names, require
from headrace.pipelines.operators.frames import event_time_of, over_keys
from headrace.pipelines.operators.grouping import Longs
from headrace.pipelines.operators.stragglers import ASIDE, Stragglers, aside_field, count_late_rows, set_aside
from headrace.pipelines.operators.time_marks import TimeMark
from headrace.pipelines.operators.times import EARLIEST, times_of

_TIE: Final = f"{PREPARED}tie"


class Ready(NamedTuple):
    """Rows of `keys` keys that the watermark has reached, sorted by key, time and content; there may be none."""

    keys: int
    key: Longs
    time: Longs
    rows: pa.RecordBatch
    reached: int


@dataclass(frozen=True)
class Stepped:
    """What a step makes of rows: rows of its output, changes of its tables, and when each key is to be called again."""

    emit: Keyed | None
    wake: Longs
    put: Mapping[str, Keyed] = field(default_factory=dict)
    append: Mapping[str, Keyed] = field(default_factory=dict)
    delete: Mapping[str, Longs] = field(default_factory=dict)
    expire: Mapping[str, int] = field(default_factory=dict)


class Step(Protocol):
    """Pure code over rows in order; frozen, and pickled with the operator."""

    @property
    def parameters(self) -> Mapping[str, object]:
        """What decides what the kept rows mean."""
        ...

    @property
    def tables(self) -> tuple[Table, ...]:
        """What it keeps of earlier rows."""
        ...

    @property
    def output(self) -> pa.Schema:
        """What it emits, without the keys."""
        ...

    def run(self, ready: Ready, state: State) -> Stepped:
        """The next rows of some keys, or none where one asked to be called."""
        ...


@dataclass(frozen=True)
class InOrder:
    """The operator: `columns` are those of a row that the step looks at or hands on."""

    time: str
    tie: str | None
    columns: tuple[str, ...]
    step: Step
    stragglers: Stragglers
    rows: pa.Schema

    @property
    def output(self) -> pa.Schema:
        fields = [each.with_nullable(True) for each in self.step.output]
        return pa.schema([*fields, aside_field(self.rows, self.stragglers)])

    def plan(self, keys: pa.Schema, rows: pa.Schema) -> Plan:
        parameters = {"time": self.time, **self.step.parameters}
        ordered = Ordered(self.time, (self.tie,) if self.tie else ())
        return Plan(self.output, self.step.tables, Clock.EVENT, parameters=parameters, ordered=ordered)

    def on_arrival(self, batch: Batch, state: State, times: Times) -> Changes:
        """Rows that are late, or have no time."""
        time, has_time = times_of(batch.rows.column(self.time))
        aside = set_aside(self.output, batch.key, batch.rows, late=has_time, timeless=~has_time, window=(time, time),
                          reached_us=max(times.watermark_us, EARLIEST))  # fmt: skip
        return Changes(emit=aside)

    def on_rows(self, batch: Batch, state: State, times: Times) -> Changes:
        """Rows that the watermark has passed, in order."""
        time, _ = times_of(batch.rows.column(self.time))
        return self._step(batch.keys.num_rows, batch.key, time, batch.rows.select(self.columns), state, times)

    def on_timers(self, due: Due, state: State, times: Times) -> Changes:
        """Keys that the step wants to look at again."""
        nothing = np.zeros(0, np.int64)
        rows = pa.RecordBatch.from_pylist([], schema=pa.schema([self.rows.field(name) for name in self.columns]))
        return self._step(len(due), nothing, nothing, rows, state, times)

    def _step(self, keys: int, key: Longs, time: Longs, rows: pa.RecordBatch, state: State, times: Times) -> Changes:
        reached = max(times.watermark_us, EARLIEST)
        done = self.step.run(Ready(keys, key, time, rows, reached), state)
        emit = None
        if done.emit is not None and len(done.emit):
            aside = pa.nulls(len(done.emit), self.output.field(ASIDE).type)
            shown = pa.RecordBatch.from_arrays([*done.emit.rows.columns, aside], schema=self.output)
            emit = Keyed(done.emit.key, shown)
        return Changes(
            emit=emit,
            put=done.put,
            append=done.append,
            delete=done.delete,
            expire=done.expire if reached > EARLIEST else {},
            event_timers=Timers(np.arange(keys), done.wake),
        )


def put_in_order(
    frame: DataFrame,
    mark: TimeMark,
    columns: tuple[str, ...],
    by: tuple[str, ...],
    stragglers: Stragglers,
    buckets: int | None,
    make: Callable[[pa.Schema], Step],
) -> DataFrame:
    """A step behind rows in order; late rows are counted. `mark` is what carries the time, at hand in the frame."""
    content = [f"`{name}`" for name in frame.columns if _is_hashed(frame.schema[name].dataType)]
    tied = frame.withColumn(_TIE, fn.xxhash64(*content))
    wanted = dict.fromkeys([*by, mark.column, *columns, _TIE])
    rows = tied if stragglers.hands_on else tied.select(*(f"`{name}`" for name in wanted))
    found = over_keys(
        rows,
        by,
        lambda schema: InOrder(mark.column, _TIE, columns, make(schema), stragglers, schema),
        buckets,
        mark.lag_us,
    )
    return count_late_rows(found, stragglers)


def _is_hashed(kind: DataType) -> bool:
    """Whether Spark hashes such values: what has a map in it is left out."""
    if isinstance(kind, ArrayType):
        return _is_hashed(kind.elementType)
    if isinstance(kind, StructType):
        return all(_is_hashed(part.dataType) for part in kind.fields)
    return not isinstance(kind, MapType | VariantType)


def check_stragglers(choice: Stragglers, what: str) -> None:
    """Refuse to correct: a row that was late would change all that come behind it."""
    if choice.corrects:
        raise BadWindow(
            f"{what} goes by the order of rows, and a late one would change all that were emitted behind it: use "
            "drop() or side_output(), and a longer delay in event_time"
        )


def time_of(frame: DataFrame, time: str | None, by: tuple[str, ...], what: str) -> TimeMark:
    """What carries the time of the rows, the keys being there."""
    require(as_names(by), frame.columns, f"by in {what}")
    return event_time_of(frame, time, what)
