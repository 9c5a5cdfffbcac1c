"""Expressions over the rows of a match: a small tree, whichever language they were written in.

    Column                  a value of the row at hand
    At(FIRST | LAST, …)     a value of an earlier row of the match, or of one that lies `back` rows before it
    Aggregate               COUNT, SUM, AVG, MIN, MAX over the rows of some variables
    Call                    operators and functions alike; `evaluation.py` says what each does
    Fact                    CLASSIFIER() and MATCH_NUMBER()

What always holds: an expression without `At`, `Aggregate` and `Fact` looks at one row only (`is_row_only`), so that it
may be evaluated for a whole column of rows before any automaton sees them.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum

from headrace.places import Place

Variables = frozenset[str] | None
"""Whose rows are meant; None: all rows of the match."""


@dataclass(frozen=True)
class Literal:
    value: object


@dataclass(frozen=True)
class Column:
    """A value of the row at hand; with more than one name a field of a struct."""

    path: tuple[str, ...]
    place: Place | None = field(default=None, compare=False)

    @property
    def name(self) -> str:
        return self.path[0]


@dataclass(frozen=True)
class Call:
    name: str
    args: tuple["Expression", ...]


class End(Enum):
    FIRST = "FIRST"
    LAST = "LAST"


@dataclass(frozen=True)
class At:
    """`of` at the `offset`-th row from one end of the variables' rows, and there `back` rows earlier in the partition.

    The row that is being looked at counts as one of its own variable.
    """

    end: End
    variables: Variables
    of: "Expression"
    offset: int = 0
    back: int = 0
    place: Place | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Aggregate:
    """`of` over the rows of the variables up to the one at hand; None counts rows."""

    name: str
    variables: Variables
    of: "Expression | None"
    is_distinct: bool = False


@dataclass(frozen=True)
class Fact:
    """`CLASSIFIER` or `MATCH_NUMBER`."""

    name: str


Expression = Literal | Column | Call | At | Aggregate | Fact
TRUE = Literal(True)


def walk(expression: Expression) -> Iterator[Expression]:
    """The expression and all within it."""
    yield expression
    if isinstance(expression, Call):
        for argument in expression.args:
            yield from walk(argument)
    elif isinstance(expression, At | Aggregate) and expression.of is not None:
        yield from walk(expression.of)


def is_row_only(expression: Expression) -> bool:
    return all(isinstance(part, Literal | Column | Call) for part in walk(expression))


def is_at_hand(expression: Expression, own: str) -> bool:
    """Whether it looks at no row of the match but the one at hand, which counts as one of the variable `own`.

    It may look at rows of the partition before that one.
    """
    if isinstance(expression, At):
        mine = expression.variables is None or own in expression.variables
        return mine and expression.end is End.LAST and not expression.offset
    if isinstance(expression, Call):
        return all(is_at_hand(argument, own) for argument in expression.args)
    return isinstance(expression, Literal | Column)


def conjuncts(expression: Expression) -> tuple[Expression, ...]:
    """What all have to be true for the whole to be true."""
    if isinstance(expression, Call) and expression.name == "and":
        return tuple(part for argument in expression.args for part in conjuncts(argument))
    return (expression,)


def columns(expression: Expression) -> Iterator[Column]:
    return (part for part in walk(expression) if isinstance(part, Column))


def deepest_back(expression: Expression) -> int:
    """How many rows before a row of the match are looked at."""
    return max((part.back for part in walk(expression) if isinstance(part, At)), default=0)


_INFIX = {"and", "or", "=", "<>", "<", "<=", ">", ">=", "<=>", "+", "-", "*", "/", "%", "div", "like", "rlike", "||"}


def show(expression: Expression) -> str:
    """The expression as SQL, for people to read."""
    if isinstance(expression, Literal):
        value = expression.value
        if value is None or isinstance(value, bool):
            return str(value).upper() if value is not None else "NULL"
        return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else str(value)
    if isinstance(expression, Column):
        return ".".join(expression.path)
    if isinstance(expression, Fact):
        return f"{expression.name}()"
    if isinstance(expression, At):
        if expression.back and expression.end is End.LAST and not expression.offset:
            return f"PREV({_whose(expression.variables)}{_inner(expression.of)}, {expression.back})"
        inner = f"{expression.end.value}({_whose(expression.variables)}{_inner(expression.of)}"
        inner += f", {expression.offset})" if expression.offset else ")"
        return f"PREV({inner}, {expression.back})" if expression.back else inner
    if isinstance(expression, Aggregate):
        of = "*" if expression.of is None else _inner(expression.of)
        return f"{expression.name.upper()}({'DISTINCT ' * expression.is_distinct}{_whose(expression.variables)}{of})"
    shown = [show(argument) for argument in expression.args]
    if expression.name in _INFIX and len(shown) == 2:
        wrapped = [
            f"({text})" if isinstance(argument, Call) and argument.name in _INFIX else text
            for text, argument in zip(shown, expression.args, strict=True)
        ]
        return f"{wrapped[0]} {expression.name.upper()} {wrapped[1]}"
    if expression.name == "not":
        return f"NOT ({shown[0]})"
    if expression.name == "is null":
        return f"{shown[0]} IS NULL"
    if expression.name == "in":
        return f"{shown[0]} IN ({', '.join(shown[1:])})"
    return f"{expression.name}({', '.join(shown)})"


def _whose(variables: Variables) -> str:
    return "" if variables is None else "|".join(sorted(variables)) + "."


def _inner(expression: Expression) -> str:
    return show(expression) if isinstance(expression, Column) else f"({show(expression)})"
