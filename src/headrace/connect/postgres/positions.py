"""Places in PostgreSQL's log."""

from dataclasses import dataclass
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class LogPosition:
    """Behind the transaction that ended at `lsn`, and `count` changes of the one that commits at `commit_lsn`."""

    lsn: int
    commit_lsn: int = 0
    count: int = 0

    def as_json(self) -> dict[str, Any]:
        """As it is stored."""
        found: dict[str, Any] = {"lsn": format_lsn(self.lsn)}
        if self.commit_lsn:
            found |= {"commit_lsn": format_lsn(self.commit_lsn), "count": self.count}
        return found

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> Self:
        """As it was stored."""
        return cls(
            parse_lsn(stored["lsn"]),
            parse_lsn(stored["commit_lsn"]) if "commit_lsn" in stored else 0,
            int(stored.get("count", 0)),
        )


def format_lsn(lsn: int) -> str:
    """A log sequence number as PostgreSQL writes it."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def parse_lsn(text: str) -> int:
    """A log sequence number as PostgreSQL writes it."""
    high, _, low = text.partition("/")
    return int(high, 16) << 32 | int(low, 16)
