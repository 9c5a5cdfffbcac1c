"""A question as SQL, for the stores that speak it: pure text and values."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.stores.views.question import Condition, Order, Question
from headrace.stores.views.shape import Column, Shape

_SIGNS = {"eq": "=", "ne": "<>", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}


@dataclass(frozen=True)
class Dialect:
    """How a store writes what differs: names, values, and a column where its order counts."""

    mark: str
    name: Callable[[str], str]
    compared: Callable[[Column], str]  # the column in an order or a comparison by size
    bound: Callable[[Column, Any], Any]  # a value for `compared`
    exact: Callable[[Column, Any], Any]  # a value for the column as it is


@dataclass(frozen=True)
class Statement:
    """Text with marks, and the values in their places."""

    text: str
    values: tuple[Any, ...] = ()


def select(table: str, shape: Shape, question: Question, dialect: Dialect) -> Statement:
    """The page that a question asks for."""
    parts = [_condition(condition, dialect) for condition in question.conditions]
    if question.after is not None:
        parts.append(_behind(shape, question.order, question.after, dialect))
    where = " AND ".join(f"({part.text})" for part in parts) or "1 = 1"
    order = ", ".join(_ordered(shape, order, dialect) for order in question.order)
    return Statement(
        f"SELECT {_names(shape, dialect)} FROM {table} WHERE {where} ORDER BY {order} LIMIT {question.limit}",  # noqa: S608
        tuple(value for part in parts for value in part.values),
    )


def by_key(table: str, shape: Shape, values: Sequence[Any], dialect: Dialect) -> Statement:
    """One row."""
    where = " AND ".join(f"{dialect.name(name)} = {dialect.mark}" for name in shape.key)
    bound = tuple(dialect.exact(column, value) for column, value in zip(shape.key_columns, values, strict=True))
    return Statement(f"SELECT {_names(shape, dialect)} FROM {table} WHERE {where}", bound)  # noqa: S608


def _names(shape: Shape, dialect: Dialect) -> str:
    return ", ".join(dialect.name(name) for name in shape.names)


def _condition(condition: Condition, dialect: Dialect) -> Statement:
    column, name = condition.column, dialect.name(condition.column.name)
    if condition.operator == "null":
        return Statement(f"{name} IS {'' if condition.value else 'NOT '}NULL")
    if condition.operator == "in":
        marks = ", ".join([dialect.mark] * len(condition.value))
        return Statement(f"{name} IN ({marks})", tuple(dialect.exact(column, value) for value in condition.value))
    sign = _SIGNS[condition.operator]
    if condition.operator in ("eq", "ne"):
        return Statement(f"{name} {sign} {dialect.mark}", (dialect.exact(column, condition.value),))
    return Statement(f"{dialect.compared(column)} {sign} {dialect.mark}", (dialect.bound(column, condition.value),))


def _ordered(shape: Shape, order: Order, dialect: Dialect) -> str:
    """A column of the key is never null, and by itself it is in the order of the store's own index."""
    way = " DESC" if order.descending else ""
    last = "" if order.column.name in shape.key else f"({dialect.name(order.column.name)} IS NULL), "
    return f"{last}{dialect.compared(order.column)}{way}"


def _behind(shape: Shape, order: Sequence[Order], last: Sequence[Any], dialect: Dialect) -> Statement:
    """Rows behind the last one: equal to it in the first columns, and behind it in the next."""
    alternatives: list[Statement] = []
    equal: list[Statement] = []
    for one, value in zip(order, last, strict=True):
        name, compared = dialect.name(one.column.name), dialect.compared(one.column)
        if value is None:  # nothing is behind it in this column
            equal.append(Statement(f"{name} IS NULL"))
            continue
        bound = (dialect.bound(one.column, value),)
        further = f"{compared} {'<' if one.descending else '>'} {dialect.mark}"
        if one.column.name not in shape.key:
            further = f"({further} OR {name} IS NULL)"
        alternatives.append(_all([*equal, Statement(further, bound)]))
        equal.append(Statement(f"{compared} = {dialect.mark}", bound))
    behind = Statement(
        " OR ".join(f"({part.text})" for part in alternatives) or "1 = 0",
        tuple(value for part in alternatives for value in part.values),
    )
    first = order[0]
    if first.column.name not in shape.key:
        return behind
    # The first column alone says where in the index to begin.
    sign = "<=" if first.descending else ">="
    begin = Statement(
        f"{dialect.compared(first.column)} {sign} {dialect.mark}", (dialect.bound(first.column, last[0]),)
    )
    return _all([begin, Statement(f"({behind.text})", behind.values)])


def _all(parts: Sequence[Statement]) -> Statement:
    return Statement(" AND ".join(part.text for part in parts), tuple(value for part in parts for value in part.values))
