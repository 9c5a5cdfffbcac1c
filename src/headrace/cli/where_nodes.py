"""What a `--where` expression means: a tree of small values, each of which can be asked about a JSON document.

The rules are jq's where jq has them: a path that leads nowhere is null, and everything but false and null is true. Two
are stricter, so that a filter does not match by accident: values of different kinds are never equal (`1` is not
`true`), and only numbers with numbers and texts with texts can be ordered: `.cents > 500` is false without cents.

What always holds: asking raises nothing, whatever the document, unless it is nested too deep for Python; and `str` of a
node parses to an equal node.
"""

import json
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Protocol

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")

ORDERINGS: Mapping[str, Callable[[Any, Any], bool]] = MappingProxyType(
    {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
)


class Node(Protocol):
    """A part of an expression."""

    def value(self, document: object) -> object:
        """What it comes to for a document."""
        ...


@dataclass(frozen=True, slots=True)
class Literal:
    """A value written in the expression."""

    constant: bool | int | float | str | None

    def value(self, document: object) -> object:  # noqa: ARG002 - the same for all documents
        """The value itself."""
        return self.constant

    def __str__(self) -> str:
        return json.dumps(self.constant, ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class Path:
    """The way from the document to a part of it: names of fields and places in lists; without any, all of it."""

    steps: tuple[str | int, ...]

    def value(self, document: object) -> object:
        """The part, or null where the way ends early."""
        for step in self.steps:
            if isinstance(step, str):
                document = document.get(step) if isinstance(document, dict) else None
            elif isinstance(document, list) and -len(document) <= step < len(document):
                document = document[step]
            else:
                return None
        return document

    def __str__(self) -> str:
        shown = [
            f".{step}"
            if isinstance(step, str) and _NAME.fullmatch(step)
            else f"[{json.dumps(step, ensure_ascii=False)}]"
            for step in self.steps
        ]
        return "".join(shown) if shown and shown[0].startswith(".") else "." + "".join(shown)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two values side by side."""

    left: Node
    operator: str
    right: Node

    def value(self, document: object) -> bool:
        """Whether it holds."""
        left, right = self.left.value(document), self.right.value(document)
        if self.operator == "==":
            return is_same(left, right)
        if self.operator == "!=":
            return not is_same(left, right)
        can_be_ordered = (is_number(left) and is_number(right)) or (isinstance(left, str) and isinstance(right, str))
        return can_be_ordered and ORDERINGS[self.operator](left, right)

    def __str__(self) -> str:
        return f"({self.left} {self.operator} {self.right})"


@dataclass(frozen=True, slots=True)
class Not:
    """The opposite."""

    of: Node

    def value(self, document: object) -> bool:
        """Whether the other is not true."""
        return not is_true(self.of.value(document))

    def __str__(self) -> str:
        return f"(not {self.of})"


@dataclass(frozen=True, slots=True)
class Every:
    """Several conditions, joined by `and`."""

    parts: tuple[Node, ...]

    def value(self, document: object) -> bool:
        """Whether all are true."""
        return all(is_true(part.value(document)) for part in self.parts)

    def __str__(self) -> str:
        return f"({' and '.join(map(str, self.parts))})"


@dataclass(frozen=True, slots=True)
class Some:
    """Several conditions, joined by `or`."""

    parts: tuple[Node, ...]

    def value(self, document: object) -> bool:
        """Whether one is true."""
        return any(is_true(part.value(document)) for part in self.parts)

    def __str__(self) -> str:
        return f"({' or '.join(map(str, self.parts))})"


def is_true(value: object) -> bool:
    """Whether a value counts as true: all but false and null do."""
    return value is not None and value is not False


def is_number(value: object) -> bool:
    """Whether a value is a number; to Python true and false are numbers too, to JSON they are not."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_same(left: object, right: object) -> bool:
    """Whether two JSON values are equal."""
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(is_same, left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(is_same(value, right[key]) for key, value in left.items())
    if is_number(left) and is_number(right):
        return left == right
    return type(left) is type(right) and left == right
