"""What operators and functions do with values: how those of several types meet, compare, and are computed with.

Types meet as in Spark: a text is read as a number or a time where it meets one, NaN equals itself and is above every
number, `/` gives a fraction, whole numbers have 64 bits. Where Spark's ANSI mode would fail (a text that is not a
number, a division by zero, a whole number that does not fit), the result is NULL, as of Spark's `try_` functions; so
nothing that an event has in it makes a matcher fail. A value without a time zone is in UTC where it meets one that has
one.
"""

import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any, Final

import re2

_TRUTHS: Final = {
    **dict.fromkeys(("t", "true", "y", "yes", "1"), True),
    **dict.fromkeys(("f", "false", "n", "no", "0"), False),
}
"""Texts that are truth values."""


def _aligned(left: Any, right: Any) -> tuple[Any, Any] | None:
    """Two values as they compare; None if they do not."""
    if isinstance(left, str) != isinstance(right, str):
        if isinstance(left, str):
            turned = _aligned(right, left)
            return turned and (turned[1], turned[0])
        try:
            if isinstance(left, bool):
                return left, _TRUTHS[right.strip().lower()]
            if isinstance(left, int | float | Decimal):
                return float(left), float(right)
            if isinstance(left, datetime | date):
                return moment(left), moment(datetime.fromisoformat(right))
        except (ValueError, KeyError, OverflowError):
            return None
        return None
    if isinstance(left, date) and isinstance(right, date):
        return moment(left), moment(right)
    if isinstance(left, int | float | Decimal) and isinstance(right, int | float | Decimal):
        try:
            return float(left), float(right)
        except OverflowError:
            return left, right
    return (left, right) if type(left) is type(right) else None


def moment(value: date) -> datetime:
    """A time with its zone; of a date its midnight."""
    if not isinstance(value, datetime):
        return datetime.combine(value, time(), UTC)
    return value if value.tzinfo else value.replace(tzinfo=UTC)


def _is_nan(value: Any) -> bool:
    return isinstance(value, float | Decimal) and value != value


def order(left: Any, right: Any) -> int | None:
    """Below 0, 0 or above 0; None if the two do not compare."""
    if _is_nan(left) or _is_nan(right):
        both = _aligned(left, right)
        return None if both is None else int(_is_nan(both[0])) - int(_is_nan(both[1]))
    try:
        if type(left) is not type(right):
            both = _aligned(left, right)
            if both is None:
                return None
            left, right = both
            if _is_nan(left) or _is_nan(right):
                return int(_is_nan(left)) - int(_is_nan(right))
        return int(left > right) - int(left < right)
    except TypeError:
        both = _aligned(left, right) if isinstance(left, date) else None
        return None if both is None else int(both[0] > both[1]) - int(both[0] < both[1])


_PLAIN: Final = frozenset({int, str})  # types without NaN, time zones or other surprises


def _comparison(test: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool | None]:
    def compare(left: Any, right: Any) -> bool | None:
        if type(left) is type(right) and type(left) in _PLAIN:
            return test(left, right)
        found = order(left, right)
        return None if found is None else test(found, 0)

    return compare


def _arithmetic(run: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def compute(left: Any, right: Any) -> Any:
        try:
            kinds = {type(left), type(right)}
            if str in kinds or kinds == {Decimal, float}:
                left, right = float(left), float(right)
            elif date in kinds or datetime in kinds:
                left, right = (moment(one) if type(one) is datetime else one for one in (left, right))
            return _fitting(run(left, right))
        except (TypeError, ValueError, ArithmeticError):
            return None

    return compute


_LEAST: Final = -(2**63)
_MOST: Final = 2**63 - 1


def _fitting(value: Any) -> Any:
    """NULL for a whole number of more than 64 bits."""
    return None if type(value) is int and not _LEAST <= value <= _MOST else value


def _divide(left: Any, right: Any) -> Any:
    if isinstance(right, int | float | Decimal) and right == 0:
        return None
    if isinstance(left, int | Decimal) and isinstance(right, int | Decimal):
        return float(left) / float(right)
    return left / right


def _divide_whole(left: Any, right: Any) -> Any:
    if right == 0:
        return None
    if isinstance(left, float) or isinstance(right, float):
        return int(left / right)
    quotient = abs(left) // abs(right)
    return int(quotient if (left < 0) == (right < 0) else -quotient)


def _remainder(left: Any, right: Any) -> Any:
    """With the sign of what is divided, as in Java."""
    if right == 0:
        return None
    if isinstance(left, float) or isinstance(right, float):
        return math.fmod(left, right) if math.isfinite(left) and right == right else math.nan
    rest = abs(left) % abs(right)
    return rest if left >= 0 else -rest


def _like(value: Any, pattern: Any) -> Any:
    text, at = "", 0
    pattern = str(pattern)
    while at < len(pattern):
        letter = pattern[at]
        if letter == "\\" and at + 1 < len(pattern):
            at += 1
            text += re2.escape(pattern[at])
        else:
            text += {"%": "(?s:.*)", "_": "(?s:.)"}.get(letter, re2.escape(letter))
        at += 1
    return re2.fullmatch(text, str(value)) is not None


def _rlike(value: Any, pattern: Any) -> Any:
    try:
        return re2.search(str(pattern), str(value)) is not None
    except re2.error:
        return None


def _substring(text: Any, start: Any, length: Any = None) -> Any:
    text = str(text)
    begin = start - 1 if start > 0 else len(text) + start if start < 0 else 0
    end = len(text) if length is None else begin + max(0, length)
    return text[max(0, begin) : max(0, end)]


_WIDE: Final = Context(prec=400)
"""As many digits as the largest fraction has."""


def _round(value: Any, digits: Any = 0) -> Any:
    """Half away from zero, as in Spark."""
    if isinstance(value, int):
        return value if digits >= 0 else int(Decimal(value).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP, _WIDE))
    if isinstance(value, float) and not math.isfinite(value):
        return value
    rounded = Decimal(str(value)).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP, _WIDE)
    return rounded if isinstance(value, Decimal) else float(rounded)


def _extreme(sign: int) -> Callable[..., Any]:
    def choose(*values: Any) -> Any:
        best = None
        for value in values:
            if value is not None and (best is None or (order(value, best) or 0) * sign > 0):
                best = value
        return best

    return choose


CASTS: Final = {
    **dict.fromkeys(("int", "integer", "bigint", "long", "smallint", "tinyint"), "int"),
    **dict.fromkeys(("double", "float"), "double"),
    "decimal": "decimal",
    **dict.fromkeys(("string", "text", "varchar", "char"), "string"),
    "boolean": "boolean",
    **dict.fromkeys(("timestamp", "timestamptz", "timestampltz", "timestampntz"), "timestamp"),
}


def _cast(value: Any, target: str) -> Any:
    try:
        if target == "int":
            return _fitting(int(value))
        if target == "double":
            return float(value)
        if target == "decimal":
            return Decimal(str(value))
        if target == "boolean":
            return _TRUTHS.get(value.strip().lower()) if isinstance(value, str) else bool(value)
        if target == "timestamp":
            return datetime.fromisoformat(value) if isinstance(value, str) else value
        return str(value).lower() if isinstance(value, bool) else str(value)
    except (ValueError, TypeError, ArithmeticError):
        return None


def _guarded(run: Callable[..., Any]) -> Callable[..., Any]:
    def guarded(*args: Any) -> Any:
        try:
            return _fitting(run(*args))
        except (TypeError, ValueError, ArithmeticError, AttributeError):
            return None

    return guarded


def _of_fraction(run: Callable[..., float]) -> Callable[..., Any]:
    """A function of fractions, which is NaN where it has no value, as in Java."""

    def compute(*args: Any) -> Any:
        try:
            given = [float(one) for one in args]
        except (TypeError, ValueError, OverflowError):
            return None
        try:
            return run(*given)
        except ValueError:
            return math.nan

    return compute


def _exp(value: float) -> float:
    try:
        return math.exp(value)
    except OverflowError:
        return math.inf


def _power(base: float, exponent: float) -> float:
    if abs(base) == 1.0 and not math.isfinite(exponent):
        return math.nan
    is_odd = exponent % 2 == 1 if math.isfinite(exponent) else False
    try:
        return math.pow(base, exponent)
    except OverflowError:
        return -math.inf if base < 0 and is_odd else math.inf
    except ValueError:
        if base == 0:
            return math.copysign(math.inf, base) if is_odd else math.inf
        return math.nan


def _logarithm(run: Callable[[float], float]) -> Callable[..., Any]:
    """NULL of nothing and of what is less."""
    compute = _of_fraction(run)
    return lambda value: None if (found := compute(value)) is None or float(value) <= 0 else found


def _hyperbolic(run: Callable[[float], float], below: float) -> Callable[[float], float]:
    def compute(value: float) -> float:
        try:
            return run(value)
        except OverflowError:
            return math.inf if value > 0 else below

    return compute


def _sign(value: float) -> float:
    return value if value != value else float((value > 0) - (value < 0))


@dataclass(frozen=True)
class Function:
    run: Callable[..., Any]
    arity: tuple[int, int]
    is_strict: bool = True
    """NULL in, NULL out."""


FUNCTIONS: Final[Mapping[str, Function]] = {
    "abs": Function(_guarded(abs), (1, 1)),
    "acos": Function(_of_fraction(math.acos), (1, 1)),
    "asin": Function(_of_fraction(math.asin), (1, 1)),
    "atan": Function(_of_fraction(math.atan), (1, 1)),
    "atan2": Function(_of_fraction(math.atan2), (2, 2)),
    "cbrt": Function(_of_fraction(math.cbrt), (1, 1)),
    "ceil": Function(_guarded(math.ceil), (1, 1)),
    "coalesce": Function(lambda *values: next((value for value in values if value is not None), None), (1, 255), False),
    "concat": Function(lambda *values: "".join(map(str, values)), (1, 255)),
    "cos": Function(_of_fraction(math.cos), (1, 1)),
    "cosh": Function(_of_fraction(_hyperbolic(math.cosh, math.inf)), (1, 1)),
    "degrees": Function(_of_fraction(math.degrees), (1, 1)),
    "exp": Function(_of_fraction(_exp), (1, 1)),
    "floor": Function(_guarded(math.floor), (1, 1)),
    "greatest": Function(_extreme(1), (2, 255), False),
    "hypot": Function(_of_fraction(math.hypot), (2, 2)),
    "least": Function(_extreme(-1), (2, 255), False),
    "length": Function(_guarded(len), (1, 1)),
    "ln": Function(_logarithm(math.log), (1, 1)),
    "log10": Function(_logarithm(math.log10), (1, 1)),
    "log2": Function(_logarithm(math.log2), (1, 1)),
    "lower": Function(lambda value: str(value).lower(), (1, 1)),
    "nullif": Function(
        lambda left, right: (
            None if left is None or (right is not None and _comparison(operator.eq)(left, right)) else left
        ),
        (2, 2),
        False,
    ),
    "pi": Function(lambda: math.pi, (0, 0)),
    "power": Function(_of_fraction(_power), (2, 2)),
    "radians": Function(_of_fraction(math.radians), (1, 1)),
    "round": Function(_guarded(_round), (1, 2)),
    "sign": Function(_of_fraction(_sign), (1, 1)),
    "sin": Function(_of_fraction(math.sin), (1, 1)),
    "sinh": Function(_of_fraction(_hyperbolic(math.sinh, -math.inf)), (1, 1)),
    "sqrt": Function(_of_fraction(math.sqrt), (1, 1)),
    "substring": Function(_guarded(_substring), (2, 3)),
    "tan": Function(_of_fraction(math.tan), (1, 1)),
    "tanh": Function(_of_fraction(math.tanh), (1, 1)),
    "trim": Function(lambda value: str(value).strip(" "), (1, 1)),
    "upper": Function(lambda value: str(value).upper(), (1, 1)),
}
STRICT: Final[Mapping[str, Callable[..., Any]]] = {
    "=": _comparison(operator.eq),
    "<>": _comparison(operator.ne),
    "<": _comparison(operator.lt),
    "<=": _comparison(operator.le),
    ">": _comparison(operator.gt),
    ">=": _comparison(operator.ge),
    "+": _arithmetic(operator.add),
    "-": _arithmetic(operator.sub),
    "*": _arithmetic(operator.mul),
    "/": _arithmetic(_divide),
    "div": _arithmetic(_divide_whole),
    "%": _arithmetic(_remainder),
    "negate": _guarded(operator.neg),
    "like": _like,
    "rlike": _rlike,
    "||": lambda left, right: f"{left}{right}",
    "cast": _cast,
    **{name: function.run for name, function in FUNCTIONS.items() if function.is_strict},
}


def as_key(value: Any) -> Any:
    """A value as it is told apart from others: NaN is one value, and no number is a truth value."""
    if type(value) in _PLAIN:
        return value
    if isinstance(value, bool):
        return bool, value
    if isinstance(value, list | dict | set | bytearray):
        return type(value), repr(value)
    return math.nan if _is_nan(value) else value
