"""What a user says about a SQLite source."""

import re
from dataclasses import dataclass, field
from pathlib import Path

from headrace.connect.errors import InvalidConnectSetting
from headrace.connect.filters import Filters

SNAPSHOT_MODES = ("initial", "initial-only", "never", "when-needed")
SCHEMA_POLICIES = ("evolve", "block", "skip")
_CAPTURE = re.compile(r"[a-z][a-z0-9_]{0,40}")


@dataclass(frozen=True, slots=True)
class SqliteSettings:
    """One source; two that read the same file need a `capture` each, because each forgets what it has passed on."""

    path: Path
    capture: str = "headrace"  # the tables and triggers that are added begin with it
    filters: Filters = field(default_factory=Filters)  # a table is called main.name
    snapshot: str = "initial"
    schema_changes: str = "evolve"
    batch_rows: int = 8192
    poll_s: float = 0.02  # how often another's commit is looked for
    prune_rows: int = 20_000  # acknowledged changes are deleted in such portions, so that writers wait little
    busy_timeout_s: float = 10.0

    def __post_init__(self) -> None:
        if not _CAPTURE.fullmatch(self.capture):
            wanted = "use up to 41 lower-case letters, digits and underscores, a letter first"
            raise InvalidConnectSetting("capture", self.capture, wanted)
        if self.snapshot not in SNAPSHOT_MODES:
            raise InvalidConnectSetting("snapshot", self.snapshot, f"choose among {', '.join(SNAPSHOT_MODES)}")
        if self.schema_changes not in SCHEMA_POLICIES:
            wanted = f"choose among {', '.join(SCHEMA_POLICIES)}"
            raise InvalidConnectSetting("schema_changes", self.schema_changes, wanted)
        for name in ("batch_rows", "prune_rows"):
            if getattr(self, name) < 1:
                raise InvalidConnectSetting(name, getattr(self, name), "use 1 or more")
        if self.poll_s <= 0:
            raise InvalidConnectSetting("poll_s", self.poll_s, "use more than 0 seconds")
