"""Automata of any shape can be drawn, and their arrows can be told apart."""

from xml.etree import ElementTree as ET

from hypothesis import assume, given

from headrace.cep.compiling import compile_tree
from headrace.cep.errors import InvalidPattern
from headrace.cep.pictures.diagram import MOST_BOXES, diagram_of
from headrace.cep.pictures.layout import lay_out
from headrace.cep.pictures.svg import draw_svg
from headrace.cep.pictures.text import draw_text
from tests.property.test_cep import in_python, in_sql


@given(in_python | in_sql)
def test_rails_that_overlap_are_apart_unless_they_enter_the_same_box(tree):
    try:
        automaton = compile_tree(tree)
    except InvalidPattern:
        assume(False)
    assume(len(automaton.states) <= MOST_BOXES)
    diagram = diagram_of(automaton)
    layout = lay_out(diagram)
    assert len(layout.spines) + len(layout.rails) == len(diagram.arrows)
    spans = [(rail.lane, min(rail.begin, rail.end), max(rail.begin, rail.end), rail.arrow) for rail in layout.rails]
    for number, (lane, low, high, arrow) in enumerate(spans):
        for other_lane, other_low, other_high, other in spans[number + 1 :]:
            if lane == other_lane and arrow.target != other.target:
                assert high < other_low or other_high < low
    for rail in layout.rails:  # each leaves at a line of its own box, and no two of a box at one line
        source = layout.boxes[rail.arrow.source]
        assert source.top < rail.begin < source.top + source.height
    begins = [(rail.arrow.source, rail.begin) for rail in layout.rails]
    assert len(set(begins)) == len(begins)
    assert max((len(line) for line in draw_text(diagram, width=80).splitlines()), default=0) <= 200
    ET.fromstring(draw_svg(diagram))
