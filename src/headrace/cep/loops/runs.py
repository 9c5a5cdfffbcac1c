"""Partial matches of a key, and what time means for them.

What always holds: the runs of a key are in the order of the rows at which they began, those of one row in the order of
preference; these functions write into arrays that their caller made large enough.
"""

from typing import Final

from headrace.cep.loops.arrays import copy_row, shift
from headrace.cep.loops.layout import (
    ACCEPT,
    C_DEADLINE,
    C_DROPPED,
    C_FAILED,
    C_FRESH,
    C_NODES,
    C_RUNS,
    C_TIMED_OUT,
    C_WAITING,
    DROP_NEWEST,
    E_ABSENT,
    E_ABSENT_END,
    E_BARS,
    E_BARS_END,
    E_TARGET,
    E_WAIT,
    E_WITHIN,
    FAIL,
    M_CHOICE,
    M_NODE,
    M_START,
    M_TIME,
    N_CHOICE,
    N_HASH,
    N_PARENT,
    N_PLACE,
    N_ROW,
    N_STATE,
    N_TIME,
    NEVER,
    O_AT_CAP,
    O_CAP,
    O_CHOOSES_ONE,
    O_WITHIN,
    R_DEADLINE,
    R_FRESH,
    R_LAST_US,
    R_NODE,
    R_OPEN,
    R_START,
    R_START_US,
    R_STATE,
    R_WAS_MATCH,
    S_EDGES,
    S_EDGES_END,
    S_END,
    S_VARIABLE,
    Longs,
)
from headrace.jit import compiled

HASHED: Final = 17


@compiled
def hashed(before: int, row: int, variable: int) -> int:
    """The hash of a node: equal for the same rows as the same variables."""
    return (before * 1_000_003) ^ (row * 31 + variable)


@compiled
def plan(runs: Longs, at: int, states: Longs, edges: Longs, settings: Longs) -> None:
    """When a run has to be looked at though no row comes."""
    deadline = NEVER if settings[O_WITHIN] == NEVER else runs[at, R_START_US] + settings[O_WITHIN]
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
    if at >= settings[O_CAP]:
        counts[C_DROPPED] += 1
        if settings[O_AT_CAP] == FAIL:
            counts[C_FAILED] = 1
            return
        if settings[O_AT_CAP] == DROP_NEWEST or at == 0:
            return
        shift(runs, 1, at + 1)
        at -= 1
    counts[C_RUNS] = at + 1
    counts[C_DEADLINE] = min(counts[C_DEADLINE], deadline)


@compiled
def take(
    counts: Longs, nodes: Longs, runs: Longs, fresh: Longs, states: Longs, edges: Longs, settings: Longs, target: int,
    parent: int, choice: int, row: int, time_us: int, place: int, start: int, start_us: int,
) -> bool:  # fmt: skip
    """A row is taken in a state: a node, a match if that is an end, a run if more may follow; whether it is an end."""
    node = counts[C_NODES]
    counts[C_NODES] = node + 1
    nodes[node, N_ROW] = row
    nodes[node, N_STATE] = target
    nodes[node, N_PARENT] = parent
    nodes[node, N_CHOICE] = choice
    nodes[node, N_TIME] = time_us
    nodes[node, N_PLACE] = place
    before = nodes[parent, N_HASH] if parent >= 0 else HASHED
    nodes[node, N_HASH] = hashed(before, row, states[target, S_VARIABLE])
    end = states[target, S_END]
    count = states[target, S_EDGES_END] - states[target, S_EDGES]
    open_edges = (1 << count) - 1
    if end >= 0:
        complete(counts, fresh, start, node, time_us, end)
        if settings[O_CHOOSES_ONE]:
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
            is_over = settings[O_WITHIN] != NEVER and due_us >= runs[number, R_START_US] + settings[O_WITHIN]
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
            elif not runs[number, R_WAS_MATCH] and not (settings[O_CHOOSES_ONE] and has_best(counts, waiting, start)):
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


@compiled
def finish(counts: Longs, runs: Longs, fresh: Longs, states: Longs, edges: Longs) -> None:
    """No row will come any more: what waits for one to be something else is complete."""
    for number in range(counts[C_RUNS]):
        begin = states[runs[number, R_STATE], S_EDGES]
        for choice in range(states[runs[number, R_STATE], S_EDGES_END] - begin):
            if (runs[number, R_OPEN] >> choice) & 1 and edges[begin + choice, E_TARGET] == ACCEPT:
                complete(counts, fresh, runs[number, R_START], runs[number, R_NODE], runs[number, R_LAST_US], choice)
    counts[C_RUNS] = 0
