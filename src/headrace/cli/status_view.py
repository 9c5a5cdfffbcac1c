"""How running parts look: a table that stays in place in a terminal, a line for each change of state in a pipe."""

import json
import sys
import time
from collections.abc import Callable, Sequence

import click
from rich.table import Table
from rich.text import Text

from headrace.cli.output import LiveView, human_bytes, make_table
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
            # The text of an error may be another one at each attempt; what is waited for is the news.
            news = line if self._as_json or not one.text("waiting") else one.state_text + letters_of(one)
            before, at = self._shown.get(one.name, ("", 0.0))
            if news == before and (not self._as_json or time.monotonic() - at < EVERY_S):
                continue
            self._shown[one.name] = (news, time.monotonic())
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
    return f"{one.number(fact) or 0:,.0f}"


def letters_of(one: Status) -> str:
    """The dead letters of a part in a sentence; empty if there are none."""
    return in_words(int(one.facts.get("dead_letters") or 0), one.facts.get("dead_letter_reasons") or {})


def capture_table(found: Sequence[Status]) -> Table:
    return make_table(
        ["capture", "database", "state", ">records", ">per s", "snapshot", ">log kept", "problem"],
        [(*_first(one), one.snapshot, human_bytes(one.number("slot_lag_bytes")), one.text("problem")) for one in found],
        wraps=True,
    )


def sync_table(found: Sequence[Status]) -> Table:
    rows = [(*_first(one), "; ".join(filter(None, [one.text("problem"), letters_of(one)]))) for one in found]
    return make_table(["system", "sink", "state", ">records", ">per s", "problem"], rows, wraps=True)


def follower_table(found: Sequence[Status]) -> Table:
    """Projections and processes of stores of events."""
    rows = [
        (
            one.name,
            one.text("kind"),
            _first(one)[2],
            count(one, "position"),
            count(one, "lag_records"),
            one.text("problem"),
        )
        for one in found
    ]
    return make_table(["name", "kind", "state", ">position", ">behind", "problem"], rows, wraps=True)


def worker_table(found: Sequence[Status]) -> Table:
    rows = [
        (
            one.name,
            one.text("source"),
            *_first(one)[2:],
            count(one, "retried"),
            count(one, "rejected"),
            one.text("problem"),
        )
        for one in found
    ]
    columns = ["worker", "queue", "state", ">done", ">per s", ">retried", ">rejected", "last problem"]
    return make_table(columns, rows, wraps=True)


def gateway_table(found: Sequence[Status]) -> Table:
    rows = [
        (
            *_first(one),
            one.text("source"),
            one.text("target"),
            count(one, "dropped"),
            count(one, "refused"),
            human_bytes(lag) if (lag := one.number("lag_bytes")) is not None else count(one, "lag_records"),
            one.text("problem"),
        )
        for one in found
    ]
    columns = [
        "gateway",
        "kind",
        "state",
        ">records",
        ">per s",
        "from",
        "to",
        ">dropped",
        ">refused",
        ">behind",
        "problem",
    ]
    return make_table(columns, rows, wraps=True)


def search_table(found: Sequence[Status]) -> Table:
    rows = [
        (
            *_first(one),
            count(one, "hits"),
            count(one, "queries"),
            count(one, "lag_records"),
            one.text("target"),
            one.text("problem"),
        )
        for one in found
    ]
    columns = ["search", "kind", "state", ">documents", ">per s", ">hits", ">queries", ">behind", "hits to", "problem"]
    return make_table(columns, rows, wraps=True)


def _first(one: Status) -> tuple[object, ...]:
    state = Text(one.state_text, style=_COLOURS.get(one.state, "white"))
    return one.name, one.text("kind"), state, count(one, "records"), count(one, "per_s")
