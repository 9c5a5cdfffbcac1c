"""How captures stand, told in a compacted topic: one record a capture, and the last one counts.

Whoever runs says so at least every half minute, so who has been silent for longer is not believed to run.
"""

import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, Self

from headrace.client.admin import ensure_topic
from headrace.client.cluster import Cluster
from headrace.client.errors import UnknownTopic
from headrace.client.offsets import bounds
from headrace.client.reader import read_records
from headrace.client.writer import NewRecord, Writer

TOPIC: Final = "__headrace_connect_status"
EVERY_S: Final = 30.0
_SILENT_AFTER_MS: Final = 100_000
RUNNING, WAITING, FAILED, STOPPED, ENDED = "running", "waiting", "failed", "stopped", "ended"


@dataclass(frozen=True, slots=True)
class Condition:
    """How one capture stands. `facts` is what its source knows besides: slot, lag, tables, snapshot."""

    name: str
    kind: str
    state: str
    records: int = 0
    per_s: float = 0.0
    problem: str = ""
    position: Mapping[str, Any] | None = None
    updated_ms: int = 0
    facts: Mapping[str, Any] = field(default_factory=dict)

    def as_json(self) -> bytes:
        """As it is told."""
        told = asdict(self)
        return json.dumps({**told.pop("facts"), **told}, ensure_ascii=False).encode()

    @classmethod
    def from_json(cls, name: str, data: bytes) -> Self:
        """As it was told; what is not known here is a fact."""
        told = json.loads(data)
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
        is_quiet = now_ms - self.updated_ms > _SILENT_AFTER_MS
        return replace(self, state="silent") if is_quiet and self.state in (RUNNING, WAITING) else self


class Teller:
    """Writes conditions; for one thread."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._writer: Writer | None = None

    def tell(self, condition: Condition) -> None:
        """Say how it stands; raises `ClientError` where the broker is away, and begins anew the next time."""
        writer, self._writer = self._writer, None
        if writer is None:
            ensure_topic(self._cluster, TOPIC, partitions=1, configs={"cleanup.policy": "compact"})
            writer = Writer(self._cluster, TOPIC)
        now_ms = time.time_ns() // 1_000_000
        told = replace(condition, updated_ms=now_ms)
        writer.add(NewRecord(condition.name.encode(), told.as_json(), now_ms))
        writer.flush()
        self._writer = writer


def conditions(cluster: Cluster) -> dict[str, Condition]:
    """How every capture stands, as it said last."""
    try:
        held = bounds(cluster, cluster.partitions(TOPIC))
    except UnknownTopic:
        return {}
    starts = {where: bound.start for where, bound in held.items() if bound.end > bound.start}
    found: dict[str, Condition] = {}
    for records in read_records(cluster, starts, until={where: held[where].end for where in starts}):
        for _, record in records:
            name = (record.key or b"").decode()
            if record.value is None:
                found.pop(name, None)
            else:
                found[name] = Condition.from_json(name, record.value)
    return found
