"""Spark SQL expressions, as sqlglot reads them, turned into the small tree of `expressions.py`.

sqlglot accepts far more than an expression over rows: whatever this module has no word for is refused, with its place.
A name before a dot is a variable of the pattern if there is one of that name, and else a struct column.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, Final

import re2

from headrace.cep.errors import InvalidPattern
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
    Variables,
    columns,
    walk,
)
from headrace.cep.parsing import AGGREGATES, DEEPEST, TOO_DEEP, parse, tokenize
from headrace.cep.values import CASTS, FUNCTIONS
from headrace.durations import InvalidDuration, microseconds
from headrace.errors import nearest
from headrace.extras import load
from headrace.places import Place, whole

_BINARY: Final = {
    "EQ": "=", "NEQ": "<>", "LT": "<", "LTE": "<=", "GT": ">", "GTE": ">=", "NullSafeEQ": "<=>", "And": "and",
    "Or": "or", "Add": "+", "Sub": "-", "Mul": "*", "Div": "/", "IntDiv": "div", "Mod": "%", "Like": "like",
    "RegexpLike": "rlike", "DPipe": "||",
}  # fmt: skip


@dataclass(frozen=True)
class Scope:
    """What names mean: the variables (by their lower-case names), and the one whose condition is being read.

    `own` is None outside of conditions, where `A.price` is the last row of A.
    """

    variables: Mapping[str, frozenset[str]] = field(default_factory=dict)
    own: str | None = None


def read_expression(
    text: str, scope: Scope, place: Place | None = None, tokens: Sequence[Any] | None = None
) -> Expression:
    """The expression of a text, or of some tokens of it; `place` is where to point if there is nothing there."""
    place = place or whole(text)
    if tokens is None:
        tokens = tokenize(text)
    parsed = parse(text, tokens, place)
    if len(parsed) != 1:
        raise InvalidPattern(
            "a condition is missing here" if not parsed else "one expression is expected here, not several", place
        )
    return _Reader(text, scope, place).read(parsed[0])


class _Reader:
    """One expression's way from sqlglot's tree to ours."""

    def __init__(self, text: str, scope: Scope, place: Place) -> None:
        self._text = text
        self._scope = scope
        self._place = place
        self._depth = 0

    def read(self, node: Any) -> Expression:
        self._depth += 1
        if self._depth > DEEPEST:
            raise InvalidPattern(TOO_DEEP, self._place)
        found = self._read(node)
        self._depth -= 1
        return found

    def _read(self, node: Any) -> Expression:
        kind = type(node).__name__
        if kind in _BINARY:
            found = Call(_BINARY[kind], (self.read(node.this), self.read(node.expression)))
            if found.name == "rlike":
                self._check_regular(found.args[1], node.expression)
            return found
        reader = getattr(self, f"_read_{kind.lower()}", None)
        if reader is not None:
            return reader(node)  # type: ignore[no-any-return]
        return self._read_function(node, node.sql_name() if hasattr(node, "sql_name") else kind)

    def _check_regular(self, pattern: Expression, node: Any) -> None:
        if not isinstance(pattern, Literal) or not isinstance(pattern.value, str):
            return
        try:
            re2.compile(pattern.value)
        except re2.error as error:
            why = error.args[0].decode() if isinstance(error.args[0], bytes) else str(error)
            raise InvalidPattern(f"this is not a regular expression: {why}", self._at(node)) from None

    # --- values

    def _read_paren(self, node: Any) -> Expression:
        return self.read(node.this)

    def _read_literal(self, node: Any) -> Expression:
        if node.is_string:
            return Literal(node.this)
        try:
            return Literal(_number(node.this))
        except ValueError:
            raise InvalidPattern(f"{node.this} is not a number", self._place) from None

    def _read_boolean(self, node: Any) -> Expression:
        return Literal(bool(node.this))

    def _read_null(self, _node: Any) -> Expression:
        return Literal(None)

    def _read_neg(self, node: Any) -> Expression:
        inner = self.read(node.this)
        if isinstance(inner, Literal) and isinstance(inner.value, int | float):
            return Literal(-inner.value)
        return Call("negate", (inner,))

    def _read_interval(self, node: Any) -> Expression:
        count = node.this.name if node.this is not None else ""
        unit = node.unit.name if node.unit is not None else ""
        try:
            return Literal(timedelta(microseconds=microseconds(f"{count} {unit}".strip(), "this interval")))
        except InvalidDuration as error:
            raise InvalidPattern(str(error), self._at(node)) from None

    def _read_cast(self, node: Any) -> Expression:
        target = node.to.this.name.lower()
        if target not in CASTS:
            raise InvalidPattern(f"a cast to {target} is unsupported; {nearest(target, CASTS)}", self._at(node))
        inner = self.read(node.this)
        if isinstance(inner, Literal) and CASTS[target] == "timestamp" and isinstance(inner.value, str):
            try:
                at = datetime.fromisoformat(inner.value)
            except ValueError:
                raise InvalidPattern(
                    f"{inner.value!r} is not a time: write it as 2030-12-31 23:59:59", self._at(node)
                ) from None
            return Literal(at if at.tzinfo else at.replace(tzinfo=UTC))
        return Call("cast", (inner, Literal(CASTS[target])))

    _read_trycast = _read_cast

    # --- columns

    def _read_column(self, node: Any) -> Expression:
        parts = [
            part for part in (node.args.get(key) for key in ("catalog", "db", "table", "this")) if part is not None
        ]
        return self._column([part.name for part in parts], parts, node)

    def _read_dot(self, node: Any) -> Expression:
        parts = list(node.flatten())
        head, rest = parts[0], parts[1:]
        if type(head).__name__ != "Column" or not all(type(part).__name__ == "Identifier" for part in rest):
            raise InvalidPattern("a dot stands between names only", self._at(node))
        inner = [
            part for part in (head.args.get(key) for key in ("catalog", "db", "table", "this")) if part is not None
        ]
        return self._column([part.name for part in (*inner, *rest)], [*inner, *rest], node)

    def _column(self, names: list[str], parts: list[Any], node: Any) -> Expression:
        if type(node.this).__name__ == "Star":
            raise InvalidPattern("a star stands only in COUNT(*) or COUNT(A.*)", self._at(node))
        variables = self._scope.variables.get(names[0].lower()) if len(names) > 1 else None
        if variables is None:
            return Column(tuple(names), self._at(*parts))
        column = Column(tuple(names[1:]), self._at(*parts))
        if self._scope.own in variables:
            return column
        return At(End.LAST, variables, column, place=self._at(*parts))

    # --- conditions

    def _read_not(self, node: Any) -> Expression:
        return Call("not", (self.read(node.this),))

    def _read_is(self, node: Any) -> Expression:
        other = type(node.expression).__name__
        if other == "Null":
            return Call("is null", (self.read(node.this),))
        if other == "Boolean":
            return Call("<=>", (self.read(node.this), Literal(bool(node.expression.this))))
        raise InvalidPattern("IS is followed by NULL, TRUE or FALSE", self._at(node))

    def _read_in(self, node: Any) -> Expression:
        if not node.expressions:
            raise InvalidPattern("IN takes a list of values, not a query", self._at(node))
        return Call("in", (self.read(node.this), *map(self.read, node.expressions)))

    def _read_between(self, node: Any) -> Expression:
        tested = self.read(node.this)
        low, high = self.read(node.args["low"]), self.read(node.args["high"])
        return Call("and", (Call(">=", (tested, low)), Call("<=", (tested, high))))

    def _read_case(self, node: Any) -> Expression:
        subject = node.this and self.read(node.this)
        args: list[Expression] = []
        for branch in node.args["ifs"]:
            test = self.read(branch.this)
            args += [Call("=", (subject, test)) if subject else test, self.read(branch.args["true"])]
        default = node.args.get("default")
        return Call("case", (*args, self.read(default) if default is not None else Literal(None)))

    def _read_if(self, node: Any) -> Expression:
        default = node.args.get("false")
        return Call(
            "case",
            (self.read(node.this), self.read(node.args["true"]), self.read(default) if default else Literal(None)),
        )

    # --- functions

    def _read_log(self, node: Any) -> Expression:
        first = self.read(node.this)
        if node.expression is None:
            return Call("ln", (first,))
        of = self.read(node.expression)
        if first in (Literal(2), Literal(10)):
            return Call("log2" if first == Literal(2) else "log10", (of,))
        return Call("/", (Call("ln", (of,)), Call("ln", (first,))))

    def _read_anonymous(self, node: Any) -> Expression:
        name = str(node.this).upper()
        if name in ("PREV", "FIRST", "LAST"):
            return self._read_navigation(name, node)
        if name == "NEXT":
            raise InvalidPattern(
                "NEXT looks at rows that have not come yet: make them a variable of the pattern", self._at(node)
            )
        if name in AGGREGATES:
            return self._read_aggregate(name, node)
        if name in ("CLASSIFIER", "MATCH_NUMBER"):
            return Fact(name)
        return self._read_function(node, name)

    def _read_function(self, node: Any, name: str) -> Expression:
        name = name.lower()
        if type(node).__name__ == "Alias":
            raise InvalidPattern("an operator is missing between these two", self._at(node))
        if name not in FUNCTIONS:
            told = nearest(name, FUNCTIONS, otherwise=f"functions are {', '.join(sorted(FUNCTIONS))}")
            raise InvalidPattern(f"{name} is unsupported in a condition; {told}", self._at(node))
        args: list[Any] = []
        for key in node.arg_types if name != str(node.this).lower() else ("expressions",):
            value = node.args.get(key)
            args += value if isinstance(value, list) else [value] if hasattr(value, "sql") else []
        least, most = FUNCTIONS[name].arity
        if not least <= len(args) <= most:
            raise InvalidPattern(f"{name} has {len(args)} arguments, and takes {_count(least, most)}", self._at(node))
        return Call(name, tuple(self.read(argument) for argument in args))

    def _read_navigation(self, name: str, node: Any) -> Expression:
        args = node.expressions
        if not 1 <= len(args) <= 2:
            raise InvalidPattern(f"{name} takes an expression and at most one number", self._at(node))
        count = self._count(args[1]) if len(args) == 2 else 1 if name == "PREV" else 0
        if name == "PREV" and type(args[0]).__name__ == "Anonymous" and str(args[0].this).upper() in ("FIRST", "LAST"):
            inner = self._read_navigation(str(args[0].this).upper(), args[0])
            assert isinstance(inner, At)
            return At(inner.end, inner.variables, inner.of, inner.offset, count, self._at(node))
        variables, of = self._of_one_variable(args[0], node)
        end = End.FIRST if name == "FIRST" else End.LAST
        return At(end, variables, of, count if name != "PREV" else 0, count if name == "PREV" else 0, self._at(node))

    def _read_aggregate(self, name: str, node: Any) -> Expression:
        if len(node.expressions) != 1:
            raise InvalidPattern(f"{name} takes one expression", self._at(node))
        argument = node.expressions[0]
        is_distinct = type(argument).__name__ == "Distinct"
        if is_distinct:
            argument = argument.expressions[0]
        star = type(argument).__name__ == "Star"
        if star or (type(argument).__name__ == "Column" and type(argument.this).__name__ == "Star"):
            if name != "COUNT":
                raise InvalidPattern(f"{name} takes a column, not a star", self._at(node))
            variables = None if star else self._scope.variables.get(argument.table.lower())
            if not star and variables is None:
                raise self._unknown_variable(argument.table, argument)
            return Aggregate("count", variables, None)
        variables, of = self._of_one_variable(argument, node)
        return Aggregate(name.lower(), variables, of, is_distinct)

    def _of_one_variable(self, node: Any, whole_node: Any) -> tuple[Variables, Expression]:
        """What a navigation or an aggregate is of: columns that all belong to one variable, or all to none."""
        owners: set[Variables] = set()
        for column in node.find_all(_column_class()):
            names = [part.name for part in column.parts]
            owners.add(self._scope.variables.get(names[0].lower()) if len(names) > 1 else None)
        if len(owners) > 1:
            raise InvalidPattern(
                "one of these looks at the rows of one variable only, and this has several", self._at(whole_node)
            )
        # Read as if in the variable's own condition: the columns are those of the row that is navigated to.
        variables = next(iter(owners), None)
        own = next(iter(variables)) if variables else None
        of = _Reader(self._text, Scope(self._scope.variables, own), self._place).read(node)
        if not all(isinstance(part, Literal | Column | Call) for part in walk(of)):
            raise InvalidPattern(
                "these cannot be nested, but for PREV(FIRST(…)) and PREV(LAST(…))", self._at(whole_node)
            )
        return variables, of

    def _count(self, node: Any) -> int:
        expression = self.read(node)
        value = constant(expression) if is_constant(expression) else None
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= 1_000_000:
            raise InvalidPattern("a whole number is expected here", self._at(node))
        return value

    def _unknown_variable(self, name: str, node: Any) -> InvalidPattern:
        return InvalidPattern(
            f"unknown variable {name!r}: {nearest(name, self._scope.variables, 'the pattern has')}", self._at(node)
        )

    def _at(self, *nodes: Any) -> Place:
        """Where some nodes stand, as far as sqlglot remembers."""
        spans = [
            (part.meta["start"], part.meta["end"])
            for node in nodes
            for part in node.walk()
            if "start" in part.meta and "end" in part.meta
        ]
        if not spans:
            return self._place
        return Place(self._text, min(start for start, _ in spans), max(end for _, end in spans) + 1)


@cache
def _column_class() -> Any:
    return load("sqlglot.expressions", "a pattern").Column


def _number(text: str) -> int | float:
    if text.isdigit() and int(text) < 2**63:
        return int(text)
    return float(text)


def _count(least: int, most: int) -> str:
    return str(least) if least == most else f"{least} or more" if most > 100 else f"{least} to {most}"


def check_columns(expression: Expression, known: Mapping[str, str]) -> None:
    """Refuse a column that the rows do not have; `known` is their names by lower case."""
    for column in columns(expression):
        if column.name.lower() not in known:
            raise InvalidPattern(
                f"unknown column {column.name!r}: {nearest(column.name, known.values(), 'the rows have')}", column.place
            )
