"""A table's runs read as one, and merged when their sizes come near each other.

Runs stand from the oldest to the newest. A run is merged into an older one as soon as that is not more than what is
newer, so there are few runs (the logarithm of all entries), and an entry is rewritten as often as that. Some runs
whose times follow each other are left as they are, because each will be past as a whole.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headrace.pipelines.keyed.keys import Keys, join_keys
from headrace.pipelines.keyed.loops import Longs, find, merge_orders, number_equal, resolve
from headrace.pipelines.keyed.operator import Keyed, Table
from headrace.pipelines.keyed.run import NO_TIMES, Run, gather, no_rows, times_of

GROWTH = 1
_WAITING = 8  # so many runs may wait to be past


@dataclass(frozen=True)
class Extent:
    """What is known of a run without reading it."""

    id: str
    entries: int
    rows: int
    size_bytes: int
    replaces: bool
    """Whether any entry hides older ones."""
    first_us: int = 0
    last_us: int = 0


def extent_of(run: Run, table: Table, identity: str, size_bytes: int) -> Extent:
    """The extent of a run that is stored as `identity`."""
    times = times_of(run.rows, table)
    first, last = (int(times.min()), int(times.max())) if len(times) else (0, 0)
    return Extent(identity, len(run.keys), run.rows.num_rows, size_bytes, bool(run.replaces.any()), first, last)


def read(runs: Sequence[Run], table: Table, keys: Keys, bound: int) -> Keyed:
    """The rows of these keys (distinct, in order), by key number."""
    numbers, places, homes = [], [], []
    for home, run in enumerate(runs):
        found = np.empty(len(keys), np.int64)
        mine, its = keys, run.keys
        if find(mine.hashes, mine.ends, mine.arena, its.hashes, its.ends, its.arena, found):
            hit = np.flatnonzero(found >= 0)
            numbers.append(hit)
            places.append(found[hit])
            homes.append(home)
    if not homes:
        return Keyed(np.empty(0, np.int64), no_rows(table.schema))
    if len(homes) == 1 and table.time is None:
        return _read_one(runs[homes[0]], numbers[0], places[0])
    used = [runs[home] for home in homes]
    bases = np.cumsum([0, *(run.rows.num_rows for run in used)])
    whose = np.concatenate(numbers)
    order = np.argsort(whose, kind="stable")
    # Only rows of these keys are looked at, however many there are of others: `spots` are their places in the runs.
    spans = [_spots(run, place) for run, place in zip(used, places, strict=True)]
    counts = np.concatenate([count for _, count in spans])
    spots = np.concatenate([spot + base for (spot, _), base in zip(spans, bases, strict=False)])
    ends = np.cumsum(counts)[order]
    begins = ends - counts[order]
    replaces = np.concatenate([run.replaces[place] for run, place in zip(used, places, strict=True)])[order]
    times = NO_TIMES
    if table.time is not None:
        asked = [run.rows.select([table.time]) for run in used]
        parts = [times_of(part.take(pa.array(spot)), table) for part, (spot, _) in zip(asked, spans, strict=True)]
        times = np.concatenate(parts)
    rows = np.empty(len(spots), np.int64)
    row_ends = np.full(len(keys), -1, np.int64)
    hidden = np.zeros(len(keys), np.bool_)
    count = resolve(whose[order], replaces, begins, ends, times, bound, rows, row_ends, hidden)
    known = np.flatnonzero(row_ends >= 0)
    counts = np.diff(row_ends[known], prepend=0)
    return Keyed(np.repeat(known, counts), gather([run.rows for run in used], spots[rows[:count]]))


def _read_one(run: Run, numbers: Longs, places: Longs) -> Keyed:
    spots, counts = _spots(run, places)
    return Keyed(np.repeat(numbers, counts), run.rows.take(pa.array(spots)))


def _spots(run: Run, places: Longs) -> tuple[Longs, Longs]:
    """The rows of some entries, and how many each has."""
    begins = run.row_begins[places]
    counts = run.row_ends[places] - begins
    return np.repeat(begins - np.cumsum(counts) + counts, counts) + np.arange(int(counts.sum())), counts


def merge(runs: Sequence[Run], table: Table, bound: int, *, oldest: bool) -> Run | None:
    """The runs as one. If nothing older is left, tombstones have nothing to hide and go."""
    keys = join_keys([run.keys for run in runs])
    begins = keys.begins
    order = _order([len(run.keys) for run in runs], keys)
    numbers = np.empty(len(order), np.int64)
    count = number_equal(order, keys.hashes, begins, keys.ends, keys.arena, numbers)
    bases = np.cumsum([0, *(run.rows.num_rows for run in runs)])
    row_begins = np.concatenate([run.row_begins + base for run, base in zip(runs, bases, strict=False)])[order]
    row_stops = np.concatenate([run.row_ends + base for run, base in zip(runs, bases, strict=False)])[order]
    replaces = np.concatenate([run.replaces for run in runs])[order]
    times = NO_TIMES if table.time is None else np.concatenate([times_of(run.rows, table) for run in runs])
    rows = np.empty(int((row_stops - row_begins).sum()), np.int64)
    row_ends = np.empty(count, np.int64)
    hides = np.zeros(count, np.bool_)
    total = resolve(numbers, replaces, row_begins, row_stops, times, bound, rows, row_ends, hides)
    first = order[np.flatnonzero(np.diff(numbers, prepend=-1))]
    if oldest:
        hides[:] = False
    kept = np.flatnonzero(hides | (np.diff(row_ends, prepend=0) > 0))
    if not len(kept):
        return None
    return Run(keys.take(first[kept]), hides[kept], row_ends[kept], gather([run.rows for run in runs], rows[:total]))


def _order(counts: Sequence[int], keys: Keys) -> Longs:
    """The places of keys that lie run behind run, each run in order, as one order; the newest first, they are least."""
    ends = np.cumsum(counts)
    begins = keys.begins
    order = np.empty(0, np.int64)
    for end, count in zip(ends[::-1], counts[::-1], strict=True):
        merged = np.empty(len(order) + count, np.int64)
        older = np.arange(end - count, end)
        merge_orders(older, order, keys.hashes, begins, keys.ends, keys.arena, merged)
        order = merged
    return order


def merge_from(extents: Sequence[Extent], bound: int) -> int:
    """The place from which on runs are to be merged into one; the number of runs if none are."""
    start = len(extents)
    if not extents:
        return start
    weight = [each.entries + each.rows for each in extents]
    newer = weight[-1]
    for place in range(len(extents) - 2, -1, -1):
        if weight[place] > GROWTH * newer or _waits(extents, place):
            break
        newer += weight[place]
        start = place
    for place, each in enumerate(extents[:start]):
        # Half of the time it spans is past: about half of its rows can go.
        if each.rows and each.last_us > each.first_us and 2 * bound > each.first_us + each.last_us:
            return place
    return start


def _waits(extents: Sequence[Extent], place: int) -> bool:
    """Whether a run ends in time before the next begins: once it is past it goes unread, and merged it would not."""
    older, newer = extents[place], extents[place + 1]
    follows = bool(older.rows and newer.rows) and older.last_us < newer.first_us
    return follows and not older.replaces and len(extents) <= _WAITING


def is_gone(extent: Extent, bound: int) -> bool:
    """Whether a run holds nothing any more: all its rows are past, and it hides nothing."""
    return extent.rows > 0 and not extent.replaces and extent.last_us < bound
