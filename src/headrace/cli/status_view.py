"""How running parts look: a table that stays in place in a terminal, a line for each change of state in a pipe."""

import json
import sys
import time
from collections.abc import Callable, Sequence

import click
from rich.table import Table

from headrace.cli.output import LiveView, human_bytes
from headrace.dead_letters import in_words
from headrace.status import EVERY_S, FAILED, Status

_COLOURS = {"running": "green", "waiting": "yellow", "failed": "red"}


class View(LiveView):
    def __init__(self, table: Callable[[Sequence[Status]], Table], *, as_json: bool) -> None:
        super().__init__(as_json=as_json, refreshes_per_s=4)
        self._table = table
        self._shown: dict[str, tuple[str, float]] = {}  # what was said last, and when
        self.last: Sequence[Status] = ()

    def show(self, found: Sequence[Status]) -> None:
        self.last = found
        if self._live:
            self._live.update(self._table(found))
            return
        for one in found:
            line = _json_line(one) if self._as_json else _line(one)
            before, at = self._shown.get(one.name, ("", 0.0))
            if line == before and (not self._as_json or time.monotonic() - at < EVERY_S):
                continue
            self._shown[one.name] = (line, time.monotonic())
            if self._as_json:
                click.echo(line)
            elif one.state != FAILED:  # told at the end
                click.echo(line, err=True)
        sys.stdout.flush()


def _line(one: Status) -> str:
    told = [one.text("problem"), letters_of(one)]
    return ": ".join([f"{one.name} is {one.state_text}", *filter(None, ["; ".join(filter(None, told))])])


def _json_line(one: Status) -> str:
    empty = {"records": 0, "per_s": 0.0, "problem": ""}
    hidden = ("kind", "position", *(() if one.text("waiting") else ("waiting",)))
    facts = {name: value for name, value in one.facts.items() if name not in hidden}
    return json.dumps({"name": one.name, **empty, **facts})


def count(one: Status, fact: str) -> str:
    """A number of a part, as tables show it."""
    return f"{one.number(fact) or 0:,.0f}"


def letters_of(one: Status) -> str:
    """The dead letters of a part in a sentence; empty if there are none."""
    return in_words(int(one.facts.get("dead_letters") or 0), one.facts.get("dead_letter_reasons") or {})


def capture_table(found: Sequence[Status]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("capture", "database", "state", "records", "per s", "snapshot", "log kept", "problem"):
        table.add_column(column, justify="right" if column in ("records", "per s", "log kept") else "left")
    for one in found:
        lag = one.facts.get("slot_lag_bytes")
        table.add_row(
            one.name, one.text("kind"), _state(one), count(one, "records"), count(one, "per_s"), one.snapshot,
            "–" if lag is None else human_bytes(lag), one.text("problem"),
        )  # fmt: skip
    return table


def sync_table(found: Sequence[Status]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("system", "sink", "state", "records", "per s", "problem"):
        table.add_column(column, justify="right" if column in ("records", "per s") else "left")
    for one in found:
        said = "; ".join(filter(None, [one.text("problem"), letters_of(one)]))
        table.add_row(one.name, one.text("kind"), _state(one), count(one, "records"), count(one, "per_s"), said)
    return table


def _state(one: Status) -> str:
    return f"[{_COLOURS.get(one.state, 'white')}]{one.state_text}[/]"
