"""Tables as HTML, for notebooks: what `_repr_html_` of topics, groups, jobs and live frames is made of. Pure.

What always holds: every text is escaped and cut to a length, nothing is fetched, no script runs, and colours are the
page's own with a little see-through grey, so that light and dark themes both work.
"""

from collections.abc import Collection, Iterable, Sequence
from html import escape
from typing import Final

LONGEST_CELL: Final = 120
_CELL: Final = "padding:2px 10px;border-bottom:1px solid rgba(128,128,128,.25);white-space:pre"
_MARKED: Final = "background:rgba(0,150,136,.14)"


def shown(value: object) -> str:
    """A value as a cell has it: nothing as a dash, numbers with thousands apart, a long text cut."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.6g}" if abs(value) < 1e6 else f"{value:,.1f}"
    text = bytes(value).decode(errors="replace") if isinstance(value, bytes | bytearray) else str(value)
    return text if len(text) <= LONGEST_CELL else text[: LONGEST_CELL - 1] + "…"


def is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def table(
    columns: Sequence[str], rows: Iterable[Sequence[object]], *, caption: str = "", marked: Collection[int] = ()
) -> str:
    """Rows under their columns; those whose place is in `marked` stand out."""
    head = "".join(f'<th scope="col" style="text-align:left;{_CELL}">{escape(name)}</th>' for name in columns)
    lines = [
        f'<tr style="{_MARKED if place in marked else ""}">{"".join(map(_cell, row))}</tr>'
        for place, row in enumerate(rows)
    ]
    title = f'<caption style="text-align:left;font-weight:600;padding:4px 10px">{escape(caption)}</caption>'
    return (
        f'<table style="border-collapse:collapse;font-variant-numeric:tabular-nums">{title if caption else ""}'
        f"<thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>"
    )


def facts(title: str, pairs: Iterable[tuple[str, object]]) -> str:
    """A name and a value a line, under a title."""
    lines = "".join(
        f'<tr><th scope="row" style="text-align:left;font-weight:400;opacity:.7;{_CELL}">{escape(name)}</th>'
        f"{_cell(value)}</tr>"
        for name, value in pairs
    )
    return f'<div style="font-weight:600;padding:4px 10px">{escape(title)}</div><table><tbody>{lines}</tbody></table>'


def _cell(value: object) -> str:
    side = "right" if is_number(value) else "left"
    return f'<td style="text-align:{side};{_CELL}">{escape(shown(value))}</td>'
