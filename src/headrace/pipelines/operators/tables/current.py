"""The current row of each primary key over keyed state: changes in, what was and what is out. Pure.

State: `current`, for each key that has a row its columns as bytes, the id of its version, since when it holds, and the
place of the latest record seen. A record that is not newer than that is left out; one that changes nothing emits
nothing, and the row keeps its version. A key whose row is deleted is forgotten. A large value that a change leaves out,
because the database did not send it again, is the one that the row had; if nobody knows it, the change is refused.

A truncate counts for the partition that it stands in: it deletes what came from there before it. Capture writes it to
every partition of a topic, so that each row is deleted by the one whose place in the log can be compared with its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.pipelines.columns.unavailable import is_placeholder
from headrace.pipelines.keyed.operator import NOTHING, Batch, Changes, Keyed, Longs, Plan, State, Times, Untimed, Values
from headrace.pipelines.keyed.packing import flags_of
from headrace.pipelines.operators.errors import UnknownValue
from headrace.pipelines.operators.grouping import highest, lowest, sort_rows
from headrace.pipelines.operators.tables.form import FORM, TIME, TIME_TYPE, VERSION, VERSION_TYPE, WEIGHT_TYPE
from headrace.pipelines.operators.tables.row_bytes import from_bytes, to_bytes
from headrace.pipelines.operators.times import times_of

ROW, GONE, PARTITION, OFFSET = "row", "gone", "partition", "offset"
EMPTIED: Final = "emptied"
WHOLE_ROWS: Final = (
    'let the capture read such values (unavailable = "reselect") and have it read the table again, then begin a new '
    "checkpoint there, or leave the column out of the schema"
)
CURRENT: Final = "current"
_STATE = pa.schema(
    [
        ("partition", pa.int32()),
        ("seen", pa.int64()),
        ("time", TIME_TYPE),
        ("row", pa.binary()),
        ("version", pa.binary()),
    ]
)
_IDS = pa.schema(list(VERSION_TYPE))


@dataclass(frozen=True)
class CurrentRows(Untimed):
    """The operator over changes: `row` (the columns beside the key), `gone`, `partition`, `offset`, and the form's.

    With `empties`, `emptied` too, which says that a record is a truncate.
    """

    row: pa.StructType
    empties: bool = False

    @property
    def columns(self) -> pa.Schema:
        """A row's columns, without the key's."""
        return pa.schema(list(self.row))

    @property
    def output(self) -> pa.Schema:
        return pa.schema([*self.columns, *FORM])

    def plan(self, keys: pa.Schema, rows: pa.Schema) -> Plan:
        to_all = EMPTIED if self.empties else None
        return Plan(self.output, (Values(CURRENT, _STATE),), parameters={"columns": self.columns}, to_all=to_all)

    def on_rows(self, batch: Batch, state: State, times: Times) -> Changes:
        """The latest change of each key against what the key had."""
        count = batch.keys.num_rows
        if self.empties:
            batch = without_truncates(batch, state, EMPTIED, PARTITION, (CURRENT,))
        if not len(batch):
            return NOTHING
        order = _by_age(batch)
        latest, touched = _latest(batch, order)
        partition = np.asarray(batch.rows.column(PARTITION).fill_null(0), np.int32)[latest]
        offset = np.asarray(batch.rows.column(OFFSET), np.int64)[latest]
        gone = np.asarray(batch.rows.column(GONE).fill_null(False))[latest]
        held = state.read(CURRENT)
        own, unknown = self._whole(batch, order, latest, held)
        made = self._kept(own, batch.rows.take(pa.array(latest)), partition, offset)
        had, newer, equal = np.zeros(count, np.bool_), touched.copy(), np.zeros(count, np.bool_)
        had[held.key] = True
        # Offsets of two partitions cannot be compared: a key comes to another only when partitions are added.
        same = np.asarray(held.rows.column("partition")) == partition[held.key]
        newer[held.key] &= ~same | (offset[held.key] > np.asarray(held.rows.column("seen")))
        equal[held.key] = np.asarray(pc.equal(made.column("row").take(pa.array(held.key)), held.rows.column("row")))
        pool = pa.concat_batches([held.rows, made])
        old, new = np.full(count, -1, np.int64), len(held) + np.arange(count)
        old[held.key] = np.arange(len(held))
        stays = newer & ~gone
        for name, keys in unknown.items():
            if (stays & keys).any():
                raise UnknownValue(_left_out(name, batch.rows, int(latest[stays & keys][0])))
        kept = np.flatnonzero(stays)
        return Changes(
            emit=self._emitted(pool, old, new, newer & had & (gone | ~equal), stays & ~(had & equal)),
            put={CURRENT: Keyed(kept, _seen(pool, np.where(equal, old, new)[kept], partition[kept], offset[kept]))},
            delete={CURRENT: np.flatnonzero(newer & gone & had)},
        )

    def _whole(
        self, batch: Batch, order: Longs, latest: Longs, held: Keyed
    ) -> tuple[pa.RecordBatch, dict[str, NDArray[np.bool_]]]:
        """The latest row of each key, and for each column of which keys its value is left out and not known.

        What is left out is taken from the key's changes before it, and from what is held; a delete ends both.
        """
        whole, unknown = [], {}
        earlier: pa.RecordBatch | None = None
        for index, column in enumerate(batch.rows.column(ROW).flatten()):
            taken = column.take(pa.array(latest))
            left_out = is_placeholder(taken)
            if left_out.any():
                if earlier is None:
                    earlier = from_bytes(held.rows.column("row"), self.columns)
                had = earlier.column(index)
                source = _last_sent(batch, order, is_placeholder(column), held, is_placeholder(had))
                source[~left_out] = latest[~left_out]
                unknown[self.columns.names[index]] = source < 0
                taken = pa.concat_arrays([column, had]).take(pa.array(source, mask=source < 0))
            whole.append(taken)
        return pa.RecordBatch.from_arrays(whole, schema=self.columns), unknown

    def _kept(
        self, own: pa.RecordBatch, rows: pa.RecordBatch, partition: NDArray[np.int32], offset: Longs
    ) -> pa.RecordBatch:
        ids = pa.RecordBatch.from_arrays(rows.column(VERSION).flatten(), schema=_IDS)
        columns = [pa.array(partition), pa.array(offset), rows.column(TIME), to_bytes(own), to_bytes(ids)]
        return pa.RecordBatch.from_arrays(columns, schema=_STATE)

    def _emitted(
        self, pool: pa.RecordBatch, old: Longs, new: Longs, goes: NDArray[np.bool_], comes: NDArray[np.bool_]
    ) -> Keyed:
        lost, won = np.flatnonzero(goes), np.flatnonzero(comes)
        rows = pool.take(pa.array(np.concatenate([old[lost], new[won]])))
        own = from_bytes(rows.column("row"), self.columns)
        ids = from_bytes(rows.column("version"), _IDS)
        weight = pa.array(np.repeat([-1, 1], [len(lost), len(won)]), WEIGHT_TYPE)
        version = pa.StructArray.from_arrays(ids.columns, fields=list(VERSION_TYPE))
        columns = [*own.columns, weight, version, rows.column("time")]
        return Keyed(np.concatenate([lost, won]), pa.RecordBatch.from_arrays(columns, schema=self.output))


def sort_by_age(count: int, key: Longs, partition: Longs, offset: Longs, time: Longs) -> Longs:
    """Rows by key and place in the log; by time first where a key came to another partition.

    Within a partition the log decides and not the time, since the clocks of those who write may differ.
    """
    moved = lowest(count, key, partition, 2**62) < highest(count, key, partition, -1)
    return np.lexsort((offset, np.where(moved[key], time, 0), key)) if moved.any() else sort_rows(key, offset)


def _by_age(batch: Batch) -> Longs:
    offset = np.asarray(batch.rows.column(OFFSET), np.int64)
    partition = np.asarray(batch.rows.column(PARTITION).fill_null(0), np.int64)
    return sort_by_age(batch.keys.num_rows, batch.key, partition, offset, times_of(batch.rows.column(TIME))[0])


def _latest(batch: Batch, order: Longs) -> tuple[Longs, NDArray[np.bool_]]:
    """The row of each key that came last, and which keys have rows; of the others it is any."""
    count = batch.keys.num_rows
    last = order[np.append(np.flatnonzero(np.diff(batch.key[order])), len(order) - 1)]
    found, touched = np.zeros(count, np.int64), np.zeros(count, np.bool_)
    found[batch.key[last]], touched[batch.key[last]] = last, True
    return found, touched


def _last_sent(
    batch: Batch, order: Longs, left_out: NDArray[np.bool_], held: Keyed, held_left_out: NDArray[np.bool_]
) -> Longs:
    """For each key the last row that has a column's value; what is held comes behind the batch's rows; -1 for none."""
    count = batch.keys.num_rows
    source = np.full(count, -1, np.int64)
    source[held.key] = np.where(held_left_out, -1, len(left_out) + np.arange(len(held)))
    seen, home = np.full(count, -1, np.int64), np.full(count, -1, np.int64)
    seen[held.key] = np.asarray(held.rows.column("seen"))
    home[held.key] = np.asarray(held.rows.column("partition"))
    offset = np.asarray(batch.rows.column(OFFSET), np.int64)
    partition = np.asarray(batch.rows.column(PARTITION).fill_null(0), np.int64)
    is_old = (home[batch.key] == partition) & (offset <= seen[batch.key])
    sent = order[~(left_out | is_old)[order]]
    gone = np.asarray(batch.rows.column(GONE).fill_null(False))[sent]
    source[batch.key[sent]] = np.where(gone, -1, sent)  # of several the last stays
    return source


def _left_out(name: str, rows: pa.RecordBatch, row: int) -> str:
    place = {column: rows.column(column)[row].as_py() for column in (OFFSET, PARTITION, VERSION)}
    return (
        f"the change at offset {place[OFFSET]} of partition {place[PARTITION]} of {place[VERSION]['table']} leaves out "
        f"{name!r}, a large value that the database did not send again, and no change before it had one: {WHOLE_ROWS}"
    )


def _seen(pool: pa.RecordBatch, places: Longs, partition: NDArray[np.int32], offset: Longs) -> pa.RecordBatch:
    """Rows to keep, with the place of the latest record of each key, which may have changed nothing."""
    rows = pool.take(pa.array(places)).columns
    return pa.RecordBatch.from_arrays([pa.array(partition), pa.array(offset), *rows[2:]], schema=_STATE)


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
