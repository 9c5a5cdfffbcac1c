"""Documents held against the queries of a topic, over keyed state. Pure.

Every bucket has its share of the documents, and all queries: in the common table `log`, the records of their topic in
the order in which they were read, without most of those that say nothing any more; and in `head`, how many there are
and the token (`standing.py`) of what stands by them. The records of a micro-batch come before its documents, so that
all of these meet the same queries, and meet them again when the micro-batch is done again.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.percolation.language import Policy
from headrace.pipelines.keyed.operator import Batch, Changes, Keyed, Plan, Rows, State, Times, Untimed, Values
from headrace.pipelines.keyed.packing import flags_of
from headrace.pipelines.operators.aggregation.algebra import PREPARED
from headrace.pipelines.operators.errors import BadField
from headrace.pipelines.operators.grouping import Longs
from headrace.pipelines.operators.percolation.hits import CALL_ROWS, Reading
from headrace.pipelines.operators.percolation.standing import Record, Standing, latest, next_token, standing

IS_QUERY, KEY, VALUE, PARTITION, OFFSET, SPREAD = (
    f"{PREPARED}query {part}" for part in ("flag", "key", "value", "partition", "offset", "spread")
)
"""Columns of a record of queries, of which other rows have the flag alone; and the key that spreads documents."""
LOG, HEAD = "log", "head"
_SPARE: Final = 4_096
"""So many records that say nothing any more do no harm."""
_LOG: Final = pa.schema([("number", pa.int64()), ("key", pa.binary()), ("value", pa.binary())])
_HEAD: Final = pa.schema([("token", pa.string()), ("number", pa.int64()), ("kept", pa.int64()), ("offset", pa.int64())])


@dataclass(frozen=True)
class Head:
    """What is known of the queries without looking at them."""

    token: str = ""
    number: int = 0
    """Of the record that is read next."""
    kept: int = 0
    """Records in the log."""
    offset: int = 0
    """Behind the record that was read last."""


@dataclass(frozen=True)
class PercolateDocuments(Untimed):
    """The operator; its settings are checked where it is made."""

    reading: Reading
    policy: Policy

    def plan(self, keys: pa.Schema, rows: pa.Schema) -> Plan:
        common = (Rows(LOG, _LOG, "number"), Values(HEAD, _HEAD))
        return Plan(self.reading.output, to_all=IS_QUERY, first=(OFFSET,), call_rows=CALL_ROWS, common=common)

    def on_rows(self, batch: Batch, state: State, times: Times) -> Changes:
        """Queries that change, and then documents."""
        flags = flags_of(batch.rows, IS_QUERY)
        places = np.flatnonzero(~flags)
        head = _head(state)
        changed = self._changed(batch.rows.take(pa.array(np.flatnonzero(flags))), head, state) if flags.any() else None
        if changed is not None:
            head, found, changes = changed
        else:
            found, changes = self._standing(head, (), head.token, state), Changes()
        rows = batch.rows.select(self.reading.rows.names).take(pa.array(places))
        key = batch.key[places] if len(places) else np.zeros(1, np.int64)
        held = self.reading.held(found.catalog.percolator, rows, head.offset, found.status)
        return replace(changes, more=(Keyed(key[each.rows], each.output) for each in held))

    def _changed(self, told: pa.RecordBatch, head: Head, state: State) -> tuple[Head, Standing, Changes]:
        offsets = np.asarray(told.column(OFFSET), np.int64)
        if np.asarray(told.column(PARTITION), np.int64).any():
            raise BadField(
                "percolate: the topic of queries has several partitions, and queries have an order: name one with a "
                "single partition"
            )
        order = np.argsort(offsets, kind="stable")
        cells = (told.column(name).take(pa.array(order)).to_pylist() for name in (KEY, VALUE))
        records = [Record(head.number + at, *pair) for at, pair in enumerate(zip(*cells, strict=True))]
        later = next_token(head.token, records)
        found = self._standing(head, records, later, state)
        kept, gone = head.kept + len(records), np.zeros(0, np.int64)
        written: Sequence[Record] = records
        if kept > 2 * found.size + _SPARE:
            written = latest([*_log(state), *records])
            kept, gone = len(written), np.zeros(1, np.int64)
        now = Head(later, head.number + len(records), kept, int(offsets.max()) + 1)
        rows = pa.RecordBatch.from_arrays(
            [pa.array(column, field.type) for column, field in zip(zip(*written, strict=True), _LOG, strict=True)]
            if written
            else [pa.nulls(0, field.type) for field in _LOG],
            schema=_LOG,
        )
        return now, found, Changes(
            append={LOG: Keyed(_common(len(written)), rows)} if written else {},
            put={HEAD: Keyed(_common(1), pa.RecordBatch.from_pylist([now.__dict__], schema=_HEAD))},
            delete={LOG: gone} if len(gone) else {},
            counts={"records of queries": len(records)},
        )  # fmt: skip

    def _standing(self, head: Head, records: Sequence[Record], later: str, state: State) -> Standing:
        return standing(self.policy, head.token, records, later, lambda: _log(state))


def _common(count: int) -> Longs:
    return np.zeros(count, np.int64)


def _head(state: State) -> Head:
    found = state.read(HEAD).rows.to_pylist()
    return Head(**found[0]) if found else Head()


def _log(state: State) -> list[Record]:
    columns = (column.to_pylist() for column in state.read(LOG).rows.columns)
    return [Record(*row) for row in zip(*columns, strict=True)]
