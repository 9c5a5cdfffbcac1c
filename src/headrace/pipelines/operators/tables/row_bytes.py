"""Rows as bytes: equal bytes if and only if the rows are equal, and back again. Pure.

State that holds rows of any columns holds them so: one column of bytes is copied where levels are merged instead of a
dozen, and whether two rows are the same is asked of their bytes.
"""

import numpy as np
import pyarrow as pa

from headrace.pipelines.keyed.keys import Keys, decode, encode, is_comparable
from headrace.pipelines.keyed.operator import Longs
from headrace.pipelines.operators.errors import BadField

_MOST_BYTES = 2**31 - 1


def check_columns(schema: pa.Schema, what: str) -> None:
    """Refuse columns that have no bytes of their own to compare: maps, whose entries have no order."""
    for field in schema:
        if not is_comparable(field.type):
            raise BadField(
                f"{what} has a column {field.name!r} of type {field.type}, whose values cannot be "
                f"compared: write .withColumn({field.name!r}, to_json({field.name!r})) before it"
            )


def to_bytes(rows: pa.RecordBatch) -> pa.Array:
    """Each row's bytes."""
    made = encode(rows, np.zeros(rows.num_rows, np.int64))
    return as_binary(made.arena, made.ends)


def from_bytes(cells: pa.Array, schema: pa.Schema) -> pa.RecordBatch:
    """The rows of these columns that the bytes were made of."""
    arena, bounds = arena_of(cells)
    first = bounds[0] if len(bounds) else 0
    hashes = np.zeros(len(cells), np.int64)
    return decode(Keys(hashes, bounds[1:] - first, arena[first : bounds[-1]]), schema)


def as_binary(arena: "np.ndarray[tuple[int], np.dtype[np.uint8]]", ends: Longs) -> pa.Array:
    """Spans that lie one behind the other, as a column."""
    if len(arena) > _MOST_BYTES:
        raise OverflowError(f"{len(arena)} bytes in one column of one call: Arrow holds 2 GiB")
    bounds = np.zeros(len(ends) + 1, np.int32)
    bounds[1:] = ends
    return pa.Array.from_buffers(pa.binary(), len(ends), [None, pa.py_buffer(bounds), pa.py_buffer(arena)])


def arena_of(cells: pa.Array) -> tuple["np.ndarray[tuple[int], np.dtype[np.uint8]]", Longs]:
    """The bytes that cells lie in, and where each begins and the last ends."""
    _, bounds, data = cells.buffers()
    places = np.frombuffer(bounds, np.int32)[cells.offset : cells.offset + len(cells) + 1] if len(cells) else [0]
    # Copied, because what may be written to and what may not are two types to a compiled loop.
    arena = np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8).copy()
    return arena, np.asarray(places, np.int64)
