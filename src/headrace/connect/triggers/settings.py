"""What a user says about a PostgreSQL source by triggers."""

import re
from dataclasses import dataclass, field

from headrace.connect.errors import InvalidConnectSetting
from headrace.connect.filters import Filters
from headrace.connect.postgres.types import TypeModes

SNAPSHOT_MODES = ("initial", "initial-only", "never", "when-needed")
SCHEMA_POLICIES = ("evolve", "block", "skip")
_CAPTURE = re.compile(r"[a-z][a-z0-9_]{0,40}")


@dataclass(frozen=True, slots=True)
class TriggerSettings:
    """One source; two that read the same database need a `capture` each, because each forgets what it has passed on."""

    url: str
    capture: str = "headrace"  # the schema that holds what is added, and the beginning of the triggers' names
    filters: Filters = field(default_factory=Filters)
    types: TypeModes = field(default_factory=TypeModes)
    snapshot: str = "initial"
    schema_changes: str = "evolve"
    batch_rows: int = 8192
    poll_s: float = 0.05
    heartbeat_s: float = 10.0  # how often new tables are looked for
    open_alarm_s: float = 60.0  # a transaction that is open for longer holds everything up, and is told

    def __post_init__(self) -> None:
        if not _CAPTURE.fullmatch(self.capture):
            wanted = "use up to 41 lower-case letters, digits and underscores, a letter first"
            raise InvalidConnectSetting("capture", self.capture, wanted)
        if self.snapshot not in SNAPSHOT_MODES:
            raise InvalidConnectSetting("snapshot", self.snapshot, f"choose among {', '.join(SNAPSHOT_MODES)}")
        if self.schema_changes not in SCHEMA_POLICIES:
            wanted = f"choose among {', '.join(SCHEMA_POLICIES)}"
            raise InvalidConnectSetting("schema_changes", self.schema_changes, wanted)
        if self.batch_rows < 1:
            raise InvalidConnectSetting("batch_rows", self.batch_rows, "use 1 or more")
        for name in ("poll_s", "heartbeat_s"):
            if getattr(self, name) <= 0:
                raise InvalidConnectSetting(name, getattr(self, name), "use more than 0 seconds")
