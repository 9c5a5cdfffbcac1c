"""Events in a SQLite file: one writer at a time, and appends that come together are committed together.

A thread that finds nobody writing writes for all who wait: one transaction, one fsync. Each append is checked by
itself, before anything of it is written, so that a conflict of one is nothing to the others. Other programs may use the
same file; the database's own lock keeps them apart, and a number in shared memory shows whoever waits that one of them
has committed.
"""

import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from headrace.eventsourcing.errors import BoundaryConflict, Conflict, InvalidStore, StoreUnavailable
from headrace.eventsourcing.model import ANY, Appended, Condition, StreamAppend, check_append
from headrace.eventsourcing.sql import COLUMNS, SqlEventStore, cells_of
from headrace.stores.sql.statements import TableName
from headrace.stores.sqlite.database import SqliteDatabase
from headrace.telemetry.logs import get_logger

_log = get_logger(__name__)
_POLL_S: Final = 0.02  # how long other programs' appends may go unnoticed


class _Pending:
    """An append that waits for whoever writes."""

    def __init__(self, appends: Sequence[StreamAppend], condition: Condition | None, command_id: str) -> None:
        self.appends, self.condition, self.command_id = appends, condition, command_id
        self.result: Appended | Exception | None = None


class SqliteEventStore(SqlEventStore[SqliteDatabase]):
    """The tables of one store in a file, which may hold others."""

    engine, text, binary = SqliteDatabase, "TEXT", "BLOB"

    def __init__(self, path: str | Path, table: str = "headrace_events", *, create: bool = True) -> None:
        self.path = Path(path)
        if not create:
            self._look(TableName(table))
        self._waiting: deque[_Pending] = deque()
        self._writing = threading.Lock()
        self._committed = threading.Condition()
        super().__init__(TableName(table), self._connect, create=create)
        self._last = f"SELECT seq FROM sqlite_sequence WHERE name = '{self.table.name.replace(chr(39), chr(39) * 2)}'"  # noqa: S608

    def _look(self, table: TableName) -> None:
        """Whether the store is there, in a file that may be somebody else's and is not touched."""
        if not self.path.is_file():
            raise InvalidStore(f"there is no file {self.path}: check the store's address")
        try:
            with SqliteDatabase(self.path).open() as db:
                is_there = db.exists(table.with_suffix("format"))
        except self.engine.driver_error() as error:
            raise StoreUnavailable(f"the event store in {self} cannot be used: {error}") from error
        if not is_there:
            raise InvalidStore(f"there is no event store {table.plain!r} in {self}: check its address")

    def _connect(self) -> SqliteDatabase:
        db = SqliteDatabase(self.path, has_wal=True)
        db.connect()
        db.run("PRAGMA secure_delete = ON")  # what is overwritten or deleted is not left in the file
        return db

    def __str__(self) -> str:
        return f"SQLite {self.path}"

    def create_tables(self, db: SqliteDatabase) -> None:
        # AUTOINCREMENT: a position is never used twice, even if the last event should be deleted.
        db.run(
            f"CREATE TABLE {self.table} (position INTEGER PRIMARY KEY AUTOINCREMENT, stream TEXT NOT NULL, version "
            "INTEGER NOT NULL, type TEXT NOT NULL, schema INTEGER NOT NULL, data BLOB NOT NULL, id TEXT NOT NULL, "
            "time_ms INTEGER NOT NULL, tags TEXT NOT NULL, causation_id TEXT NOT NULL, correlation_id TEXT NOT NULL, "
            "command_id TEXT NOT NULL, headers TEXT NOT NULL, UNIQUE (stream, version))"
        )
        commands = self.table.with_suffix("commands")
        db.run(f"CREATE INDEX {commands} ON {self.table} (command_id) WHERE command_id <> ''")
        db.run(f"CREATE TABLE {self.tags} (tag TEXT, position INTEGER, PRIMARY KEY (tag, position)) WITHOUT ROWID")

    # --- appending

    def append(
        self, appends: Sequence[StreamAppend], *, condition: Condition | None = None, command_id: str = ""
    ) -> Appended:
        check_append(appends, condition, command_id)
        own = _Pending(appends, condition, command_id)
        self._waiting.append(own)
        with self._writing:
            if own.result is None:
                self._write_all()
        if isinstance(own.result, Exception):
            raise own.result
        assert own.result is not None
        return own.result

    def _write_all(self) -> None:
        """Everything that waits, in one transaction; whatever happens, each of them has its result."""
        taken = []
        while self._waiting:
            taken.append(self._waiting.popleft())
        if not self._commit(taken) and len(taken) > 1:
            for each in taken:  # what one of them is to blame for is nothing to the others
                self._commit([each])
        with self._committed:
            self._committed.notify_all()

    def _commit(self, pending: Sequence[_Pending]) -> bool:
        results: list[Appended | Exception]
        try:
            with self._reachable() as db, db.transaction():
                results = [self._write(db, each) for each in pending]
                written = [each.position for each in results if isinstance(each, Appended) and not each.is_repeat]
                if written:
                    self._project_inline(db, max(written))
        except Exception as error:  # noqa: BLE001 - handed to each of those who wait
            results = [error] * len(pending)
            return False
        except BaseException:
            results = [StoreUnavailable("the append was interrupted: repeat it by its command id")] * len(pending)
            raise
        else:
            return True
        finally:
            for each, result in zip(pending, results, strict=True):
                each.result = result

    def _write(self, db: SqliteDatabase, pending: _Pending) -> Appended | Exception:
        """One append, or what is in its way: checked first, so that nothing has to be undone."""
        if pending.command_id and (done := self._find_command(db, pending.command_id)) is not None:
            return done
        if (condition := pending.condition) is not None:
            positions, values = self.positions(condition.query, "position > ?", [condition.after], "ASC", 1)
            [(found,)] = db.run(f"SELECT min(position) FROM ({positions})", values)  # noqa: S608
            if found is not None:
                return BoundaryConflict(condition.query, condition.after, found)
        versions = {}
        for each in pending.appends:
            [(actual,)] = db.run(f"SELECT coalesce(max(version), 0) FROM {self.table} WHERE stream = ?", (each.stream,))  # noqa: S608
            if each.expected not in (ANY, actual):
                return Conflict(each.stream, each.expected, actual)
            versions[each.stream] = actual
        [(position,)] = db.run(self._last) or [(0,)]
        rows, tags = [], []
        for each in pending.appends:
            for event in each.events:
                position += 1
                versions[each.stream] += 1
                kind, schema, data, ident, time_ms, joined, causation, correlation, headers = cells_of(event)
                rows.append((position, each.stream, versions[each.stream], kind, schema, data, ident, time_ms, joined,
                             causation, correlation, pending.command_id, headers))  # fmt: skip
                tags += [(tag, position) for tag in event.tags]
        db.run_many(f"INSERT INTO {self.table} ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)  # noqa: S608
        if tags:
            db.run_many(f"INSERT INTO {self.tags} (tag, position) VALUES (?, ?)", tags)  # noqa: S608
        return Appended(position, versions)

    # --- erasure

    @contextmanager
    def writing(self) -> Iterator[SqliteDatabase]:
        with self._writing, self._reachable() as db, db.transaction():
            yield db
        with self._committed:
            self._committed.notify_all()

    def append_in(self, db: SqliteDatabase, appends: Sequence[StreamAppend]) -> Appended:
        check_append(appends, None, "")
        done = self._write(db, _Pending(appends, None, ""))
        if isinstance(done, Exception):
            raise done
        return done

    def purge(self) -> None:
        with self._reachable() as db:
            [(is_busy, *_)] = db.run("PRAGMA wal_checkpoint(TRUNCATE)")
        if is_busy:
            _log.warning(
                "what was deleted is still in the write-ahead log: a reader holds it; it goes with the next checkpoint",
                file=str(self.path),
            )

    def beside(self, name: str, *, create: bool) -> "SqliteEventStore | None":
        table = self.table.with_suffix(name)
        with self._reachable() as db:
            is_there = db.exists(table.with_suffix("format"))
        return SqliteEventStore(self.path, table.name) if create or is_there else None

    # --- waiting

    def last_position(self) -> int:
        with self._reachable() as db:
            return self._last_in(db)

    def _last_in(self, db: SqliteDatabase) -> int:
        rows = db.run(self._last)
        return int(rows[0][0]) if rows else 0

    def wait(self, after: int, timeout_s: float) -> bool:
        until, seen = time.monotonic() + timeout_s, None
        with self._reachable() as db:
            while True:
                # A connection's own commits do not change its number; it makes none while it waits.
                counted = db.run("PRAGMA data_version")
                if counted != seen:
                    seen = counted
                    if self._last_in(db) > after:
                        return True
                left = until - time.monotonic()
                if left <= 0 or self.pool.is_closed:
                    return False
                with self._committed:
                    self._committed.wait(min(left, _POLL_S))

    def close(self) -> None:
        super().close()
        with self._committed:
            self._committed.notify_all()


def sqlite(path: str | Path, table: str = "headrace_events", *, create: bool = True) -> SqliteEventStore:
    """Keep events in a SQLite file, in tables whose names begin with `table`; `create` them if they are not there."""
    return SqliteEventStore(path, table, create=create)
