"""A live view as HTML: a table and a small drawing, for a notebook. Pure."""

from html import escape
from typing import Final

from headrace.client.html_tables import shown, table
from headrace.pipelines.live_view import ARRIVED, View

WIDTH, HEIGHT = 420, 96
_LEFT, _RIGHT, _TOP, _BOTTOM = 4, 92, 6, 16
_NAME_HEIGHT = 11
# Told apart by people who do not see all colours (Okabe and Ito), and by their names at the lines' ends.
COLOURS: Final = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9")


def as_html(view: View) -> str:
    """The whole of it."""
    fresh = {place for place in view.fresh if place < view.most}
    body = table(view.columns, view.visible, marked=fresh) if view.columns else ""
    return (
        f'<div><div style="opacity:.75;padding:2px 10px">{escape(view.summary)}</div>'
        f"{drawn(view)}<div style='max-height:28em;overflow:auto'>{body}</div></div>"
    )


def drawn(view: View) -> str:
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
