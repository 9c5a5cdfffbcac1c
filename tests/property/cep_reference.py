"""What the matches of a pattern are, by definition: every way through the pattern tree is walked, over all rows.

Slow and without cleverness. It shares with the engines the pattern tree and how a condition is evaluated, and knows
nothing of automata, runs or timers.

A way through the tree takes rows one after the other. What was said since the last taken row (`Since`) decides which
row may be taken next. Ways are walked in the order of preference.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from headrace.cep.evaluation import compile_expression
from headrace.cep.expressions import Expression
from headrace.cep.match import Event, Taken
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
    Skip,
    Variable,
)
from headrace.cep.tree import Sequence as SequenceNode

Rows = tuple[tuple[str, int], ...]
"""Variable and number of each taken row."""


@dataclass(frozen=True)
class Since:
    """What was said since the last taken row."""

    link: Link = NEXT
    bars: tuple[Variable, ...] = ()
    guards: tuple[tuple[Variable, Variable | None], ...] = ()
    next_bars: tuple[Variable, ...] = ()
    absences: tuple[tuple[Variable, int], ...] = ()

    @property
    def wait_us(self) -> int:
        return max((for_us for _, for_us in self.absences), default=0)


@dataclass(frozen=True)
class Found:
    """A match: its rows, and when it is complete (the row or, halfway between rows, the time)."""

    rows: Rows
    step: float
    at_us: int

    @property
    def start(self) -> int:
        return self.rows[0][1]

    @property
    def moment(self) -> tuple[float, int]:
        """When it is emitted: what is complete at the end of all rows is so at once, whatever its time."""
        return self.step, 0 if self.step == math.inf else self.at_us


Then = Callable[[Since, Rows], Iterator[Found]]
WILD = Event({}, 0)
"""A row that is like everything that is waited for, and like nothing that must not come."""


class Reference:
    def __init__(self, tree: PatternTree, events: Sequence[Event]) -> None:
        self.tree = tree
        self.events = list(events)
        self._start = 0
        self._probe: list[Variable | None] | None = None
        self._partial: set[Rows] | None = None
        self._compiled: dict[Expression, Callable[[Taken], object]] = {}

    # --- what matches there are

    def matches(self) -> list[Found]:
        """The matches that count, in the order in which they are emitted."""
        every = [found for start in self._starts() for found in self._from(start)]
        if not self.tree.chooses_one and self.tree.after.skip is Skip.NONE:
            return sorted(every, key=lambda found: (found.moment, found.start))
        chosen: list[Found] = []
        begin = 0.0
        for found in every if self.tree.chooses_one else sorted(every, key=lambda f: (f.start, f.moment)):
            if found.start >= begin:
                chosen.append(found)
                begin = max(begin, self._next_start(found))
        return chosen

    def timed_out(self) -> set[Rows]:
        """Partial matches whose window was over before they were a match."""
        assert self.tree.within_us is not None
        rows = self.events
        partial: set[Rows] = set()
        complete = {found.rows for start in self._starts() for found in self._from(start)}
        for start in self._starts():
            over_us = rows[start].time_us + self.tree.within_us
            self.events = [row for row in rows if row.time_us < over_us]
            self.events.append(WILD)
            WILD.time_us = over_us - 1
            self._partial = set()
            list(self._from(start))
            partial |= self._partial
            self._partial = None
            self.events = rows
        return partial - complete

    def _starts(self) -> list[int]:
        distinct = self.tree.distinct
        if distinct is None:
            return list(range(len(self.events)))
        began: dict[object, int] = {}
        starts = []
        for number, event in enumerate(self.events):
            self._start = number
            if not any(True for _ in self._first_takes()):
                continue
            value = compile_expression(distinct.value)(event)
            before_us = began.get(value)
            if before_us is None or (
                distinct.expires_us is not None and event.time_us - before_us >= distinct.expires_us
            ):
                began[value] = event.time_us
                starts.append(number)
        return starts

    def _first_takes(self) -> Iterator[Found]:
        def stop(_since: Since, taken: Rows) -> Iterator[Found]:
            yield Found(taken, 0, 0)

        return self._ways(self.tree.root, Since(), (), stop, only_first=True)

    def _from(self, start: int) -> list[Found]:
        self._start = start
        found = list(dict.fromkeys(self._ways(self.tree.root, Since(), (), self._accept)))
        return found[:1] if self.tree.chooses_one else found

    def _next_start(self, found: Found) -> float:
        after = self.tree.after
        first, last = found.rows[0][1], found.rows[-1][1]
        mine = [number for name, number in found.rows if name in after.variables]
        if after.skip is Skip.TO_NONE:
            return math.inf
        if after.skip is Skip.PAST_LAST:
            return last + 1
        if after.skip is Skip.TO_FIRST and mine:
            return max(first + 1, mine[0])
        if after.skip is Skip.TO_LAST and mine:
            return max(first + 1, mine[-1])
        return first + 1

    # --- ways through the tree

    def _ways(self, node: Node, since: Since, taken: Rows, then: Then, only_first: bool = False) -> Iterator[Found]:
        if only_first and taken:
            yield Found(taken, 0, 0)
            return
        if isinstance(node, Variable):
            for number in self._candidates(node, since, taken):
                yield from then(Since(), (*taken, (node.name, number)))
        elif isinstance(node, Exclusion):
            yield from self._ways(node.body, since, taken, then, only_first)
        elif isinstance(node, SequenceNode):
            yield from self._items(node.items, 0, since, taken, then, only_first)
        elif isinstance(node, Alternation):
            for branch in node.branches:
                yield from self._ways(branch, since, taken, then, only_first)
        elif isinstance(node, Permutation):
            for items in itertools.permutations(node.items):
                linked = tuple((node.link, item) for item in items)
                yield from self._items(linked, 0, since, taken, then, only_first)
        else:
            yield from self._turns(node, 0, since, taken, then, only_first)

    def _items(
        self,
        items: Sequence[tuple[Link, Node | Absence]],
        at: int,
        since: Since,
        taken: Rows,
        then: Then,
        only_first: bool,
    ) -> Iterator[Found]:
        if at == len(items):
            yield from then(since, taken)
            return
        link, item = items[at]
        if isinstance(item, Absence):
            if item.is_next:
                since = replace(since, next_bars=(*since.next_bars, item.variable))
            elif item.for_us is not None:
                since = replace(since, absences=(*since.absences, (item.variable, item.for_us)))
            else:
                since = replace(since, bars=(*since.bars, item.variable))
            yield from self._items(items, at + 1, since, taken, then, only_first)
            return
        since = replace(since, link=link) if at else since
        yield from self._ways(
            item, since, taken, lambda s, t: self._items(items, at + 1, s, t, then, only_first), only_first
        )

    def _turns(
        self, node: Repeat, count: int, since: Since, taken: Rows, then: Then, only_first: bool
    ) -> Iterator[Found]:
        may_go_on = node.most is None or count < node.most
        may_leave = count >= node.least
        inside = replace(since, link=node.link) if count else since
        if node.until is not None:
            inside = replace(inside, guards=(*inside.guards, (node.until, None)))

        def after_turn(s: Since, t: Rows) -> Iterator[Found]:
            if t == taken and may_leave:
                return  # a turn that took no row leads nowhere that leaving would not
            yield from self._turns(node, count + 1, s, t, then, only_first)

        def go_on(s: Since) -> Iterator[Found]:
            return self._ways(node.body, s, taken, after_turn, only_first)

        outside = since
        if not self.tree.chooses_one and may_go_on and may_leave:
            if node.greed is Greed.GREEDY:
                wanted = self._probed(lambda: go_on(inside))
                outside = replace(
                    since, guards=(*since.guards, *((one, node.until) for one in wanted if one is not None))
                )
            elif node.greed is Greed.RELUCTANT:
                wanted = self._probed(lambda: then(since, taken))
                if None in wanted:
                    may_go_on = False
                inside = replace(inside, guards=(*inside.guards, *((one, None) for one in wanted if one is not None)))
        ways = [go_on(inside)] * may_go_on + [then(outside, taken)] * may_leave
        if self.tree.chooses_one and node.greed is Greed.RELUCTANT:
            ways.reverse()
        for way in ways:
            yield from way

    def _probed(self, walk: Callable[[], Iterator[Found]]) -> list[Variable | None]:
        """The variables that a way waits for next; None if it is at its end."""
        before, self._probe = self._probe, []
        list(walk())
        wanted, self._probe = self._probe, before
        return wanted

    # --- rows

    def _holds(self, variable: Variable, number: int, taken: Rows) -> bool:
        row: Taken | None = None
        for name, one in taken:
            row = Taken(name, self.events[one], row)
        test = self._compiled.setdefault(variable.condition, compile_expression(variable.condition))
        return test(Taken(variable.name, self.events[number], row)) is True

    def _is_barred(self, number: int, since: Since, taken: Rows) -> bool:
        if self.events[number] is WILD:
            return False
        return any(self._holds(bar, number, taken) for bar in since.bars) or any(
            self._holds(guard, number, taken) and not (unless is not None and self._holds(unless, number, taken))
            for guard, unless in since.guards
        )

    def _is_over(self, number: int) -> bool:
        within_us = self.tree.within_us
        return within_us is not None and self.events[number].time_us - self.events[self._start].time_us >= within_us

    def _candidates(self, variable: Variable, since: Since, taken: Rows) -> Iterator[int]:
        """The rows that may be taken next, the earliest first."""
        if self._probe is not None:
            self._probe.append(variable)
            return
        if not taken:
            if self._holds(variable, self._start, taken) and not self._is_barred(self._start, since, taken):
                yield self._start
            return
        last = taken[-1][1]
        if self.events[last] is WILD:
            return
        for number in range(last + 1, len(self.events)):
            gone_us = self.events[number].time_us - self.events[last].time_us
            if self._is_over(number) or (since.link.within_us is not None and gone_us >= since.link.within_us):
                return
            is_wild = self.events[number] is WILD
            if is_wild:
                assert self._partial is not None
                self._partial.add(taken)
                return
            if number == last + 1 and any(self._holds(bar, number, taken) for bar in since.next_bars):
                return
            if any(gone_us < for_us and self._holds(bar, number, taken) for bar, for_us in since.absences):
                return
            if self._is_barred(number, since, taken):
                return
            if gone_us < since.wait_us:
                continue
            is_like = self._holds(variable, number, taken)
            if is_like:
                yield number
            if since.link.contiguity is Contiguity.STRICT or (is_like and since.link.contiguity is Contiguity.RELAXED):
                return

    def _accept(self, since: Since, taken: Rows) -> Iterator[Found]:
        """The end of a way: a match, once nothing can come any more that must not."""
        since = replace(since, guards=())
        waits = bool(since.bars or since.next_bars or since.absences)
        if self._probe is not None:
            self._probe += [] if waits else [None]
            return
        last = taken[-1][1]
        if not waits:
            yield Found(taken, last, self.events[last].time_us)
            return
        last_us, within_us = self.events[last].time_us, self.tree.within_us
        window_us = math.inf if within_us is None else self.events[self._start].time_us + within_us
        over_us = last_us + since.wait_us if since.absences and not since.bars else window_us
        is_too_long = over_us > window_us or over_us < last_us + since.wait_us
        over_us = min(over_us, window_us)
        for number in range(last + 1, len(self.events)):
            gone_us = self.events[number].time_us - last_us
            if self.events[number].time_us >= over_us or self.events[number] is WILD:
                break
            if number == last + 1 and any(self._holds(bar, number, taken) for bar in since.next_bars):
                return
            if any(gone_us < for_us and self._holds(bar, number, taken) for bar, for_us in since.absences):
                return
            if self._is_barred(number, since, taken):
                return
            if not (since.bars or since.absences):
                yield Found(taken, number, self.events[number].time_us)
                return
        if is_too_long:
            if self._partial is not None:
                self._partial.add(taken)
            return
        if over_us == math.inf:
            yield Found(taken, math.inf, last_us)
            return
        before = sum(1 for event in self.events if event is not WILD and event.time_us < over_us)
        yield Found(taken, before - 0.5, int(over_us))
