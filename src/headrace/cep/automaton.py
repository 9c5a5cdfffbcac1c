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

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import permutations
from typing import Final

from headrace.cep.errors import InvalidPattern
from headrace.cep.expressions import (
    TRUE,
    Expression,
    Fact,
    conjuncts,
    deepest_back,
    is_at_hand,
    is_row_only,
    show,
    walk,
)
from headrace.cep.tree import (
    NEXT,
    Absence,
    Alternation,
    Contiguity,
    Exclusion,
    Greed,
    Link,
    Node,
    PatternTree,
    Permutation,
    Repeat,
    Sequence,
    Skip,
    Variable,
)
from headrace.durations import in_words
from headrace.places import Place

ACCEPT: Final = -1
MOST_STATES: Final = 2_000


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


def compile_tree(tree: PatternTree) -> Automaton:
    return _Compiler(tree).compile()


# --- the tree with every repetition written out, each node knowing its parent


@dataclass(eq=False)
class _Node:
    parent: "_Node | None" = None


@dataclass(eq=False)
class _Leaf(_Node):
    state: int = 0


@dataclass(eq=False)
class _Sequence(_Node):
    items: list[tuple[Link | None, tuple[Absence, ...], _Node]] = field(default_factory=list)
    tail: tuple[Absence, ...] = ()


@dataclass(eq=False)
class _Choice(_Node):
    branches: list[_Node] = field(default_factory=list)


@dataclass(eq=False)
class _Repetition(_Node):
    """The same node `copies` times over; the last one again and again if it `loops`."""

    copies: list[_Node] = field(default_factory=list)
    least: int = 0
    loops: bool = False
    greed: Greed = Greed.EITHER
    link: Link = NEXT
    until: int | None = None


@dataclass(eq=False)
class _Order(_Node):
    """A permutation of variables: a copy of each for each set of others that may have come before it."""

    count: int = 0
    copies: dict[tuple[int, int], _Node] = field(default_factory=dict)
    link: Link = NEXT


@dataclass(frozen=True)
class _Pending:
    """What has gathered since the last taken row, on the way to the next."""

    link: Link = NEXT
    bars: tuple[Bar, ...] = ()
    """Of negations: they hold at the end of the pattern too."""
    guards: tuple[Bar, ...] = ()
    """Of greed and `until`: they end with the pattern."""
    next_bars: tuple[int, ...] = ()
    absences: tuple[tuple[int, int], ...] = ()
    is_start: bool = False


class _Compiler:
    def __init__(self, tree: PatternTree) -> None:
        self._tree = tree
        self._predicates: dict[Expression, int] = {}
        self._tests: dict[Test, int] = {}
        self._leaves: list[tuple[_Leaf, Variable, bool]] = []

    def compile(self) -> Automaton:
        root = self._expand(self._tree.root, None, False)
        # At the start there is no row before: whatever is entered begins at the row at hand.
        starts = [Edge(edge.target, bars=edge.bars) for edge in self._enter(root, _Pending(is_start=True), frozenset())]
        states = tuple(
            State(variable.name, self._test(variable), is_excluded, tuple(self._leave(leaf, _Pending(), frozenset())))
            for leaf, variable, is_excluded in self._leaves
        )
        return Automaton(
            self._tree,
            tuple(self._predicates),
            tuple(self._tests),
            tuple(replace(state, edges=_distinct(state.edges)) for state in states),
            _distinct(starts),
        )

    # --- expanding

    def _expand(self, node: Node, parent: _Node | None, is_excluded: bool) -> _Node:
        if isinstance(node, Variable):
            leaf = _Leaf(parent, len(self._leaves))
            self._leaves.append((leaf, node, is_excluded))
            if len(self._leaves) > MOST_STATES:
                raise InvalidPattern(
                    f"this pattern has more than {MOST_STATES} states, every repetition written out: repeat less often",
                    node.place or self._tree.place,
                )
            return leaf
        if isinstance(node, Exclusion):
            return self._expand(node.body, parent, True)
        if isinstance(node, Sequence):
            return self._expand_sequence(node, parent, is_excluded)
        if isinstance(node, Alternation):
            choice = _Choice(parent)
            choice.branches = [self._expand(branch, choice, is_excluded) for branch in node.branches]
            return choice
        if isinstance(node, Permutation) and not all(isinstance(item, Variable) for item in node.items):
            # As SQL defines it: the order of the items is preferred over any choice within them.
            every = (tuple((node.link, item) for item in items) for items in permutations(node.items))
            return self._expand(Alternation(tuple(map(Sequence, every))), parent, is_excluded)
        if isinstance(node, Permutation):
            orders = _Order(parent, len(node.items), {}, node.link)
            for done in range(1 << len(node.items)):
                for number, item in enumerate(node.items):
                    if not done >> number & 1:
                        orders.copies[done, number] = self._expand(item, orders, is_excluded)
            return orders
        return self._expand_repeat(node, parent, is_excluded)

    def _expand_sequence(self, node: Sequence, parent: _Node | None, is_excluded: bool) -> _Node:
        sequence = _Sequence(parent)
        absences: tuple[Absence, ...] = ()
        for number, (link, item) in enumerate(node.items):
            if isinstance(item, Absence):
                absences = (*absences, item)
                continue
            sequence.items.append((link if number else None, absences, self._expand(item, sequence, is_excluded)))
            absences = ()
        sequence.tail = absences
        return sequence

    def _expand_repeat(self, node: Repeat, parent: _Node | None, is_excluded: bool) -> _Node:
        repetition = _Repetition(parent, [], node.least, node.most is None, node.greed, node.link)
        repetition.until = None if node.until is None else self._test(node.until)
        count = max(node.least, 1) if node.most is None else node.most
        repetition.copies = [self._expand(node.body, repetition, is_excluded) for _ in range(count)]
        return repetition

    # --- what may come next

    def _enter(self, node: _Node, pending: _Pending, seen: frozenset[_Node]) -> list[Edge]:
        if isinstance(node, _Leaf):
            return [self._edge(node.state, pending)]
        if isinstance(node, _Sequence):
            return self._enter_item(node, 0, pending, seen)
        if isinstance(node, _Choice):
            return [edge for branch in node.branches for edge in self._enter(branch, pending, seen)]
        if isinstance(node, _Order):
            return self._enter_order(node, 0, pending, seen)
        assert isinstance(node, _Repetition)
        again = self._enter(node.copies[0], _with_until(pending, node.until), seen)
        return again if node.least else self._choose(node, again, self._leave(node, pending, seen))

    def _enter_item(self, node: _Sequence, number: int, pending: _Pending, seen: frozenset[_Node]) -> list[Edge]:
        if number == len(node.items):
            return self._leave(node, self._with_absences(pending, node.tail), seen)
        link, absences, item = node.items[number]
        pending = self._with_absences(pending, absences)
        return self._enter(item, pending if link is None else replace(pending, link=link), seen)

    def _enter_order(self, node: _Order, done: int, pending: _Pending, seen: frozenset[_Node]) -> list[Edge]:
        open_items = [number for number in range(node.count) if not done >> number & 1]
        return [edge for number in open_items for edge in self._enter(node.copies[done, number], pending, seen)]

    def _leave(self, node: _Node, pending: _Pending, seen: frozenset[_Node]) -> list[Edge]:
        parent = node.parent
        if parent is None:
            return [self._edge(ACCEPT, pending)]
        if isinstance(parent, _Sequence):
            number = next(number for number, (_, _, item) in enumerate(parent.items) if item is node)
            return self._enter_item(parent, number + 1, pending, seen)
        if isinstance(parent, _Order):
            done, number = next(place for place, item in parent.copies.items() if item is node)
            done |= 1 << number
            if done == (1 << parent.count) - 1:
                return self._leave(parent, pending, seen)
            return self._enter_order(parent, done, replace(pending, link=parent.link), seen)
        if isinstance(parent, _Repetition):
            return self._leave_copy(parent, node, pending, seen)
        return self._leave(parent, pending, seen)

    def _leave_copy(self, parent: _Repetition, copy: _Node, pending: _Pending, seen: frozenset[_Node]) -> list[Edge]:
        number = next(number for number, item in enumerate(parent.copies) if item is copy)
        again: list[Edge] = []
        further = _with_until(replace(pending, link=parent.link), parent.until)
        if number + 1 < len(parent.copies):
            again = self._enter(parent.copies[number + 1], further, seen)
        elif parent.loops and copy not in seen:  # a turn that took no row is not followed by another
            again = self._enter(copy, further, seen | {copy})
        if number + 1 < parent.least:
            return again
        return self._choose(parent, again, self._leave(parent, pending, seen))

    def _choose(self, node: _Repetition, again: list[Edge], out: list[Edge]) -> list[Edge]:
        """Going on and leaving, in the order of preference; where all matches count, greed bars one of the two."""
        if self._tree.chooses_one:
            return out + again if node.greed is Greed.RELUCTANT else again + out
        if node.greed is Greed.RELUCTANT:
            if any(edge.is_immediate for edge in out):
                return out
            return [_guarded(edge, self._guards(out, again, None)) for edge in again] + out
        if node.greed is Greed.GREEDY:
            guards = self._guards(again, out, node.until)
            return again + [edge if edge.target == ACCEPT else _guarded(edge, guards) for edge in out]
        return again + out

    def _guards(self, preferred: Iterable[Edge], others: Iterable[Edge], unless: int | None) -> tuple[Bar, ...]:
        """Rows that the preferred edges wait for, which so must not be skipped or taken by the others."""
        shared = {edge.target for edge in others}
        return tuple(
            Bar(self._test(self._leaves[edge.target][1]), unless)
            for edge in preferred
            if edge.target != ACCEPT and edge.target not in shared
        )

    def _with_absences(self, pending: _Pending, absences: tuple[Absence, ...]) -> _Pending:
        for absence in absences:
            if pending.is_start:
                raise InvalidPattern(
                    "a pattern cannot begin with what must not come: put a row in front of it", absence.variable.place
                )
            test = self._test(absence.variable)
            if absence.is_next:
                pending = replace(pending, next_bars=(*pending.next_bars, test))
            elif absence.for_us is not None:
                pending = replace(pending, absences=(*pending.absences, (test, absence.for_us)))
            else:
                pending = replace(pending, bars=(*pending.bars, Bar(test)))
        return pending

    def _edge(self, target: int, pending: _Pending) -> Edge:
        if target == ACCEPT:
            return Edge(ACCEPT, Contiguity.ANY, None, _sorted(pending.bars), pending.next_bars, pending.absences)
        bars = _sorted((*pending.bars, *pending.guards))
        link = pending.link
        return Edge(target, link.contiguity, link.within_us, bars, pending.next_bars, pending.absences)

    def _test(self, variable: Variable) -> int:
        rows, rest = 0, []
        for part in conjuncts(variable.condition):
            if part == TRUE:
                continue
            if is_row_only(part):
                rows |= 1 << self._predicates.setdefault(part, len(self._predicates))
            else:
                rest.append(part)
        test = Test(variable.name, rows, tuple(rest), variable.condition, variable.place)
        return self._tests.setdefault(test, len(self._tests))


def _with_until(pending: _Pending, until: int | None) -> _Pending:
    return pending if until is None else replace(pending, guards=(*pending.guards, Bar(until)))


def _guarded(edge: Edge, guards: tuple[Bar, ...]) -> Edge:
    return replace(edge, bars=_sorted((*edge.bars, *guards)))


def _sorted(bars: tuple[Bar, ...]) -> tuple[Bar, ...]:
    return tuple(sorted(set(bars), key=lambda bar: (bar.test, -1 if bar.unless is None else bar.unless)))


def _distinct(edges: Iterable[Edge]) -> tuple[Edge, ...]:
    """Each edge once; what comes behind an immediate end of equal rank stays, for all matches are wanted."""
    return tuple(dict.fromkeys(edges))


# --- for people to read


def explain(automaton: Automaton) -> str:
    """The automaton in lines: predicates, then each state with what may come next, the preferred first."""
    tree = automaton.tree
    lines = ["one match from each row, the preferred" if tree.chooses_one else "every match"]
    if tree.within_us is not None:
        lines[0] += f", within {in_words(tree.within_us)}"
    if tree.after.skip is not Skip.NONE:
        lines[0] += f"; after a match skip {tree.after.skip.value}" + "".join(
            f" {name}" for name in sorted(tree.after.variables)
        )
    if tree.distinct is not None:
        lines.append(
            f"begins once for each {show(tree.distinct.value)}"
            + (f", again after {in_words(tree.distinct.expires_us)}" if tree.distinct.expires_us is not None else "")
        )
    if automaton.row_predicates:
        lines.append("row predicates")
        lines += [f"  {number}  {show(predicate)}" for number, predicate in enumerate(automaton.row_predicates)]
    lines.append("start")
    lines += [f"  {_show_edge(automaton, edge, True)}" for edge in automaton.starts]
    for number, state in enumerate(automaton.states):
        lines.append(f"{_name(automaton, number)}{' (excluded)' * state.is_excluded}")
        lines += [f"  {_show_edge(automaton, edge, False)}" for edge in state.edges]
    return "\n".join(lines)


def _name(automaton: Automaton, number: int) -> str:
    """A state by its variable; numbered if the variable has several."""
    variable = automaton.states[number].variable
    same = [index for index, state in enumerate(automaton.states) if state.variable == variable]
    return variable if len(same) == 1 else f"{variable}#{same.index(number) + 1}"


def _show_edge(automaton: Automaton, edge: Edge, is_start: bool) -> str:
    parts = []
    if edge.target == ACCEPT:
        parts.append("match" if edge.is_immediate else "match when the time is over" if not edge.next_bars else "match")
    else:
        kind = "" if is_start else f"{edge.contiguity.value} "
        parts.append(
            f"{kind}{_name(automaton, edge.target)} when {_show_test(automaton, automaton.states[edge.target].test)}"
        )
    if edge.within_us is not None:
        parts.append(f"within {in_words(edge.within_us)}")
    parts += [f"next row not {_show_bar(automaton, Bar(test))}" for test in edge.next_bars]
    parts += [f"for {in_words(for_us)} no {_show_bar(automaton, Bar(test))}" for test, for_us in edge.absences]
    parts += [f"no {_show_bar(automaton, bar)} before" for bar in edge.bars]
    return "→ " + ", ".join(parts)


def _show_bar(automaton: Automaton, bar: Bar) -> str:
    shown = f"{automaton.tests[bar.test].variable} ({_show_test(automaton, bar.test)})"
    return shown if bar.unless is None else f"{shown} unless ({_show_test(automaton, bar.unless)})"


def _show_test(automaton: Automaton, number: int) -> str:
    return show(automaton.tests[number].condition)
