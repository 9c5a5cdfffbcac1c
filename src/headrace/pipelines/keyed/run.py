"""A run: what some keys have in a table, in the order of keys, never changed once it is made.

An entry is a key and its rows. If it replaces, it hides what older runs have of the key; without rows it is then a
tombstone. If it does not, its rows come on top of what older runs have.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from headrace.pipelines.keyed.keys import Keys
from headrace.pipelines.keyed.loops import Flags, Longs
from headrace.pipelines.keyed.operator import Keyed, Table

NO_TIMES = np.empty(0, np.int64)


@dataclass(frozen=True)
class Run:
    """Entry i is key i with the rows from `row_ends[i - 1]` to `row_ends[i]`."""

    keys: Keys
    replaces: Flags
    row_ends: Longs
    rows: pa.RecordBatch

    @cached_property
    def row_begins(self) -> Longs:
        """Where each entry's rows begin."""
        begins = np.zeros(len(self.row_ends), np.int64)
        begins[1:] = self.row_ends[:-1]
        return begins

    @property
    def size_bytes(self) -> int:
        """About what it takes in memory."""
        keys = self.keys
        return int(keys.hashes.nbytes + keys.ends.nbytes + keys.arena.nbytes + 9 * len(keys) + self.rows.nbytes)


def no_rows(schema: pa.Schema) -> pa.RecordBatch:
    """The columns without a row."""
    return pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)


def times_of(rows: pa.RecordBatch, table: Table) -> Longs:
    """The microseconds a table is ordered by; empty if it is not."""
    if table.time is None:
        return NO_TIMES
    column = rows.column(table.time)
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", tz=column.type.tz), safe=False)
    return np.asarray(column.cast(pa.int64()).to_numpy(zero_copy_only=False), np.int64)


def make_run(table: Table, keys: Keys, given: Keyed | None, gone: Longs, *, replaces: bool) -> Run | None:
    """What a call changed in a table: rows given to keys, by number, and the keys that lose what they had."""
    batch = no_rows(table.schema) if given is None else given.rows
    numbers = np.empty(0, np.int64) if given is None else np.ascontiguousarray(given.key, np.int64)
    if not len(numbers) and not len(gone):
        return None
    if (order := _order(numbers, times_of(batch, table))) is not None:
        numbers, batch = numbers[order], batch.take(pa.array(order))
    counts = np.bincount(numbers, minlength=len(keys))
    hides = np.zeros(len(keys), np.bool_)
    hides[gone] = True
    if replaces:
        hides |= counts > 0
    touched = np.flatnonzero(hides | (counts > 0))
    mine = keys if len(touched) == len(keys) else keys.take(touched)
    return Run(mine, hides[touched], np.cumsum(counts[touched]), batch)


def _order(numbers: Longs, times: Longs) -> Longs | None:
    """The order by key number, then time, then as given; None if rows are in it already."""
    if len(numbers) < 2:
        return None
    rising = np.diff(numbers)
    if (rising >= 0).all() and (not len(times) or (np.diff(times)[rising == 0] >= 0).all()):
        return None
    return np.lexsort((times, numbers)) if len(times) else np.argsort(numbers, kind="stable")


def gather(batches: Sequence[pa.RecordBatch], index: Longs) -> pa.RecordBatch:
    """Rows by their number over all batches, as if these were one."""
    if len(batches) == 1:
        return batches[0].take(pa.array(index))
    bases = np.cumsum([0, *(batch.num_rows for batch in batches)])
    if 2 * len(index) > bases[-1]:
        return pa.concat_batches(batches).take(pa.array(index))
    # A few rows of large batches: those are not copied whole.
    homes = np.searchsorted(bases, index, side="right") - 1
    order = np.argsort(homes, kind="stable")
    parts = [
        batch.take(pa.array(index[homes == home] - bases[home]))
        for home, batch in enumerate(batches)
        if (homes == home).any()
    ]
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return batches[0].slice(0, 0)
    back = np.empty(len(index), np.int64)
    back[order] = np.arange(len(index))
    return pa.concat_batches(parts).take(pa.array(back))
