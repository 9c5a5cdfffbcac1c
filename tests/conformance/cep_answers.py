"""What Flink and Esper answer to the shared cases: asked anew, or as they answered when they were last asked.

    python -m tests.conformance.cep_answers     asks them, and writes `cep_answers.json`

A match is its rows (`a:0 b:3`), an answer for each stream the matches in no order. What a system refuses is None.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from peers.matches import matches_of_esper, matches_of_flink
from tests.conformance.cep_case import Case
from tests.conformance.cep_cases_random import ALL_CASES
from tests.conformance.cep_differences import ESPER, FLINK, TIMED_OUT

if TYPE_CHECKING:
    from collections.abc import Iterable

_FROZEN = Path(__file__).with_suffix(".json")
Answer = list[list[str]] | None


def ask(folder: Path) -> dict[str, dict[str, Any]]:
    """By the name of the case what each system answers, and what it was asked (`asked`)."""
    for_esper = [asked for case in ALL_CASES if (asked := case.for_esper)]
    answers: dict[str, dict[str, Any]] = {case.name: {"asked": _digest(case)} for case in ALL_CASES}
    for who, found in (
        (ESPER, matches_of_esper(for_esper)),
        (FLINK, matches_of_flink([case.for_flink for case in ALL_CASES], folder)),
    ):
        for name, answer in found.items():
            answers[name][who] = None if "refused" in answer else _texts(answer["matches"])
    for case in ALL_CASES:
        if has_timed_out(case) and "timed_out" in found[case.name]:
            answers[case.name][TIMED_OUT] = _texts(found[case.name]["timed_out"])
    return answers


def frozen() -> dict[str, dict[str, Any]]:
    """What they answered."""
    answers: dict[str, dict[str, Any]] = json.loads(_FROZEN.read_text())
    stale = [case.name for case in ALL_CASES if answers.get(case.name, {}).get("asked") != _digest(case)]
    if stale:
        raise AssertionError(f"these cases were changed since: {stale}; run python -m tests.conformance.cep_answers")
    return answers


def has_timed_out(case: Case) -> bool:
    """Whether partial matches of a case may time out and Flink hands them out: its SQL does not."""
    return case.sql is None and any(step[0].startswith("within") for step in case.flink or case.steps or ())


def shown(match: Iterable[Iterable[Any]]) -> str:
    """A match as a text."""
    return " ".join(f"{variable}:{number}" for variable, number in sorted(match, key=lambda row: list(row)[1]))


def _texts(streams: list[list[list[list[Any]]]]) -> list[list[str]]:
    return [sorted(map(shown, matches)) for matches in streams]


def _digest(case: Case) -> str:
    asked = json.dumps([case.for_flink, case.for_esper], sort_keys=True, default=str)
    return hashlib.sha256(asked.encode()).hexdigest()[:12]


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        answers = ask(Path(folder))
    lines = (f"{json.dumps(name)}: {json.dumps(answer)}" for name, answer in answers.items())
    _FROZEN.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    print(f"{len(answers)} cases are in {_FROZEN.name}", file=sys.stderr)


if __name__ == "__main__":
    main()
