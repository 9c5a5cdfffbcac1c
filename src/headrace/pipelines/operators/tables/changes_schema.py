"""What a change topic's records look like to `format("headrace")`, given what a row of the table looks like."""

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_RECORD: Final = "_key STRING, _topic STRING, _partition INT, _offset BIGINT, _timestamp TIMESTAMP"
# The places that sources name: PostgreSQL's, MySQL's and MariaDB's, and those of tables of changes.
_SOURCE: Final = (
    "STRUCT<ts_ms: BIGINT, schema: STRING, table: STRING, lsn: BIGINT, file: STRING, pos: BIGINT, row: INT, "
    "position: BIGINT>"
)


def envelope_schema(row: "str | StructType") -> str:
    """The schema of Debezium's envelopes, for `.schema(…)`: `envelope_schema("id long, name string")`.

    `row` is what a row of the table looks like, as DDL or as Spark's type.

    With the record's own columns that `table_changes` needs: key, topic, partition, offset and timestamp.
    """
    text = _ddl(row)
    return f"before STRUCT<{text}>, after STRUCT<{text}>, op STRING, source {_SOURCE}, ts_ms BIGINT, {_RECORD}"


def row_schema(row: "str | StructType") -> str:
    """The schema of records that are rows themselves, deleted by a null value, for `.schema(…)`.

    `row` is what a row looks like, as DDL or as Spark's type.
    """
    return f"{_ddl(row)}, {_RECORD}"


def _ddl(row: "str | StructType") -> str:
    if isinstance(row, str):
        return row.strip().rstrip(",")
    return ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in row.fields)
