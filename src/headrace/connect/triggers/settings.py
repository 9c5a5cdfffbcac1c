"""What a user says about a PostgreSQL source by triggers."""

from dataclasses import dataclass, field

from headrace.connect.filters import Filters, check_capture_name, check_choices
from headrace.connect.postgres.types import TypeModes


@dataclass(frozen=True, slots=True)
class TriggerSettings:
    """One source; two that read the same database need a `capture` each, because each forgets what it has passed on."""

    url: str
    capture: str = "headrace"  # the schema that holds what is added, and the beginning of the triggers' names
    filters: Filters = field(default_factory=Filters)
    types: TypeModes = field(default_factory=TypeModes)
    snapshot: str = "initial"
    schema_changes: str = "evolve"
    unseen_changes: str = "reread"  # what may have changed rows and the log does not tell: "reread" or "stop"
    batch_rows: int = 8192
    poll_s: float = 0.05
    heartbeat_s: float = 10.0  # how often new tables are looked for
    open_alarm_s: float = 60.0  # a transaction that is open for longer holds everything up, and is told

    def __post_init__(self) -> None:
        check_capture_name(self.capture)
        check_choices(self, counts=("batch_rows",), seconds=("poll_s", "heartbeat_s"))
