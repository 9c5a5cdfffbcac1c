"""Conditions at work: short programs over the values of a row and of the rows that a partial match took before.

An instruction is a row of five numbers: what to do, and what with. What it finds stands at its own place in the code:
whole numbers (also truth values, times, and the places of texts in their order) in `longs`, fractions in `doubles`,
and in `flags` whether it is known at all. So later instructions name earlier ones by their place.

What always holds:

- The results are those of `evaluation.py`: whole numbers are exact or, beyond 64 bits, NULL; NaN equals itself and is
  above every number; sums are added up in the order of the rows.
- The row at hand counts as the last one of its variable; `node` is the one taken before it (-1: none).
"""

import numpy as np

from headrace.cep.loops.arithmetic import agrees, compare_doubles, run_double, run_function, run_long, to_long
from headrace.cep.loops.history import find_row, run_aggregate
from headrace.cep.loops.instructions import (
    ABSOLUTE,
    ABSOLUTE_D,
    AND,
    BOUND,
    CEILING,
    CLASSIFIER,
    COALESCE,
    COMPARE,
    COMPARE_D,
    CONSTANT,
    FLOOR,
    FROM_FIRST,
    FROM_LAST,
    GREATEST,
    GREATEST_D,
    IS_NULL,
    IS_TRUE,
    IS_TRUE_D,
    LEAST,
    LEAST_D,
    LOAD,
    MATCH_NUMBER,
    NOT,
    NULL,
    OR,
    SAME,
    SAME_D,
    SELECT,
    TO_DOUBLE,
)
from headrace.cep.loops.layout import (
    N_PARENT,
    N_PLACE,
    N_STATE,
    S_VARIABLE,
    T_CODE,
    T_CODE_END,
    T_MASK,
    T_VARIABLE,
    Doubles,
    Flags,
    Longs,
    Look,
)
from headrace.jit import compiled


@compiled
def passes(
    tests: Longs, test: int, mask: int, look: Look, nodes: Longs, states: Longs, node: int, place: int
) -> bool:  # fmt: skip
    """Whether the row at a place passes a test, after what was taken last."""
    wanted = tests[test, T_MASK]
    if (mask & wanted) != wanted:
        return False
    if tests[test, T_CODE] == tests[test, T_CODE_END]:
        return True
    return holds(tests, test, look, nodes, states, node, place)


@compiled
def holds(tests: Longs, test: int, look: Look, nodes: Longs, states: Longs, node: int, place: int) -> bool:
    """What looks at other rows, whatever the mask."""
    begin, end = tests[test, T_CODE], tests[test, T_CODE_END]
    run(look, begin, end, nodes, states, node, place, tests[test, T_VARIABLE], 0)
    return look.flags[end - begin - 1] and look.longs[end - begin - 1] != 0


@compiled
def run(
    look: Look, begin: int, end: int, nodes: Longs, states: Longs, node: int, place: int, variable: int, number: int
) -> None:  # fmt: skip
    """The code from `begin` to `end`; what it is about stands at the place of its last instruction."""
    code, longs, doubles, flags = look.code, look.longs, look.doubles, look.flags
    for at in range(end - begin):
        what, a, b, c = code[begin + at, 0], code[begin + at, 1], code[begin + at, 2], code[begin + at, 3]
        if what <= MATCH_NUMBER:
            flags[at] = True
            if what in (LOAD, FROM_FIRST, FROM_LAST):
                there = place
                if what != LOAD:
                    there = find_row(look, nodes, states, node, place, variable, b, c, what == FROM_FIRST)
                if there < 0:
                    flags[at] = False
                    longs[at] = 0
                    doubles[at] = 0.0
                else:
                    flags[at] = look.known[there, a]
                    longs[at] = look.values[there, a]
                    doubles[at] = look.fractions[there, a]
            elif what == CONSTANT:
                longs[at] = look.constants[a]
                doubles[at] = look.constant_fractions[a]
            elif what == NULL:
                flags[at] = False
                longs[at] = 0
                doubles[at] = 0.0
            elif what == CLASSIFIER:
                longs[at] = look.constants[a + variable]
            elif what == MATCH_NUMBER:
                longs[at] = number
            else:
                run_aggregate(look, at, what, a, b, nodes, states, node, place, variable)
            continue
        known = flags[a]
        if what <= ABSOLUTE:
            flags[at] = known and flags[b]
            longs[at] = 0
            if flags[at]:
                run_long(look, at, what, longs[a], longs[b])
        elif what <= ABSOLUTE_D:
            flags[at] = known and flags[b]
            doubles[at] = 0.0
            longs[at] = 0
            if flags[at]:
                run_double(look, at, what, doubles[a], doubles[b])
        elif what <= IS_TRUE_D:
            flags[at] = known
            if what == TO_DOUBLE:
                doubles[at] = float(longs[a]) / float(c) if c > 1 else float(longs[a])
            elif what == IS_TRUE:
                longs[at] = int(longs[a] != 0)
            elif what == IS_TRUE_D:
                longs[at] = int(doubles[a] != 0.0)
            elif known:
                value = doubles[a]
                if what == FLOOR:
                    value = np.floor(value)
                elif what == CEILING:
                    value = np.ceil(value)
                to_long(look, at, value)
        elif what == COMPARE:
            flags[at] = known and flags[b]
            longs[at] = int(agrees(int(longs[a] > longs[b]) - int(longs[a] < longs[b]), c))
        elif what == COMPARE_D:
            flags[at] = known and flags[b]
            longs[at] = int(agrees(compare_doubles(doubles[a], doubles[b]), c))
        elif what == SAME:
            flags[at] = True
            longs[at] = int(longs[a] == longs[b]) if known and flags[b] else int(known == flags[b])
        elif what == SAME_D:
            flags[at] = True
            is_both = known and flags[b]
            longs[at] = int(compare_doubles(doubles[a], doubles[b]) == 0) if is_both else int(known == flags[b])
        elif what == AND:
            is_no = (known and longs[a] == 0) or (flags[b] and longs[b] == 0)
            flags[at] = is_no or (known and flags[b])
            longs[at] = int(not is_no)
        elif what == OR:
            is_yes = (known and longs[a] != 0) or (flags[b] and longs[b] != 0)
            flags[at] = is_yes or (known and flags[b])
            longs[at] = int(is_yes)
        elif what == NOT:
            flags[at] = known
            longs[at] = int(longs[a] == 0)
        elif what == IS_NULL:
            flags[at] = True
            longs[at] = int(not known)
        elif what <= LEAST_D:
            chosen = b
            if what == SELECT:
                chosen = b if known and longs[a] != 0 else c
            elif what == COALESCE or not (known and flags[b]):
                chosen = a if known else b
            elif what in (GREATEST, LEAST):
                chosen = b if (longs[b] > longs[a] if what == GREATEST else longs[b] < longs[a]) else a
            else:
                compared = compare_doubles(doubles[b], doubles[a])
                chosen = b if (compared > 0 if what == GREATEST_D else compared < 0) else a
            flags[at] = flags[chosen]
            longs[at] = longs[chosen]
            doubles[at] = doubles[chosen]
        elif what == BOUND:
            # Times have a first and a last moment.
            flags[at] = known and look.constants[b] <= longs[a] <= look.constants[c]
            longs[at] = longs[a]
        else:
            flags[at] = known and flags[b]
            doubles[at] = 0.0
            if flags[at]:
                run_function(look, at, what, doubles[a], doubles[b])


@compiled
def run_rows(
    look: Look, begin: int, end: int, nodes: Longs, states: Longs, first: int, longs: Longs, doubles: Doubles,
    known: Flags,
) -> None:  # fmt: skip
    """The code for each row by itself, from a place on."""
    for number in range(len(longs)):
        run(look, begin, end, nodes, states, -1, first + number, 0, 0)
        longs[number] = look.longs[end - begin - 1]
        doubles[number] = look.doubles[end - begin - 1]
        known[number] = look.flags[end - begin - 1]


@compiled
def run_nodes(
    look: Look, begin: int, end: int, nodes: Longs, states: Longs, wanted: Longs, numbers: Longs, longs: Longs,
    doubles: Doubles, known: Flags,
) -> None:  # fmt: skip
    """The code for each of some nodes, as the row at hand; `numbers` are those of their matches."""
    for at in range(len(wanted)):
        node = wanted[at]
        variable = states[nodes[node, N_STATE], S_VARIABLE]
        run(
            look, begin, end, nodes, states, nodes[node, N_PARENT], nodes[node, N_PLACE], variable, numbers[at]
        )  # fmt: skip
        longs[at] = look.longs[end - begin - 1]
        doubles[at] = look.doubles[end - begin - 1]
        known[at] = look.flags[end - begin - 1]
