"""The settings of one log, with Kafka's names and defaults.

A field's name is Kafka's with `_` for `.`: `segment_bytes` is `segment.bytes`. There is no other table of names. What
begins with `headrace.` is ours.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from headrace.delivery.overflow import Policy
from headrace.errors import nearest
from headrace.records import Rules
from headrace.storage.errors import InvalidLogConfig

MAX_LONG = 2**63 - 1
MAX_INT = 2**31 - 1
DAY_MS = 24 * 60 * 60 * 1000

DISK, MEMORY = "disk", "memory"
_MEMORY_SEGMENTS = 16  # of a memory log that is full: what goes, goes by the segment
_MEMORY_SEGMENT_BYTES = 4 * 1024, 1024**2  # at least, at most
_QUEUE_SEGMENT_BYTES = 16 * 1024**2  # where records go before retention wants it, at most


@dataclass(frozen=True, slots=True)
class LogConfig:
    cleanup_policy: frozenset[str] = frozenset({"delete"})
    segment_bytes: int = 1024**3
    segment_ms: int = 7 * DAY_MS
    segment_index_bytes: int = 10 * 1024**2
    index_interval_bytes: int = 4096
    retention_bytes: int = -1
    retention_ms: int = 7 * DAY_MS
    delete_retention_ms: int = DAY_MS
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = MAX_LONG
    min_cleanable_dirty_ratio: float = 0.5
    max_message_bytes: int = 1_048_588
    message_timestamp_type: str = "CreateTime"
    message_timestamp_before_max_ms: int = MAX_LONG
    message_timestamp_after_max_ms: int = 3_600_000
    # What Kafka does not have. Of what records ask for besides being kept, which others act on:
    headrace_events: bool = False
    headrace_queue: bool = False
    headrace_queue_priorities: int = 1
    headrace_queue_ttl_ms: int = -1
    headrace_queue_dedup_window_ms: int = 300_000
    headrace_bindings: str = ""
    # And where they are kept, and how many, for how long:
    headrace_storage: str = DISK
    headrace_overflow: str = Policy.BUFFER
    headrace_overflow_records: int = -1
    headrace_overflow_bytes: int = -1
    headrace_queue_delete_acknowledged: bool = False

    def __post_init__(self) -> None:
        for name, low, high in _BOUNDS:
            value = getattr(self, name)
            if not low <= value <= high:
                raise InvalidLogConfig(f"{_to_dotted(name)}={value} is out of range: give a value from {low} to {high}")
        unknown = self.cleanup_policy - {"delete", "compact"}
        if unknown:
            raise InvalidLogConfig(
                f"cleanup.policy={','.join(sorted(unknown))} is unknown: use delete, compact or both"
            )
        if self.message_timestamp_type not in ("CreateTime", "LogAppendTime"):
            raise InvalidLogConfig(
                f"message.timestamp.type={self.message_timestamp_type} is unknown: use CreateTime or LogAppendTime"
            )
        if self.headrace_storage not in (DISK, MEMORY) or self.headrace_overflow not in tuple(Policy):
            raise InvalidLogConfig(
                f"headrace.storage={self.headrace_storage}, headrace.overflow={self.headrace_overflow}: use disk or "
                f"memory, and one of {', '.join(Policy)}"
            )

    @property
    def compacts(self) -> bool:
        """Whether the log keeps the latest record per key."""
        return "compact" in self.cleanup_policy and not self._is_queue

    @property
    def deletes(self) -> bool:
        """Whether old segments are removed by age and size."""
        return "delete" in self.cleanup_policy or self._is_queue

    @property
    def _is_queue(self) -> bool:
        """Whether records go for other reasons than their keys, whatever the broker's default policy is."""
        return self.frees_acknowledged or self.headrace_overflow != Policy.BUFFER

    @property
    def is_in_memory(self) -> bool:
        """Whether nothing of the log is on the disk."""
        return self.headrace_storage == MEMORY

    @property
    def frees_acknowledged(self) -> bool:
        """Whether what every share group has finished is removed before retention would."""
        return self.headrace_queue_delete_acknowledged or self.is_in_memory

    @property
    def roll_bytes(self) -> int:
        """At which size a segment is full; where room is wanted soon, segments are small."""
        if self.is_in_memory:
            least, most = _MEMORY_SEGMENT_BYTES
            return min(self.segment_bytes, most, max(least, self.headrace_overflow_bytes // _MEMORY_SEGMENTS))
        return min(self.segment_bytes, _QUEUE_SEGMENT_BYTES) if self._is_queue else self.segment_bytes

    @property
    def roll_ms(self) -> int:
        """After how long a segment is full; what must be compacted in time must be rolled in time."""
        return min(self.segment_ms, self.max_compaction_lag_ms) if self.compacts else self.segment_ms

    @property
    def rules(self) -> Rules:
        """What a producer's batch is held against."""
        return Rules(
            max_batch_bytes=self.max_message_bytes,
            timestamp_before_max_ms=self.message_timestamp_before_max_ms,
            timestamp_after_max_ms=self.message_timestamp_after_max_ms,
            create_time=self.message_timestamp_type == "CreateTime",
            keys_required=self.compacts,
        )

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> Self:
        """From Kafka's names and textual values; a name that does not exist is refused with the nearest that does."""
        fields = {_to_dotted(field.name): field for field in dataclasses.fields(cls)}
        values: dict[str, Any] = {}
        for name, text in properties.items():
            field = fields.get(name)
            if field is None:
                hint = nearest(name, fields, otherwise="check its name")
                raise InvalidLogConfig(f"unknown topic setting {name!r}: {hint}")
            values[field.name] = _parse(name, field.type, text)
        return cls(**values)

    def to_properties(self) -> dict[str, str]:
        """All settings under Kafka's names, as text."""
        return {_to_dotted(field.name): _text(getattr(self, field.name)) for field in dataclasses.fields(self)}


_BOUNDS: list[tuple[str, float, float]] = [
    ("segment_bytes", 14, MAX_INT),
    ("segment_ms", 1, MAX_LONG),
    ("segment_index_bytes", 4, MAX_INT),
    ("index_interval_bytes", 0, MAX_INT),
    ("retention_bytes", -1, MAX_LONG),
    ("retention_ms", -1, MAX_LONG),
    ("delete_retention_ms", 0, MAX_LONG),
    ("min_compaction_lag_ms", 0, MAX_LONG),
    ("max_compaction_lag_ms", 1, MAX_LONG),
    ("min_cleanable_dirty_ratio", 0, 1),
    ("max_message_bytes", 0, MAX_INT),
    ("message_timestamp_before_max_ms", 0, MAX_LONG),
    ("message_timestamp_after_max_ms", 0, MAX_LONG),
    ("headrace_queue_priorities", 1, MAX_INT),
    ("headrace_queue_ttl_ms", -1, MAX_LONG),
    ("headrace_queue_dedup_window_ms", 0, MAX_LONG),
    ("headrace_overflow_records", -1, MAX_LONG),
    ("headrace_overflow_bytes", -1, MAX_LONG),
]


def _to_dotted(name: str) -> str:
    return name.replace("_", ".")


def _parse(name: str, kind: Any, text: str) -> object:
    try:
        if kind is int:
            return int(text)
        if kind is float:
            return float(text)
    except ValueError:
        raise InvalidLogConfig(f"{name}={text!r} is not a number") from None
    if kind is str:
        return text
    if kind is bool:
        return text.strip().lower() == "true"
    return frozenset(part.strip() for part in text.split(",") if part.strip())


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(sorted(value)) if isinstance(value, frozenset) else str(value)
