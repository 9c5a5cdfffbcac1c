"""PostgreSQL: the executors COPY into an unlogged stage, then the driver merges and records in one transaction.

A stage belongs to one attempt at one batch: its name is new each time, and each row carries the task attempt that
wrote it, so a task that Spark ran twice counts once. The driver compares what it finds with what the tasks reported:
a server that crashed meanwhile has emptied its unlogged tables. An advisory lock keeps a second writer of the same
sink out, and makes a restarted driver wait until a transaction of its killed predecessor has ended one way or the
other.

Types: decimals numeric(p,s), timestamps timestamptz, timestamp_ntz timestamp, binary bytea, arrays of scalars arrays;
structs, maps and other arrays jsonb. A text with a NUL character is refused by the server, as PostgreSQL has no such
text.
"""

import hashlib
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql import types as T  # noqa: N812 - Spark's own habit

from headrace import extras
from headrace.stores.batch import DELETED, Numbered, OnNewQuery, Step, Target, words
from headrace.stores.errors import SinkMisconfigured, StagingLost
from headrace.stores.frames import (
    TableColumn,
    check_columns,
    check_unique,
    nested_as_json,
    query_id,
    reduced,
    refuse_missing,
    types_by_field,
)
from headrace.stores.postgres.copy_text import copy_text
from headrace.stores.sql.batch import step_of, switch_tables, target_beside, write_batch
from headrace.stores.sql.statements import BATCHES, Merge, TableName, create_batches, listed, quoted

_ATTEMPT = "headrace_attempt"
_LOCK_WAIT = "120s"
_SCHEMA_LOCK = 0x68656164  # one lock for making the table of batches: CREATE IF NOT EXISTS races with itself


@dataclass(frozen=True)
class PostgresSink:
    """Given to `foreachBatch`."""

    url: str = field(repr=False)  # it may hold a password
    target: Target

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        """Write one batch, unless it is there already."""
        batch = Numbered(query_id(df), batch_id)
        rows = nested_as_json(reduced(df, self.target), keep_scalar_arrays=True)
        types = types_by_field(rows.schema, self.target, postgres_type, self._where, "jsonb")
        with extras.load("psycopg").connect(self.url, autocommit=True) as db:
            table = self._lock(db)
            batches = table.sibling(BATCHES)
            if step_of(_run(db), batches, self.target, batch, "%s") is Step.SKIP:
                return
            exists = self._check(db, table, types)
            stage = self._stage(db, table, types, exists)
            try:
                attempts = self._copy(rows, stage)
                merge = Merge(
                    table, str(stage), tuple(types), self.target.keys, self.target.version,
                    self.target.delete_when is not None,
                    f"s.{quoted(_ATTEMPT)} IN ({', '.join(map(str, attempts)) or 'NULL'})",
                )  # fmt: skip
                with db.transaction():
                    self._count(db, stage, attempts)
                    write_batch(_run(db), batches, self.target, batch, "%s", types, merge, datetime.now(UTC))
                    db.execute(f"DROP TABLE {stage}")
            except BaseException:
                if not db.closed:
                    db.execute(f"DROP TABLE IF EXISTS {stage}")
                raise

    def beside(self, version: int) -> "PostgresSink":
        """The same sink for a version that is built beside the one in use."""
        return replace(self, target=target_beside(self.target, version))

    def switch(self, version: int) -> None:
        """Let that version take the table's name."""
        with extras.load("psycopg").connect(self.url, autocommit=True) as db:
            table = self._lock(db)
            with db.transaction():
                switch_tables(
                    _run(db), lambda asked: _exists(db, asked), table, self.target.name, version, "%s"
                )  # fmt: skip

    @property
    def _where(self) -> str:
        return f"PostgreSQL table {self.target.table}"

    def _lock(self, db: Any) -> TableName:
        """The target's full name, once no other writer of this sink is at work."""
        table = TableName.parse(self.target.table)
        db.execute(f"SET lock_timeout = '{_LOCK_WAIT}'")
        if table.schema is None:
            table = replace(table, schema=db.execute("SELECT current_schema()").fetchone()[0])
        db.execute("SELECT pg_advisory_lock(%s, hashtext(%s))", (_SCHEMA_LOCK, f"{table.schema}/{self.target.name}"))
        with db.transaction():
            db.execute("SELECT pg_advisory_xact_lock(%s)", (_SCHEMA_LOCK,))
            db.execute(create_batches(table.sibling(BATCHES), "timestamptz"))
        return table

    def _check(self, db: Any, table: TableName, types: dict[str, str]) -> bool:
        """Whether the table exists; if it does, it fits."""
        found = [
            TableColumn(*row)
            for row in db.execute(
                "SELECT attname, format_type(atttypid, NULL), attnotnull AND NOT atthasdef AND attidentity = '' "
                "FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped",
                (str(table),),
            )
        ]
        if not found:
            refuse_missing(self._where, self.target.create)
            return False
        check_columns(self._where, types, found, fits)
        uniques = db.execute(
            "SELECT array_agg(a.attname::text) FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND "
            "a.attnum = ANY(i.indkey) WHERE i.indrelid = to_regclass(%s) AND i.indisunique AND i.indpred IS NULL "
            "AND i.indexprs IS NULL GROUP BY i.indexrelid",
            (str(table),),
        )
        check_unique(self._where, self.target.keys, [frozenset(names) for (names,) in uniques])
        return True

    def _stage(self, db: Any, table: TableName, types: dict[str, str], exists: bool) -> TableName:
        """A new stage with the columns' types of the target; stages of attempts that died are dropped."""
        prefix = f"headrace_stage_{hashlib.sha256(self.target.name.encode()).hexdigest()[:12]}_"
        for (left,) in db.execute(
            "SELECT tablename FROM pg_tables WHERE schemaname = %s AND starts_with(tablename, %s)",
            (table.schema, prefix),
        ).fetchall():
            db.execute(f"DROP TABLE IF EXISTS {table.sibling(left)}")
        stage = table.sibling(prefix + uuid.uuid4().hex[:16])
        flag = [(DELETED, "boolean")] if self.target.keys else []
        if exists:
            shape = f"SELECT {listed(list(types))} FROM {table} WHERE false"  # noqa: S608
            db.execute(f"CREATE UNLOGGED TABLE {stage} AS {shape}")
            added = ", ".join(f"ADD {quoted(name)} {kind}" for name, kind in [*flag, (_ATTEMPT, "bigint")])
            db.execute(f"ALTER TABLE {stage} {added}")
        else:
            columns = [*types.items(), *flag, (_ATTEMPT, "bigint")]
            made = ", ".join(f"{quoted(name)} {kind}" for name, kind in columns)
            db.execute(f"CREATE UNLOGGED TABLE {stage} ({made})")
        return stage

    def _copy(self, rows: DataFrame, stage: TableName) -> dict[int, int]:
        """The rows in the stage; how many by each task attempt that counts."""
        url = self.url
        statement = f"COPY {stage} ({listed([_ATTEMPT, *rows.columns])}) FROM STDIN"

        def copy(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            task = TaskContext.get()
            assert task is not None
            attempt = task.taskAttemptId()
            copied = copy_batches(url, statement, attempt, batches)
            yield pa.RecordBatch.from_pydict({"attempt": [attempt], "copied": [copied]})

        done = rows.mapInArrow(copy, "attempt long, copied long").collect()
        return {row.attempt: row.copied for row in done if row.copied}

    def _count(self, db: Any, stage: TableName, attempts: dict[int, int]) -> None:
        found = dict(db.execute(f"SELECT {quoted(_ATTEMPT)}, count(*) FROM {stage} GROUP BY 1").fetchall())  # noqa: S608
        if any(found.get(attempt) != copied for attempt, copied in attempts.items()):
            raise StagingLost(
                f"sink {self.target.name!r}: the tasks staged {sum(attempts.values())} rows and PostgreSQL has "
                f"{sum(found.values())} of them (did the server restart?); the batch is given up and can be run again"
            )


def copy_batches(url: str, statement: str, attempt: int, batches: Iterable[pa.RecordBatch]) -> int:
    """COPY all batches over one connection, in a transaction of their own; the number of rows."""
    rows = 0
    filled = (batch for batch in batches if batch.num_rows)
    first = next(filled, None)
    if first is None:
        return 0
    with extras.load("psycopg").connect(url) as db, db.cursor().copy(statement) as copy:
        batch: pa.RecordBatch | None = first
        while batch is not None:
            copy.write(memoryview(copy_text(batch, f"{attempt}\t")))
            rows += batch.num_rows
            batch = next(filled, None)
    return rows


def _exists(db: Any, table: TableName) -> bool:
    return db.execute("SELECT to_regclass(%s) IS NOT NULL", (str(table),)).fetchone()[0]  # type: ignore[no-any-return]


def _run(db: Any) -> Any:
    def run(statement: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        # Without values psycopg leaves per cent signs alone, as they may stand in a column's name.
        cursor = db.execute(statement, values or None)
        return cursor.fetchall() if cursor.description else []

    return run


def postgres(
    url: str,
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
) -> PostgresSink:
    """A sink to a PostgreSQL table (`table` or `schema.table`); with `keys` it upserts, without it appends."""
    if not url.startswith(("postgresql://", "postgres://")):
        raise SinkMisconfigured("a PostgreSQL sink needs a URL such as postgresql://user@host:5432/database")
    target = Target(
        table, name or f"postgres:{table}", words(keys), words(order_by), delete_when, version, words(columns), create,
        on_new_query,
    )  # fmt: skip
    return PostgresSink(url, target)


_NAMES: dict[type[T.DataType], str] = {
    T.BooleanType: "boolean", T.ByteType: "smallint", T.ShortType: "smallint", T.IntegerType: "integer",
    T.LongType: "bigint", T.FloatType: "real", T.DoubleType: "double precision", T.StringType: "text",
    T.CharType: "text", T.VarcharType: "text", T.BinaryType: "bytea", T.DateType: "date",
    T.TimestampType: "timestamp with time zone", T.TimestampNTZType: "timestamp without time zone",
}  # fmt: skip

# What takes every value of the type on the left without loss, besides itself.
_ALSO: dict[str, frozenset[str]] = {
    "smallint": frozenset({"integer", "bigint", "numeric", "real", "double precision"}),
    "integer": frozenset({"bigint", "numeric", "double precision"}),
    "bigint": frozenset({"numeric"}),
    "real": frozenset({"double precision"}),
    "jsonb": frozenset({"json", "text"}),
}
# A text is read by the column it goes to, and these columns read texts.
_NOT_FROM_TEXT = frozenset({
    "boolean", "smallint", "integer", "bigint", "real", "double precision", "numeric", "bytea", "date",
    "timestamp with time zone", "timestamp without time zone",
})  # fmt: skip


def postgres_type(kind: T.DataType) -> str | None:
    """The type of a column in a new table; None if there is none."""
    if isinstance(kind, T.DecimalType):
        return f"numeric({kind.precision},{kind.scale})"
    if isinstance(kind, T.ArrayType):
        element = postgres_type(kind.elementType)
        return element and f"{element}[]"
    return _NAMES.get(type(kind))


def fits(wanted: str, found: str) -> bool:
    """Whether a column of type `found` (from format_type, without parameters) takes the values of `wanted`."""
    if wanted.endswith("[]"):
        return found.endswith("[]") and fits(wanted[:-2], found[:-2])
    if wanted.startswith("numeric"):
        return found == "numeric"
    if wanted == "text":
        return found not in _NOT_FROM_TEXT and not found.endswith("[]")
    return found == wanted or found in _ALSO.get(wanted, ())
