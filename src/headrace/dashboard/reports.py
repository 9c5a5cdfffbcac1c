"""What others write about themselves into topics: how a batch of a job went, where a capture is, how far a copy is.

Jobs write to `__headrace_progress` (see `headrace.pipelines.jobs.publish`), captures store their positions
(`headrace.connect.delivery`), copies show theirs as offsets of a group (`headrace.connect.sync.places`), and all parts
report their status (`headrace.status`). Pure.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from headrace.cep.pictures.diagram import Diagram, from_json
from headrace.client.reader import ReadRecord
from headrace.connect.sync.places import owner_of
from headrace.dashboard.snapshot import GroupSample
from headrace.model import TopicPartition
from headrace.status import Status, json_object, name_in


class Written(NamedTuple):
    """What an output of a job is: `kind` is topic, view or store."""

    kind: str
    name: str
    text: str


@dataclass(frozen=True, slots=True)
class PatternReport:
    """How a pattern of a job stands: counts since its checkpoint began, and what is partial now."""

    name: str  # empty for the only one of its job
    version: str | None
    state: str
    problem: str | None
    matches: int
    timed_out: int
    dropped: int
    partial: int
    matches_in_batch: int
    keys: tuple[tuple[str, int], ...]  # with most partial matches
    diagram: Diagram | None


@dataclass(frozen=True, slots=True)
class BatchReport:
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
    patterns: tuple[PatternReport, ...] = ()
    events_matched: int = 0  # rows that patterns looked at

    @property
    def topics(self) -> tuple[str, ...]:
        return tuple(sorted({where.topic for where in self.places}))

    @property
    def name(self) -> str:
        """The job, and its output where it has several."""
        return self.job if self.output == "out" else f"{self.job}.{self.output}"

    def name_of(self, pattern: PatternReport) -> str:
        """That of the job, and of the pattern where it has one."""
        return f"{self.name}:{pattern.name}" if pattern.name else self.name


def batch_report(read: ReadRecord) -> BatchReport | None:
    """What a record of the progress topic says; None if it is of no known shape."""
    found = json_object(read.record.value)
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
            _parse_written(found.get("writes")),
            tuple(str(topic) for topic in found.get("dead_letter_topics") or ()),
            _read_rates(found.get("sources") or []),
            int(found.get("dead_letters") or 0),
            dict(found.get("dead_letter_reasons") or {}),
            tuple(_pattern(one) for one in found.get("patterns") or ()),
            int(found.get("events_matched") or 0),
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def _pattern(found: Mapping[str, Any]) -> PatternReport:
    diagram = found.get("diagram")
    matches, timed_out, dropped, partial, in_batch = (
        int(found.get(count) or 0) for count in ("matches", "timed_out", "dropped", "partial", "matches_in_batch")
    )
    return PatternReport(
        str(found.get("name") or ""),
        None if found.get("version") is None else str(found["version"]),
        str(found.get("state") or "running"),
        None if found.get("problem") is None else str(found["problem"]),
        matches,
        timed_out,
        dropped,
        partial,
        in_batch,
        tuple((str(one["key"]), int(one["partial"])) for one in found.get("keys") or ()),
        from_json(diagram) if diagram else None,
    )


def position(read: ReadRecord) -> Status | None:
    """What a stored position says of a capture: where it is, and whether it is still copying what was there before."""
    name, is_own = name_in(read.record.key)
    found = json_object(read.record.value)
    if found is None or is_own:
        return None
    state = {"state": "snapshot"} if found.get("snapshot") else {}
    place = {fact: value for fact, value in found.items() if isinstance(value, str | int | float)}
    shown = ", ".join(f"{fact} {value}" for fact, value in place.items())
    return Status(name, {"position": shown} | state, read.record.timestamp)


def copy_status(group: GroupSample) -> Status | None:
    """What the offsets of a copy say: how far it is behind; None for a group that is none."""
    name = owner_of(group.name)
    if name is None:
        return None
    facts = {"lag_records": group.lag_records, "lag_ms": group.lag_ms, "source": ", ".join(group.topics)}
    return Status(name, facts)


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


def _parse_written(found: object) -> Written | None:
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


BATCHES = 120  # remembered of each job
MAX_JOBS = 200
MAX_STATUSES = 500
LOOK_BACK = 5000  # records of each partition at the first look

Jobs = Mapping[tuple[str, str], tuple[BatchReport, ...]]
Statuses = Mapping[str, Mapping[str, Status]]


def with_batches(jobs: Jobs, news: list[ReadRecord]) -> Jobs:
    """What is known of jobs, with these reports; the jobs that were silent longest are forgotten first."""
    found = dict(jobs)
    for read in news:
        report = batch_report(read)
        if report:
            key = (report.job, report.output)
            found[key] = (*found.pop(key, ())[-BATCHES + 1 :], report)
    return dict(list(found.items())[-MAX_JOBS:])
