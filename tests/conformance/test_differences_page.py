"""The page that tells users of differences names every one that the tests declare."""

from __future__ import annotations

import re
from pathlib import Path

from tests.conformance.differences import DIFFERENCES, NOT_SERVED

_PAGE = Path(__file__).parents[2] / "docs" / "reference" / "differences.md"


def test_every_difference_is_on_the_page():
    headings = re.findall(r"^## (.+)$", _PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert [each.title for each in DIFFERENCES if each.title not in headings] == []


def test_every_heading_of_the_page_is_a_difference():
    headings = re.findall(r"^## (.+)$", _PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert [heading for heading in headings if heading not in {each.title for each in DIFFERENCES}] == []


def test_every_difference_is_declared_once_and_with_a_reason():
    assert [each.title for each in DIFFERENCES if not each.reason] == []
    places = [place for each in DIFFERENCES for place in each.at]
    assert len(places) == len(set(places))
    assert len(NOT_SERVED) == len(set(NOT_SERVED))


def test_scenarios_have_names_of_their_own():
    """Topics and declared differences go by them: two of one name meet on a broker that outlives their files."""
    files = {}
    for path in sorted(Path(__file__).parent.glob("test_*.py")):
        for name in set(re.findall(r"\bcompare\((\w+),", path.read_text())):
            files.setdefault(name, []).append(path.name)
    assert {name: found for name, found in files.items() if len(found) > 1 and name != "scenario"} == {}
