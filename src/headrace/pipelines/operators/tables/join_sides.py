"""One side of a join of tables: its rows as they are kept, and back. Pure.

A side's log has a row for each that came (`weight` +1) or went (-1). `row` are the bytes that say which row it is: its
columns, and of which tables and keys it is made; `marks` say which versions these were (`known`: all of them are told),
and `time` since when.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.pipelines.keyed.operator import Keyed, Longs, State
from headrace.pipelines.keyed.run import no_rows
from headrace.pipelines.operators.tables.form import TIME, TIME_TYPE, WEIGHT, row_names, version_column
from headrace.pipelines.operators.tables.join_versions import Versions, from_parts, versions_of
from headrace.pipelines.operators.tables.row_bytes import from_bytes, to_bytes

Flags = NDArray[np.bool_]
_ALIKE = "at"  # what a log is ordered by: all rows alike, so that they stay in the order in which they came
LOG = pa.schema(
    [
        (_ALIKE, pa.int8()),
        ("weight", pa.int32()),
        ("time", TIME_TYPE),
        ("row", pa.binary()),
        ("marks", pa.binary()),
        ("known", pa.bool_()),
    ]
)
LOG_ORDER = _ALIKE
_MADE_OF = [("(versions)", pa.int32()), ("(whose)", pa.binary())]


@dataclass(frozen=True)
class Delta:
    """New rows of a side; `known` says of which it is known which version they are."""

    key: Longs
    weight: Longs
    known: Flags
    rows: pa.RecordBatch

    def __len__(self) -> int:
        return len(self.key)


@dataclass(frozen=True)
class Side:
    """A side by its name and its rows' type: the row's own columns and those of the form."""

    name: str
    row: pa.StructType

    @property
    def columns(self) -> pa.Schema:
        """The row's own columns, without the keys'."""
        return pa.schema([self.row.field(name) for name in row_names(self._names)])

    @property
    def _names(self) -> list[str]:
        return [field.name for field in self.row]

    @property
    def _kept(self) -> pa.Schema:
        return pa.schema([*self.columns, *_MADE_OF])

    def delta(self, key: Longs, structs: pa.StructArray) -> Delta:
        """The rows of this side among those of a call: the ones that are not null."""
        mine = np.flatnonzero(np.asarray(structs.is_valid()))
        if len(mine) < len(structs):
            key, structs = key[mine], structs.take(pa.array(mine))
        cells = dict(zip(self._names, structs.flatten(), strict=True))
        versions = versions_of(cells[version_column(self._names)])
        counts, whose, which = versions.parts()
        own = [cells[name] for name in self.columns.names]
        rows = to_bytes(pa.RecordBatch.from_arrays([*own, counts, whose], schema=self._kept))
        alike = pa.array(np.zeros(len(key), np.int8))
        weight = cells[WEIGHT].fill_null(0)
        time = cells[TIME].cast(TIME_TYPE)
        columns = [alike, weight, time, rows, which, pa.array(versions.known)]
        log = pa.RecordBatch.from_arrays(columns, schema=LOG)
        return Delta(key, np.asarray(weight, np.int64), versions.known, log)

    def opened(self, log: pa.RecordBatch) -> tuple[pa.RecordBatch, Versions]:
        """The columns of rows of the log, and their versions."""
        rows = from_bytes(log.column("row"), self._kept)
        own = len(self.columns)
        versions = from_parts(rows.column(own), rows.column(own + 1), log.column("marks"))
        return rows.select(list(range(own))), versions


def read_some(state: State, table: str, wanted: Flags) -> Keyed:
    """What is kept of the keys that are wanted."""
    if not wanted.any():
        return Keyed(np.zeros(0, np.int64), no_rows(LOG))
    return state.read(table, None if wanted.all() else np.flatnonzero(wanted))
