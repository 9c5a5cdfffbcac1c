"""DuckDB: one file, which one process has at a time, for all of its faces.

Whoever finds the file locked by another process waits for it. Inside a process the faces that open the file for each
batch or question take turns, so that no two of them write at once.
"""

import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from headrace import extras
from headrace.stores.sql.database import StagingDatabase
from headrace.stores.sql.statements import TableName

if TYPE_CHECKING:
    from headrace.stores.frames import Spool

_TURNS: defaultdict[Path, threading.Lock] = defaultdict(threading.Lock)
_STAGE = "headrace_stage"
_LOOK_S = 0.01


class DuckdbDatabase(StagingDatabase):
    kind: ClassVar[str] = "DuckDB"
    moment: ClassVar[str] = "TIMESTAMP WITH TIME ZONE"
    patience_s: ClassVar[float] = 60.0  # how long to wait for another process

    def __init__(self, path: Path) -> None:
        self._path = path
        self._duckdb = extras.load("duckdb")
        self._turn = _TURNS[path.absolute()]
        self._connection: Any = None

    @property
    def _open(self) -> Any:
        return self._connection

    def connect(self) -> None:
        self.close()
        self._turn.acquire()
        try:
            self._connection = self._take_file()
        except BaseException:
            self._turn.release()
            raise

    def _take_file(self) -> Any:
        """The file, once no other process has it."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        until_s = time.monotonic() + self.patience_s
        while True:
            try:
                return self._duckdb.connect(str(self._path))
            except self._duckdb.IOException as error:
                if "lock" not in str(error) or time.monotonic() > until_s:
                    raise
                time.sleep(_LOOK_S)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
            self._turn.release()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        self._open.begin()
        try:
            yield
            self._open.commit()
        except BaseException:
            with suppress(self._duckdb.Error):
                self._open.rollback()
            raise

    def run(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        cursor = self._open.execute(statement, list(values))
        return list(cursor.fetchall()) if cursor.description else []

    def exists(self, table: TableName) -> bool:
        place = (table.schema or "main", table.name)
        return bool(
            self.run("SELECT 1 FROM information_schema.tables WHERE table_schema = ? AND table_name = ?", place)
        )

    def stage(self, spool: "Spool", types: Mapping[str, str]) -> str:  # noqa: ARG002 - it needs none
        # It spills to the disk when it is large.
        self._open.register("headrace_rows", spool.reader())
        self.run(f"CREATE OR REPLACE TEMP TABLE {_STAGE} AS SELECT * FROM headrace_rows")  # noqa: S608
        self._open.unregister("headrace_rows")
        return _STAGE
