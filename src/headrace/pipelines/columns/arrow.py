"""Arrow arrays from numpy columns and places in an arena, without a value passing through Python."""

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.pipelines.columns.records import RecordColumns
from headrace.pipelines.columns.walk import Bytes, Longs, count_headers, ends_of, gather, place_headers
from headrace.records import CorruptBatch

MICROSECONDS_UTC = pa.timestamp("us", tz="UTC")
_HEADER_FIELDS = [pa.field("key", pa.string()), pa.field("value", pa.binary())]
HEADERS = pa.list_(pa.field("element", pa.struct(_HEADER_FIELDS)))
_EMPTY = np.zeros(0, np.uint8)


def validity(is_valid: NDArray[np.bool_]) -> pa.Buffer | None:
    """Arrow's bitmap of which rows are not null; None when all are."""
    return None if is_valid.all() else pa.py_buffer(np.packbits(is_valid, bitorder="little"))


def fixed(kind: pa.DataType, values: NDArray[np.generic], is_valid: NDArray[np.bool_]) -> pa.Array:
    """Numbers (also times, dates) whose numpy layout is Arrow's own."""
    values = np.ascontiguousarray(values)
    return pa.Array.from_buffers(kind, len(values), [validity(is_valid), pa.py_buffer(values)])


def booleans(values: NDArray[np.bool_], is_valid: NDArray[np.bool_]) -> pa.Array:
    """Arrow keeps a bit for each."""
    bits = pa.py_buffer(np.packbits(values, bitorder="little"))
    return pa.Array.from_buffers(pa.bool_(), len(values), [validity(is_valid), bits])


def spans(kind: pa.DataType, arena: Bytes, at: Longs, sizes: Longs) -> pa.Array:
    """Binary or string values gathered from an arena; a size below 0 is null. Text is not checked here."""
    ends = np.empty(len(sizes) + 1, np.int32)
    total = int(sizes[sizes > 0].sum())
    if total > 2**31 - 1:
        raise OverflowError(f"{total} bytes in one column of one batch: Arrow holds 2 GiB")
    ends_of(sizes, ends)
    data = np.empty(total, np.uint8) if total else _EMPTY
    gather(arena, np.ascontiguousarray(at), ends, data)
    return pa.Array.from_buffers(kind, len(sizes), [validity(sizes >= 0), pa.py_buffer(ends), pa.py_buffer(data)])


def join_batches(batches: Iterable[pa.RecordBatch], size_bytes: int, rows: int = 2**62) -> Iterator[pa.RecordBatch]:
    """Batches put together until one has so many bytes or rows; those without rows are left out."""
    held: list[pa.RecordBatch] = []
    held_rows = held_bytes = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        held.append(batch)
        held_rows += batch.num_rows
        held_bytes += batch.nbytes
        if held_rows >= rows or held_bytes >= size_bytes:
            yield held[0] if len(held) == 1 else pa.concat_batches(held)
            held, held_rows, held_bytes = [], 0, 0
    if held:
        yield held[0] if len(held) == 1 else pa.concat_batches(held)


def replace_rows(column: pa.Array, rows: NDArray[np.intp], values: pa.Array) -> pa.Array:
    """The column with other values in these rows, in order; `replace_with_mask` does not know every type."""
    places = np.arange(len(column))
    places[rows] = len(column) + np.arange(len(values))
    return pa.concat_arrays([column, values]).take(pa.array(places))


def utf8(values: pa.BinaryArray) -> pa.StringArray:
    """Binary values as text; raises `pyarrow.ArrowInvalid` if one of them is not valid UTF-8."""
    return values.cast(pa.string())


def _names(values: pa.BinaryArray) -> pa.StringArray:
    """Headers' names as text. Kafka looks into none, so one may be no UTF-8: it is shown as Java would show it."""
    try:
        return utf8(values)
    except pa.ArrowInvalid:
        return pa.array([value.as_py().decode(errors="replace") for value in values], pa.string())


def headers(columns: RecordColumns) -> pa.ListArray:
    """Each record's headers as Spark's Kafka source shows them: a list of (key, value), null where there are none."""
    rows = len(columns)
    counts = np.zeros(rows, np.int64)
    at, end = np.ascontiguousarray(columns.headers_at), np.ascontiguousarray(columns.end)
    total = count_headers(columns.arena, at, end, counts)
    if total < 0:
        raise CorruptBatch("a record's headers do not add up", -1 - total)
    places = np.empty((4, total), np.int64)
    place_headers(columns.arena, at, end, places)
    names = _names(spans(pa.binary(), columns.arena, places[0], places[1]))
    values = spans(pa.binary(), columns.arena, places[2], places[3])
    pairs = pa.StructArray.from_arrays([names, values], fields=_HEADER_FIELDS)
    ends = np.zeros(rows + 1, np.int32)
    np.cumsum(counts, out=ends[1:])
    buffers = [validity(counts > 0), pa.py_buffer(ends)]
    return pa.Array.from_buffers(HEADERS, rows, buffers, children=[pairs])
