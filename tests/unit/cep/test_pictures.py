"""Automata drawn: every edge is an arrow in each form, and nothing that was written is obeyed."""

import json
import re
from xml.etree import ElementTree as ET

import pytest

from headrace.cep import Pattern
from headrace.cep.pictures.diagram import TooLarge, as_json, diagram_of, from_json
from headrace.cep.pictures.markup import as_dot, as_mermaid
from headrace.cep.pictures.svg import draw_svg
from headrace.cep.pictures.text import draw_text

FRAUD = Pattern.begin("small", "amount < 10").followed_by("big", "amount > 1000").within("1 minute")
LOOP = Pattern.sql(
    "MATCH_RECOGNIZE (ORDER BY at PATTERN (a b+ (c | d)?) WITHIN INTERVAL '1' HOUR DEFINE b AS x > 1, c AS x > 2)"
)
SILENCE = (
    Pattern.begin("hot", "t > 90").not_followed_by("beat", "kind = 'heartbeat'", within="5 minutes").within("1 hour")
)


def drawn(pattern: Pattern):
    return diagram_of(pattern.compile(bounded=True))


def test_a_plain_pattern_in_a_terminal():
    assert draw_text(drawn(FRAUD)).splitlines() == [
        "    ● start",
        "    │ all within 1 minute",
        "    │",
        "╭───┴─────────────────╮",
        "│ small               │",
        "│ amount < 10         │",
        "╰───┬─────────────────╯",
        "    │ followed by",
        "    │",
        "╭───┴─────────────────╮",
        "│ big                 │",
        "│ amount > 1000       │",
        "╰───┬─────────────────╯",
        "    │",
        "    ◉ match",
    ]


def test_loops_and_branches_run_on_rails():
    text = draw_text(drawn(LOOP))
    assert re.search("│ b +│◄─", text)
    assert "    ◉ match ◄──" in text
    assert text.splitlines()[-1] == "      then skip past last row"
    assert {"1. next", "2. next", "3. next", "4. the end"} <= set(re.findall(r"\d\. \w+(?: end)?", text))


def test_time_and_absence_are_said():
    text = draw_text(drawn(SILENCE))
    assert "when 5 minutes are over" in text
    assert "no beat (kind = 'heartbeat')" in text


def edges(pattern: Pattern) -> int:
    return sum(1 for _ in pattern.compile(bounded=True).edges())


@pytest.mark.parametrize("pattern", [FRAUD, LOOP, SILENCE])
def test_every_edge_is_in_each_form(pattern):
    diagram = drawn(pattern)
    assert len(diagram.arrows) == edges(pattern)
    assert as_dot(diagram).count(" -> ") == edges(pattern)
    assert len(re.findall(r"-->|-\.->", as_mermaid(diagram))) == edges(pattern)
    picture = ET.fromstring(draw_svg(diagram))
    paths = [one for one in picture.iter() if (one.get("class") or "").startswith("hp-edge")]
    assert len(paths) == edges(pattern)


def test_what_was_written_is_not_obeyed():
    nasty = Pattern.begin("a", "x = '<script>alert(1)</script>\x1b[2J\"&]]>'").within("1 second")
    diagram = drawn(nasty)
    picture = draw_svg(diagram)
    assert "<script" not in picture
    ET.fromstring(picture)
    for text in (draw_text(diagram), as_dot(diagram), as_mermaid(diagram), picture):
        assert "\x1b" not in text
    assert "<script" not in as_mermaid(diagram)


def test_a_notebook_shows_a_pattern_as_its_picture():
    assert FRAUD._repr_svg_() == FRAUD.svg() == draw_svg(drawn(FRAUD))


def test_notes_stand_beside_a_state():
    assert ">12 waiting</text>" in draw_svg(drawn(FRAUD), notes={0: "12 waiting"})


def test_what_nobody_could_follow_is_refused():
    many = Pattern.begin("a", "x > 1").times(500).within("1 hour")
    with pytest.raises(TooLarge, match="500 states"):
        drawn(many)
    assert as_json(many.compile(bounded=True)) is None


@pytest.mark.parametrize("pattern", [FRAUD, LOOP, SILENCE])
def test_another_process_draws_the_same(pattern):
    described = json.loads(json.dumps(as_json(pattern.compile(bounded=True))))
    assert from_json(described) == drawn(pattern)


@pytest.mark.parametrize(
    "given", [{}, {"boxes": [], "arrows": [[0, 9, "STRICT", False, []]], "summary": ""}, {"boxes": 3}]
)
def test_what_describes_no_diagram_is_refused(given):
    with pytest.raises(ValueError, match=r"no diagram|no box"):
        from_json(given)
