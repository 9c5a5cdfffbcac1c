"""Results of windows, put down until all of a micro-batch are there: what looks back sees them together. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.pipelines.keyed.operator import NOTHING, Batch, Changes, Keyed, Rows, Timers
from headrace.pipelines.operators.times import EARLIEST, times_of

PENDING: Final = "pending"


@dataclass(frozen=True)
class Gathered:
    """The table of results that were put down, with the columns they carry; `rows` is the schema they come in."""

    carried: tuple[str, ...]
    rows: pa.Schema

    @property
    def fields(self) -> list[pa.Field]:
        """What is carried, as it comes out again."""
        return [self.rows.field(name) for name in self.carried]

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([("at", pa.int64()), *self.fields])

    @property
    def table(self) -> Rows:
        return Rows(PENDING, self.schema, "at")

    def put_down(self, batch: Batch) -> Changes:
        start, valid = times_of(batch.rows.column("window_start"))
        given = np.flatnonzero(valid)
        if not len(given):
            return NOTHING
        rows = batch.rows.take(pa.array(given))
        columns = [pa.array(start[given]), *(rows.column(name) for name in self.carried)]
        every = np.arange(batch.keys.num_rows, dtype=np.int64)
        return Changes(
            append={PENDING: Keyed(batch.key[given], pa.RecordBatch.from_arrays(columns, schema=self.schema))},
            # A time that has come: called as soon as the rows of this micro-batch are through.
            event_timers=Timers(every, np.full(len(every), EARLIEST)),
        )

    def column(self, pending: Keyed, name: str) -> pa.Array:
        """What was carried."""
        return pending.rows.column(1 + self.carried.index(name))

    def with_columns(self, pending: Keyed, found: Sequence[pa.Array], output: pa.Schema) -> Keyed:
        """What was carried, with what was found about it behind."""
        carried = [pending.rows.column(1 + index) for index in range(len(self.carried))]
        return Keyed(pending.key, pa.RecordBatch.from_arrays([*carried, *found], schema=output))
