"""The pattern tree: what both languages are read into, and what the automaton is compiled from.

A node describes which rows may be taken, in which order. Between one taken row and the next lie rows that are skipped;
how many, and which, is said by the link in front of the node that is entered:

    STRICT         none: the next row, or nothing
    RELAXED        those that do not match what is waited for: the first that matches is taken
    ANY            any: each row that matches is taken in one partial match and skipped in another

What always holds: a node entered without anything before it begins at the row at hand, whatever its link says.
"""

from dataclasses import dataclass, field
from enum import Enum

from headrace.cep.expressions import TRUE, Expression
from headrace.places import Place


class Contiguity(Enum):
    STRICT = "next"
    RELAXED = "followed by"
    ANY = "followed by any"


@dataclass(frozen=True)
class Link:
    """How a node follows what was taken before it; `within_us` bounds the time from that row to the next one taken."""

    contiguity: Contiguity = Contiguity.STRICT
    within_us: int | None = None


NEXT = Link()


@dataclass(frozen=True)
class Variable:
    """One row for which the condition holds."""

    name: str
    condition: Expression = TRUE
    place: Place | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Absence:
    """In a sequence: no row like this.

    With `is_next` the next row is not like this. Else no row is, from the one taken before up to and with the one
    taken after; or, with `for_us`, for so long, and the one taken after comes no sooner. At the end of a pattern it
    holds when the time is over: its own, or that of the whole pattern.
    """

    variable: Variable
    is_next: bool = False
    for_us: int | None = None


@dataclass(frozen=True)
class Sequence:
    """Nodes one after the other; the first one's link is that of the sequence itself."""

    items: tuple[tuple[Link, "Node | Absence"], ...]


@dataclass(frozen=True)
class Alternation:
    """One of several, the preferred first."""

    branches: tuple["Node", ...]


@dataclass(frozen=True)
class Permutation:
    """All of them in any order; `link` is between them. Orders that keep what stands first are preferred."""

    items: tuple["Node", ...]
    link: Link = NEXT
    place: Place | None = field(default=None, compare=False)


class Greed(Enum):
    """What a repetition does when it could go on or be left."""

    EITHER = "either"
    """Both, each in its own partial match; where one match is chosen, the longer is preferred."""
    GREEDY = "greedy"
    RELUCTANT = "reluctant"


@dataclass(frozen=True)
class Repeat:
    """A node `least` to `most` times, None without an upper bound; `link` is between the times.

    A row for which `until` holds ends it: it is neither taken nor skipped on the way to a further time.
    """

    body: "Node"
    least: int
    most: int | None
    greed: Greed = Greed.EITHER
    link: Link = NEXT
    until: Variable | None = None
    place: Place | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Exclusion:
    """Rows that have to be there and are left out of what ALL ROWS PER MATCH shows."""

    body: "Node"


Node = Variable | Sequence | Alternation | Permutation | Repeat | Exclusion


class Skip(Enum):
    """Where the next match may begin, once there is one."""

    NONE = "no skip"
    TO_NEXT = "to next row"
    PAST_LAST = "past last row"
    TO_FIRST = "to first"
    TO_LAST = "to last"
    TO_NONE = "to no row"
    """There is one match a key, and no other."""


@dataclass(frozen=True)
class AfterMatch:
    skip: Skip = Skip.NONE
    variables: frozenset[str] = frozenset()
    """Of `TO_FIRST` and `TO_LAST`; several are those of a SUBSET."""
    place: Place | None = field(default=None, compare=False)


NO_SKIP = AfterMatch()


@dataclass(frozen=True)
class Distinct:
    """A match begins only at a row whose value no match began with before, or not for `expires_us`."""

    value: Expression
    expires_us: int | None = None


@dataclass(frozen=True)
class Measure:
    name: str
    value: Expression
    is_final: bool = True


@dataclass(frozen=True)
class Output:
    """What MATCH_RECOGNIZE makes of a match."""

    measures: tuple[Measure, ...] = ()
    all_rows: bool = False


NO_OUTPUT = Output()


@dataclass(frozen=True)
class PatternTree:
    """A pattern whole: the node, and what holds for all of it."""

    root: Node
    within_us: int | None = None
    after: AfterMatch = NO_SKIP
    chooses_one: bool = False
    """Of all matches that begin at a row only the preferred one counts, as in SQL; else all of them."""
    distinct: Distinct | None = None
    partition: tuple[str, ...] = ()
    order: str | None = None
    output: Output = NO_OUTPUT
    place: Place | None = field(default=None, compare=False)


def variables_of(node: Node | Absence) -> tuple[Variable, ...]:
    """The variables that rows are taken as, in the order of the text."""
    if isinstance(node, Variable):
        return (node,)
    if isinstance(node, Absence):
        return ()
    if isinstance(node, Sequence):
        return tuple(found for _, item in node.items for found in variables_of(item))
    if isinstance(node, Alternation):
        return tuple(found for branch in node.branches for found in variables_of(branch))
    if isinstance(node, Permutation):
        return tuple(found for item in node.items for found in variables_of(item))
    return variables_of(node.body)
