"""Truncates: one record that deletes every row of a table, as the deletes that it stands for. Pure.

A truncate counts for the partition that it stands in: it deletes what came from there before it. Capture writes it to
every partition of a topic, so that each row is deleted by the one whose place in the log can be compared with its own.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from headrace.pipelines.keyed.operator import Batch, Longs, State
from headrace.pipelines.keyed.packing import flags_of


def without_truncates(batch: Batch, state: State, flag: str, partition: str, tables: Sequence[str]) -> Batch:
    """The rows of a call, with a delete instead of each truncate for every key that has rows from its partition.

    `tables` are those that keep rows, with their partition in the column `partition` as the call's rows have it. Of the
    batch's keys some may be left without a row.
    """
    flags = flags_of(batch.rows, flag)
    if not flags.any():
        return batch
    others, truncates = np.flatnonzero(~flags), np.flatnonzero(flags)
    home = np.asarray(batch.rows.column(partition).fill_null(0), np.int64)
    has_row = np.flatnonzero(~flags & np.asarray(batch.rows.column(partition).is_valid()))
    held = [state.read(table) for table in tables]
    key = np.concatenate([batch.key[has_row], *(each.key for each in held)])
    place = np.concatenate([home[has_row], *(np.asarray(each.rows.column(partition), np.int64) for each in held)])
    which, whose = [others], [batch.key[others]]
    for row in truncates.tolist():
        mine: Longs = np.unique(key[place == home[row]])
        which.append(np.full(len(mine), row))
        whose.append(mine)
    chosen = np.concatenate(which)
    return Batch(batch.keys, np.concatenate(whose), batch.rows.take(pa.array(chosen)))
