"""How far something is that takes a while: a line that is written over in a terminal, a line now and then in a pipe."""

import sys
import time
from types import TracebackType
from typing import Final, Self

import click

_TERMINAL_EVERY_S: Final = 0.1
_PIPE_EVERY_S: Final = 2.0


class ProgressLine:
    """On standard error, so that what a program reads is the result alone."""

    def __init__(self, doing: str) -> None:
        self._doing = doing
        self._is_terminal = sys.stderr.isatty()
        self._shown_s = 0.0
        self._begun_s = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_terminal and self._shown_s:
            click.echo("", err=True)

    def show(self, done: int, total: int) -> None:
        """So many records of about so many; not every call is shown, but the first one is, and the last."""
        now_s = time.monotonic()
        every_s = _TERMINAL_EVERY_S if self._is_terminal else _PIPE_EVERY_S
        if now_s - self._shown_s < every_s and done < total:
            return
        self._shown_s = now_s
        share = f" ({min(done / total, 1):.0%})" if total else ""
        rate = done / (now_s - self._begun_s) if now_s > self._begun_s else 0.0
        pace = f", {rate:,.0f} records/s" if done else ""
        line = f"{self._doing}: {done:,} of {total:,} records{share}{pace}"
        click.echo(f"\r{line:<79}" if self._is_terminal else line, nl=not self._is_terminal, err=True)
