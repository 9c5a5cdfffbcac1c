"""How commands show things: tables and colours in a terminal, plain text in a pipe, JSON when asked.

Rich is loaded by what draws with it: a broker that starts draws nothing.
"""

import json
import sys
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, Self, TextIO

import click

from headrace.dashboard.format import count as human_count
from headrace.dashboard.format import moment as human_time
from headrace.dashboard.format import size as human_bytes
from headrace.dashboard.format import text
from headrace.dashboard.format import whole_duration as human_duration
from headrace.errors import harmless

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live
    from rich.table import Table

__all__ = [
    "LiveView", "ProgressLine", "console", "error_console", "human_bytes", "human_count", "human_duration",
    "human_time", "json_option", "make_table", "print_json", "print_table", "text",
]  # fmt: skip
_WIDE: Final = 1000  # where nobody looks at once, lines are as long as they are
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")


def console() -> "Console":
    """A console for standard output as it is now; in a pipe lines are as long as they are."""
    from rich.console import Console

    plain = Console(highlight=False)
    return plain if plain.is_terminal else Console(highlight=False, width=_WIDE)


def error_console(stream: TextIO | None = None) -> "Console":
    """The same for standard error, or another stream."""
    from rich.console import Console

    plain = Console(file=stream, stderr=True, highlight=False)
    return plain if plain.is_terminal else Console(file=stream, stderr=True, highlight=False, width=_WIDE)


def print_json(value: Any) -> None:
    line = json.dumps(value, default=str, ensure_ascii=False)
    click.echo(line.encode(errors="backslashreplace").decode())  # half a character, as JSON itself escapes it


def make_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, wraps: bool = False) -> "Table":
    """A table; a `>` before a column's name sets it to the right, as numbers want; a `Text` keeps its colours."""
    from rich.markup import escape
    from rich.table import Table
    from rich.text import Text

    table = Table(header_style="bold", box=None, pad_edge=False)
    for column in columns:
        side: Literal["left", "right"] = "right" if column.startswith(">") else "left"
        table.add_column(column.lstrip(">"), justify=side, no_wrap=not wraps)
    for row in rows:
        table.add_row(*(cell if isinstance(cell, Text) else escape(harmless(str(cell))) for cell in row))
    return table


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    console().print(make_table(columns, rows))


class LiveView:
    """What views of running things share; `_live` is there between `with` and its end, in a terminal, without JSON."""

    def __init__(self, *, as_json: bool, refreshes_per_s: float, console: "Console | None" = None) -> None:
        self._as_json = as_json
        self._refreshes_per_s = refreshes_per_s
        self._console = console or error_console()
        self._live: Live | None = None

    def __enter__(self) -> Self:
        if self._console.is_terminal and not self._as_json:
            from rich.live import Live

            self._live = Live(console=self._console, refresh_per_second=self._refreshes_per_s)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._live.stop()


_TERMINAL_EVERY_S: Final = 0.1
_PIPE_EVERY_S: Final = 2.0


class ProgressLine:
    """On standard error, so that what a program reads is the result alone."""

    def __init__(self, doing: str, what: str = "records") -> None:
        self._doing, self._what = doing, what
        self._is_terminal = sys.stderr.isatty()
        self._shown_s = 0.0
        self._begun_s = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_terminal and self._shown_s:
            click.echo("", err=True)

    def show(self, done: int, total: int) -> None:
        """So many of about so many; not every call is shown, but the first one is, and the last."""
        now_s = time.monotonic()
        every_s = _TERMINAL_EVERY_S if self._is_terminal else _PIPE_EVERY_S
        if now_s - self._shown_s < every_s and done < total:
            return
        self._shown_s = now_s
        share = f" ({min(done / total, 1):.0%})" if total else ""
        rate = done / (now_s - self._begun_s) if now_s > self._begun_s else 0.0
        pace = f", {rate:,.0f} {self._what}/s" if done else ""
        line = f"{self._doing}: {done:,} of {total:,} {self._what}{share}{pace}"
        click.echo(f"\r{line:<79}" if self._is_terminal else line, nl=not self._is_terminal, err=True)
