"""What a user says about a SQLite source."""

import re
from dataclasses import dataclass, field
from pathlib import Path

from headrace.connect.choices import check_choices
from headrace.connect.errors import InvalidConnectSetting
from headrace.connect.filters import Filters

_CAPTURE = re.compile(r"[a-z][a-z0-9_]{0,40}")


@dataclass(frozen=True, slots=True)
class SqliteSettings:
    """One source; two that read the same file need a `capture` each, because each forgets what it has passed on."""

    path: Path
    capture: str = "headrace"  # the tables and triggers that are added begin with it
    filters: Filters = field(default_factory=Filters)  # a table is called main.name
    snapshot: str = "initial"
    schema_changes: str = "evolve"
    unseen_changes: str = "reread"  # what may have changed rows and the log does not tell: "reread" or "stop"
    batch_rows: int = 8192
    poll_s: float = 0.02  # how often another's commit is looked for
    prune_rows: int = 20_000  # acknowledged changes are deleted in such portions, so that writers wait little
    busy_timeout_s: float = 10.0

    def __post_init__(self) -> None:
        if not _CAPTURE.fullmatch(self.capture):
            wanted = "use up to 41 lower-case letters, digits and underscores, a letter first"
            raise InvalidConnectSetting("capture", self.capture, wanted)
        check_choices(self, counts=("batch_rows", "prune_rows"), seconds=("poll_s",))
