"""All keys of a call, one after the other: the rows of each in their order, and then the watermark."""

import numpy as np

from headrace.cep.loops.arrays import copy_row, grow
from headrace.cep.loops.layout import (
    C_DEADLINE,
    C_FRESH,
    C_FROM,
    C_MATCHES,
    C_NODES,
    C_RUNS,
    C_TIMED_OUT,
    C_WAITING,
    C_WIDTH,
    E_TARGET,
    M_WIDTH,
    NEVER,
    O_CHOOSES_ONE,
    R_DEADLINE,
    R_WIDTH,
    S_EDGES,
    S_EDGES_END,
    S_MASK,
    Longs,
    Look,
    Shape,
)
from headrace.cep.loops.matches import settle
from headrace.cep.loops.rows import begin_at, step_all, step_preferred
from headrace.cep.loops.runs import finish, pass_time
from headrace.jit import compiled


@compiled
def step_keys(
    shape: Shape, look: Look, row_ends: Longs, rows: Longs, times_us: Longs, masks: Longs, watermark_us: int,
    is_final: bool, runs_in: Longs, run_ends: Longs, waiting_in: Longs, waiting_ends: Longs, froms: Longs,
    nodes_in: Longs, begun: Longs, began_us: Longs,
) -> tuple[Longs, Longs, Longs, Longs, Longs, Longs, Longs, Longs, Longs, Longs]:  # fmt: skip
    """Rows of some keys, each key's in their order, and then the watermark.

    Gives the runs and waiting matches that are left, with where each key's end; the nodes; matches and partial matches
    whose time was over, with where each key's end; and the counts. The values of row i stand behind those of the nodes
    that are kept, at place `len(nodes_in) + i`; `begun[i]` says with which value it may begin a match (empty: any), and
    `began_us` when one began with that value.
    """
    states, edges, settings = shape.states, shape.edges, shape.settings
    has_values = len(begun) > 0
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
                settle(counts, runs, fresh, waiting, matches, nodes, states, shape.skipped, settings)
            if not is_row:
                break
            mask = masks[at]
            before_count = counts[C_RUNS]
            begins = False
            if rows[at] >= counts[C_FROM] or has_values:
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
            if before_count and settings[O_CHOOSES_ONE]:
                step_preferred(
                    counts, nodes, before, before_count, runs, fresh, shape, look, reached, rows[at], times_us[at],
                    mask, len(nodes_in) + at,
                )  # fmt: skip
            elif before_count:
                step_all(
                    counts, nodes, before, before_count, runs, fresh, shape, look, rows[at], times_us[at], mask,
                    len(nodes_in) + at,
                )  # fmt: skip
            if begins:
                begin_at(
                    counts, nodes, runs, fresh, shape, look, began_us, begun[at] if has_values else -1, rows[at],
                    times_us[at], mask, len(nodes_in) + at,
                )  # fmt: skip
            if counts[C_FRESH] or counts[C_WAITING]:
                waiting = grow(waiting, counts[C_WAITING], counts[C_WAITING] + counts[C_FRESH])
                matches = grow(matches, counts[C_MATCHES], counts[C_MATCHES] + counts[C_WAITING] + counts[C_FRESH])
                settle(counts, runs, fresh, waiting, matches, nodes, states, shape.skipped, settings)
        if is_final:
            fresh = grow(fresh, 0, counts[C_RUNS] * widest + 1)
            finish(counts, runs, fresh, states, edges)
            waiting = grow(waiting, counts[C_WAITING], counts[C_WAITING] + counts[C_FRESH])
            matches = grow(matches, counts[C_MATCHES], counts[C_MATCHES] + counts[C_WAITING] + counts[C_FRESH])
            settle(counts, runs, fresh, waiting, matches, nodes, states, shape.skipped, settings)
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
