"""Where the boxes and arrows of a diagram stand, in cells of text: what a terminal prints and a picture is scaled from.

Boxes are below each other. An arrow to the next box runs down between the two, with its words beside it. All others
leave their box at its right side, each at a line of its own with its words, run along a rail, and enter their box at
the line of its title.

What always holds: two arrows whose stretches overlap are on different rails, the shorter nearer to the boxes, unless
both enter the same box: these run together.
"""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from headrace.cep.pictures.diagram import Arrow, Box, Diagram, Kind, Tone

Lines = tuple[tuple[Tone, str], ...]


@dataclass(frozen=True)
class PlacedBox:
    box: Box
    top: int
    """The first line inside; the border is one line above."""
    lines: tuple[str, ...]
    """The title, then the condition."""
    height: int

    @property
    def bottom(self) -> int:
        """The line of the lower border."""
        return self.top + self.height


@dataclass(frozen=True)
class Spine:
    """An arrow to the box below."""

    arrow: Arrow
    lines: Lines


@dataclass(frozen=True)
class Rail:
    """An arrow along a rail: from the line `begin` to the line `end`."""

    arrow: Arrow
    lines: Lines
    begin: int
    end: int
    lane: int


@dataclass(frozen=True)
class Layout:
    boxes: tuple[PlacedBox, ...]
    spines: tuple[Spine, ...]
    rails: tuple[Rail, ...]
    box_width: int
    """Of what is in a box, without border and margin."""
    label_width: int
    """Of the words at the right of boxes."""
    lanes: int
    height: int


def lay_out(diagram: Diagram, *, box_width: int = 44, label_width: int = 36) -> Layout:
    """A layout whose texts are broken at these widths."""
    spines: dict[int, Spine] = {}
    beside: dict[int, list[tuple[Arrow, Lines]]] = {}
    for arrow in diagram.arrows:
        if arrow.target == arrow.source + 1 and arrow.source not in spines:
            spines[arrow.source] = Spine(arrow, _break(arrow.label, box_width + label_width))
        else:
            beside.setdefault(arrow.source, []).append((arrow, _break(arrow.label, label_width)))
    placed: list[PlacedBox] = []
    begins: list[tuple[Arrow, Lines, int]] = []
    line = 0
    for number, box in enumerate(diagram.boxes):
        lines = (*textwrap.wrap(box.title, box_width), *textwrap.wrap(box.condition, box_width))
        top = line + 1 if box.kind is Kind.ROW else line
        port = top + (1 if box.kind is Kind.ROW else len(lines))
        for arrow, words in beside.get(number, []):
            begins.append((arrow, words, port))
            port += max(1, len(words))
        height = max(len(lines), port - top)
        placed.append(PlacedBox(box, top, lines, height))
        line = top + height + (1 if box.kind is Kind.ROW else 0)
        if number in spines:
            line += len(spines[number].lines) + 1
        elif number + 1 < len(diagram.boxes):
            line += 1
    rails = _rails(begins, placed)
    widths = [len(text) for _, words, _ in begins for _, text in words]
    return Layout(
        tuple(placed),
        tuple(spines.values()),
        rails,
        max((len(text) for one in placed for text in one.lines), default=0),
        max(widths, default=0),
        max((rail.lane for rail in rails), default=-1) + 1,
        line,
    )


def _break(label: Lines, width: int) -> Lines:
    return tuple((tone, part) for tone, text in label for part in textwrap.wrap(text, width))


def _rails(begins: Sequence[tuple[Arrow, Lines, int]], boxes: Sequence[PlacedBox]) -> tuple[Rail, ...]:
    wanted = [(arrow, words, begin, boxes[arrow.target].top) for arrow, words, begin in begins]
    lanes: list[list[tuple[int, int, int]]] = []
    found = []
    for arrow, words, begin, end in sorted(wanted, key=lambda one: abs(one[2] - one[3])):
        low, high = min(begin, end), max(begin, end)
        lane = next((number for number, taken in enumerate(lanes) if _is_free(taken, low, high, arrow)), len(lanes))
        if lane == len(lanes):
            lanes.append([])
        lanes[lane].append((low, high, arrow.target))
        found.append(Rail(arrow, words, begin, end, lane))
    return tuple(found)


def _is_free(taken: Sequence[tuple[int, int, int]], low: int, high: int, arrow: Arrow) -> bool:
    return all(high < begin or end < low or target == arrow.target for begin, end, target in taken)
