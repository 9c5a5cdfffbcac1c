"""Rows on their way to their bucket and back, many in one cell of bytes.

Spark hands rows to a stateful function in Python one by one, which costs more than all the work on them. So what it
shuffles, sorts and hands over here is one row for each bucket and input task; the rows travel inside as Arrow columns.

Spark puts a row into the partition that the hash of its grouping key names. Of the keys 0 … 7 two partitions get three
and five, so one task would work nearly twice as long as the other. Hence bucket i goes by a number whose hash is i
modulo `_EVEN`: with as many partitions as divide that (1 to 8, 10, 12, …), each gets as many buckets as the next, give
or take one. What is beyond that many buckets evens out by itself.
"""

import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import count
from typing import IO

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.pipelines.columns.arrow import join_batches
from headrace.pipelines.keyed.layout import rows_from_bytes, rows_to_bytes, write_rows
from headrace.pipelines.keyed.operator import Longs

HASH = "headrace_key_hash"
Prepare = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
PACKED = pa.schema([pa.field("bucket", pa.int32()), pa.field("packed", pa.binary())])
PACKED_DDL = "bucket int, packed binary"
EMITTED_DDL = "packed binary"
_numbers = count(1)
# What a task holds before it sends: enough that a cell has some thousand rows, and little beside a worker's own size.
_ROWS = 1 << 18
_BYTES = 64 << 20
_MOST_BYTES = 2**31 - 1


def pack(
    buckets: int, schema: pa.Schema, to_all: str | None = None, prepare: Prepare | None = None
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """For `mapInArrow`: rows of `schema`, each with its key's hash in `HASH` behind, as one cell for each bucket.

    Rows in which the column `to_all` is set go to all buckets. What comes is those rows, or what `prepare` makes them
    of.
    """

    def packed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for rows in join_batches(batches if prepare is None else prepare(batches), _BYTES, _ROWS):
            yield _in_buckets(_with_types(rows, schema), buckets, to_all)

    # No two are equal. Where two operators of a query shuffle equal rows, Spark does it once, and finds no watermark on
    # the way from the second one to its input: it would never be woken.
    packed.__qualname__ = f"packed {next(_numbers)}"
    return packed


def unpack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """For `mapInArrow`: the rows that lie in the cells."""
    for batch in batches:
        for cell in batch.column(0):
            yield rows_from_bytes(cell.as_buffer())


def emit_cells(rows: pa.RecordBatch) -> Iterator[bytes]:
    """Rows as cells of a size that Arrow and Spark hold with ease."""
    step = max(1, rows.num_rows * _BYTES // max(rows.nbytes, 1))
    for at in range(0, rows.num_rows, step):
        yield rows_to_bytes(rows.slice(at, step)).to_pybytes()


def open_cells(cells: Iterable[bytes], limit: int, most: int | None = None) -> Iterator[tuple[Longs, pa.RecordBatch]]:
    """The hashes and the rows of cells, at most about `limit` rows together; never more than `most`."""
    for rows in join_batches(
        (_with_empty(rows_from_bytes(cell)) for cell in cells), 4 * _BYTES, min(limit, most or limit)
    ):
        for at in range(0, rows.num_rows, most or rows.num_rows):
            yield _without_hashes(rows.slice(at, most or rows.num_rows))


def _without_hashes(rows: pa.RecordBatch) -> tuple[Longs, pa.RecordBatch]:
    place = rows.schema.get_field_index(HASH)
    hashes = np.asarray(rows.column(place).to_numpy(), np.int64)
    return hashes, rows.select([index for index in range(rows.num_columns) if index != place])


def first_for_all(
    cells: Iterable[bytes], to_all: str, order: Sequence[str]
) -> Iterator[tuple[Longs, pa.RecordBatch] | Iterator[bytes]]:
    """Of cells the rows for all keys, in order, if there are any; and then the cells of the others.

    Which cells have rows for all is known only when all are read: the others wait, in a file if they are many.
    """
    found: list[pa.RecordBatch] = []
    with tempfile.SpooledTemporaryFile(_BYTES) as held:
        for cell in cells:
            rows = rows_from_bytes(cell)
            flags = flags_of(rows, to_all)
            if flags.any():
                found.append(_with_empty(rows.take(pa.array(np.flatnonzero(flags)))))
                cell = rows_to_bytes(rows.take(pa.array(np.flatnonzero(~flags)))).to_pybytes()
            if not flags.all():
                held.write(len(cell).to_bytes(8, "little"))
                held.write(cell)
        if found:
            rows = pa.concat_batches(found)
            columns = [np.asarray(rows.column(name)) for name in reversed(order)]
            yield _without_hashes(rows.take(pa.array(np.lexsort(columns))))
        held.seek(0)
        yield _cells_in(held)


def _cells_in(held: IO[bytes]) -> Iterator[bytes]:
    while size := held.read(8):
        yield held.read(int.from_bytes(size, "little"))


def flags_of(rows: pa.RecordBatch, to_all: str) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
    """Which rows are for all keys."""
    return np.asarray(rows.column(to_all).fill_null(False), np.bool_)


def _with_types(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The rows with the types that the operator knows: Spark names its session's time zone in each timestamp."""
    typed = pa.schema([*schema, pa.field(HASH, pa.int64())])
    columns = [
        column if column.type.equals(kind) else column.cast(kind)
        for column, kind in zip(rows.columns, typed.types, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=typed)


def _in_buckets(rows: pa.RecordBatch, buckets: int, to_all: str | None) -> pa.RecordBatch:
    hashes = rows.column(rows.schema.get_field_index(HASH)).to_numpy()
    homes = (hashes % buckets).astype(np.uint16)
    if to_all is None or not (flags := flags_of(rows, to_all)).any():
        # Sixteen bits are sorted by counting.
        order = np.argsort(homes, kind="stable")
    else:
        times = np.where(flags, buckets, 1)
        which = np.repeat(np.arange(len(flags)), times)
        homes = np.repeat(homes, times)
        homes[flags[which]] = np.tile(np.arange(buckets), np.count_nonzero(flags))
        order = which[np.argsort(homes, kind="stable")]
    rows = _without_empty(rows).take(pa.array(order))
    ends = np.cumsum(np.bincount(homes, minlength=buckets))
    begins = np.concatenate([[0], ends[:-1]])
    some = np.flatnonzero(ends > begins)
    numbers = np.array(bucket_numbers(buckets), np.int32)[some]
    bounds, data = write_rows([rows.slice(at, end - at) for at, end in zip(begins[some], ends[some], strict=True)])
    if bounds[-1] > _MOST_BYTES:
        raise OverflowError(f"{bounds[-1]} bytes in the cells of one batch: Arrow holds 2 GiB")
    places = pa.py_buffer(np.array(bounds, np.int32))
    cells = pa.Array.from_buffers(pa.binary(), len(some), [None, places, data])
    return pa.RecordBatch.from_arrays([pa.array(numbers), cells], schema=PACKED)


_LEFT_OUT = b"headrace.left_out"
"""What a cell's schema says besides, where columns were left out because all is null in them: its whole schema."""


def _without_empty(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Without the structs that are null in every row: of the sides of a join a batch has mostly one."""
    kept = [
        place
        for place, column in enumerate(rows.columns)
        if not (pa.types.is_struct(column.type) and column.null_count == len(column))
    ]
    if len(kept) == rows.num_columns:
        return rows
    return rows.select(kept).replace_schema_metadata({_LEFT_OUT: rows.schema.serialize().to_pybytes()})


def _with_empty(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The way back."""
    whole = (rows.schema.metadata or {}).get(_LEFT_OUT)
    if whole is None:
        return rows
    schema = pa.ipc.read_schema(pa.py_buffer(whole))
    there = dict(zip(rows.schema.names, rows.columns, strict=True))
    columns = [there[field.name] if field.name in there else pa.nulls(rows.num_rows, field.type) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


_EVEN = 840
_SEED = 42
# Among so many numbers every remainder occurs.
_CANDIDATES = 32 * _EVEN


@lru_cache
def bucket_numbers(buckets: int) -> tuple[int, ...]:
    """The number that each bucket goes by; the same for ever, because state is stored under it."""
    if buckets > _EVEN:
        return tuple(range(buckets))
    remainders = spark_hash(np.arange(_CANDIDATES, dtype=np.uint32)).astype(np.int64) % _EVEN
    found, first = np.unique(remainders, return_index=True)
    assert len(found) == _EVEN, "every remainder occurs"
    return tuple(first[:buckets].tolist())


def spark_hash(numbers: NDArray[np.uint32]) -> NDArray[np.int32]:
    """What Spark's `hash` says to whole numbers of 32 bits: Murmur3 of one word."""
    with np.errstate(over="ignore"):
        word = _turned(numbers * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)
        mixed = _turned(np.uint32(_SEED) ^ word, 13) * np.uint32(5) + np.uint32(0xE6546B64)
        mixed = mixed ^ np.uint32(4)
        mixed = (mixed ^ (mixed >> np.uint32(16))) * np.uint32(0x85EBCA6B)
        mixed = (mixed ^ (mixed >> np.uint32(13))) * np.uint32(0xC2B2AE35)
        return (mixed ^ (mixed >> np.uint32(16))).view(np.int32)


def _turned(words: NDArray[np.uint32], by: int) -> NDArray[np.uint32]:
    return (words << np.uint32(by)) | (words >> np.uint32(32 - by))
