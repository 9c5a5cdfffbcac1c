"""The automaton that a pattern tree compiles into: one for both languages.

A state is a position of the pattern at which a row was taken last. Its edges, in order of preference, say what may be
taken next, and what may lie between: how rows are skipped, which rows end it (bars), how long it may take. So a partial
match is a state, the set of edges that are still open, and the rows that it took; it changes only by taking a row, or
by losing edges. There are no empty moves: repetitions, options, groups and negations are all folded into edges.

What always holds:

- A test is true for a row if all its row predicates are (bits of the row's mask) and all the rest is, which looks at
  earlier rows of the match. Row predicates are numbered once for the whole automaton.
- Edges of a state are in order of preference, and no two are equal.
- An edge to `ACCEPT` that has nothing to wait for is taken as soon as its state is reached.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from headrace.cep.expressions import (
    Expression,
    Fact,
    deepest_back,
    is_at_hand,
    walk,
)
from headrace.cep.tree import (
    Contiguity,
    PatternTree,
)
from headrace.places import Place

ACCEPT: Final = -1


@dataclass(frozen=True)
class Test:
    """Whether a row may be taken as a variable (or is one that must not come)."""

    __test__ = False  # nothing for pytest

    variable: str
    rows: int
    """Row predicates that have to hold, as bits."""
    rest: tuple[Expression, ...]
    condition: Expression
    place: Place | None = field(default=None, compare=False)


@dataclass(frozen=True, order=True)
class Bar:
    """A row for which `test` holds, and `unless` does not, closes the edge."""

    test: int
    unless: int | None = None


@dataclass(frozen=True)
class Edge:
    """What may be taken next. Times count from the row that was taken last."""

    target: int
    contiguity: Contiguity = Contiguity.STRICT
    within_us: int | None = None
    """The row that is taken comes sooner than this."""
    bars: tuple[Bar, ...] = ()
    """None of the rows up to and with the taken one may be like these."""
    next_bars: tuple[int, ...] = ()
    """Tests that the very next row must not pass."""
    absences: tuple[tuple[int, int], ...] = ()
    """Tests that no row passes for so long; nothing is taken sooner, and rows until then are passed over."""

    @property
    def is_immediate(self) -> bool:
        """An end that has nothing to wait for."""
        return self.target == ACCEPT and not (self.bars or self.next_bars or self.absences)

    @property
    def wait_us(self) -> int:
        """How long absences take."""
        return max((for_us for _, for_us in self.absences), default=0)


@dataclass(frozen=True)
class State:
    """A position of the pattern: a row was taken as `variable`."""

    variable: str
    test: int
    is_excluded: bool
    edges: tuple[Edge, ...]


@dataclass(frozen=True)
class Automaton:
    tree: PatternTree
    row_predicates: tuple[Expression, ...]
    """What looks at one row only: bit i of a row's mask says whether predicate i is true for it."""
    tests: tuple[Test, ...]
    states: tuple[State, ...]
    starts: tuple[Edge, ...]

    @property
    def is_row_only(self) -> bool:
        """Whether nothing looks at earlier rows: masks are all that a matcher needs."""
        return not any(test.rest for test in self.tests)

    @property
    def merges(self) -> bool:
        """Whether no condition looks at what a partial match took: those that began alike and are in one state have
        the same future."""
        return all(is_at_hand(rest, test.variable) for test in self.tests for rest in test.rest)

    @property
    def back(self) -> int:
        """How many rows before a taken one are looked at."""
        measured = [measure.value for measure in self.tree.output.measures]
        return max(map(deepest_back, [*(rest for test in self.tests for rest in test.rest), *measured]), default=0)

    @property
    def has_deadlines(self) -> bool:
        """Whether something in it is bounded by time, so that rows need one."""
        return self.tree.within_us is not None or any(
            edge.absences or edge.within_us is not None for _, edge in self.edges()
        )

    @property
    def keeps_numbers(self) -> bool:
        """Whether the matches of a key are counted."""
        measured = (part for measure in self.tree.output.measures for part in walk(measure.value))
        return any(isinstance(part, Fact) and part.name == "MATCH_NUMBER" for part in measured)

    @property
    def variables(self) -> tuple[str, ...]:
        """The variables that rows are taken as, in the order of the pattern."""
        return tuple(dict.fromkeys(state.variable for state in self.states))

    def edges(self) -> Iterator[tuple[int | None, Edge]]:
        """Every edge with the state that it leaves; None: the start."""
        yield from ((None, edge) for edge in self.starts)
        for number, state in enumerate(self.states):
            yield from ((number, edge) for edge in state.edges)
