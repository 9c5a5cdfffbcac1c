"""The way from a pattern tree to its automaton.

Every repetition is written out, and each place at which a row is taken becomes a state. Then each state is left in all
ways that lead to another one, or to the end; what lies on the way (links, negations, greed, `until`) gathers and
becomes the edge.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import permutations
from typing import Final

from headrace.cep.automaton import ACCEPT, Automaton, Bar, Edge, State, Test
from headrace.cep.errors import InvalidPattern
from headrace.cep.expressions import (
    TRUE,
    Expression,
    conjuncts,
    is_row_only,
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
    Variable,
)

MOST_STATES: Final = 2_000
_MOST_WAYS: Final = 300_000
"""From one row to the next, through parts that need not be there: they multiply where such parts lie in each other."""


def compile_tree(tree: PatternTree) -> Automaton:
    try:
        return _Compiler(tree).compile()
    except RecursionError:
        raise InvalidPattern(
            "this pattern has too many parts behind each other that need not be there, every repetition written out: "
            "repeat less often",
            tree.place,
        ) from None


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
        self._left: dict[tuple[_Node, _Pending, frozenset[_Node]], list[Edge]] = {}
        self._ways = 0

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
            return list(_distinct(edge for branch in node.branches for edge in self._enter(branch, pending, seen)))
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
        """The edges behind a part, each once: ways that come together are walked on once."""
        place = node, pending, seen
        if (known := self._left.get(place)) is None:
            known = self._left[place] = list(_distinct(self._leave_for(node, pending, seen)))
            self._ways += 1 + len(known)
            if self._ways > _MOST_WAYS:
                raise InvalidPattern(
                    "this pattern has too many ways from one row to the next: put fewer repetitions and parts that "
                    "need not be there into each other",
                    self._tree.place,
                )
        return known

    def _leave_for(self, node: _Node, pending: _Pending, seen: frozenset[_Node]) -> list[Edge]:
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
