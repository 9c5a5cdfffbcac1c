"""The replication slot: where a source begins by it, and how much of its log the server keeps for it."""

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

import psycopg
from psycopg import pq

from headrace.connect.change import Position
from headrace.connect.errors import PositionLost, SourceRefused, SourceUnavailable
from headrace.connect.postgres.connection import checked
from headrace.connect.postgres.relation import LogPosition, format_lsn, parse_lsn
from headrace.connect.postgres.settings import PostgresSettings
from headrace.connect.unseen import FACT
from headrace.telemetry.logs import get_logger

FAILOVER_SINCE: Final = 170_000
_PATIENCE_S: Final = 30.0  # how long another reader may take to let go
_STATE: Final = """
select plugin, database, confirmed_flush_lsn::text, wal_status,
       case when pg_is_in_recovery() then null else pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)::bigint end,
       case when pg_is_in_recovery() then null else pg_current_wal_flush_lsn()::text end
from pg_replication_slots where slot_name = %s
"""


@dataclass(frozen=True, slots=True)
class SlotState:
    """A slot as the server sees it; `lag_bytes` is how much log it holds, `end_lsn` where the log ends now."""

    name: str
    plugin: str | None
    database: str | None
    confirmed_lsn: int
    wal_status: str | None
    lag_bytes: int
    end_lsn: int | None = None  # a standby may be behind what its primary has sent

    @property
    def is_lost(self) -> bool:
        """Whether the server has given up keeping the log for it."""
        return self.wal_status == "lost"


def slot_state(connection: psycopg.Connection[tuple[Any, ...]], name: str) -> SlotState | None:
    """The slot, if it is there."""
    row = connection.execute(_STATE, [name]).fetchone()
    if row is None:
        return None
    plugin, database, confirmed, status, lag, end = row
    end_lsn = None if end is None else parse_lsn(end)
    return SlotState(name, plugin, database, parse_lsn(confirmed or "0/0"), status, int(lag or 0), end_lsn)


def check_slot(state: SlotState, database: str, *, may_be_lost: bool = False) -> None:
    """Refuse a slot that cannot be read, or is none of ours to drop."""
    drop = f"SELECT pg_drop_replication_slot('{state.name}')"
    if state.plugin != "pgoutput":
        kind = f"of plugin {state.plugin}" if state.plugin else "a physical one"
        raise SourceRefused(
            f"slot {state.name} is {kind} and not of pgoutput", f"choose another name for slot, or {drop}"
        )
    if state.database != database:
        raise SourceRefused(f"slot {state.name} belongs to database {state.database}", "choose another name for slot")
    if state.is_lost and not may_be_lost:
        raise slot_lost(state.name)


def slot_lost(name: str) -> PositionLost:
    """The server has thrown away log that was not read."""
    return PositionLost(
        f"slot {name} is lost: the server has removed log that was not read yet (max_slot_wal_keep_size), so changes "
        "are missing and only a new snapshot brings them",
        f"SELECT pg_drop_replication_slot('{name}'), then start with snapshot='when-needed'",
    )


def slot_over_cap(name: str, lag_bytes: int, cap_bytes: int | None) -> SourceRefused:
    """The slot made the server keep too much."""
    return SourceRefused(
        f"slot {name} made the server keep {lag_bytes} bytes of log, more than lag_cap_bytes ({cap_bytes}), and was "
        "dropped to save its disk",
        "find out what held it up, then start with snapshot='when-needed'",
    )


def when_free(act: Callable[[], None]) -> None:
    """Do something with a slot; it stays in use for a moment after its reader was killed, which is waited for."""
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        try:
            act()
            return
        except (SourceUnavailable, psycopg.errors.ObjectInUse):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


@dataclass(frozen=True, slots=True)
class CreatedSlot:
    """A new slot: everything before `lsn` is in the snapshot, everything behind in the log."""

    lsn: int
    snapshot: str


def create_slot(
    connection: pq.abc.PGconn, name: str, *, temporary: bool = False, failover: bool = False, server_version: int = 0
) -> CreatedSlot:
    """Make the slot, and a snapshot that lives until the next command on this connection."""
    kind = " TEMPORARY" if temporary else ""
    options = "SNAPSHOT 'export'"
    if failover:
        if server_version < FAILOVER_SINCE:
            raise SourceRefused("slots that survive a failover exist since PostgreSQL 17", "leave out failover")
        options += ", FAILOVER true"
    if server_version >= 150_000 or not server_version:
        command = f'CREATE_REPLICATION_SLOT "{name}"{kind} LOGICAL pgoutput ({options})'
    else:
        command = f'CREATE_REPLICATION_SLOT "{name}"{kind} LOGICAL pgoutput EXPORT_SNAPSHOT'
    result = checked(connection, command)
    lsn, snapshot = result.get_value(0, 1), result.get_value(0, 2)
    assert lsn is not None
    assert snapshot is not None
    return CreatedSlot(parse_lsn(lsn.decode()), snapshot.decode())


def drop_slot(connection: psycopg.Connection[tuple[Any, ...]], name: str) -> None:
    connection.execute("select pg_drop_replication_slot(%s)", [name])


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


class Begin(Enum):
    """How a source begins."""

    SNAPSHOT = "a new slot, and every row"
    NEW_SLOT = "a new slot, and only what comes"
    STREAM = "the log, on from where it was"
    ENDED = "nothing, it has all been read"


@dataclass(frozen=True, slots=True)
class Start:
    """How to begin, and whether a slot that stands in the way goes first."""

    begin: Begin
    drop_slot: bool = False
    lsn: int = 0


def decide_start(position: Position | None, slot: SlotState | None, mode: str, name: str) -> Start:
    """How to begin; refuses where changes would be missing and nobody allowed a new snapshot."""
    if position is None:
        if slot is not None and mode == "never":
            if slot.is_lost:
                raise slot_lost(name)
            return Start(Begin.STREAM, lsn=slot.confirmed_lsn)
        if mode == "never":
            return Start(Begin.NEW_SLOT)
        # A slot without a position is left from a start that did not come far: nothing was written yet.
        return Start(Begin.SNAPSHOT, drop_slot=slot is not None)
    if position.get("ended"):
        return Start(Begin.ENDED)
    here = LogPosition.from_json(position)
    ends_before = slot is not None and slot.end_lsn is not None and slot.end_lsn < here.lsn
    if slot is not None and not slot.is_lost and slot.confirmed_lsn <= here.lsn and not ends_before:
        return Start(Begin.STREAM, lsn=here.lsn)
    if mode == "when-needed":
        return Start(Begin.SNAPSHOT, drop_slot=slot is not None)
    if slot is None:
        raise PositionLost(
            f"slot {name} is gone, and with it the log behind {format_lsn(here.lsn)}, so changes are missing and only "
            "a new snapshot brings them",
            "start with snapshot='when-needed'",
        )
    if slot.is_lost:
        raise slot_lost(name)
    if ends_before:
        raise PositionLost(
            f"the server's log ends before the stored position {format_lsn(here.lsn)}, as after a backup was put back: "
            "what is written from there on would be passed over",
            "start with snapshot='when-needed'",
        )
    raise PositionLost(
        f"slot {name} stands at {format_lsn(slot.confirmed_lsn)}, beyond the stored position {format_lsn(here.lsn)}: "
        "another reader used it, and changes are missing here",
        "give each reader a slot of its own, and start with snapshot='when-needed'",
    )


log = get_logger(__name__)


def look_after_slot(
    connection: psycopg.Connection[tuple[Any, ...]],
    settings: PostgresSettings,
    facts: SourceFacts,
    let_go: Callable[[], None],
) -> None:
    """Note what the server keeps, and tell if it is much; a slot that is lost or beyond the cap is the end.

    `let_go` ends the connection that reads the slot: it is not dropped before.
    """
    slot = settings.slot
    state = slot_state(connection, slot)
    if state is None:
        return
    facts.lag_bytes = state.lag_bytes
    if state.is_lost:
        raise slot_lost(slot)
    if settings.lag_cap_bytes is not None and state.lag_bytes > settings.lag_cap_bytes:
        let_go()
        with contextlib.suppress(psycopg.errors.UndefinedObject):  # a temporary one went with its connection
            when_free(lambda: drop_slot(connection, slot))
        raise slot_over_cap(slot, state.lag_bytes, settings.lag_cap_bytes)
    if state.lag_bytes > settings.lag_alarm_bytes:
        log.warning("slot lags", slot=slot, lag_bytes=state.lag_bytes, alarm_bytes=settings.lag_alarm_bytes)
