"""`headrace status`: how the stack of a folder stands."""

import sys
from dataclasses import asdict
from pathlib import Path

import click
from rich.text import Text

from headrace.cli.output import human_duration, json_option, print_json, print_table
from headrace.cli.up import config_option
from headrace.clock import SystemClock
from headrace.stack.errors import StackError
from headrace.stack.overview import pace
from headrace.stack.state_file import MemberState, StackState, read

_COLOURS = {"running": "green", "done": "green", "failed": "red", "down": "red"}


def state_of(config: Path) -> StackState:
    """The state of a file's stack; one that never ran is told how to."""
    folder = config.absolute().parent
    state = read(folder)
    if state is None:
        raise StackError(f"the stack of {folder} does not run: start it with headrace up")
    return state


def coloured(phase: str) -> Text:
    """A phase: green where all is well, red where nothing will come of itself."""
    return Text(phase, style=_COLOURS.get(phase, "yellow"))


@click.command()
@config_option
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
        coloured(member.phase),
        member.pid or "–",
        human_duration(max(now_ms - member.since_ms, 0)),
        member.restarts,
        "–" if per_s is None else f"{per_s:,.0f}",
        "–" if lag is None else f"{lag:,}",
        "–" if lag_ms is None else human_duration(lag_ms),
        member.note or str(member.facts.get("url", "")),
    )
