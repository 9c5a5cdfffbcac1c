"""Patterns in Python as they were written, part by part, and the tree that they are read into."""

from dataclasses import dataclass

from headrace.cep.errors import InvalidPattern
from headrace.cep.expressions import TRUE
from headrace.cep.reading import Scope, read_expression
from headrace.cep.tree import (
    NEXT,
    NO_SKIP,
    Absence,
    AfterMatch,
    Alternation,
    Contiguity,
    Distinct,
    Exclusion,
    Greed,
    Link,
    Node,
    PatternTree,
    Permutation,
    Repeat,
    Sequence,
    Variable,
)
from headrace.errors import nearest
from headrace.places import Place, whole


@dataclass(frozen=True)
class Row:
    """One row: a variable and its condition, as they were written."""

    name: str
    condition: str | None


@dataclass(frozen=True)
class Either:
    branches: tuple["Written", ...]


@dataclass(frozen=True)
class Order:
    items: tuple["Written", ...]
    link: Link


@dataclass(frozen=True)
class Part:
    """A part of a pattern with how it follows, and how often."""

    what: "Row | Written | Either | Order"
    link: Link = NEXT
    is_absence: bool = False
    is_next: bool = False
    for_us: int | None = None
    least: int = 1
    most: int | None = 1
    is_optional: bool = False
    greed: Greed = Greed.EITHER
    turns: Contiguity = Contiguity.RELAXED
    until: str | None = None
    is_excluded: bool = False

    @property
    def is_repeated(self) -> bool:
        return (self.least, self.most) != (1, 1)


@dataclass(frozen=True)
class Written:
    """A pattern as its author wrote it: conditions are texts, and names are not looked up yet."""

    parts: tuple[Part, ...] = ()
    within_us: int | None = None
    after: AfterMatch = NO_SKIP
    distinct: tuple[str, int | None] | None = None
    sql: PatternTree | None = None

    @property
    def is_group(self) -> bool:
        """Nothing was said that is of a whole pattern only."""
        return self.within_us is None and self.after == NO_SKIP and self.distinct is None


def tree_of(written: Written) -> PatternTree:
    """The tree: names are known now, so conditions are read."""
    return _TreeBuilder(written).build()


class _TreeBuilder:
    """From what was written to the tree: names are known now, so conditions are read."""

    def __init__(self, written: Written) -> None:
        self._written = written
        self._conditions: dict[str, str | None] = {}
        self._gather(written)
        self._scope = {name.lower(): frozenset({name}) for name in self._conditions}

    def build(self) -> PatternTree:
        written = self._written
        for variable in sorted(written.after.variables):
            if variable not in self._conditions:
                raise InvalidPattern(
                    f"a match skips to the variable {variable!r}, which the pattern does not have: "
                    f"{nearest(variable, self._conditions)}",
                    written.after.place,
                )
        distinct = None
        if written.distinct is not None:
            text, expires_us = written.distinct
            distinct = Distinct(read_expression(text, Scope()), expires_us)
        return PatternTree(self._group(written), written.within_us, written.after, False, distinct)

    def _gather(self, written: Written) -> None:
        for part in written.parts:
            what = part.what
            if isinstance(what, Row):
                if part.is_absence:
                    continue
                if self._conditions.setdefault(what.name, what.condition) != what.condition:
                    raise InvalidPattern(
                        f"the variable {what.name!r} has two conditions: give one another name", place_of(part)
                    )
            else:
                inner = (
                    (what,) if isinstance(what, Written) else what.branches if isinstance(what, Either) else what.items
                )
                for one in inner:
                    self._gather(one)

    def _group(self, written: Written) -> Node:
        items: list[tuple[Link, Node | Absence]] = [(part.link, self._part(part)) for part in written.parts]
        if len(items) == 1 and not isinstance(items[0][1], Absence):
            return items[0][1]
        return Sequence(tuple(items))

    def _part(self, part: Part) -> Node | Absence:
        what = part.what
        if part.is_absence:
            assert isinstance(what, Row)
            return Absence(
                self._variable(what, f"{'not_next' if part.is_next else 'not_followed_by'}({what.name})"),
                part.is_next,
                part.for_us,
            )
        node: Node
        if isinstance(what, Row):
            node = self._variable(what, what.name)
        elif isinstance(what, Written):
            node = self._group(what)
        elif isinstance(what, Either):
            node = Alternation(tuple(self._group(one) for one in what.branches))
        else:
            node = Permutation(tuple(self._group(one) for one in what.items), what.link)
        if part.is_repeated:
            until = None if part.until is None else self._variable(Row("until", part.until), "until")
            least = 0 if part.is_optional and part.least == 1 else part.least
            node = Repeat(node, least, part.most, part.greed, Link(part.turns), until, place_of(part))
        if part.is_optional and (not part.is_repeated or part.least > 1):
            node = Repeat(node, 0, 1, part.greed, place=place_of(part))
        return Exclusion(node) if part.is_excluded else node

    def _variable(self, row: Row, shown: str) -> Variable:
        if row.condition is None:
            return Variable(row.name, TRUE, whole(shown))
        scope = Scope({**self._scope, row.name.lower(): frozenset({row.name})}, row.name)
        return Variable(row.name, read_expression(row.condition, scope), whole(row.condition))


def place_of(part: Part) -> Place | None:
    return whole(part.what.condition or part.what.name) if isinstance(part.what, Row) else None
