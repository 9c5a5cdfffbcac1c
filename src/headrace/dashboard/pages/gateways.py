"""Gateways: what comes in from programs that speak no Kafka, what goes out to them, and what was lost on the way; of
one that adds up metrics, the series and their last values.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from headrace.client.cluster import Cluster
from headrace.client.offsets import Start, StartKind, find_stretch
from headrace.client.reader import ReadRecord, read_records
from headrace.dashboard.charts import sparkline
from headrace.dashboard.errors import NotThere
from headrace.dashboard.history import Point
from headrace.dashboard.page import Asked, Desk, Menu, Model, Page, find_in
from headrace.dashboard.statuses import row
from headrace.errors import HeadraceError
from headrace.status import GATEWAYS, Status

STATSD: Final = "statsd"
MOST_SERIES: Final = 200  # on the page; the filter finds the others
MOST_READ: Final = 10_000  # records, over all partitions
READ_SECONDS: Final = 3.0
# What a line is drawn of, for each type of metric, and what stands beside its last number.
_DRAWN: Final = {"counter": "rate", "gauge": "value", "set": "count", "timer": "mean"}
_BESIDE: Final = {"counter": ("value",), "timer": ("count", "lower", "upper")}
_NUMBERS: Final = ("records", "per_s", "received", "dropped", "refused", "connections", "lag_records", "lag_bytes")
# What stands in a column of its own, or says nothing to people.
_HIDDEN: Final = {*_NUMBERS, "bytes"}


async def view_gateways(desk: Desk, _: Asked) -> Model:
    """What every gateway last reported of itself, and the topics that there are to link to."""
    state = desk.state
    topics = state.snapshot.topics if state.snapshot else {}
    found = sorted(state.statuses.get(GATEWAYS, {}).items())
    return {"rows": [_gateway(status, state.at_ms, topics) for _, status in found], "topic": GATEWAYS}


def _gateway(status: Status, now_ms: int, topics: Any) -> dict[str, Any]:
    made = row(status, now_ms)
    ends = {end: {"text": made[end], "is_topic": made[end] in topics} for end in ("source", "target")}
    others = {fact.replace("_", " "): said for fact, said in made["others"].items() if fact not in _HIDDEN}
    has_series = status.text("kind") == STATSD
    numbers = {name: status.number(name) for name in _NUMBERS}
    return {**made, **numbers, **ends, "others": others, "has_series": has_series}


async def view_series(desk: Desk, asked: Asked) -> Model:
    """The series that a gateway of StatsD wrote last."""
    name, wanted = asked.path["name"], asked.query.get("q", "").strip().lower()
    status = find_in(desk.state.statuses.get(GATEWAYS, {}), "gateway", name)
    if status.text("kind") != STATSD:
        raise NotThere(f"The gateway {name!r} adds up no metrics: its records are on the page of its topic.")
    topic = status.text("target")
    found: list[dict[str, Any]] = []
    problem = ""
    if desk.state.snapshot is not None and topic in desk.snapshot.topics:
        try:
            found = await desk.ask_seldom(("series", topic), READ_SECONDS, lambda cluster: _read(cluster, topic))
        except HeadraceError as error:
            problem = str(error)
    chosen = [each for each in found if wanted in each["key"].lower()]
    return {
        "gateway": row(status, desk.state.at_ms),
        "topic": topic,
        "rows": chosen[:MOST_SERIES],
        "found": len(chosen),
        "hidden": max(len(chosen) - MOST_SERIES, 0),
        "q": asked.query.get("q", ""),
        "problem": problem,
    }


def _read(cluster: Cluster, topic: str) -> list[dict[str, Any]]:
    partitions = cluster.partitions(topic)
    start = Start(StartKind.LAST, MOST_READ // max(len(partitions), 1))
    stretch = find_stretch(cluster, partitions, start, committed=True)
    return series_of(read for group in read_records(cluster, stretch.starts, until=stretch.ends) for read in group)


def series_of(records: Iterable[ReadRecord]) -> list[dict[str, Any]]:
    """Series by type and key, each with its last numbers and a line of those before; what is no metric is left out."""
    found: dict[tuple[str, str], dict[int, Mapping[str, Any]]] = {}
    for read in records:
        metric = _metric(read.record.value)
        if metric is not None:
            key = (read.record.key or b"").decode(errors="replace")
            found.setdefault((key, metric["type"]), {})[metric["end_ms"]] = metric
    return [_series(key, kind, held) for (key, kind), held in sorted(found.items())]


def _metric(value: bytes | None) -> Mapping[str, Any] | None:
    """A summary of an interval; a value with a time of its own, an event or anybody else's record is none."""
    try:
        held = json.loads(value or b"")
    except (ValueError, RecursionError):
        return None
    is_one = isinstance(held, dict) and isinstance(held.get("type"), str) and held["type"] in _DRAWN
    return held if is_one and isinstance(held.get("end_ms"), int) and isinstance(held.get("name"), str) else None


def _series(key: str, kind: str, held: Mapping[int, Mapping[str, Any]]) -> dict[str, Any]:
    drawn = _DRAWN[kind]
    points = [Point(at, number) for at, each in sorted(held.items()) if (number := _number(each, drawn)) is not None]
    at_ms, last = max(held.items())
    tags = last.get("tags")
    percentiles = sorted(name for name in last if name.startswith("upper_"))
    shown = (*_BESIDE.get(kind, ()), *percentiles)
    return {
        "key": key,
        "name": last["name"],
        "tags": [f"{tag}:{value}" if value else tag for tag, value in tags.items()] if isinstance(tags, dict) else [],
        "type": kind,
        "drawn": drawn,
        "last": _number(last, drawn),
        "beside": {name.replace("_", " "): _number(last, name) for name in shown},
        "spark": sparkline(tuple(points)),
        "at_ms": at_ms,
    }


def _number(metric: Mapping[str, Any], name: str) -> float | None:
    value = metric.get(name)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


GATEWAYS_PAGE = Page(
    "/gateways", "Gateways", "gateways.html", view_gateways, Menu("Processing", "Gateways", "w", "gateways")
)
SERIES = Page("/gateways/{name}", "Metrics", "series.html", view_series, parent="/gateways")
