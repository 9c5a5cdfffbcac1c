"""Views in a DuckDB file, for those who ask large questions in SQL.

The writer opens the file for each batch and closes it, and so does a reader for each question; each waits for the
other.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from headrace import extras
from headrace.stores.duckdb.database import DuckdbDatabase
from headrace.stores.errors import StoreAway
from headrace.stores.sql.answer import Dialect
from headrace.stores.sql.statements import TableName
from headrace.stores.sql.view import Run, SqlReader, SqlStore
from headrace.stores.values import Family
from headrace.stores.views.store import Label, never_written

_POLL_S = 0.1
_DIALECT = Dialect(
    loaded=lambda column, value: bytes(value) if column.family is Family.BINARY and value is not None else value
)


@dataclass(frozen=True)
class DuckdbStore(SqlStore):
    """Views in one file."""

    path: Path
    kind = "duckdb"
    engine = DuckdbDatabase

    def __str__(self) -> str:
        return f"DuckDB {self.path}"

    @contextmanager
    def _opened(self) -> Iterator[DuckdbDatabase]:
        db = DuckdbDatabase(self.path)
        try:
            db.connect()
        except extras.load("duckdb").IOException as error:
            raise StoreAway(f"DuckDB {self.path} cannot be opened: {str(error).splitlines()[0]}") from error
        try:
            yield db
        finally:
            db.close()

    @contextmanager
    def writing(self, label: Label) -> Iterator[DuckdbDatabase]:
        with self._opened() as db:
            self.make_books(db, label.view)
            yield db

    def reader(self, view: str, bootstrap: str | None = None) -> SqlReader:  # noqa: ARG002 - for topics
        ended = threading.Event()

        @contextmanager
        def snapshot() -> Iterator[Run]:
            if not self.path.exists():
                raise never_written(view)
            with self._opened() as db:
                if not db.exists(TableName("headrace_views")):
                    raise never_written(view)
                yield db.run

        def wait(revision: int, timeout_s: float) -> None:
            """Until the file was written and this view is past the revision."""
            until, seen = time.monotonic() + timeout_s, None
            while not ended.is_set() and time.monotonic() < until:
                found = self.path.stat()
                if (found.st_mtime_ns, found.st_size) != seen:
                    seen = (found.st_mtime_ns, found.st_size)
                    with snapshot() as run:
                        rows = run("SELECT revision FROM headrace_views WHERE name = ?", (view,))
                    if rows and rows[0][0] > revision:
                        return
                ended.wait(_POLL_S)

        return SqlReader(view, self.table(view), snapshot, _DIALECT, wait=wait, close=ended.set)


def duckdb(path: str | Path) -> DuckdbStore:
    """Keep views in a DuckDB file, each as a table of its name."""
    return DuckdbStore(Path(path))
