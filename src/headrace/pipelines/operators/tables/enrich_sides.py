"""Events and a table's versions as one stream of rows, which is how both come to one key. Pure.

A row of either side has the key's columns, and further:

- `_at`: the time of the event, or when the version became valid;
- `_event`: the event's other columns, null on the table's side;
- `_row`, `_gone`, `_offset`, `_partition`, `_id`: the table's columns that are asked for, whether the row is gone, the
  version's place in the log and its id; null on the events' side;
- `_emptied`, where the table can say so: whether all its rows are gone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headrace.pipelines.keyed.operator import Batch, Keyed, State
from headrace.pipelines.operators.grouping import Longs
from headrace.pipelines.operators.stragglers import ASIDE, Stragglers, aside_field
from headrace.pipelines.operators.tables.as_of_versions import (
    EMPTIED,
    GONE,
    OFFSET,
    PARTITION,
    VERSION,
    versions_schema,
)
from headrace.pipelines.operators.tables.emptying import without_truncates

EVENT, ROW = "_event", "_row"
JOINED = "_joined"
LATE_CHANGE = "late change"
_IDS = 5  # columns of a version before those of its row


@dataclass(frozen=True)
class Sides:
    """The types of both sides, and what an enriched event looks like; without `stragglers` nothing is set aside."""

    event: pa.StructType
    row: pa.StructType
    version: pa.StructType
    keeps_unmatched: bool
    stragglers: Stragglers | None = None
    prefix: str = ""
    joined: str = JOINED
    empties: bool = False

    @property
    def to_all(self) -> str | None:
        """The column that marks truncates, if there is one."""
        return EMPTIED if self.empties else None

    @property
    def events(self) -> pa.Schema:
        """The event's own columns."""
        return pa.schema(list(self.event))

    @property
    def versions(self) -> pa.Schema:
        """What is kept of a version."""
        return versions_schema(self.row, self.version)

    @property
    def output(self) -> pa.Schema:
        """The event's columns, the row's, the id of the version, and what is set aside."""
        row = [pa.field(f"{self.prefix}{field.name}", field.type) for field in self.row]
        aside = [] if self.stragglers is None else [aside_field(self.events, self.stragglers)]
        return pa.schema([*self.event, *row, pa.field(self.joined, self.version), *aside])

    def events_in(self, batch: Batch, chosen: Longs) -> pa.RecordBatch:
        """Some events of a call."""
        return pa.RecordBatch.from_arrays(_columns(batch.rows.column(EVENT), chosen), schema=self.events)

    def versions_in(self, batch: Batch, chosen: Longs, at: Longs) -> Keyed:
        """Some versions of a call, with when they became valid."""
        picked = pa.array(chosen)
        about = [batch.rows.column(name).take(picked) for name in (OFFSET, PARTITION, GONE, VERSION)]
        columns = [pa.array(at[chosen]), *about, *_columns(batch.rows.column(ROW), chosen)]
        return Keyed(batch.key[chosen], pa.RecordBatch.from_arrays(columns, schema=self.versions))

    def enriched(self, key: Longs, events: list[pa.Array], versions: pa.RecordBatch, found: Longs) -> Keyed | None:
        """Events, each with the version in row `found[i]`; with -1 there is none, and they go or have nulls."""
        known = found >= 0
        if not self.keeps_unmatched and not known.all():
            chosen = np.flatnonzero(known)
            key, found, known = key[chosen], found[chosen], known[chosen]
            events = [column.take(pa.array(chosen)) for column in events]
        if not len(key):
            return None
        place = pa.array(found) if known.all() else pa.array(found, mask=~known)
        taken = [column.take(place) for column in versions.columns[_IDS:]]
        columns = [*events, *taken, versions.column(VERSION).take(place)]
        if self.stragglers is not None:
            columns.append(pa.nulls(len(key), self.output.field(ASIDE).type))
        return Keyed(key, pa.RecordBatch.from_arrays(columns, schema=self.output))

    def counted_aside(self, counts: Mapping[str, int]) -> Keyed | None:
        """Says how many rows there were for each reason, where nobody can be handed the rows themselves."""
        cells = [{"reason": reason, "rows": count} for reason, count in counts.items() if count]
        if not cells:
            return None
        aside = pa.array(cells, self.output.field(ASIDE).type)
        columns = [aside if field.name == ASIDE else pa.nulls(len(cells), field.type) for field in self.output]
        return Keyed(np.zeros(len(cells), np.int64), pa.RecordBatch.from_arrays(columns, schema=self.output))


def untruncated(sides: Sides, batch: Batch, state: State, tables: Sequence[str]) -> Batch:
    """The rows of a call, with deletes instead of truncates."""
    return without_truncates(batch, state, EMPTIED, PARTITION, tables) if sides.empties else batch


def split(batch: Batch) -> tuple[Longs, Longs]:
    """Which rows of a call are events, and which are versions."""
    is_event = np.asarray(batch.rows.column(GONE).is_null())
    return np.flatnonzero(is_event), np.flatnonzero(~is_event)


def told_together(*parts: Keyed | None) -> Keyed | None:
    """Rows to emit, one part behind the other."""
    given = [part for part in parts if part is not None]
    if len(given) < 2:
        return given[0] if given else None
    return Keyed(np.concatenate([part.key for part in given]), pa.concat_batches([part.rows for part in given]))


def _columns(column: pa.StructArray, chosen: Longs) -> list[pa.Array]:
    taken = column if len(chosen) == len(column) else column.take(pa.array(chosen))
    return list(taken.flatten())
