"""The batch sinks of SQL databases: a batch's rows and its number in one transaction.

A database brings its types, what a table of its has, and the way rows get to it. Where it is a file (SQLite, DuckDB)
the rows are spooled and loaded by this process; PostgreSQL has them copied by the tasks.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self, Unpack

from pyspark.sql import DataFrame

from headrace.stores.batch import Numbered, Settings, Step, Target
from headrace.stores.duckdb.database import DuckdbDatabase
from headrace.stores.frames import (
    check_columns,
    check_unique,
    choose_types,
    read_query_id,
    reduce_changes,
    refuse_missing,
    spool_rows,
)
from headrace.stores.sql.database import StagingDatabase
from headrace.stores.sql.statements import Merge, TableName
from headrace.stores.sql.transaction import create_batches, read_step, switch_tables, target_beside, write_batch
from headrace.stores.sqlite.database import SqliteDatabase


@dataclass(frozen=True)
class SqlBatchSink(ABC):
    """Given to `foreachBatch`."""

    target: Target

    @abstractmethod
    def __call__(self, df: DataFrame, batch_id: int) -> None:
        """Write one batch, unless it is there already."""

    @abstractmethod
    def database(self) -> StagingDatabase:
        """The database, not opened yet."""

    @abstractmethod
    def open(self) -> AbstractContextManager[tuple[StagingDatabase, TableName]]:
        """The database, with its memory of batches, and the target; no other writes under this name meanwhile."""

    def beside(self, version: int) -> Self:
        """The same sink for a version that is built beside the one in use."""
        return replace(self, target=target_beside(self.target, version))

    def switch(self, version: int) -> None:
        """Let that version take the table's name."""
        with self.open() as (db, table), db.transaction():
            switch_tables(db, table, self.target.name, version)

    def read_batch(self, df: DataFrame, batch_id: int) -> tuple[Numbered, DataFrame, dict[str, str]]:
        """A batch as Spark counts it, its rows, and the store's types of their columns."""
        db = self.database()
        rows = db.prepare(reduce_changes(df, self.target))
        types = choose_types(rows.schema, self.target, db.type_of, self._where(db), db.json_type)
        return Numbered(read_query_id(df), batch_id), rows, types

    def check_table(self, db: StagingDatabase, table: TableName, types: dict[str, str]) -> bool:
        """Whether the table exists; if it does, it fits."""
        columns, uniques = db.describe(table)
        where = self._where(db)
        if not columns:
            refuse_missing(where, self.target.create)
            return False
        check_columns(where, types, columns, db.fits)
        check_unique(where, self.target.keys, map(frozenset, uniques))
        return True

    def _where(self, db: StagingDatabase) -> str:
        return f"{db.kind} table {self.target.table}"

    def merge(self, table: TableName, stage: str, types: dict[str, str], stage_where: str = "true") -> Merge:
        target = self.target
        has_deletes = target.delete_when is not None
        return Merge(table, stage, tuple(types), target.keys, target.version, has_deletes, stage_where)


@dataclass(frozen=True)
class FileBatchSink(SqlBatchSink):
    """Into a database that is a file."""

    path: Path
    engine: Callable[[Path], StagingDatabase]

    def database(self) -> StagingDatabase:
        return self.engine(self.path)

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        batch, rows, types = self.read_batch(df, batch_id)
        with self.open() as (db, table):
            if read_step(db, table, self.target, batch) is Step.SKIP:
                return
            self.check_table(db, table, types)
        with spool_rows(rows) as spool, self.open() as (db, table):
            stage = db.stage(spool, types)  # outside of the transaction, which holds the lock of a file
            with db.transaction():
                write_batch(db, self.target, batch, types, self.merge(table, stage, types))

    @contextmanager
    def open(self) -> Iterator[tuple[StagingDatabase, TableName]]:
        table = TableName.parse(self.target.table)
        with self.database().open() as db:
            create_batches(db, table)
            yield db, table


def sqlite(path: str | Path, table: str, keys: str | Sequence[str] = (), **settings: Unpack[Settings]) -> FileBatchSink:
    """A sink to a table in a SQLite file; with `keys` it upserts, without it appends."""
    return FileBatchSink(Target.of(table, f"sqlite:{table}", keys, **settings), Path(path), SqliteDatabase)


def duckdb(path: str | Path, table: str, keys: str | Sequence[str] = (), **settings: Unpack[Settings]) -> FileBatchSink:
    """A sink to a table in a DuckDB file; with `keys` it upserts, without it appends."""
    return FileBatchSink(Target.of(table, f"duckdb:{table}", keys, **settings), Path(path), DuckdbDatabase)
