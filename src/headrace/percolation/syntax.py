"""A query as it is written: what `language.py` reads, `show` writes, and `reading.py` gives a meaning.

What always holds: `parse(show(node)) == node` for every node that was parsed; places do not count when nodes are
compared.
"""

import re
from dataclasses import dataclass, field
from typing import Final

from headrace.percolation.tree import Wild
from headrace.places import Place

_NOWHERE: Final = Place("", 0, 0)


@dataclass(frozen=True, slots=True)
class Written:
    """What every node has: where it stands."""

    place: Place = field(default=_NOWHERE, compare=False, kw_only=True)


# --- what is asked


@dataclass(frozen=True, slots=True)
class Word(Written):
    """`fast`"""

    text: str


@dataclass(frozen=True, slots=True)
class Approximate(Written):
    """`fast~`, `fast~1`, and `fast~1,2` whose first two letters stand; without a number, as many edits as its length
    bears.
    """

    text: str
    edits: int | None = None
    prefix_length: int = 0


@dataclass(frozen=True, slots=True)
class Pattern(Written):
    """`fa*t`; never a single `*`, and no two neighbours that are both text."""

    parts: tuple[str | Wild, ...]


@dataclass(frozen=True, slots=True)
class Quoted(Written):
    """`"fast car"~2`"""

    text: str
    slop: int = 0


@dataclass(frozen=True, slots=True)
class Expression(Written):
    """`/fas?t/`"""

    pattern: str


@dataclass(frozen=True, slots=True)
class Interval(Written):
    """`[100 TO 500}`, `>=100`; None is `*`."""

    low: str | None
    high: str | None
    includes_low: bool = True
    includes_high: bool = True


@dataclass(frozen=True, slots=True)
class Function(Written):
    """`within(52.5, 13.4, 10km)`, of a field."""

    name: str
    arguments: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Inside(Written):
    """`nested(name:wheel AND price:>100)`, of a field: one object there for which it holds."""

    node: "Node"


@dataclass(frozen=True, slots=True)
class Present(Written):
    """`*`, of a field: any value."""


@dataclass(frozen=True, slots=True)
class Everything(Written):
    """`*:*`, or `*` without a field."""


# --- what holds it together


@dataclass(frozen=True, slots=True)
class InField(Written):
    """`title:fast`, `title:(fast car)`."""

    field: str
    node: "Node"


@dataclass(frozen=True, slots=True)
class Minimum:
    """`@2` or `@75%`: how many of the words in front have to be there."""

    count: int
    is_percent: bool = False


@dataclass(frozen=True, slots=True)
class Clauses(Written):
    """`a +b -c`: side by side, without a word between them."""

    items: tuple["Node", ...]
    minimum: Minimum | None = None


@dataclass(frozen=True, slots=True)
class And(Written):
    items: tuple["Node", ...]


@dataclass(frozen=True, slots=True)
class Or(Written):
    items: tuple["Node", ...]
    minimum: Minimum | None = None


@dataclass(frozen=True, slots=True)
class Required(Written):
    """`+a`, side by side with others."""

    node: "Node"


@dataclass(frozen=True, slots=True)
class Not(Written):
    """`NOT a`, `-a`, `!a`."""

    node: "Node"


@dataclass(frozen=True, slots=True)
class Boosted(Written):
    """`a^2`"""

    node: "Node"
    factor: float


@dataclass(frozen=True, slots=True)
class Constant(Written):
    """`a^=2`"""

    node: "Node"
    score: float


Node = (
    Word
    | Approximate
    | Pattern
    | Quoted
    | Expression
    | Interval
    | Function
    | Inside
    | Present
    | Everything
    | InField
    | Clauses
    | And
    | Or
    | Required
    | Not
    | Boosted
    | Constant
)

OPERATORS: Final = ("AND", "OR", "NOT")
_SPECIAL: Final = frozenset('()[]{}"^~:\\*?')
_SPECIAL_IN_FRONT: Final = ("+", "-", "!", "<", ">", "&", "|", "/")
_PLAIN_BOUND: Final = re.compile(r"[\w.:+-]+")


def escape(text: str) -> str:
    """A text written so that it is read as this one word."""
    front = "\\" if text in OPERATORS or text[:1] in _SPECIAL_IN_FRONT else ""
    return front + "".join(f"\\{each}" if each in _SPECIAL or each.isspace() else each for each in text)


def show(node: Node) -> str:
    """The query in its one canonical way of writing."""
    match node:
        case Word():
            return escape(node.text)
        case Approximate():
            edits = "" if node.edits is None else str(node.edits)
            return f"{escape(node.text)}~{edits}" + (f",{node.prefix_length}" if node.prefix_length else "")
        case Pattern():
            return "".join(part.value if isinstance(part, Wild) else escape(part) for part in node.parts)
        case Quoted():
            return quote(node.text) + (f"~{node.slop}" if node.slop else "")
        case Expression():
            return "/" + node.pattern.replace("/", "\\/") + "/"
        case Interval():
            return f"{'{['[node.includes_low]}{_bound(node.low)} TO {_bound(node.high)}{'}]'[node.includes_high]}"
        case Function():
            return f"{node.name}({', '.join(node.arguments)})"
        case Inside():
            return f"nested({show(node.node)})"
        case Present():
            return "*"
        case Everything():
            return "*:*"
        case InField():
            return f"{escape(node.field)}:{_operand(node.node, in_field=True)}"
        case Clauses():
            return _grouped(" ".join(_operand(item, signs=True) for item in node.items), node.minimum)
        case And():
            return " AND ".join(_operand(item, signs=True) for item in node.items)
        case Or():
            return _grouped(" OR ".join(_operand(item, signs=True) for item in node.items), node.minimum)
        case Required():
            return f"+{_operand(node.node, signs=True)}"
        case Not():
            return f"-{_operand(node.node, signs=True)}"
        case Boosted():
            return f"{_operand(node.node, boosts=False)}^{_number(node.factor)}"
        case Constant():
            return f"{_operand(node.node, boosts=False)}^={_number(node.score)}"


def quote(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _bound(text: str | None) -> str:
    if text is None:
        return "*"
    return text if _PLAIN_BOUND.fullmatch(text) and text != "TO" else quote(text)


def _operand(node: Node, *, signs: bool = False, boosts: bool = True, in_field: bool = False) -> str:
    """The node where one word could stand, in parentheses if it is more than that."""
    loose = isinstance(node, And) or (isinstance(node, Clauses | Or) and node.minimum is None)
    loose = loose or (isinstance(node, Required | Not) and not signs)
    loose = loose or (isinstance(node, Boosted | Constant) and (in_field or not boosts))
    loose = loose or (in_field and isinstance(node, InField | Everything))
    return f"({show(node)})" if loose else show(node)


def _grouped(text: str, minimum: Minimum | None) -> str:
    return text if minimum is None else f"({text})@{minimum.count}{'%' * minimum.is_percent}"


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)
