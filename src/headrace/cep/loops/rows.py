"""A row for the partial matches of a key: which take it, which go on without it, and what begins with it."""

from headrace.cep.loops.arrays import copy_row
from headrace.cep.loops.code import holds, passes
from headrace.cep.loops.layout import (
    ACCEPT,
    ANY,
    C_FROM,
    C_RUNS,
    E_ABSENT,
    E_ABSENT_END,
    E_BARS,
    E_BARS_END,
    E_CONTIGUITY,
    E_IS_PLAIN,
    E_NEXT,
    E_NEXT_END,
    E_TARGET,
    E_WAIT,
    NOT_YET,
    O_CHOOSES_ONE,
    O_EXPIRES,
    O_MERGES,
    R_FRESH,
    R_LAST_US,
    R_NODE,
    R_OPEN,
    R_START,
    R_START_US,
    R_STATE,
    R_WAS_MATCH,
    RELAXED,
    S_EDGES,
    S_EDGES_END,
    S_HAS_CODE,
    S_MASK,
    S_TEST,
    Longs,
    Look,
    Shape,
)
from headrace.cep.loops.runs import admit, complete, plan, take
from headrace.jit import compiled


@compiled
def is_barred(
    shape: Shape, look: Look, nodes: Longs, edge: int, mask: int, node: int, place: int
) -> bool:  # fmt: skip
    for number in range(shape.edges[edge, E_BARS], shape.edges[edge, E_BARS_END]):
        if passes(shape.tests, shape.bars[number, 0], mask, look, nodes, shape.states, node, place):
            unless = shape.bars[number, 1]
            if unless < 0 or not passes(shape.tests, unless, mask, look, nodes, shape.states, node, place):
                return True
    return False


@compiled
def is_absent(
    shape: Shape, look: Look, nodes: Longs, edge: int, mask: int, since_us: int, node: int, place: int
) -> bool:  # fmt: skip
    """Whether none of those came that must not for their time."""
    for number in range(shape.edges[edge, E_ABSENT], shape.edges[edge, E_ABSENT_END]):
        if since_us < shape.absences[number, 1] and passes(
            shape.tests, shape.absences[number, 0], mask, look, nodes, shape.states, node, place
        ):
            return False
    return True


@compiled
def step_all(
    counts: Longs, nodes: Longs, before: Longs, before_count: int, runs: Longs, fresh: Longs, shape: Shape, look: Look,
    row: int, time_us: int, mask: int, place: int,
) -> None:  # fmt: skip
    """A row for all runs of a key, where every match counts."""
    states, edges, tests, settings = shape.states, shape.edges, shape.tests, shape.settings
    for number in range(before_count):
        begin = states[before[number, R_STATE], S_EDGES]
        was_open = before[number, R_OPEN]
        node = before[number, R_NODE]
        still_open = 0
        for choice in range(states[before[number, R_STATE], S_EDGES_END] - begin):
            if not (was_open >> choice) & 1:
                continue
            edge = begin + choice
            target = edges[edge, E_TARGET]
            if not edges[edge, E_IS_PLAIN]:
                is_closed = False
                if before[number, R_FRESH]:
                    for at in range(edges[edge, E_NEXT], edges[edge, E_NEXT_END]):
                        is_closed = is_closed or passes(
                            tests, shape.nexts[at, 0], mask, look, nodes, states, node, place
                        )
                since_us = time_us - before[number, R_LAST_US]
                if (
                    is_closed
                    or is_barred(shape, look, nodes, edge, mask, node, place)
                    or not is_absent(shape, look, nodes, edge, mask, since_us, node, place)
                ):
                    continue
                if since_us < edges[edge, E_WAIT]:
                    still_open |= 1 << choice
                    continue
                if target == ACCEPT:
                    if edges[edge, E_BARS] < edges[edge, E_BARS_END]:
                        still_open |= 1 << choice
                    else:
                        complete(counts, fresh, before[number, R_START], node, time_us, choice)
                        before[number, R_WAS_MATCH] = 1
                    continue
            wanted = states[target, S_MASK]
            matched = (mask & wanted) == wanted
            if matched and states[target, S_HAS_CODE]:
                matched = holds(tests, states[target, S_TEST], look, nodes, states, node, place)
            if matched:
                take(
                    counts, nodes, runs, fresh, states, edges, settings, target, node, choice, row, time_us, place,
                    before[number, R_START], before[number, R_START_US],
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
    counts: Longs, nodes: Longs, before: Longs, before_count: int, runs: Longs, fresh: Longs, shape: Shape, look: Look,
    reached: Longs, row: int, time_us: int, mask: int, place: int,
) -> None:  # fmt: skip
    """The same where one match is chosen: edges are strict, and what reaches an end cuts off the less preferred."""
    states, edges, tests, settings = shape.states, shape.edges, shape.tests, shape.settings
    for number in range(len(reached)):
        reached[number, 0] = -1
    cut = -1  # the row at which a match began that is decided for this step
    for number in range(before_count):
        start = before[number, R_START]
        if start == cut:
            continue
        node = before[number, R_NODE]
        begin = states[before[number, R_STATE], S_EDGES]
        for choice in range(states[before[number, R_STATE], S_EDGES_END] - begin):
            if not (before[number, R_OPEN] >> choice) & 1:
                continue
            target = edges[begin + choice, E_TARGET]
            wanted = states[target, S_MASK]
            if (mask & wanted) != wanted:
                continue
            # Runs that began alike and are in one state have the same future if nothing looks at their rows: the
            # preferred one is enough.
            if settings[O_MERGES] and reached[target, 0] == start:
                continue
            if states[target, S_HAS_CODE] and not holds(
                tests, states[target, S_TEST], look, nodes, states, node, place
            ):
                continue
            reached[target, 0] = start
            is_end = take(
                counts, nodes, runs, fresh, states, edges, settings, target, node, choice, row, time_us, place, start,
                before[number, R_START_US],
            )  # fmt: skip
            if is_end:
                cut = start
                break


@compiled
def begin_at(
    counts: Longs, nodes: Longs, runs: Longs, fresh: Longs, shape: Shape, look: Look, began_us: Longs, value: int,
    row: int, time_us: int, mask: int, place: int,
) -> None:  # fmt: skip
    """What begins at a row; `value` says with which value (-1: every row may begin)."""
    states, edges, settings = shape.states, shape.edges, shape.settings
    begin = states[len(states) - 1, S_EDGES]
    is_asked = False
    for choice in range(states[len(states) - 1, S_EDGES_END] - begin):
        target = edges[begin + choice, E_TARGET]
        if not passes(shape.tests, states[target, S_TEST], mask, look, nodes, states, -1, place):
            continue
        if is_barred(shape, look, nodes, begin + choice, mask, -1, place):
            continue
        if not is_asked:
            is_asked = True
            if value >= 0:
                since_us = began_us[value]
                if since_us != NOT_YET and time_us - since_us < settings[O_EXPIRES]:
                    return
                began_us[value] = time_us
            if row < counts[C_FROM]:
                return
        is_end = take(
            counts, nodes, runs, fresh, states, edges, settings, target, -1, choice, row, time_us, place, row, time_us
        )
        if is_end and settings[O_CHOOSES_ONE]:
            return
