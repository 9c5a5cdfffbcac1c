"""Topics: all of them, how large and how busy they are."""

from collections.abc import Callable
from typing import Any

from headrace.dashboard.charts import sparkline
from headrace.dashboard.desk import Desk
from headrace.dashboard.history import History, smoothed
from headrace.dashboard.page import Asked, Menu, Model, Page, Params
from headrace.dashboard.snapshot import Snapshot

MOST = 500  # rows on the page; the filter finds the others

SORTS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "name": lambda row: row["name"],
    "records": lambda row: -row["records"],
    "size": lambda row: -(row["size_bytes"] or 0),
    "rate": lambda row: -(row["rate"] or 0),
}


def model(snapshot: Snapshot, history: History, query: Params) -> Model:
    """What the page shows."""
    wanted, sort = query.get("q", "").strip().lower(), query.get("sort", "name")
    with_internal = query.get("internal") == "1"
    rows = [
        {
            "name": topic.name,
            "is_internal": topic.is_internal,
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
    assert desk.state.snapshot is not None
    return model(desk.state.snapshot, desk.state.history, asked.query)


PAGE = Page("/topics", "Topics", "topics.html", view, Menu("Log", "Topics", "t", "topics"))
