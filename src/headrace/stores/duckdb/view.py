"""Views in a DuckDB file, for those who ask large questions in SQL.

DuckDB gives its file to one process at a time: the writer opens it for each batch and lets it go, and so does a reader
for each question; each waits for the other. Inside a process they take turns.
"""

import os
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace import extras
from headrace.stores.errors import StoreAway
from headrace.stores.sql.answer import Dialect
from headrace.stores.sql.batch import Run
from headrace.stores.sql.statements import TableName, quoted
from headrace.stores.sql.view import SqlReader, SqlStore
from headrace.stores.views.shape import Column, Kind
from headrace.stores.views.store import Label, never_written

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from headrace.stores.batch import Target
    from headrace.stores.frames import Spool


_TURNS: defaultdict[Path, threading.Lock] = defaultdict(threading.Lock)
_STAGE = "headrace_stage"
_BUSY_S = 60.0  # how long to wait for another process
_LOOK_S = 0.02
_POLL_S = 0.1


@dataclass(frozen=True)
class DuckdbStore(SqlStore):
    """Views in one file."""

    path: Path
    kind = "duckdb"
    mark = "?"
    moment = "TIMESTAMP WITH TIME ZONE"

    def __str__(self) -> str:
        return f"DuckDB {self.path}"

    def prepared(self, found: "DataFrame") -> "DataFrame":
        """As they are: DuckDB has nested types."""
        return found

    def types(self, schema: "StructType", target: "Target") -> dict[str, str]:
        """DuckDB's names."""
        from headrace.stores.duckdb.batch import duckdb_type
        from headrace.stores.frames import types_by_field

        return types_by_field(schema, target, duckdb_type, f"DuckDB view {target.table}", "JSON")

    def table(self, view: str) -> TableName:
        """The table of a view."""
        return TableName(view)

    def now(self, ms: int) -> datetime:
        """An instant."""
        return datetime.fromtimestamp(ms / 1000, UTC)

    @contextmanager
    def writing(self, label: Label) -> Iterator["_Writing"]:
        """The file, which is ours until the end."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with _opened(self.path) as db:
            writing = _Writing(db)
            self.bookkeeping(writing.run, self.table(label.view))
            yield writing

    def reader(self, view: str, bootstrap: str | None = None) -> SqlReader:  # noqa: ARG002 - for topics
        """A reader of one view."""
        ended = threading.Event()

        @contextmanager
        def snapshot() -> Iterator[Run]:
            if not self.path.exists():
                raise never_written(view)
            with _opened(self.path) as db:
                if not _exists(db, TableName("headrace_views")):
                    raise never_written(view)
                yield _run(db)

        def wait(revision: int, timeout_s: float) -> None:
            """Until the file was written and this view is past the revision."""
            until, seen = time.monotonic() + timeout_s, None
            while not ended.is_set() and time.monotonic() < until:
                stamp = _stamp(self.path)
                if stamp != seen:
                    seen = stamp
                    with snapshot() as run:
                        found = run("SELECT revision FROM headrace_views WHERE name = ?", (view,))
                    if found and found[0][0] > revision:
                        return
                ended.wait(_POLL_S)

        return SqlReader(view, self.table(view), snapshot, _DIALECT, _value, wait=wait, close=ended.set)


class _Writing:
    def __init__(self, db: Any) -> None:
        self._db = db
        self.run: Run = _run(db)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN TRANSACTION")
        yield
        self._db.execute("COMMIT")  # an error before this closes the connection, and with it the transaction

    def stage(self, spool: "Spool", types: Mapping[str, str]) -> str:  # noqa: ARG002 - Arrow has the types
        self._db.register("headrace_rows", spool.reader())
        self._db.execute(f"CREATE OR REPLACE TEMP TABLE {_STAGE} AS SELECT * FROM headrace_rows")  # noqa: S608
        self._db.unregister("headrace_rows")
        return _STAGE

    def exists(self, table: TableName) -> bool:
        return _exists(self._db, table)

    def tell(self, label: Label, revision: int) -> None:
        """Readers see it at the file's own time."""


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """The file, when no other thread and no other process has it."""
    module = extras.load("duckdb")
    until = time.monotonic() + _BUSY_S
    with _TURNS[path.absolute()]:
        while True:
            try:
                db = module.connect(str(path))
                break
            except module.IOException as error:
                if "lock" not in str(error) or time.monotonic() > until:
                    raise StoreAway(f"DuckDB {path} cannot be opened: {str(error).splitlines()[0]}") from error
                time.sleep(_LOOK_S)
        with closing(db):
            yield db


def _stamp(path: Path) -> tuple[int, int]:
    found = os.stat(path)
    return found.st_mtime_ns, found.st_size


def _exists(db: Any, table: TableName) -> bool:
    asked = db.execute(
        "SELECT 1 FROM information_schema.tables WHERE table_schema = 'main' AND table_name = ?", (table.name,)
    )
    return asked.fetchone() is not None


def _run(db: Any) -> Run:
    def run(statement: str, values: Any) -> list[tuple[Any, ...]]:
        found: list[tuple[Any, ...]] = db.execute(statement, list(values)).fetchall()
        return found

    return run


def _value(column: Column, value: Any) -> Any:
    return bytes(value) if column.kind is Kind.BINARY and value is not None else value


_DIALECT = Dialect("?", quoted, lambda column: quoted(column.name), lambda _, value: value, lambda _, value: value)


def duckdb(path: str | Path) -> DuckdbStore:
    """Keep views in a DuckDB file, each as a table of its name."""
    return DuckdbStore(Path(path))
