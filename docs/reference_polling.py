"""The table and the plot of `explanation/polling.md`, from what `make bench-polling` keeps."""

import math
import re
from collections.abc import Mapping
from html import escape
from typing import Any, Final

import reference_figures

MARKS: Final = ("<!-- measured: made by docs/generate.py from benchmarks/results -->", "<!-- measured end -->")
UNITS: Final = ("p50 ms", "p99 ms", "max ms", "requests/s", "server CPU %", "worker CPU %")
_NOT_YET: Final = (
    "On this version nothing is kept yet: `make bench-polling` prints the table on your machine in six minutes."
)
_PLOTTED: Final = ("100 events/s, 1 worker", "100 events/s, 100 workers")

Cells = dict[str, dict[str, Mapping[str, float]]]  # by cell and unit: values by way


def read_cells() -> tuple[Cells, str]:
    """What was measured, and where and when."""
    cells: Cells = {}
    about = ""
    for each in reference_figures.read_results().get("polling", []):
        cells.setdefault(each["name"], {})[each["unit"]] = each["values"]
        about = f"{each['date']}, {each['machine']}"
    return {name: units for name, units in cells.items() if all(unit in units for unit in UNITS)}, about


def page(text: str) -> str:
    """The page with what is kept between its marks."""
    cells, about = read_cells()
    lines = _tables(cells, about) if cells else [_NOT_YET]
    block = "\n".join([MARKS[0], "", *lines, "", MARKS[1]])
    return re.sub(f"{re.escape(MARKS[0])}.*?{re.escape(MARKS[1])}", lambda _: block, text, flags=re.DOTALL)


def _tables(cells: Cells, about: str) -> list[str]:
    lines = [f"Measured {about}.", ""]
    if plot():
        lines += ["![Latency of each way, from the median to the 99th percentile](../images/polling.svg)", ""]
    for name, units in cells.items():
        lines += [f"| {name} | {' | '.join(UNITS)} |", f"|---|{'--:|' * len(UNITS)}"]
        for way in units[UNITS[0]]:
            values = [reference_figures.number(units[unit][way]) for unit in UNITS]
            lines.append(f"| {way} | {' | '.join(values)} |")
        lines.append("")
    return lines[:-1]


# --- the plot: a row for each way, latency on a logarithmic axis, the processors' work behind it

_LEFT, _WIDTH, _RIGHT, _ROW, _TOP = 190, 430, 170, 40, 64
_COLOURS: Final = ("#2c6fbb", "#c2571a")
_STYLE: Final = (
    "<style>text{font:13px system-ui,sans-serif;fill:#222}.s{font-size:11px;fill:#666}.g{stroke:#ddd}"
    "@media(prefers-color-scheme:dark){text{fill:#ddd}.s{fill:#999}.g{stroke:#444}}</style>"
)


def plot() -> str:
    """An SVG; empty if nothing is kept."""
    cells, about = read_cells()
    chosen = [(name, cells[name]) for name in _PLOTTED if name in cells]
    if not chosen:
        return ""
    ways = list(chosen[0][1][UNITS[0]])
    found = [value for _, units in chosen for unit in UNITS[:2] for value in units[unit].values() if value > 0]
    low, high = math.floor(math.log10(min(found))), math.ceil(math.log10(max(found)))

    def x_of(ms: float) -> float:
        return round(_LEFT + _WIDTH * (math.log10(max(ms, 10.0**low)) - low) / max(high - low, 1), 1)

    bottom = _TOP + _ROW * len(ways)
    width = _LEFT + _WIDTH + _RIGHT
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {bottom + 40}" role="img">{_STYLE}',
        "<title>Latency of each way to learn of an event</title>",
        f'<text x="0" y="16">From the write to the worker: ● median, to the 99th percentile ({escape(about)})</text>',
    ]
    for power in range(low, high + 1):
        x = x_of(10.0**power)
        label = f"{10**power:,} ms" if power >= 0 else f"{10.0**power:g} ms"
        parts.append(f'<line class="g" x1="{x}" y1="{_TOP - 12}" x2="{x}" y2="{bottom}"/>')
        parts.append(f'<text class="s" x="{x}" y="{bottom + 16}" text-anchor="middle">{label}</text>')
    for place, (name, _) in enumerate(chosen):
        parts.append(f'<circle cx="{_LEFT + 6 + 215 * place}" cy="36" r="5" fill="{_COLOURS[place]}"/>')
        parts.append(f'<text x="{_LEFT + 16 + 215 * place}" y="40">{escape(name)}</text>')
    parts.append(f'<text class="s" x="{width}" y="40" text-anchor="end">CPU, server + workers</text>')
    for row, way in enumerate(ways):
        y = _TOP + _ROW * row + 12
        parts.append(f'<text x="{_LEFT - 12}" y="{y + 4}" text-anchor="end">{escape(way)}</text>')
        loads = [
            _bar(parts, units, way, y + 11 * place - 5, _COLOURS[place], x_of)
            for place, (_, units) in enumerate(chosen)
        ]
        parts.append(f'<text class="s" x="{width}" y="{y + 4}" text-anchor="end">{" · ".join(loads)}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def _bar(parts: list[str], units: Mapping[str, Mapping[str, float]], way: str, y: float, colour: str, x_of: Any) -> str:
    """One way in one cell; answers what it took of the processors."""
    if way not in units[UNITS[0]]:
        return "–"
    middle, far = x_of(units["p50 ms"][way]), x_of(units["p99 ms"][way])
    parts.append(
        f'<line x1="{middle}" y1="{y}" x2="{far}" y2="{y}" stroke="{colour}" stroke-width="4" opacity="0.45"/>'
    )
    parts.append(f'<circle cx="{middle}" cy="{y}" r="5" fill="{colour}"/>')
    return f"{units['server CPU %'][way]:.0f} + {units['worker CPU %'][way]:.0f} %"
