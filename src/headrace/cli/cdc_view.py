"""How running captures look: a table that stays in place in a terminal, a line for each change of state in a pipe."""

import json
import sys
from collections.abc import Sequence
from types import TracebackType
from typing import Self

import click
from rich.console import Console
from rich.live import Live
from rich.table import Table

from headrace.cli.output import human_bytes
from headrace.connect.capture.condition import FAILED, Condition

_COLOURS = {"running": "green", "waiting": "yellow", "failed": "red"}


class View:
    """Shows what captures say."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._console = Console(stderr=True, highlight=False)
        self._live: Live | None = None
        self._states: dict[str, tuple[str, str]] = {}

    def __enter__(self) -> Self:
        if self._console.is_terminal and not self._as_json:
            self._live = Live(console=self._console, refresh_per_second=4)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._live.stop()

    def show(self, found: Sequence[Condition]) -> None:
        """How each stands now."""
        if self._live:
            self._live.update(_table(found))
            return
        for one in found:
            if self._as_json:
                told = {"name": one.name, "state": one.state, "records": one.records, "per_s": one.per_s}
                click.echo(json.dumps(told | {"problem": one.problem} | dict(one.facts)))
            elif self._states.get(one.name) != (one.state, one.problem) and one.state != FAILED:  # told at the end
                self._states[one.name] = (one.state, one.problem)
                click.echo(f"{one.name} is {one.state}" + (f": {one.problem}" if one.problem else ""), err=True)
        sys.stdout.flush()


def _table(found: Sequence[Condition]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("capture", "database", "state", "records", "per s", "snapshot", "log kept", "problem"):
        table.add_column(column, justify="right" if column in ("records", "per s", "log kept") else "left")
    for one in found:
        colour = _COLOURS.get(one.state, "white")
        lag = one.facts.get("slot_lag_bytes")
        table.add_row(
            one.name, one.kind, f"[{colour}]{one.state}[/]", f"{one.records:,}", f"{one.per_s:,.0f}", one.snapshot,
            "–" if lag is None else human_bytes(lag), one.problem,
        )  # fmt: skip
    return table
