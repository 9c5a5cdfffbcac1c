"""An automaton as the arrays that the loops step over."""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from headrace.cep.automaton import ACCEPT, Automaton, Edge
from headrace.cep.loops import layout
from headrace.cep.loops.layout import NEVER, Shape
from headrace.cep.partial import Cap
from headrace.cep.tree import Contiguity, Skip

_CONTIGUITIES: Final = {
    Contiguity.STRICT: layout.STRICT,
    Contiguity.RELAXED: layout.RELAXED,
    Contiguity.ANY: layout.ANY,
}
_SKIPS: Final = {
    Skip.NONE: layout.SKIP_NONE,
    Skip.TO_NEXT: layout.SKIP_NEXT,
    Skip.PAST_LAST: layout.SKIP_PAST,
    Skip.TO_FIRST: layout.SKIP_FIRST,
    Skip.TO_LAST: layout.SKIP_LAST,
    Skip.TO_NONE: layout.SKIP_ALL,
}
_AT_CAP: Final = {"drop_oldest": layout.DROP_OLDEST, "drop_newest": layout.DROP_NEWEST, "fail": layout.FAIL}


def shape_of(
    automaton: Automaton, tests: Sequence[tuple[int, int, int, int]], numbers: Mapping[str, int], cap: Cap
) -> Shape:
    """The arrays; `tests` are its tests by their columns, `numbers` its variables by their names."""
    tree = automaton.tree
    states = np.zeros((len(automaton.states) + 1, layout.S_WIDTH), np.int64)
    edges: list[list[int]] = []
    bars: list[list[int]] = []
    nexts: list[list[int]] = []
    absences: list[list[int]] = []

    def add(edge: Edge) -> None:
        begins = len(bars), len(nexts), len(absences)
        bars.extend([bar.test, -1 if bar.unless is None else bar.unless] for bar in edge.bars)
        nexts.extend([test] for test in edge.next_bars)
        absences.extend([test, for_us] for test, for_us in edge.absences)
        is_plain = edge.target != ACCEPT and not (edge.bars or edge.next_bars or edge.absences)
        edges.append(
            [
                edge.target,
                _CONTIGUITIES[edge.contiguity],
                NEVER if edge.within_us is None else edge.within_us,
                edge.wait_us,
                *(begins[0], len(bars)),
                *(begins[1], len(nexts)),
                *(begins[2], len(absences)),
                int(is_plain),
            ]
        )

    for number, state in enumerate(automaton.states):
        ends = [choice for choice, edge in enumerate(state.edges) if edge.is_immediate]
        mask, code, code_end, _ = tests[state.test]
        begin = len(edges)
        for edge in state.edges:
            add(edge)
        states[number] = (
            mask, begin, len(edges), ends[0] if ends else -1, numbers[state.variable], state.test,
            int(code < code_end), int(state.is_excluded),
        )  # fmt: skip
    begin = len(edges)
    for edge in automaton.starts:
        add(edge)
    states[-1] = 0, begin, len(edges), -1, -1, 0, 0, 0
    settings = np.zeros(layout.O_WIDTH, np.int64)
    settings[layout.O_WITHIN] = NEVER if tree.within_us is None else tree.within_us
    settings[layout.O_SKIP] = _SKIPS[tree.after.skip]
    settings[layout.O_CHOOSES_ONE] = int(tree.chooses_one)
    settings[layout.O_CAP] = cap.most
    settings[layout.O_AT_CAP] = _AT_CAP[cap.choice]
    settings[layout.O_MERGES] = int(automaton.merges)
    expires_us = None if tree.distinct is None else tree.distinct.expires_us
    settings[layout.O_EXPIRES] = NEVER if expires_us is None else expires_us
    return Shape(
        states,
        _table(edges, layout.E_WIDTH),
        np.array(tests, np.int64).reshape(len(tests), layout.T_WIDTH),
        _table(bars, 2),
        _table(nexts, 1),
        _table(absences, 2),
        np.array([name in tree.after.variables for name in numbers], np.bool_),
        settings,
    )


def _table(rows: list[list[int]], width: int) -> NDArray[np.int64]:
    return np.array(rows, np.int64).reshape(len(rows), width)
