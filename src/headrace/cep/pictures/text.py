"""A diagram in a terminal: boxes and lines of characters."""

from dataclasses import dataclass, field
from typing import Final

from headrace.cep.pictures.diagram import Diagram, Kind
from headrace.cep.pictures.layout import Layout, PlacedBox, lay_out

_UP, _DOWN, _LEFT, _RIGHT = 1, 2, 4, 8
_LINES: Final = {
    _UP: "│", _DOWN: "│", _UP | _DOWN: "│", _LEFT: "─", _RIGHT: "─", _LEFT | _RIGHT: "─",
    _DOWN | _RIGHT: "╭", _DOWN | _LEFT: "╮", _UP | _RIGHT: "╰", _UP | _LEFT: "╯",
    _UP | _DOWN | _RIGHT: "├", _UP | _DOWN | _LEFT: "┤", _LEFT | _RIGHT | _DOWN: "┬", _LEFT | _RIGHT | _UP: "┴",
    _UP | _DOWN | _LEFT | _RIGHT: "┼",
}  # fmt: skip
_SIGNS: Final = {Kind.START: "●", Kind.MATCH: "◉"}
_SPINE: Final = 4


def draw_text(diagram: Diagram, *, width: int = 100) -> str:
    """The lines of the drawing, at most about as wide as is said."""
    # What rails take is only known once they are laid out; two thirds of the rest are for the boxes.
    tight = lay_out(diagram, box_width=24, label_width=20)
    spare = max(44, width - 8 - 2 * tight.lanes)
    has_labels = any(rail.lines for rail in tight.rails)
    boxes = spare * 6 // 10 if has_labels else min(spare, 72)
    return _Sheet(lay_out(diagram, box_width=min(boxes, 60), label_width=min(spare - boxes, 44))).draw()


@dataclass
class _Sheet:
    layout: Layout
    _lines: dict[tuple[int, int], int] = field(default_factory=dict)
    _texts: dict[int, list[tuple[int, str]]] = field(default_factory=dict)

    def draw(self) -> str:
        for number, placed in enumerate(self.layout.boxes):
            self._box(number, placed)
        self._spines()
        self._rails()
        return "\n".join(self._row(line) for line in range(self.layout.height + 1)).rstrip()

    @property
    def _side(self) -> int:
        """The column of the boxes' right border."""
        return self.layout.box_width + 3

    def _box(self, number: int, placed: PlacedBox) -> None:
        if placed.box.kind is not Kind.ROW:
            self._write(placed.top, _SPINE, f"{_SIGNS[placed.box.kind]} {placed.box.title}")
            for line, text in enumerate(placed.lines[1:], start=placed.top + 1):
                self._write(line, _SPINE + 2, text)
            return
        above, below, side = placed.top - 1, placed.bottom, self._side
        self._across(above, 0, side)
        self._across(below, 0, side)
        self._down(0, above, below)
        self._down(side, above, below)
        for line, text in enumerate(placed.lines, start=placed.top):
            self._write(line, 2, text)
        if placed.box.is_excluded:
            self._write(above, 2, " left out of the rows shown ")
        if any(spine.arrow.target == number for spine in self.layout.spines):
            self._add(above, _SPINE, _UP)

    def _spines(self) -> None:
        boxes = self.layout.boxes
        for spine in self.layout.spines:
            source, target = boxes[spine.arrow.source], boxes[spine.arrow.target]
            begin = source.bottom if source.box.kind is Kind.ROW else source.top + 1
            end = target.top - 1
            if source.box.kind is Kind.ROW:
                self._add(begin, _SPINE, _DOWN)
                begin += 1
            for line in range(begin, end + (target.box.kind is not Kind.ROW)):
                self._add(line, _SPINE, _UP | _DOWN)
            first = source.bottom + (1 if source.box.kind is Kind.ROW else 0)
            for line, (_, text) in enumerate(spine.lines, start=first):
                self._write(line, _SPINE + 2, text)

    def _rails(self) -> None:
        first_lane = self._side + self.layout.label_width + (6 if self.layout.label_width else 3)
        for rail in self.layout.rails:
            lane = first_lane + 2 * rail.lane
            source, target = self.layout.boxes[rail.arrow.source], self.layout.boxes[rail.arrow.target]
            self._across(rail.begin, self._side if source.box.kind is Kind.ROW else _SPINE, lane)
            if source.box.kind is not Kind.ROW:
                self._add(rail.begin, _SPINE, _UP | _DOWN)
            self._down(lane, min(rail.begin, rail.end), max(rail.begin, rail.end))
            head = self._side + 1 if target.box.kind is Kind.ROW else _SPINE + 3 + len(target.box.title)
            self._across(rail.end, head, lane)
            self._write(rail.end, head, "◄")
            for line, (_, text) in enumerate(rail.lines, start=rail.begin):
                self._write(line, self._side + 2, f" {text} " if line == rail.begin else f" {text}")

    # --- the sheet

    def _add(self, line: int, column: int, ends: int) -> None:
        self._lines[line, column] = self._lines.get((line, column), 0) | ends

    def _across(self, line: int, left: int, right: int) -> None:
        for column in range(left, right + 1):
            self._add(line, column, (_LEFT if column > left else 0) | (_RIGHT if column < right else 0))

    def _down(self, column: int, top: int, bottom: int) -> None:
        for line in range(top, bottom + 1):
            self._add(line, column, (_UP if line > top else 0) | (_DOWN if line < bottom else 0))

    def _write(self, line: int, column: int, text: str) -> None:
        self._texts.setdefault(line, []).append((column, text))

    def _row(self, line: int) -> str:
        cells = {column: _LINES[ends] for (at, column), ends in self._lines.items() if at == line and ends}
        for column, text in self._texts.get(line, ()):
            cells.update((column + place, letter) for place, letter in enumerate(text))
        return "".join(cells.get(column, " ") for column in range(max(cells, default=-1) + 1)).rstrip()
