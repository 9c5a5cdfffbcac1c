"""What is there and whether all is well: the overview, the map of the stack, and the alerts."""

from collections.abc import Mapping
from typing import Any

from headrace.dashboard.alerts import Severity
from headrace.dashboard.charts import chart, sparkline
from headrace.dashboard.flow import Edge, Part, flow_of
from headrace.dashboard.history import smooth
from headrace.dashboard.layout import draw
from headrace.dashboard.page import Asked, Desk, Menu, Model, Page
from headrace.dashboard.watch import State

MOST = 6  # topics and groups: the rest have pages of their own


async def view_overview(desk: Desk, _: Asked) -> Model:
    """Is all well, how much flows, who is behind."""
    snapshot, history = desk.snapshot, desk.state.history
    topics = [topic for topic in snapshot.topics.values() if not topic.is_internal]
    rates = {topic.name: smooth(history.topics.get(topic.name, ())) or 0.0 for topic in topics}
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
        "written": smooth(history.written),
        "read": smooth(history.read),
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


def describe_map(state: State) -> Model:
    """Databases, captures, topics, pipelines, views and derived systems, and what flows between them."""
    flow = flow_of(state)
    linked = {end for edge in flow.edges for end in (edge.source, edge.target)}
    drawing = draw(
        tuple((key, part.name) for key, part in sorted(flow.parts.items())),
        tuple(sorted({(edge.source, edge.target) for edge in flow.edges})),
    )
    edges = {(edge.source, edge.target): edge for edge in flow.edges}
    return {
        "drawing": drawing,
        "boxes": [{"box": box, "part": flow.parts[box.key]} for box in drawing.boxes],
        "lines": [{"line": line, "edge": edges[line.source, line.target]} for line in drawing.lines],
        "parts": [_describe_part(flow.parts[box.key], edges, flow.parts) for box in drawing.boxes],
        "is_empty": not linked,
        "alone": sorted(flow.alone),
        "hidden": flow.hidden,
    }


def _describe_part(part: Part, edges: Mapping[tuple[str, str], Edge], parts: Mapping[str, Part]) -> dict[str, Any]:
    """A part in words, for who does not see the drawing, and for small screens."""
    return {
        "part": part,
        "reads": [
            {"part": parts[source], "edge": edge} for (source, target), edge in edges.items() if target == part.key
        ],
        "writes": [parts[target] for source, target in edges if source == part.key],
    }


async def view_map(desk: Desk, _: Asked) -> Model:
    return describe_map(desk.state)


async def view_alerts(desk: Desk, _: Asked) -> Model:
    """Everything that is wrong now, with where to look."""
    alerts, now_ms = desk.state.alerts, desk.state.at_ms
    return {
        "rows": [
            {
                "severity": alert.severity.name.lower(),
                "subject": alert.subject,
                "sentence": alert.sentence,
                "link": alert.link,
                "since_ms": alert.since_ms,
                "ago_ms": max(now_ms - alert.since_ms, 0),
            }
            for alert in alerts
        ],
        "counts": {severity.name.lower(): sum(alert.severity is severity for alert in alerts) for severity in Severity},
    }


OVERVIEW = Page("/", "Overview", "overview.html", view_overview, Menu("Log", "Overview", "o", "overview"))
MAP = Page("/map", "Map", "map.html", view_map, Menu("Processing", "Map", "m", "map"))
ALERTS = Page("/alerts", "Alerts", "alerts.html", view_alerts, Menu("Health", "Alerts", "a", "alerts"))
