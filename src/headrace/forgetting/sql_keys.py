"""Keys in a table of SQLite or PostgreSQL, and what each does to leave nothing of a destroyed key behind.

Beside the table of keys, NAME, stand `NAME__forgotten` (who was forgotten, in order) and `NAME__format` (the format,
and by what the master key is known). Destroying is one transaction; what a database keeps besides its rows is then
cleared away: SQLite overwrites freed bytes with zeros (`secure_delete`) and truncates its log, PostgreSQL rewrites
table's file (`VACUUM FULL`). PostgreSQL's write-ahead log, and whatever was copied before, are beyond reach.
What is left there is wrapped by the master key.
"""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar, Final

from headrace.forgetting.errors import ForgettingError, KeyStoreUnavailable
from headrace.forgetting.key_store import Destroyed, Forgotten, StoredKey
from headrace.stores.postgres.database import PostgresDatabase
from headrace.stores.sql.database import Database
from headrace.stores.sql.statements import TableName
from headrace.stores.sqlite.database import SqliteDatabase

TABLE: Final = "headrace_keys"
FORMAT: Final = 1
_CHUNK: Final = 500  # ids in one question
_BUSY_S: Final = 10.0
_LOOK_S: Final = 0.05


class SqlKeyStore:
    """One connection, lent to one thread at a time."""

    text: ClassVar[str]
    binary: ClassVar[str]

    def __init__(self, database: Database, table: TableName) -> None:
        self._database, self._table = database, table
        self._forgotten, self._format = table.with_suffix("forgotten"), table.with_suffix("format")
        self._lock = threading.RLock()
        self._is_ready = False
        with self._connected() as db:
            self._prepare(db)

    @contextmanager
    def _connected(self) -> Iterator[Database]:
        """The connection, made anew after a failure."""
        with self._lock:
            try:
                if not self._is_ready or self._database.is_broken:
                    self._database.connect()
                    self._is_ready = True
                yield self._database
            except self._database.driver_error() as error:
                self._is_ready = False
                with suppress(self._database.driver_error()):
                    self._database.close()
                raise KeyStoreUnavailable(f"the key store in {self} cannot be used: {str(error).strip()}") from None

    def _prepare(self, db: Database) -> None:
        if db.exists(self._format):
            [(found,)] = db.run(f"SELECT max(format) FROM {self._format}")  # noqa: S608 - all names are quoted
            if found != FORMAT:
                raise ForgettingError(
                    f"the key store in {self} has format {found}, and this Headrace knows formats up to {FORMAT}: "
                    "install a newer one"
                )
            return
        with db.transaction():
            db.guard_definitions()
            if db.exists(self._format):
                return
            db.run(
                f"CREATE TABLE {self._table} (subject {self.text} NOT NULL, generation bigint NOT NULL, "
                f"key_id {self.text} NOT NULL UNIQUE, wrapped {self.binary}, created_ms bigint NOT NULL, "
                "PRIMARY KEY (subject, generation))"
            )
            db.run(
                f"CREATE TABLE {self._forgotten} (number bigint PRIMARY KEY, subject {self.text} NOT NULL, "
                f"forgotten_ms bigint NOT NULL, key_ids {self.text} NOT NULL)"
            )
            db.run(f"CREATE TABLE {self._format} (format integer NOT NULL, master {self.text} NOT NULL)")
            db.run(f"INSERT INTO {self._format} VALUES ({FORMAT}, '')")  # noqa: S608

    def claim(self, check: str) -> str:
        with self._connected() as db, db.transaction():
            db.run(f"UPDATE {self._format} SET master = ? WHERE master = ''", (check,))  # noqa: S608
            [(kept,)] = db.run(f"SELECT master FROM {self._format}")  # noqa: S608
        return str(kept)

    # --- keys

    def find(self, subject: str) -> list[StoredKey]:
        with self._connected() as db:
            return self._find(db, subject)

    def _find(self, db: Database, subject: str) -> list[StoredKey]:
        return _keys(
            db.run(
                f"SELECT key_id, subject, wrapped, created_ms FROM {self._table} WHERE subject = ? ORDER BY generation",  # noqa: S608
                (subject,),
            )
        )

    def read(self, key_ids: Sequence[str]) -> list[StoredKey]:
        found = []
        for first in range(0, len(key_ids), _CHUNK):
            some = key_ids[first : first + _CHUNK]
            marks = ", ".join("?" * len(some))
            with self._connected() as db:
                found += _keys(
                    db.run(
                        f"SELECT key_id, subject, wrapped, created_ms FROM {self._table} WHERE key_id IN ({marks})",  # noqa: S608
                        list(some),
                    )
                )
        return found

    def add(self, key: StoredKey, *, renew: bool = False) -> StoredKey:
        with self._connected() as db:
            while True:
                there = self._find(db, key.subject)
                if there and not (renew and there[-1].wrapped is None):
                    return there[-1]
                # Of two who add the same generation one does, and the other finds that one's.
                db.run(
                    f"INSERT INTO {self._table} (subject, generation, key_id, wrapped, created_ms) "  # noqa: S608
                    "VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
                    (key.subject, len(there) + 1, key.key_id, key.wrapped, key.created_ms),
                )

    # --- forgetting

    def destroy(self, subject: str, spare_id: str, now_ms: int) -> Destroyed:
        with self._connected() as db:
            with db.transaction():
                self._exclude_others(db)
                done, is_repeat = self._destroy(db, subject, spare_id, now_ms)
            # Also for a repeat: whoever was killed before this point has left it to us.
            return Destroyed(done, is_repeat, tuple(self._clear_away(db)))

    def _destroy(self, db: Database, subject: str, spare_id: str, now_ms: int) -> tuple[Forgotten, bool]:
        keys = self._find(db, subject)
        live = [key.key_id for key in keys if key.wrapped is not None]
        before = _acts(
            db.run(
                f"SELECT number, subject, forgotten_ms, key_ids FROM {self._forgotten} WHERE subject = ? "  # noqa: S608
                "ORDER BY number DESC LIMIT 1",
                (subject,),
            )
        )
        if before and not live:
            return before[0], True
        if not keys:
            live = [spare_id]
            db.run(
                f"INSERT INTO {self._table} (subject, generation, key_id, wrapped, created_ms) VALUES (?, 1, ?, ?, ?)",  # noqa: S608
                (subject, spare_id, None, now_ms),
            )
        db.run(f"UPDATE {self._table} SET wrapped = NULL WHERE subject = ?", (subject,))  # noqa: S608
        made = Forgotten(self._last(db) + 1, subject, now_ms, tuple(live))
        db.run(
            f"INSERT INTO {self._forgotten} (number, subject, forgotten_ms, key_ids) VALUES (?, ?, ?, ?)",  # noqa: S608
            (made.number, subject, now_ms, ",".join(live)),
        )
        return made, False

    def _exclude_others(self, db: Database) -> None:
        """In a transaction: nobody else forgets until its end, so numbers have no gaps."""

    def _clear_away(self, db: Database) -> Iterator[str]:
        """Leave nothing of destroyed keys; where something may be left is said."""
        raise NotImplementedError

    def forgotten(self, after: int = 0) -> list[Forgotten]:
        with self._connected() as db:
            return _acts(
                db.run(
                    f"SELECT number, subject, forgotten_ms, key_ids FROM {self._forgotten} WHERE number > ? "  # noqa: S608
                    "ORDER BY number",
                    (after,),
                )
            )

    def last_forgotten(self) -> int:
        with self._connected() as db:
            return self._last(db)

    def _last(self, db: Database) -> int:
        [(last,)] = db.run(f"SELECT coalesce(max(number), 0) FROM {self._forgotten}")  # noqa: S608
        return int(last)

    def close(self) -> None:
        with self._lock:
            self._is_ready = False
            self._database.close()


def _keys(rows: list[tuple[Any, ...]]) -> list[StoredKey]:
    return [
        StoredKey(key_id, subject, None if wrapped is None else bytes(wrapped), created_ms)
        for key_id, subject, wrapped, created_ms in rows
    ]


def _acts(rows: list[tuple[Any, ...]]) -> list[Forgotten]:
    return [Forgotten(number, subject, at_ms, tuple(ids.split(","))) for number, subject, at_ms, ids in rows]


class _ErasingDatabase(SqliteDatabase):
    """What is deleted here is overwritten with zeros."""

    def connect(self) -> None:
        super().connect()
        self.run("PRAGMA secure_delete = ON")


class SqliteKeyStore(SqlKeyStore):
    """Keys in a SQLite file, which nobody else should be able to read."""

    text, binary = "TEXT", "BLOB"

    def __init__(self, path: str | Path, table: str = TABLE) -> None:
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if not self.path.exists():
            self.path.touch(mode=0o600)
        super().__init__(_ErasingDatabase(self.path, has_wal=True), TableName(table))

    def __str__(self) -> str:
        return f"SQLite {self.path}"

    def _clear_away(self, db: Database) -> Iterator[str]:
        until = time.monotonic() + _BUSY_S
        while True:
            [(is_busy, *_)] = db.run("PRAGMA wal_checkpoint(TRUNCATE)")
            if not is_busy:
                return
            if time.monotonic() > until:
                break
            time.sleep(_LOOK_S)
        yield f"the wrapped key may be in {self.path}-wal until nobody reads the file: run the command again then"


class PostgresKeyStore(SqlKeyStore):
    """Keys in a schema of PostgreSQL."""

    text, binary = 'text COLLATE "C"', "bytea"

    def __init__(self, url: str, table: str = TABLE, schema: str = "public") -> None:
        super().__init__(PostgresDatabase(url), TableName(table, schema))

    def __str__(self) -> str:
        return f"PostgreSQL table {self._table.plain}"

    def _exclude_others(self, db: Database) -> None:
        db.run(f"LOCK TABLE {self._forgotten} IN EXCLUSIVE MODE")

    def _clear_away(self, db: Database) -> Iterator[str]:
        try:
            db.run(f"SET lock_timeout = '{int(_BUSY_S * 1000)}ms'")
            db.run(f"VACUUM FULL {self._table}")
            db.run("RESET lock_timeout")
        except self._database.driver_error() as error:
            reason = str(error).strip().splitlines()[0]
            yield (
                f"the wrapped key's bytes may be in the file of table {self._table.plain} ({reason}): run VACUUM FULL "
                f"{self._table.plain}"
            )
        yield "the wrapped key is in PostgreSQL's write-ahead log, its archive and its standbys until they are recycled"
