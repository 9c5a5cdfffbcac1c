"""What others write about themselves into topics: how a batch of a job went, how a capture or a copy stands. Pure.

Jobs write to `__headrace_progress` (see `headrace.pipelines.jobs.publish`), captures store their positions
(`headrace.connect.offsets`), and copies show theirs as offsets of a group (`headrace.connect.sync.places`). All parts
write how they stand as one JSON object under their own name to a status topic (`headrace.status`), and the last one
counts. What may be in it, all of it optional:

- all: `kind` (`postgres`, `redis`, `view` …), `state` (`running`, `waiting`, `failed` …), `waiting` (for what),
  `problem` (a sentence), `lag_records`, `lag_ms`, `updated_ms`;
- captures: `slot`, `slot_lag_bytes`, `slot_lag_limit_bytes`, `tables`, `snapshot_done`, `snapshot_total`;
- copies: `source`, `target`, `dead_letters`, `dead_letter_reasons` (reason: how many), `dead_letters_topic`, and from a
  comparison `verified_ms`, `differences`;
- views: `rows`, `source`, `url`.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from headrace.client.cluster import Cluster
from headrace.client.errors import OffsetOutOfRange
from headrace.client.fetch import FetchOptions
from headrace.client.offsets import bounds
from headrace.client.reader import ReadRecord, read_records
from headrace.connect.sync.places import owner_of
from headrace.dashboard.snapshot import GroupSample, Snapshot
from headrace.model import TopicPartition
from headrace.status import CAPTURES, DERIVED, VIEWS, named_in

_SECRET_FIELDS = ("password", "secret", "token", "credential")


class Written(NamedTuple):
    """What an output of a job is: `kind` is topic, view or store."""

    kind: str
    name: str
    text: str


@dataclass(frozen=True, slots=True)
class BatchReport:
    """One batch of one output of a job."""

    job: str
    output: str
    batch: int
    at_ms: int  # when the report came
    started_ms: int | None
    rows: int
    input_rate: float
    processing_rate: float
    batch_ms: int
    watermark: str | None
    state_rows: int
    state_bytes: int
    late_rows: int
    lag_records: int | None
    lag_ms: int | None
    places: Mapping[TopicPartition, int] = field(default_factory=dict)
    late_rows_total: int = 0
    writes: Written | None = None
    dead_letter_topics: tuple[str, ...] = ()
    read_rates: Mapping[str, float] = field(default_factory=dict)  # rows a second, of each topic
    dead_letters: int = 0
    dead_letter_reasons: Mapping[str, int] = field(default_factory=dict)

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics that it reads."""
        return tuple(sorted({where.topic for where in self.places}))

    @property
    def name(self) -> str:
        """The job, and its output where it has several."""
        return self.job if self.output == "out" else f"{self.job}.{self.output}"


@dataclass(frozen=True, slots=True)
class Status:
    """The last that something said about itself."""

    name: str
    at_ms: int
    facts: Mapping[str, object]

    def text(self, fact: str) -> str:
        """A fact as text; empty if it was not told."""
        value = self.facts.get(fact)
        return "" if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)

    def number(self, fact: str) -> float | None:
        """A fact as a number; None if it was not told, or is none."""
        value = self.facts.get(fact)
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def batch_report(read: ReadRecord) -> BatchReport | None:
    """What a record of the progress topic says; None if it is of no known shape."""
    found = _object(read.record.value)
    if found is None:
        return None
    try:
        return BatchReport(
            str(found["job"]),
            str(found.get("output") or "out"),
            int(found["batch"]),
            read.record.timestamp,
            instant(found.get("time")),
            int(found.get("rows") or 0),
            float(found.get("input_rate") or 0),
            float(found.get("processing_rate") or 0),
            int(found.get("batch_ms") or 0),
            found.get("watermark"),
            int(found.get("state_rows") or 0),
            int(found.get("state_bytes") or 0),
            int(found.get("late_rows") or 0),
            found.get("lag_records"),
            found.get("lag_ms"),
            _places(found.get("sources") or []),
            int(found.get("late_rows_total") or found.get("late_rows") or 0),  # once the one was the other
            _written(found.get("writes")),
            tuple(str(topic) for topic in found.get("dead_letter_topics") or ()),
            _read_rates(found.get("sources") or []),
            int(found.get("dead_letters") or 0),
            dict(found.get("dead_letter_reasons") or {}),
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def name_of(read: ReadRecord) -> str | None:
    """Whom a record is about: its key or, where that is JSON, the connector in it."""
    if read.record.key is None:
        return None
    described = _object(read.record.key)
    if described is not None:
        return str(described["connector"]) if "connector" in described else None
    return read.record.key.decode(errors="replace")


def status(read: ReadRecord) -> Status | None:
    """What a record of a status topic says; None if it says nothing, or takes back what was said."""
    found, name = _object(read.record.value), name_of(read)
    if found is None or name is None:
        return None
    return Status(name, read.record.timestamp, {fact: _told(fact, value) for fact, value in found.items()})


def own_status(read: ReadRecord) -> Status | None:
    """What a part says of itself; None for what others found out about it."""
    return status(read) if named_in(read.record.key or b"")[1] else None


def found_status(read: ReadRecord) -> Status | None:
    """What others found out about a part: that they did does not mean that it runs."""
    said = None if named_in(read.record.key or b"")[1] else status(read)
    return None if said is None else Status(said.name, 0, said.facts)


def position(read: ReadRecord) -> Status | None:
    """What a stored position says of a capture: where it is, and whether it is still copying what was there before."""
    found, name = _object(read.record.value), name_of(read)
    if found is None or name is None:
        return None
    state = {"state": "snapshot"} if found.get("snapshot") else {}
    place = {fact: value for fact, value in found.items() if isinstance(value, str | int | float)}
    shown = ", ".join(f"{fact} {value}" for fact, value in place.items())
    return Status(name, read.record.timestamp, {"position": shown} | state)


def copy_status(group: GroupSample) -> Status | None:
    """What the offsets of a copy say: how far it is behind; None for a group that is none."""
    name = owner_of(group.name)
    if name is None:
        return None
    facts = {"lag_records": group.lag_records, "lag_ms": group.lag_ms, "source": ", ".join(group.topics)}
    return Status(name, 0, facts)


def merged(*known: Mapping[str, Status]) -> dict[str, Status]:
    """Several tellings of the same things as one; what is told later in the list adds to what is told before it."""
    found: dict[str, Status] = {}
    for statuses in known:
        for name, said in statuses.items():
            before = found.get(name, said)
            facts = {**before.facts, **{fact: value for fact, value in said.facts.items() if value not in (None, "")}}
            found[name] = Status(name, max(before.at_ms, said.at_ms), facts)
    return found


def _told(fact: str, value: object) -> object:
    return "hidden" if any(word in fact.lower() for word in _SECRET_FIELDS) else value


def _object(value: bytes | None) -> dict[str, Any] | None:
    try:
        found = json.loads(value or b"null")
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def instant(text: object) -> int | None:
    """Milliseconds since the epoch, from ISO-8601; None for anything else."""
    try:
        return int(datetime.fromisoformat(str(text)).timestamp() * 1000)
    except ValueError:
        return None


def _places(sources: object) -> dict[TopicPartition, int]:
    found: dict[TopicPartition, int] = {}
    for source in sources if isinstance(sources, list) else []:
        for where, offset in (source.get("offsets") or {}).items():
            partition = TopicPartition.from_folder(where)
            if partition:
                found[partition] = int(offset)
    return found


def _written(found: object) -> Written | None:
    if not isinstance(found, dict):
        return None
    return Written(str(found["kind"]), str(found["name"]), str(found.get("text") or found["name"]))


def _read_rates(sources: object) -> dict[str, float]:
    """The rate of each input; of one that reads several topics nobody knows which came from where."""
    found: dict[str, float] = {}
    for source in sources if isinstance(sources, list) else []:
        topics = {where.topic for where in _places([source])}
        if len(topics) == 1:
            (topic,) = topics
            found[topic] = found.get(topic, 0.0) + float(source.get("input_rate") or 0)
    return found


PROGRESS_TOPIC = "__headrace_progress"
CAPTURES_TOPIC, COPIES_TOPIC, VIEWS_TOPIC = CAPTURES, DERIVED, VIEWS

BATCHES = 120  # remembered of each job
MAX_JOBS = 200
MAX_STATUSES = 500
_AT_FIRST = 5000  # records of each partition to look back at the start
_OPTIONS = FetchOptions(max_wait_ms=200, committed=True)  # a position that was taken back was never one

Jobs = Mapping[tuple[str, str], tuple[BatchReport, ...]]
Statuses = Mapping[str, Mapping[str, Status]]


@dataclass(slots=True)
class TopicFeed:
    """The place that was read up to, in one topic."""

    topic: str
    places: dict[TopicPartition, int] = field(default_factory=dict)

    def news(self, cluster: Cluster, seen: Snapshot) -> list[ReadRecord]:
        """The records since the last look, oldest first."""
        if self.topic not in seen.topics:
            self.places.clear()
            return []
        held = bounds(cluster, cluster.partitions(self.topic), committed=True)
        starts = {}
        for where, bound in held.items():
            place = self.places.get(where, bound.end - _AT_FIRST)
            # An end before our place means that the topic was made anew.
            starts[where] = bound.start if place > bound.end else max(place, bound.start, bound.end - _AT_FIRST)
        ends = {where: bound.end for where, bound in held.items()}
        found: list[ReadRecord] = []
        try:
            for group in read_records(cluster, starts, until=ends, options=_OPTIONS):
                found.extend(group)
        except OffsetOutOfRange:  # removed while we read: the next look begins at what is left
            self.places.clear()
            return found
        self.places = ends
        return found


def with_batches(jobs: Jobs, news: list[ReadRecord]) -> Jobs:
    """What is known of jobs, with these reports; the jobs that were silent longest are forgotten first."""
    found = dict(jobs)
    for read in news:
        report = batch_report(read)
        if report:
            key = (report.job, report.output)
            found[key] = (*found.pop(key, ())[-BATCHES + 1 :], report)
    return dict(list(found.items())[-MAX_JOBS:])


def with_statuses(
    known: Mapping[str, Status], news: list[ReadRecord], telling: Callable[[ReadRecord], Status | None] = status
) -> Mapping[str, Status]:
    """The last status of each name, with these; a record without a value takes its name away."""
    found = dict(known)
    for read in news:
        said, name = telling(read), name_of(read)
        if said:
            found.pop(said.name, None)
            found[said.name] = said
        elif read.record.value is None and name is not None:
            found.pop(name, None)
    return dict(list(found.items())[-MAX_STATUSES:])
