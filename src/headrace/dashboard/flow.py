"""What flows where: parts and the edges between them, from what each part reports that it reads and writes. Pure.

Captures report their database and their topics, jobs their inputs and outputs, derived systems and consumers commit
offsets. Nothing is guessed from names: a topic whose writer reports nothing begins the flow, and an edge whose rate
cannot be told from others has none.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from urllib.parse import quote

from headrace.connect.sync.places import group_of, owner_of
from headrace.dashboard.alerts import group_link, is_growing, job_link, topic_link
from headrace.dashboard.format import short
from headrace.dashboard.history import smooth
from headrace.dashboard.reports import BatchReport
from headrace.dashboard.snapshot import GroupSample, Snapshot
from headrace.dashboard.statuses import dead_letter_topics, job_state, join_served, row, tone
from headrace.dashboard.watch import State
from headrace.status import CAPTURES, DERIVED, VIEWS

MOST = 200  # parts; more cannot be read in a drawing


@dataclass(frozen=True, slots=True)
class Part:
    key: str
    kind: str  # as people call it
    name: str
    state: str  # a word, or a rate for what has no state
    tone: str
    link: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Edge:
    """What flows from one part to another; None where it is not known."""

    source: str
    target: str
    per_s: float | None = None
    lag_records: int | None = None
    lag_ms: float | None = None
    is_growing: bool = False


@dataclass(slots=True)
class Flow:
    parts: dict[str, Part] = field(default_factory=dict)
    edges: list[Edge] = field(default_factory=list)
    alone: list[str] = field(default_factory=list)  # topics that nobody is known to read or write
    hidden: int = 0  # parts beyond `MOST`

    def add(self, part: Part) -> str:
        return self.parts.setdefault(part.key, part).key


def flow_of(state: State) -> Flow:
    """The parts of a stack and what flows between them, as far as they reported."""
    flow = Flow()
    if state.snapshot is None:
        return flow
    views = join_served(state.statuses.get(VIEWS, {}), state.at_ms)
    kept = {
        reports[-1].writes.name: key
        for key, reports in state.jobs.items()
        if reports[-1].writes and reports[-1].writes.kind == "view"
    }
    _captures(flow, state)
    _jobs(flow, state)
    for name, status in views.items():
        found = row(status, state.at_ms)
        part = Part(f"view:{name}", "view", name, found["state"], tone(found["state"]), f"/views#{quote(name)}")
        flow.add(part)
        if name not in kept:
            for topic in (one.strip() for one in status.text("source").split(",")):
                if topic in state.snapshot.topics:
                    lag = status.number("lag_records")
                    flow.edges.append(
                        Edge(
                            _topic(topic), part.key,
                            lag_records=None if lag is None else int(lag), lag_ms=status.number("lag_ms"),
                        )
                    )  # fmt: skip
    _add_derived(flow, state)
    _groups(flow, state)
    _topics(flow, state)
    return _limit(flow)


def _topic(name: str) -> str:
    return f"topic:{name}"


def _captures(flow: Flow, state: State) -> None:
    for status in state.statuses.get(CAPTURES, {}).values():
        found = row(status, state.at_ms)
        link = f"/changes#{quote(status.name)}"
        kind = f"capture of {found['kind']}" if found["kind"] else "capture"
        capture = flow.add(
            Part(f"capture:{status.name}", kind, status.name, found["state"], tone(found["state"]), link)
        )
        database = status.text("database")
        if database:
            source = flow.add(Part(f"database:{database}", "database", database, found["kind"], "idle", link))
            flow.edges.append(Edge(source, capture, status.number("per_s"), None, status.number("lag_ms")))
        for topic in found["topics"]:
            flow.edges.append(Edge(capture, _topic(topic)))


def _jobs(flow: Flow, state: State) -> None:
    assert state.snapshot is not None
    for key, reports in state.jobs.items():
        last = reports[-1]
        word = job_state(last, state.snapshot.waiting(last.places), state)
        if last.writes and last.writes.kind == "view":
            reader = f"view:{last.writes.name}"
            flow.add(Part(reader, "view", last.writes.name, word, tone(word), f"/views#{quote(last.writes.name)}"))
        else:
            reader = flow.add(Part(f"job:{last.job}", "pipeline", last.job, word, tone(word), job_link(last.job)))
        for topic in last.topics:
            flow.edges.append(
                Edge(
                    _topic(topic), reader,
                    last.read_rates.get(topic), _waiting(last, topic, state.snapshot),
                    state.job_ages_ms.get(key, {}).get(topic),
                )
            )  # fmt: skip
        if last.writes and last.writes.kind == "topic":
            flow.edges.append(Edge(reader, _topic(last.writes.name)))
        elif last.writes and last.writes.kind == "store":
            store = Part(f"store:{last.writes.text}", "store", last.writes.text, "", "idle", job_link(last.job))
            flow.edges.append(Edge(reader, flow.add(store)))
        for topic in last.dead_letter_topics:
            flow.edges.append(Edge(reader, _topic(topic)))


def _waiting(last: BatchReport, topic: str, snapshot: Snapshot) -> int | None:
    return snapshot.waiting({where: offset for where, offset in last.places.items() if where.topic == topic})


def _add_derived(flow: Flow, state: State) -> None:
    assert state.snapshot is not None
    for status in state.statuses.get(DERIVED, {}).values():
        found = row(status, state.at_ms)
        kind = f"derived system, {found['kind']}" if found["kind"] else "derived system"
        part = Part(
            f"sync:{status.name}", kind, status.name, found["state"], tone(found["state"]),
            f"/derived#{quote(status.name)}", found["target"],
        )  # fmt: skip
        flow.add(part)
        group = state.snapshot.groups.get(group_of(status.name))
        if group:
            flow.edges += _reads(group, part.key, state)


def _groups(flow: Flow, state: State) -> None:
    assert state.snapshot is not None
    for group in state.snapshot.groups.values():
        if owner_of(group.name) is None and group.topics:
            word = group.state or "unknown"
            part = Part(f"group:{group.name}", "consumer group", group.name, word, tone(word), group_link(group.name))
            flow.add(part)
            flow.edges += _reads(group, part.key, state)


def _reads(group: GroupSample, key: str, state: State) -> Iterator[Edge]:
    ages = group.ages_ms()
    rate = smooth(state.history.group_reads.get(group.name, ()))
    growing = is_growing(state.history.group_lags.get(group.name, ()))
    for topic in group.topics:
        parts = [lag for lag in group.partitions if lag.partition.topic == topic]
        known = [lag.records for lag in parts if lag.records is not None]
        times = [ages[lag.partition] for lag in parts if lag.partition in ages]
        yield Edge(
            _topic(topic), key, rate if len(group.topics) == 1 else None,
            sum(known) if known else None, max(times, default=None), growing,
        )  # fmt: skip


def _topics(flow: Flow, state: State) -> None:
    """The topics that edges name; one that does not exist is not drawn, unless something is said to write to it."""
    snapshot = state.snapshot
    assert snapshot is not None
    letters = dead_letter_topics(state)
    for name in letters:
        for writer in letters[name].syncs:
            if f"sync:{writer}" in flow.parts:
                flow.edges.append(Edge(f"sync:{writer}", _topic(name)))
    there = {_topic(name) for name in snapshot.topics} | flow.parts.keys()
    flow.edges = [edge for edge in flow.edges if edge.source in there and edge.target in there]
    named = {end for edge in flow.edges for end in (edge.source, edge.target)}
    writers = Counter(edge.target for edge in flow.edges)
    rates = {name: smooth(state.history.topics.get(name, ())) for name in snapshot.topics}
    for name, topic in snapshot.topics.items():
        if _topic(name) in named:
            is_dead = name in letters
            word, kind_tone = f"{short(rates[name])} records/s", "idle"
            if is_dead:
                word = f"{short(topic.records)} {'record' if topic.records == 1 else 'records'}"
                kind_tone = "warn" if topic.records else "idle"
            if any(partition.leader < 0 for partition in topic.partitions):
                word, kind_tone = "no leader", "bad"
            kind = "dead letters" if is_dead else "topic"
            flow.add(Part(_topic(name), kind, name, word, kind_tone, topic_link(name)))
        elif not topic.is_internal:
            flow.alone.append(name)
    # What one part alone writes to a topic is the topic's rate.
    flow.edges = [
        Edge(edge.source, edge.target, rates.get(edge.target.removeprefix("topic:")))
        if edge.target.startswith("topic:") and writers[edge.target] == 1
        else edge
        for edge in flow.edges
    ]


def _limit(flow: Flow) -> Flow:
    if len(flow.parts) > MOST:
        flow.hidden = len(flow.parts) - MOST
        flow.parts = dict(list(flow.parts.items())[:MOST])
        flow.edges = [edge for edge in flow.edges if edge.source in flow.parts and edge.target in flow.parts]
    return flow
