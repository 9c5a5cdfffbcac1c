"""Views in PostgreSQL: one transaction a batch, snapshots for readers, and LISTEN instead of looking again and again.

A batch is copied into a temporary table of the very transaction that merges it, so nothing is left of a batch that
failed. An advisory lock for each view keeps a second writer out.
"""

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from headrace import extras
from headrace.stores.errors import BadView, StoreAway
from headrace.stores.postgres.copy_text import copy_text
from headrace.stores.sql.answer import Dialect
from headrace.stores.sql.batch import Run
from headrace.stores.sql.statements import TableName, listed, quoted
from headrace.stores.sql.view import SqlReader, SqlStore
from headrace.stores.views.store import Label, never_written

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from headrace.stores.batch import Target
    from headrace.stores.frames import Spool


_CHANNEL = "headrace_views"
_LOCK = 0x76696577  # the lock of views; with it goes a hash of the view's name, or 0 for making the tables
_LOCK_WAIT = "120s"
_STAGE = "headrace_stage"
_SLICE_S = 0.5  # how long a wait goes on after `close`


@dataclass(frozen=True)
class PostgresStore(SqlStore):
    """Views in one schema of one database."""

    url: str = field(repr=False)  # it may hold a password
    schema: str = "public"
    kind = "postgres"
    mark = "%s"
    moment = "timestamptz"

    def __str__(self) -> str:
        return f"PostgreSQL schema {self.schema}"

    def prepared(self, found: "DataFrame") -> "DataFrame":
        """Nested columns as JSON, arrays of scalars as they are."""
        from headrace.stores.frames import nested_as_json

        return nested_as_json(found, keep_scalar_arrays=True)

    def types(self, schema: "StructType", target: "Target") -> dict[str, str]:
        """PostgreSQL's names."""
        from headrace.stores.frames import types_by_field
        from headrace.stores.postgres.batch import postgres_type

        types = types_by_field(schema, target, postgres_type, f"PostgreSQL view {target.table}", "jsonb")
        # Texts in the order of their code points, as everywhere else, and not in that of a language.
        return {name: 'text COLLATE "C"' if kind == "text" else kind for name, kind in types.items()}

    def table(self, view: str) -> TableName:
        """The table of a view."""
        return TableName(view, self.schema)

    def now(self, ms: int) -> datetime:
        """An instant."""
        return datetime.fromtimestamp(ms / 1000, UTC)

    @contextmanager
    def writing(self, label: Label) -> Iterator["_Writing"]:
        """A connection, once no other writer of this view is at work."""
        with extras.load("psycopg").connect(self.url, autocommit=True) as db:
            db.execute(f"SET lock_timeout = '{_LOCK_WAIT}'")
            db.execute("SELECT pg_advisory_lock(%s, hashtext(%s))", (_LOCK, f"{self.schema}/{label.view}"))
            writing = _Writing(db)
            with db.transaction():
                db.execute("SELECT pg_advisory_xact_lock(%s, 0)", (_LOCK,))
                db.execute(f"CREATE SCHEMA IF NOT EXISTS {quoted(self.schema)}")
                self.bookkeeping(writing.run, self.table(label.view))
            yield writing

    def reader(self, view: str, bootstrap: str | None = None) -> SqlReader:  # noqa: ARG002 - for topics
        """A reader of one view."""
        connections = _Connections(self.url, view, self.table(view).sibling("headrace_views"))
        return SqlReader(
            view,
            self.table(view),
            connections.snapshot,
            _DIALECT,
            lambda _, value: value,
            wait=connections.wait,
            close=connections.close,
        )


class _Writing:
    def __init__(self, db: Any) -> None:
        self._db = db
        self.run: Run = _run(db)

    def transaction(self) -> Any:
        return self._db.transaction()

    def stage(self, spool: "Spool", types: Mapping[str, str]) -> str:
        names = spool.schema.names
        columns = ", ".join(f"{quoted(name)} {types.get(name, 'boolean')}" for name in names)
        self._db.execute(f"CREATE TEMP TABLE {_STAGE} ({columns}) ON COMMIT DROP")
        with self._db.cursor().copy(f"COPY {_STAGE} ({listed(names)}) FROM STDIN") as copy:
            for part in spool.batches():
                copy.write(memoryview(copy_text(part)))
        self._db.execute(f"ANALYZE {_STAGE}")  # the merge joins it with the view
        return _STAGE

    def exists(self, table: TableName) -> bool:
        return bool(self._db.execute("SELECT to_regclass(%s) IS NOT NULL", (str(table),)).fetchone()[0])

    def tell(self, label: Label, revision: int) -> None:
        self._db.execute("SELECT pg_notify(%s, %s)", (_CHANNEL, f"{label} {revision}"))


class _Connections:
    """A connection for each thread that reads, and one more for each that waits."""

    def __init__(self, url: str, view: str, views: TableName) -> None:
        self._url, self._view, self._views = url, view, views
        self._psycopg = extras.load("psycopg")
        self._own = threading.local()
        self._all: list[Any] = []
        self._closed = False

    @contextmanager
    def snapshot(self) -> Iterator[Run]:
        errors = self._psycopg.errors
        db = self._connection("reading")
        try:
            with db.transaction():
                db.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
                yield _run(db)
        except (errors.UndefinedTable, errors.InvalidSchemaName) as error:
            raise never_written(self._view) from error
        except self._psycopg.OperationalError as error:
            self._forget("reading")
            raise StoreAway(f"PostgreSQL cannot be reached: {str(error).strip()}") from error

    def _connection(self, use: str) -> Any:
        db = getattr(self._own, use, None)
        if db is None or db.closed:
            try:
                db = self._psycopg.connect(self._url, autocommit=True)
            except self._psycopg.OperationalError as error:
                raise StoreAway(f"PostgreSQL cannot be reached: {str(error).strip()}") from error
            setattr(self._own, use, db)
            self._all.append(db)
            if use == "waiting":
                db.execute(f"LISTEN {_CHANNEL}")
        return db

    def _forget(self, use: str) -> None:
        with suppress(self._psycopg.Error):
            getattr(self._own, use).close()
        setattr(self._own, use, None)

    def wait(self, revision: int, timeout_s: float) -> None:
        """Until a batch of this view is told of; what came before we listened is looked up once."""
        until = time.monotonic() + timeout_s
        try:
            db = self._connection("waiting")
            found = db.execute(f"SELECT revision FROM {self._views} WHERE name = %s", (self._view,)).fetchone()  # noqa: S608
            while not self._closed and (found is None or found[0] <= revision):
                left = until - time.monotonic()
                if left <= 0:
                    return
                for told in db.notifies(timeout=min(left, _SLICE_S), stop_after=1):
                    name, _, number = told.payload.rpartition(" ")
                    found = (int(number),) if name == self._view else found
        except self._psycopg.OperationalError as error:
            self._forget("waiting")
            raise StoreAway(f"PostgreSQL cannot be reached: {str(error).strip()}") from error

    def close(self) -> None:
        self._closed = True
        for db in self._all:
            db.close()


def _run(db: Any) -> Run:
    def run(statement: str, values: Any) -> list[tuple[Any, ...]]:
        # Without values psycopg leaves per cent signs alone, as they may stand in a column's name.
        cursor = db.execute(statement, values or None)
        return cursor.fetchall() if cursor.description else []

    return run


def _name(name: str) -> str:
    return quoted(name).replace("%", "%%")


_DIALECT = Dialect("%s", _name, lambda column: _name(column.name), lambda _, value: value, lambda _, value: value)


def postgres(url: str, schema: str = "public") -> PostgresStore:
    """Keep views in a PostgreSQL database, each as a table of its name in `schema`."""
    if not url.startswith(("postgresql://", "postgres://")):
        raise BadView("a view in PostgreSQL needs a URL such as postgresql://user@host:5432/database")
    return PostgresStore(url, schema)
