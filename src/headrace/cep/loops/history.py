"""What is looked up in the rows that a partial match took: single values, and aggregates."""

import numpy as np

from headrace.cep.loops.arithmetic import adds_too_much, compare_doubles
from headrace.cep.loops.instructions import (
    COUNT,
    COUNT_DISTINCT,
    COUNT_ROWS,
    MAX_DOUBLE,
    MAX_LONG,
    MIN_DOUBLE,
    MIN_LONG,
    SUM_DISTINCT_DOUBLE,
    SUM_DISTINCT_LONG,
    SUM_LONG,
)
from headrace.cep.loops.layout import (
    N_PARENT,
    N_PLACE,
    N_STATE,
    S_VARIABLE,
    Longs,
    Look,
)
from headrace.jit import compiled


@compiled
def find_row(
    look: Look, nodes: Longs, states: Longs, node: int, place: int, variable: int, members: int, offset: int,
    from_first: bool,
) -> int:  # fmt: skip
    """Where the values of the `offset`-th row of some variables stand, from one end; -1 if there is none."""
    if from_first:
        count = 1 if look.sets[members, variable] else 0
        last = node
        while last >= 0:
            count += look.sets[members, states[nodes[last, N_STATE], S_VARIABLE]]
            last = nodes[last, N_PARENT]
        offset = count - 1 - offset
        if offset < 0:
            return -1
    if look.sets[members, variable]:
        if offset == 0:
            return place
        offset -= 1
    while node >= 0:
        if look.sets[members, states[nodes[node, N_STATE], S_VARIABLE]]:
            if offset == 0:
                return nodes[node, N_PLACE]
            offset -= 1
        node = nodes[node, N_PARENT]
    return -1


@compiled
def gather(
    look: Look, nodes: Longs, states: Longs, node: int, place: int, variable: int, members: int, lane: int
) -> Longs:
    """Where the rows of some variables stand whose value is known, the first row first."""
    count = 0
    last = node
    while last >= 0:
        if look.sets[members, states[nodes[last, N_STATE], S_VARIABLE]] and look.known[nodes[last, N_PLACE], lane]:
            count += 1
        last = nodes[last, N_PARENT]
    is_in = look.sets[members, variable] and look.known[place, lane]
    found = np.empty(count + 1 if is_in else count, np.int64)
    if is_in:
        found[count] = place
    while node >= 0:
        if look.sets[members, states[nodes[node, N_STATE], S_VARIABLE]] and look.known[nodes[node, N_PLACE], lane]:
            count -= 1
            found[count] = nodes[node, N_PLACE]
        node = nodes[node, N_PARENT]
    return found


@compiled
def keep_distinct(found: Longs, look: Look, lane: int) -> int:
    """Each value once, the first of equal ones; how many there are. Lanes hold one form of NaN and of zero."""
    count = 0
    for number in range(len(found)):
        is_new = True
        for earlier in range(count):
            if look.values[found[earlier], lane] == look.values[found[number], lane]:
                is_new = False
                break
        if is_new:
            found[count] = found[number]
            count += 1
    return count


@compiled
def run_aggregate(
    look: Look, at: int, what: int, lane: int, members: int, nodes: Longs, states: Longs, node: int, place: int,
    variable: int,
) -> None:  # fmt: skip
    """An aggregate over the rows of some variables, into the place of its instruction."""
    longs, doubles, flags = look.longs, look.doubles, look.flags
    flags[at] = True
    longs[at] = 0
    doubles[at] = 0.0
    if what in (COUNT_ROWS, COUNT, MIN_LONG, MAX_LONG, MIN_DOUBLE, MAX_DOUBLE):
        flags[at] = what in (COUNT_ROWS, COUNT)
        is_in = look.sets[members, variable]
        while True:
            if is_in and what == COUNT_ROWS:
                longs[at] += 1
            elif is_in and look.known[place, lane]:
                if what == COUNT:
                    longs[at] += 1
                elif what in (MIN_LONG, MAX_LONG):
                    value = look.values[place, lane]
                    if not flags[at] or (value < longs[at] if what == MIN_LONG else value > longs[at]):
                        longs[at] = value
                    flags[at] = True
                else:
                    fraction = look.fractions[place, lane]
                    compared = compare_doubles(fraction, doubles[at])
                    if not flags[at] or (compared < 0 if what == MIN_DOUBLE else compared > 0):
                        doubles[at] = fraction
                    flags[at] = True
            if node < 0:
                return
            is_in = look.sets[members, states[nodes[node, N_STATE], S_VARIABLE]]
            place = nodes[node, N_PLACE]
            node = nodes[node, N_PARENT]
    found = gather(look, nodes, states, node, place, variable, members, lane)
    count = len(found)
    if what in (COUNT_DISTINCT, SUM_DISTINCT_LONG, SUM_DISTINCT_DOUBLE):
        count = keep_distinct(found, look, lane)
    if what == COUNT_DISTINCT:
        longs[at] = count
        return
    flags[at] = count > 0
    if what in (SUM_LONG, SUM_DISTINCT_LONG):
        for number in range(count):
            value = look.values[found[number], lane]
            if adds_too_much(longs[at], value):
                flags[at] = False
                return
            longs[at] += value
    else:
        for number in range(count):
            fraction = look.fractions[found[number], lane]
            doubles[at] = doubles[at] + fraction if number else fraction
