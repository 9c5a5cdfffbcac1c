"""What a source knows about itself, for whoever watches it: written by the source's thread, read by others."""

from dataclasses import dataclass, field
from typing import Any

from headrace.connect.unseen import FACT


@dataclass(slots=True)
class SourceFacts:
    """The slot and the snapshot; None where nothing is known yet, or there is none."""

    slot: str
    lag_limit_bytes: int
    lag_bytes: int | None = None
    tables: tuple[str, ...] = ()
    snapshot_done: int | None = None
    snapshot_total: int | None = None  # as the database estimates it
    snapshot_left: tuple[str, ...] = ()  # tables that are read beside the log
    stopped_tables: dict[str, str] = field(default_factory=dict)  # and why they stopped

    def begin_snapshot(self, rows: int) -> None:
        """There are about so many rows to be read."""
        self.snapshot_done, self.snapshot_total = 0, rows

    def count_rows(self, rows: int) -> None:
        """So many more have been read."""
        self.snapshot_done = (self.snapshot_done or 0) + rows

    def as_json(self) -> dict[str, Any]:
        """What is known."""
        found = {
            "slot": self.slot,
            "slot_lag_bytes": self.lag_bytes,
            "slot_lag_limit_bytes": self.lag_limit_bytes,
            "tables": list(self.tables),
            "snapshot_done": self.snapshot_done,
            "snapshot_total": self.snapshot_total,
            "snapshot_left": list(self.snapshot_left) or None,
            FACT: self.stopped_tables or None,
        }
        return {name: value for name, value in found.items() if value is not None}
