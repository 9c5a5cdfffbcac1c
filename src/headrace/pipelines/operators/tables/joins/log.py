"""One side of a join of tables: its rows and their versions as they are kept, and back. Pure.

A side's log has a row for each that came (`weight` +1) or went (-1). `row` are the bytes that say which row it is: its
columns, and of which tables and keys it is made; `marks` say which versions these were (`known`: all of them are
given), and `time` since when. A row has one version or, after a join, several: their cells lie one behind the other, so
whatever their number, a row's are a span of the cells of all.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.pipelines.keyed.keys import Keys, decode
from headrace.pipelines.keyed.operator import Keyed, Longs, State
from headrace.pipelines.keyed.run import no_rows
from headrace.pipelines.operators.tables.form import (
    TIME,
    TIME_TYPE,
    VERSION_TYPE,
    VERSIONS_TYPE,
    WEIGHT,
    row_names,
    version_column,
)
from headrace.pipelines.operators.tables.row_bytes import arena_of, as_binary, from_bytes, to_bytes

_WHOSE = pa.schema([("table", pa.string()), ("key", pa.string())])
_WHICH = pa.schema([("offset", pa.int64()), ("lsn", pa.string())])


@dataclass(frozen=True)
class Versions:
    """Row i has the versions from `bounds[i]` to `bounds[i + 1]` of `cells`, a batch of a version's four columns."""

    bounds: Longs
    cells: pa.RecordBatch

    def parts(self) -> tuple[pa.Array, pa.Array, pa.Array]:
        """How many each row has, whose they are, and which they are; the last two as bytes."""
        counts = pa.array(np.diff(self.bounds).astype(np.int32))
        return counts, self._bytes(_WHOSE), self._bytes(_WHICH)

    def _bytes(self, schema: pa.Schema) -> pa.Array:
        arena, ends = arena_of(to_bytes(self.cells.select(schema.names)))
        return as_binary(arena, ends[self.bounds[1:]])

    @property
    def known(self) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
        """Of which rows it is known which versions they are: none is without offset."""
        missing = np.concatenate([[0], np.cumsum(~np.asarray(self.cells.column("offset").is_valid()))])
        return np.asarray(missing[self.bounds[1:]] == missing[self.bounds[:-1]])


def versions_of(column: pa.Array) -> Versions:
    """Those of a column `_version` or `_versions`."""
    if pa.types.is_struct(column.type):
        return Versions(np.arange(len(column) + 1), _cells(column))
    bounds = np.asarray(column.offsets, np.int64) if len(column) else np.zeros(1, np.int64)
    # A list that is null may cover cells that are nobody's.
    if column.null_count:
        column = column.fill_null(pa.scalar([], column.type))
        bounds = np.asarray(column.offsets, np.int64)
    return Versions(bounds - bounds[0], _cells(column.values.slice(bounds[0], bounds[-1] - bounds[0])))


def from_parts(counts: pa.Array, whose: pa.Array, which: pa.Array) -> Versions:
    """The way back from `parts`."""
    bounds = np.concatenate([[0], np.cumsum(np.asarray(counts, np.int64))])
    columns = [*_read(whose, bounds, _WHOSE).columns, *_read(which, bounds, _WHICH).columns]
    return Versions(bounds, pa.RecordBatch.from_arrays(columns, names=[field.name for field in VERSION_TYPE]))


def beside(parts: list[tuple[Versions, Longs]], count: int) -> pa.Array:
    """A column `_versions` for `count` rows: from each part those of the row it names (-1: none), in their order."""
    lengths, begins, bases, base = [], [], [], 0
    for versions, rows in parts:
        there = rows >= 0
        at = np.where(there, rows, 0)
        bounds = versions.bounds if len(versions.bounds) > 1 else np.zeros(2, np.int64)
        lengths.append(np.where(there, bounds[at + 1] - bounds[at], 0))
        begins.append(bounds[at])
        bases.append(base)
        base += versions.cells.num_rows
    ends = np.zeros(count + 1, np.int32)
    ends[1:] = np.cumsum(np.sum(lengths, axis=0))
    index = np.empty(int(ends[-1]), np.int64)
    before = ends[:-1].astype(np.int64)
    for length, begin, shift in zip(lengths, begins, bases, strict=True):
        steps = np.arange(int(length.sum())) - np.repeat(np.cumsum(length) - length, length)
        index[np.repeat(before, length) + steps] = np.repeat(begin + shift, length) + steps
        before = before + length
    cells = pa.concat_batches([versions.cells for versions, _ in parts]).take(pa.array(index))
    structs = pa.StructArray.from_arrays(cells.columns, fields=list(VERSION_TYPE))
    return pa.Array.from_buffers(VERSIONS_TYPE, count, [None, pa.py_buffer(ends)], children=[structs])


def _cells(structs: pa.StructArray) -> pa.RecordBatch:
    names = [field.name for field in VERSION_TYPE]
    columns = [column.cast(field.type) for column, field in zip(structs.flatten(), VERSION_TYPE, strict=True)]
    return pa.RecordBatch.from_arrays(columns, names=names)


def _read(cells: pa.Array, bounds: Longs, schema: pa.Schema) -> pa.RecordBatch:
    """The versions in each row's bytes, one behind the other; only a join of joins has more than one.

    Read are the first of every row, then the second of those that have one, and so on.
    """
    counts = np.diff(bounds)
    if (counts == 1).all():
        return from_bytes(cells, schema)
    arena, places = arena_of(cells)
    at = places[:-1].copy()
    parts, whose = [], []
    for turn in range(int(counts.max(initial=0))):
        rows = np.flatnonzero(counts > turn)
        begins = at[rows]
        # Reading begins at each key's begin, wherever the one before it ended.
        ends = np.append(begins[1:], len(arena)) - begins[0]
        part = decode(Keys(np.zeros(len(rows), np.int64), ends, arena[begins[0] :]), schema)
        at[rows] = begins + _sizes(part)
        parts.append(part)
        whose.append(bounds[rows] + turn)
    if not parts:
        return pa.RecordBatch.from_pylist([], schema=schema)
    return pa.concat_batches(parts).take(pa.array(np.argsort(np.concatenate(whose))))


def _sizes(rows: pa.RecordBatch) -> Longs:
    """How many bytes each row took."""
    total = np.zeros(rows.num_rows, np.int64)
    for column in rows.columns:
        width = pc.binary_length(column).fill_null(0) if pa.types.is_string(column.type) else None
        sizes = 8 if width is None else 4 + np.asarray(width)
        total += 1 + np.asarray(column.is_valid()) * sizes
    return total


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
