"""Patterns over columns: rows of many keys as arrays in, matches as arrays out, partial matches kept as arrays.

Whoever calls it has evaluated the row predicates (`Automaton.row_predicates`) into a mask of bits for each row, has put
the rows of each key in their order, and has numbered all rows so that numbers rise with that order. It gets back which
rows, by number, make up which match as which variable. What is kept between calls is a `Kept`: five arrays, a few
columns each, of the keys of the call only.

It serves automata whose conditions look at one row at a time, without every-distinct; `ColumnarProgram` refuses others.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from headrace.cep import loops
from headrace.cep.automaton import ACCEPT, Automaton, Edge
from headrace.cep.errors import CepError, TooManyPartialMatches
from headrace.cep.loops import Longs
from headrace.cep.stepping import Cap
from headrace.cep.tree import Contiguity, Skip

_MOST_BITS: Final = 62
_CONTIGUITIES: Final = {
    Contiguity.STRICT: loops.STRICT,
    Contiguity.RELAXED: loops.RELAXED,
    Contiguity.ANY: loops.ANY,
}
_SKIPS: Final = {
    Skip.NONE: loops.SKIP_NONE,
    Skip.TO_NEXT: loops.SKIP_NEXT,
    Skip.PAST_LAST: loops.SKIP_PAST,
    Skip.TO_FIRST: loops.SKIP_FIRST,
    Skip.TO_LAST: loops.SKIP_LAST,
    Skip.TO_NONE: loops.SKIP_ALL,
}
_AT_CAP: Final = {"drop_oldest": loops.DROP_OLDEST, "drop_newest": loops.DROP_NEWEST, "fail": loops.FAIL}


class NotColumnar(CepError):
    """An automaton that cannot be stepped over columns."""


@dataclass(frozen=True)
class Kept:
    """The partial matches of some keys; `…_ends[key]` is where those of a key end."""

    runs: Longs
    run_ends: Longs
    waiting: Longs
    waiting_ends: Longs
    froms: Longs
    """Rows with a smaller number begin nothing."""
    nodes: Longs

    @staticmethod
    def nothing(keys: int) -> "Kept":
        """What is kept of keys that were never seen."""
        ends = np.zeros(keys, np.int64)
        return Kept(
            np.empty((0, loops.R_WIDTH), np.int64),
            ends,
            np.empty((0, loops.M_WIDTH), np.int64),
            ends.copy(),
            ends.copy(),
            np.empty((0, loops.N_WIDTH), np.int64),
        )

    def deadlines_us(self) -> Longs:
        """When each key has to be looked at though no row comes; `loops.NEVER` if it need not."""
        found = np.full(len(self.run_ends), loops.NEVER, np.int64)
        owners = np.repeat(np.arange(len(self.run_ends)), np.diff(self.run_ends, prepend=0))
        np.minimum.at(found, owners, self.runs[:, loops.R_DEADLINE])
        return found


@dataclass(frozen=True)
class Found:
    """Matches (or partial matches) of some keys: match i belongs to `keys[i]`, was known at `times_us[i]`, and has the
    rows `rows[ends[i - 1] : ends[i]]`, taken as `variables[…]` (numbers of `ColumnarProgram.variables`)."""

    keys: Longs
    times_us: Longs
    ends: Longs
    rows: Longs
    variables: Longs

    def __len__(self) -> int:
        return len(self.keys)

    def __iter__(self) -> Iterator[tuple[int, int, list[tuple[int, int]]]]:
        """Key, time, and the rows as variable and number: for tests and people."""
        for number in range(len(self.keys)):
            span = slice(self.ends[number - 1] if number else 0, self.ends[number])
            rows = zip(self.variables[span].tolist(), self.rows[span].tolist(), strict=True)
            yield int(self.keys[number]), int(self.times_us[number]), list(rows)


@dataclass(frozen=True)
class Stepped:
    kept: Kept
    matches: Found
    timed_out: Found
    dropped: int
    """Partial matches that were dropped at the cap."""


class ColumnarProgram:
    """An automaton as arrays, ready for stepping."""

    def __init__(self, automaton: Automaton, cap: Cap | None = None) -> None:
        cap = cap or Cap()
        _require_columnar(automaton)
        tree = automaton.tree
        self.automaton = automaton
        self.variables = automaton.variables
        numbers = {name: number for number, name in enumerate(self.variables)}
        states = np.zeros((len(automaton.states) + 1, loops.S_WIDTH), np.int64)
        edges: list[list[int]] = []
        self._bars: list[list[int]] = []
        self._nexts: list[list[int]] = []
        self._absences: list[list[int]] = []
        for number, state in enumerate(automaton.states):
            ends = [choice for choice, edge in enumerate(state.edges) if edge.is_immediate]
            mask = automaton.tests[state.test].rows
            begin = len(edges)
            edges += [self._edge(edge) for edge in state.edges]
            states[number] = mask, begin, len(edges), ends[0] if ends else -1, numbers[state.variable]
        begin = len(edges)
        edges += [self._edge(edge) for edge in automaton.starts]
        states[-1] = 0, begin, len(edges), -1, -1
        skipped = np.array([name in tree.after.variables for name in self.variables], np.bool_)
        settings = np.zeros(loops.T_WIDTH, np.int64)
        settings[loops.T_WITHIN] = loops.NEVER if tree.within_us is None else tree.within_us
        settings[loops.T_SKIP] = _SKIPS[tree.after.skip]
        settings[loops.T_CHOOSES_ONE] = int(tree.chooses_one)
        settings[loops.T_CAP] = cap.most
        settings[loops.T_AT_CAP] = _AT_CAP[cap.choice]
        self._states = states
        self._arrays = (
            states,
            _table(edges, loops.E_WIDTH),
            _table(self._bars, 2),
            _table(self._nexts, 1),
            _table(self._absences, 2),
            skipped,
            settings,
        )

    def step(
        self,
        kept: Kept,
        row_ends: Longs,
        rows: Longs,
        times_us: Longs,
        masks: Longs,
        *,
        watermark_us: int,
        is_final: bool = False,
    ) -> Stepped:
        """New rows of some keys, those of key k up to `row_ends[k]`: their numbers, times and predicates as bits.

        `is_final`: no rows will come any more.
        """
        froms = kept.froms.copy()
        runs, run_ends, waiting, waiting_ends, nodes, matches, match_ends, timed_out, timed_out_ends, counts = (
            loops.step_keys(
                *self._arrays, row_ends, rows, times_us, masks, watermark_us, is_final, kept.runs, kept.run_ends,
                kept.waiting, kept.waiting_ends, froms, kept.nodes,
            )
        )  # fmt: skip
        if counts[loops.C_FAILED]:
            raise TooManyPartialMatches(
                f"a key has {self._arrays[-1][loops.T_CAP]} partial matches, which is the cap: raise it, shorten "
                "`within`, or choose to drop some"
            )
        found = self._describe(nodes, matches, match_ends)
        over = self._describe(nodes, timed_out, timed_out_ends)
        held = loops.collect(nodes, runs, waiting)
        return Stepped(
            Kept(runs, run_ends, waiting, waiting_ends, froms, held), found, over, int(counts[loops.C_DROPPED])
        )

    def _describe(self, nodes: Longs, found: Longs, key_ends: Longs) -> Found:
        ends = np.empty(len(found), np.int64)
        total = loops.measure_paths(nodes, found, ends)
        rows, variables = np.empty(total, np.int64), np.empty(total, np.int64)
        loops.write_paths(nodes, found, self._states, ends, rows, variables)
        keys = np.repeat(np.arange(len(key_ends)), np.diff(key_ends, prepend=0))
        return Found(keys, found[:, loops.M_TIME].copy(), ends, rows, variables)

    def _edge(self, edge: Edge) -> list[int]:
        tests = self.automaton.tests
        begins = len(self._bars), len(self._nexts), len(self._absences)
        self._bars += [
            [tests[bar.test].rows, -1 if bar.unless is None else tests[bar.unless].rows] for bar in edge.bars
        ]
        self._nexts += [[tests[test].rows] for test in edge.next_bars]
        self._absences += [[tests[test].rows, for_us] for test, for_us in edge.absences]
        is_plain = edge.target != ACCEPT and not (edge.bars or edge.next_bars or edge.absences)
        return [
            edge.target,
            _CONTIGUITIES[edge.contiguity],
            loops.NEVER if edge.within_us is None else edge.within_us,
            edge.wait_us,
            *(begins[0], len(self._bars)),
            *(begins[1], len(self._nexts)),
            *(begins[2], len(self._absences)),
            int(is_plain),
        ]


def _table(rows: list[list[int]], width: int) -> NDArray[np.int64]:
    return np.array(rows, np.int64).reshape(len(rows), width)


def _require_columnar(automaton: Automaton) -> None:
    looking = next((test for test in automaton.tests if test.rest), None)
    if looking is not None:
        raise NotColumnar(f"the condition of {looking.variable} looks at other rows of the match")
    if automaton.tree.distinct is not None:
        raise NotColumnar("every-distinct keeps values, not rows")
    if len(automaton.row_predicates) > _MOST_BITS:
        raise NotColumnar(f"the pattern has more than {_MOST_BITS} different conditions")
    if any(len(state.edges) > _MOST_BITS for state in automaton.states):
        raise NotColumnar(f"a state of the pattern has more than {_MOST_BITS} edges")
