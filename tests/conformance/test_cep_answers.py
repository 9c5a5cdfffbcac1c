"""Our matcher and our columnar engine on the cases that Flink and Esper were given, against what these answered.

`make test-cep-peers` asks them again. What they answer otherwise is declared, and so is what they do not have; a case
that none of the two can decide is decided by the definition (`tests/property/cep_reference.py`).
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from headrace.cep.columnar import ColumnarProgram, Kept
from headrace.cep.match import Event
from headrace.cep.program import Program
from tests.conformance.cep_answers import frozen, has_timed_out, shown
from tests.conformance.cep_case import Case, rows
from tests.conformance.cep_cases_random import ALL_CASES
from tests.conformance.cep_differences import DIFFERENCES, ESPER, FLINK, MISSING, TIMED_OUT
from tests.property.cep_reference import Reference

if TYPE_CHECKING:
    from headrace.cep.match import Match

_PAGE = Path(__file__).parents[2] / "docs" / "reference" / "differences-cep.md"
_DECLARED = {place for each in DIFFERENCES for place in each.at}
_LACKED = {place for each in MISSING for place in each.at}
_SCHEMA = pa.schema(
    [("k", pa.string()), ("t", pa.int64()), ("kind", pa.string()), ("x", pa.float64()), ("id", pa.int64())]
)
named = pytest.mark.parametrize("case", ALL_CASES, ids=lambda case: case.name)


@pytest.fixture(scope="module")
def answers() -> dict[str, dict[str, Any]]:
    return frozen()


def as_text(match: Match) -> str:
    return shown((variable, event.values["id"]) for variable, event in match.rows)


def found_by_matcher(case: Case) -> tuple[list[list[str]], list[list[str]]]:
    """Of each stream the matches, and the partial matches that timed out."""
    found, over = [], []
    lateness = None if case.lateness_s is None else f"{case.lateness_s} seconds"
    for text in case.streams:
        timed_out: list[Match] = []
        matches = case.pattern.matches(
            rows(text), key="k", time="t", lateness=lateness, bounded=True, on_timed_out=timed_out.append
        )
        found.append(sorted(map(as_text, matches)))
        over.append(sorted(map(as_text, timed_out)))
    return found, over


@named
def test_our_matcher_finds_what_they_found(case: Case, answers: dict[str, dict[str, Any]]) -> None:
    found, over = found_by_matcher(case)
    for who, answer in answers[case.name].items():
        if who != "asked" and answer is not None:
            ours = over if who == TIMED_OUT else found
            if (who, case.name) in _DECLARED:
                assert ours != answer, f"{who} does not differ any more: declare it no more"
            else:
                assert ours == answer, who


@named
def test_compiled_loops_find_what_our_matcher_finds(case: Case) -> None:
    program = Program(case.pattern.compile(bounded=True))
    columnar = ColumnarProgram(program.automaton, schema=_SCHEMA)
    if case.lateness_s is not None:
        return  # the order is restored before
    for text, expected in zip(case.streams, found_by_matcher(case)[0], strict=True):
        given = rows(text)
        keys = sorted({row["k"] for row in given})
        ordered = sorted(given, key=lambda row: keys.index(row["k"]))
        kept, found = Kept.nothing(len(keys)), []
        middle = given[len(given) // 2]["t"] if given else 0
        for begin_ms, end_ms in ((-1, middle), (middle, 10**6)):
            now = [row for row in ordered if begin_ms < row["t"] <= end_ms]
            evaluated = columnar.evaluate(pa.RecordBatch.from_pylist(now, schema=_SCHEMA))
            stepped = columnar.step(
                kept,
                np.cumsum([sum(row["k"] == key for row in now) for key in keys]),
                np.array([row["id"] for row in now], np.int64),
                np.array([row["t"] * 1000 for row in now], np.int64),
                evaluated.masks,
                evaluated.facts,
                watermark_us=(end_ms + 1) * 1000,
                is_final=end_ms == 10**6,
            )
            kept = stepped.kept
            found += [
                shown((columnar.variables[variable], number) for variable, number in taken)
                for _, _, taken in stepped.matches
            ]
        assert sorted(found) == expected


def test_what_only_the_definition_decides(answers: dict[str, dict[str, Any]]) -> None:
    undecided = [
        case
        for case in ALL_CASES
        if all(answer is None for who, answer in answers[case.name].items() if who not in ("asked", TIMED_OUT))
    ]
    assert undecided
    for case in undecided:
        for text, found in zip(case.streams, found_by_matcher(case)[0], strict=True):
            events = [Event(row, row["t"] * 1000, row["id"]) for row in rows(text)]
            back = case.pattern.compile(bounded=True).back
            for number, event in enumerate(events):
                event.before = tuple(earlier.values for earlier in reversed(events[max(0, number - back) : number]))
            assert found == sorted(shown(match.rows) for match in Reference(case.pattern.tree, events).matches())


def test_cases_are_many_and_each_has_a_name() -> None:
    assert len({case.name for case in ALL_CASES}) == len(ALL_CASES) > 150
    assert sum(len(case.streams) for case in ALL_CASES) > 800


def test_what_is_declared_missing_is_what_they_refuse(answers: dict[str, dict[str, Any]]) -> None:
    refused = {
        (who, name)
        for name, answer in answers.items()
        for who in (FLINK, ESPER)
        if who in answer and answer[who] is None
    }
    assert refused == _LACKED


def test_partial_matches_are_compared_where_flink_hands_them_out(answers: dict[str, dict[str, Any]]) -> None:
    assert {name for name, answer in answers.items() if TIMED_OUT in answer} == {
        case.name for case in ALL_CASES if has_timed_out(case)
    }


def test_the_page_names_every_difference_and_no_other() -> None:
    first_cells = re.findall(r"^\| ([^|]+?) +\|", _PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    titles = [each.title for each in (*DIFFERENCES, *MISSING)]
    assert [cell for cell in first_cells if cell != "Construct" and not set(cell) <= {"-"}] == titles
