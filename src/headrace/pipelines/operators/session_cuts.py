"""Which pieces of activity make a session together. Pure, on columns."""

from typing import NamedTuple

import numpy as np

from headrace.pipelines.columns.jit import compiled
from headrace.pipelines.operators.grouping import Longs


class Sessions(NamedTuple):
    """For pieces sorted by key and start: the session of each, and of each session its first piece and its end."""

    of: Longs
    first: Longs
    end: Longs


def cut(key: Longs, start: Longs, end: Longs, maximum: int | None) -> Sessions:
    """Pieces that touch belong together; with a maximum a session ends so long after its start at the latest."""
    of = np.empty(len(key), np.int64)
    ends = np.empty(len(key), np.int64)
    count = _cut(key, start, end, -1 if maximum is None else maximum, of, ends)
    first = np.flatnonzero(np.diff(of, prepend=-1)).astype(np.int64)
    return Sessions(of, first, ends[:count])


@compiled
def _cut(key: Longs, start: Longs, end: Longs, maximum: int, of: Longs, ends: Longs) -> int:
    session = -1
    begun = 0
    until = 0
    for row in range(len(key)):
        joins = session >= 0 and key[row] == key[row - 1] and start[row] <= until
        if joins and maximum >= 0 and start[row] >= begun + maximum:
            joins = False
        if not joins:
            session += 1
            begun = start[row]
            until = end[row]
        elif end[row] > until:
            until = end[row]
        of[row] = session
        ends[session] = min(until, begun + maximum) if maximum >= 0 else until
    return session + 1
