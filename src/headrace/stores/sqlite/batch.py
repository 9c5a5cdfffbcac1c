"""SQLite's batch sink.

Types: booleans and integers INTEGER, floats REAL (SQLite knows no NaN: it becomes NULL), decimals TEXT so that no
digit is lost, dates and times TEXT in ISO 8601 (instants in UTC), binary BLOB, arrays, structs and maps JSON in TEXT.
"""

from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import types as T  # noqa: N812 - Spark's own habit

from headrace.stores.batch import OnNewQuery, Target, words
from headrace.stores.frames import TableColumn, encode_nested
from headrace.stores.sql.batch import FileBatchSink
from headrace.stores.sql.database import Database
from headrace.stores.sql.statements import TableName, quote
from headrace.stores.sqlite.database import SqliteDatabase

_TYPES: dict[type[T.DataType], str] = {
    T.BooleanType: "INTEGER", T.ByteType: "INTEGER", T.ShortType: "INTEGER", T.IntegerType: "INTEGER",
    T.LongType: "INTEGER", T.FloatType: "REAL", T.DoubleType: "REAL", T.DecimalType: "TEXT", T.StringType: "TEXT",
    T.BinaryType: "BLOB", T.DateType: "TEXT", T.TimestampType: "TEXT", T.TimestampNTZType: "TEXT",
}  # fmt: skip


def sqlite_type(kind: T.DataType) -> str | None:
    return _TYPES.get(type(kind))


class SqliteSink(FileBatchSink):
    store = "SQLite"
    json_type = "TEXT"

    def database(self) -> SqliteDatabase:
        return SqliteDatabase(self.path)

    def prepare(self, rows: DataFrame) -> DataFrame:
        return encode_nested(rows, keep_scalar_arrays=False)

    def type_of(self, kind: T.DataType) -> str | None:
        return sqlite_type(kind)

    def describe(self, db: Database, table: TableName) -> tuple[list[TableColumn], list[list[str]]]:
        found = db.run(f"PRAGMA table_info({quote(table.name)})")
        columns = [
            TableColumn(name, kind, bool(required) and default is None and not key)
            for _, name, kind, required, default, key in found
        ]
        uniques = [[name for _, name, _, _, _, key in found if key]]
        for _, index, is_unique, _, is_partial in db.run(f"PRAGMA index_list({quote(table.name)})"):
            if is_unique and not is_partial:
                uniques.append([row[2] for row in db.run(f"PRAGMA index_info({quote(index)})")])
        return columns, uniques


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
    return SqliteSink(target, Path(path))
