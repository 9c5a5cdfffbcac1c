"""Overview: is all well, how much flows, who is behind."""

from headrace.dashboard.charts import chart, sparkline
from headrace.dashboard.desk import Desk
from headrace.dashboard.history import History, smoothed
from headrace.dashboard.page import Asked, Menu, Model, Page
from headrace.dashboard.snapshot import Snapshot

MOST = 6  # topics and groups: the rest have pages of their own


def model(snapshot: Snapshot, history: History) -> Model:
    """What the page shows."""
    topics = [topic for topic in snapshot.topics.values() if not topic.is_internal]
    rates = {topic.name: smoothed(history.topics.get(topic.name, ())) or 0.0 for topic in topics}
    groups = list(snapshot.groups.values())
    behind = sorted(groups, key=lambda group: (-(group.lag_records or 0), group.name))[:MOST]
    sizes = [topic.size_bytes for topic in topics if topic.size_bytes is not None]
    return {
        "brokers": [
            {"id": node, "address": str(address), "is_controller": node == snapshot.controller}
            for node, address in snapshot.brokers.items()
        ],
        "cluster_id": snapshot.cluster_id,
        "topic_count": len(topics),
        "partition_count": sum(len(topic.partitions) for topic in topics),
        "records": sum(topic.records for topic in topics),
        "size_bytes": sum(sizes) if sizes else None,
        "group_count": len(groups),
        "written": smoothed(history.written),
        "read": smoothed(history.read),
        "lag": sum(group.lag_records or 0 for group in groups) if groups else None,
        "lag_ms": max((group.lag_ms for group in groups if group.lag_ms is not None), default=None),
        "throughput": chart("Throughput", "records/s", [("written", history.written), ("read", history.read)]),
        "lags": chart(
            "Lag",
            "records",
            [(name, history.group_lags.get(name, ())) for name in sorted(group.name for group in behind[:4])],
        ),
        "busiest": [
            {
                "name": topic.name,
                "rate": rates[topic.name],
                "records": topic.records,
                "spark": sparkline(history.topics.get(topic.name, ())),
            }
            for topic in sorted(topics, key=lambda topic: (-rates[topic.name], -topic.records, topic.name))[:MOST]
        ],
        "behind": [
            {
                "name": group.name,
                "state": group.state,
                "lag": group.lag_records,
                "lag_ms": group.lag_ms,
                "spark": sparkline(history.group_lags.get(group.name, ())),
            }
            for group in behind
        ],
    }


async def view(desk: Desk, _: Asked) -> Model:
    """What the page shows now."""
    assert desk.state.snapshot is not None
    return model(desk.state.snapshot, desk.state.history)


PAGE = Page("/", "Overview", "overview.html", view, Menu("Log", "Overview", "o", "overview"))
