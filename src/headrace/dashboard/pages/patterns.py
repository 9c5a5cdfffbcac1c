"""Patterns: each that a job looks for, with its automaton, what it found, and what it waits for."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from headrace.client.cluster import Cluster
from headrace.client.offsets import Start, StartKind, find_stretch
from headrace.client.reader import ReadRecord, read_records
from headrace.dashboard.charts import chart, sparkline
from headrace.dashboard.errors import NotThere
from headrace.dashboard.history import Point, Series
from headrace.dashboard.page import Asked, Desk, Menu, Model, Page
from headrace.dashboard.pages import records
from headrace.dashboard.reports import BatchReport, PatternReport
from headrace.dashboard.snapshot import Snapshot
from headrace.dashboard.statuses import job_state
from headrace.dashboard.watch import State
from headrace.errors import HeadraceError

SHOWN_MATCHES = 12
MATCHES_SECONDS = 1.0


class Running(NamedTuple):
    """A pattern as its job reports it, batch after batch."""

    name: str
    pattern: PatternReport
    last: BatchReport
    history: tuple[tuple[int, PatternReport], ...]  # each with the time of its report


def running(state: State) -> Iterator[Running]:
    """Every pattern of the latest report of each output."""
    for reports in state.jobs.values():
        last = reports[-1]
        for pattern in last.patterns:
            history = tuple(
                (report.at_ms, one) for report in reports for one in report.patterns if one.name == pattern.name
            )
            yield Running(last.name_of(pattern), pattern, last, history)


def row(found: Running, snapshot: Snapshot, state: State) -> dict[str, Any]:
    """What both pages show of a pattern. It stands as its job does, unless it is paused or failed by itself."""
    pattern, last = found.pattern, found.last
    own = pattern.state if pattern.state != "running" else None
    return {
        "name": found.name,
        "job": last.job,
        "pattern": pattern,
        "last": last,
        "run_state": own or job_state(last, snapshot.waiting(last.places), state),
        "spark": sparkline(_new_matches(found)),
        "ago_ms": max(state.at_ms - last.at_ms, 0),
    }


def _new_matches(found: Running) -> Series:
    """How many each batch brought; after a restart without a checkpoint they are counted anew."""
    return tuple(
        Point(at_ms, float(after.matches - (before.matches if before.matches <= after.matches else 0)))
        for (_, before), (at_ms, after) in pairwise(found.history)
    )


async def view_patterns(desk: Desk, _: Asked) -> Model:
    """Every pattern that a job looks for."""
    rows = [row(found, desk.snapshot, desk.state) for found in running(desk.state)]
    return {"rows": sorted(rows, key=lambda found: found["name"])}


async def view_pattern(desk: Desk, asked: Asked) -> Model:
    """One pattern: its automaton, its counts, the keys with most partial matches, and the latest matches."""
    name = asked.path["name"]
    found = next((one for one in running(desk.state) if one.name == name), None)
    if found is None:
        raise NotThere(f"No pattern {name!r} has been reported: start its job with headrace pipeline run.")
    matches, problem = await _matches(desk, found.last)
    most = max((count for _, count in found.pattern.keys), default=0)
    return {
        **row(found, desk.snapshot, desk.state),
        "matches_chart": chart("Matches", "a batch", [("matches", _new_matches(found))]),
        "partial_chart": chart(
            "Partial matches", "", [("partial", tuple(Point(at_ms, one.partial) for at_ms, one in found.history))]
        ),
        "keys": [
            {"key": key, "partial": count, "share": count / most if most else 0} for key, count in found.pattern.keys
        ],
        "matches": matches,
        "matches_problem": problem,
    }


async def _matches(desk: Desk, last: BatchReport) -> tuple[Sequence[Model], str]:
    """The latest records of the topic that matches are written to, by whichever pattern of the job."""
    written = last.writes
    if written is None or written.kind != "topic" or written.name not in desk.snapshot.topics or desk.state.problem:
        return (), ""
    topic = written.name
    try:
        found = await desk.ask_seldom(("matches", topic), MATCHES_SECONDS, lambda cluster: _latest(cluster, topic))
    except HeadraceError as error:
        return (), str(error)
    return [records.row(read) for read in found], ""


def _latest(cluster: Cluster, topic: str) -> list[ReadRecord]:
    partitions = cluster.partitions(topic)
    stretch = find_stretch(cluster, partitions, Start(StartKind.LAST, SHOWN_MATCHES), committed=True)
    found = [read for group in read_records(cluster, stretch.starts, until=stretch.ends) for read in group]
    return sorted(found, key=lambda read: (read.record.timestamp, read.record.offset), reverse=True)[:SHOWN_MATCHES]


PATTERNS = Page(
    "/patterns", "Patterns", "patterns.html", view_patterns, Menu("Processing", "Patterns", "n", "patterns")
)
PATTERN = Page("/patterns/{name:path}", "Pattern", "pattern.html", view_pattern, parent="/patterns")
