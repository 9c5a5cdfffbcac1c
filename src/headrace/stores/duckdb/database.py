"""DuckDB: one file, which one process has at a time, for all of its faces.

Whoever finds the file locked by another process waits for it. Inside a process the faces that open the file for each
batch or question take turns, so that no two of them write at once.
"""

import threading
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from headrace import extras
from headrace.stores.batch import TableColumn
from headrace.stores.sql.database import StagingDatabase, commit_or_roll_back
from headrace.stores.sql.statements import TableName, quote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from headrace.stores.frames import Spool

_TURNS: defaultdict[Path, threading.Lock] = defaultdict(threading.Lock)
_STAGE = "headrace_stage"
_LOOK_S = 0.01
_WIDER = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT")


class DuckdbDatabase(StagingDatabase):
    """Arrow goes in as it is, nested types too."""

    kind: ClassVar[str] = "DuckDB"
    moment: ClassVar[str] = "TIMESTAMP WITH TIME ZONE"
    json_type: ClassVar[str] = "JSON"
    column_types: ClassVar[Mapping[str, str]] = {
        "boolean": "BOOLEAN", "byte": "TINYINT", "short": "SMALLINT", "integer": "INTEGER", "long": "BIGINT",
        "float": "FLOAT", "double": "DOUBLE", "string": "VARCHAR", "char": "VARCHAR", "varchar": "VARCHAR",
        "binary": "BLOB", "date": "DATE", "timestamp": "TIMESTAMP WITH TIME ZONE", "timestamp_ntz": "TIMESTAMP",
    }  # fmt: skip
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

    def transaction(self) -> AbstractContextManager[None]:
        return commit_or_roll_back(self._open, self._duckdb.Error)

    def run(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        cursor = self._open.execute(statement, list(values))
        return list(cursor.fetchall()) if cursor.description else []

    def exists(self, table: TableName) -> bool:
        place = (table.schema or "main", table.name)
        return bool(
            self.run("SELECT 1 FROM information_schema.tables WHERE table_schema = ? AND table_name = ?", place)
        )

    @classmethod
    def type_of(cls, kind: Any) -> str | None:
        match kind.typeName():
            case "decimal":
                return f"DECIMAL({kind.precision},{kind.scale})"
            case "array":
                element = cls.type_of(kind.elementType)
                return element and f"{element}[]"
            case "map":
                key, value = cls.type_of(kind.keyType), cls.type_of(kind.valueType)
                return f"MAP({key}, {value})" if key and value else None
            case "struct":
                parts = [(part.name, cls.type_of(part.dataType)) for part in kind.fields]
                return f"STRUCT({', '.join(f'{quote(n)} {t}' for n, t in parts)})" if all(t for _, t in parts) else None
        return super().type_of(kind)

    @staticmethod
    def fits(wanted: str, found: str) -> bool:
        if wanted in _WIDER and found in _WIDER:
            return _WIDER.index(found) >= _WIDER.index(wanted)
        if wanted.startswith(("STRUCT", "MAP", "DECIMAL")):
            return wanted.replace('"', "").upper() == found.replace('"', "").upper()
        return found == wanted or (wanted, found) in {("FLOAT", "DOUBLE"), ("VARCHAR", "JSON"), ("VARCHAR", "UUID")}

    @classmethod
    def prepare(cls, rows: "DataFrame") -> "DataFrame":
        return rows

    def describe(self, table: TableName) -> tuple[list[TableColumn], list[list[str]]]:
        named = (table.schema or "main", table.name)
        columns = [
            TableColumn(name, kind, nullable == "NO" and default is None)
            for name, kind, nullable, default in self.run(
                "SELECT column_name, data_type, is_nullable, column_default FROM information_schema.columns "
                "WHERE table_schema = ? AND table_name = ?",
                named,
            )
        ]
        uniques = self.run(
            "SELECT constraint_column_names FROM duckdb_constraints() WHERE schema_name = ? AND table_name = ? "
            "AND constraint_type IN ('PRIMARY KEY', 'UNIQUE')",
            named,
        )
        return columns, [names for (names,) in uniques]

    def stage(self, spool: "Spool", types: Mapping[str, str]) -> str:  # noqa: ARG002 - it needs none
        # It spills to the disk when it is large.
        self._open.register("headrace_rows", spool.reader())
        self.run(f"CREATE OR REPLACE TEMP TABLE {_STAGE} AS SELECT * FROM headrace_rows")  # noqa: S608
        self._open.unregister("headrace_rows")
        return _STAGE
