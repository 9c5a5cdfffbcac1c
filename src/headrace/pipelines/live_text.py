"""A live view as text: a table and lines of blocks, for a terminal. Pure but for rich's own classes."""

from collections.abc import Sequence
from typing import Final

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from headrace.client.html_tables import is_number, shown
from headrace.pipelines.live_view import Point, View

BLOCKS: Final = "▁▂▃▄▅▆▇█"
WIDTH: Final = 60


def as_text(view: View) -> RenderableType:
    """The whole of it."""
    parts: list[RenderableType] = [Text(view.summary, style="dim")]
    parts += [
        Text(f"{sparkline(points)}  {name} {shown(points[-1].value)}", no_wrap=True)
        for name, points in view.lines.items()
        if len(points) > 1
    ]
    if view.columns:
        parts.append(_table(view))
    return Group(*parts)


def sparkline(points: Sequence[Point], width: int = WIDTH) -> str:
    """The last points as blocks, from the least (or 0) to the greatest (or 0)."""
    values = [point.value for point in points[-width:]]
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
        made.add_column(escape(name), justify="right" if numbers and rows else "left", no_wrap=True)
    for place, row in enumerate(rows):
        made.add_row(*(escape(shown(value)) for value in row), style="bold" if place in view.fresh else "")
    return made
