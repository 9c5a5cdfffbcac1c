"""DuckDB: one writer, one transaction; Arrow goes in as it is, nested types too.

DuckDB locks its file for one process. Inside this process sinks to one file take turns.
"""

import threading
from collections import defaultdict
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import types as T  # noqa: N812 - Spark's own habit

from headrace import extras
from headrace.stores.batch import Numbered, OnNewQuery, Step, Target, words
from headrace.stores.frames import (
    Spool,
    TableColumn,
    check_columns,
    check_unique,
    query_id,
    reduced,
    refuse_missing,
    spooled,
    types_by_field,
)
from headrace.stores.sql.batch import step_of, switch_tables, target_beside, write_batch
from headrace.stores.sql.statements import BATCHES, Merge, TableName, create_batches, quoted

_TURNS: defaultdict[Path, threading.Lock] = defaultdict(threading.Lock)
_STAGE = "headrace_stage"

_NAMES: dict[type[T.DataType], str] = {
    T.BooleanType: "BOOLEAN", T.ByteType: "TINYINT", T.ShortType: "SMALLINT", T.IntegerType: "INTEGER",
    T.LongType: "BIGINT", T.FloatType: "FLOAT", T.DoubleType: "DOUBLE", T.StringType: "VARCHAR", T.CharType: "VARCHAR",
    T.VarcharType: "VARCHAR", T.BinaryType: "BLOB", T.DateType: "DATE", T.TimestampType: "TIMESTAMP WITH TIME ZONE",
    T.TimestampNTZType: "TIMESTAMP",
}  # fmt: skip
_WIDER = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT")


def duckdb_type(kind: T.DataType) -> str | None:
    """The type of a column in a new table; None if there is none."""
    if isinstance(kind, T.DecimalType):
        return f"DECIMAL({kind.precision},{kind.scale})"
    if isinstance(kind, T.ArrayType):
        element = duckdb_type(kind.elementType)
        return element and f"{element}[]"
    if isinstance(kind, T.MapType):
        key, value = duckdb_type(kind.keyType), duckdb_type(kind.valueType)
        return f"MAP({key}, {value})" if key and value else None
    if isinstance(kind, T.StructType):
        parts = [(part.name, duckdb_type(part.dataType)) for part in kind.fields]
        return f"STRUCT({', '.join(f'{quoted(n)} {t}' for n, t in parts)})" if all(t for _, t in parts) else None
    return _NAMES.get(type(kind))


def fits(wanted: str, found: str) -> bool:
    """Whether a column takes every value of the type without loss."""
    if wanted in _WIDER and found in _WIDER:
        return _WIDER.index(found) >= _WIDER.index(wanted)
    if wanted.startswith(("STRUCT", "MAP", "DECIMAL")):
        return wanted.replace('"', "").upper() == found.replace('"', "").upper()
    return found == wanted or (wanted, found) in {("FLOAT", "DOUBLE"), ("VARCHAR", "JSON"), ("VARCHAR", "UUID")}


@dataclass(frozen=True)
class DuckdbSink:
    """Given to `foreachBatch`."""

    path: Path
    target: Target

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        """Write one batch, unless it is there already."""
        batch = Numbered(query_id(df), batch_id)
        rows = reduced(df, self.target)
        types = types_by_field(rows.schema, self.target, duckdb_type, self._where, "JSON")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if self._is_new(batch, types):
            with spooled(rows) as spool:
                self._write(spool, batch, types)

    def beside(self, version: int) -> "DuckdbSink":
        """The same sink for a version that is built beside the one in use."""
        return replace(self, target=target_beside(self.target, version))

    def switch(self, version: int) -> None:
        """Let that version take the table's name."""
        with _TURNS[self.path.absolute()], closing(self._connect()) as db:
            db.execute("BEGIN TRANSACTION")
            switch_tables(
                _run(db), lambda table: _exists(db, table), TableName.parse(self.target.table), self.target.name,
                version, "?",
            )  # fmt: skip
            db.execute("COMMIT")

    @property
    def _where(self) -> str:
        return f"DuckDB table {self.target.table}"

    def _connect(self) -> Any:
        return extras.load("duckdb").connect(str(self.path))

    @property
    def _batches(self) -> TableName:
        return TableName.parse(self.target.table).sibling(BATCHES)

    def _is_new(self, batch: Numbered, types: dict[str, str]) -> bool:
        """Whether there is anything to write; and if there is, it fits."""
        with _TURNS[self.path.absolute()], closing(self._connect()) as db:
            db.execute(create_batches(self._batches, "TIMESTAMP WITH TIME ZONE"))
            if step_of(_run(db), self._batches, self.target, batch, "?") is Step.SKIP:
                return False
            self._check(db, types)
            return True

    def _check(self, db: Any, types: dict[str, str]) -> None:
        table = TableName.parse(self.target.table)
        place = (table.schema or "main", table.name)
        found = [
            TableColumn(name, kind, nullable == "NO" and default is None)
            for name, kind, nullable, default in db.execute(
                "SELECT column_name, data_type, is_nullable, column_default FROM information_schema.columns "
                "WHERE table_schema = ? AND table_name = ?",
                place,
            ).fetchall()
        ]
        if not found:
            refuse_missing(self._where, self.target.create)
            return
        check_columns(self._where, types, found, fits)
        uniques = db.execute(
            "SELECT constraint_column_names FROM duckdb_constraints() WHERE schema_name = ? AND table_name = ? "
            "AND constraint_type IN ('PRIMARY KEY', 'UNIQUE')",
            place,
        ).fetchall()
        check_unique(self._where, self.target.keys, [frozenset(names) for (names,) in uniques])

    def _write(self, spool: Spool, batch: Numbered, types: dict[str, str]) -> None:
        merge = Merge(
            TableName.parse(self.target.table), _STAGE, tuple(types), self.target.keys, self.target.version,
            self.target.delete_when is not None,
        )  # fmt: skip
        with _TURNS[self.path.absolute()], closing(self._connect()) as db:
            # The stage is outside the transaction: it is temporary, and it spills to the disk when it is large.
            db.register("headrace_rows", spool.reader())
            db.execute(f"CREATE TEMP TABLE {_STAGE} AS SELECT * FROM headrace_rows")  # noqa: S608
            db.unregister("headrace_rows")
            db.execute("BEGIN TRANSACTION")
            write_batch(_run(db), self._batches, self.target, batch, "?", types, merge, datetime.now(UTC))
            db.execute("COMMIT")  # an error before this closes the connection, and with it the transaction


def _exists(db: Any, table: TableName) -> bool:
    asked = db.execute(
        "SELECT 1 FROM information_schema.tables WHERE table_schema = ? AND table_name = ?",
        (table.schema or "main", table.name),
    )
    return asked.fetchone() is not None


def _run(db: Any) -> Any:
    return lambda statement, values: db.execute(statement, list(values)).fetchall()


def duckdb(
    path: str | Path,
    table: str,
    keys: str | Sequence[str] = (),
    *,
    name: str | None = None,
    order_by: str | Sequence[str] | None = None,
    delete_when: str | None = None,
    version: str | None = None,
    columns: Sequence[str] | None = None,
    create: bool = True,
    on_new_query: OnNewQuery = "refuse",
) -> DuckdbSink:
    """A sink to a table in a DuckDB file; with `keys` it upserts, without it appends."""
    target = Target(
        table, name or f"duckdb:{table}", words(keys), words(order_by), delete_when, version, words(columns), create,
        on_new_query,
    )  # fmt: skip
    return DuckdbSink(Path(path), target)
