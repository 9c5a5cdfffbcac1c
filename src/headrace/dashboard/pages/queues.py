"""Queues: topics that share groups have, how much waits in them, and each by itself over the last minutes."""

from collections.abc import Sequence
from typing import Any

from headrace.dashboard.charts import Chart, chart, sparkline
from headrace.dashboard.history import AGE, DEPTH, IN_FLIGHT, LETTERS, REDELIVERIES, History, smooth
from headrace.dashboard.page import Asked, Desk, Menu, Model, Page, find_in
from headrace.queues.overview import Queue, QueueGroup

MOST = 500
_LINES = 4  # as many as there are colours
_CHARTS = (
    (DEPTH, "Depth", "messages"),
    (AGE, "Oldest message", "seconds"),
    (IN_FLIGHT, "In flight", "messages"),
    (REDELIVERIES, "Redelivered", "messages/s"),
    (LETTERS, "Dead letters", "messages"),
)


def row(queue: Queue, group: QueueGroup | None, history: History, now_ms: int) -> dict[str, Any]:
    """A line of a table: a group of a queue, or a queue that no group has yet."""
    if group is None:
        return {"queue": queue.topic, "group": None, "key": queue.topic}
    series = history.queues.get((queue.topic, group.name), {})
    return {
        "queue": queue.topic,
        "group": group.name,
        "key": f"{queue.topic} {group.name}",
        "state": group.state,
        "members": group.members,
        "depth": group.depth,
        "age_ms": group.age_ms(now_ms) if group.depth else 0,
        "in_flight": group.in_flight,
        "redeliveries": group.redeliveries,
        "redelivered": smooth(series.get(REDELIVERIES, ())),
        "letters": group.letters,
        "spark": sparkline(series.get(DEPTH, ())),
    }


async def view_queues(desk: Desk, asked: Asked) -> Model:
    """All queues with their groups: depth, oldest message, what is in flight, what came again, dead letters."""
    snapshot, query = desk.snapshot, asked.query
    wanted = query.get("q", "").strip().lower()
    found = [queue for queue in snapshot.queues.values() if wanted in queue.topic.lower()]
    rows = [
        row(queue, group, desk.state.history, snapshot.at_ms)
        for queue in found[:MOST]
        for group in queue.groups or (None,)
    ]
    return {"rows": rows, "found": len(found), "q": query.get("q", ""), "is_filtered": bool(wanted)}


async def view_queue(desk: Desk, asked: Asked) -> Model:
    """One queue over the last minutes: a line a group."""
    snapshot, history, name = desk.snapshot, desk.state.history, asked.path["name"]
    queue = find_in(snapshot.queues, "queue", name)
    return {
        "name": name,
        "rows": [row(queue, group, history, snapshot.at_ms) for group in queue.groups],
        "charts": _charts(queue.groups, history, name),
    }


def _charts(groups: Sequence[QueueGroup], history: History, name: str) -> list[Chart]:
    shown = groups[:_LINES]
    named = {fact: [(group.name, history.queues.get((name, group.name), {}).get(fact, ())) for group in shown]
             for fact, _, _ in _CHARTS}  # fmt: skip
    # What no group tells, such as dead letters where none are kept, has no drawing of its own.
    return [chart(title, unit, named[fact]) for fact, title, unit in _CHARTS if any(line for _, line in named[fact])]


QUEUES = Page("/queues", "Queues", "queues.html", view_queues, Menu("Log", "Queues", "q", "queues"))
QUEUE = Page("/queues/{name:path}", "Queue", "queue.html", view_queue, parent="/queues")
