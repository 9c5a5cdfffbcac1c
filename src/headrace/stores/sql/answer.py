"""A question as SQL, for the stores that speak it: pure text and values."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.stores.sql.statements import TableName, list_names, quote
from headrace.stores.views.question import Condition, Order, Question
from headrace.stores.views.shape import Column, Shape

_SIGNS = {"eq": "=", "ne": "<>", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}


@dataclass(frozen=True)
class Dialect:
    """Where a store differs: its values, and a column where its order counts."""

    compared: Callable[[Column], str] = lambda column: quote(column.name)  # in an order or a comparison by size
    bound: Callable[[Column, Any], Any] = lambda _, value: value  # a value for `compared`
    exact: Callable[[Column, Any], Any] = lambda _, value: value  # a value for the column as it is
    loaded: Callable[[Column, Any], Any] = lambda _, value: value  # a stored value as Python has it


@dataclass(frozen=True)
class Statement:
    """Text with marks, and the values in their places."""

    text: str
    values: tuple[Any, ...] = ()


def select(table: TableName, shape: Shape, question: Question, dialect: Dialect) -> Statement:
    """The page that a question asks for."""
    parts = [_condition(condition, dialect) for condition in question.conditions]
    if question.after is not None:
        parts.append(_behind(shape, question.order, question.after, dialect))
    where = " AND ".join(f"({part.text})" for part in parts) or "1 = 1"
    order = ", ".join(_ordered(shape, order, dialect) for order in question.order)
    return Statement(
        f"SELECT {list_names(shape.names)} FROM {table} WHERE {where} ORDER BY {order} LIMIT {question.limit}",  # noqa: S608
        tuple(value for part in parts for value in part.values),
    )


def by_key(table: TableName, shape: Shape, values: Sequence[Any], dialect: Dialect) -> Statement:
    """One row."""
    where = " AND ".join(f"{quote(name)} = ?" for name in shape.key)
    bound = tuple(dialect.exact(column, value) for column, value in zip(shape.key_columns, values, strict=True))
    return Statement(f"SELECT {list_names(shape.names)} FROM {table} WHERE {where}", bound)  # noqa: S608


def _condition(condition: Condition, dialect: Dialect) -> Statement:
    column, name = condition.column, quote(condition.column.name)
    if condition.operator == "null":
        return Statement(f"{name} IS {'' if condition.value else 'NOT '}NULL")
    if condition.operator == "in":
        marks = ", ".join(["?"] * len(condition.value))
        return Statement(f"{name} IN ({marks})", tuple(dialect.exact(column, value) for value in condition.value))
    sign = _SIGNS[condition.operator]
    if condition.operator in ("eq", "ne"):
        return Statement(f"{name} {sign} ?", (dialect.exact(column, condition.value),))
    return Statement(f"{dialect.compared(column)} {sign} ?", (dialect.bound(column, condition.value),))


def _ordered(shape: Shape, order: Order, dialect: Dialect) -> str:
    """A column of the key is never null, and by itself it is in the order of the store's own index."""
    way = " DESC" if order.descending else ""
    last = "" if order.column.name in shape.key else f"({quote(order.column.name)} IS NULL), "
    return f"{last}{dialect.compared(order.column)}{way}"


def _behind(shape: Shape, order: Sequence[Order], last: Sequence[Any], dialect: Dialect) -> Statement:
    """Rows behind the last one: equal to it in the first columns, and behind it in the next."""
    alternatives: list[Statement] = []
    equal: list[Statement] = []
    for one, value in zip(order, last, strict=True):
        name, compared = quote(one.column.name), dialect.compared(one.column)
        if value is None:  # nothing is behind it in this column
            equal.append(Statement(f"{name} IS NULL"))
            continue
        bound = (dialect.bound(one.column, value),)
        further = f"{compared} {'<' if one.descending else '>'} ?"
        if one.column.name not in shape.key:
            further = f"({further} OR {name} IS NULL)"
        alternatives.append(_all([*equal, Statement(further, bound)]))
        equal.append(Statement(f"{compared} = ?", bound))
    behind = Statement(
        " OR ".join(f"({part.text})" for part in alternatives) or "1 = 0",
        tuple(value for part in alternatives for value in part.values),
    )
    first = order[0]
    if first.column.name not in shape.key:
        return behind
    # The first column alone says where in the index to begin.
    sign = "<=" if first.descending else ">="
    begin = Statement(f"{dialect.compared(first.column)} {sign} ?", (dialect.bound(first.column, last[0]),))
    return _all([begin, Statement(f"({behind.text})", behind.values)])


def _all(parts: Sequence[Statement]) -> Statement:
    return Statement(" AND ".join(part.text for part in parts), tuple(value for part in parts for value in part.values))
