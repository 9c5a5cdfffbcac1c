"""SQLite as a source: the snapshot, then the table of changes.

A position is `{"capture": …, "change": n, "at_ms": …}`, and while the snapshot goes on also `"snapshot"`: the table and
the key up to which it was read. The time is that change's: numbers are given again after a backup was put back.
"""

# ruff: noqa: S608 - the names in these statements are quoted, and the capture's own is checked

import contextlib
import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headrace.connect.change import (
    READ,
    TRUNCATE,
    Batch,
    Change,
    Event,
    Origin,
    Position,
    SchemaChange,
    UnseenChange,
    with_values,
)
from headrace.connect.errors import (
    ConnectError,
    PositionLost,
    SchemaChangeBlocked,
    SourceRefused,
    SourceUnavailable,
)
from headrace.connect.sqlite.capture import REPLACED, Capture, read_anew
from headrace.connect.sqlite.connection import SqliteSettings, connect, read_wire, translated
from headrace.connect.sqlite.shape import Shape, difference
from headrace.connect.sqlite.snapshot import Snapshot
from headrace.connect.sqlite.statements import FIXED_COLUMNS
from headrace.connect.sqlite.values import to_position
from headrace.connect.table import Row, Table, TableName
from headrace.connect.table_snapshot import take_some
from headrace.connect.unseen import REREAD, STORED, StoppedTables, emptied

_PRUNE_EVERY_S = 1.0
_ASKED = "it had stopped and somebody asked for it"
_MISSED = "changes are missing behind the stored position"


class SqliteSource:
    most_bytes: int | None = None  # about so much in a batch, if that matters to who reads

    def __init__(self, settings: SqliteSettings) -> None:
        self._settings = settings
        self.database = settings.path.stem
        self._reader: sqlite3.Connection | None = None
        self._writer: sqlite3.Connection | None = None
        self._snapshot: Snapshot | None = None
        self._tables: dict[int, tuple[Shape, Table]] = {}
        self._newest: dict[str, int] = {}  # the shape in which each table was last seen
        self._left_out: set[str] = set()
        self._change = 0
        self._at_ms: int | None = None  # of that change, if it is known
        self._catch_up_to: int | None = None
        self._resumed: dict[str, Any] | None = None
        self._ended = False
        self._stopped = StoppedTables()
        self._is_anew = False  # whether topics hold rows of which nobody knows whether they are still there
        self._seen = (-1, -1)
        self._file: tuple[int, int] | None = None
        self._prune_at = 0.0
        self._acknowledged = 0  # and not pruned yet

    # --- beginning

    def open(self, position: Position | None) -> None:
        settings = self._settings
        self._writer = connect(settings.path, settings.busy_timeout_s)
        self._capture = Capture(self._writer, settings)
        self._capture.install()
        self._reader = read_wire(connect(settings.path, settings.busy_timeout_s))
        self._file = _file_at(settings.path)
        with translated(settings.path):
            self._begin(position)

    def _begin(self, position: Position | None) -> None:
        mode = self._settings.snapshot
        self._installed, _, last = self._capture.state()
        self._learn_shapes()
        if position is not None and not position.get("ended"):
            try:
                self._refuse_lost(position["capture"], position["change"], position.get("at_ms"))
            except PositionLost:
                if mode != "when-needed":
                    raise
                position = None
                self._is_anew = True
        if position is None:
            self._go_to(last)
            if mode != "never":
                self._start_snapshot(None)
            return
        self._left_out = set(position.get("left_out", ()))
        self._newest = {name: int(shape_id) for name, shape_id in position.get("shapes", {}).items()}
        self._ended = bool(position.get("ended"))
        self._change, self._at_ms = position["change"], position.get("at_ms")
        self._stopped = StoppedTables(position.get(STORED))
        if self._stopped and self._settings.unseen_changes == REREAD and not self._ended:
            here = {f"main.{known.shape.table}" for known in self._capture.known() if known.active}
            read_anew(self._settings, [name for name in self._stopped.names if name in here])
        if "snapshot" in position:
            self._start_snapshot(position["snapshot"])

    def _go_to(self, change: int) -> None:
        self._change, self._at_ms = change, self._time_of(change)

    def _time_of(self, change: int) -> int | None:
        """When a change was noted; None if it is not there any more."""
        assert self._reader is not None
        row = self._reader.execute(
            f"SELECT at_ms FROM {self._settings.capture}_changes WHERE position = ?", [change]
        ).fetchone()
        return row[0] if row else None

    def _refuse_lost(self, capture: str, change: int, at_ms: int | None = None) -> None:
        """Refuse a position behind which changes are missing."""
        installed, pruned, last = self._capture.state()
        if capture != installed:
            missing = "capture was taken away and installed again since"
        elif change < pruned:
            missing = f"changes up to {pruned} were acknowledged by another reader"
        elif change > last:
            missing = "the file is older than it, as after a backup was put back"
        elif at_ms is not None and self._time_of(change) not in (None, at_ms):
            missing = "there is another change of that number, as after a backup was put back and written to"
        else:
            return
        raise PositionLost(
            f"changes of {self._settings.path} behind position {change} are missing ({missing})",
            "start with snapshot='when-needed', and give each reader a capture of its own",
        )

    def _start_snapshot(self, place: dict[str, Any] | None) -> None:
        reader = self._reader
        assert reader is not None
        reader.execute("BEGIN")
        # The first read of the transaction fixes its instant; the position is read in it as well.
        newest = reader.execute(
            f"SELECT max(coalesce((SELECT max(position) FROM {self._settings.capture}_changes), 0), ?)", [self._change]
        ).fetchone()[0]
        known = [known for known in self._capture.known() if known.active]
        if place is None:
            self._go_to(newest)
            self._newest = {one.shape.table: one.id for one in known}
        self._catch_up_to = newest
        self._resumed = place
        self._snapshot = Snapshot(reader, known, place)

    def _learn_shapes(self) -> None:
        for known in self._capture.known():
            if known.id not in self._tables:
                self._tables[known.id] = (known.shape, known.shape.as_table(known.id))

    # --- batches

    def next_batch(self, timeout_s: float) -> Batch | None:
        if self._ended:
            return Batch([], self.position(), is_last=True)
        deadline = time.monotonic() + timeout_s
        with translated(self._settings.path):
            if self._snapshot is not None:
                return self._next_of_snapshot()
            while True:
                events = self._next_changes() if self._has_news() else []
                if events:
                    return Batch(events, self.position())
                left = deadline - time.monotonic()
                if left <= 0:
                    return None
                time.sleep(min(self._settings.poll_s, left))

    def _next_of_snapshot(self) -> Batch:
        assert self._snapshot is not None
        assert self._reader is not None
        assert self._catch_up_to is not None
        if self._change < self._catch_up_to:
            events = self._next_changes(self._catch_up_to)
            if events:
                return Batch(events, self.position())
            self._go_to(self._catch_up_to)
        events = []
        if not self._snapshot.is_done:
            begins_table = self._snapshot.begins_table
            known, rows = self._snapshot.read(self._settings.batch_rows, self.most_bytes)
            table = self._tables[known.id][1]
            now_ms = time.time_ns() // 1_000_000
            origin, place = _origin(now_ms, "true"), self._change
            events = [Change(table, READ, None, _with_key(table, row), origin, place) for row in rows]
            if begins_table and not table.key:  # what was told of a table without a key counts no more
                events.insert(0, Change(table, TRUNCATE, None, None, origin, place))
            if self._is_anew:
                self._is_anew = False
                every = [self._tables[shape_id][1] for shape_id in self._newest.values()]
                events = [*(told for one in every for told in emptied(one, _MISSED, origin, place)), *events]
        if self._snapshot.is_done:
            self._snapshot = None
            self._catch_up_to = None
            self._reader.execute("COMMIT")
            self._ended = self._settings.snapshot == "initial-only"
        return Batch(events, self.position(), is_last=self._ended)

    def _has_news(self) -> bool:
        """Whether anybody committed since the last look; and if tables changed their shape, triggers follow them."""
        reader = self._reader
        assert reader is not None
        if _file_at(self._settings.path) != self._file:
            raise SourceUnavailable(f"database {self._settings.path} was taken away or replaced by another file")
        version = reader.execute("PRAGMA schema_version").fetchone()[0]
        seen = (reader.execute("PRAGMA data_version").fetchone()[0], version)
        if seen == self._seen:
            return False
        if version != self._seen[1]:
            self._capture.refresh()
            # Triggers were perhaps written just now; that is no news at the next look.
            seen = (seen[0], reader.execute("PRAGMA schema_version").fetchone()[0])
        self._seen = seen
        return True

    def _next_changes(self, upto: int | None = None) -> list[Event]:
        settings = self._settings
        reader = self._reader
        assert reader is not None
        found = reader.execute(
            f"SELECT * FROM {settings.capture}_changes WHERE position > ? AND position <= ? AND op <> 'x' "
            "ORDER BY position LIMIT ?",
            [self._change, upto if upto is not None else 2**62, settings.batch_rows],
        )
        if self.most_bytes is None:
            rows = found.fetchall()
            is_full = len(rows) == settings.batch_rows
        else:
            rows, is_full = take_some(found, settings.batch_rows, self.most_bytes)
            found.close()
        if is_full:
            self._seen = (-1, self._seen[1])  # there is more
        # Behind the read: what another reader acknowledged meanwhile is perhaps not in it.
        self._refuse_lost(self._installed, self._change, self._at_ms)
        if any(row[1] not in self._tables for row in rows):
            self._learn_shapes()
        events: list[Event] = []
        origin = _origin(0, "false")
        for row in rows:
            position, shape_id, op, at_ms = row[:FIXED_COLUMNS]
            shape, table = self._tables[shape_id]
            if at_ms != origin.ts_ms:
                origin = _origin(at_ms, "false")
            if self._newest.get(shape.table, shape_id) != shape_id:
                try:
                    events += self._changed_shape(shape, shape_id, origin, position)
                except SchemaChangeBlocked:
                    if not events:
                        raise
                    self._seen = (-1, self._seen[1])
                    return events  # it is raised at the next call, behind what stands before it
            self._newest[shape.table] = shape_id
            self._change, self._at_ms = position, at_ms
            if op != "s" and shape.table not in self._left_out:
                events += self._events_of(table, op, row, origin, position)
        return events

    def _events_of(self, table: Table, op: str, row: Row, origin: Origin, position: int) -> list[Event]:
        name, place = table.full_name, position
        if op == "h":
            why = row[FIXED_COLUMNS] or REPLACED  # none was written once
            return [] if name in self._stopped else [self._stopped.stop(UnseenChange(table, why, origin, place))]
        if op == "e":
            return emptied(table, _ASKED, origin, place) if self._stopped.resume(name) else []
        return [] if name in self._stopped else [_change(table, op, row, origin, position)]

    def _changed_shape(self, shape: Shape, shape_id: int, origin: Origin, position: int) -> list[Event]:
        old_shape, old_table = self._tables[self._newest[shape.table]]
        if old_shape == shape or shape.table in self._left_out:
            return []
        what = difference(old_shape, shape)
        if self._settings.schema_changes == "block":
            raise SchemaChangeBlocked(f"main.{shape.table}", what)
        if self._settings.schema_changes == "skip":
            self._left_out.add(shape.table)
            what += "; changes of this table are left out from here on (schema_changes is 'skip')"
        return [SchemaChange(self._tables[shape_id][1], old_table, what, origin, position)]

    # --- the rest of the contract

    def position(self) -> Position:
        found: Position = {"capture": self._installed, "change": self._change, "shapes": dict(self._newest)}
        if self._snapshot is not None and not self._snapshot.is_done:
            is_catching_up = self._catch_up_to is not None and self._change < self._catch_up_to
            found["snapshot"] = self._resumed if is_catching_up else self._snapshot.place
        return found | with_values(
            at_ms=self._at_ms, left_out=sorted(self._left_out), **self._stopped.stored, ended=self._ended
        )

    def facts(self) -> dict[str, Any]:
        return self._stopped.facts

    def table_names(self) -> list[TableName]:
        active = (known for known in self._capture.known() if known.active)
        return [self._tables[known.id][1].as_name for known in active if known.shape.table not in self._left_out]

    def read_key(self, table: Table, row: Row) -> list[Any] | None:
        """The key of a row that was read, as positions hold it; None if its table has none."""
        return [to_position(row[place]) for place in self._tables[table.id][0].key_places] or None

    def acknowledge(self, position: Position) -> None:
        now = time.monotonic()
        self._acknowledged = max(self._acknowledged, position["change"])
        if now >= self._prune_at:
            self._prune_at = now + _PRUNE_EVERY_S
            self._prune()

    def _prune(self) -> None:
        upto, self._acknowledged = self._acknowledged, 0
        if upto and self._writer is not None:
            with translated(self._settings.path):
                self._capture.prune(upto)

    def close(self) -> None:
        with contextlib.suppress(ConnectError):  # then it is forgotten the next time
            self._prune()
        for connection in (self._reader, self._writer):
            if connection is not None:
                connection.close()
        self._reader = self._writer = None
        self._snapshot = None


def _file_at(path: Path) -> tuple[int, int] | None:
    """Which file that is: one that was moved or deleted can be read on for ever, and nobody writes to it."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def moved(position: Position, table: str, key: Sequence[Any]) -> Position:
    """A position, had a table been read up to a key."""
    return {**position, "snapshot": {"table": table.removeprefix("main."), "after": list(key)}}


def _origin(at_ms: int, snapshot: str) -> Origin:
    return Origin(None, at_ms * 1000, snapshot, own=("position",))


def _change(table: Table, op: str, row: Row, origin: Origin, position: int) -> Change:
    count = len(table.columns)
    middle = FIXED_COLUMNS + count
    before = _with_key(table, row[FIXED_COLUMNS:middle]) if op in "ud" else None
    after = _with_key(table, row[middle : middle + count]) if op in "cur" else None
    return Change(table, TRUNCATE if op == "t" else op, before, after, origin, position)


def _with_key(table: Table, row: Row) -> Row:
    """The row; SQLite lets most primary keys be null, but such a row has no place in a keyed topic."""
    for place in table.key:
        if row[place] is None:
            name = table.columns[place].name
            raise SourceRefused(
                f"a row of {table.name} has no {name}, which is of its primary key",
                f'DELETE FROM "{table.name}" WHERE "{name}" IS NULL, and declare the column NOT NULL',
            )
    return row
