"""Conditions at work: short programs over the values of a row and of the rows that a partial match took before.

An instruction is a row of five numbers: what to do, and what with. What it finds stands at its own place in the code:
whole numbers (also truth values, times, and the places of texts in their order) in `longs`, fractions in `doubles`,
and in `flags` whether it is known at all. So later instructions name earlier ones by their place.

What always holds:

- The results are those of `evaluation.py`: whole numbers are exact or, beyond 64 bits, NULL; NaN equals itself and is
  above every number; sums are added up in the order of the rows.
- The row at hand counts as the last one of its variable; `node` is the one taken before it (-1: none).
"""

import math

import numpy as np

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

# Values: a constant; a lane of the row at hand; of an earlier row (lane, set, offset; from the first or the last); an
# aggregate (lane, set); the variable of the row; the number of the match.
CONSTANT, NULL, LOAD, FROM_FIRST, FROM_LAST = 0, 1, 2, 3, 4
COUNT_ROWS, COUNT, SUM_LONG, SUM_DOUBLE, MIN_LONG, MAX_LONG, MIN_DOUBLE, MAX_DOUBLE = 5, 6, 7, 8, 9, 10, 11, 12
COUNT_DISTINCT, SUM_DISTINCT_LONG, SUM_DISTINCT_DOUBLE, CLASSIFIER, MATCH_NUMBER = 13, 14, 15, 16, 17
# Whole numbers.
ADD, SUBTRACT, MULTIPLY, DIVIDE_WHOLE, REMAINDER, NEGATE, ABSOLUTE = 20, 21, 22, 23, 24, 25, 26
# Fractions.
ADD_D, SUBTRACT_D, MULTIPLY_D, DIVIDE_D, DIVIDE_WHOLE_D, REMAINDER_D, NEGATE_D, ABSOLUTE_D = (
    30, 31, 32, 33, 34, 35, 36, 37,
)  # fmt: skip
# From one to the other: a fraction of a whole number (the third is what it is divided by: decimals), and back.
TO_DOUBLE, TO_LONG, FLOOR, CEILING, IS_TRUE, IS_TRUE_D = 40, 41, 42, 43, 44, 45
# Tests: of equal, unequal, less … (`c`), of whole numbers and of fractions.
COMPARE, COMPARE_D, SAME, SAME_D, AND, OR, NOT, IS_NULL = 50, 51, 52, 53, 54, 55, 56, 57
EQUAL, UNEQUAL, LESS, AT_MOST, MORE, AT_LEAST = 0, 1, 2, 3, 4, 5
# Choices: a test and two values; the first that is known; the larger and the smaller.
SELECT, COALESCE, GREATEST, GREATEST_D, LEAST, LEAST_D = 60, 61, 62, 63, 64, 65
# Functions of fractions.
SQRT, EXP, LN, LOG10, LOG2, SIN, COS, TAN, ASIN, ACOS, ATAN, SINH, COSH, TANH, CBRT, RADIANS, DEGREES, SIGN = (
    70, 71, 72, 73, 74, 75, 76, 77, 78, 79, 80, 81, 82, 83, 84, 85, 86, 87,
)  # fmt: skip
POWER, ATAN2, HYPOT, BOUND = 90, 91, 92, 93

MOST = 2**63 - 1
LEAST_LONG = -(2**63)


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
def compare_doubles(left: float, right: float) -> int:
    """Below 0, 0 or above 0; NaN is above every number."""
    if left != left or right != right:
        return int(left != left) - int(right != right)
    return int(left > right) - int(left < right)


@compiled
def agrees(compared: int, how: int) -> bool:
    if how == EQUAL:
        return compared == 0
    if how == UNEQUAL:
        return compared != 0
    if how == LESS:
        return compared < 0
    if how == AT_MOST:
        return compared <= 0
    if how == MORE:
        return compared > 0
    return compared >= 0


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
def adds_too_much(left: int, right: int) -> bool:
    """Whether a sum needs more than 64 bits; asked before, as compilers take for granted that it never does."""
    return left > MOST - right if right > 0 else left < LEAST_LONG - right


@compiled
def multiplies_too_much(left: int, right: int) -> bool:
    if left in (0, 1) or right in (0, 1):
        return False
    if left == -1 or right == -1:
        return LEAST_LONG in (left, right)
    about = abs(float(left) * float(right))
    if about >= 9.3e18 or about <= 9.1e18:
        return about >= 9.3e18
    bound = MOST // abs(right)
    if (left < 0) != (right < 0) and abs(left) == bound + 1 and MOST % abs(right) == abs(right) - 1:
        return False  # the least of all
    return abs(left) > bound


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


@compiled
def run_long(look: Look, at: int, what: int, left: int, right: int) -> None:
    """Arithmetic of whole numbers: what does not fit is NULL."""
    longs, flags = look.longs, look.flags
    found = 0
    if what == ADD:
        flags[at] = not adds_too_much(left, right)
        found = left + right
    elif what == SUBTRACT:
        flags[at] = left >= LEAST_LONG + right if right > 0 else left <= MOST + right
        found = left - right
    elif what == MULTIPLY:
        flags[at] = not multiplies_too_much(left, right)
        found = left * right
    elif what in (NEGATE, ABSOLUTE):
        found = -left if what == NEGATE or left < 0 else left
        if left == LEAST_LONG:
            flags[at] = False
    elif right == 0 or (left == LEAST_LONG and right == -1):
        found = 0
        if right == 0 or what == DIVIDE_WHOLE:
            flags[at] = False
    else:
        # Towards zero, the rest with the sign of what is divided.
        found = left // right
        if found < 0 and found * right != left:
            found += 1
        if what == REMAINDER:
            found = left - found * right
    longs[at] = found


@compiled
def run_double(look: Look, at: int, what: int, left: float, right: float) -> None:
    """Arithmetic of fractions; a division by zero is NULL."""
    doubles, flags = look.doubles, look.flags
    if what == ADD_D:
        doubles[at] = left + right
    elif what == SUBTRACT_D:
        doubles[at] = left - right
    elif what == MULTIPLY_D:
        doubles[at] = left * right
    elif what == NEGATE_D:
        doubles[at] = -left
    elif what == ABSOLUTE_D:
        doubles[at] = abs(left)
    elif right == 0.0:
        doubles[at] = 0.0
        flags[at] = False
    elif what == DIVIDE_D:
        doubles[at] = left / right
    elif what == REMAINDER_D:
        doubles[at] = np.fmod(left, right)
    else:
        to_long(look, at, left / right)


@compiled
def to_long(look: Look, at: int, value: float) -> None:
    """What is before the point; NULL for what is none or does not fit."""
    if value >= -9223372036854775808.0 and value < 9223372036854775808.0:
        look.longs[at] = int(value)
    else:
        look.longs[at] = 0
        look.flags[at] = False


@compiled
def run_function(look: Look, at: int, what: int, value: float, other: float) -> None:
    """Functions of fractions, as in Java: what has no value is NaN; a logarithm of nothing or less is NULL."""
    if what == SQRT:
        found = math.sqrt(value) if value >= 0.0 else np.nan
    elif what == EXP:
        found = math.exp(value)
    elif what in (LN, LOG10, LOG2):
        found = 0.0
        if value <= 0.0:
            look.flags[at] = False
        elif what == LN:
            found = math.log(value)
        elif what == LOG10:
            found = math.log10(value)
        else:
            found = np.log2(value)
    elif what == SIN:
        found = math.sin(value)
    elif what == COS:
        found = math.cos(value)
    elif what == TAN:
        found = math.tan(value)
    elif what == ASIN:
        found = math.asin(value) if abs(value) <= 1.0 else np.nan
    elif what == ACOS:
        found = math.acos(value) if abs(value) <= 1.0 else np.nan
    elif what == ATAN:
        found = math.atan(value)
    elif what == SINH:
        found = math.sinh(value)
    elif what == COSH:
        found = math.cosh(value)
    elif what == TANH:
        found = math.tanh(value)
    elif what == CBRT:
        found = np.cbrt(value)
    elif what == RADIANS:
        found = value * (math.pi / 180.0)
    elif what == DEGREES:
        found = value * (180.0 / math.pi)
    elif what == SIGN:
        found = value if value != value else float(int(value > 0.0) - int(value < 0.0))
    elif what == ATAN2:
        found = math.atan2(value, other)
    elif what == HYPOT:
        found = np.hypot(value, other)
    else:
        found = math.pow(value, other)
        if abs(value) == 1.0 and (other != other or abs(other) == np.inf):
            found = np.nan  # where C says 1
    look.doubles[at] = found


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
