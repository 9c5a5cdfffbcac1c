"""The state of a whole stack as numbers for Prometheus: topics, groups, and how each part is doing. Pure.

A dashboard looks at the cluster anyway, and at what captures, derived systems, pipelines and views report of
themselves: `/metrics` tells what it saw last. It works on any Kafka; our own broker tells more of itself
(`headrace.broker.monitoring`).
"""

from collections.abc import Iterator
from typing import Final

from headrace.dashboard.snapshot import Snapshot
from headrace.dashboard.watch import State
from headrace.status import CAPTURES, DERIVED, EVENTS, GATEWAYS, PIPELINES, SEARCHES, VIEWS
from headrace.telemetry.metrics import (
    GAUGE,
    GROUP_LAG,
    SHARE_IN_FLIGHT,
    SHARE_REDELIVERIES,
    TOPIC_BYTES,
    TOPIC_OFFSETS,
    Family,
    Samples,
    keep_largest,
)

MOST_SERIES: Final = 500
_KINDS: Final = {
    CAPTURES: "capture",
    DERIVED: "derived",
    PIPELINES: "pipeline",
    VIEWS: "view",
    EVENTS: "events",
    GATEWAYS: "gateway",
    SEARCHES: "search",
}
_PART: Final = ("kind", "name")

SEEN = Family("headrace_cluster_seen", GAUGE, "1 if the cluster answered when it was looked at last.")
BROKERS = Family("headrace_cluster_brokers", GAUGE, "Brokers of the cluster.")
ALERTS = Family("headrace_alerts", GAUGE, "Alerts that the dashboard shows.", ("severity",))
PART_STATE = Family("headrace_part_state", GAUGE, "1, with the state of a part as a label.", ("kind", "name", "state"))
PART_LAG = Family("headrace_part_lag_records", GAUGE, "How many records a part is behind.", _PART)
PART_AGE = Family("headrace_part_lag_seconds", GAUGE, "How old the record is that a part handles next.", _PART)
QUEUE_AGE = Family(
    "headrace_queue_oldest_seconds",
    GAUGE,
    "How long the oldest message has waited that a share group has yet to finish; 0 if there is none.",
    ("group", "topic"),
)
QUEUE_DEAD = Family(
    "headrace_queue_dead_letters",
    GAUGE,
    "Dead letters of a share group; an upper bound where there are very many.",
    ("group", "topic"),
)
PART_DEAD = Family("headrace_part_dead_letters", GAUGE, "Records that a part could not process, and kept.", _PART)
PART_DROPPED = Family("headrace_part_dropped", GAUGE, "Records that a gateway dropped since its start.", _PART)
PART_REFUSED = Family("headrace_part_refused", GAUGE, "Inputs that a gateway could not read since its start.", _PART)
FAMILIES: Final = (
    SEEN,
    BROKERS,
    ALERTS,
    TOPIC_BYTES,
    TOPIC_OFFSETS,
    GROUP_LAG,
    SHARE_IN_FLIGHT,
    SHARE_REDELIVERIES,
    QUEUE_AGE,
    QUEUE_DEAD,
    PART_STATE,
    PART_LAG,
    PART_AGE,
    PART_DEAD,
    PART_DROPPED,
    PART_REFUSED,
)
_NUMBERS: Final = (
    (PART_LAG, "lag_records", 1.0),
    (PART_AGE, "lag_ms", 0.001),
    (PART_DEAD, "dead_letters", 1.0),
    (PART_DROPPED, "dropped", 1.0),
    (PART_REFUSED, "refused", 1.0),
)


def collect(state: State, now_ms: int) -> Iterator[Samples]:
    """What was seen last; before that, only that nothing was."""
    snapshot = state.snapshot
    yield Samples(SEEN, [((), int(snapshot is not None and state.problem is None))])
    if snapshot is None:
        return
    yield Samples(BROKERS, [((), len(snapshot.brokers))])
    severities = [alert.severity for alert in state.alerts]
    yield Samples(ALERTS, [((each.name.lower(),), severities.count(each)) for each in sorted(set(severities))])
    sizes, _ = keep_largest(((name, topic.size_bytes or 0) for name, topic in snapshot.topics.items()), MOST_SERIES)
    yield Samples(TOPIC_BYTES, [((name,), size) for name, size in sizes])
    yield Samples(TOPIC_OFFSETS, [((name,), snapshot.topics[name].written) for name, _ in sizes])
    lags: dict[tuple[str, str], float] = {}
    for group in snapshot.groups.values():
        for lag in group.partitions:
            if lag.records is not None:
                key = (group.name, lag.partition.topic)
                lags[key] = lags.get(key, 0) + lag.records
    yield Samples(GROUP_LAG, keep_largest(lags.items(), MOST_SERIES)[0])
    yield from _queues(snapshot)
    yield from _parts(state, now_ms)


def _queues(snapshot: Snapshot) -> Iterator[Samples]:
    """The depth of a queue is the lag of its groups."""
    groups = [((group.name, queue.topic), group) for queue in snapshot.queues.values() for group in queue.groups]
    numbers: dict[Family, list[tuple[tuple[str, str], float | None]]] = {
        SHARE_IN_FLIGHT: [(labels, group.in_flight) for labels, group in groups],
        SHARE_REDELIVERIES: [(labels, group.redeliveries) for labels, group in groups],
        QUEUE_AGE: [
            (labels, (group.age_ms(snapshot.at_ms) or 0) / 1000 if group.depth else 0) for labels, group in groups
        ],
        QUEUE_DEAD: [(labels, group.letters.number if group.letters else None) for labels, group in groups],
    }
    for family, samples in numbers.items():
        known = [(labels, number) for labels, number in samples if number is not None]
        yield Samples(family, keep_largest(known, MOST_SERIES)[0])


def _parts(state: State, now_ms: int) -> Iterator[Samples]:
    parts = [
        ((_KINDS[topic], name), status)
        for topic, statuses in state.statuses.items()
        if topic in _KINDS
        for name, status in sorted(statuses.items())
    ][:MOST_SERIES]
    yield Samples(PART_STATE, [((*labels, status.state_at(now_ms)), 1) for labels, status in parts])
    for family, fact, unit in _NUMBERS:
        known = ((labels, status.number(fact)) for labels, status in parts)
        yield Samples(family, [(labels, number * unit) for labels, number in known if number is not None])
