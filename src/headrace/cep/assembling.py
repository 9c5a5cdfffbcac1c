"""Expressions turned into the code that `loops/code.py` runs, once the types of the columns are known.

What code reads of a row are lanes: the value of a column, or of an expression of one row that code has no instruction
for (functions of texts), or either of a row that lies some rows before it. Lanes are filled for all rows of a call
before the automaton sees them, so a row that a partial match took is looked at again without any Python.

What always holds: code finds what `evaluation.py` finds, where whole numbers of 64 bits (and decimals of 18 digits)
hold the result; beyond them it is NULL. Values of different numeric types that meet in CASE or COALESCE are fractions.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pyarrow as pa

from headrace.cep.errors import CepError
from headrace.cep.evaluation import constant, is_constant
from headrace.cep.expressions import (
    Aggregate,
    At,
    Call,
    Column,
    End,
    Expression,
    Fact,
    Literal,
    is_row_only,
    show,
    walk,
)
from headrace.cep.kinds import BOOL, DOUBLE, LONG, NULL, SPAN, TEXT, TIME, Kind, Type, type_of
from headrace.cep.loops import instructions as op
from headrace.cep.operations import COMPARISONS, FRACTIONS, NUMERIC, Foreign, Operators, Value, as_cast, decimal_of
from headrace.cep.values import FUNCTIONS

_OF_ONE: Final = {
    "sqrt": op.SQRT, "exp": op.EXP, "ln": op.LN, "log10": op.LOG10, "log2": op.LOG2, "sin": op.SIN, "cos": op.COS,
    "tan": op.TAN, "asin": op.ASIN, "acos": op.ACOS, "atan": op.ATAN, "sinh": op.SINH, "cosh": op.COSH,
    "tanh": op.TANH, "cbrt": op.CBRT, "radians": op.RADIANS, "degrees": op.DEGREES, "sign": op.SIGN,
}  # fmt: skip
_OF_TWO: Final = {"power": op.POWER, "atan2": op.ATAN2, "hypot": op.HYPOT}
# What comes out of functions that code has no instruction for.
_FOREIGN: Final[Mapping[str, Type]] = {
    **dict.fromkeys(("||", "concat", "lower", "upper", "trim", "substring"), TEXT),
    **dict.fromkeys(("like", "rlike"), BOOL),
    "length": LONG,
    "round": DOUBLE,
}


class NotColumnar(CepError):
    """A pattern that cannot be stepped over columns."""

    def __init__(self, sentence: str, expression: Expression | None = None) -> None:
        place = expression and next((part.place for part in walk(expression) if isinstance(part, At | Column)), None)
        super().__init__(f"{sentence}\n{place.mark()}" if place else sentence)


@dataclass(frozen=True)
class Lane:
    """What is read of a row: an expression of one row, `back` rows earlier in the partition."""

    of: Expression
    back: int = 0


@dataclass(frozen=True)
class Segment:
    """Some of the code, and what it finds."""

    begin: int
    end: int
    type: Type
    is_at_hand: bool
    """It looks at no other row of the match than the one at hand."""


@dataclass
class Assembler:
    """Code for several expressions over rows of one schema; they share lanes, constants and sets of variables."""

    schema: pa.Schema
    variables: Sequence[str] = ()
    lanes: dict[Lane, Type] = field(default_factory=dict)
    constants: list[tuple[Type, Any]] = field(default_factory=list)
    """Each with its type; texts get their place in each call."""
    code: list[tuple[int, int, int, int, int]] = field(default_factory=list)
    sets: dict[frozenset[str] | None, int] = field(default_factory=dict)
    orders_texts: bool = False
    """Whether it matters which of two texts is the smaller."""

    def assemble(self, expression: Expression, own: str | None = None) -> Segment:
        """Code for an expression; `own` is the variable as which the row at hand counts, if that is known."""
        writer = _Writer(self, own)
        try:
            found = writer.write(expression)
        except Foreign:
            raise NotColumnar(
                f"{show(expression)} cannot be computed over the rows of a match: put together or round what is of one "
                "row, and only compare it with other rows; MEASURES may do either",
                expression,
            ) from None
        begin = len(self.code)
        # What is found stands last.
        if found.at != len(writer.lines) - 1:
            writer.lines.append((op.COALESCE, found.at, found.at, 0, 0))
        self.code += writer.lines
        return Segment(begin, len(self.code), found.type, writer.is_at_hand)

    def type_of(self, expression: Expression) -> Type:
        """The type of an expression of one row."""
        if isinstance(expression, Column):
            return self._column_type(expression)
        scratch = Assembler(self.schema)
        found = _Writer(scratch, None).write(expression, may_be_lane=False)
        return found.type

    def _column_type(self, column: Column) -> Type:
        index = self.schema.get_field_index(column.name)
        if index < 0:
            raise NotColumnar(f"there is no column {column.name!r}", column)
        arrow = self.schema.field(index).type
        for part in column.path[1:]:
            index = arrow.get_field_index(part) if pa.types.is_struct(arrow) else -1
            if index < 0:
                return NULL  # as with rows whose struct has no such field
            arrow = arrow.field(index).type
        found = type_of(arrow)
        if found is None:
            raise Foreign
        return found

    def set_of(self, variables: frozenset[str] | None) -> int:
        return self.sets.setdefault(variables, len(self.sets))

    def lane(self, of: Expression, back: int = 0) -> tuple[int, Type]:
        lane = Lane(of, back)
        if lane not in self.lanes:
            try:
                self.lanes[lane] = self.type_of(of)
            except Foreign:
                self.lanes[lane] = self.foreign_type(of)
        return list(self.lanes).index(lane), self.lanes[lane]

    def foreign_type(self, expression: Expression) -> Type:
        """The type of what there is no instruction for."""
        if not isinstance(expression, Call):
            raise Foreign
        if expression.name == "cast":
            target = expression.args[1]
            assert isinstance(target, Literal)
            found = {"int": LONG, "double": DOUBLE, "string": TEXT, "boolean": BOOL, "timestamp": TIME}.get(
                str(target.value)
            )
        elif expression.name == "round":
            found = self.type_of(expression.args[0])
            found = found if found.kind is Kind.LONG else DOUBLE if found.kind is Kind.DOUBLE else None
        elif expression.name in ("is null", "<=>", "in", *COMPARISONS):
            found = BOOL
        else:
            found = _FOREIGN.get(expression.name)
        if found is None:
            raise Foreign
        return found


class _Writer(Operators):
    """The code of one expression."""

    def __init__(self, assembler: Assembler, own: str | None) -> None:
        super().__init__(assembler)
        self._all = assembler
        self._own = own
        self.is_at_hand = True

    def write(self, expression: Expression, may_be_lane: bool = True) -> Value:
        if is_constant(expression):
            return self._constant(constant(expression))
        if isinstance(expression, Column):
            return self._load(expression)
        if isinstance(expression, Fact):
            return self._fact(expression)
        if isinstance(expression, At):
            return self._at(expression)
        if isinstance(expression, Aggregate):
            return self._aggregate(expression)
        assert isinstance(expression, Call)
        before = len(self.lines)
        try:
            return self._call(expression)
        except Foreign:
            del self.lines[before:]
            self._known = {line: at for line, at in self._known.items() if at < before}
            if is_row_only(expression):
                if not may_be_lane:
                    return Value(0, self._all.foreign_type(expression))
                return self._load(expression)
            return self.write(_pushed_down(expression))

    # --- values

    def _load(self, of: Expression, back: int = 0) -> Value:
        lane, found = self._all.lane(of, back)
        return self._emit(found, op.LOAD, lane)

    def _fact(self, fact: Fact) -> Value:
        if fact.name == "MATCH_NUMBER":
            return self._emit(LONG, op.MATCH_NUMBER)
        if self._own is not None:
            return self._constant(self._own)
        constants = self._all.constants
        constants += [(TEXT, variable) for variable in self._all.variables]
        return self._emit(TEXT, op.CLASSIFIER, len(constants) - len(self._all.variables))

    def _at(self, at: At) -> Value:
        is_own = at.variables is None or (self._own is not None and self._own in at.variables)
        if at.end is End.LAST and not at.offset and is_own:
            return self._load(at.of, at.back)
        self.is_at_hand = False
        lane, found = self._all.lane(at.of, at.back)
        what = op.FROM_FIRST if at.end is End.FIRST else op.FROM_LAST
        return self._emit(found, what, lane, self._all.set_of(at.variables), at.offset)

    def _aggregate(self, aggregate: Aggregate) -> Value:
        self.is_at_hand = False
        members = self._all.set_of(aggregate.variables)
        if aggregate.of is None:
            return self._emit(LONG, op.COUNT_ROWS, 0, members)
        lane, found = self._all.lane(aggregate.of)
        if aggregate.name == "count":
            return self._emit(LONG, op.COUNT_DISTINCT if aggregate.is_distinct else op.COUNT, lane, members)
        if found.kind is Kind.NULL:
            return self._emit(NULL, op.NULL)
        is_double = found.kind is Kind.DOUBLE
        if aggregate.name in ("min", "max"):
            self._all.orders_texts |= found.kind is Kind.TEXT
            is_least = aggregate.name == "min"
            if is_double:
                return self._emit(found, op.MIN_DOUBLE if is_least else op.MAX_DOUBLE, lane, members)
            return self._emit(found, op.MIN_LONG if is_least else op.MAX_LONG, lane, members)
        if found.kind is Kind.TEXT:
            return self._aggregate(replace(aggregate, of=as_cast(aggregate.of, "double")))
        if found.kind not in (*NUMERIC, Kind.SPAN):
            raise Foreign
        what = op.SUM_DISTINCT_DOUBLE if aggregate.is_distinct else op.SUM_DOUBLE
        if not is_double:
            what = op.SUM_DISTINCT_LONG if aggregate.is_distinct else op.SUM_LONG
        summed = _wide(found)
        total = self._emit(summed, what, lane, members)
        if aggregate.name == "sum":
            return total
        count = self._emit(LONG, op.COUNT_DISTINCT if aggregate.is_distinct else op.COUNT, lane, members)
        return self._emit(DOUBLE, op.DIVIDE_D, self._double(total).at, self._double(count).at)

    # --- operators and functions

    def _call(self, call: Call) -> Value:
        name, args = call.name, call.args
        if name in ("and", "or"):
            found = self._truth(args[0])
            for argument in args[1:]:
                found = self._emit(BOOL, op.AND if name == "and" else op.OR, found.at, self._truth(argument).at)
            return found
        if name == "not":
            return self._emit(BOOL, op.NOT, self._truth(args[0]).at)
        if name == "is null":
            return self._emit(BOOL, op.IS_NULL, self.write(args[0]).at)
        if name in COMPARISONS or name == "<=>":
            return self._compare(name, args[0], args[1])
        if name == "in":
            tests = [self._compare("=", args[0], one) for one in args[1:]]
            found = tests[0]
            for test in tests[1:]:
                found = self._emit(BOOL, op.OR, found.at, test.at)
            return found
        if name in ("case", "coalesce", "nullif", "greatest", "least"):
            return self._choice(name, args)
        if name in FRACTIONS:
            return self._arithmetic(name, args)
        if name == "cast":
            assert isinstance(args[1], Literal)
            return self._cast(args[0], str(args[1].value))
        return self._function(name, args)

    def _function(self, name: str, args: Sequence[Expression]) -> Value:
        if name == "pi":
            return self._constant(constant(Call("pi", ())))
        if name not in ("negate", "abs", "ceil", "floor", "round", *_OF_ONE, *_OF_TWO):
            raise Foreign
        given = self.write(args[0])
        if given.type.kind is Kind.TEXT and name != "round":
            given = self.write(as_cast(args[0], "double"))
        if given.type.kind is Kind.NULL:
            return given
        if name in _OF_TWO:
            other = self._double(self._number(args[1]))
            return self._emit(DOUBLE, _OF_TWO[name], self._double(given).at, other.at)
        if name in _OF_ONE:
            return self._emit(DOUBLE, _OF_ONE[name], self._double(given).at)
        if name == "round":
            if given.type.kind is Kind.LONG and len(args) == 1:
                return given
            raise Foreign
        is_double = given.type.kind is Kind.DOUBLE
        if name in ("negate", "abs"):
            if given.type.kind not in (*NUMERIC, Kind.SPAN):
                raise Foreign
            if is_double:
                return self._emit(given.type, op.NEGATE_D if name == "negate" else op.ABSOLUTE_D, given.at)
            return self._emit(given.type, op.NEGATE if name == "negate" else op.ABSOLUTE, given.at)
        if given.type.kind is Kind.LONG:
            return Value(given.at, LONG)
        if not is_double:
            raise Foreign
        return self._emit(LONG, op.CEILING if name == "ceil" else op.FLOOR, given.at)


def _pushed_down(call: Call) -> Expression:
    """`f(A.x, 3)` as the value of `f(x, 3)` at that row: the same where NULL gives NULL."""
    ats = [argument for argument in call.args if isinstance(argument, At)]
    others = [argument for argument in call.args if not isinstance(argument, At)]
    known = FUNCTIONS.get(call.name)
    is_strict = known.is_strict if known is not None else call.name in ("like", "rlike", "||", "cast", "+", "-", "/")
    coordinates = {(at.end, at.variables, at.offset, at.back) for at in ats}
    if not ats or not is_strict or len(coordinates) != 1 or not all(map(is_constant, others)):
        raise Foreign
    of = Call(call.name, tuple(one.of if isinstance(one, At) else one for one in call.args))
    return replace(ats[0], of=of)


def _wide(found: Type) -> Type:
    """What a sum of such is."""
    return {Kind.LONG: LONG, Kind.DOUBLE: DOUBLE, Kind.SPAN: SPAN}.get(found.kind) or decimal_of(found.scale)
