"""The replication slot: what makes the server keep its log for us, and must not make it keep too much."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import psycopg
from psycopg import pq

from headrace.connect.errors import SourceRefused, SourceUnavailable
from headrace.connect.postgres.connection import checked
from headrace.connect.postgres.positions import parse_lsn

FAILOVER_SINCE: Final = 170_000
_PATIENCE_S: Final = 30.0  # how long another reader may take to let go
_STATE: Final = """
select plugin, database, active, active_pid, confirmed_flush_lsn::text, wal_status,
       case when pg_is_in_recovery() then null else pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)::bigint end
from pg_replication_slots where slot_name = %s
"""


@dataclass(frozen=True, slots=True)
class SlotState:
    """A slot as the server sees it; `lag_bytes` is how much log it holds."""

    name: str
    plugin: str | None
    database: str | None
    active: bool
    active_pid: int | None
    confirmed_lsn: int
    wal_status: str | None
    lag_bytes: int

    @property
    def is_lost(self) -> bool:
        """Whether the server has given up keeping the log for it."""
        return self.wal_status == "lost"


def slot_state(connection: psycopg.Connection[tuple[Any, ...]], name: str) -> SlotState | None:
    """The slot, if it is there."""
    row = connection.execute(_STATE, [name]).fetchone()
    if row is None:
        return None
    plugin, database, active, pid, confirmed, status, lag = row
    return SlotState(name, plugin, database, active, pid, parse_lsn(confirmed or "0/0"), status, int(lag or 0))


def check_slot(state: SlotState, database: str) -> None:
    """Refuse a slot that cannot be read."""
    drop = f"SELECT pg_drop_replication_slot('{state.name}')"
    if state.plugin != "pgoutput":
        kind = f"of plugin {state.plugin}" if state.plugin else "a physical one"
        raise SourceRefused(
            f"slot {state.name} is {kind} and not of pgoutput", f"choose another name for slot, or {drop}"
        )
    if state.database != database:
        raise SourceRefused(f"slot {state.name} belongs to database {state.database}", "choose another name for slot")
    if state.is_lost:
        raise slot_lost(state.name)


def slot_lost(name: str) -> SourceRefused:
    """The server has thrown away log that was not read."""
    return SourceRefused(
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
    """Let the server forget."""
    connection.execute("select pg_drop_replication_slot(%s)", [name])
