"""What the columns of the arrays mean that the loops work on, and the numbers in them."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Longs = NDArray[np.int64]
Doubles = NDArray[np.float64]
Flags = NDArray[np.bool_]

NEVER = 2**63 - 1
NOT_YET = -(2**63)
ACCEPT = -1

# Columns of `states`: the mask to be taken, edges from and to, the choice that ends a match at once (-1: none), the
# number of its variable, its test, whether that has code, and whether the row is left out of what ALL ROWS PER MATCH
# shows.
S_MASK, S_EDGES, S_EDGES_END, S_END, S_VARIABLE, S_TEST, S_HAS_CODE, S_IS_EXCLUDED, S_WIDTH = 0, 1, 2, 3, 4, 5, 6, 7, 8
# Columns of `tests`: row predicates as bits, the code of what looks at other rows (from and to, equal if there is
# none), the variable as which a row counts meanwhile.
T_MASK, T_CODE, T_CODE_END, T_VARIABLE, T_WIDTH = 0, 1, 2, 3, 4
# Columns of `edges`; the edges of a state are numbered from 0, which is their bit in a run's `R_OPEN`.
E_TARGET, E_CONTIGUITY, E_WITHIN, E_WAIT, E_BARS, E_BARS_END = 0, 1, 2, 3, 4, 5
E_NEXT, E_NEXT_END, E_ABSENT, E_ABSENT_END, E_IS_PLAIN, E_WIDTH = 6, 7, 8, 9, 10, 11
STRICT, RELAXED, ANY = 0, 1, 2
# Columns of `runs`.
R_STATE, R_OPEN, R_START, R_START_US, R_NODE, R_LAST_US, R_FRESH, R_WAS_MATCH, R_DEADLINE = 0, 1, 2, 3, 4, 5, 6, 7, 8
R_WIDTH = 9
# Columns of `nodes`: the row, the state that it was taken in, the node before (-1), the edge, the time, a hash, and
# where the values of the row stand.
N_ROW, N_STATE, N_PARENT, N_CHOICE, N_TIME, N_HASH, N_PLACE, N_WIDTH = 0, 1, 2, 3, 4, 5, 6, 7
# Columns of what is complete: the row at which it began, the node, when it was known, the edge that ended it.
M_START, M_NODE, M_TIME, M_CHOICE, M_WIDTH = 0, 1, 2, 3, 4
# Places in `counts`.
C_RUNS, C_NODES, C_FRESH, C_WAITING, C_MATCHES, C_TIMED_OUT, C_FROM, C_DEADLINE, C_DROPPED, C_FAILED, C_WIDTH = (
    0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10,
)  # fmt: skip
# Places in `settings`.
O_WITHIN, O_SKIP, O_CHOOSES_ONE, O_CAP, O_AT_CAP, O_MERGES, O_IS_DISTINCT, O_EXPIRES, O_WIDTH = (
    0, 1, 2, 3, 4, 5, 6, 7, 8,
)  # fmt: skip
SKIP_NONE, SKIP_NEXT, SKIP_PAST, SKIP_FIRST, SKIP_LAST, SKIP_ALL = 0, 1, 2, 3, 4, 5
DROP_OLDEST, DROP_NEWEST, FAIL = 0, 1, 2


class Shape(NamedTuple):
    """An automaton as arrays. The edges of the start are those of the state behind the last."""

    states: Longs
    edges: Longs
    tests: Longs
    bars: Longs
    """Each a test, and one that makes up for it (-1: none)."""
    nexts: Longs
    absences: Longs
    """Each a test and a time."""
    skipped: Flags
    """By variable: whether a match is skipped to it."""
    settings: Longs


class Look(NamedTuple):
    """What conditions look at: their code, and the values of rows."""

    code: Longs
    constants: Longs
    constant_fractions: Doubles
    """The same memory."""
    sets: Flags
    """By set and variable: whether it belongs to it."""
    values: Longs
    """By place and lane; fractions as their bits."""
    fractions: Doubles
    """The same memory."""
    known: Flags
    """By place and lane: whether it is not NULL."""
    longs: Longs
    """Where the code puts what it finds: by instruction."""
    doubles: Doubles
    flags: Flags
