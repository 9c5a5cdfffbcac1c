"""DuckDB's batch sink: Arrow goes in as it is, nested types too."""

from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import types as T  # noqa: N812 - Spark's own habit

from headrace.stores.batch import OnNewQuery, Target, words
from headrace.stores.duckdb.database import DuckdbDatabase
from headrace.stores.frames import TableColumn
from headrace.stores.sql.batch import FileBatchSink
from headrace.stores.sql.database import Database
from headrace.stores.sql.statements import TableName, quote

_NAMES: dict[type[T.DataType], str] = {
    T.BooleanType: "BOOLEAN", T.ByteType: "TINYINT", T.ShortType: "SMALLINT", T.IntegerType: "INTEGER",
    T.LongType: "BIGINT", T.FloatType: "FLOAT", T.DoubleType: "DOUBLE", T.StringType: "VARCHAR", T.CharType: "VARCHAR",
    T.VarcharType: "VARCHAR", T.BinaryType: "BLOB", T.DateType: "DATE", T.TimestampType: "TIMESTAMP WITH TIME ZONE",
    T.TimestampNTZType: "TIMESTAMP",
}  # fmt: skip
_WIDER = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT")


def duckdb_type(kind: T.DataType) -> str | None:
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
        return f"STRUCT({', '.join(f'{quote(n)} {t}' for n, t in parts)})" if all(t for _, t in parts) else None
    return _NAMES.get(type(kind))


def fits(wanted: str, found: str) -> bool:
    """Whether a column takes every value of the type without loss."""
    if wanted in _WIDER and found in _WIDER:
        return _WIDER.index(found) >= _WIDER.index(wanted)
    if wanted.startswith(("STRUCT", "MAP", "DECIMAL")):
        return wanted.replace('"', "").upper() == found.replace('"', "").upper()
    return found == wanted or (wanted, found) in {("FLOAT", "DOUBLE"), ("VARCHAR", "JSON"), ("VARCHAR", "UUID")}


class DuckdbSink(FileBatchSink):
    store = "DuckDB"
    json_type = "JSON"

    def database(self) -> DuckdbDatabase:
        return DuckdbDatabase(self.path)

    def type_of(self, kind: T.DataType) -> str | None:
        return duckdb_type(kind)

    def fits(self, wanted: str, found: str) -> bool:
        return fits(wanted, found)

    def describe(self, db: Database, table: TableName) -> tuple[list[TableColumn], list[list[str]]]:
        place = (table.schema or "main", table.name)
        columns = [
            TableColumn(name, kind, nullable == "NO" and default is None)
            for name, kind, nullable, default in db.run(
                "SELECT column_name, data_type, is_nullable, column_default FROM information_schema.columns "
                "WHERE table_schema = ? AND table_name = ?",
                place,
            )
        ]
        uniques = db.run(
            "SELECT constraint_column_names FROM duckdb_constraints() WHERE schema_name = ? AND table_name = ? "
            "AND constraint_type IN ('PRIMARY KEY', 'UNIQUE')",
            place,
        )
        return columns, [names for (names,) in uniques]


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
    return DuckdbSink(target, Path(path))
