"""Flink and Esper still answer the shared cases as they did when their answers were kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.conformance.cep_answers import ask, frozen

if TYPE_CHECKING:
    from pathlib import Path


def test_they_answer_as_they_did(tmp_path: Path) -> None:
    kept, asked = frozen(), ask(tmp_path)
    assert {name: (asked[name], kept[name]) for name in kept if asked[name] != kept[name]} == {}
