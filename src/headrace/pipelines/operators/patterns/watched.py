"""A pattern as the operator steps it, and what of it decides how its state is kept."""

from dataclasses import dataclass

from headrace.cep.automaton import ACCEPT, Automaton
from headrace.cep.columnar import ColumnarProgram
from headrace.cep.tree import Contiguity, Skip
from headrace.pipelines.operators.patterns.packing import Layout
from headrace.pipelines.operators.patterns.shapes import UNNAMED, Named


@dataclass(frozen=True)
class Watched:
    """One pattern as it is stepped; `number` is what its state is known by."""

    number: int
    program: ColumnarProgram
    called: Named = UNNAMED
    mask: str = ""
    """The column with the row predicates as bits; without one, they are evaluated here."""
    facts: tuple[str, ...] = ()

    @property
    def within_us(self) -> int | None:
        return self.program.automaton.tree.within_us

    @property
    def layout(self) -> Layout:
        return Layout(self.program.tables)

    @property
    def is_decided_by_time(self) -> bool:
        """Whether a match may be complete, or a value forgotten, because time passes."""
        automaton = self.program.automaton
        ends = (edge for state in automaton.states for edge in state.edges if edge.target == ACCEPT)
        return automaton.tree.distinct is not None or any(not edge.is_immediate for edge in ends)

    @property
    def lets_matches_wait(self) -> bool:
        """Whether a match may have to wait until earlier attempts are decided."""
        tree = self.program.automaton.tree
        return (tree.chooses_one or tree.after.skip is not Skip.NONE) and not has_one_length(self.program.automaton)

    @property
    def keeps_keys(self) -> bool:
        """Whether something is known of a key for ever: how many matches it had, that it had one, its last rows."""
        program = self.program
        once = program.automaton.tree.after.skip is Skip.TO_NONE
        return once or program.keeps_numbers or program.automaton.back > 0 or self.within_us is None


def has_one_length(automaton: Automaton) -> bool:
    """Whether every match is so many rows that follow each other: then the earlier is always decided first."""
    states = automaton.states
    reached = {edge.target for edge in automaton.starts}
    for _ in range(len(states)):
        edges = [edge for state in reached for edge in states[state].edges]
        ends = {any(edge.target == ACCEPT for edge in states[state].edges) for state in reached}
        if len(ends) > 1 or any(edge.contiguity is not Contiguity.STRICT for edge in edges if edge.target != ACCEPT):
            return False
        if ends == {True}:
            return all(edge.is_immediate for edge in edges)
        reached = {edge.target for edge in edges}
    return False
