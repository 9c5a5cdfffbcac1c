"""`headrace status` and `headrace top`: a stack as it is now, once or live: processes, rates and lags."""

import os
import select
import sys
import termios
import time
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self, cast

import click
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from headrace.cli.output import (
    console,
    human_bytes,
    human_count,
    human_duration,
    json_option,
    make_table,
    print_json,
    print_table,
)
from headrace.cli.up import file_option
from headrace.client.address import parse_bootstrap
from headrace.client.connection import ConnectionSettings
from headrace.clock import SystemClock
from headrace.dashboard.history import smooth
from headrace.dashboard.settings import Settings
from headrace.dashboard.watch import State, Watch
from headrace.errors import HeadraceError
from headrace.stack.errors import StackError
from headrace.stack.kinds.broker import connection_environment
from headrace.stack.loading import load
from headrace.stack.overview import Row, member_row, pace, topic_rows
from headrace.stack.state_file import MemberState, StackState, read
from headrace.stack.usage import Usage, processes, usage_of
from headrace.telemetry import logs

_COLOURS = {"running": "green", "done": "green", "failed": "red", "down": "red"}


def state_of(config: Path) -> StackState:
    """The state of a file's stack; one that never ran is told how to."""
    folder = config.absolute().parent
    state = read(folder)
    if state is None:
        raise StackError(f"the stack of {folder} does not run: start it with headrace up")
    return state


def colour_phase(phase: str) -> Text:
    """A phase: green where all is well, red where nothing will come of itself."""
    return Text(phase, style=_COLOURS.get(phase, "yellow"))


@click.command()
@file_option
@json_option
def status(config: Path, as_json: bool) -> None:
    """Show how each part of the stack stands: its process, since when, how often it was started again, what is wrong.

    Ends with 0 if every part runs or is done, and with 1 if one does not: starting, waiting, failed, or down.
    """
    state = state_of(config)
    if as_json:
        print_json({**asdict(state), "fine": state.is_fine})
    else:
        now_ms = SystemClock().now_ms()
        print_table(
            ["part", "state", ">pid", ">for", ">restarts", ">per s", ">lag", ">lag in time", "note"],
            [_row(member, now_ms) for member in state.members],
        )
    sys.exit(0 if state.is_fine else 1)


def _row(member: MemberState, now_ms: int) -> tuple[object, ...]:
    per_s, lag, lag_ms = pace(member.facts)
    return (
        member.name,
        colour_phase(member.phase),
        member.pid or "–",
        human_duration(max(now_ms - member.since_ms, 0)),
        member.restarts,
        human_count(per_s),
        human_count(lag),
        human_duration(lag_ms),
        member.note or str(member.facts.get("url", "")),
    )


_TOPICS = 8
_ALERTS = 3
_FIRST_LOOK_S = 60.0  # a busy machine's; a broker that is away is known to be long before


@click.command()
@file_option
@click.option(
    "--every", "interval_s", type=click.FloatRange(0.2, 60), default=1.0, show_default=True,
    help="How often to look, in seconds.",
)  # fmt: skip
def top(config: Path, interval_s: float) -> None:
    """Show the stack live: processes with processor and memory, records a second, lags, topics, alerts; q ends.

    In a pipe it looks twice, prints what it saw, and ends.
    """
    logs.configure(level="error")  # a broker that is away is shown, not logged into the picture
    os.environ.update(_connection(config))
    looks = _Looks(config, interval_s)
    with looks:
        if not sys.stdout.isatty() or not sys.stdin.isatty():
            looks.look()
            time.sleep(interval_s)
            looks.wait_for_cluster()
            console().print(looks.look())
            return
        with (
            _single_keys(),
            Live(looks.look(), console=Console(highlight=False), screen=True, refresh_per_second=4) as live,
        ):
            while not _is_q_pressed(interval_s):
                live.update(looks.look())


def _connection(config: Path) -> dict[str, str]:
    """How the stack reaches its Kafka; a file that is wrong by now does not hinder a look at what runs."""
    try:
        stack = load(config, explore=False)
        state = read(stack.folder)
        return connection_environment(stack, state.bootstrap if state else "")
    except HeadraceError:
        return {}


class _Looks:
    """Looks at a stack again and again, and remembers the last time."""

    def __init__(self, config: Path, interval_s: float) -> None:
        self._config = config
        self._interval_s = interval_s
        self._watch: Watch | None = None
        self._bootstrap = ""
        self._before: tuple[float, dict[int, Usage]] = (0.0, {})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._watch:
            self._watch.stop()

    def look(self) -> RenderableType:
        state = state_of(self._config)
        self._follow(state.bootstrap)
        now_s = time.monotonic()
        used = usage_of([member.pid for member in state.members if member.pid], processes())
        then_s, before = self._before
        self._before = now_s, used
        seen = self._watch.state if self._watch else None
        rows = [member_row(member, before, used, now_s - then_s, seen) for member in state.members]
        return picture(state, rows, seen, SystemClock().now_ms())

    def wait_for_cluster(self) -> None:
        """Until the cluster was seen once, or why it cannot be is known."""
        deadline = time.monotonic() + _FIRST_LOOK_S
        while self._watch and self._watch.state.version == 0 and time.monotonic() < deadline:
            time.sleep(0.02)

    def _follow(self, bootstrap: str) -> None:
        """Watch the cluster, once it is known where it is; the stack may be started anew elsewhere."""
        if bootstrap == self._bootstrap:
            return
        if self._watch:
            self._watch.stop()
        self._bootstrap = bootstrap
        # Only pages read texts that people write.
        settings = Settings(
            parse_bootstrap(bootstrap),
            cast(Any, None),
            interval_s=max(self._interval_s, 1.0),
            connection=ConnectionSettings(client_id="headrace-top"),
        )
        self._watch = Watch(settings)
        self._watch.start()


def picture(state: StackState, rows: list[Row], seen: State | None, now_ms: int) -> Group:
    """All of it: a line about the whole, the members, the topics, the alerts."""
    parts: list[RenderableType] = [_headline(state, seen, now_ms), "", _members(rows, now_ms)]
    if seen is not None and seen.problem is not None:
        parts += ["", Text(seen.problem.sentence, style="red")]
    if seen is not None and seen.snapshot is not None:
        parts += ["", _topics(seen)]
        parts += ["", *(Text(alert.sentence, style="yellow") for alert in seen.alerts[:_ALERTS])] if seen.alerts else []
    return Group(*parts)


def _headline(state: StackState, seen: State | None, now_ms: int) -> Text:
    line = Text.assemble((Path(state.file).name, "bold"), f" on {state.bootstrap or '…'}")
    line.append(f", for {human_duration(max(now_ms - state.since_ms, 0))}")
    if seen is not None and seen.snapshot is not None:
        for word, series in (("written", seen.history.written), ("read", seen.history.read)):
            rate = smooth(series)
            line.append("" if rate is None else f"   {rate:,.0f}/s {word}")
        behind = seen.history.lag[-1].value if seen.history.lag else 0
        line.append(f"   {behind:,.0f} behind")
    return line


def _members(rows: list[Row], now_ms: int) -> Table:
    columns = ["part", "state", ">pid", ">cpu", ">memory", ">per s", ">behind", ">waits", ">restarts", ">for", "note"]
    return make_table(columns, [_member(row, now_ms) for row in rows])


def _member(row: Row, now_ms: int) -> tuple[object, ...]:
    member = row.member
    return (
        member.name,
        colour_phase(member.phase),
        member.pid or "–",
        "–" if row.cpu_share is None else f"{row.cpu_share:.0%}",
        human_bytes(row.memory_bytes),
        human_count(row.per_s),
        human_count(row.lag_records),
        human_duration(row.lag_ms),
        member.restarts,
        human_duration(max(now_ms - member.since_ms, 0)),
        Text(member.note),
    )


def _topics(seen: State) -> Table:
    rows = [
        (row.name, human_count(row.per_s), human_count(row.records), human_bytes(row.size_bytes))
        for row in topic_rows(seen, _TOPICS)
    ]
    return make_table(["topic", ">per s", ">records", ">size"], rows)


@contextmanager
def _single_keys() -> Iterator[None]:
    """Keys are heard at once, without the return key; Ctrl-C stays what it is."""
    before = termios.tcgetattr(sys.stdin)
    tty.setcbreak(sys.stdin)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def _is_q_pressed(within_s: float) -> bool:
    try:
        ready, _, _ = select.select([sys.stdin], [], [], within_s)
        return bool(ready) and sys.stdin.read(1) in ("q", "Q")
    except KeyboardInterrupt:
        return True
