"""Rows in the order of event time: they wait in their bucket, whole, until the watermark has passed them.

While they wait they belong to no key: they are stored in the order of time as they came, found again by time alone,
and gone as soon as the watermark is behind them. What that costs a row depends neither on how many keys there are nor
on how long it waits.
"""

from collections.abc import Iterable
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.pipelines.keyed.keys import Keys
from headrace.pipelines.keyed.loops import Flags
from headrace.pipelines.keyed.operator import NO_WATERMARK, BadOperator, Clock, Longs, Ordered, Plan, Rows
from headrace.pipelines.keyed.run import Run, times_of

WAITING: Final = "(waiting)"
"""The table of rows that wait."""
ORDERED: Final = "(rows in order)"
"""The counter of rows that were given in order."""
HASHES: Final = "(hash)"


def no_key(columns: int) -> Keys:
    """The key of what belongs to the bucket: all its columns are null."""
    return Keys(np.zeros(1, np.int64), np.array([columns], np.int64), np.zeros(columns, np.uint8))


def waiting_table(ordered: Ordered, rows: pa.Schema) -> Rows:
    """Where rows wait, each with the hash of its key."""
    if rows.get_field_index(ordered.time) < 0 or not pa.types.is_timestamp(rows.field(ordered.time).type):
        raise BadOperator(f"rows are put in order by {ordered.time!r}, and they have no timestamp of that name")
    return Rows(WAITING, pa.schema([*rows, pa.field(HASHES, pa.int64())]), ordered.time)


def split_arrivals(rows: pa.RecordBatch, plan: Plan, watermark_us: int) -> Flags:
    """Which rows do not wait: late ones, those without a time, and those for all keys."""
    assert plan.ordered is not None
    column = rows.column(plan.ordered.time)
    at = np.asarray(column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64()).fill_null(NO_WATERMARK))
    found: Flags = at <= watermark_us
    if column.null_count:
        found |= np.asarray(column.is_null())
    if plan.to_all is not None:
        found |= np.asarray(rows.column(plan.to_all).fill_null(False))
    return found


def due_rows(runs: Iterable[Run], table: Rows, bound_us: int, watermark_us: int) -> pa.RecordBatch | None:
    """The rows of some runs, from the oldest to the newest, from a time up to and with another."""
    parts = []
    for run in runs:
        begin, end = np.searchsorted(times_of(run.rows, table), [bound_us, watermark_us + 1])
        if begin < end:
            parts.append(run.rows.slice(begin, end - begin))
    return (parts[0] if len(parts) == 1 else pa.concat_batches(parts)) if parts else None


def order_rows(rows: pa.RecordBatch, ordered: Ordered, key: Longs) -> Longs | None:
    """The order of rows by key number, time and ties; None if they are in it."""
    at = times_of(rows, Rows("", rows.schema, ordered.time))
    order = _sorted(key, at)
    keys, times = (key, at) if order is None else (key[order], at[order])
    equal = (keys[1:] == keys[:-1]) & (times[1:] == times[:-1])
    if not ordered.ties or not equal.any():
        return order
    # Only rows with equal times are looked at again: mostly there are few.
    touched = np.zeros(len(key), np.bool_)
    touched[1:] = equal
    touched[:-1] |= equal
    places = np.flatnonzero(touched)
    mine = places if order is None else order[places]
    ties = [_ranks(rows.column(name).take(pa.array(mine))) for name in ordered.ties]
    again = mine[np.lexsort((*reversed(ties), at[mine], key[mine]))]
    found = np.arange(len(key)) if order is None else order
    found[places] = again
    return found


def _sorted(key: Longs, at: Longs) -> Longs | None:
    rising = np.diff(key)
    if (rising >= 0).all() and (np.diff(at)[rising == 0] >= 0).all():
        return None
    low = int(at.min())
    span = int(at.max()) - low + 1
    if (int(key.max()) + 1) * span < 2**62:
        return np.argsort(key * span + (at - low), kind="stable")
    return np.lexsort((at, key))


def _ranks(column: pa.Array) -> Longs:
    return np.asarray(pc.fill_null(column.cast(pa.int64()), NO_WATERMARK))


def check_ordered(plan: Plan) -> None:
    """`BadOperator` for a plan of which rows would wait for ever."""
    if plan.ordered is not None and plan.clock is not Clock.EVENT:
        raise BadOperator(
            f"rows in order wait for the watermark: the plan's clock is {plan.clock}, and has to be EVENT"
        )
