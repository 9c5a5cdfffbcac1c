"""A table that stays in place while a command runs, where there is a terminal to show it in."""

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live

from headrace.cli.output import error_console


class LiveView:
    """What views of running things share; `_live` is there between `with` and its end, in a terminal, without JSON."""

    def __init__(self, *, as_json: bool, refreshes_per_s: float, console: Console | None = None) -> None:
        self._as_json = as_json
        self._refreshes_per_s = refreshes_per_s
        self._console = console or error_console()
        self._live: Live | None = None

    def __enter__(self) -> Self:
        if self._console.is_terminal and not self._as_json:
            self._live = Live(console=self._console, refresh_per_second=self._refreshes_per_s)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._live.stop()
