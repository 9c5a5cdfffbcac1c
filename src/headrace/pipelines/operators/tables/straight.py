"""Changes that go straight from the source to the operator behind them: Spark sees cells of bytes, not the rows.

A table of changes whose `before` is trusted keeps nothing, so that the source can make its rows of the envelopes at
once (`columns/changes.py`). Whoever takes them on through Spark opens the cells (`read_straight`); a join takes the
cells themselves (`cells_of`). Both read one source, as the envelopes did: a checkpoint of before goes on.

Straight is only what stands right behind a stream of our source, of columns that are read here exactly as Spark's
expressions read them; all else goes by those.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema

from headrace.pipelines.columns.changes import TrustedChanges, can_read
from headrace.pipelines.keyed.layout import rows_from_bytes
from headrace.pipelines.operators.tables.changes_reading import ENVELOPE, Records
from headrace.pipelines.source.options import STEP
from headrace.pipelines.source.steps import CELLS_DDL, write_step
from headrace.pipelines.spark.internals import add_note, bare_source, read_note

SETTING: Final = "spark.headrace.straight"
"""`false` has every change go through Spark: for a checkpoint of a query that also reads the envelopes themselves."""
_TURNS_ASIDE: Final = ("idletimeout", "schemafile", STEP)


@dataclass(frozen=True)
class Cells:
    """The rows of a DataFrame as cells of bytes, and their columns."""

    frame: DataFrame
    rows: pa.Schema


def cells_of(frame: DataFrame) -> Cells | None:
    """The cells that a DataFrame is read from, if nothing was done with it since."""
    note = read_note(frame)
    return note if isinstance(note, Cells) else None


def read_straight(frame: DataFrame, records: Records, made: DataFrame, *, ignores_truncates: bool) -> DataFrame | None:
    """The rows of `made`, which Spark makes of the records in `frame`, made by the source; None where it cannot."""
    spark = frame.sparkSession
    if records.form != ENVELOPE or not frame.isStreaming or spark.conf.get(SETTING, "true") == "false":
        return None
    options = bare_source(frame)
    if options is None or any(name.lower() in _TURNS_ASIDE for name in options):
        return None
    envelopes, rows = (to_arrow_schema(each.schema, timezone="UTC") for each in (frame, made))
    if not can_read(envelopes, records.key, records.table):
        return None
    step = TrustedChanges(rows, records.key, records.table, ignores_truncates, records.refusals)
    stream = spark.readStream.format("headrace").options(**options).option(STEP, write_step(frame.schema, step))
    cells = stream.schema(CELLS_DDL).load()
    return add_note(cells.mapInArrow(_opened, made.schema), Cells(cells, rows))


def _opened(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for cell in batch.column(0).drop_null():  # most rows have none
            yield rows_from_bytes(cell.as_buffer())
