"""The reference daemon of StatsD still adds the shared packets up as it did when its answers were kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.conformance.statsd_answers import ask, frozen

if TYPE_CHECKING:
    from pathlib import Path


def test_it_answers_as_it_did(tmp_path: Path) -> None:
    kept, asked = frozen()["answers"], ask(tmp_path)
    assert {name: (asked[name], kept[name]) for name in kept if asked[name] != kept[name]} == {}
