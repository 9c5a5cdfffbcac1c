"""Numbers computed with and compared, as `values.py` does: whole numbers within 64 bits, fractions as in Java."""

import math

import numpy as np

from headrace.cep.loops.instructions import (
    ABSOLUTE,
    ABSOLUTE_D,
    ACOS,
    ADD,
    ADD_D,
    ASIN,
    AT_MOST,
    ATAN,
    ATAN2,
    CBRT,
    COS,
    COSH,
    DEGREES,
    DIVIDE_D,
    DIVIDE_WHOLE,
    EQUAL,
    EXP,
    HYPOT,
    LEAST_LONG,
    LESS,
    LN,
    LOG2,
    LOG10,
    MORE,
    MOST,
    MULTIPLY,
    MULTIPLY_D,
    NEGATE,
    NEGATE_D,
    RADIANS,
    REMAINDER,
    REMAINDER_D,
    SIGN,
    SIN,
    SINH,
    SQRT,
    SUBTRACT,
    SUBTRACT_D,
    TAN,
    TANH,
    UNEQUAL,
)
from headrace.cep.loops.layout import (
    Look,
)
from headrace.jit import compiled


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
def to_long(look: Look, at: int, value: float) -> None:
    """What is before the point; NULL for what is none or does not fit."""
    if value >= -9223372036854775808.0 and value < 9223372036854775808.0:
        look.longs[at] = int(value)
    else:
        look.longs[at] = 0
        look.flags[at] = False


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
