"""Topics: all of them, how large and how busy they are."""

from collections.abc import Callable
from typing import Any

from headrace.dashboard.charts import sparkline
from headrace.dashboard.dead_letters import dead_letter_topics
from headrace.dashboard.desk import Desk
from headrace.dashboard.history import smoothed
from headrace.dashboard.page import Asked, Menu, Model, Page, Params
from headrace.dashboard.watch import State

MOST = 500  # rows on the page; the filter finds the others

SORTS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "name": lambda row: row["name"],
    "records": lambda row: -row["records"],
    "size": lambda row: -(row["size_bytes"] or 0),
    "rate": lambda row: -(row["rate"] or 0),
}


def model(state: State, query: Params) -> Model:
    """What the page shows."""
    snapshot, history = state.snapshot, state.history
    assert snapshot is not None
    letters = dead_letter_topics(state)
    wanted, sort = query.get("q", "").strip().lower(), query.get("sort", "name")
    with_internal = query.get("internal") == "1"
    rows = [
        {
            "name": topic.name,
            "is_internal": topic.is_internal,
            "letters": letters.get(topic.name),
            "partitions": len(topic.partitions),
            "replicas": max((len(partition.replicas) for partition in topic.partitions), default=0),
            "is_whole": all(partition.is_whole for partition in topic.partitions),
            "records": topic.records,
            "size_bytes": topic.size_bytes,
            "rate": smoothed(history.topics.get(topic.name, ())),
            "spark": sparkline(history.topics.get(topic.name, ())),
            "groups": sum(topic.name in group.topics for group in snapshot.groups.values()),
        }
        for topic in snapshot.topics.values()
        if (with_internal or not topic.is_internal) and wanted in topic.name.lower()
    ]
    rows.sort(key=lambda row: (SORTS.get(sort, SORTS["name"])(row), row["name"]))
    return {
        "rows": rows[:MOST],
        "found": len(rows),
        "hidden": max(len(rows) - MOST, 0),
        "internal_count": sum(topic.is_internal for topic in snapshot.topics.values()),
        "is_filtered": bool(wanted),
        "q": query.get("q", ""),
        "sort": sort if sort in SORTS else "name",
        "with_internal": with_internal,
    }


async def view(desk: Desk, asked: Asked) -> Model:
    """What the page shows now."""
    return model(desk.state, asked.query)


PAGE = Page("/topics", "Topics", "topics.html", view, Menu("Log", "Topics", "t", "topics"))
