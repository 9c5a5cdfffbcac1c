"""Cells of rows made into what an operator over two sides takes: one side's rows, with the hashes of their keys."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from headrace.pipelines.keyed.hashing import hash_rows
from headrace.pipelines.keyed.layout import rows_from_bytes
from headrace.pipelines.keyed.packing import HASH


@dataclass(frozen=True)
class SideRows:
    """Rows of one side: the key's columns first, then a struct for each side, of which only this one's is there."""

    schema: pa.Schema
    side: str
    on: tuple[str, ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        typed = pa.schema([*self.schema, pa.field(HASH, pa.int64())])
        for batch in batches:
            for cell in batch.column(0).drop_null():  # most rows have none
                rows = rows_from_bytes(cell.as_buffer())
                keys = [rows.column(name) for name in self.on]
                sides = [self._side(field, rows) for field in list(self.schema)[len(keys) :]]
                yield pa.RecordBatch.from_arrays([*keys, *sides, pa.array(hash_rows(keys))], schema=typed)

    def _side(self, field: pa.Field, rows: pa.RecordBatch) -> pa.Array:
        if field.name != self.side:
            return pa.nulls(rows.num_rows, field.type)
        fields = list(field.type)
        return pa.StructArray.from_arrays([rows.column(each.name) for each in fields], fields=fields)
