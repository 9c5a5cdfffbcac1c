"""A diagram as a picture: SVG by itself in a file, or within a page that has its own colours.

What always holds: nothing in it is fetched or run; texts are escaped; the picture is as wide as its own `viewBox` and
shrinks with the page.
"""

from collections.abc import Mapping
from html import escape
from typing import Final

from headrace.cep.pictures.diagram import Arrow, Diagram, Kind
from headrace.cep.pictures.layout import Layout, PlacedBox, Rail, Spine, lay_out
from headrace.cep.tree import Contiguity

_LINE: Final = 20.0
_LETTER: Final = 7.4  # of the condition, and about as much as the widest of other texts take
_MARGIN: Final = 16.0
_PAD: Final = 14.0
_SPINE_X: Final = _MARGIN + 28.0
_LANE: Final = 14.0
_RADIUS: Final = 7.0

_COLOURS: Final = """
.hp{--hp-ground:#fff;--hp-surface:#f6f9fa;--hp-line:#c5d2d8;--hp-ink:#12222b;--hp-muted:#4d606b;--hp-arrow:#6b808c;
--hp-accent:#0b5d7a;--hp-good:#1b6a43;--hp-good-ground:#dff3e7;--hp-time:#7d4e00;--hp-not:#a8231f;max-width:100%;
height:auto}
@media (prefers-color-scheme:dark){.hp{--hp-ground:#121d24;--hp-surface:#1a2932;--hp-line:#34495a;--hp-ink:#e5eef3;
--hp-muted:#9db1bc;--hp-arrow:#8aa1ae;--hp-accent:#6ccbe8;--hp-good:#7cd9a6;--hp-good-ground:#123524;--hp-time:#f2c265;
--hp-not:#ff9c94}}
""".replace("\n", "")
SHEET: Final = """
.hp{font-family:system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif;font-size:12.5px}
.hp-ground{fill:var(--hp-ground)}.hp-box{fill:var(--hp-surface);stroke:var(--hp-line);stroke-width:1.2}
.hp-excluded{stroke-dasharray:5 4}.hp-edge{fill:none;stroke:var(--hp-arrow);stroke-width:1.5}
.hp-relaxed{stroke-dasharray:6 4}.hp-any{stroke-dasharray:1.5 4;stroke-linecap:round;stroke-width:2}
.hp-timed{stroke:var(--hp-time)}.hp-head{fill:var(--hp-arrow)}.hp-head-timed{fill:var(--hp-time)}
.hp-title{fill:var(--hp-ink);font-weight:650;font-size:14.5px}.hp-note{fill:var(--hp-accent);font-weight:600}
.hp-cond{fill:var(--hp-muted);font-family:ui-monospace,"SF Mono","Cascadia Mono","DejaVu Sans Mono",Menlo,Consolas,
monospace;font-size:12px}.hp-plain{fill:var(--hp-muted)}.hp-time{fill:var(--hp-time)}.hp-not{fill:var(--hp-not)}
.hp-halo{paint-order:stroke;stroke:var(--hp-ground);stroke-width:6px;stroke-linejoin:round}
.hp-start{fill:var(--hp-accent)}.hp-match{fill:var(--hp-good-ground);stroke:var(--hp-good);stroke-width:1.5}
.hp-dot{fill:var(--hp-good)}.hp-matched{fill:var(--hp-good);font-weight:650;font-size:14.5px}
""".replace("\n", "")
_STROKES: Final = {Contiguity.STRICT: "", Contiguity.RELAXED: " hp-relaxed", Contiguity.ANY: " hp-any"}


def draw_svg(diagram: Diagram, *, notes: Mapping[int, str] | None = None, is_alone: bool = True) -> str:
    """The picture; `notes` stand beside a state's title, by its number.

    One that is not alone is within a page that has `SHEET`, and says which colours are meant by its variables.
    """
    layout = lay_out(diagram, box_width=40, label_width=34)
    return _Picture(diagram, layout, notes or {}, f"<style>{_COLOURS}{SHEET}</style>" if is_alone else "").draw()


class _Picture:
    def __init__(self, diagram: Diagram, layout: Layout, notes: Mapping[int, str], style: str) -> None:
        self._diagram = diagram
        self._layout = layout
        self._notes = notes
        self._style = style
        widest_note = max((len(note) for note in notes.values()), default=0)
        inside = max(layout.box_width, 14, *(len(one.lines[0]) + 3 + widest_note for one in layout.boxes if one.lines))
        self._side = _MARGIN + inside * _LETTER + 2 * _PAD
        spine_words = max((len(text) for spine in layout.spines for _, text in spine.lines), default=0)
        self._first_lane = self._side + layout.label_width * _LETTER * 0.92 + (34 if layout.label_width else 22)
        right = self._first_lane + layout.lanes * _LANE if layout.rails else self._side
        self._width = max(right, _SPINE_X + 14 + spine_words * _LETTER * 0.92) + _MARGIN
        self._height = (layout.height + 1) * _LINE + 2 * _MARGIN

    def draw(self) -> str:
        said = escape(f"pattern of {self._diagram.summary}: {len(self._diagram.boxes) - 2} states")
        parts = [self._rail(rail) for rail in reversed(self._layout.rails)]
        parts += [self._spine(spine) for spine in self._layout.spines]
        parts += [self._box(number, placed) for number, placed in enumerate(self._layout.boxes)]
        parts += [self._words(rail) for rail in self._layout.rails]
        width, height = f"{self._width:.0f}", f"{self._height:.0f}"
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="hp" role="img" aria-label="{said}" '
            f'viewBox="0 0 {width} {height}" width="{width}" height="{height}">{self._style}'
            f'<rect class="hp-ground" width="{width}" height="{height}" rx="10"/>{"".join(parts)}</svg>'
        )

    def _y(self, line: float) -> float:
        """The middle of a line."""
        return _MARGIN + (line + 0.5) * _LINE

    def _box(self, number: int, placed: PlacedBox) -> str:
        y = self._y(placed.top)
        title = escape(placed.box.title)
        more = "".join(
            f'<text class="hp-plain" x="{_SPINE_X + 16}" y="{self._y(line) + 4}">{escape(text)}</text>'
            for line, text in enumerate(placed.lines[1:], start=placed.top + 1)
        )
        if placed.box.kind is Kind.START:
            return (
                f'<circle class="hp-start" cx="{_SPINE_X}" cy="{y}" r="6"/>'
                f'<text class="hp-plain" x="{_SPINE_X + 16}" y="{y + 4}">{title}</text>{more}'
            )
        if placed.box.kind is Kind.MATCH:
            return (
                f'<circle class="hp-match" cx="{_SPINE_X}" cy="{y}" r="9"/>'
                f'<circle class="hp-dot" cx="{_SPINE_X}" cy="{y}" r="4"/>'
                f'<text class="hp-matched" x="{_SPINE_X + 16}" y="{y + 5}">{title}</text>{more}'
            )
        top = y - 0.5 * _LINE - 7
        height = placed.height * _LINE + 14
        excluded = " hp-excluded" if placed.box.is_excluded else ""
        name, *conditions = placed.lines
        width = f"{self._side - _MARGIN:.1f}"
        parts = [
            f'<rect class="hp-box{excluded}" x="{_MARGIN}" y="{top}" width="{width}" height="{height}" rx="9"/>',
            f'<text class="hp-title" x="{_MARGIN + _PAD}" y="{y + 5}">{escape(name)}</text>',
        ]
        note = self._notes.get(number - 1) or ("not shown" if placed.box.is_excluded else "")
        if note:
            parts.append(
                f'<text class="hp-note" text-anchor="end" x="{self._side - _PAD:.1f}" y="{y + 5}">{escape(note)}</text>'
            )
        parts += [
            f'<text class="hp-cond" x="{_MARGIN + _PAD}" y="{self._y(line) + 4}" xml:space="preserve">'
            f"{escape(text)}</text>"
            for line, text in enumerate(conditions, start=placed.top + 1)
        ]
        return "".join(parts)

    def _spine(self, spine: Spine) -> str:
        source, target = self._layout.boxes[spine.arrow.source], self._layout.boxes[spine.arrow.target]
        begin = self._y(source.bottom - 0.5) + 7 if source.box.kind is Kind.ROW else self._y(source.top) + 9
        end = self._y(target.top) - (0.5 * _LINE + 7 if target.box.kind is Kind.ROW else 10)
        parts = [
            f'<path class="{_edge(spine.arrow)}" d="M{_SPINE_X} {begin} V{end - 6}"/>',
            f'<path class="{_head(spine.arrow)}" d="M{_SPINE_X} {end} l-5 -9 h10 z"/>',
        ]
        above = begin if source.box.kind is Kind.ROW else self._y(source.bottom - 0.5)
        middle = (above + end - 4) / 2 - (len(spine.lines) - 1) * _LINE / 2
        parts += [
            f'<text class="hp-{tone.value}" x="{_SPINE_X + 14}" y="{middle + number * _LINE + 4:.1f}">'
            f"{escape(text)}</text>"
            for number, (tone, text) in enumerate(spine.lines)
        ]
        return "".join(parts)

    def _rail(self, rail: Rail) -> str:
        source, target = self._layout.boxes[rail.arrow.source], self._layout.boxes[rail.arrow.target]
        x = self._first_lane + rail.lane * _LANE
        begin_x = self._side if source.box.kind is Kind.ROW else _SPINE_X
        head_x = self._side if target.box.kind is Kind.ROW else _SPINE_X + 26 + len(target.box.title) * 9
        begin, end = self._y(rail.begin), self._y(rail.end)
        turn = _RADIUS if end > begin else -_RADIUS
        sweep = 1 if end > begin else 0
        path = (
            f"M{begin_x:.1f} {begin} H{x - _RADIUS:.1f} a{_RADIUS} {_RADIUS} 0 0 {sweep} {_RADIUS} {turn} "
            f"V{end - turn} a{_RADIUS} {_RADIUS} 0 0 {sweep} -{_RADIUS} {turn} H{head_x + 6:.1f}"
        )
        dot = f'<circle class="{_head(rail.arrow)}" cx="{begin_x:.1f}" cy="{begin}" r="2.5"/>'
        head = f'<path class="{_head(rail.arrow)}" d="M{head_x:.1f} {end} l9 -5 v10 z"/>'
        return f'<path class="{_edge(rail.arrow)}" d="{path}"/>{dot}{head}'

    def _words(self, rail: Rail) -> str:
        x = f"{self._side + 16:.1f}"
        return "".join(
            f'<text class="hp-halo hp-{tone.value}" x="{x}" y="{self._y(line) + 4}">{escape(text)}</text>'
            for line, (tone, text) in enumerate(rail.lines, start=rail.begin)
        )


def _edge(arrow: Arrow) -> str:
    if arrow.is_timed:
        return "hp-edge hp-timed"
    return "hp-edge" + _STROKES[arrow.contiguity]


def _head(arrow: Arrow) -> str:
    return "hp-head-timed" if arrow.is_timed else "hp-head"
