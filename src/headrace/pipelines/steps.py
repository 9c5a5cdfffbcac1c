"""What a start of Spark is doing, step by step: a minute of silence looks like a hang.

`session` and the runner of jobs report steps; whoever shows them decides how. For a session that a script starts
itself they are shown here: a spinner in a terminal, one line a step elsewhere, and nothing in a notebook, whose cells
are for results, or with `HEADRACE_PROGRESS=0`.
"""

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import click
from rich.console import Console, ConsoleRenderable, RichCast
from rich.spinner import Spinner
from rich.status import Status

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

Report = Callable[[str], None]
SWITCH: Final = "HEADRACE_PROGRESS"

# What `StreamingQuery.status` says, by how it begins.
_MEANINGS: Final = (
    ("Initializing", "opening its sources"),
    ("Getting offsets", "asking its topics for new records"),
    ("Waiting for data", "waiting for records"),
    ("Waiting for next trigger", "waiting for its next trigger"),
)


class StepLine:
    """A step in a terminal: a spinner, the words, and for how long it has been at it."""

    def __init__(self, step: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.step = step
        self._clock = clock
        self._since_s = clock()
        self._spinner = Spinner("dots")

    def __rich__(self) -> ConsoleRenderable | RichCast | str:
        """The line as it looks now."""
        self._spinner.update(text=f"{self.step} ({self._clock() - self._since_s:.0f} s)")
        return self._spinner


def say_nothing(step: str) -> None:
    """A report that nobody wants."""


@contextmanager
def shown_steps() -> Iterator[Report]:
    """Show the steps of a session on standard error, as fits what that is."""
    if os.environ.get(SWITCH) == "0" or "ipykernel" in sys.modules:
        yield say_nothing
    elif sys.stderr.isatty():
        with Status("", console=Console(stderr=True, highlight=False)) as status:
            yield lambda step: status.update(StepLine(f"spark: {step}"))
    else:
        yield lambda step: click.echo(f"spark: {step}", err=True)


def step_of(query: "StreamingQuery", context: Any) -> str:
    """What a query is doing that has not finished a batch yet."""
    message = str(query.status["message"])
    for beginning, meaning in _MEANINGS:
        if message.startswith(beginning):
            return meaning
    tracker = context.statusTracker()
    stages = [info for number in tracker.getActiveStageIds() if (info := tracker.getStageInfo(number))]
    if not stages:
        return "planning its first batch"
    if not any(stage.numCompletedTasks for stage in stages):
        return "running its first batch, for which Python workers start"
    done, total = sum(stage.numCompletedTasks for stage in stages), sum(stage.numTasks for stage in stages)
    return f"running its first batch, {done} of {total} tasks done"
