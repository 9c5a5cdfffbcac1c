"""What the faces ask of a database. Statements are the database's own; the order of things is the faces'.

`Database` is a connection with transactions, and all faces use it. `TableDatabase` is what a derived table needs
besides: rows put and removed by key, and a table that grows with its rows.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from re import sub
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeAlias

from headrace.stores.batch import TableColumn
from headrace.stores.sql.statements import TableName, list_names, quote
from headrace.stores.values import Family

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from headrace.stores.frames import Spool

Rows: TypeAlias = Sequence[tuple[Any, ...]]


class Database(ABC):
    """One database, one connection. Between `connect` and `close` it belongs to one thread."""

    kind: ClassVar[str]
    moment: ClassVar[str]  # the type of an instant

    @abstractmethod
    def connect(self) -> None:
        """Connect, or connect again."""

    @abstractmethod
    def close(self) -> None:
        """Disconnect; whatever is not committed is gone."""

    @staticmethod
    def driver_error() -> type[Exception]:
        """What the driver raises."""
        raise NotImplementedError

    @property
    def is_broken(self) -> bool:
        """Whether the connection ended."""
        return False

    @contextmanager
    def open(self) -> Iterator[Self]:
        """Connected while the block runs."""
        self.connect()
        try:
            yield self
        finally:
            self.close()

    @abstractmethod
    def transaction(self) -> AbstractContextManager[None]:
        """All or nothing."""

    @abstractmethod
    def run(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """One statement, with `?` where values go."""

    def run_many(self, statement: str, rows: Iterable[Sequence[Any]]) -> None:
        """The statement once for each row."""
        for row in rows:
            self.run(statement, row)

    @abstractmethod
    def exists(self, table: TableName) -> bool: ...

    def guard_definitions(self) -> None:  # noqa: B027 - only PostgreSQL's race
        """In a transaction: no other makes tables until its end, where CREATE IF NOT EXISTS races with itself."""

    def try_lock(self, name: str) -> bool:
        """Hold a name that one connection alone can hold, until it is closed; false if another has it."""
        raise NotImplementedError

    def instant(self, ms: int | None = None) -> Any:
        """A time, or now, as a column of the type `moment` takes it."""
        return datetime.now(UTC) if ms is None else datetime.fromtimestamp(ms / 1000, UTC)


class StagingDatabase(Database):
    """A database that takes a batch of Spark's whole."""

    column_types: ClassVar[Mapping[str, str]]  # of new columns, by Spark's names of its types
    json_type: ClassVar[str]  # of nested columns that are kept as JSON
    has_arrays: ClassVar[bool] = False  # of scalars

    @classmethod
    def type_of(cls, kind: Any) -> str | None:
        """The type of a new column for one of Spark's types; None if there is none."""
        return cls.column_types.get(kind.typeName())

    @staticmethod
    def fits(wanted: str, found: str) -> bool:  # noqa: ARG004 - any column of SQLite takes any value
        """Whether a column takes every value of the type without loss."""
        return True

    @classmethod
    def prepare(cls, rows: "DataFrame") -> "DataFrame":
        """Nested columns as JSON, but for those that the store has a type for."""
        from headrace.stores.frames import encode_nested

        return encode_nested(rows, keep_scalar_arrays=cls.has_arrays)

    @abstractmethod
    def describe(self, table: TableName) -> tuple[list[TableColumn], Iterable[Iterable[str]]]:
        """A table's columns, none if it is not there, and the sets of columns that are unique in it."""

    @abstractmethod
    def stage(self, spool: "Spool", types: Mapping[str, str]) -> str:
        """The rows, with their flags, in a table that is gone with the connection; its name."""


@contextmanager
def commit_or_roll_back(connection: Any, *passing: type[Exception]) -> Iterator[None]:
    """A transaction on a driver's connection; errors of these types while rolling back do not hide the first one."""
    connection.begin()
    try:
        yield
        connection.commit()
    except BaseException:
        with suppress(*passing):
            connection.rollback()
        raise


def fetch_chunks(cursor: Any, chunk_rows: int) -> Iterator[Rows]:
    """What a query that was run has found, so many rows at a time."""
    while chunk := cursor.fetchmany(chunk_rows):
        yield chunk


@lru_cache(maxsize=512)
def with_format_marks(statement: str) -> str:
    """`?` as `%s`, for drivers that take that; names and texts in quotes stay what they are."""
    marked = r""""[^"]*"|'[^']*'|\?|%"""
    return sub(marked, lambda found: "%s" if found[0] == "?" else found[0].replace("%", "%%"), statement)


@dataclass(frozen=True, slots=True)
class ColumnType:
    """A column's type as the database spells it, and what that means for values."""

    spelling: str
    family: Family


class TableDatabase(Database):
    """A database with derived tables."""

    lock: ClassVar[str] = ""  # what makes a SELECT hold a row until the end of the transaction
    is_ddl_transactional: ClassVar[bool] = True
    types: ClassVar[Mapping[Family, str]]  # of new columns

    def rest(self, *, is_idle: bool) -> None:
        """Between batches: let others have what only one may hold; the next statement takes it again."""

    def defining(self) -> AbstractContextManager[None]:
        """Around changes of tables: a transaction, where it holds for them."""
        return self.transaction() if self.is_ddl_transactional else nullcontext()

    @abstractmethod
    def translate_errors(self) -> AbstractContextManager[None]:
        """Turns the driver's errors into `SinkUnavailable`, `SinkRefused` and `RowRefused`."""

    @abstractmethod
    def stream(self, statement: str, chunk_rows: int) -> Iterator[Rows]:
        """The rows of a query, in chunks, as of one moment."""

    @abstractmethod
    def columns(self, table: TableName) -> dict[str, ColumnType]:
        """A table's columns; none if it is not there."""

    @abstractmethod
    def key_columns(self, table: TableName) -> list[str]:
        """The columns of a table's primary key, in its order."""

    def exists(self, table: TableName) -> bool:
        return bool(self.columns(table))

    def readable(self, name: str, column: ColumnType) -> str:  # noqa: ARG002 - for some types, in some databases
        """What to select so that the column's values can be compared with the log's."""
        return quote(name)

    def type_for(self, family: Family, *, is_key: bool) -> str:  # noqa: ARG002 - the same for keys, in most
        """The type of a new column."""
        return self.types[family]

    @abstractmethod
    def retype(self, table: TableName, columns: Mapping[str, ColumnType], *, keys: Sequence[str]) -> None:
        """Give columns other types, which hold what the columns have."""

    def retype_beside(
        self, table: TableName, columns: Mapping[str, ColumnType], keys: Sequence[str], texts: Mapping[str, str]
    ) -> None:
        """Through a table beside it, for databases that change no type; `texts` are expressions for new texts."""
        held = self.columns(table)
        beside = table.with_suffix("retyped")
        parts = [f"{quote(name)} {columns.get(name, column).spelling}" for name, column in held.items()]
        self.run(f"CREATE TABLE {beside} ({', '.join(with_key(parts, keys))})")
        chosen = ", ".join(texts.get(name, quote(name)) for name in held)
        self.run(f"INSERT INTO {beside} SELECT {chosen} FROM {table}")  # noqa: S608
        self.run(f"DROP TABLE {table}")
        self.run(f"ALTER TABLE {beside} RENAME TO {quote(table.name)}")

    @abstractmethod
    def create_like(self, table: TableName, model: TableName) -> None:
        """A table of the same shape."""

    def rename(self, moves: Sequence[tuple[TableName, TableName]]) -> None:
        """Rename tables, all at once: in the caller's transaction where definitions have one."""
        for old, new in moves:
            self.run(f"ALTER TABLE {old} RENAME TO {quote(new.name)}")

    def bind(self, value: Any, family: Family) -> Any:  # noqa: ARG002 - for some types, in some databases
        """A converted value as the driver takes it."""
        return value

    @abstractmethod
    def upsert(self, table: TableName, columns: Mapping[str, ColumnType], keys: Sequence[str], rows: Rows) -> None:
        """Insert rows with these columns, or update them by key."""

    @abstractmethod
    def delete(self, table: TableName, columns: Mapping[str, ColumnType], rows: Rows) -> None:
        """Delete by key; `columns` are the key's."""


def with_key(parts: Sequence[str], keys: Sequence[str]) -> list[str]:
    """The parts of a CREATE TABLE, and its primary key if there is one."""
    return [*parts, f"PRIMARY KEY ({list_names(keys)})"] if keys else list(parts)
