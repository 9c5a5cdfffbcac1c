"""What a match looks like in the output: columns made for all matches of a call together. Pure.

A pattern in Python gives its matches as an array of rows for each variable; one in SQL what MATCH_RECOGNIZE says, a row
with the measures or every row with them; several patterns in one pass share one form. Whatever the form, every match
says when it was known (`match_time`), from when until when its rows are, and which records it is made of.
"""

from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
import pyarrow as pa

from headrace.cep.columnar import ColumnarProgram, Found
from headrace.pipelines.operators.grouping import Longs
from headrace.pipelines.operators.times import TIMESTAMP, timestamps

START, END, KNOWN = "match_start", "match_end", "match_time"
TIMED_OUT: Final = "timed_out"
ROWS: Final = "match_rows"
PATTERN, VERSION, MEASURES = "pattern", "version", "measures"
VARIABLE: Final = "variable"
COORDINATES: Final = ("topic", "partition", "offset")
"""Where a record is, as the source says it; where the value is decoded, with `_` in front."""


@dataclass(frozen=True)
class Taken:
    """The rows that matches of a call are made of, each once: numbers rise."""

    numbers: Longs
    at_us: Longs
    carried: pa.RecordBatch

    def places(self, numbers: Longs) -> Longs:
        return np.searchsorted(self.numbers, numbers)


@dataclass(frozen=True)
class Named:
    """What the output calls the pattern, where there are several."""

    name: str = ""
    version: str | None = None
    state: str = "running"
    problem: str | None = None
    text: str | None = None
    """As it came from a topic."""


UNNAMED: Final = Named()


class Shape(Protocol):
    """The output's columns behind the keys', and how they are made."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The rows' columns that have to be kept for it."""
        ...

    def fields(self) -> list[pa.Field]: ...

    def show(
        self, program: ColumnarProgram, found: Found, taken: Taken, called: Named, *, timed_out: bool
    ) -> tuple[Longs, list[pa.Array]]:
        """The matches, or with `timed_out` the partial ones: whose each row is, and a column for each field."""
        ...


def coordinates(rows: pa.Schema) -> tuple[str, ...]:
    """The columns of rows that say where a record is; an `offset` that is no whole number is one of the user's own."""
    for prefix in ("", "_"):
        topic, *places = (f"{prefix}{name}" for name in COORDINATES)
        found = [name for name in places if _is_whole(rows, name)]
        if places[-1] in found:
            return (*([topic] if topic in rows.names else []), *found)
    return ()


def ties_of(rows: pa.Schema) -> tuple[str, ...]:
    """What puts rows with equal times in order: partition and offset, as far as there are columns of them."""
    return tuple(name for name in coordinates(rows) if _is_whole(rows, name))


def _is_whole(rows: pa.Schema, name: str) -> bool:
    return name in rows.names and pa.types.is_integer(rows.field(name).type)


@dataclass(frozen=True)
class _About:
    """The columns that every form has."""

    marks_timed_out: bool

    def fields(self) -> list[pa.Field]:
        marked = [pa.field(TIMED_OUT, pa.bool_())] if self.marks_timed_out else []
        return [*(pa.field(name, TIMESTAMP) for name in (START, END, KNOWN)), *marked]

    def arrays(self, found: Found, taken: Taken, *, timed_out: bool) -> list[pa.Array]:
        begins = np.append(0, found.ends[:-1])
        first, last = (taken.at_us[taken.places(found.rows[at])] for at in (begins, found.ends - 1))
        marked = [pa.array(np.full(len(found), timed_out))] if self.marks_timed_out else []
        return [timestamps(first), timestamps(last), timestamps(found.times_us), *marked]


@dataclass(frozen=True)
class ByVariable:
    """A pattern in Python: for each variable its rows."""

    variables: tuple[str, ...]
    row: pa.Schema
    marks_timed_out: bool = False

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(self.row.names)

    def fields(self) -> list[pa.Field]:
        kind = pa.list_(pa.struct(list(self.row)))
        return [*_About(self.marks_timed_out).fields(), *(pa.field(name, kind) for name in self.variables)]

    def show(
        self, program: ColumnarProgram, found: Found, taken: Taken, called: Named, *, timed_out: bool
    ) -> tuple[Longs, list[pa.Array]]:
        whose = np.repeat(np.arange(len(found)), np.diff(found.ends, prepend=0))
        arrays = _About(self.marks_timed_out).arrays(found, taken, timed_out=timed_out)
        numbers = {name: number for number, name in enumerate(program.variables)}
        for name in self.variables:
            mine = np.flatnonzero(found.variables == numbers[name])
            arrays.append(_lists(whose[mine], len(found), _structs(taken, found.rows[mine], self.row)))
        return found.keys, arrays


@dataclass(frozen=True)
class OneRow:
    """`ONE ROW PER MATCH`: the measures, and where the records are."""

    measures: pa.Schema
    where: pa.Schema
    marks_timed_out: bool = False

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(self.where.names)

    def fields(self) -> list[pa.Field]:
        rows = pa.field(ROWS, pa.list_(pa.struct([pa.field(VARIABLE, pa.string()), *self.where])))
        return [*self.measures, *_About(self.marks_timed_out).fields(), rows]

    def show(
        self, program: ColumnarProgram, found: Found, taken: Taken, called: Named, *, timed_out: bool
    ) -> tuple[Longs, list[pa.Array]]:
        shown = program.output(found)
        rows = _rows_with_variables(program, found, taken, self.where)
        about = _About(self.marks_timed_out).arrays(found, taken, timed_out=timed_out)
        return found.keys[shown.matches], [
            *shown.measures.columns,
            *(column.take(pa.array(shown.matches)) for column in (*about, rows)),
        ]


@dataclass(frozen=True)
class AllRows:
    """`ALL ROWS PER MATCH`: each row with the measures."""

    row: pa.Schema
    measures: pa.Schema
    marks_timed_out: bool = False

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(self.row.names)

    def fields(self) -> list[pa.Field]:
        return [*self.row, *self.measures, *_About(self.marks_timed_out).fields()]

    def show(
        self, program: ColumnarProgram, found: Found, taken: Taken, called: Named, *, timed_out: bool
    ) -> tuple[Longs, list[pa.Array]]:
        shown = program.output(found)
        about = _About(self.marks_timed_out).arrays(found, taken, timed_out=timed_out)
        rows = taken.carried.select(self.row.names).take(pa.array(taken.places(shown.rows)))
        return found.keys[shown.matches], [
            *rows.columns,
            *shown.measures.columns,
            *(column.take(pa.array(shown.matches)) for column in about),
        ]


@dataclass(frozen=True)
class Several:
    """Several patterns: the name of the one that matched, its rows each with its variable, its measures as texts."""

    row: pa.Schema
    has_versions: bool = False
    marks_timed_out: bool = False

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(self.row.names)

    def fields(self) -> list[pa.Field]:
        names = [pa.field(PATTERN, pa.string()), *([pa.field(VERSION, pa.string())] if self.has_versions else [])]
        rows = pa.field(ROWS, pa.list_(pa.struct([pa.field(VARIABLE, pa.string()), *self.row])))
        measures = pa.field(MEASURES, pa.map_(pa.string(), pa.string()))
        return [*names, *_About(self.marks_timed_out).fields(), rows, measures]

    def show(
        self, program: ColumnarProgram, found: Found, taken: Taken, called: Named, *, timed_out: bool
    ) -> tuple[Longs, list[pa.Array]]:
        count = len(found)
        names = [pa.repeat(pa.scalar(called.name), count)]
        if self.has_versions:
            names.append(pa.repeat(pa.scalar(called.version, pa.string()), count))
        about = _About(self.marks_timed_out).arrays(found, taken, timed_out=timed_out)
        rows = _rows_with_variables(program, found, taken, self.row)
        return found.keys, [*names, *about, rows, self._measures(program, found)]

    def _measures(self, program: ColumnarProgram, found: Found) -> pa.Array:
        """One entry a match, whatever the pattern says of rows: with ALL ROWS what the last one shows."""
        columns = list(program.output_schema.names)
        count, width = len(found), len(columns)
        if not width:
            offsets = pa.array(np.zeros(count + 1, np.int32))
            return pa.MapArray.from_arrays(offsets, pa.array([], pa.string()), pa.array([], pa.string()))
        shown = program.output(found)
        last = np.full(count, -1, np.int64)
        last[shown.matches] = np.arange(len(shown.matches))  # of several the last stays
        texts = [pa.array(column.cast(pa.string())) for column in shown.measures.columns]
        # Column by column, and then match by match.
        order = (np.arange(width)[None, :] * len(shown.matches) + last[:, None]).ravel()
        is_there = np.repeat(last >= 0, width)
        cells = pa.concat_arrays(texts).take(pa.array(order, mask=~is_there))
        keys = pa.array(columns * count, pa.string())
        return pa.MapArray.from_arrays(pa.array(np.arange(count + 1, dtype=np.int32) * width), keys, cells)


def _rows_with_variables(program: ColumnarProgram, found: Found, taken: Taken, row: pa.Schema) -> pa.Array:
    whose = np.repeat(np.arange(len(found)), np.diff(found.ends, prepend=0))
    names = pa.array(list(program.variables), pa.string()).take(pa.array(found.variables))
    places = pa.array(taken.places(found.rows))
    columns = [taken.carried.column(name).take(places) for name in row.names]
    fields = [pa.field(VARIABLE, pa.string()), *row]
    return _lists(whose, len(found), pa.StructArray.from_arrays([names, *columns], fields=fields))


def _structs(taken: Taken, numbers: Longs, row: pa.Schema) -> pa.Array:
    rows = taken.carried.select(row.names).take(pa.array(taken.places(numbers)))
    return pa.StructArray.from_arrays(rows.columns, fields=list(row))


def _lists(whose: Longs, count: int, cells: pa.Array) -> pa.Array:
    offsets = np.append(0, np.cumsum(np.bincount(whose, minlength=count))).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), cells)
