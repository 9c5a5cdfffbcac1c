"""SQLite: one writer, one transaction.

Types: booleans and integers INTEGER, floats REAL (SQLite knows no NaN: it becomes NULL), decimals TEXT so that no
digit is lost, dates and times TEXT in ISO 8601 (instants in UTC), binary BLOB, arrays, structs and maps JSON in TEXT.
"""

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import types as T  # noqa: N812 - Spark's own habit

from headrace.stores.batch import Numbered, OnNewQuery, Step, Target, words
from headrace.stores.frames import (
    Spool,
    TableColumn,
    check_columns,
    check_unique,
    nested_as_json,
    query_id,
    reduced,
    refuse_missing,
    spooled,
    store_types,
)
from headrace.stores.sql.batch import step_of, switch_tables, target_beside, write_batch
from headrace.stores.sql.statements import BATCHES, Merge, TableName, create_batches, listed, quoted

_BATCHES = TableName(BATCHES)
_STAGE = "temp.headrace_stage"
_BUSY_S = 120.0  # how long to wait for another writer of the same file

TYPES: dict[type[T.DataType], str] = {
    T.BooleanType: "INTEGER", T.ByteType: "INTEGER", T.ShortType: "INTEGER", T.IntegerType: "INTEGER",
    T.LongType: "INTEGER", T.FloatType: "REAL", T.DoubleType: "REAL", T.DecimalType: "TEXT", T.StringType: "TEXT",
    T.BinaryType: "BLOB", T.DateType: "TEXT", T.TimestampType: "TEXT", T.TimestampNTZType: "TEXT",
}  # fmt: skip


@dataclass(frozen=True)
class SqliteSink:
    """Given to `foreachBatch`."""

    path: Path
    target: Target

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        """Write one batch, unless it is there already."""
        batch = Numbered(query_id(df), batch_id)
        rows = nested_as_json(reduced(df, self.target), keep_scalar_arrays=False)
        types = store_types(rows.schema, self.target, TYPES.get, f"SQLite table {self.target.table}")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with closing(self._connect()) as db:
            _run(db)(create_batches(_BATCHES, "TEXT"), ())
            if step_of(_run(db), _BATCHES, self.target, batch, "?") is Step.SKIP:
                return
            self._check(db, types)
            with spooled(rows) as spool:
                self._write(db, spool, batch, types)

    def beside(self, version: int) -> "SqliteSink":
        """The same sink for a version that is built beside the one in use."""
        return replace(self, target=target_beside(self.target, version))

    def switch(self, version: int) -> None:
        """Let that version take the table's name."""
        with closing(self._connect()) as db:
            db.execute("BEGIN IMMEDIATE")
            switch_tables(
                _run(db), lambda table: _exists(db, table), TableName.parse(self.target.table), self.target.name,
                version, "?",
            )  # fmt: skip
            db.execute("COMMIT")

    def _connect(self) -> sqlite3.Connection:
        # The transaction is ours to open and end; the writer's lock is taken at its start (BEGIN IMMEDIATE).
        db = sqlite3.connect(self.path, timeout=_BUSY_S, isolation_level=None)
        db.execute("PRAGMA synchronous = FULL")
        return db

    def _check(self, db: sqlite3.Connection, types: dict[str, str]) -> None:
        table, where = TableName.parse(self.target.table), f"SQLite table {self.target.table}"
        found = [
            TableColumn(name, kind, bool(required) and default is None and not key)
            for _, name, kind, required, default, key in db.execute(f"PRAGMA table_info({quoted(table.name)})")
        ]
        if not found:
            refuse_missing(where, self.target.create)
            return
        check_columns(where, types, found, lambda _, __: True)  # any column of SQLite takes any value
        keys = db.execute(f"SELECT name FROM pragma_table_info({quoted(table.name)}) WHERE pk > 0")  # noqa: S608
        uniques = {frozenset(name for (name,) in keys)}
        for _, index, unique, _, partial in db.execute(f"PRAGMA index_list({quoted(table.name)})").fetchall():
            if unique and not partial:
                uniques.add(frozenset(row[2] for row in db.execute(f"PRAGMA index_info({quoted(index)})")))
        check_unique(where, self.target.keys, uniques)

    def _write(self, db: sqlite3.Connection, spool: Spool, batch: Numbered, types: dict[str, str]) -> None:
        names = tuple(spool.schema.names)
        merge = Merge(
            TableName.parse(self.target.table), _STAGE, tuple(types), self.target.keys, self.target.version,
            self.target.delete_when is not None,
        )  # fmt: skip
        db.execute("BEGIN IMMEDIATE")
        try:
            db.execute(f"CREATE TEMP TABLE headrace_stage ({listed(names)})")
            marks = ", ".join("?" * len(names))
            for part in spool.batches():
                columns = [cell_values(part.column(index)) for index in range(part.num_columns)]
                db.executemany(f"INSERT INTO {_STAGE} VALUES ({marks})", zip(*columns, strict=True))  # noqa: S608
            now = datetime.now(UTC).isoformat()
            write_batch(_run(db), _BATCHES, self.target, batch, "?", types, merge, now)
            db.execute(f"DROP TABLE {_STAGE}")
            db.execute("COMMIT")
        except BaseException:
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise


def _exists(db: sqlite3.Connection, table: TableName) -> bool:
    asked = db.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", (table.name,))
    return asked.fetchone() is not None


def _run(db: sqlite3.Connection) -> Any:
    return lambda statement, values: db.execute(statement, values).fetchall()


def cell_values(column: pa.Array) -> list[Any]:
    """Python values that SQLite keeps without loss."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        text = pc.strftime(column.cast(pa.timestamp("us")), format="%Y-%m-%dT%H:%M:%S")
        if kind.tz is not None:
            text = pc.binary_join_element_wise(text, "+00:00", "")
        return text.to_pylist()  # type: ignore[no-any-return]
    if pa.types.is_decimal(kind) or pa.types.is_date(kind):
        return column.cast(pa.string()).to_pylist()  # type: ignore[no-any-return]
    return column.to_pylist()  # type: ignore[no-any-return]


def sqlite(
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
) -> SqliteSink:
    """A sink to a table in a SQLite file; with `keys` it upserts, without it appends."""
    target = Target(
        table, name or f"sqlite:{table}", words(keys), words(order_by), delete_when, version, words(columns), create,
        on_new_query,
    )  # fmt: skip
    return SqliteSink(Path(path), target)
