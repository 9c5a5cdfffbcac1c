"""PostgreSQL's batch sink: executors COPY into an unlogged stage, the driver merges and records in one transaction.

A stage belongs to one attempt at one batch: its name is new each time, and each row carries the task attempt that
wrote it, so a task that Spark ran twice counts once. The driver compares what it finds with what the tasks reported:
a server that crashed meanwhile has emptied its unlogged tables. An advisory lock keeps a second writer of the same
sink out.

Types: decimals numeric(p,s), timestamps timestamptz, timestamp_ntz timestamp, binary bytea, arrays of scalars arrays;
structs, maps and other arrays jsonb. A text with a NUL character is refused by the server, as PostgreSQL has no such
text.
"""

import hashlib
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Unpack

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql import DataFrame

from headrace.stores.batch import DELETED, Settings, Step, Target
from headrace.stores.errors import SinkMisconfigured, StagingLost
from headrace.stores.postgres.database import SINKS, PostgresDatabase
from headrace.stores.sql.batch import SqlBatchSink
from headrace.stores.sql.database import Database
from headrace.stores.sql.statements import TableName, list_names, quote
from headrace.stores.sql.transaction import create_batches, read_step, write_batch

_ATTEMPT = "headrace_attempt"


@dataclass(frozen=True)
class PostgresSink(SqlBatchSink):
    url: str = field(repr=False)  # it may hold a password

    def database(self) -> PostgresDatabase:
        return PostgresDatabase(self.url)

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        batch, rows, types = self.read_batch(df, batch_id)
        with self.open() as (db, table):
            if read_step(db, table, self.target, batch) is Step.SKIP:
                return
            stage = self._stage(db, table, types, exists=self.check_table(db, table, types))
            try:
                attempts = self._copy(rows, stage)
                mine = f"s.{quote(_ATTEMPT)} IN ({', '.join(map(str, attempts)) or 'NULL'})"
                with db.transaction():
                    self._count(db, stage, attempts)
                    write_batch(db, self.target, batch, types, self.merge(table, str(stage), types, mine))
                    db.run(f"DROP TABLE {stage}")
            except BaseException:
                if not db.is_broken:
                    db.run(f"DROP TABLE IF EXISTS {stage}")
                raise

    @contextmanager
    def open(self) -> Iterator[tuple[PostgresDatabase, TableName]]:
        table = TableName.parse(self.target.table)
        with self.database().open() as db:
            if not table.schema:
                table = replace(table, schema=db.run("SELECT current_schema()")[0][0])
            db.hold(SINKS, f"{table.schema}/{self.target.name}")
            with db.transaction():
                db.guard_definitions()
                create_batches(db, table)
            yield db, table

    def _stage(self, db: Database, table: TableName, types: dict[str, str], *, exists: bool) -> TableName:
        """A new stage with the columns' types of the target; stages of attempts that died are dropped."""
        prefix = f"headrace_stage_{hashlib.sha256(self.target.name.encode()).hexdigest()[:12]}_"
        left = db.run(
            "SELECT tablename FROM pg_tables WHERE schemaname = ? AND starts_with(tablename, ?)",
            (table.schema, prefix),
        )
        for (name,) in left:
            db.run(f"DROP TABLE IF EXISTS {table.sibling(name)}")
        stage = table.sibling(prefix + uuid.uuid4().hex[:16])
        own = [(DELETED, "boolean")] if self.target.keys else []
        own.append((_ATTEMPT, "bigint"))
        if exists:
            shape = f"SELECT {list_names(types)} FROM {table} WHERE false"  # noqa: S608
            db.run(f"CREATE UNLOGGED TABLE {stage} AS {shape}")
            db.run(f"ALTER TABLE {stage} {', '.join(f'ADD {quote(name)} {kind}' for name, kind in own)}")
        else:
            made = ", ".join(f"{quote(name)} {kind}" for name, kind in [*types.items(), *own])
            db.run(f"CREATE UNLOGGED TABLE {stage} ({made})")
        return stage

    def _copy(self, rows: DataFrame, stage: TableName) -> dict[int, int]:
        """The rows in the stage; how many by each task attempt that counts."""
        url = self.url
        statement = f"COPY {stage} ({list_names([_ATTEMPT, *rows.columns])}) FROM STDIN"

        def copy(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            task = TaskContext.get()
            assert task is not None
            attempt = task.taskAttemptId()
            copied = copy_batches(url, statement, attempt, batches)
            yield pa.RecordBatch.from_pydict({"attempt": [attempt], "copied": [copied]})

        done = rows.mapInArrow(copy, "attempt long, copied long").collect()
        return {row.attempt: row.copied for row in done if row.copied}

    def _count(self, db: Database, stage: TableName, attempts: dict[int, int]) -> None:
        found = dict(db.run(f"SELECT {quote(_ATTEMPT)}, count(*) FROM {stage} GROUP BY 1"))  # noqa: S608
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
    with PostgresDatabase(url).open() as db, db.transaction(), db.copy(statement) as copy:
        for batch in chain([first], filled):
            copy.write(memoryview(copy_text(batch, f"{attempt}\t")))
            rows += batch.num_rows
    return rows


def postgres(url: str, table: str, keys: str | Sequence[str] = (), **settings: Unpack[Settings]) -> PostgresSink:
    """A sink to a PostgreSQL table (`table` or `schema.table`); with `keys` it upserts, without it appends."""
    if not url.startswith(("postgresql://", "postgres://")):
        raise SinkMisconfigured("a PostgreSQL sink needs a URL such as postgresql://user@host:5432/database")
    return PostgresSink(Target.of(table, f"postgres:{table}", keys, **settings), url)


_NULL = "\\N"


def copy_text(batch: pa.RecordBatch, prefix: str = "") -> pa.Buffer | bytes:
    """The rows as COPY reads them; `prefix` stands before each row (with its own tab)."""
    if batch.num_rows == 0:
        return b""
    parts = [_large(prefix)]
    for column in batch.columns:
        parts += [pc.fill_null(_escaped(_text(column)), _large(_NULL)), _large("\t")]
    parts[-1] = _large("\n")
    return _contents(_joined(*parts))


def _large(text: str | None) -> pa.Scalar:
    return pa.scalar(text, pa.large_string())


def _joined(*parts: pa.Array | pa.Scalar) -> pa.Array:
    """The parts of each row one after another; null if one of them is."""
    return pc.binary_join_element_wise(*parts, _large(""))


def _contents(column: pa.Array) -> pa.Buffer:
    """All values of a large string column, one after another, without a copy."""
    offsets = column.buffers()[1]
    positions = memoryview(offsets).cast("q")
    first, last = positions[column.offset], positions[column.offset + len(column)]
    return column.buffers()[2].slice(first, last - first)


def _text(column: pa.Array) -> pa.Array:
    """Each value as PostgreSQL would write it, not yet escaped."""
    kind = column.type
    if pa.types.is_large_string(kind):
        return column
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return _hex(column)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _array(column)
    if pa.types.is_timestamp(kind):
        text = column.cast(pa.timestamp("us", kind.tz and "UTC")).cast(pa.timestamp("us")).cast(pa.large_string())
        return _joined(text, _large("+00")) if kind.tz else text
    if pa.types.is_decimal(kind):
        return column.cast(pa.string()).cast(pa.large_string())
    return column.cast(pa.large_string())


def _hex(column: pa.Array) -> pa.Array:
    """`\\x0aff`: the bytes of all values in one go, then cut at twice the offsets."""
    column = column.cast(pa.large_binary())
    positions = memoryview(column.buffers()[1]).cast("q")
    start, end = positions[column.offset], positions[column.offset + len(column)]
    data = column.buffers()[2]
    digits = bytes(data.slice(start, end - start)).hex().encode() if data is not None else b""
    cuts = pa.array(positions[column.offset : column.offset + len(column) + 1], pa.int64())
    cuts = pc.multiply(pc.subtract(cuts, start), 2)
    plain = pa.Array.from_buffers(pa.large_string(), len(column), [None, cuts.buffers()[1], pa.py_buffer(digits)])
    return pc.if_else(column.is_valid(), _joined(_large("\\x"), plain), _large(None))


def _array(column: pa.Array) -> pa.Array:
    """`{"a","b",NULL}`: the elements of all rows are quoted in one go, then joined row by row."""
    elements = _text(column.flatten())
    for special in ("\\", '"'):
        elements = pc.replace_substring(elements, special, "\\" + special)
    elements = pc.fill_null(_joined(_large('"'), elements, _large('"')), _large("NULL"))
    lengths = pc.fill_null(pc.list_value_length(column), 0).cast(pa.int64())
    ends = pc.cumulative_sum(lengths)
    cuts = pa.concat_arrays([pa.array([0], pa.int64()), ends])
    inner = pc.binary_join(pa.LargeListArray.from_arrays(cuts, elements), _large(","))
    return pc.if_else(column.is_valid(), _joined(_large("{"), inner, _large("}")), _large(None))


def _escaped(column: pa.Array) -> pa.Array:
    """What COPY would take for a separator or an escape, behind a backslash."""
    if not pc.any(pc.match_substring_regex(column, "[\\\\\t\n\r]")).as_py():
        return column
    for special, written in (("\\", "\\\\"), ("\t", "\\t"), ("\n", "\\n"), ("\r", "\\r")):
        column = pc.replace_substring(column, special, written)
    return column
