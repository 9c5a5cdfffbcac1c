"""How parts stand: one form of record, in a compacted topic for each kind of part; the last record of a name counts.

Whoever runs says so at least every half minute, so who has been silent for longer is not believed to run. What another
process finds out about a part (a comparison) is a record of its own beside the part's, and readers join the two.
"""

import json
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, Self

from headrace.client.admin import ensure_topic
from headrace.client.cluster import Cluster
from headrace.client.errors import UnknownTopic
from headrace.client.offsets import bounds
from headrace.client.reader import read_records
from headrace.client.writer import NewRecord, Writer

CAPTURES: Final = "__headrace_connect_status"
DERIVED: Final = "__headrace_sync_status"
VIEWS: Final = "__headrace_view_status"
EVERY_S: Final = 30.0
SILENT_AFTER_MS: Final = 100_000
RUNNING, WAITING, FAILED, STOPPED, ENDED = "running", "waiting", "failed", "stopped", "ended"
SILENT: Final = "silent"


@dataclass(frozen=True, slots=True)
class Condition:
    """How one part stands. `facts` is what its kind knows besides: slot, snapshot, target, dead letters."""

    name: str
    kind: str
    state: str
    records: int = 0
    per_s: float = 0.0
    problem: str = ""
    position: Mapping[str, Any] | None = None
    updated_ms: int = 0
    facts: Mapping[str, Any] = field(default_factory=dict)
    waiting: str = ""  # for what, in a few words, while the state says so

    @property
    def state_text(self) -> str:
        """The state as people read it."""
        return f"{self.state}: {self.waiting}" if self.state == WAITING and self.waiting else self.state

    def as_json(self) -> bytes:
        """As it is written."""
        told = asdict(self)
        return json.dumps({**told.pop("facts"), **told}, ensure_ascii=False).encode()

    @classmethod
    def from_json(cls, name: str, data: bytes) -> Self:
        """As it was written; what is not known here is a fact. Raises `ValueError` or `TypeError` if it is none."""
        told = json.loads(data)
        if not isinstance(told, dict) or not isinstance(told.get("updated_ms", 0), int):
            raise TypeError("not the condition of a part")
        own = {key: told.pop(key) for key in cls.__slots__ if key in told and key != "facts"}
        return cls(**{"kind": "", "state": "", **own, "name": name, "facts": told})

    @property
    def snapshot(self) -> str:
        """How far the snapshot is, in words; empty if there is none."""
        if left := self.facts.get("snapshot_left"):
            return f"reading {', '.join(left)}"
        done, total = self.facts.get("snapshot_done"), self.facts.get("snapshot_total")
        if done is None:
            return ""
        return f"{done:,} of about {total:,} rows" if total else f"{done:,} rows"

    def seen_at(self, now_ms: int) -> "Condition":
        """The same, if it can still be believed."""
        is_quiet = now_ms - self.updated_ms > SILENT_AFTER_MS
        return replace(self, state=SILENT) if is_quiet and self.state in (RUNNING, WAITING) else self


class StatusWriter:
    """Writes conditions to one topic; for one thread."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self._cluster = cluster
        self._topic = topic
        self._writer: Writer | None = None

    def write(self, condition: Condition) -> None:
        """How a part stands; raises `ClientError` where the broker is away, and begins anew the next time."""
        now_ms = time.time_ns() // 1_000_000
        self._write(condition.name.encode(), replace(condition, updated_ms=now_ms).as_json(), now_ms)

    def write_found(self, name: str, facts: Mapping[str, Any]) -> None:
        """What somebody else found out about a part."""
        key = json.dumps({"connector": name, "about": "verification"}, separators=(",", ":"))
        self._write(key.encode(), json.dumps(facts).encode(), time.time_ns() // 1_000_000)

    def _write(self, key: bytes, value: bytes, now_ms: int) -> None:
        writer, self._writer = self._writer, None
        if writer is None:
            ensure_topic(self._cluster, self._topic, partitions=1, configs={"cleanup.policy": "compact"})
            writer = Writer(self._cluster, self._topic)
        writer.add(NewRecord(key, value, now_ms))
        writer.flush()
        self._writer = writer


def named_in(key: bytes) -> tuple[str, bool]:
    """Whom a key names, and whether the record is the part's own; not if others found out what it says."""
    try:
        described = json.loads(key)
    except ValueError:
        described = None
    if isinstance(described, dict) and "connector" in described:
        return str(described["connector"]), False
    return key.decode(errors="replace"), True


def conditions(cluster: Cluster, topic: str) -> dict[str, Condition]:
    """How every part of a kind stands, as it said last, with what others found out about it."""
    try:
        held = bounds(cluster, cluster.partitions(topic))
    except UnknownTopic:
        return {}
    starts = {where: bound.start for where, bound in held.items() if bound.end > bound.start}
    own: dict[str, Condition] = {}
    found: dict[str, Mapping[str, Any]] = {}
    for records in read_records(cluster, starts, until={where: held[where].end for where in starts}):
        for _, record in records:
            name, is_own = named_in(record.key or b"")
            if record.value is None:
                (own if is_own else found).pop(name, None)
                continue
            with suppress(ValueError, TypeError):  # anybody may write to the topic: what is not readable says nothing
                if is_own:
                    own[name] = Condition.from_json(name, record.value)
                else:
                    found[name] = dict(json.loads(record.value))
    return {
        name: replace(condition, facts={**condition.facts, **found.get(name, {})}) for name, condition in own.items()
    }
