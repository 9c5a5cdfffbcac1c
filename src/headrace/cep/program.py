"""An automaton made ready for stepping in plain Python: tests as functions of a row, edges as steps.

What always holds: a row predicate is evaluated at most once for a row, and only if some step asks for it; a program
keeps nothing of the rows, so one serves all keys.
"""

from collections.abc import Callable
from dataclasses import dataclass

from headrace.cep.automaton import ACCEPT, Automaton, Edge
from headrace.cep.evaluation import Evaluate, compile_expression
from headrace.cep.match import Event, Taken
from headrace.cep.tree import Contiguity


@dataclass(frozen=True, slots=True)
class Step:
    """An edge as it is walked."""

    choice: int
    target: int
    test: Callable[[Event, Taken | None], bool] | None
    edge: Edge
    is_strict: bool
    is_any: bool
    is_plain: bool
    """Nothing has to be looked at but the target's test."""


class Program:
    """An automaton made ready for stepping: tests compiled, edges as steps. Shared by all keys."""

    def __init__(self, automaton: Automaton) -> None:
        self.automaton = automaton
        tree = automaton.tree
        self.within_us = tree.within_us
        self.after = tree.after
        self.chooses_one = tree.chooses_one
        self.predicates: list[Evaluate] = [compile_expression(one) for one in automaton.row_predicates]
        self.tests = [self._compile_test(number) for number in range(len(automaton.tests))]
        self.back = automaton.back
        self.variables = [state.variable for state in automaton.states]
        self.starts = [self._compile_edge(number, edge) for number, edge in enumerate(automaton.starts)]
        self.steps = [
            [self._compile_edge(number, edge) for number, edge in enumerate(state.edges)] for state in automaton.states
        ]
        # Open at first: all edges that are to be waited for; and whether the state is the end of a match.
        self.open = [tuple(step for step in steps if not step.edge.is_immediate) for steps in self.steps]
        self.ends = [next((step.choice for step in steps if step.edge.is_immediate), None) for steps in self.steps]
        if self.chooses_one:
            self.open = [
                tuple(step for step in steps if end is None or step.choice < end)
                for steps, end in zip(self.open, self.ends, strict=True)
            ]
        self.merges = automaton.merges
        """Runs of one attempt in one state have the same future: the preferred one is enough to choose one match."""
        self.distinct = None if tree.distinct is None else compile_expression(tree.distinct.value)
        self.keeps_numbers = automaton.keeps_numbers
        self.has_deadlines = automaton.has_deadlines

    def may_begin(self, event: Event) -> bool:
        """Whether a match could begin at a row: what most rows of a key without partial matches are asked."""
        for step in self.starts:  # noqa: SIM110 - a generator costs more than the tests
            if step.test is not None and step.test(event, None):
                return True
        return False

    def _compile_edge(self, number: int, edge: Edge) -> Step:
        test = None if edge.target == ACCEPT else self.tests[self.automaton.states[edge.target].test]
        is_plain = edge.target != ACCEPT and not (edge.bars or edge.next_bars or edge.absences)
        strict, free = edge.contiguity is Contiguity.STRICT, edge.contiguity is Contiguity.ANY
        return Step(number, edge.target, test, edge, strict, free, is_plain)

    def _compile_test(self, number: int) -> Callable[[Event, Taken | None], bool]:
        test = self.automaton.tests[number]
        need, variable, predicates = test.rows, test.variable, self.predicates
        bits = [bit for bit in range(len(predicates)) if need >> bit & 1]
        rest = [compile_expression(one) for one in test.rest]
        if not rest and len(bits) == 1:
            only, run = need, predicates[bits[0]]

            def pass_one(event: Event, last: Taken | None) -> bool:  # noqa: ARG001 - it looks at one row
                if not event.known & only:
                    event.known |= only
                    if run(event) is True:
                        event.mask |= only
                return event.mask & only != 0

            return pass_one

        def pass_all(event: Event, last: Taken | None) -> bool:
            for bit in bits:
                flag = 1 << bit
                if not event.known & flag:
                    event.known |= flag
                    if predicates[bit](event) is True:
                        event.mask |= flag
                if not event.mask & flag:
                    return False
            if rest:
                # The row counts as one of its variable while it is tested.
                row = Taken(variable, event, last)
                return all(one(row) is True for one in rest)
            return True

        return pass_all
