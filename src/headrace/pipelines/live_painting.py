"""A live view shown: as HTML in a notebook's cell, as text in a terminal, or line by line in a pipe."""

import sys
from collections.abc import Sequence
from html import escape
from typing import Any, Final, Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live as RichLive
from rich.markup import escape as escape_markup
from rich.table import Table
from rich.text import Text

from headrace.client.html_tables import is_number, shown, table
from headrace.pipelines.live_view import ARRIVED, Point, View

WIDTH, HEIGHT = 420, 96
_LEFT, _RIGHT, _TOP, _BOTTOM = 4, 92, 6, 16
_NAME_HEIGHT = 11
# Told apart by people who do not see all colours (Okabe and Ito), and by their names at the lines' ends.
COLOURS: Final = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9")
BLOCKS: Final = "▁▂▃▄▅▆▇█"
BLOCKS_WIDE: Final = 60


class Painter(Protocol):
    """Shows a view, and again when it has changed."""

    def paint(self, view: View) -> None:
        """Show it."""

    def close(self, view: View) -> None:
        """Show it for the last time; it stays as it is."""


class Cell:
    """A cell of a notebook; `display` is IPython's, and what it answers can be shown anew in its place."""

    def __init__(self, display: Any, html: Any) -> None:
        self._display = display
        self._html = html
        self._handle: Any = None

    def paint(self, view: View) -> None:
        made = self._html(as_html(view))
        if self._handle is None:
            self._handle = self._display(made, display_id=True)
        else:
            self._handle.update(made)

    def close(self, view: View) -> None:
        """The last state stays in the notebook."""
        self.paint(view)


class Terminal:
    """A table that stays in place as long as it changes."""

    def __init__(self, console: Console) -> None:
        self._live = RichLive(console=console, auto_refresh=False, transient=False)
        self._is_open = False

    def paint(self, view: View) -> None:
        if not self._is_open:
            self._live.start()
            self._is_open = True
        self._live.update(as_text(view), refresh=True)

    def close(self, view: View) -> None:
        """Give the terminal back, the cursor below the table."""
        self.paint(view)
        self._live.stop()
        self._is_open = False


class Lines:
    """A line a batch, and the table at the end."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._said = -1

    def paint(self, view: View) -> None:
        if view.batch > self._said:
            self._said = view.batch
            self._console.print(one_line(view), soft_wrap=True, markup=False)

    def close(self, view: View) -> None:
        self._console.print(as_text(view))


def choose_painter() -> Painter:
    """The one that fits where this runs; IPython is only asked if it runs already."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is not None and getattr(shell, "kernel", None) is not None:  # a notebook, not a prompt in a terminal
        from IPython.display import HTML, display  # type: ignore[import-not-found, unused-ignore]

        return Cell(display, HTML)
    console = Console(highlight=False)
    return Terminal(console) if console.is_terminal else Lines(console)


# --- as HTML


def as_html(view: View) -> str:
    fresh = {place for place in view.fresh if place < view.most}
    body = table(view.columns, view.visible, marked=fresh) if view.columns else ""
    return (
        f'<div><div style="opacity:.75;padding:2px 10px">{escape(view.summary)}</div>'
        f"{draw_lines(view)}<div style='max-height:28em;overflow:auto'>{body}</div></div>"
    )


def draw_lines(view: View) -> str:
    """The lines, with the least and the greatest value; nothing as long as there is no line to draw."""
    lines = {name: points for name, points in view.lines.items() if len(points) > 1}
    if not lines:
        return ""
    times = [point.at_ms for points in lines.values() for point in points]
    values = [point.value for points in lines.values() for point in points]
    first, last, least, most = min(times), max(times), min(0.0, *values), max(0.0, *values)
    span, height = max(last - first, 1), (most - least) or 1.0

    def place(at_ms: int, value: float) -> tuple[float, float]:
        x = _LEFT + (WIDTH - _LEFT - _RIGHT) * (at_ms - first) / span
        y = HEIGHT - _BOTTOM - (HEIGHT - _TOP - _BOTTOM) * (value - least) / height
        return round(x, 1), round(y, 1)

    parts = []
    ends: list[float] = []
    for colour, (name, points) in zip(COLOURS, lines.items(), strict=False):
        path = " ".join(f"{x},{y}" for x, y in (place(point.at_ms, point.value) for point in points))
        x, y = place(points[-1].at_ms, points[-1].value)
        label = min(max(_free(y, ends), _TOP + 4), HEIGHT - 4)
        ends.append(label)
        parts.append(
            f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.6"/>'
            f'<circle cx="{x}" cy="{y}" r="2.2" fill="{colour}"/>'
            f'<text x="{x + 6}" y="{label + 3}" fill="{colour}">{escape(_short(name, points[-1].value))}</text>'
        )
    floor = place(first, 0.0)[1]
    unit = "rows a batch" if list(lines) == [ARRIVED] else "values"
    said = f"{unit} from {shown(least)} to {shown(most)}"
    return (
        f'<svg role="img" aria-label="{escape(said)}" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        f'style="font:10px sans-serif;padding:2px 10px"><line x1="{_LEFT}" y1="{floor}" x2="{WIDTH - _RIGHT}" '
        f'y2="{floor}" stroke="currentColor" stroke-opacity=".3"/>{"".join(parts)}'
        f'<text x="{_LEFT}" y="{HEIGHT - 3}" fill="currentColor" opacity=".6">{escape(said)}</text></svg>'
    )


def _free(y: float, taken: list[float]) -> float:
    """A height for a name where no other stands."""
    for other in sorted(taken):
        if abs(y - other) < _NAME_HEIGHT:
            y = other + _NAME_HEIGHT
    return y


def _short(name: str, value: float) -> str:
    text = f"{name} {shown(int(value) if value == int(value) else value)}"
    return text if len(text) <= 16 else text[:15] + "…"


# --- as text


def as_text(view: View) -> RenderableType:
    parts: list[RenderableType] = [Text(view.summary, style="dim")]
    parts += [
        Text(f"{sparkline(points)}  {name} {shown(points[-1].value)}", no_wrap=True)
        for name, points in view.lines.items()
        if len(points) > 1
    ]
    if view.columns:
        parts.append(_table(view))
    return Group(*parts)


def sparkline(points: Sequence[Point]) -> str:
    """The last points as blocks, from the least (or 0) to the greatest (or 0)."""
    values = [point.value for point in points[-BLOCKS_WIDE:]]
    least, most = min(0.0, *values, 0.0), max(0.0, *values, 0.0)
    span = (most - least) or 1.0
    return "".join(BLOCKS[round((value - least) / span * (len(BLOCKS) - 1))] for value in values)


def one_line(view: View) -> str:
    """Where nothing can stay in place: what the last batch changed."""
    newest = next((row for place, row in enumerate(view.rows) if place in view.fresh), None)
    if newest is None:
        return view.summary
    cells = ", ".join(f"{name} {shown(value)}" for name, value in zip(view.columns, newest, strict=True))
    return f"{view.summary}; {cells}"


def _table(view: View) -> Table:
    made = Table(box=None, pad_edge=False, header_style="bold")
    rows = view.visible
    for place, name in enumerate(view.columns):
        numbers = all(is_number(row[place]) or row[place] is None for row in rows)
        made.add_column(escape_markup(name), justify="right" if numbers and rows else "left", no_wrap=True)
    for place, row in enumerate(rows):
        made.add_row(*(escape_markup(shown(value)) for value in row), style="bold" if place in view.fresh else "")
    return made
