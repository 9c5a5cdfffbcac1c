"""The automaton stepped over arrays, compiled: the same as `stepping.py` does for a key, for all keys of a call.

It looks at masks only, so it serves automata whose conditions look at one row (`Automaton.is_row_only`). Everything is
an array of `int64` with named columns: edges, runs, nodes (rows of partial matches, each with its parent, so that those
that began alike share them). Scalars that helpers change stand in `counts`.

What always holds:

- The runs of a key are in the order of the rows at which they began, those of one row in the order of preference.
- A node's parent stands before it.
- Helpers write into arrays that their caller made large enough.
"""

import numpy as np
from numpy.typing import NDArray

from headrace.jit import compiled

Longs = NDArray[np.int64]
Flags = NDArray[np.bool_]

NEVER = 2**63 - 1
ACCEPT = -1

# Columns of `states`: the mask to be taken, edges from and to, the choice that ends a match at once (-1: none), and the
# number of its variable.
S_MASK, S_EDGES, S_EDGES_END, S_END, S_VARIABLE, S_WIDTH = 0, 1, 2, 3, 4, 5
# Columns of `edges`; the edges of a state are numbered from 0, which is their bit in a run's `R_OPEN`.
E_TARGET, E_CONTIGUITY, E_WITHIN, E_WAIT, E_BARS, E_BARS_END = 0, 1, 2, 3, 4, 5
E_NEXT, E_NEXT_END, E_ABSENT, E_ABSENT_END, E_IS_PLAIN, E_WIDTH = 6, 7, 8, 9, 10, 11
STRICT, RELAXED, ANY = 0, 1, 2
# Columns of `runs`.
R_STATE, R_OPEN, R_START, R_START_US, R_NODE, R_LAST_US, R_FRESH, R_WAS_MATCH, R_DEADLINE = 0, 1, 2, 3, 4, 5, 6, 7, 8
R_WIDTH = 9
# Columns of `nodes`: the row, the state that it was taken in, the node before (-1), the edge, the time, a hash.
N_ROW, N_STATE, N_PARENT, N_CHOICE, N_TIME, N_HASH, N_WIDTH = 0, 1, 2, 3, 4, 5, 6
# Columns of what is complete: the row at which it began, the node, when it was known, the edge that ended it.
M_START, M_NODE, M_TIME, M_CHOICE, M_WIDTH = 0, 1, 2, 3, 4
# Places in `counts`.
C_RUNS, C_NODES, C_FRESH, C_WAITING, C_MATCHES, C_TIMED_OUT, C_FROM, C_DEADLINE, C_DROPPED, C_FAILED, C_WIDTH = (
    0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10,
)  # fmt: skip
# Places in `settings`.
T_WITHIN, T_SKIP, T_CHOOSES_ONE, T_CAP, T_AT_CAP, T_WIDTH = 0, 1, 2, 3, 4, 5
SKIP_NONE, SKIP_NEXT, SKIP_PAST, SKIP_FIRST, SKIP_LAST, SKIP_ALL = 0, 1, 2, 3, 4, 5
DROP_OLDEST, DROP_NEWEST, FAIL = 0, 1, 2


@compiled
def grow(array: Longs, count: int, wanted: int) -> Longs:
    """The array, or a larger one with its first `count` rows, in which `wanted` fit."""
    if wanted <= len(array):
        return array
    larger = np.empty((max(wanted, 2 * len(array)), array.shape[1]), np.int64)
    larger[:count] = array[:count]
    return larger


@compiled
def copy_row(target: Longs, at: int, source: Longs, number: int) -> None:
    """By hand: a slice of an array counts references, and these are the innermost loops."""
    for column in range(target.shape[1]):
        target[at, column] = source[number, column]


@compiled
def shift(array: Longs, by: int, count: int) -> None:
    """Take the first rows out of an array of `count`."""
    for number in range(by, count):
        copy_row(array, number - by, array, number)


@compiled
def plan(runs: Longs, at: int, states: Longs, edges: Longs, settings: Longs) -> None:
    """When a run has to be looked at though no row comes."""
    deadline = NEVER if settings[T_WITHIN] == NEVER else runs[at, R_START_US] + settings[T_WITHIN]
    begin = states[runs[at, R_STATE], S_EDGES]
    for choice in range(states[runs[at, R_STATE], S_EDGES_END] - begin):
        if not (runs[at, R_OPEN] >> choice) & 1:
            continue
        edge = begin + choice
        if edges[edge, E_WITHIN] != NEVER:
            deadline = min(deadline, runs[at, R_LAST_US] + edges[edge, E_WITHIN])
        if is_timed_end(edges, edge):
            deadline = min(deadline, runs[at, R_LAST_US] + edges[edge, E_WAIT])
    runs[at, R_DEADLINE] = deadline


@compiled
def is_timed_end(edges: Longs, edge: int) -> bool:
    """An end that comes when its absences have lasted long enough, whatever the window."""
    return (
        edges[edge, E_TARGET] == ACCEPT
        and edges[edge, E_ABSENT] < edges[edge, E_ABSENT_END]
        and edges[edge, E_BARS] == edges[edge, E_BARS_END]
    )


@compiled
def is_barred(edges: Longs, edge: int, bars: Longs, mask: int) -> bool:
    for number in range(edges[edge, E_BARS], edges[edge, E_BARS_END]):
        if (mask & bars[number, 0]) == bars[number, 0]:
            unless = bars[number, 1]
            if unless < 0 or (mask & unless) != unless:
                return True
    return False


@compiled
def is_absent(edges: Longs, edge: int, absences: Longs, mask: int, since_us: int) -> bool:
    """Whether none of those came that must not for their time."""
    for number in range(edges[edge, E_ABSENT], edges[edge, E_ABSENT_END]):
        if since_us < absences[number, 1] and (mask & absences[number, 0]) == absences[number, 0]:
            return False
    return True


@compiled
def complete(counts: Longs, fresh: Longs, start: int, node: int, time_us: int, choice: int) -> None:
    at = counts[C_FRESH]
    fresh[at, M_START] = start
    fresh[at, M_NODE] = node
    fresh[at, M_TIME] = time_us
    fresh[at, M_CHOICE] = choice
    counts[C_FRESH] = at + 1


@compiled
def admit(counts: Longs, runs: Longs, settings: Longs) -> None:
    """The run that was written behind the others is one of them; at the cap, what was chosen for it."""
    at = counts[C_RUNS]
    deadline = runs[at, R_DEADLINE]
    if at >= settings[T_CAP]:
        counts[C_DROPPED] += 1
        if settings[T_AT_CAP] == FAIL:
            counts[C_FAILED] = 1
            return
        if settings[T_AT_CAP] == DROP_NEWEST or at == 0:
            return
        shift(runs, 1, at + 1)
        at -= 1
    counts[C_RUNS] = at + 1
    counts[C_DEADLINE] = min(counts[C_DEADLINE], deadline)


@compiled
def take(
    counts: Longs, nodes: Longs, runs: Longs, fresh: Longs, states: Longs, edges: Longs, settings: Longs, target: int,
    parent: int, choice: int, row: int, time_us: int, start: int, start_us: int,
) -> bool:  # fmt: skip
    """A row is taken in a state: a node, a match if that is an end, a run if more may follow; whether it is an end."""
    node = counts[C_NODES]
    counts[C_NODES] = node + 1
    nodes[node, N_ROW] = row
    nodes[node, N_STATE] = target
    nodes[node, N_PARENT] = parent
    nodes[node, N_CHOICE] = choice
    nodes[node, N_TIME] = time_us
    before = nodes[parent, N_HASH] if parent >= 0 else 17
    nodes[node, N_HASH] = (before * 1_000_003) ^ (row * 31 + states[target, S_VARIABLE])
    end = states[target, S_END]
    count = states[target, S_EDGES_END] - states[target, S_EDGES]
    open_edges = (1 << count) - 1
    if end >= 0:
        complete(counts, fresh, start, node, time_us, end)
        if settings[T_CHOOSES_ONE]:
            open_edges = (1 << end) - 1
        else:
            open_edges &= ~(1 << end)
    if open_edges:
        at = counts[C_RUNS]
        runs[at, R_STATE] = target
        runs[at, R_OPEN] = open_edges
        runs[at, R_START] = start
        runs[at, R_START_US] = start_us
        runs[at, R_NODE] = node
        runs[at, R_LAST_US] = time_us
        runs[at, R_FRESH] = 1
        runs[at, R_WAS_MATCH] = 1 if end >= 0 else 0
        plan(runs, at, states, edges, settings)
        admit(counts, runs, settings)
    return end >= 0


@compiled
def step_all(
    counts: Longs, nodes: Longs, before: Longs, before_count: int, runs: Longs, fresh: Longs, states: Longs,
    edges: Longs, bars: Longs, nexts: Longs, absences: Longs, settings: Longs, row: int, time_us: int, mask: int,
) -> None:  # fmt: skip
    """A row for all runs of a key, where every match counts."""
    for number in range(before_count):
        begin = states[before[number, R_STATE], S_EDGES]
        was_open = before[number, R_OPEN]
        still_open = 0
        for choice in range(states[before[number, R_STATE], S_EDGES_END] - begin):
            if not (was_open >> choice) & 1:
                continue
            edge = begin + choice
            target = edges[edge, E_TARGET]
            if not edges[edge, E_IS_PLAIN]:
                is_closed = False
                if before[number, R_FRESH]:
                    for place in range(edges[edge, E_NEXT], edges[edge, E_NEXT_END]):
                        is_closed = is_closed or (mask & nexts[place, 0]) == nexts[place, 0]
                since_us = time_us - before[number, R_LAST_US]
                if (
                    is_closed
                    or is_barred(edges, edge, bars, mask)
                    or not is_absent(edges, edge, absences, mask, since_us)
                ):
                    continue
                if since_us < edges[edge, E_WAIT]:
                    still_open |= 1 << choice
                    continue
                if target == ACCEPT:
                    if edges[edge, E_BARS] < edges[edge, E_BARS_END]:
                        still_open |= 1 << choice
                    else:
                        complete(counts, fresh, before[number, R_START], before[number, R_NODE], time_us, choice)
                        before[number, R_WAS_MATCH] = 1
                    continue
            matched = (mask & states[target, S_MASK]) == states[target, S_MASK]
            if matched:
                take(
                    counts, nodes, runs, fresh, states, edges, settings, target, before[number, R_NODE], choice, row,
                    time_us, before[number, R_START], before[number, R_START_US],
                )  # fmt: skip
            contiguity = edges[edge, E_CONTIGUITY]
            if contiguity == ANY or (contiguity == RELAXED and not matched):
                still_open |= 1 << choice
        if still_open:
            at = counts[C_RUNS]
            copy_row(runs, at, before, number)
            runs[at, R_FRESH] = 0
            if still_open != was_open:
                runs[at, R_OPEN] = still_open
                plan(runs, at, states, edges, settings)
            admit(counts, runs, settings)


@compiled
def step_preferred(
    counts: Longs, nodes: Longs, before: Longs, before_count: int, runs: Longs, fresh: Longs, states: Longs,
    edges: Longs, settings: Longs, reached: Longs, row: int, time_us: int, mask: int,
) -> None:  # fmt: skip
    """The same where one match is chosen: edges are strict, and what reaches an end cuts off the less preferred."""
    for number in range(len(reached)):
        reached[number, 0] = -1
    cut = -1  # the row at which a match began that is decided for this step
    for number in range(before_count):
        start = before[number, R_START]
        if start == cut:
            continue
        begin = states[before[number, R_STATE], S_EDGES]
        for choice in range(states[before[number, R_STATE], S_EDGES_END] - begin):
            if not (before[number, R_OPEN] >> choice) & 1:
                continue
            target = edges[begin + choice, E_TARGET]
            # Runs that began alike and are in one state have the same future: the preferred one is enough.
            if reached[target, 0] == start or (mask & states[target, S_MASK]) != states[target, S_MASK]:
                continue
            reached[target, 0] = start
            is_end = take(
                counts, nodes, runs, fresh, states, edges, settings, target, before[number, R_NODE], choice, row,
                time_us, start, before[number, R_START_US],
            )  # fmt: skip
            if is_end:
                cut = start
                break


@compiled
def begin_at(
    counts: Longs, nodes: Longs, runs: Longs, fresh: Longs, states: Longs, edges: Longs, bars: Longs, settings: Longs,
    row: int, time_us: int, mask: int,
) -> None:  # fmt: skip
    """What begins at a row; the edges of the start are those of the state behind the last."""
    begin = states[len(states) - 1, S_EDGES]
    for choice in range(states[len(states) - 1, S_EDGES_END] - begin):
        target = edges[begin + choice, E_TARGET]
        if (mask & states[target, S_MASK]) != states[target, S_MASK] or is_barred(edges, begin + choice, bars, mask):
            continue
        is_end = take(
            counts, nodes, runs, fresh, states, edges, settings, target, -1, choice, row, time_us, row, time_us
        )
        if is_end and settings[T_CHOOSES_ONE]:
            return


@compiled
def pass_time(
    counts: Longs, runs: Longs, fresh: Longs, waiting: Longs, timed_out: Longs, states: Longs, edges: Longs,
    settings: Longs, due_us: int,
) -> None:  # fmt: skip
    """What a time means for the runs of a key: absences that are complete, windows that are over."""
    kept = 0
    counts[C_DEADLINE] = NEVER
    for number in range(counts[C_RUNS]):
        is_kept = True
        if runs[number, R_DEADLINE] <= due_us:
            start, last_us = runs[number, R_START], runs[number, R_LAST_US]
            is_over = settings[T_WITHIN] != NEVER and due_us >= runs[number, R_START_US] + settings[T_WITHIN]
            begin = states[runs[number, R_STATE], S_EDGES]
            still_open = 0
            for choice in range(states[runs[number, R_STATE], S_EDGES_END] - begin):
                if not (runs[number, R_OPEN] >> choice) & 1:
                    continue
                edge = begin + choice
                if edges[edge, E_TARGET] == ACCEPT:
                    has_waited = due_us >= last_us + edges[edge, E_WAIT]
                    if is_over or (has_waited and is_timed_end(edges, edge)):
                        if has_waited:
                            complete(counts, fresh, start, runs[number, R_NODE], due_us, choice)
                            runs[number, R_WAS_MATCH] = 1
                        continue
                elif is_over or (edges[edge, E_WITHIN] != NEVER and due_us >= last_us + edges[edge, E_WITHIN]):
                    continue
                still_open |= 1 << choice
            runs[number, R_OPEN] = still_open
            is_kept = still_open != 0
            if is_kept:
                plan(runs, number, states, edges, settings)
            elif not runs[number, R_WAS_MATCH] and not (settings[T_CHOOSES_ONE] and has_best(counts, waiting, start)):
                at = counts[C_TIMED_OUT]
                timed_out[at, M_START] = start
                timed_out[at, M_NODE] = runs[number, R_NODE]
                timed_out[at, M_TIME] = due_us
                timed_out[at, M_CHOICE] = 0
                counts[C_TIMED_OUT] = at + 1
        if is_kept:
            if kept != number:
                copy_row(runs, kept, runs, number)
            counts[C_DEADLINE] = min(counts[C_DEADLINE], runs[kept, R_DEADLINE])
            kept += 1
    counts[C_RUNS] = kept


@compiled
def has_best(counts: Longs, waiting: Longs, start: int) -> bool:
    for number in range(counts[C_WAITING]):  # noqa: SIM110 - a loop is what is compiled
        if waiting[number, M_START] == start:
            return True
    return False


# --- matches in their order


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
def depth_of(nodes: Longs, node: int) -> int:
    depth = 0
    while node >= 0:
        depth += 1
        node = nodes[node, N_PARENT]
    return depth


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
    if settings[T_CHOOSES_ONE] == 0:
        order_fresh(counts, fresh, nodes, states)
    if settings[T_CHOOSES_ONE] == 0 and settings[T_SKIP] == SKIP_NONE:
        for number in range(counts[C_FRESH]):
            copy_row(matches, counts[C_MATCHES], fresh, number)
            counts[C_MATCHES] += 1
        counts[C_FRESH] = 0
        return
    for number in range(counts[C_FRESH]):
        place = counts[C_WAITING]
        if settings[T_CHOOSES_ONE]:
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
            if earliest < waiting[0, M_START] or (settings[T_CHOOSES_ONE] and earliest == waiting[0, M_START]):
                return
        copy_row(matches, counts[C_MATCHES], waiting, 0)
        counts[C_MATCHES] += 1
        begin = next_start(nodes, states, skipped, settings[T_SKIP], waiting[0, M_START], waiting[0, M_NODE])
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


# --- all keys of a call


@compiled
def step_keys(
    states: Longs, edges: Longs, bars: Longs, nexts: Longs, absences: Longs, skipped: Flags, settings: Longs,
    row_ends: Longs, rows: Longs, times_us: Longs, masks: Longs, watermark_us: int, is_final: bool,
    runs_in: Longs, run_ends: Longs, waiting_in: Longs, waiting_ends: Longs, froms: Longs, nodes_in: Longs,
) -> tuple[Longs, Longs, Longs, Longs, Longs, Longs, Longs, Longs, Longs, Longs]:  # fmt: skip
    """Rows of some keys, each key's in their order, and then the watermark.

    Gives the runs and waiting matches that are left, with where each key's end; the nodes; matches and partial matches
    whose time was over, with where each key's end; and the counts.
    """
    keys = len(row_ends)
    counts = np.zeros(C_WIDTH, np.int64)
    widest = 1
    for number in range(len(states)):
        widest = max(widest, states[number, S_EDGES_END] - states[number, S_EDGES])
    nodes = grow(nodes_in, len(nodes_in), len(nodes_in) + 64)
    counts[C_NODES] = len(nodes_in)
    kept = np.empty((max(16, len(runs_in)), R_WIDTH), np.int64)
    kept_count = 0
    held = np.empty((max(16, len(waiting_in)), M_WIDTH), np.int64)
    held_count = 0
    kept_ends, held_ends = np.empty(keys, np.int64), np.empty(keys, np.int64)
    matches, timed_out = np.empty((64, M_WIDTH), np.int64), np.empty((64, M_WIDTH), np.int64)
    match_ends, timed_out_ends = np.empty(keys, np.int64), np.empty(keys, np.int64)
    runs, before = np.empty((64, R_WIDTH), np.int64), np.empty((64, R_WIDTH), np.int64)
    fresh, waiting = np.empty((64, M_WIDTH), np.int64), np.empty((64, M_WIDTH), np.int64)
    reached = np.empty((len(states), 1), np.int64)
    for key in range(keys):
        begin = run_ends[key - 1] if key else 0
        counts[C_RUNS] = run_ends[key] - begin
        runs = grow(runs, 0, counts[C_RUNS])
        for number in range(counts[C_RUNS]):
            copy_row(runs, number, runs_in, begin + number)
        begin = waiting_ends[key - 1] if key else 0
        counts[C_WAITING] = waiting_ends[key] - begin
        waiting = grow(waiting, 0, counts[C_WAITING])
        for number in range(counts[C_WAITING]):
            copy_row(waiting, number, waiting_in, begin + number)
        counts[C_FROM] = froms[key]
        counts[C_DEADLINE] = NEVER
        for number in range(counts[C_RUNS]):
            counts[C_DEADLINE] = min(counts[C_DEADLINE], runs[number, R_DEADLINE])
        first_row = row_ends[key - 1] if key else 0
        for at in range(first_row, row_ends[key] + 1):
            is_row = at < row_ends[key]
            now_us = times_us[at] if is_row else (NEVER - 1 if is_final else watermark_us)
            while counts[C_DEADLINE] <= now_us:
                due_us = counts[C_DEADLINE]
                fresh = grow(fresh, 0, counts[C_RUNS] * widest + 1)
                timed_out = grow(timed_out, counts[C_TIMED_OUT], counts[C_TIMED_OUT] + counts[C_RUNS])
                pass_time(counts, runs, fresh, waiting, timed_out, states, edges, settings, due_us)
                waiting = grow(waiting, counts[C_WAITING], counts[C_WAITING] + counts[C_FRESH])
                matches = grow(matches, counts[C_MATCHES], counts[C_MATCHES] + counts[C_WAITING] + counts[C_FRESH])
                settle(counts, runs, fresh, waiting, matches, nodes, states, skipped, settings)
            if not is_row:
                break
            mask = masks[at]
            before_count = counts[C_RUNS]
            begins = False
            if rows[at] >= counts[C_FROM]:
                for number in range(states[len(states) - 1, S_EDGES], states[len(states) - 1, S_EDGES_END]):
                    wanted = states[edges[number, E_TARGET], S_MASK]
                    begins = begins or (mask & wanted) == wanted
            if before_count == 0 and not begins:
                continue  # most rows of most keys
            most = (before_count + 1) * widest
            nodes = grow(nodes, counts[C_NODES], counts[C_NODES] + most)
            fresh = grow(fresh, 0, most + 1)
            before = grow(before, 0, before_count + most)
            runs, before = before, runs
            counts[C_RUNS] = 0
            counts[C_DEADLINE] = NEVER
            # To call a function with many arrays costs more than most rows do: it is called if there is work for it.
            if before_count and settings[T_CHOOSES_ONE]:
                step_preferred(
                    counts, nodes, before, before_count, runs, fresh, states, edges, settings, reached, rows[at],
                    times_us[at], mask,
                )  # fmt: skip
            elif before_count:
                step_all(
                    counts, nodes, before, before_count, runs, fresh, states, edges, bars, nexts, absences, settings,
                    rows[at], times_us[at], mask,
                )  # fmt: skip
            if begins:
                begin_at(counts, nodes, runs, fresh, states, edges, bars, settings, rows[at], times_us[at], mask)
            if counts[C_FRESH] or counts[C_WAITING]:
                waiting = grow(waiting, counts[C_WAITING], counts[C_WAITING] + counts[C_FRESH])
                matches = grow(matches, counts[C_MATCHES], counts[C_MATCHES] + counts[C_WAITING] + counts[C_FRESH])
                settle(counts, runs, fresh, waiting, matches, nodes, states, skipped, settings)
        if is_final:
            fresh = grow(fresh, 0, counts[C_RUNS] * widest + 1)
            finish(counts, runs, fresh, states, edges)
            waiting = grow(waiting, counts[C_WAITING], counts[C_WAITING] + counts[C_FRESH])
            matches = grow(matches, counts[C_MATCHES], counts[C_MATCHES] + counts[C_WAITING] + counts[C_FRESH])
            settle(counts, runs, fresh, waiting, matches, nodes, states, skipped, settings)
        froms[key] = counts[C_FROM]
        kept = grow(kept, kept_count, kept_count + counts[C_RUNS])
        for number in range(counts[C_RUNS]):
            copy_row(kept, kept_count, runs, number)
            kept_count += 1
        kept_ends[key] = kept_count
        held = grow(held, held_count, held_count + counts[C_WAITING])
        for number in range(counts[C_WAITING]):
            copy_row(held, held_count, waiting, number)
            held_count += 1
        held_ends[key] = held_count
        match_ends[key] = counts[C_MATCHES]
        timed_out_ends[key] = counts[C_TIMED_OUT]
    return (
        kept[:kept_count], kept_ends, held[:held_count], held_ends, nodes[: counts[C_NODES]],
        matches[: counts[C_MATCHES]], match_ends, timed_out[: counts[C_TIMED_OUT]], timed_out_ends, counts,
    )  # fmt: skip


@compiled
def finish(counts: Longs, runs: Longs, fresh: Longs, states: Longs, edges: Longs) -> None:
    """No row will come any more: what waits for one to be something else is complete."""
    for number in range(counts[C_RUNS]):
        begin = states[runs[number, R_STATE], S_EDGES]
        for choice in range(states[runs[number, R_STATE], S_EDGES_END] - begin):
            if (runs[number, R_OPEN] >> choice) & 1 and edges[begin + choice, E_TARGET] == ACCEPT:
                complete(counts, fresh, runs[number, R_START], runs[number, R_NODE], runs[number, R_LAST_US], choice)
    counts[C_RUNS] = 0


@compiled
def collect(nodes: Longs, runs: Longs, waiting: Longs) -> Longs:
    """The nodes that partial matches still hold, the others left out; the runs and matches point to where they are."""
    is_held = np.zeros(len(nodes), np.bool_)
    for number in range(len(runs)):
        is_held[runs[number, R_NODE]] = True
    for number in range(len(waiting)):
        is_held[waiting[number, M_NODE]] = True
    for number in range(len(nodes) - 1, -1, -1):
        if is_held[number] and nodes[number, N_PARENT] >= 0:
            is_held[nodes[number, N_PARENT]] = True
    places = np.empty(len(nodes), np.int64)
    count = 0
    for number in range(len(nodes)):
        if is_held[number]:
            places[number] = count
            count += 1
    held = np.empty((count, N_WIDTH), np.int64)
    for number in range(len(nodes)):
        if is_held[number]:
            copy_row(held, places[number], nodes, number)
            parent = nodes[number, N_PARENT]
            held[places[number], N_PARENT] = places[parent] if parent >= 0 else -1
    for number in range(len(runs)):
        runs[number, R_NODE] = places[runs[number, R_NODE]]
    for number in range(len(waiting)):
        waiting[number, M_NODE] = places[waiting[number, M_NODE]]
    return held


@compiled
def write_paths(nodes: Longs, found: Longs, states: Longs, ends: Longs, rows: Longs, variables: Longs) -> None:
    """The rows of some matches in their order, one match behind the other; `ends` says where each ends."""
    for number in range(len(found)):
        at = ends[number]
        node = found[number, M_NODE]
        while node >= 0:
            at -= 1
            rows[at] = nodes[node, N_ROW]
            variables[at] = states[nodes[node, N_STATE], S_VARIABLE]
            node = nodes[node, N_PARENT]


@compiled
def measure_paths(nodes: Longs, found: Longs, ends: Longs) -> int:
    """Where the rows of each match end; how many there are in all."""
    total = 0
    for number in range(len(found)):
        total += depth_of(nodes, found[number, M_NODE])
        ends[number] = total
    return total
