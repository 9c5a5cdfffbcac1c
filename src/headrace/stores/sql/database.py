"""What the SQL sink asks of a database. Statements are the database's own; the order of things is the sink's."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from headrace.stores.errors import InvalidConnectSetting
from headrace.stores.values import Family

Rows: TypeAlias = Sequence[tuple[Any, ...]]
_LONGEST = 48  # PostgreSQL cuts names at 63 bytes, and ours are longer than the user's


@dataclass(frozen=True, slots=True)
class TableName:
    """A table, perhaps in a schema."""

    name: str
    schema: str = ""

    @classmethod
    def parse(cls, text: str) -> "TableName":
        """`table` or `schema.table`."""
        schema, _, name = text.rpartition(".")
        if not name or len(name.encode()) > _LONGEST:
            raise InvalidConnectSetting("table", text, f"a name has 1 to {_LONGEST} bytes")
        return cls(name, schema)

    def with_suffix(self, suffix: str) -> "TableName":
        """A table beside it."""
        return TableName(f"{self.name}__{suffix}", self.schema)

    @property
    def state(self) -> "TableName":
        """Where the place in the log stands."""
        return self.with_suffix("sync")

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}" if self.schema else self.name


@dataclass(frozen=True, slots=True)
class ColumnType:
    """A column's type as the database spells it, and what that means for values."""

    spelling: str
    family: Family


class Database(Protocol):
    """One database, one connection. Between `connect` and `close` it belongs to one thread."""

    kind: str
    lock: str  # what makes a SELECT hold a row until the end of the transaction
    is_ddl_transactional: bool

    def connect(self) -> None:
        """Connect, or connect again."""
        ...

    def close(self) -> None:
        """Disconnect; whatever is not committed is gone."""
        ...

    def rest(self, *, is_idle: bool) -> None:
        """Between batches: let others have what only one may hold; the next statement takes it again."""
        ...

    def translated(self) -> AbstractContextManager[None]:
        """Turns the driver's errors into `SinkUnavailable`, `SinkRefused` and `RowRefused`."""
        ...

    def transaction(self) -> AbstractContextManager[None]:
        """All or nothing."""
        ...

    def quoted(self, name: str) -> str:
        """A name as SQL takes it, whatever it holds."""
        ...

    def run(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """One statement, with `?` where values go."""
        ...

    def stream(self, statement: str, chunk_rows: int) -> Iterator[Rows]:
        """What a query finds, in chunks, as of one moment."""
        ...

    def columns(self, table: TableName) -> dict[str, ColumnType]:
        """A table's columns; none if it is not there."""
        ...

    def readable(self, name: str, column: ColumnType) -> str:
        """What to select so that the column's values can be compared with the log's."""
        ...

    def key_columns(self, table: TableName) -> list[str]:
        """The columns of a table's primary key."""
        ...

    def type_for(self, family: Family, *, is_key: bool) -> str:
        """The type of a new column."""
        ...

    def retype(self, table: TableName, columns: Mapping[str, ColumnType], *, keys: Sequence[str]) -> None:
        """Give columns other types, which hold what the columns have."""
        ...

    def create_like(self, table: TableName, model: TableName) -> None:
        """A table of the same shape."""
        ...

    def rename(self, moves: Sequence[tuple[TableName, TableName]]) -> None:
        """Rename tables, all at once."""
        ...

    def bind(self, value: Any, family: Family) -> Any:
        """A converted value as the driver takes it."""
        ...

    def upsert(self, table: TableName, columns: Mapping[str, ColumnType], keys: Sequence[str], rows: Rows) -> None:
        """Insert rows with these columns, or update them by key."""
        ...

    def delete(self, table: TableName, columns: Mapping[str, ColumnType], rows: Rows) -> None:
        """Delete by key; `columns` are the key's."""
        ...


def listed(quoted: Callable[[str], str], names: Sequence[str], prefix: str = "") -> str:
    """Names, quoted, with commas between."""
    return ", ".join(prefix + quoted(name) for name in names)


def full_name(database: Database, table: TableName) -> str:
    """A table as SQL takes it."""
    name = database.quoted(table.name)
    return f"{database.quoted(table.schema)}.{name}" if table.schema else name


def conflict_upsert(
    quoted: Callable[[str], str], table: str, columns: Sequence[str], keys: Sequence[str], source: str
) -> str:
    """`INSERT … ON CONFLICT`, which three of the four databases have."""
    rest = [name for name in columns if name not in keys]
    sets = ", ".join(f"{quoted(name)} = excluded.{quoted(name)}" for name in rest)
    action = f"DO UPDATE SET {sets}" if rest else "DO NOTHING"
    into = listed(quoted, columns)
    return f"INSERT INTO {table} ({into}) {source} ON CONFLICT ({listed(quoted, keys)}) {action}"
