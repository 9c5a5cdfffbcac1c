"""A finite automaton over topic names: built from a syntax tree by Thompson's construction, and run as a deterministic
one whose states are made as they are needed.
"""

from dataclasses import dataclass
from string import ascii_letters, digits

from headrace.errors import HeadraceError

ALPHABET = frozenset(ascii_letters + digits + "._-")

_MOST_STATES = 10_000
_MOST_KNOWN_SETS = 2_000


class TooLarge(HeadraceError):
    """The automaton would have more states than are allowed."""


@dataclass(frozen=True, slots=True)
class Node:
    """A part of a regular expression: exactly one of its fields says what it is."""

    characters: frozenset[str] | None = None
    parts: tuple["Node", ...] | None = None
    branches: tuple["Node", ...] | None = None
    body: "Node | None" = None
    least: int = 0
    most: int | None = None
    edge: str = ""

    @classmethod
    def one_of(cls, characters: frozenset[str]) -> "Node":
        """One character of these."""
        return cls(characters=characters)

    @classmethod
    def sequence(cls, parts: list["Node"]) -> "Node":
        """One after another."""
        return cls(parts=tuple(parts))

    @classmethod
    def either(cls, branches: list["Node"]) -> "Node":
        """One of them."""
        return cls(branches=tuple(branches))

    def repeated(self, least: int, most: int | None) -> "Node":
        """Itself, some times over."""
        return Node(body=self, least=least, most=most)


START = Node(edge="start")
END = Node(edge="end")

_ACCEPT = 0


class Automaton:
    """What a syntax tree accepts."""

    def __init__(self, tree: Node) -> None:
        # By state: what it reads (None for a state that only leads on), at which edge of the name it may be passed, and
        # where it leads.
        self._reads: list[frozenset[str] | None] = [None]
        self._edges: list[str] = [""]
        self._leads: list[tuple[int, ...]] = [()]
        self._first = self._closure({self._build(tree, _ACCEPT)}, "start")
        self._empty = self._closure(set(self._first), "end")
        self._after: dict[frozenset[int], dict[str, frozenset[int]]] = {}
        self._accepting: dict[frozenset[int], bool] = {}

    def accepts(self, name: str) -> bool:
        """Whether the automaton, after the whole name, is where it should be."""
        if not name:
            return _ACCEPT in self._empty
        states = self._first
        for character in name:
            known = self._after.get(states)
            if known is None:
                if len(self._after) >= _MOST_KNOWN_SETS:
                    self._after.clear()
                known = self._after[states] = {}
            following = known.get(character)
            if following is None:
                following = known[character] = self._step(states, character)
            states = following
        if states not in self._accepting:
            if len(self._accepting) >= _MOST_KNOWN_SETS:
                self._accepting.clear()
            self._accepting[states] = _ACCEPT in self._closure(set(states), "end")
        return self._accepting[states]

    def _step(self, states: frozenset[int], character: str) -> frozenset[int]:
        reached: set[int] = set()
        for state in states:
            reads = self._reads[state]
            if reads is not None and character in reads:
                reached.update(self._leads[state])
        return self._closure(reached, "")

    def _closure(self, states: set[int], edge: str) -> frozenset[int]:
        """These states and all that can be reached without reading, at this edge of the name or inside it."""
        waiting = list(states)
        while waiting:
            state = waiting.pop()
            if self._reads[state] is None and self._edges[state] in ("", edge):
                fresh = [following for following in self._leads[state] if following not in states]
                states.update(fresh)
                waiting += fresh
        return frozenset(states)

    def _state(self, *leads: int, reads: frozenset[str] | None = None, edge: str = "") -> int:
        if len(self._leads) >= _MOST_STATES:
            raise TooLarge
        self._reads.append(reads)
        self._edges.append(edge)
        self._leads.append(leads)
        return len(self._leads) - 1

    def _build(self, node: Node, following: int) -> int:
        """The state from which the node leads to the following state."""
        if node.characters is not None:
            return self._state(following, reads=node.characters)
        if node.parts is not None:
            for part in reversed(node.parts):
                following = self._build(part, following)
            return following
        if node.branches is not None:
            return self._state(*(self._build(branch, following) for branch in node.branches))
        if node.body is not None:
            return self._build_repeated(node.body, node.least, node.most, following)
        return self._state(following, edge=node.edge)

    def _build_repeated(self, body: Node, least: int, most: int | None, following: int) -> int:
        if most is None:
            loop = self._state()
            self._leads[loop] = (self._build(body, loop), following)
            entry = loop
        else:
            entry = following
            for _ in range(most - least):
                entry = self._state(self._build(body, entry), following)
        for _ in range(least):
            entry = self._build(body, entry)
        return entry
