"""Views in PostgreSQL: one transaction a batch, snapshots for readers, and LISTEN instead of looking again and again.

A batch is copied into a temporary table of the very transaction that merges it, so nothing is left of a batch that
failed. An advisory lock for each view keeps a second writer out.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headrace import extras
from headrace.stores.errors import BadView, StoreAway
from headrace.stores.postgres.database import VIEWS, PostgresDatabase
from headrace.stores.sql.answer import Dialect
from headrace.stores.sql.database import Database
from headrace.stores.sql.statements import TableName, quote
from headrace.stores.sql.view import Connections, Run, SqlReader, SqlStore
from headrace.stores.views.store import Label, never_written

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from headrace.stores.batch import Target

_CHANNEL = "headrace_views"
_SLICE_S = 0.5  # how long a wait goes on after `close`


@dataclass(frozen=True)
class PostgresStore(SqlStore):
    """Views in one schema of one database."""

    url: str = field(repr=False)  # it may hold a password
    schema: str = "public"
    kind = "postgres"
    engine = PostgresDatabase

    def __str__(self) -> str:
        return f"PostgreSQL schema {self.schema}"

    def types(self, schema: "StructType", target: "Target") -> dict[str, str]:
        """Texts in the order of their code points, as everywhere else, and not in that of a language."""
        types = super().types(schema, target)
        return {name: 'text COLLATE "C"' if kind == "text" else kind for name, kind in types.items()}

    def table(self, view: str) -> TableName:
        return TableName(view, self.schema)

    @contextmanager
    def writing(self, label: Label) -> Iterator[PostgresDatabase]:
        with PostgresDatabase(self.url).open() as db:
            db.hold(VIEWS, f"{self.schema}/{label.view}")
            with db.transaction():
                db.guard_definitions()
                db.run(f"CREATE SCHEMA IF NOT EXISTS {quote(self.schema)}")
                self.make_books(db, label.view)
            yield db

    def announce(self, db: Database, label: Label, revision: int) -> None:
        db.run("SELECT pg_notify(?, ?)", (_CHANNEL, f"{label} {revision}"))

    def reader(self, view: str, bootstrap: str | None = None) -> SqlReader:  # noqa: ARG002 - for topics
        reading = _Reading(self.url, view, self.table(view).sibling("headrace_views"))
        table = self.table(view)
        return SqlReader(view, table, reading.snapshot, Dialect(), wait=reading.wait, close=reading.close)


class _Reading:
    """A connection for each thread that reads, and one more for each that waits."""

    def __init__(self, url: str, view: str, views: TableName) -> None:
        self._url, self._view, self._views = url, view, views
        self._psycopg = extras.load("psycopg")
        self._snapshots, self._waits = Connections(self._connect), Connections(self._listen)

    def _connect(self) -> PostgresDatabase:
        db = PostgresDatabase(self._url)
        db.connect()
        return db

    def _listen(self) -> PostgresDatabase:
        db = self._connect()
        db.run(f"LISTEN {_CHANNEL}")
        return db

    @contextmanager
    def _reachable(self, connections: Connections[PostgresDatabase]) -> Iterator[PostgresDatabase]:
        try:
            yield connections.get()
        except self._psycopg.OperationalError as error:
            connections.drop()
            raise StoreAway(f"PostgreSQL cannot be reached: {str(error).strip()}") from error

    @contextmanager
    def snapshot(self) -> Iterator[Run]:
        errors = self._psycopg.errors
        try:
            with self._reachable(self._snapshots) as db, db.transaction():
                db.run("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
                yield db.run
        except (errors.UndefinedTable, errors.InvalidSchemaName) as error:
            raise never_written(self._view) from error

    def wait(self, revision: int, timeout_s: float) -> None:
        """Until a batch of this view is announced; what came before we listened is looked up once."""
        until = time.monotonic() + timeout_s
        with self._reachable(self._waits) as db:
            found: Any = db.run(f"SELECT revision FROM {self._views} WHERE name = ?", (self._view,))  # noqa: S608
            seen = found[0][0] if found else None
            while not self._waits.is_closed and (seen is None or seen <= revision):
                left = until - time.monotonic()
                if left <= 0:
                    return
                for text in db.notices(min(left, _SLICE_S)):
                    name, _, number = text.rpartition(" ")
                    seen = int(number) if name == self._view else seen

    def close(self) -> None:
        self._snapshots.close()
        self._waits.close()


def postgres(url: str, schema: str = "public") -> PostgresStore:
    """Keep views in a PostgreSQL database, each as a table of its name in `schema`."""
    if not url.startswith(("postgresql://", "postgres://")):
        raise BadView("a view in PostgreSQL needs a URL such as postgresql://user@host:5432/database")
    return PostgresStore(url, schema)
