"""The status of parts: one form of record, in a compacted topic for each kind of part; the last of a name counts.

Captures, derived systems, views, pipelines, workers, projections and processes report here, each under its own name,
through one writer, and all who want to know read with one reader. A status is a JSON object. What may be in it, all of
it optional:

- all: `kind` (`postgresql`, `redis`, `pipeline` …), `state` (`running`, `waiting`, `failed` …), `waiting` (for what),
  `problem` (a sentence), `records` and `per_s`, `position`, `lag_records`, `lag_ms`, `updated_ms`;
- captures: `slot`, `slot_lag_bytes`, `slot_lag_limit_bytes`, `tables`, `topics`, `snapshot_done`, `snapshot_total`;
- derived systems: `source`, `target`, `dead_letters`, `dead_letter_reasons` (reason: how many), `dead_letters_topic`,
  and from a comparison `verified_ms`, `differences`;
- workers of queues: `source`, `retried`, `rejected`, `timed_out`;
- projections and processes: `source` (the store), `target`, `dead_letters`, `open` (processes that have not ended);
- searches: `source` (the documents' topic), `target` (the hits'), `hits`, `queries`, `refused`, `unselective`,
  `backfills`, `top` (query: hits), `dead_letters`, `queries_offset`; what mails hits (`mail.NAME`): `hits`, `sent`,
  `owners` (for whom hits wait), `without_address`, `given_up`;
- gateways: `source`, `target` (the topic), `lag_bytes` (in files, not read yet), `too_long` (lines that were cut);
- views: `rows`, `source`, `url`, `batch`, `watermark`, `written_ms`.

What always holds: a part that runs reports at least every half minute, so one that has been silent for longer is not
believed to run. What another process learns about a part (a comparison) is a record of its own beside the part's, and
the reader joins the two; it never makes a part look alive. Anybody may write to the topics: what is not readable is
ignored, and what looks like a secret is hidden.
"""

import json
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Self

from headrace.client.admin import ensure_topic
from headrace.client.cluster import Cluster
from headrace.client.errors import OffsetOutOfRange, UnknownTopic
from headrace.client.fetch import FetchOptions
from headrace.client.offsets import bounds
from headrace.client.reader import ReadRecord, read_records
from headrace.client.writer import NewRecord, Writer
from headrace.model import TopicPartition

CAPTURES: Final = "__headrace_connect_status"
DERIVED: Final = "__headrace_sync_status"
VIEWS: Final = "__headrace_view_status"
PIPELINES: Final = "__headrace_pipeline_status"
QUEUES: Final = "__headrace_queue_status"  # of workers
EVENTS: Final = "__headrace_event_status"  # of projections and processes
GATEWAYS: Final = "__headrace_gateway_status"
SEARCHES: Final = "__headrace_search_status"
PROGRESS: Final = "__headrace_progress"  # how each batch of a pipeline went: a history, kept for a week

EVERY_S: Final = 30.0
SILENT_AFTER_MS: Final = 100_000
BATCHES_SILENT_AFTER_MS: Final = 60_000  # of a pipeline's progress: Spark reports every ten seconds even when idle

RUNNING, WAITING, FAILED, STOPPED, ENDED = "running", "waiting", "failed", "stopped", "ended"
SILENT: Final = "silent"
AT_REST: Final = frozenset({FAILED, STOPPED, ENDED})

_COMPACTED: Final = {"cleanup.policy": "compact"}
_SECRET_FIELDS: Final = ("password", "secret", "token", "credential")
_COMMITTED: Final = FetchOptions(max_wait_ms=200, committed=True)  # a position that was taken back was never one


@dataclass(frozen=True, slots=True)
class Status:
    """What was last reported of one part, and when."""

    name: str
    facts: Mapping[str, Any] = field(default_factory=dict)
    at_ms: int = 0

    @classmethod
    def of(cls, name: str, kind: str, state: str, **facts: Any) -> Self:
        """The status that a part reports of itself."""
        return cls(name, {"kind": kind, "state": state, **facts})

    @classmethod
    def from_json(cls, name: str, data: bytes | None, at_ms: int) -> Self | None:
        """As it was written; None for what is not a status."""
        found = json_object(data)
        if found is None or not isinstance(found.get("updated_ms", 0), int):
            return None
        facts = {fact: _without_secret(fact, value) for fact, value in found.items()}
        return cls(name, {fact: value for fact, value in facts.items() if fact not in ("name", "updated_ms")}, at_ms)

    def as_json(self) -> bytes:
        """As it is written."""
        return json.dumps({**self.facts, "name": self.name, "updated_ms": self.at_ms}, ensure_ascii=False).encode()

    def updated(self, **facts: Any) -> Self:
        """The same with other facts."""
        return replace(self, facts={**self.facts, **facts})

    def text(self, fact: str) -> str:
        """A fact as text; empty if it was not reported."""
        value = self.facts.get(fact)
        return "" if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)

    def number(self, fact: str) -> float | None:
        """A fact as a number; None if it was not reported, or is something else."""
        value = self.facts.get(fact)
        return value if isinstance(value, int | float) and not isinstance(value, bool) else None

    @property
    def state(self) -> str:
        """As it was reported."""
        return self.text("state")

    @property
    def state_text(self) -> str:
        """The state as people read it."""
        waiting = self.text("waiting")
        return f"{self.state}: {waiting}" if self.state == WAITING and waiting else self.state

    def state_at(self, now_ms: int) -> str:
        """The state that can be believed: a part that should report and does not is silent."""
        if now_ms - self.at_ms <= SILENT_AFTER_MS:
            return self.state or RUNNING
        return self.state if self.state in AT_REST else SILENT

    def seen_at(self, now_ms: int) -> Self:
        """The same with the state that can be believed."""
        return self.updated(state=self.state_at(now_ms))

    @property
    def snapshot(self) -> str:
        """How far the snapshot is, in words; empty if there is none."""
        if left := self.facts.get("snapshot_left"):
            return f"reading {', '.join(left)}"
        done, total = self.facts.get("snapshot_done"), self.facts.get("snapshot_total")
        if done is None:
            return ""
        return f"{done:,} of about {total:,} rows" if total else f"{done:,} rows"


class StatusWriter:
    """Writes to one topic; for one thread. Raises `ClientError` where the broker is away, and then begins anew."""

    def __init__(self, cluster: Cluster, topic: str, configs: Mapping[str, str] = _COMPACTED) -> None:
        self._cluster = cluster
        self._topic = topic
        self._configs = configs
        self._writer: Writer | None = None
        self._reported: dict[str, tuple[Status, float]] = {}

    def write(self, status: Status) -> None:
        """What a part reports of itself."""
        now_ms = _now_ms()
        self.write_records([NewRecord(status.name.encode(), replace(status, at_ms=now_ms).as_json(), now_ms)])

    def report(self, status: Status, *, is_last: bool = False) -> None:
        """The same, unless it is no news and was written less than half a minute ago; the last is written anyway."""
        before, now = self._reported.get(status.name), time.monotonic()
        if is_last or before is None or before[0] != status or now - before[1] >= EVERY_S:
            self.write(status)
            self._reported[status.name] = (status, now)

    def remove(self, name: str) -> None:
        """Nothing is reported of this name any more."""
        self.write_records([NewRecord(name.encode(), None, _now_ms())])

    def write_about(self, name: str, facts: Mapping[str, Any]) -> None:
        """What another process learned about a part."""
        key = json.dumps({"connector": name, "about": "verification"}, separators=(",", ":"))
        self.write_records([NewRecord(key.encode(), json.dumps(facts).encode(), _now_ms())])

    def write_records(self, records: Iterable[NewRecord]) -> None:
        """Records as they are; the topic is made when it is first written to."""
        writer, self._writer = self._writer, None
        if writer is None:
            ensure_topic(self._cluster, self._topic, partitions=1, configs=self._configs)
            writer = Writer(self._cluster, self._topic)
        for record in records:
            writer.add(record)
        writer.flush()
        self._writer = writer


@dataclass(slots=True)
class TopicFeed:
    """What is new in a topic since the last look: up to the end that was there, never waiting for more."""

    topic: str
    look_back: int | None = None  # records of each partition that are read at the most
    offsets: dict[TopicPartition, int] = field(default_factory=dict)

    def news(self, cluster: Cluster, topics: Collection[str] | None = None) -> list[ReadRecord]:
        """The records since the last look, oldest first; `topics` are those that exist, where that is known."""
        try:
            held = bounds(cluster, cluster.partitions(self.topic), committed=True) if self._exists(topics) else {}
        except UnknownTopic:
            held = {}
        starts = {}
        for where, bound in held.items():
            offset = self.offsets.get(where, bound.start)
            # An end before our offset means that the topic was made anew.
            least = bound.start if self.look_back is None else max(bound.start, bound.end - self.look_back)
            starts[where] = least if offset > bound.end else max(offset, least)
        self.offsets = {where: bound.end for where, bound in held.items()}
        found: list[ReadRecord] = []
        if not starts:
            return found
        try:
            for group in read_records(cluster, starts, until=self.offsets, options=_COMMITTED):
                found.extend(group)
        except OffsetOutOfRange:  # removed while we read: the next look begins at what is left
            self.offsets = {}
        except BaseException:
            self.offsets = starts  # what was not handed on is read again
            raise
        return found

    def _exists(self, topics: Collection[str] | None) -> bool:
        return topics is None or self.topic in topics


Parse = Callable[[ReadRecord], Status | None]


class StatusReader:
    """The last status of each part of a topic, with what others learned about it; read again and again, or once."""

    def __init__(self, topic: str, *, look_back: int | None = None, most: int | None = None) -> None:
        self._feed = TopicFeed(topic, look_back)
        self._most = most
        self._own: Mapping[str, Status] = {}
        self._about: Mapping[str, Status] = {}

    def read(self, cluster: Cluster, topics: Collection[str] | None = None) -> dict[str, Status]:
        """By name, as they are now."""
        news = self._feed.news(cluster, topics)
        own, about = ([read for read in news if name_in(read.record.key)[1] is is_own] for is_own in (True, False))
        self._own = last_by_name(self._own, own, own_status, self._most)
        self._about = last_by_name(self._about, about, status_by_others, self._most)
        return join_statuses(self._own, {name: said for name, said in self._about.items() if name in self._own})


def read_statuses(cluster: Cluster, topic: str) -> dict[str, Status]:
    """The status of every part of a kind."""
    return StatusReader(topic).read(cluster)


def last_by_name(
    known: Mapping[str, Status], news: Iterable[ReadRecord], parse: Parse, most: int | None = None
) -> dict[str, Status]:
    """The last status of each name, with these; a record without a value takes its name away, the oldest go first."""
    found = dict(known)
    for read in news:
        said = parse(read)
        if said is not None:
            found.pop(said.name, None)
            found[said.name] = said
        elif read.record.value is None:
            found.pop(name_in(read.record.key)[0], None)
    return found if most is None else dict(list(found.items())[-most:])


def join_statuses(*known: Mapping[str, Status]) -> dict[str, Status]:
    """Several statuses of the same parts as one; what comes later in the list adds to what comes before it."""
    found: dict[str, Status] = {}
    for statuses in known:
        for name, said in statuses.items():
            before = found.get(name, said)
            facts = {**before.facts, **{fact: value for fact, value in said.facts.items() if value not in (None, "")}}
            found[name] = Status(name, facts, max(before.at_ms, said.at_ms))
    return found


def own_status(read: ReadRecord) -> Status | None:
    """What a part reports of itself; None for anything else."""
    name, is_own = name_in(read.record.key)
    return Status.from_json(name, read.record.value, read.record.timestamp) if is_own and name else None


def status_by_others(read: ReadRecord) -> Status | None:
    """What others learned about a part: that they did does not mean that it runs, so it has no time."""
    name, is_own = name_in(read.record.key)
    return None if is_own else Status.from_json(name, read.record.value, 0)


def name_in(key: bytes | None) -> tuple[str, bool]:
    """The part that a key names, and whether the record is the part's own."""
    described = json_object(key)
    if described is not None and "connector" in described:
        return str(described["connector"]), False
    return (key or b"").decode(errors="replace"), True


def json_object(data: bytes | None) -> dict[str, Any] | None:
    """The JSON object in a record's key or value; None if it holds something else."""
    try:
        found = json.loads(data or b"null")
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _without_secret(fact: str, value: object) -> object:
    return "hidden" if any(word in fact.lower() for word in _SECRET_FIELDS) else value


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
