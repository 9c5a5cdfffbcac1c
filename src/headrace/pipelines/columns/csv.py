"""CSV values, a line each, to columns by Arrow's reader: one call for all records, and more only to find broken ones.

The reader sees only values that are one row of the right number of fields each, which `walk_lines` has checked; so
rows cannot run into each other. Times and decimals are read as in JSON: times as ISO 8601, in UTC if no zone is given.
Binary is the bytes as they stand.

A quote is one only where a field begins; inside quotes it is doubled. What follows a closing quote up to the delimiter
belongs to the field, as Arrow's reader has it.
"""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv
from numpy.typing import NDArray

from headrace.jit import compiled
from headrace.pipelines.columns.arrow import fixed, replace_rows
from headrace.pipelines.columns.decimals import decimals_from_text
from headrace.pipelines.columns.decoding import Decoded
from headrace.pipelines.columns.json_exact import DoesNotFit, convert
from headrace.pipelines.columns.json_values import times_at
from headrace.pipelines.columns.records import RecordColumns
from headrace.pipelines.columns.walk import Bytes, Longs

Rows = NDArray[np.intp]


class CsvDecoder:
    """Reads one row of CSV per record, its fields in the order of the schema."""

    def __init__(self, schema: pa.Schema, *, delimiter: str = ",", quote: str = '"', null_text: str = "") -> None:
        self._schema = schema
        self._delimiter = delimiter
        self._quote = quote
        self._null_text = null_text
        self._own = {kind for kind in schema.types if pa.types.is_timestamp(kind) or pa.types.is_decimal(kind)}
        self._read_as = {field.name: pa.string() if field.type in self._own else field.type for field in schema}
        self._parsing = {
            breaks: arrow_csv.ParseOptions(
                delimiter=delimiter, quote_char=quote, newlines_in_values=breaks, ignore_empty_lines=False
            )
            for breaks in (False, True)
        }

    def decode(self, records: RecordColumns) -> Decoded:
        """The fields of every record's line."""
        at, size = np.ascontiguousarray(records.value_at), np.ascontiguousarray(records.value_size)
        count, width = len(at), len(self._schema)
        sizes, counts, fault = np.empty_like(at), np.zeros_like(at), np.zeros(count, np.uint8)
        breaks = walk_lines(
            records.arena, at, size, ord(self._delimiter), ord(self._quote), width, sizes, counts, fault
        )
        broken: dict[int, str] = {}
        for row in np.flatnonzero(fault != FINE).tolist():
            broken[row] = self._reason(int(fault[row]), int(counts[row]))
        lines = _Lines(records.arena, at, sizes, breaks)
        rows = np.flatnonzero((fault == FINE) & (size >= 0))
        tables = self._tables(lines, rows, broken) if len(rows) else []
        read = np.array([row for part, _ in tables for row in part.tolist()], np.int64)
        columns = [
            _place([table[index] for _, table in tables], read, count, field.type)
            for index, field in enumerate(self._schema)
        ]
        return Decoded(columns, broken)

    def _reason(self, fault: int, count: int) -> str:
        if fault == OPEN_QUOTE:
            return "a quote is not closed"
        if fault == LINE_BREAK:
            return "the value is more than one line: a line break must stand inside quotes"
        assert fault == FIELDS
        return f"the line has {count} field{'s' * (count != 1)}, the schema {len(self._schema)}"

    def _tables(self, lines: "_Lines", rows: Rows, broken: dict[int, str]) -> list[tuple[Rows, list[pa.Array]]]:
        """The columns of all these rows but the broken ones, which are found by halving."""
        try:
            return [(rows, self._columns(lines, rows))]
        except (pa.ArrowInvalid, DoesNotFit) as error:
            if len(rows) == 1:
                broken[int(rows[0])] = self._why(lines, rows, error)
                return []
        half = len(rows) // 2
        return self._tables(lines, rows[:half], broken) + self._tables(lines, rows[half:], broken)

    def _columns(self, lines: "_Lines", rows: Rows) -> list[pa.Array]:
        table = self._parse(lines, rows, self._read_as)
        return [
            _convert(array, field) if field.type in self._own else array
            for array, field in zip(table, self._schema, strict=True)
        ]

    def _parse(self, lines: "_Lines", rows: Rows, kinds: dict[str, pa.DataType]) -> list[pa.Array]:
        data = lines.of(rows)
        table = arrow_csv.read_csv(
            pa.BufferReader(data),
            read_options=arrow_csv.ReadOptions(
                column_names=self._schema.names, use_threads=False, block_size=max(data.size, 1)
            ),
            parse_options=self._parsing[lines.has_breaks],
            convert_options=arrow_csv.ConvertOptions(
                column_types=kinds,
                null_values=[self._null_text],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
                true_values=["true", "True", "TRUE", "1"],
                false_values=["false", "False", "FALSE", "0"],
            ),
        )
        if len(table) != len(rows):
            raise pa.ArrowInvalid(f"{len(rows)} lines were read as {len(table)} rows")
        return [column.combine_chunks() for column in table.columns]

    def _why(self, lines: "_Lines", row: Rows, error: Exception) -> str:
        """Which field of a row is at fault: all are read as bytes, and converted one at a time."""
        if isinstance(error, DoesNotFit):
            return str(error)
        raw = self._parse(lines, row, dict.fromkeys(self._schema.names, pa.binary()))
        for index, field in enumerate(self._schema):
            kinds = dict.fromkeys(self._schema.names, pa.binary()) | {field.name: self._read_as[field.name]}
            try:
                self._parse(lines, row, kinds)
            except pa.ArrowInvalid:
                found = raw[index][0].as_py() or b""
                shown = found[:20].decode(errors="replace") + ("…" if len(found) > 20 else "")
                return f"field {field.name!r} is {shown!r}, which is not {_words(field.type)}"
        return f"the line does not convert ({error})"


class _Lines:
    """Rows of CSV over an arena, each without its line's end."""

    def __init__(self, arena: Bytes, at: Longs, sizes: Longs, has_breaks: bool) -> None:
        self._arena, self._at, self._sizes = arena, at, sizes
        self.has_breaks = has_breaks

    def of(self, rows: Rows) -> pa.Buffer:
        """These rows as one text."""
        out = np.empty(int(self._sizes[rows].sum()) + len(rows), np.uint8)
        gather_lines(self._arena, self._at, self._sizes, rows, out)
        return pa.py_buffer(out)


def _words(kind: pa.DataType) -> str:
    return "UTF-8" if pa.types.is_string(kind) else str(kind)


def _convert(texts: pa.StringArray, field: pa.Field) -> pa.Array:
    """Times or decimals from their text; the few forms that the compiled readers do not know by the exact one."""
    if pa.types.is_timestamp(field.type):
        return _times(texts, field)
    read, unread = decimals_from_text(texts, field.type)
    if not len(unread):
        return read
    values = [convert(texts[row].as_py(), None, field.type, field.name) for row in unread.tolist()]
    return replace_rows(read, unread, pa.array(values, field.type))


def _times(texts: pa.StringArray, field: pa.Field) -> pa.Array:
    there = ~texts.is_null().to_numpy(zero_copy_only=False)
    ends = np.frombuffer(texts.buffers()[1], np.int32)[texts.offset : texts.offset + len(texts) + 1]
    data = texts.buffers()[2]
    values, good = np.zeros(len(texts), np.int64), np.zeros(len(texts), np.bool_)
    times_at(np.frombuffer(data if data is not None and data.size else b"\0", np.uint8), ends, values, good)
    for row in np.flatnonzero(there & ~good).tolist():
        values[row] = convert(texts[row].as_py(), None, field.type, field.name)
    return fixed(field.type, values, there)


def _place(parts: list[pa.Array], rows: NDArray[np.int64], count: int, kind: pa.DataType) -> pa.Array:
    """What was read, each value in its own row, null in every other."""
    if len(parts) == 1 and len(rows) == count:
        return parts[0]
    if not parts:
        return pa.nulls(count, kind)
    places: Any = np.full(count, -1, np.int64)
    places[rows] = np.arange(len(rows))
    return pa.concat_arrays(parts).take(pa.array(places, mask=places < 0))


FINE, OPEN_QUOTE, LINE_BREAK, FIELDS = range(4)
_LF, _CR = 0x0A, 0x0D


@compiled
def walk_lines(
    arena: Bytes, value_at: Longs, value_size: Longs, delimiter: int, quote: int, fields: int,
    sizes: Longs, counts: Longs, fault: Bytes,
) -> bool:  # fmt: skip
    """Each row's size without its line's end, its number of fields, and its fault; whether one holds a line break."""
    has_breaks = False
    for row in range(value_at.shape[0]):
        sizes[row] = value_size[row]
        if value_size[row] < 0:
            continue
        at = value_at[row]
        end = at + value_size[row]
        if end > at and arena[end - 1] == _LF:
            end -= 1
        if end > at and arena[end - 1] == _CR:
            end -= 1
        sizes[row] = end - at
        count = 1
        begins = True
        quoted = False
        code = FINE
        while at < end:
            byte = arena[at]
            if quoted:
                if byte == quote:
                    if at + 1 < end and arena[at + 1] == quote:
                        at += 1
                    else:
                        quoted = False
                elif byte in (_LF, _CR):
                    has_breaks = True
            elif byte == quote and begins:
                quoted = True
                begins = False
            elif byte == delimiter:
                count += 1
                begins = True
            else:
                begins = False
                if byte in (_LF, _CR):
                    code = LINE_BREAK
            at += 1
        if quoted:
            code = OPEN_QUOTE
        elif code == FINE and count != fields:
            code = FIELDS
        fault[row] = code
        counts[row] = count
    return has_breaks


@compiled
def gather_lines(arena: Bytes, at: Longs, sizes: Longs, rows: NDArray[np.intp], out: Bytes) -> int:
    """Copy these rows one behind the other, a line break behind each; the bytes written."""
    to = 0
    for row in rows:
        start = at[row]
        for step in range(sizes[row]):
            out[to + step] = arena[start + step]
        to += sizes[row]
        out[to] = _LF
        to += 1
    return to
