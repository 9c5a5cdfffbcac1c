"""PostgreSQL by triggers as a source: the snapshot, then the table of changes, transaction by transaction.

A position is `{"capture": …, "through": n, "visible": …}`: everything was passed on that belongs to a transaction
whose last change is at most n, or that the snapshot saw. Inside a large transaction it also has its id and the last
change that was passed on. A snapshot that was interrupted goes on at a later instant, after the transactions between
the two, which `"next"` names; so no row is ever older than one that came before.
"""

import contextlib
import time
from typing import Any

import psycopg

from headrace.connect.change import (
    READ,
    TRUNCATE,
    Batch,
    Change,
    Event,
    Origin,
    Place,
    Position,
    SchemaChange,
    TransactionEnd,
    UnseenChange,
    with_values,
)
from headrace.connect.errors import PositionLost, SchemaChangeBlocked
from headrace.connect.postgres.catalog import Catalog
from headrace.connect.postgres.connection import connect, translated
from headrace.connect.table import Table, TableName, to_wire
from headrace.connect.triggers.capture import REKEYED, Capture, Connection, Fences, read_anew
from headrace.connect.triggers.settings import TriggerSettings
from headrace.connect.triggers.shapes import Shapes, TriggerSnapshot, parse_row
from headrace.connect.unseen import REREAD, STORED, StoppedTables, emptied
from headrace.telemetry.logs import get_logger

log = get_logger(__name__)
_OWN = ("position",)
_FORBIDDEN = ("this user lacks a privilege", "GRANT SELECT ON TABLE … TO …")
_PRUNE_EVERY_S = 1.0
_MISSED = "changes are missing behind the stored position"


class TriggerSource:
    def __init__(self, settings: TriggerSettings) -> None:
        self._settings = settings
        self.database = ""
        self._side: Connection | None = None
        self._snapshot: TriggerSnapshot | None = None
        self._through = 0
        self._visible: str | None = None
        self._opened = ""  # the instant at which this start's snapshot reads
        self._next: str | None = None  # the instant of the snapshot that goes on, until changes have come so far
        self._inside: tuple[str, int, int] | None = (
            None  # a large transaction: id, last change in it, the one passed on
        )
        self._plan: list[tuple[str, int, int]] = []  # transactions that are complete: id, last change, how many
        self._is_planned = False  # of the transactions between two instants
        self._failed: SchemaChangeBlocked | None = None
        self._ended = False
        self._stopped = StoppedTables()
        self._is_anew = False  # whether topics hold rows of which nobody knows whether they are still there
        self._prune_at = self._beat_at = self._held_up_since = 0.0

    # --- beginning

    def open(self, position: Position | None) -> None:
        with translated(*_FORBIDDEN):
            self._open(position)

    def _open(self, position: Position | None) -> None:
        settings = self._settings
        self._side = side = connect(settings.url)
        self.database = side.info.dbname
        self._capture = Capture(side, settings)
        self._capture.install()
        installed, last = self._capture.installed()
        self._installed = installed
        self._fences = Fences(self._last_position, self._new_xid, self._oldest_running)
        self._beat_at = time.monotonic() + settings.heartbeat_s
        if position is not None and not position.get("ended"):
            position = self._checked(position, installed, last)
        stored = position or {}
        self._shapes = Shapes(
            side, settings, stored.get("shapes", {}), set(stored.get("left_out", ())), is_new=position is None
        )
        self._ended = bool(stored.get("ended"))
        self._stopped = StoppedTables(stored.get(STORED))
        if self._stopped and settings.unseen_changes == REREAD and not self._ended:
            here = {table.full_name for table in self._capture.captured()}
            read_anew(settings, [name for name in self._stopped.names if name in here])
        if position is None:
            if settings.snapshot == "never":
                self._visible = self._snapshot_of(side)
            else:
                self._visible = self._begin_snapshot(None)
            return
        self._through, self._visible = position["through"], position["visible"]
        inside = position.get("inside")
        self._inside = (inside[0], inside[1], inside[2]) if inside else None
        if "snapshot" in position:
            self._next = position.get("next")
            opened = self._begin_snapshot(position["snapshot"])
            self._opened = opened
            if self._next is None:
                self._next = opened

    def _checked(self, position: Position, installed: str, last: int) -> Position | None:
        missing = None
        if position["capture"] != installed:
            missing = "capture was taken away and installed again since, or the database is another one"
        elif not self._knows_instant(position["visible"]):
            missing = "the database counts transactions anew, as after a dump was restored"
        elif position["through"] > last:
            missing = "the database is older than it, as after a backup was put back"
        if missing is None:
            return position
        if self._settings.snapshot == "when-needed":
            self._is_anew = True
            return None
        raise PositionLost(
            f"changes behind the stored position are missing ({missing})", "start with snapshot='when-needed'"
        )

    def _knows_instant(self, instant: str | None) -> bool:
        """Whether the transactions that an instant counts were given here: not in a copy that counts from anew."""
        if instant is None:
            return True
        query = "select pg_snapshot_xmin(%s::pg_snapshot) <= pg_snapshot_xmax(pg_current_snapshot())"
        return bool(self._execute(query, [instant]).fetchone() == (True,))

    def _snapshot_of(self, connection: Connection) -> str:
        row = connection.execute("select pg_current_snapshot()::text").fetchone()
        assert row is not None
        return str(row[0])

    def _begin_snapshot(self, place: dict[str, Any] | None) -> str:
        assert self._side is not None
        reader = connect(self._settings.url)
        reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        instant = self._snapshot_of(reader)
        self._snapshot = TriggerSnapshot(reader, self._shapes, Catalog(self._side), self._capture.captured(), place)
        return instant

    def _last_position(self) -> int:
        return self._capture.installed()[1]

    def _new_xid(self) -> int:
        return int(self._ask("select pg_current_xact_id()::text"))

    def _oldest_running(self) -> int:
        return int(self._ask("select pg_snapshot_xmin(pg_current_snapshot())::text"))

    def _ask(self, query: str) -> str:
        return str(self._execute(query).fetchone()[0])

    def _execute(self, query: str, values: list[Any] | None = None) -> Any:
        assert self._side is not None
        execute: Any = self._side.execute
        return execute(query, values)

    # --- batches

    def next_batch(self, timeout_s: float) -> Batch | None:
        if self._ended:
            return Batch([], self.position(), is_last=True)
        if self._failed is not None:
            raise self._failed
        deadline = time.monotonic() + timeout_s
        with translated(*_FORBIDDEN):
            if self._snapshot is not None:
                return self._next_between() if self._next is not None else self._next_of_snapshot()
            while True:
                if not self._plan and self._inside is None:
                    self._look_after()
                    self._plan = self._transactions("max(position) <= %s", [self._fences.advance()])
                    self._watch()
                events = self._next_changes()
                if events:
                    return Batch(events, self.position())
                left = deadline - time.monotonic()
                if left <= 0:
                    return None
                time.sleep(min(self._settings.poll_s, left))

    def _next_between(self) -> Batch:
        """Transactions between the instant at which a snapshot was interrupted and the one at which it goes on."""
        if not self._is_planned and self._inside is None:
            self._plan = self._transactions("pg_visible_in_snapshot(xid, %s::pg_snapshot)", [self._next])
            self._is_planned = True
        events = self._next_changes()
        if self._is_planned and not self._plan and self._inside is None:
            self._visible, self._through, self._is_planned = self._next, 0, False
            # The changes of an older start may have ended before the instant at which this one reads.
            self._next = self._opened if self._opened != self._visible else None
        return Batch(events, self.position())

    def _next_of_snapshot(self) -> Batch:
        snapshot = self._snapshot
        assert snapshot is not None
        events: list[Event] = []
        if not snapshot.is_done:
            left, begins_table = snapshot.left, snapshot.begins_table
            table, query = snapshot.current(left[0])
            _, rows = snapshot.read(self._settings.batch_rows)
            origin = Origin(None, time.time_ns() // 1000, "true", {"txId": None}, _OWN)
            if self._is_anew:
                self._is_anew = False
                for one in left:
                    events += emptied(snapshot.current(one)[0], _MISSED, origin, None)
            if begins_table and not query.has_key:  # what was told of a table without a key counts no more
                events.append(Change(table, TRUNCATE, None, None, origin, None))
            events += [Change(table, READ, None, row, origin, None) for row in rows]
        if snapshot.is_done:
            snapshot.connection.close()
            self._snapshot = None
            self._ended = self._settings.snapshot == "initial-only"
        return Batch(events, self.position(), is_last=self._ended)

    # --- changes

    def _transactions(self, condition: str, values: list[Any]) -> list[tuple[str, int, int]]:
        """Transactions that are complete and were not passed on: in the order of their last changes."""
        not_seen = "" if self._visible is None else "where not pg_visible_in_snapshot(xid, %s::pg_snapshot) "
        seen = [] if self._visible is None else [self._visible]
        if "pg_visible" in condition:
            not_seen, condition = f"{not_seen}and {condition} ", "true"
            seen, values = seen + values, []
        found: list[tuple[str, int, int]] = self._execute(
            f"select xid::text, max(position), count(*) from {self._settings.capture}.changes {not_seen}"  # noqa: S608
            f"group by xid having max(position) > %s and {condition} order by 2",
            [*seen, self._through, *values],
        ).fetchall()
        if self._inside is not None:
            found = [one for one in found if one[0] != self._inside[0]]
        return found

    def _next_changes(self) -> list[Event]:
        """Whole transactions, or a piece of a large one."""
        if self._inside is not None:
            return self._piece(*self._inside)
        if not self._plan:
            return []
        xid, last, count = self._plan[0]
        if count > self._settings.batch_rows:
            self._plan = self._plan[1:]
            return self._piece(xid, last, 0)
        chosen: list[tuple[str, int, int]] = []
        total = 0
        for one in self._plan:
            total += one[2]
            if total > self._settings.batch_rows:
                break
            chosen.append(one)
        rows: dict[str, list[Any]] = {one[0]: [] for one in chosen}
        for row in self._read("xid = any(%s::xid8[])", [list(rows)], "position"):
            rows[row[1]].append(row)
        events: list[Event] = []
        for xid, last, _count in chosen:
            try:
                some = self._events(rows[xid], is_whole=True)
            except SchemaChangeBlocked as blocked:
                if not events:
                    raise
                self._failed = blocked  # after what stands before it
                return events
            events += some
            self._plan = self._plan[1:]
            self._through = last
        return events

    def _piece(self, xid: str, last: int, after: int) -> list[Event]:
        limit = f"position limit {self._settings.batch_rows}"
        rows = self._read("xid = %s::xid8 and position > %s", [xid, after], limit)
        is_end = not rows or rows[-1][0] >= last
        events = self._events(rows, is_whole=is_end)
        if is_end:
            self._inside = None
            self._through = last
        else:
            self._inside = (xid, last, rows[-1][0])
        return events

    def _read(self, condition: str, values: list[Any], order: str) -> list[Any]:
        found: list[Any] = self._execute(
            "select position, xid::text, (extract(epoch from at) * 1000000)::bigint, shape, op::text, before, after "  # noqa: S608
            f"from {self._settings.capture}.changes where {condition} order by {order}",
            values,
        ).fetchall()
        return found

    def _events(self, rows: list[Any], *, is_whole: bool) -> list[Event]:
        if not rows:
            return []
        xid, at_us = rows[0][1], rows[0][2]
        origin = Origin(xid, at_us, "false", {"txId": int(xid)}, _OWN)
        events: list[Event] = []
        for position, _xid, _at, shape_id, op, before, after in rows:
            place = position
            found = self._shapes.of(shape_id, origin, place)
            if found.event is not None:
                events.append(found.event)
            if found.table is None:
                continue
            name = found.table.full_name
            if found.is_rekeyed and op != "t" and name not in self._stopped:
                events += self._read_rekeyed(found.table, origin, place)
            if op == "h":
                if name not in self._stopped:
                    events.append(self._stopped.stop(UnseenChange(found.table, after or _MISSED, origin, place)))
            elif op == "e":
                if self._stopped.resume(name):
                    events += emptied(found.table, "it had stopped and somebody asked for it", origin, place)
            elif name not in self._stopped:
                events.append(
                    Change(
                        found.table,
                        TRUNCATE if op == "t" else op,
                        None if before is None else found.arrange(parse_row(to_wire(before))),
                        None if after is None else found.arrange(parse_row(to_wire(after))),
                        origin,
                        place,
                    )
                )
        if is_whole and any(not isinstance(event, SchemaChange) for event in events):
            events.append(TransactionEnd(origin))
        return events

    def _read_rekeyed(self, table: Table, origin: Origin, place: Place) -> list[Event]:
        """Rows have a key since here, or none any more: those of before are read again under it."""
        if self._settings.unseen_changes != REREAD:
            return [self._stopped.stop(UnseenChange(table, REKEYED, origin, place))]
        if any(table.full_name == one.full_name for one in self._capture.captured()):
            read_anew(self._settings, [table.full_name])
        return emptied(table, REKEYED, origin, place)

    # --- now and then

    def _look_after(self) -> None:
        now = time.monotonic()
        if now >= self._beat_at:
            self._beat_at = now + self._settings.heartbeat_s
            self._capture.refresh()

    def _watch(self) -> None:
        """Tell who holds everything up."""
        now = time.monotonic()
        if self._fences.waiting is None or not self._held_up_since:
            self._held_up_since = now
        elif now - self._held_up_since > self._settings.open_alarm_s:
            self._held_up_since = now
            row = self._execute(
                "select pid, now() - xact_start from pg_stat_activity where backend_xid is not null "
                "order by xact_start limit 1"
            ).fetchone()
            log.warning("an open transaction holds changes up", pid=row[0] if row else None, open=str(row and row[1]))

    # --- the rest of the contract

    def position(self) -> Position:
        found: Position = {
            "capture": self._installed,
            "through": self._through,
            "visible": self._visible,
            "shapes": self._shapes.known,
        }
        if self._snapshot is not None and (not self._snapshot.is_done or self._next is not None):
            found["snapshot"] = self._snapshot.place
            if self._next is not None:
                found["next"] = self._next
        inside, left_out = list(self._inside or ()), sorted(self._shapes.left_out)
        return found | with_values(inside=inside, left_out=left_out, **self._stopped.stored, ended=self._ended)

    def facts(self) -> dict[str, Any]:
        return self._stopped.facts

    def table_names(self) -> list[TableName]:
        with translated(*_FORBIDDEN):
            names = self._capture.names()
        return [name for name in names if f"{name.schema}.{name.name}" not in self._shapes.left_out]

    def acknowledge(self, position: Position) -> None:
        now = time.monotonic()
        if now >= self._prune_at and self._side is not None:
            self._prune_at = now + _PRUNE_EVERY_S
            with translated(*_FORBIDDEN):
                self._capture.prune(position["through"] if "next" not in position else 0, position["visible"])

    def close(self) -> None:
        for connection in (None if self._snapshot is None else self._snapshot.connection, self._side):
            if connection is not None:
                with contextlib.suppress(psycopg.Error):
                    connection.close()
        self._snapshot = self._side = None
