"""Operators, choices and casts as instructions: how values of several types meet in the code of an expression."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final, Protocol

import pyarrow as pa

from headrace.cep.expressions import At, Call, Expression, Literal
from headrace.cep.kinds import BOOL, DOUBLE, LONG, NULL, SPAN, TEXT, TIME, Kind, Type
from headrace.cep.loops import instructions as op
from headrace.cep.values import CASTS, moment

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_MOMENT: Final = datetime.min.replace(tzinfo=UTC)
_LAST_MOMENT: Final = datetime.max.replace(tzinfo=UTC)
COMPARISONS: Final = {
    "=": op.EQUAL, "<>": op.UNEQUAL, "<": op.LESS, "<=": op.AT_MOST, ">": op.MORE, ">=": op.AT_LEAST,
}  # fmt: skip
_WHOLE: Final = {
    "+": op.ADD, "-": op.SUBTRACT, "*": op.MULTIPLY, "div": op.DIVIDE_WHOLE, "%": op.REMAINDER,
}  # fmt: skip
FRACTIONS: Final = {
    "+": op.ADD_D, "-": op.SUBTRACT_D, "*": op.MULTIPLY_D, "/": op.DIVIDE_D, "div": op.DIVIDE_WHOLE_D,
    "%": op.REMAINDER_D,
}  # fmt: skip
NUMERIC: Final = (Kind.LONG, Kind.DOUBLE, Kind.DECIMAL)


class Foreign(Exception):
    """There is no instruction for this."""


@dataclass(frozen=True)
class Value:
    at: int
    type: Type


class Pool(Protocol):
    """What the code of several expressions shares."""

    constants: list[tuple[Type, Any]]
    orders_texts: bool


class Operators(ABC):
    """The code of one expression, line by line; the same is computed once."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self.lines: list[tuple[int, int, int, int, int]] = []
        self._known: dict[tuple[int, int, int, int, int], int] = {}

    @abstractmethod
    def write(self, expression: Expression) -> Value:
        """Lines that find the value of an expression."""

    def _emit(self, found: Type, what: int, a: int = 0, b: int | None = None, c: int = 0) -> Value:
        line = (what, a, a if b is None else b, c, 0)
        if line not in self._known:
            self._known[line] = len(self.lines)
            self.lines.append(line)
        return Value(self._known[line], found)

    def _constant(self, value: Any) -> Value:
        if value is None:
            return self._emit(NULL, op.NULL)
        found: Type
        if isinstance(value, bool):
            found, value = BOOL, int(value)
        elif isinstance(value, int):
            if not op.LEAST_LONG <= value <= op.MOST:
                return self._emit(NULL, op.NULL)
            found = LONG
        elif isinstance(value, float):
            found = DOUBLE
        elif isinstance(value, str):
            found = TEXT
        elif isinstance(value, datetime | date):
            found, value = TIME, (moment(value) - _EPOCH) // timedelta(microseconds=1)
        elif isinstance(value, timedelta):
            found, value = SPAN, value // timedelta(microseconds=1)
        elif isinstance(value, Decimal) and value.is_finite() and abs(value) < 10**9 and _scale(value) <= 9:
            found, value = Type(Kind.DECIMAL, pa.decimal128(18, _scale(value))), int(value.scaleb(_scale(value)))
        else:
            raise Foreign
        return self._emit(found, op.CONSTANT, self._place(found, value))

    def _place(self, found: Type, value: Any) -> int:
        constants, key = self._pool.constants, (found.kind, repr(value))
        for at, (one, other) in enumerate(constants):
            if (one.kind, repr(other)) == key:
                return at
        constants.append((found, value))
        return len(constants) - 1

    def _truth(self, expression: Expression) -> Value:
        given = self.write(expression)
        if given.type.kind in (Kind.BOOL, Kind.NULL):
            return given
        if given.type.kind in (Kind.LONG, Kind.DECIMAL):
            return self._emit(BOOL, op.IS_TRUE, given.at)
        if given.type.kind is Kind.DOUBLE:
            return self._emit(BOOL, op.IS_TRUE_D, given.at)
        raise Foreign

    def _number(self, expression: Expression) -> Value:
        given = self.write(expression)
        return self.write(as_cast(expression, "double")) if given.type.kind is Kind.TEXT else given

    def _double(self, given: Value) -> Value:
        kind = given.type.kind
        if kind in (Kind.DOUBLE, Kind.NULL):
            return given
        if kind not in (Kind.LONG, Kind.BOOL, Kind.DECIMAL):
            raise Foreign
        return self._emit(DOUBLE, op.TO_DOUBLE, given.at, None, 10**given.type.scale)

    def _compare(self, name: str, left: Expression, right: Expression) -> Value:
        one, other = self.write(left), self.write(right)
        kinds = {one.type.kind, other.type.kind}
        if Kind.TEXT in kinds and len(kinds) == 2 and Kind.NULL not in kinds:
            # A text that meets something else is read as such.
            (kind,) = kinds - {Kind.TEXT}
            if kind is Kind.SPAN:
                return self._unlike(name, one, other)
            target = "double" if kind in NUMERIC else "boolean" if kind is Kind.BOOL else "timestamp"
            if one.type.kind is Kind.TEXT:
                one = self.write(as_cast(left, target))
            else:
                other = self.write(as_cast(right, target))
            kinds = {one.type.kind, other.type.kind}
        if Kind.NULL in kinds:
            return self._unlike(name, one, other)
        if len(kinds) == 2:
            if not kinds <= {Kind.BOOL, *NUMERIC}:
                return self._unlike(name, one, other)
            one, other = self._double(one), self._double(other)
        elif one.type.kind is Kind.DECIMAL:
            one, other = self._same_scale(one, other)
        elif one.type.kind is Kind.TEXT:
            if one.type != other.type:
                return self._unlike(name, one, other)
            self._pool.orders_texts |= name not in ("=", "<>", "<=>")
        is_double = one.type.kind is Kind.DOUBLE
        if name == "<=>":
            return self._emit(BOOL, op.SAME_D if is_double else op.SAME, one.at, other.at)
        return self._emit(BOOL, op.COMPARE_D if is_double else op.COMPARE, one.at, other.at, COMPARISONS[name])

    def _unlike(self, name: str, one: Value, other: Value) -> Value:
        """Values that do not compare: unknown; but nothing is the same as nothing."""
        if name != "<=>":
            return self._emit(BOOL, op.NULL)
        tests = self._emit(BOOL, op.IS_NULL, one.at), self._emit(BOOL, op.IS_NULL, other.at)
        return self._emit(BOOL, op.AND, tests[0].at, tests[1].at)

    def _same_scale(self, one: Value, other: Value) -> tuple[Value, Value]:
        scale = max(one.type.scale, other.type.scale)
        return self._scaled(one, scale), self._scaled(other, scale)

    def _scaled(self, given: Value, scale: int) -> Value:
        by = scale - given.type.scale
        if not by:
            return given
        factor = self._emit(LONG, op.CONSTANT, self._place(LONG, 10**by))
        return self._emit(decimal_of(scale), op.MULTIPLY, given.at, factor.at)

    def _arithmetic(self, name: str, args: Sequence[Expression]) -> Value:
        one, other = self.write(args[0]), self.write(args[1])
        if Kind.NULL in (one.type.kind, other.type.kind):
            return self._emit(NULL, op.NULL)
        if Kind.TEXT in (one.type.kind, other.type.kind):
            one, other = self._double(self._number(args[0])), self._double(self._number(args[1]))
        kinds = {one.type.kind, other.type.kind}
        if kinds <= {Kind.TIME, Kind.SPAN} or Kind.SPAN in kinds:
            return self._time_arithmetic(name, one, other)
        if not kinds <= {*NUMERIC}:
            raise Foreign
        if Kind.DOUBLE not in kinds and Kind.DECIMAL in kinds and name != "/":
            if name == "*":
                return self._emit(
                    decimal_of(one.type.scale + other.type.scale), op.MULTIPLY, one.at, other.at
                )  # fmt: skip
            one, other = self._same_scale(one, other)
            found = LONG if name == "div" else decimal_of(one.type.scale)
            return self._emit(found, _WHOLE[name], one.at, other.at)
        if kinds == {Kind.LONG} and name in _WHOLE:
            return self._emit(LONG, _WHOLE[name], one.at, other.at)
        found = LONG if name == "div" else DOUBLE
        return self._emit(found, FRACTIONS[name], self._double(one).at, self._double(other).at)

    def _time_arithmetic(self, name: str, one: Value, other: Value) -> Value:
        kinds = one.type.kind, other.type.kind
        if any(pa.types.is_date(value.type.arrow) for value in (one, other)) and Kind.SPAN in kinds:
            raise Foreign
        if kinds == (Kind.TIME, Kind.TIME) and name == "-":
            return self._emit(SPAN, op.SUBTRACT, one.at, other.at)
        if name in ("+", "-") and kinds == (Kind.SPAN, Kind.SPAN):
            return self._emit(SPAN, _WHOLE[name], one.at, other.at)
        if (name in ("+", "-") and kinds == (Kind.TIME, Kind.SPAN)) or (
            name == "+" and kinds == (Kind.SPAN, Kind.TIME)
        ):
            found = one.type if kinds[0] is Kind.TIME else other.type
            at = self._emit(found, _WHOLE[name], one.at, other.at)
            bounds = [
                self._place(LONG, (bound - _EPOCH) // timedelta(microseconds=1))
                for bound in (_FIRST_MOMENT, _LAST_MOMENT)
            ]
            return self._emit(found, op.BOUND, at.at, bounds[0], bounds[1])
        if name == "*" and set(kinds) == {Kind.SPAN, Kind.LONG}:
            return self._emit(SPAN, op.MULTIPLY, one.at, other.at)
        if name == "/" and kinds == (Kind.SPAN, Kind.SPAN):
            sides = self._double(Value(one.at, LONG)), self._double(Value(other.at, LONG))
            return self._emit(DOUBLE, op.DIVIDE_D, sides[0].at, sides[1].at)
        raise Foreign

    # --- choices

    def _choice(self, name: str, args: Sequence[Expression]) -> Value:
        if name == "nullif":
            test = self._compare("=", args[0], args[1])
            given = self.write(args[0])
            return self._emit(given.type, op.SELECT, test.at, self._emit(NULL, op.NULL).at, given.at)
        if name == "case":
            tests = [self._truth(test) for test in args[:-1:2]]
            values, found = self._alike([self.write(value) for value in (*args[1:-1:2], args[-1])])
            chosen = values[-1]
            for test, value in zip(reversed(tests), reversed(values[:-1]), strict=True):
                chosen = self._emit(found, op.SELECT, test.at, value.at, chosen.at)
            return Value(chosen.at, found)
        values, found = self._alike([self.write(value) for value in args])
        if name == "coalesce":
            what = op.COALESCE
        else:
            self._pool.orders_texts |= found.kind is Kind.TEXT
            is_double = found.kind is Kind.DOUBLE
            what = {
                ("greatest", False): op.GREATEST, ("greatest", True): op.GREATEST_D,
                ("least", False): op.LEAST, ("least", True): op.LEAST_D,
            }[name, is_double]  # fmt: skip
        chosen = values[0]
        for value in values[1:]:
            chosen = self._emit(found, what, chosen.at, value.at)
        return Value(chosen.at, found)

    def _alike(self, values: list[Value]) -> tuple[list[Value], Type]:
        """Values of one type: numbers of several types are fractions."""
        known = [value for value in values if value.type.kind is not Kind.NULL]
        kinds = {value.type.kind for value in known}
        if not kinds:
            return values, NULL
        if len(kinds) > 1:
            if not kinds <= {*NUMERIC}:
                raise Foreign
            return [self._double(value) for value in values], DOUBLE
        if kinds == {Kind.DECIMAL}:
            scale = max(value.type.scale for value in known)
            return [value if value not in known else self._scaled(value, scale) for value in values], decimal_of(scale)
        types = list(dict.fromkeys(value.type for value in known))
        if len(types) > 1 and kinds == {Kind.TEXT}:
            raise Foreign
        return values, types[0] if len(types) == 1 else {Kind.LONG: LONG, Kind.DOUBLE: DOUBLE}.get(types[0].kind, TIME)

    def _cast(self, given: Expression, target: str) -> Value:
        value = self.write(given)
        kind = value.type.kind
        if kind is Kind.NULL:
            return value
        if target == "double" and kind in (*NUMERIC, Kind.BOOL):
            return Value(self._double(value).at, DOUBLE)
        if target == "int" and kind in (Kind.LONG, Kind.BOOL):
            return Value(value.at, LONG)
        if target == "int" and kind is Kind.DOUBLE:
            return self._emit(LONG, op.TO_LONG, value.at)
        if target == "int" and kind is Kind.DECIMAL:
            by = self._emit(LONG, op.CONSTANT, self._place(LONG, 10**value.type.scale))
            return self._emit(LONG, op.DIVIDE_WHOLE, value.at, by.at)
        if target == "boolean" and kind in (Kind.BOOL, Kind.LONG, Kind.DOUBLE):
            return self._truth(given)
        if target == "timestamp" and kind is Kind.TIME:
            return Value(value.at, TIME if pa.types.is_date(value.type.arrow) else value.type)
        if target == "string" and value.type == TEXT:
            return value
        raise Foreign


def as_cast(expression: Expression | None, target: str) -> Expression:
    """A cast, as deep within as texts are looked up, so that each is read once for its row."""
    assert expression is not None
    if isinstance(expression, At):
        return replace(expression, of=as_cast(expression.of, target))
    return Call("cast", (expression, Literal(target)))


def _scale(value: Decimal) -> int:
    return max(0, -int(value.as_tuple().exponent))


def decimal_of(scale: int) -> Type:
    if scale > 38:
        raise Foreign
    return Type(Kind.DECIMAL, pa.decimal128(38, scale))


assert set(CASTS.values()) == {"int", "double", "decimal", "string", "boolean", "timestamp"}
