"""The instructions of conditions, by their numbers; `code.py` carries them out.

Each is a row of five numbers: what to do, and what with (`a`, `b`, `c`: places of earlier instructions, lanes, sets).
Ranges matter: what carries them out asks for the range first.
"""

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
