"""The versions of a table's rows in the order of time: put in order, looked up as of a time, forgotten. Pure.

Versions are in order by key number and by when they became valid, at most one for each key and time: of several that
became valid together only the last was ever to be seen. A deletion is a version too, which says that there is no row.
"""

from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.jit import compiled
from headrace.pipelines.keyed.operator import Keyed
from headrace.pipelines.operators.grouping import Longs, sort_rows

AT, OFFSET, PARTITION, GONE, VERSION = "_at", "_offset", "_partition", "_gone", "_id"
EMPTIED = "_emptied"
Flags = NDArray[np.bool_]


def versions_schema(row: pa.StructType, version: pa.StructType) -> pa.Schema:
    """What is kept of a version: when it became valid, its place in the log, its id, the row."""
    return pa.schema(
        [
            pa.field(AT, pa.int64()),
            pa.field(OFFSET, pa.int64()),
            pa.field(PARTITION, pa.int32()),
            pa.field(GONE, pa.bool_()),
            pa.field(VERSION, version),
            *(pa.field(f"row.{field.name}", field.type) for field in row),
        ]
    )


class Versions(NamedTuple):
    """Versions in order; version i is row `place[i]` of `rows`, which stay where they are until they are taken."""

    key: Longs
    at: Longs
    gone: Flags
    place: Longs
    rows: pa.RecordBatch

    def some(self, chosen: Longs) -> Keyed:
        """Some of them, to be kept."""
        return Keyed(self.key[chosen], self.rows.take(pa.array(self.place[chosen])))


def put_in_order(held: Keyed, fresh: Keyed) -> Versions:
    """Versions that are held, which are in order, and such as have come; what came twice is there once."""
    key = np.concatenate([held.key, fresh.key])
    rows = (
        pa.concat_batches([held.rows, fresh.rows]) if len(held) and len(fresh) else (held if len(held) else fresh).rows
    )
    at, offset = (np.asarray(rows.column(name), np.int64) for name in (AT, OFFSET))
    gone = np.asarray(rows.column(GONE), np.bool_)
    place = np.arange(len(held))
    if len(fresh):
        # Only keys with something new are sorted: mostly they are few.
        is_touched = np.zeros(int(key.max()) + 1, np.bool_)
        is_touched[fresh.key] = True
        mine = is_touched[held.key]
        touched = np.concatenate([np.flatnonzero(mine), np.arange(len(held), len(key))])
        touched = touched[_order(key[touched], at[touched], offset[touched])]
        place = np.concatenate([np.flatnonzero(~mine), touched[_is_last(key[touched], at[touched])]])
        place = place[np.argsort(key[place], kind="stable")]
    return Versions(key[place], at[place], gone[place], place, rows)


def _order(key: Longs, at: Longs, offset: Longs) -> Longs:
    """By key, time and place in the log, which is looked at only if times are equal."""
    order = sort_rows(key, at)
    return order if _is_last(key[order], at[order]).all() else np.lexsort((offset, at, key))


def _is_last(key: Longs, at: Longs) -> Flags:
    """Of versions in order, the last of each key and time."""
    found = np.ones(len(key), np.bool_)
    found[:-1] = (key[1:] != key[:-1]) | (at[1:] != at[:-1])
    return found


def match(event_key: Longs, event_at: Longs, versions: Versions) -> Longs:
    """For events sorted by key and time, the row of `versions.rows` that was valid then; -1 if there was none."""
    found = np.empty(len(event_key), np.int64)
    _match(event_key, event_at, *versions[:4], found)
    return found


@compiled
def _match(event_key: Longs, event_at: Longs, key: Longs, at: Longs, gone: Flags, place: Longs, found: Longs) -> None:
    after = 0
    for event in range(len(event_key)):
        mine = event_key[event]
        time = event_at[event]
        while after < len(key) and (key[after] < mine or (key[after] == mine and at[after] <= time)):
            after += 1
        last = after - 1
        found[event] = place[last] if last >= 0 and key[last] == mine and not gone[last] else -1


def last_until(versions: Versions, bound: int) -> Longs:
    """The last version of each key that was valid at `bound`: what came before it, nobody asks for any more."""
    past = versions.at <= bound
    followed = np.zeros(len(past), np.bool_)
    followed[:-1] = (versions.key[1:] == versions.key[:-1]) & past[1:]
    return np.flatnonzero(past & ~followed)
