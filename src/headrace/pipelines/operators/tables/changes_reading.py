"""A change topic's records as columns of Spark: whose row, what it is now, which version, since when; their schemas.

Everything here is expressions, which Spark runs by itself. What must not be is an expression too, and stops the query:
a truncate, a change without a primary key.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn
from pyspark.sql.types import StructType

from headrace.pipelines.columns.changes import OPERATIONS, Refusals
from headrace.pipelines.columns.unavailable import placeholders
from headrace.pipelines.operators.errors import BadField, nearest
from headrace.pipelines.operators.event_time import IDLE
from headrace.pipelines.operators.tables.current import WHOLE_ROWS
from headrace.pipelines.operators.tables.form import check_row_names

ENVELOPE, ROWS = "envelope", "rows"
DELETED: Final = "__deleted"
_RECORD: Final = ("_key", "_value", "_topic", "_partition", "_offset", "_timestamp", "_timestampType", "_headers", IDLE)
_TRUNCATE: Final = (
    "is a truncate, and which rows it deleted is not known here: the table was empty then, so begin a new "
    "checkpoint behind it with startingOffsets, or write table_changes(truncates='ignore') to keep the rows"
)
_MEND: Final = "declare them with .schema(envelope_schema('id long, …'))"


@dataclass(frozen=True)
class Records:
    """The records of a change topic; `frame` has the columns that its schema declared."""

    frame: DataFrame
    key: tuple[str, ...]
    form: str
    table: str | None
    takes_truncates: bool = False
    has_tombstones: bool = True

    @property
    def empties(self) -> bool:
        """Whether a record may be a truncate."""
        return self.takes_truncates and self.form == ENVELOPE

    @property
    def row(self) -> StructType:
        """A row's columns, the key's included."""
        if self.form == ENVELOPE:
            found = self.frame.schema["after"].dataType
            assert isinstance(found, StructType)
            return found
        left_out = (*_RECORD, DELETED)
        return StructType([field for field in self.frame.schema.fields if field.name not in left_out])

    @property
    def others(self) -> list[str]:
        return [name for name in self.row.fieldNames() if name not in self.key]

    def has(self, name: str) -> bool:
        return name in self.frame.columns

    # --- a record

    def cell(self, name: str, image: str = "after") -> Column:
        """A column of the row, as it is now or as it was."""
        return fn.col(image).getField(name) if self.form == ENVELOPE else fn.col(f"`{name}`")

    def whole_cell(self, name: str) -> Column:
        """A column of the row as it is now; a large value that was not sent again is the one in `before`, if it is."""
        found = self.cell(name)
        kind = self._row_in("before") if self.form == ENVELOPE and self.has("before") else None
        if kind is None or name not in kind.fieldNames():
            return found
        before = self.cell(name, "before")
        was_sent = fn.when(~self.is_left_out(name, before), before)
        return fn.when(self.is_left_out(name, found), fn.coalesce(was_sent, found)).otherwise(found)

    def is_left_out(self, name: str, cell: Column) -> Column:
        """Whether a value of that column only stands for one that was not sent again."""
        from pyspark.sql.pandas.types import to_arrow_type

        kind = self.row[name].dataType
        found = fn.lit(False)
        for mark in placeholders(to_arrow_type(kind, timezone="UTC")):
            made = fn.array(*map(fn.lit, mark)) if isinstance(mark, list) else fn.lit(mark)
            found = found | cell.eqNullSafe(made.cast(kind))
        return found

    def _row_in(self, image: str) -> StructType | None:
        kind = self.frame.schema[image].dataType
        return kind if isinstance(kind, StructType) else None

    @property
    def is_tombstone(self) -> Column:
        if self.form == ENVELOPE:
            return fn.col("op").isNull()
        empty = fn.lit(True)
        for name in self.key:
            empty = empty & self.cell(name).isNull()
        return empty

    @property
    def is_truncate(self) -> Column:
        return fn.col("op").eqNullSafe("t") if self.form == ENVELOPE else fn.lit(False)

    @property
    def is_gone(self) -> Column:
        if self.form == ENVELOPE:
            return self.is_tombstone | fn.col("op").isin("d", "t")
        flag = fn.lower(fn.col(DELETED).cast("string")).eqNullSafe("true") if self.has(DELETED) else fn.lit(False)
        return self.is_tombstone | flag

    def key_cell(self, name: str) -> Column:
        """A column of the primary key; a tombstone has it in the record's key alone."""
        found = self.cell(name)
        if self.form == ENVELOPE and self.has("before"):
            found = fn.coalesce(found, self.cell(name, "before"))
        if not self.has("_key") or not self.has_tombstones:
            return found
        text = fn.col("_key").cast("string")
        ways = [fn.get_json_object(text, f"$['{name}']"), fn.get_json_object(text, f"$.payload['{name}']")]
        if len(self.key) == 1:
            ways.append(fn.when(~text.startswith("{"), fn.regexp_replace(text, '^"|"$', "")))
        return fn.when(self.is_tombstone, fn.coalesce(*ways).cast(self.row[name].dataType)).otherwise(found)

    # --- which version

    @property
    def time(self) -> Column:
        """When the version became valid."""
        ways = [self._moment(name) for name in ("source.ts_ms", "ts_ms", "_timestamp") if self._declares(name)]
        if self.form == ROWS:
            ways = [fn.col("_timestamp")] if self.has("_timestamp") else []
        return fn.coalesce(*ways, fn.lit(None).cast("timestamp"))

    def version(self, *, is_known: Column | None = None) -> Column:
        """The version's id; of what a change takes back, where `is_known` is false, only table and key are known."""
        offset, lsn = fn.col("_offset"), self._position()
        if is_known is not None:
            offset, lsn = fn.when(is_known, offset), fn.when(is_known, lsn)
        parts = {"table": self._table(), "key": self._key_text(), "offset": offset.cast("bigint"), "lsn": lsn}
        return fn.struct(*(part.alias(name) for name, part in parts.items()))

    def _table(self) -> Column:
        if self.table is not None:
            return fn.lit(self.table)
        if self.has("_topic"):
            return fn.col("_topic")
        names = [fn.col(name) for name in ("source.schema", "source.table") if self._declares(name)]
        return fn.concat_ws(".", *names) if names else fn.lit("")

    def _key_text(self) -> Column:
        made = fn.to_json(fn.struct(*(self.key_cell(name).alias(name) for name in self.key)))
        if not self.has("_key"):
            return made
        text = fn.col("_key").cast("string")
        # A key that is JSON already is not written again; one that carries its schema is.
        return fn.when(text.startswith("{") & ~text.startswith('{"schema":'), text).otherwise(made)

    def _position(self) -> Column:
        ways = [fn.col(name).cast("string") for name in ("source.lsn",) if self._declares(name)]
        places = [name for name in ("source.file", "source.pos", "source.row") if self._declares(name)]
        if "source.file" in places:
            ways.append(fn.when(fn.col("source.file").isNotNull(), fn.concat_ws(":", *map(fn.col, places))))
        ways += [fn.col(name).cast("string") for name in ("source.position",) if self._declares(name)]
        return fn.coalesce(*ways, fn.lit(None).cast("string"))

    def _moment(self, name: str) -> Column:
        kind = self.frame.select(name).schema.fields[0].dataType.simpleString()
        return fn.timestamp_millis(fn.col(name)) if kind in ("int", "bigint") else fn.col(name).cast("timestamp")

    def _declares(self, name: str) -> bool:
        outer, _, inner = name.partition(".")
        if outer not in self.frame.columns or self.form == ROWS:
            return self.form == ROWS and name in self.frame.columns
        if not inner:
            return True
        kind = self.frame.schema[outer].dataType
        return isinstance(kind, StructType) and inner in kind.fieldNames()

    # --- what must not be

    def incomplete(self, *images: Callable[[str], Column]) -> tuple[Column, str]:
        """Whether a large value was not sent again, and what to say of it, for one who keeps nothing to take it from.

        `images` say for a column what it is.
        """
        found = fn.lit(False)
        for name in self.others:
            for image in images:
                found = found | self.is_left_out(name, image(name))
        return found, self.refusals.left_out

    @property
    def refusals(self) -> Refusals:
        """What is said of records that cannot be."""
        mend = "write ALTER TABLE … REPLICA IDENTITY FULL, or leave trust_before out of table_changes"
        tombstones = "" if self.has("_key") else " (for tombstones, with _key string in the schema)"
        left_out = "leaves out a large value that the database did not send again, which nothing here keeps"
        return Refusals(
            truncate=_TRUNCATE,
            operation="has an op that is none of c, r, u, d and t: leave it out",
            no_after="has no after: leave it out",
            no_key=f"has no value for the primary key ({', '.join(self.key)}): name the columns that identify a row"
            f"{tombstones}",
            no_before=f"has no before, which trust_before=True needs: {mend}",
            only_key=f"has only the key in before, where trust_before=True needs the whole row: {mend}",
            left_out=f"{left_out}: {WHOLE_ROWS}",
        )

    def refused(self, *more: tuple[Column, str]) -> Column:
        """Null, or the end of the query at a record that cannot be; `more` are further conditions with words."""
        missing = fn.lit(False)
        for name in self.key:
            missing = missing | self.key_cell(name).isNull()
        said = self.refusals
        found: list[tuple[Column, str]] = []
        if self.empties:
            missing = missing & ~self.is_truncate
        elif self.form == ENVELOPE:
            found.append((self.is_truncate, said.truncate))
        if self.form == ENVELOPE:
            op = fn.col("op")
            found += [
                (op.isNotNull() & ~op.isin(*OPERATIONS), said.operation),
                (op.isin("c", "r", "u") & fn.col("after").isNull(), said.no_after),
            ]
        found.append((missing, said.no_key))
        (first, first_words), *others = [*found, *more]
        words = fn.when(first, first_words)
        for condition, its_words in others:
            words = words.when(condition, its_words)
        stop = fn.raise_error(fn.concat(self._where(), fn.lit(" "), words)).cast("boolean")
        return fn.when(words.isNotNull(), stop)

    def _where(self) -> Column:
        partition = fn.col("_partition").cast("string") if self.has("_partition") else fn.lit("?")
        place = [fn.lit("the change at offset "), fn.col("_offset").cast("string"), fn.lit(" of partition "), partition]
        return fn.concat(*place, fn.lit(" of "), self._table())


def records_of(
    frame: DataFrame, key: Sequence[str], form: str, table: str | None, takes_truncates: bool = False
) -> Records:
    """The records, if the DataFrame has what changes are made of."""
    columns = frame.columns
    if form == ENVELOPE:
        missing = [name for name in ("after", "op") if name not in columns]
        if missing:
            raise BadField(
                f"table_changes reads envelopes, and the DataFrame has no column {' and no '.join(missing)}: {_MEND}, "
                "or write form='rows' if the values are rows themselves"
            )
        if not isinstance(frame.schema["after"].dataType, StructType):
            kind = frame.schema["after"].dataType.simpleString()
            raise BadField(f"table_changes: after is {kind} and no row: {_MEND}")
    if "_offset" not in columns:
        raise BadField("table_changes knows versions by their offset: declare _offset long in the topic's schema")
    if IDLE in columns:
        frame = frame.where(~fn.col(IDLE).eqNullSafe(True))
    found = Records(frame, tuple(key), form, table, takes_truncates)
    names = found.row.fieldNames()
    check_row_names(names, "the table")
    for name in key:
        if name not in names:
            raise BadField(f"key in table_changes names {name!r}, which the rows do not have: {nearest(name, names)}")
    return found


_RECORD_DDL: Final = "_key STRING, _topic STRING, _partition INT, _offset BIGINT, _timestamp TIMESTAMP"
# The places that sources name: PostgreSQL's, MySQL's and MariaDB's, and those of tables of changes.
_SOURCE_DDL: Final = (
    "STRUCT<ts_ms: BIGINT, schema: STRING, table: STRING, lsn: BIGINT, file: STRING, pos: BIGINT, row: INT, "
    "position: BIGINT>"
)


def envelope_schema(row: str | StructType) -> str:
    """The schema of Debezium's envelopes, for `.schema(…)`: `envelope_schema("id long, name string")`.

    `row` is what a row of the table looks like, as DDL or as Spark's type.

    With the record's own columns that `table_changes` needs: key, topic, partition, offset and timestamp.
    """
    text = _ddl(row)
    return f"before STRUCT<{text}>, after STRUCT<{text}>, op STRING, source {_SOURCE_DDL}, ts_ms BIGINT, {_RECORD_DDL}"


def row_schema(row: str | StructType) -> str:
    """The schema of records that are rows themselves, deleted by a null value, for `.schema(…)`.

    `row` is what a row looks like, as DDL or as Spark's type.
    """
    return f"{_ddl(row)}, {_RECORD_DDL}"


def _ddl(row: str | StructType) -> str:
    if isinstance(row, str):
        return row.strip().rstrip(",")
    return ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in row.fields)
