"""What a user says about a PostgreSQL source."""

import re
from dataclasses import dataclass, field

from headrace.connect.errors import InvalidConnectSetting
from headrace.connect.filters import Filters, check_choices
from headrace.connect.postgres.types import TypeModes

UNAVAILABLE_MODES = ("placeholder", "reselect")
_COUNTS = ("snapshot_workers", "snapshot_range_rows", "chunk_rows", "batch_messages")
_LONGEST_NAME = 63  # in bytes; PostgreSQL cuts a longer one
_SLOT = re.compile(r"[a-z0-9_]{1,63}")


@dataclass(frozen=True, slots=True)
class PostgresSettings:
    url: str
    slot: str = "headrace"
    publication: str = ""  # as the slot, unless named
    managed_publication: bool = True  # made, and tables added to it, if this user may
    filters: Filters = field(default_factory=Filters)
    types: TypeModes = field(default_factory=TypeModes)
    snapshot: str = "initial"
    snapshot_workers: int = 2
    snapshot_range_rows: int = 500_000  # of a larger table each so many rows are read by themselves
    chunk_rows: int = 8192
    schema_changes: str = "evolve"
    unseen_changes: str = "reread"  # what may have changed rows and the log does not tell: "reread" or "stop"
    unavailable: str = "placeholder"  # what a large value becomes that was not sent again; "reselect" reads it
    heartbeat_s: float = 10.0
    lag_alarm_bytes: int = 1 << 30
    lag_cap_bytes: int | None = None  # beyond it the slot is dropped, so that the server's disk is not filled
    signal_table: str = ""  # schema.table with columns id, type, data
    failover: bool = False
    streaming: bool = True  # large transactions are sent while they run, and wait here
    temporary: bool = False  # the slot goes with the connection
    shared_publication: bool = False  # it goes with the last one that reads by it
    batch_messages: int = 8192

    def __post_init__(self) -> None:
        if not _SLOT.fullmatch(self.slot):
            raise InvalidConnectSetting("slot", self.slot, "use up to 63 lower-case letters, digits and underscores")
        if len(self.publication.encode()) > _LONGEST_NAME or "\0" in self.publication:
            raise InvalidConnectSetting("publication", self.publication, "a name has at most 63 bytes")
        check_choices(self, counts=_COUNTS, seconds=("heartbeat_s",))
        if self.unavailable not in UNAVAILABLE_MODES:
            wanted = f"choose {' or '.join(UNAVAILABLE_MODES)}"
            raise InvalidConnectSetting("unavailable", self.unavailable, wanted)

    @property
    def publication_name(self) -> str:
        return self.publication or self.slot
