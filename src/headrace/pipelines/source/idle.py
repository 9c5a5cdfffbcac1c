"""Time that goes on where nothing is written: a mark in the offset, and a row that carries it.

Spark moves a watermark only by rows. So a source that has read everything, with no record waiting in an open
transaction, and has been silent for `idleTimeout` puts a stamp of the wall clock beside its offsets, and the batch up
to there has one row more: the stamp in `eventTimeColumn`, true in `_idle`, nulls elsewhere. The stamp is in the
checkpoint, so a batch that is run again has the same row again. `event_time(…)` takes such rows out, behind the
watermark. Pure but for reading the clocks, which are handed in.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from headrace.pipelines.errors import BadOption
from headrace.pipelines.source.options import WHERE, SourceOptions

KEY, UNIT = "(idle)", "ms"  # no topic can be called so
COLUMN = "_idle"


class IdlePartition(InputPartition):
    """A task that reads nothing and gives the row of a stamp."""

    def __init__(self, stamp_ms: int) -> None:
        super().__init__(stamp_ms)


@dataclass
class Silence:
    """How long a source has been silent; lives as long as the query runs."""

    timeout_s: float
    offsets: Mapping[str, Any] | None = None
    since_s: float = 0.0

    def stamped(
        self,
        start: Mapping[str, Any],
        to: Mapping[str, Any],
        *,
        now_s: float,
        wall_ms: int,
        holds_back: Callable[[], bool] = lambda: False,
    ) -> dict[str, Any]:
        """Offsets to read to, with the stamp that the start had, or a new one if it has been silent for long.

        Not while the topics hold records back, in transactions that are open: they would be late once they come.
        """
        stamp = stamp_of(start)
        if self.offsets != to or any(start.get(topic) != to[topic] for topic in to):
            self.offsets, self.since_s = dict(to), now_s
        elif now_s - self.since_s >= self.timeout_s and not holds_back():
            self.since_s = now_s
            stamp = max(wall_ms, stamp or 0)
        return dict(to) | ({} if stamp is None else {KEY: {UNIT: stamp}})


def stamp_of(offsets: Mapping[str, Any]) -> int | None:
    return offsets[KEY][UNIT] if KEY in offsets else None


def without_stamp(offsets: Mapping[str, Any]) -> dict[str, Any]:
    return {topic: partitions for topic, partitions in offsets.items() if topic != KEY}


def check_idle(schema: StructType, options: SourceOptions) -> None:
    """Refuse an idle time-out whose row could not be made or not be told apart."""
    if options.idle_timeout_s is None:
        return
    name = options.event_time_column
    if name is None or name not in schema.names:
        raise BadOption(
            f"{WHERE} has idleTimeout, and eventTimeColumn has to name the column that time goes on in: "
            f"{'it is missing' if name is None else f'there is no column {name!r}'}"
        )
    kind = schema[name].dataType.simpleString()
    if kind not in ("timestamp", "string"):
        raise BadOption(f"{WHERE}: eventTimeColumn {name!r} is {kind}: declare it as timestamp (see epochUnit)")
    if COLUMN not in schema.names or schema[COLUMN].dataType.simpleString() != "boolean":
        raise BadOption(
            f"{WHERE} has idleTimeout, and marks the rows that it adds: add '{COLUMN} boolean' to the schema"
        )


def idle_row(stamp_ms: int, arrow: pa.Schema, column: str) -> Iterator[pa.RecordBatch]:
    time = datetime.fromtimestamp(stamp_ms / 1000, UTC)
    is_text = pa.types.is_string(arrow.field(column).type)
    given = {column: time.isoformat() if is_text else time, COLUMN: True}
    cells = [pa.array([given.get(field.name)], field.type) for field in arrow]
    yield pa.RecordBatch.from_arrays(cells, schema=arrow)
