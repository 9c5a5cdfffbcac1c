"""Expressions evaluated in plain Python, with SQL's three truth values: true, false, and None for unknown.

An expression becomes a function of one row: an `Event`, or a `Taken` (a row of a match, with those before it).
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from headrace.cep.errors import CepError
from headrace.cep.expressions import Aggregate, At, Call, Column, End, Expression, Fact, Literal
from headrace.cep.values import FUNCTIONS, STRICT, as_key

Values = Mapping[str, Any]
Evaluate = Callable[[Any], Any]
"""A value of a row; the row is an `Event`, or a `Taken` for what looks at earlier rows."""


class Unevaluable(CepError):
    """A constant was wanted, and this needs a row."""


class Event(Protocol):
    """A row as expressions see it."""

    @property
    def values(self) -> Values: ...

    @property
    def before(self) -> tuple[Values, ...]:
        """The rows of the partition before it, the nearest first; as many as the pattern looks back."""
        ...


class Taken(Protocol):
    """A row as part of a match; `parent` is the one taken before."""

    @property
    def variable(self) -> str: ...

    @property
    def values(self) -> Values: ...

    @property
    def event(self) -> Event: ...

    @property
    def parent(self) -> "Taken | None": ...


# --- functions of a row


def compile_expression(expression: Expression, number: Callable[[], int] = lambda: 0) -> Evaluate:
    """The expression as a function of a row; `number` says which match of its partition is looked at."""
    if isinstance(expression, Literal):
        value = expression.value
        return lambda _row: value
    if isinstance(expression, Column):
        return _compile_column(expression)
    if isinstance(expression, Fact):
        return (lambda _row: number()) if expression.name == "MATCH_NUMBER" else (lambda row: row.variable)
    if isinstance(expression, At):
        return _compile_at(expression)
    if isinstance(expression, Aggregate):
        return _compile_aggregate(expression)
    args = [compile_expression(argument, number) for argument in expression.args]
    return _compile_call(expression, args)


def _compile_column(column: Column) -> Evaluate:
    name, *fields = column.path
    if not fields:
        return lambda row: row.values.get(name)

    def find(row: Any) -> Any:
        value = row.values.get(name)
        for part in fields:
            value = value.get(part) if isinstance(value, Mapping) else None
        return value

    return find


def _compile_call(call: Call, args: list[Evaluate]) -> Evaluate:
    name = call.name
    if name == "and":
        return _all(args)
    if name == "or":
        return _any(args)
    if name == "not":
        only = args[0]
        return lambda row: None if (value := only(row)) is None else not value
    if name == "is null":
        only = args[0]
        return lambda row: only(row) is None
    if name == "case":
        return _case(args)
    if name == "in":
        equal, tested = STRICT["="], args[0]

        def is_in(row: Any) -> bool | None:
            value = tested(row)
            found = [None if value is None or (other := one(row)) is None else equal(value, other) for one in args[1:]]
            return True if True in found else None if None in found else False

        return is_in
    if name == "<=>":
        equal, (one, other) = STRICT["="], args

        def is_same(row: Any) -> bool:
            left, right = one(row), other(row)
            return left is None and right is None if left is None or right is None else equal(left, right) is True

        return is_same
    if name in FUNCTIONS and not FUNCTIONS[name].is_strict:
        run = FUNCTIONS[name].run
        return lambda row: run(*[argument(row) for argument in args])
    return _strict(STRICT[name], call, args)


def _strict(run: Callable[..., Any], call: Call, args: list[Evaluate]) -> Evaluate:
    """What is NULL if an argument is; the commonest shapes without a list of arguments."""
    if len(args) == 1:
        only = args[0]
        return lambda row: None if (value := only(row)) is None else run(value)
    if len(args) == 2:
        one, other = args
        if isinstance(call.args[1], Literal) and call.args[1].value is not None:
            fixed = call.args[1].value
            if isinstance(call.args[0], Column) and len(call.args[0].path) == 1:
                name = call.args[0].name
                return lambda row: None if (value := row.values.get(name)) is None else run(value, fixed)
            return lambda row: None if (value := one(row)) is None else run(value, fixed)

        def both(row: Any) -> Any:
            left, right = one(row), other(row)
            return None if left is None or right is None else run(left, right)

        return both

    def each(row: Any) -> Any:
        values = [argument(row) for argument in args]
        return None if None in values else run(*values)

    return each


def _all(args: list[Evaluate]) -> Evaluate:
    def test(row: Any) -> bool | None:
        found: bool | None = True
        for argument in args:
            value = argument(row)
            if value is None:
                found = None
            elif not value:
                return False
        return found

    return test


def _any(args: list[Evaluate]) -> Evaluate:
    def test(row: Any) -> bool | None:
        found: bool | None = False
        for argument in args:
            value = argument(row)
            if value is None:
                found = None
            elif value:
                return True
        return found

    return test


def _case(args: list[Evaluate]) -> Evaluate:
    branches, default = list(zip(args[:-1:2], args[1:-1:2], strict=True)), args[-1]

    def choose(row: Any) -> Any:
        for test, value in branches:
            if test(row):
                return value(row)
        return default(row)

    return choose


# --- earlier rows


@dataclass(frozen=True, slots=True)
class _Earlier:
    """A row of which only the values are kept."""

    values: Values


def rows_of(last: Taken, variables: frozenset[str] | None) -> Iterator[Taken]:
    """The rows of some variables from the one at hand backwards."""
    row: Taken | None = last
    while row is not None:
        if variables is None or row.variable in variables:
            yield row
        row = row.parent


def _compile_at(at: At) -> Evaluate:
    of, offset, back, variables = compile_expression(at.of), at.offset, at.back, at.variables
    if at.end is End.LAST and not back and variables is not None:
        # The commonest, without a generator.
        def find_last(last: Taken) -> Any:
            row: Taken | None = last
            left = offset
            while row is not None:
                if row.variable in variables:
                    if not left:
                        return of(row)
                    left -= 1
                row = row.parent
            return None

        return find_last

    def find(row: Taken) -> Any:
        mine = rows_of(row, at.variables)
        if at.end is End.LAST:
            found = next((one for number, one in enumerate(mine) if number == offset), None)
        else:
            every = list(mine)
            found = every[-1 - offset] if len(every) > offset else None
        if found is None:
            return None
        if not back:
            return of(found)
        before = found.event.before
        return of(_Earlier(before[back - 1])) if len(before) >= back else None

    return find


def _compile_aggregate(aggregate: Aggregate) -> Evaluate:
    name = aggregate.name
    of = None if aggregate.of is None else compile_expression(aggregate.of)
    add, variables = STRICT["+"], aggregate.variables
    if of is None:

        def count(last: Taken) -> int:
            row: Taken | None = last
            counted = 0
            while row is not None:
                if variables is None or row.variable in variables:
                    counted += 1
                row = row.parent
            return counted

        return count

    def compute(row: Taken) -> Any:
        mine = rows_of(row, variables)
        found = [value for one in mine if (value := of(one)) is not None]
        found.reverse()  # sums of fractions depend on the order
        if aggregate.is_distinct:
            first: dict[Any, Any] = {}
            for value in found:
                first.setdefault(as_key(value), value)
            found = list(first.values())
        if name == "count":
            return len(found)
        if not found:
            return None
        if name in ("min", "max"):
            return FUNCTIONS["least" if name == "min" else "greatest"].run(*found)
        total = found[0]
        for value in found[1:]:
            total = add(total, value)
            if total is None:
                return None
        return total if name == "sum" else STRICT["/"](total, len(found))

    return compute


def constant(expression: Expression) -> Any:
    """The value of an expression that needs no row."""
    if not is_constant(expression):
        raise Unevaluable("this is not a constant")
    return compile_expression(expression)(None)


def is_constant(expression: Expression) -> bool:
    if isinstance(expression, Call):
        return all(is_constant(argument) for argument in expression.args)
    return isinstance(expression, Literal)
