"""The language of `--where`, a condition on a JSON document, and its parser.

    expression = and { "or" and } .        and = not { "and" not } .       not = "not" not | comparison .
    comparison = operand [ ("==" | "!=" | "<" | "<=" | ">" | ">=") operand ] .
    operand    = path | text | number | "true" | "false" | "null" | "(" expression ")" .
    path       = "." [ step { "." step | index } ] .
    step       = name | text | index .      index = "[" ( number | text ) "]" .

For example `.customer == "c7" and .cents > 500`, or `not .items[0].name`. Texts are written as in JSON. Pure: texts in,
a tree of small values out, each of which can be asked about a JSON document, and `InvalidFilter` with the place in the
text for whatever is not of this language.

The rules are jq's where jq has them: a path that leads nowhere is null, and everything but false and null is true. Two
are stricter, so that a filter does not match by accident: values of different kinds are never equal (`1` is not
`true`), and only numbers with numbers and texts with texts can be ordered: `.cents > 500` is false without cents.

What always holds: asking raises nothing, whatever the document, unless it is nested too deep for Python; and `str` of a
node parses to an equal node.
"""

import json
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, NoReturn, Protocol

from headrace.errors import HeadraceError

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")

ORDERINGS: Mapping[str, Callable[[Any, Any], bool]] = MappingProxyType(
    {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
)


class Node(Protocol):
    def value(self, document: object) -> object:
        """What it comes to for a document."""
        ...


@dataclass(frozen=True, slots=True)
class Literal:
    constant: bool | int | float | str | None

    def value(self, document: object) -> object:  # noqa: ARG002 - the same for all documents
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
    left: Node
    operator: str
    right: Node

    def value(self, document: object) -> bool:
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
    of: Node

    def value(self, document: object) -> bool:
        return not is_true(self.of.value(document))

    def __str__(self) -> str:
        return f"(not {self.of})"


@dataclass(frozen=True, slots=True)
class _Joined:
    parts: tuple[Node, ...]
    word: ClassVar[str]
    holds: ClassVar[Callable[[Iterable[object]], bool]]

    def value(self, document: object) -> bool:
        return type(self).holds(is_true(part.value(document)) for part in self.parts)

    def __str__(self) -> str:
        return f"({f' {self.word} '.join(map(str, self.parts))})"


class Every(_Joined):
    word, holds = "and", all


class Some(_Joined):
    word, holds = "or", any


def is_true(value: object) -> bool:
    """Whether a value counts as true: all but false and null do."""
    return value is not None and value is not False


def is_number(value: object) -> bool:
    """Whether a value is a number; to Python true and false are numbers too, to JSON they are not."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_same(left: object, right: object) -> bool:
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(is_same, left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(is_same(value, right[key]) for key, value in left.items())
    if is_number(left) and is_number(right):
        return left == right
    return type(left) is type(right) and left == right


MAX_DEPTH = 100  # nested parentheses and nots; far below what would exhaust the stack
_MAX_DIGITS = 1000  # Python refuses to read much longer integers, and nobody means them

_TOKEN = re.compile(
    r"""(?P<space>\s+)
      | (?P<text>"(?:[^"\\]|\\.)*")
      | (?P<number>-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?(?![0-9A-Za-z_]))
      | (?P<name>[A-Za-z_][A-Za-z0-9_-]*)
      | (?P<sign>==|!=|<=|>=|[<>.\[\]()])""",
    re.VERBOSE,
)
_COMPARISONS = frozenset({"==", "!=", "<", "<=", ">", ">="})
_CONSTANTS = {"true": True, "false": False, "null": None}
_HINTS = {
    "=": "write == to compare",
    "&": "write and",
    "|": "write or",
    "!": "write not, or != to compare",
    "'": 'write texts in double quotes: "…"',
    '"': "the text is not closed: a double quote is missing",
    **dict.fromkeys("-0123456789", "this is not a number: write it as in 500, -1 or 2.5"),
}


class InvalidFilter(HeadraceError):
    """A filter that is not of the language; the text points at the place with a caret."""

    def __init__(self, problem: str, expression: str, position: int) -> None:
        line_start = expression.rfind("\n", 0, position) + 1
        line = expression[line_start:].partition("\n")[0].replace("\t", " ")
        super().__init__(f"{problem}\n  {line}\n  {' ' * (position - line_start)}^")
        self.problem = problem
        self.expression = expression
        self.position = position


class _Token(NamedTuple):
    kind: str
    text: str
    position: int


def parse(expression: str) -> Node:
    return _Parser(expression).parse()


def _tokens(expression: str) -> list[_Token]:
    found = []
    position = 0
    while position < len(expression):
        match = _TOKEN.match(expression, position)
        if match is None:
            character = expression[position]
            hint = _HINTS.get(character) or f"{character!r} has no meaning here"
            raise InvalidFilter(hint, expression, position)
        if match.lastgroup != "space":
            found.append(_Token(str(match.lastgroup), match[0], position))
        position = match.end()
    found.append(_Token("end", "", position))
    return found


class _Parser:
    """Recursive descent, one method for each rule of the grammar."""

    def __init__(self, expression: str) -> None:
        self._expression = expression
        self._tokens = _tokens(expression)
        self._index = 0
        self._depth = 0

    def parse(self) -> Node:
        node = self._expression_rule()
        if self._next.kind != "end":
            self._fail("expected and, or, a comparison, or the end")
        return node

    # --- tokens

    @property
    def _next(self) -> _Token:
        return self._tokens[self._index]

    def _advance(self) -> _Token:
        token = self._next
        self._index += 1
        return token

    def _accept(self, *texts: str) -> str | None:
        # A text in quotes may read "and", so what kind of token it is matters too.
        if self._next.kind in ("sign", "name") and self._next.text in texts:
            return self._advance().text
        return None

    def _expect(self, text: str, what: str) -> None:
        if not self._accept(text):
            self._fail(what)

    def _fail(self, problem: str) -> NoReturn:
        raise InvalidFilter(problem, self._expression, self._next.position)

    # --- rules

    def _expression_rule(self) -> Node:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            self._fail(f"more than {MAX_DEPTH} levels of parentheses and nots")
        parts = [self._and_rule()]
        while self._accept("or"):
            parts.append(self._and_rule())
        self._depth -= 1
        return parts[0] if len(parts) == 1 else Some(tuple(parts))

    def _and_rule(self) -> Node:
        parts = [self._not_rule()]
        while self._accept("and"):
            parts.append(self._not_rule())
        return parts[0] if len(parts) == 1 else Every(tuple(parts))

    def _not_rule(self) -> Node:
        if not self._accept("not"):
            return self._comparison_rule()
        self._depth += 1
        if self._depth > MAX_DEPTH:
            self._fail(f"more than {MAX_DEPTH} levels of parentheses and nots")
        node = Not(self._not_rule())
        self._depth -= 1
        return node

    def _comparison_rule(self) -> Node:
        left = self._operand_rule()
        sign = self._accept(*_COMPARISONS)
        if sign is None:
            return left
        right = self._operand_rule()
        if self._next.text in _COMPARISONS and self._next.kind == "sign":
            self._fail("comparisons do not chain: join two with and")
        return Comparison(left, sign, right)

    def _operand_rule(self) -> Node:
        if self._next.kind == "text":
            return Literal(self._text())
        if self._next.kind == "number":
            return Literal(self._number())
        if self._accept("("):
            node = self._expression_rule()
            self._expect(")", "expected a closing parenthesis")
            return node
        if self._accept("."):
            return self._path_rule()
        if self._next.kind == "name" and self._next.text in _CONSTANTS:
            return Literal(_CONSTANTS[self._advance().text])
        if self._next.kind == "name" and self._next.text not in ("and", "or"):
            name = self._next.text
            return self._fail(f'write .{name} for a field of the document, or "{name}" for a text')
        return self._fail(
            'expected a path such as .customer, a text such as "c7", a number, true, false, null or a parenthesis'
        )

    def _path_rule(self) -> Node:
        steps: list[str | int] = []
        start = self._tokens[self._index - 1]
        # `. == 1` means the whole document: a name belongs to the path only if it touches the dot.
        if self._next.kind in ("name", "text") and self._next.position == start.position + 1:
            steps.append(self._step())
        elif self._next.text != "[":
            return Path(())
        while True:
            if self._accept("["):
                steps.append(self._index_step())
            elif self._accept("."):
                if self._next.text != "[":
                    steps.append(self._step())
            else:
                return Path(tuple(steps))

    def _step(self) -> str:
        if self._next.kind == "text":
            return self._text()
        if self._next.kind != "name":
            self._fail("expected the name of a field after the dot")
        return self._advance().text

    def _index_step(self) -> str | int:
        step: str | int
        if self._next.kind == "text":
            step = self._text()
        elif self._next.kind == "number" and re.fullmatch(r"-?[0-9]{1,9}", self._next.text):
            step = int(self._advance().text)
        else:
            self._fail("expected a place in a list such as 0, or the name of a field in quotes")
        self._expect("]", "expected a closing bracket")
        return step

    def _text(self) -> str:
        try:
            text: str = json.loads(self._next.text, strict=False)
        except ValueError:
            self._fail("this text has an escape that JSON does not know")
        self._advance()
        return text

    def _number(self) -> int | float:
        if len(self._next.text) > _MAX_DIGITS:
            self._fail("this number is too long")
        number: int | float = json.loads(self._next.text)
        if number in (float("inf"), float("-inf")):
            self._fail("this number is too large")
        self._advance()
        return number
