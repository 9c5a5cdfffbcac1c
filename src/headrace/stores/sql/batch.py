"""The batch sinks of SQL databases: a batch's rows and its number in one transaction.

A database brings its types, what a table of its has, and the way rows get to it. Where it is a file the rows are
spooled and loaded by this process; PostgreSQL has them copied by the tasks.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Self

from pyspark.sql import DataFrame
from pyspark.sql.types import DataType

from headrace.stores.batch import Numbered, Step, Target
from headrace.stores.frames import (
    TableColumn,
    check_columns,
    check_unique,
    choose_types,
    read_query_id,
    reduce_changes,
    refuse_missing,
    spool_rows,
)
from headrace.stores.sql.database import Database, StagingDatabase
from headrace.stores.sql.statements import Merge, TableName
from headrace.stores.sql.transaction import create_batches, read_step, switch_tables, target_beside, write_batch


@dataclass(frozen=True)
class SqlBatchSink(ABC):
    """Given to `foreachBatch`."""

    target: Target
    store: ClassVar[str]  # its name, for people
    json_type: ClassVar[str]  # of nested columns that are kept as JSON

    @abstractmethod
    def __call__(self, df: DataFrame, batch_id: int) -> None:
        """Write one batch, unless it is there already."""

    @abstractmethod
    def open(self) -> AbstractContextManager[tuple[Database, TableName]]:
        """The database, with its memory of batches, and the target; no other writes under this name meanwhile."""

    @abstractmethod
    def describe(self, db: Database, table: TableName) -> tuple[list[TableColumn], Iterable[Iterable[str]]]:
        """A table's columns, none if it is not there, and the sets of columns that are unique in it."""

    @abstractmethod
    def type_of(self, kind: DataType) -> str | None:
        """The type of a column in a new table; None if there is none."""

    def fits(self, wanted: str, found: str) -> bool:  # noqa: ARG002 - any column of SQLite takes any value
        """Whether a column takes every value of the type without loss."""
        return True

    def prepare(self, rows: DataFrame) -> DataFrame:
        """The columns as the store wants them."""
        return rows

    def beside(self, version: int) -> Self:
        """The same sink for a version that is built beside the one in use."""
        return replace(self, target=target_beside(self.target, version))

    def switch(self, version: int) -> None:
        """Let that version take the table's name."""
        with self.open() as (db, table), db.transaction():
            switch_tables(db, table, self.target.name, version)

    @property
    def where(self) -> str:
        return f"{self.store} table {self.target.table}"

    def read_batch(self, df: DataFrame, batch_id: int) -> tuple[Numbered, DataFrame, dict[str, str]]:
        """A batch as Spark counts it, its rows, and the store's types of their columns."""
        rows = self.prepare(reduce_changes(df, self.target))
        types = choose_types(rows.schema, self.target, self.type_of, self.where, self.json_type)
        return Numbered(read_query_id(df), batch_id), rows, types

    def check_table(self, db: Database, table: TableName, types: dict[str, str]) -> bool:
        """Whether the table exists; if it does, it fits."""
        columns, uniques = self.describe(db, table)
        if not columns:
            refuse_missing(self.where, self.target.create)
            return False
        check_columns(self.where, types, columns, self.fits)
        check_unique(self.where, self.target.keys, map(frozenset, uniques))
        return True

    def merge(self, table: TableName, stage: str, types: dict[str, str], stage_where: str = "true") -> Merge:
        target = self.target
        has_deletes = target.delete_when is not None
        return Merge(table, stage, tuple(types), target.keys, target.version, has_deletes, stage_where)


@dataclass(frozen=True)
class FileBatchSink(SqlBatchSink):
    """Into a database that is a file."""

    path: Path

    @abstractmethod
    def database(self) -> StagingDatabase:
        """The file, not opened yet."""

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
