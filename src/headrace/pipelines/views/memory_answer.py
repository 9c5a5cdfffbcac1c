"""A question answered over rows in memory, for stores that know rows by their key alone. Pure."""

import heapq
import math
from collections.abc import Callable, Iterable
from typing import Any

from headrace.pipelines.views.question import Condition, Question

_TESTS: dict[str, Callable[[Any, Any], bool]] = {
    "eq": lambda found, asked: found == asked,
    "ne": lambda found, asked: found != asked,
    "lt": lambda found, asked: found < asked,
    "le": lambda found, asked: found <= asked,
    "gt": lambda found, asked: found > asked,
    "ge": lambda found, asked: found >= asked,
}


def fits(row: dict[str, Any], conditions: Iterable[Condition]) -> bool:
    """Whether a row is asked for; as in SQL, a comparison with nothing is never true."""
    return all(_holds(row[condition.column.name], condition) for condition in conditions)


def _holds(value: Any, condition: Condition) -> bool:
    if condition.operator == "null":
        return bool((value is None) == condition.value)
    if value is None:
        return False
    if condition.operator == "in":
        return any(_ranked(value) == _ranked(one) for one in condition.value)
    return _TESTS[condition.operator](_ranked(value), _ranked(condition.value))


def answered(rows: Iterable[dict[str, Any]], question: Question) -> list[dict[str, Any]]:
    """The page that a question asks for."""

    def place(row: dict[str, Any]) -> tuple["_Place", ...]:
        return tuple(_Place(row[order.column.name], order.descending) for order in question.order)

    wanted: Iterable[dict[str, Any]] = (row for row in rows if fits(row, question.conditions))
    if question.after is not None:
        pairs = zip(question.after, question.order, strict=True)
        last = tuple(_Place(value, order.descending) for value, order in pairs)
        wanted = (row for row in wanted if last < place(row))
    return heapq.nsmallest(question.limit, wanted, key=place)


def _ranked(value: Any) -> Any:
    """NaN equals itself and is greater than all else, as in PostgreSQL and Spark."""
    return (math.isnan(value), 0.0 if math.isnan(value) else value) if isinstance(value, float) else value


class _Place:
    """A value where it stands in an order; nothing comes last, either way."""

    __slots__ = ("descending", "value")

    def __init__(self, value: Any, descending: bool) -> None:
        self.value = None if value is None else _ranked(value)
        self.descending = descending

    def __lt__(self, other: "_Place") -> bool:
        if self.value is None or other.value is None:
            return self.value is not None
        return bool(other.value < self.value if self.descending else self.value < other.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Place) and bool(self.value == other.value)

    __hash__ = None  # type: ignore[assignment]
