"""How commands show things: tables and colours in a terminal, plain text in a pipe, JSON when asked."""

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Final, TextIO

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

_WIDE: Final = 1000  # where nobody looks at once, lines are as long as they are
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")


def console() -> Console:
    """A console for standard output as it is now; in a pipe lines are as long as they are."""
    plain = Console(highlight=False)
    return plain if plain.is_terminal else Console(highlight=False, width=_WIDE)


def error_console(stream: TextIO | None = None) -> Console:
    """The same for standard error, or another stream."""
    plain = Console(file=stream, stderr=True, highlight=False)
    return plain if plain.is_terminal else Console(file=stream, stderr=True, highlight=False, width=_WIDE)


def print_json(value: Any) -> None:
    """One JSON document on one line."""
    click.echo(json.dumps(value, default=str, ensure_ascii=False))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, title: str | None = None) -> None:
    """A table; a `>` before a column's name sets it to the right, as numbers want; a `Text` keeps its colours."""
    table = Table(title=title, title_justify="left", header_style="bold", box=None, pad_edge=False)
    for column in columns:
        table.add_column(column.lstrip(">"), justify="right" if column.startswith(">") else "left", no_wrap=True)
    for row in rows:
        table.add_row(*(cell if isinstance(cell, Text) else escape(str(cell)) for cell in row))
    console().print(table)


def human_bytes(size: float) -> str:
    """A size that a person can read: 1.5 MiB."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def human_duration(ms: float) -> str:
    """A length of time that a person can read, in its two largest units: 2 d 3 h."""
    if ms < 1000:
        return f"{ms:.0f} ms"
    seconds = int(ms // 1000)
    parts = [(seconds // 86400, "d"), (seconds // 3600 % 24, "h"), (seconds // 60 % 60, "min"), (seconds % 60, "s")]
    first = next(place for place, (number, _) in enumerate(parts) if number)
    return " ".join(f"{number} {unit}" for number, unit in parts[first : first + 2] if number)


def human_time(timestamp_ms: int) -> str:
    """A timestamp that a person can read, in UTC; a dash where there is none."""
    if timestamp_ms < 0:
        return "–"
    try:
        return datetime.fromtimestamp(timestamp_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
    except (ValueError, OverflowError, OSError):
        return str(timestamp_ms)


def text(data: bytes | None) -> str | None:
    """Bytes as a person would like to see them: as text where they are text."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return "0x" + data.hex()
