"""Events joined with a row as it is when they are processed, over keyed state. Pure.

State: `current`, the newest version of each key, by its place in the log. Changes of a call come before its events.
What an event finds depends on how far the table had been read when it came; with `as_of` it does not.
"""

# ruff: noqa: ARG002 - the engine hands over more than each operator needs

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headrace.pipelines.keyed.operator import NOTHING, Batch, Changes, Due, Keyed, Plan, State, Times, Values
from headrace.pipelines.operators.grouping import Longs, highest, lowest, sorted_by
from headrace.pipelines.operators.tables.as_of_versions import AT, GONE, OFFSET, PARTITION
from headrace.pipelines.operators.tables.enrich_sides import Sides, split, untruncated
from headrace.pipelines.operators.times import times_of

CURRENT = "current"


@dataclass(frozen=True)
class Latest:
    """The operator."""

    sides: Sides

    def plan(self, keys: pa.Schema, rows: pa.Schema) -> Plan:
        """One table."""
        return Plan(self.sides.output, (Values(CURRENT, self.sides.versions),), to_all=self.sides.to_all)

    def on_rows(self, batch: Batch, state: State, times: Times) -> Changes:
        """Changes are kept, then events are answered."""
        batch = untruncated(self.sides, batch, state, (CURRENT,))
        events, changes = split(batch)
        held = state.read(CURRENT)
        rows, place = held.rows, np.full(batch.keys.num_rows, -1, np.int64)
        place[held.key] = np.arange(len(held))
        written, lost = np.empty(0, np.int64), np.empty(0, np.int64)
        if len(changes):
            at, _ = times_of(batch.rows.column(AT))
            fresh = self.sides.versions_in(batch, changes, at)
            rows = pa.concat_batches([held.rows, fresh.rows])
            gone = np.asarray(rows.column(GONE), np.bool_)
            had = place >= 0
            key = np.concatenate([held.key, fresh.key])
            order = _by_age(batch.keys.num_rows, key, rows)
            place[key[order]] = order  # of several the last stays
            is_new = place >= len(held)
            is_gone = is_new & gone[place]
            written, lost = np.flatnonzero(is_new & ~is_gone), np.flatnonzero(had & is_gone)
            place[is_gone] = -1
        emit = None
        if len(events):
            key = batch.key[events]
            emit = self.sides.enriched(key, self.sides.events_in(batch, events).columns, rows, place[key])
        return Changes(
            emit=emit,
            put={CURRENT: Keyed(written, rows.take(pa.array(place[written])))} if len(written) else {},
            delete={CURRENT: lost} if len(lost) else {},
        )

    def on_timers(self, due: Due, state: State, times: Times) -> Changes:
        """There are none."""
        return NOTHING


def _by_age(count: int, key: Longs, rows: pa.RecordBatch) -> Longs:
    """Versions by key and place in the log; by time first where a key came to another partition.

    Within a partition the log decides and not the time, since the clocks of those who write may differ.
    """
    offset, partition = (np.asarray(rows.column(name), np.int64) for name in (OFFSET, PARTITION))
    moved = lowest(count, key, partition, 2**62) < highest(count, key, partition, -1)
    if not moved.any():
        return sorted_by(key, offset)
    return np.lexsort((offset, np.where(moved[key], np.asarray(rows.column(AT)), 0), key))
