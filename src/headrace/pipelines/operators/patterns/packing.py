"""Partial matches of a key in one row: whatever tables a pattern keeps, as whole numbers and texts.

A pattern keeps several tables of its own columns (runs, the rows that they took, values of those rows). Each a table of
keyed state would be looked up and written for every key by itself, and patterns that come and go while a query runs
have others each time. So all that is kept of one key is two lists. `longs` begins with how many rows each table has,
the complement of that if some cells are null; then come the rows, cell by cell, behind each row masks of its nulls
where there are any: one for each 63 columns. `texts` has the cells that are not numbers. All keys are packed and
unpacked together.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.pipelines.errors import BadOption
from headrace.pipelines.operators.grouping import Longs

LONGS: Final = pa.list_(pa.int64())
TEXTS: Final = pa.list_(pa.binary())
_BITS: Final = 63
Tables = Mapping[str, tuple[Longs, pa.RecordBatch]]
"""By its name each table: whose each row is, rising, and the rows."""


@dataclass(frozen=True)
class Packed:
    """The keys of which something is kept, by number, and what."""

    keys: Longs
    longs: pa.ListArray
    texts: pa.ListArray


@dataclass(frozen=True)
class _Table:
    """The cells of a table's rows: columns as so many whole numbers, and those that are texts."""

    name: str
    schema: pa.Schema

    @cached_property
    def numbers(self) -> list[tuple[int, int]]:
        """Columns with how many whole numbers each cell takes."""
        widths = [_width(field) for field in self.schema]
        return [(place, width) for place, width in enumerate(widths) if width]

    @cached_property
    def width(self) -> int:
        return sum(width for _, width in self.numbers)

    @cached_property
    def masks(self) -> int:
        """How many whole numbers tell which cells of a row are null."""
        return -(-len(self.schema) // _BITS)

    @cached_property
    def texts(self) -> list[int]:
        return [place for place, field in enumerate(self.schema) if not _width(field)]


class Layout:
    """How the tables of one pattern are packed."""

    def __init__(self, tables: Mapping[str, pa.Schema]) -> None:
        self._tables = [_Table(name, tables[name]) for name in sorted(tables)]

    def pack(self, given: Tables, count: int) -> Packed:
        """What is kept of `count` keys."""
        heads = len(self._tables)
        counts = np.zeros((heads, count), np.int64)
        has_null = np.zeros((heads, count), np.bool_)
        masks: list[NDArray[np.int64] | None] = []
        for place, table in enumerate(self._tables):
            key, rows = given[table.name]
            counts[place] = np.bincount(key, minlength=count)
            masks.append(mask := _null_mask(table, rows))
            if mask is not None:
                has_null[place, key[mask.any(axis=1)]] = True
        owners = np.flatnonzero(counts.any(axis=0))
        numbers_of_masks = np.array([table.masks for table in self._tables])[:, None]
        widths = np.array([table.width for table in self._tables])[:, None] + has_null * numbers_of_masks
        longs, long_ends = _placed(heads + (counts * widths).sum(axis=0), owners)
        text_widths = np.array([len(table.texts) for table in self._tables])[:, None]
        _, text_ends = _placed((counts * text_widths).sum(axis=0), owners)
        at = np.zeros(count, np.int64)
        at[owners] = np.append(0, long_ends[:-1]) if len(owners) else at[owners]
        for place in range(heads):
            longs[at[owners] + place] = np.where(has_null[place], ~counts[place], counts[place])[owners]
        at += heads
        text_at = np.zeros(count, np.int64)
        text_at[owners] = np.append(0, text_ends[:-1]) if len(owners) else text_at[owners]
        texts, text_places = [], []
        for place, table in enumerate(self._tables):
            key, rows = given[table.name]
            turn = _turns(key, counts[place])
            spots = at[key] + turn * widths[place][key]
            for column, width in table.numbers:
                cells = _to_longs(rows.column(column), width)
                for part in range(width):
                    longs[spots] = cells[part::width]
                    spots = spots + 1
            if (mask := masks[place]) is not None:
                some = has_null[place][key]
                for part in range(table.masks):
                    longs[spots[some] + part] = mask[some, part]
            at += counts[place] * widths[place]
            for number, column in enumerate(table.texts):
                texts.append(rows.column(column).cast(pa.binary()))
                text_places.append(text_at[key] + turn * len(table.texts) + number)
            text_at += counts[place] * len(table.texts)
        order = np.argsort(np.concatenate(text_places)) if texts else np.zeros(0, np.int64)
        cells = pa.concat_arrays(texts).take(pa.array(order)) if texts else pa.array([], pa.binary())
        return Packed(owners, _lists(long_ends, pa.array(longs)), _lists(text_ends, cells))

    def unpack(self, packed: Packed) -> Tables:
        """The way back; the keys rise."""
        count = len(packed.keys)
        heads = len(self._tables)
        longs, at = _flat(packed.longs)
        texts, text_at = packed.texts.flatten(), _flat_begins(packed.texts)
        begins, at = at, at + heads
        found: dict[str, tuple[Longs, pa.RecordBatch]] = {}
        for place, table in enumerate(self._tables):
            counts = longs[begins + place] if count else np.zeros(0, np.int64)
            has_null = counts < 0
            counts = np.where(has_null, ~counts, counts)
            widths = table.width + has_null * table.masks
            whose = np.repeat(np.arange(count), counts)
            turn = _turns(whose, counts)
            spots = at[whose] + turn * widths[whose]
            mask = None
            if has_null.any():
                mask = np.zeros((len(whose), table.masks), np.int64)
                some = has_null[whose]
                for part in range(table.masks):
                    mask[some, part] = longs[spots[some] + table.width + part]
            columns: list[Any] = [None] * len(table.schema)
            for column, width in table.numbers:
                cells = np.empty(len(spots) * width, np.int64)
                for part in range(width):
                    cells[part::width] = longs[spots]
                    spots = spots + 1
                nulls = None if mask is None else (mask[:, column // _BITS] >> column % _BITS & 1).astype(np.bool_)
                columns[column] = _from_longs(cells, table.schema.field(column).type, nulls)
            for number, column in enumerate(table.texts):
                places = text_at[whose] + turn * len(table.texts) + number
                columns[column] = texts.take(pa.array(places)).cast(table.schema.field(column).type)
            at = at + counts * widths
            text_at = text_at + counts * len(table.texts)
            found[table.name] = packed.keys[whose], pa.RecordBatch.from_arrays(columns, schema=table.schema)
        return found


def _placed(sizes: Longs, owners: Longs) -> tuple[Longs, Longs]:
    ends = np.cumsum(sizes[owners])
    return np.empty(int(ends[-1]) if len(ends) else 0, np.int64), ends


def _turns(key: Longs, counts: Longs) -> Longs:
    """Which row of its key each is; keys rise."""
    return np.arange(len(key)) - np.repeat(np.cumsum(counts) - counts, counts)


def _lists(ends: Longs, cells: pa.Array) -> pa.ListArray:
    return pa.ListArray.from_arrays(pa.array(np.append(0, ends).astype(np.int32)), cells)


def _flat(lists: pa.ListArray) -> tuple[Longs, Longs]:
    return np.asarray(lists.flatten()), _flat_begins(lists)


def _flat_begins(lists: pa.ListArray) -> Longs:
    offsets = np.asarray(lists.offsets, np.int64)
    return offsets[:-1] - offsets[0] if len(offsets) else np.zeros(0, np.int64)


# --- cells as whole numbers


def _width(field: pa.Field) -> int:
    """How many whole numbers a cell takes; 0 if it is a text."""
    kind = field.type
    if any(test(kind) for test in _TEXTUAL):
        return 0
    if pa.types.is_decimal128(kind):
        return 2
    if not pa.types.is_primitive(kind):
        raise BadOption(f"a pattern keeps values of type {kind}, which is unsupported: look at a part of it")
    return 1


_TEXTUAL: Final = (pa.types.is_string, pa.types.is_binary, pa.types.is_large_string, pa.types.is_large_binary)


def _null_mask(table: _Table, rows: pa.RecordBatch) -> NDArray[np.int64] | None:
    """The numbers' columns that are null, as bits, of each row as many masks as it takes; None if none is."""
    found: NDArray[np.int64] | None = None
    for column, _ in table.numbers:
        if rows.column(column).null_count:
            if found is None:
                found = np.zeros((len(rows), table.masks), np.int64)
            bits = np.asarray(rows.column(column).is_null()).astype(np.int64)
            found[:, column // _BITS] |= bits << column % _BITS
    return found


def _to_longs(column: pa.Array, width: int) -> Longs:
    kind = column.type
    if width == 2:
        data = np.frombuffer(column.buffers()[1], np.int64) if len(column) else np.zeros(0, np.int64)
        return data[2 * column.offset : 2 * (column.offset + len(column))]
    if pa.types.is_boolean(kind):
        return np.asarray(column.cast(pa.int8()).fill_null(0)).astype(np.int64)
    if pa.types.is_floating(kind):
        return np.ascontiguousarray(column.cast(pa.float64()).fill_null(0.0).to_numpy()).view(np.int64)
    if pa.types.is_uint64(kind):
        return np.ascontiguousarray(column.fill_null(0).to_numpy()).view(np.int64)
    plain = column if pa.types.is_integer(kind) else column.view(pa.int64() if kind.bit_width == 64 else pa.int32())
    return np.asarray(plain.fill_null(0)).astype(np.int64, copy=False)


def _from_longs(cells: Longs, kind: pa.DataType, nulls: NDArray[np.bool_] | None) -> pa.Array:
    if pa.types.is_decimal128(kind):
        valid = None if nulls is None else pa.array(~nulls).buffers()[1]
        return pa.Array.from_buffers(kind, len(cells) // 2, [valid, pa.py_buffer(cells)])
    if pa.types.is_boolean(kind):
        return pa.array(cells != 0, kind, mask=nulls)
    if pa.types.is_floating(kind):
        return pa.array(cells.view(np.float64), pa.float64(), mask=nulls).cast(kind)
    if pa.types.is_uint64(kind):
        return pa.array(cells.view(np.uint64), kind, mask=nulls)
    if pa.types.is_integer(kind):
        return pa.array(cells, pa.int64(), mask=nulls).cast(kind)
    narrow = pa.int64() if kind.bit_width == 64 else pa.int32()
    return pa.array(cells, pa.int64(), mask=nulls).cast(narrow).view(kind)
