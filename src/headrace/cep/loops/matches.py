"""Matches of a step in their order, and where the next may begin."""

from headrace.cep.loops.arrays import copy_row, shift
from headrace.cep.loops.layout import (
    C_FRESH,
    C_FROM,
    C_MATCHES,
    C_RUNS,
    C_WAITING,
    M_CHOICE,
    M_NODE,
    M_START,
    N_CHOICE,
    N_HASH,
    N_PARENT,
    N_ROW,
    N_STATE,
    NEVER,
    O_CHOOSES_ONE,
    O_SKIP,
    R_START,
    S_VARIABLE,
    SKIP_ALL,
    SKIP_LAST,
    SKIP_NEXT,
    SKIP_NONE,
    SKIP_PAST,
    Flags,
    Longs,
)
from headrace.cep.loops.paths import depth_of
from headrace.jit import compiled


@compiled
def compare_paths(nodes: Longs, fresh: Longs, one: int, other: int) -> int:
    """Which of two matches of a row is preferred: at the first difference, the earlier edge, then the earlier row."""
    first, second = fresh[one, M_NODE], fresh[other, M_NODE]
    first_end, second_end = fresh[one, M_CHOICE], fresh[other, M_CHOICE]
    first_depth, second_depth = depth_of(nodes, first), depth_of(nodes, second)
    found = 0
    if first_depth == second_depth:
        found = first_end - second_end
    # A shorter one ends where a longer one goes on: its end is compared with that edge.
    for _ in range(second_depth - first_depth):
        found = first_end - nodes[second, N_CHOICE]
        second = nodes[second, N_PARENT]
    for _ in range(first_depth - second_depth):
        found = nodes[first, N_CHOICE] - second_end
        first = nodes[first, N_PARENT]
    while first != second:
        choice = nodes[first, N_CHOICE] - nodes[second, N_CHOICE]
        row = nodes[first, N_ROW] - nodes[second, N_ROW]
        if choice or row:
            found = choice or row
        first, second = nodes[first, N_PARENT], nodes[second, N_PARENT]
    return found


@compiled
def is_same(nodes: Longs, states: Longs, first: int, second: int) -> bool:
    """Whether two nodes stand for the same rows as the same variables."""
    if nodes[first, N_HASH] != nodes[second, N_HASH]:
        return False
    while first >= 0 and second >= 0 and first != second:
        if nodes[first, N_ROW] != nodes[second, N_ROW]:
            return False
        if states[nodes[first, N_STATE], S_VARIABLE] != states[nodes[second, N_STATE], S_VARIABLE]:
            return False
        first, second = nodes[first, N_PARENT], nodes[second, N_PARENT]
    return first == second


@compiled
def order_fresh(counts: Longs, fresh: Longs, nodes: Longs, states: Longs) -> None:
    """The matches of one step: by where they begin, then by preference; each once."""
    count = counts[C_FRESH]
    if count < 2:
        return
    # The row behind the last is where one is put while its place is looked for.
    for number in range(1, count):
        copy_row(fresh, count, fresh, number)
        place = number
        while place > 0 and (
            fresh[place - 1, M_START] > fresh[count, M_START]
            or (
                fresh[place - 1, M_START] == fresh[count, M_START] and compare_paths(nodes, fresh, place - 1, count) > 0
            )
        ):
            copy_row(fresh, place, fresh, place - 1)
            place -= 1
        copy_row(fresh, place, fresh, count)
    kept = 0
    for number in range(count):
        is_new = True
        for earlier in range(kept - 1, -1, -1):
            if fresh[earlier, M_START] != fresh[number, M_START]:
                break
            if is_same(nodes, states, fresh[earlier, M_NODE], fresh[number, M_NODE]):
                is_new = False
                break
        if is_new:
            if kept != number:
                copy_row(fresh, kept, fresh, number)
            kept += 1
    counts[C_FRESH] = kept


@compiled
def next_start(nodes: Longs, states: Longs, skipped: Flags, skip: int, first: int, last: int) -> int:
    """The smallest number of a row at which a match may begin after the one from row `first` to node `last`."""
    if skip == SKIP_NEXT:
        return first + 1
    if skip == SKIP_PAST:
        return nodes[last, N_ROW] + 1
    if skip == SKIP_ALL:
        return NEVER
    found = -1
    node = last
    while node >= 0:
        if skipped[states[nodes[node, N_STATE], S_VARIABLE]]:
            found = nodes[node, N_ROW]
            if skip == SKIP_LAST:
                break
        node = nodes[node, N_PARENT]
    return max(first + 1, found)


@compiled
def settle(
    counts: Longs, runs: Longs, fresh: Longs, waiting: Longs, matches: Longs, nodes: Longs, states: Longs,
    skipped: Flags, settings: Longs,
) -> None:  # fmt: skip
    """Emit what is decided after a step, and drop what it skips."""
    if settings[O_CHOOSES_ONE] == 0:
        order_fresh(counts, fresh, nodes, states)
    if settings[O_CHOOSES_ONE] == 0 and settings[O_SKIP] == SKIP_NONE:
        for number in range(counts[C_FRESH]):
            copy_row(matches, counts[C_MATCHES], fresh, number)
            counts[C_MATCHES] += 1
        counts[C_FRESH] = 0
        return
    for number in range(counts[C_FRESH]):
        place = counts[C_WAITING]
        if settings[O_CHOOSES_ONE]:
            # A later end of the same attempt is preferred: what was less preferred was cut off before.
            found = -1
            for earlier in range(place):
                if waiting[earlier, M_START] == fresh[number, M_START]:
                    found = earlier
            if found >= 0:
                copy_row(waiting, found, fresh, number)
                continue
        while place > 0 and waiting[place - 1, M_START] > fresh[number, M_START]:
            copy_row(waiting, place, waiting, place - 1)
            place -= 1
        copy_row(waiting, place, fresh, number)
        counts[C_WAITING] += 1
    counts[C_FRESH] = 0
    while counts[C_WAITING] > 0:
        if counts[C_RUNS] > 0:
            earliest = runs[0, R_START]
            if earliest < waiting[0, M_START] or (settings[O_CHOOSES_ONE] and earliest == waiting[0, M_START]):
                return
        copy_row(matches, counts[C_MATCHES], waiting, 0)
        counts[C_MATCHES] += 1
        begin = next_start(nodes, states, skipped, settings[O_SKIP], waiting[0, M_START], waiting[0, M_NODE])
        shift(waiting, 1, counts[C_WAITING])
        counts[C_WAITING] -= 1
        if begin > counts[C_FROM]:
            counts[C_FROM] = begin
            drop_before(counts, runs, waiting, begin)


@compiled
def drop_before(counts: Longs, runs: Longs, waiting: Longs, begin: int) -> None:
    """Give up what began before a row."""
    first = 0
    while first < counts[C_RUNS] and runs[first, R_START] < begin:
        first += 1
    if first:
        shift(runs, first, counts[C_RUNS])
        counts[C_RUNS] -= first
    first = 0
    while first < counts[C_WAITING] and waiting[first, M_START] < begin:
        first += 1
    if first:
        shift(waiting, first, counts[C_WAITING])
        counts[C_WAITING] -= first
