"""How running captures look: a table that stays in place in a terminal, a line for each change of state in a pipe."""

import json
import sys
from collections.abc import Sequence

import click
from rich.table import Table

from headrace.cli.live_view import LiveView
from headrace.cli.output import human_bytes
from headrace.connect.capture.condition import FAILED, Condition

_COLOURS = {"running": "green", "waiting": "yellow", "failed": "red"}


class View(LiveView):
    """Shows what captures say."""

    def __init__(self, *, as_json: bool) -> None:
        super().__init__(as_json=as_json, refreshes_per_s=4)
        self._states: dict[str, tuple[str, str]] = {}

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
