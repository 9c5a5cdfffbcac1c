"""How fresh a view is: which batch it has, and up to where that batch had read. Pure.

It is written by the very transaction that writes the batch's rows, so it never says more than the rows do.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any


@dataclass(frozen=True)
class Standing:
    """Up to where a batch has read: the next offset of each partition, and the watermark that was in force."""

    offsets: Mapping[str, int] = field(default_factory=dict)  # "topic-0" and the like
    watermark_ms: int | None = None


@dataclass(frozen=True)
class Freshness:
    """What a view says of itself. The revision grows with each batch and each switch, and never goes back."""

    revision: int
    batch: int
    rows: int
    written_ms: int
    standing: Standing = Standing()

    def to_json(self) -> str:
        """As it is kept in a store."""
        return json.dumps(
            {
                "revision": self.revision,
                "batch": self.batch,
                "rows": self.rows,
                "written_ms": self.written_ms,
                "offsets": dict(self.standing.offsets),
                "watermark_ms": self.standing.watermark_ms,
            }
        )

    @classmethod
    def from_json(cls, text: str | bytes) -> "Freshness":
        """From a store."""
        found = json.loads(text)
        standing = Standing(found["offsets"], found["watermark_ms"])
        return cls(found["revision"], found["batch"], found["rows"], found["written_ms"], standing)

    def shown(self, now_ms: int) -> dict[str, Any]:
        """As an answer tells it."""
        watermark = self.standing.watermark_ms
        return {
            "revision": self.revision,
            "batch": self.batch,
            "rows": self.rows,
            "offsets": dict(self.standing.offsets),
            "watermark": None if watermark is None else instant(watermark),
            "written": instant(self.written_ms),
            "age_ms": max(now_ms - self.written_ms, 0),
        }


@dataclass(frozen=True)
class Origin:
    """The brokers that a query reads from, how they are reached, and where the batch stands."""

    standing: Standing = field(default_factory=Standing)
    bootstrap: str | None = None
    connection: Mapping[str, str] = field(default_factory=dict, repr=False)  # it may hold passwords
    is_running: Callable[[], bool] = field(default=lambda: False, repr=False, compare=False)


def instant(ms: int) -> str:
    """Milliseconds since the epoch as ISO 8601 in UTC."""
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds")
