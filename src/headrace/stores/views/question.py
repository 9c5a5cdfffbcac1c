"""What is asked of a view: conditions, an order, and a page of it. Pure.

    user=7 & posted.ge=2026-01-01T00:00:00Z & order=-posted & limit=20 & after=…

A page ends with a cursor that names its last row by the order's columns and the key, so the next page begins behind
that row, whatever was added or removed meanwhile.
"""

import base64
import binascii
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.stores.errors import BadQuestion
from headrace.stores.views.shape import Column, Shape, load_value, parse_value, show_value

OPERATORS = ("eq", "ne", "lt", "le", "gt", "ge", "in", "null")
DEFAULT_LIMIT, MOST_ROWS = 100, 1_000
_ORDER, _LIMIT, _AFTER = "order", "limit", "after"


@dataclass(frozen=True)
class Condition:
    """A column compared; for `in` the value is a tuple, for `null` a boolean."""

    column: Column
    operator: str
    value: Any


@dataclass(frozen=True)
class Order:
    """A column that rows are ordered by; rows without a value come last, either way."""

    column: Column
    descending: bool = False

    def __str__(self) -> str:
        return ("-" if self.descending else "") + self.column.name


@dataclass(frozen=True)
class Question:
    """Which rows, in which order (which always ends with the key), how many, and behind which."""

    conditions: tuple[Condition, ...]
    order: tuple[Order, ...]
    limit: int = DEFAULT_LIMIT
    after: tuple[Any, ...] | None = None

    def cursor(self, row: dict[str, Any]) -> str:
        """What names a row as the last of a page."""
        values = [show_value(order.column, row[order.column.name]) for order in self.order]
        text = json.dumps([_order_text(self.order), *values], separators=(",", ":"))
        return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def everything(shape: Shape) -> Question:
    """All rows by their key, a page at a time."""
    return Question((), tuple(Order(column) for column in shape.key_columns), MOST_ROWS)


def read_question(shape: Shape, parameters: Iterable[tuple[str, str]]) -> Question:
    """From the parameters of a request; raises `BadQuestion`."""
    conditions: list[Condition] = []
    special: dict[str, str] = {}
    for name, text in parameters:
        if name in (_ORDER, _LIMIT, _AFTER):
            special[name] = text
        else:
            conditions.append(_condition(shape, name, text))
    order = _read_order(shape, special.get(_ORDER, ""))
    after = _read_cursor(order, special[_AFTER]) if special.get(_AFTER) else None
    return Question(tuple(conditions), order, _read_limit(special.get(_LIMIT)), after)


def read_conditions(shape: Shape, parameters: Iterable[tuple[str, str]]) -> tuple[Condition, ...]:
    """Conditions alone, where an order and pages have no sense."""
    return tuple(_condition(shape, name, text) for name, text in parameters)


def read_key(shape: Shape, parts: Sequence[str]) -> list[Any]:
    """A key from the parts of a path."""
    if len(parts) != len(shape.key):
        raise BadQuestion(
            f"the key has {len(shape.key)} column{'s' if len(shape.key) != 1 else ''}, and {len(parts)} in the path: "
            f"write {'/'.join(f'<{name}>' for name in shape.key)}"
        )
    return [parse_value(column, text) for column, text in zip(shape.key_columns, parts, strict=True)]


def _condition(shape: Shape, name: str, text: str) -> Condition:
    if name in shape.names:
        column, operator = shape.column(name), "eq"
    else:
        head, _, operator = name.rpartition(".")
        if head not in shape.names:
            raise BadQuestion(f"there is no column {head or name!r}: the view has {', '.join(shape.names)}")
        if operator not in OPERATORS:
            raise BadQuestion(f"{name!r} compares by {operator!r}: choose one of {', '.join(OPERATORS)}")
        column = shape.column(head)
    if operator == "null":
        if text not in ("true", "false"):
            raise BadQuestion(f"{name} is {text!r}: write true or false")
        return Condition(column, operator, text == "true")
    if operator == "in":
        return Condition(column, operator, tuple(parse_value(column, part) for part in text.split(",")))
    if operator not in ("eq", "ne") and not column.is_ordered:
        raise BadQuestion(f"{column.name} is {column.type}, which has no order: compare it by eq or ne")
    return Condition(column, operator, parse_value(column, text))


def _read_order(shape: Shape, text: str) -> tuple[Order, ...]:
    found: list[Order] = []
    for part in filter(None, text.split(",")):
        name = part.removeprefix("-")
        if name not in shape.names:
            raise BadQuestion(f"order names {name!r}: the view has {', '.join(shape.names)}")
        if not shape.column(name).is_ordered:
            raise BadQuestion(f"{name} is {shape.column(name).type}, which has no order: order by another column")
        if name not in [order.column.name for order in found]:
            found.append(Order(shape.column(name), part.startswith("-")))
    ordered = {order.column.name for order in found}
    return (*found, *(Order(column) for column in shape.key_columns if column.name not in ordered))


def _read_limit(text: str | None) -> int:
    if text is None:
        return DEFAULT_LIMIT
    if not text.isdecimal() or not 1 <= int(text) <= MOST_ROWS:
        raise BadQuestion(f"limit is {text!r}: write a number from 1 to {MOST_ROWS}")
    return int(text)


def _read_cursor(order: tuple[Order, ...], text: str) -> tuple[Any, ...]:
    try:
        found = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
        if not isinstance(found, list) or found[0] != _order_text(order) or len(found) != len(order) + 1:
            raise ValueError(found)
        return tuple(load_value(one.column, value) for one, value in zip(order, found[1:], strict=True))
    except (ValueError, TypeError, IndexError, ArithmeticError, binascii.Error) as error:
        raise BadQuestion(
            "after is not a cursor of this order: take it from 'next' of the page before, and ask with the same order"
        ) from error


def _order_text(order: Iterable[Order]) -> str:
    return ",".join(map(str, order))
