"""A derived table that grows with its rows: made from the first of them, with new columns added and types widened.

A column that we made has the type of its first values, and a wider one as soon as a later value needs it; `NAME__sync`
names the columns that we made. A table that we made is made anew when it is empty and its rows get a key, or have none
any more. A type that somebody chose, in `types` or with a table of his own, stays: a value that does not fit is then
the row's fault.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from headrace.stores.derived import ROW_COLUMN, RowChange, other_key
from headrace.stores.errors import InvalidConnectSetting, SinkRefused
from headrace.stores.sql.database import ColumnType, TableDatabase
from headrace.stores.sql.statements import TableName, create_table, quote
from headrace.stores.values import Family, Misfit, family_of_value, reader_of, widen

_MADE: Final = 2  # the row of the state that names the columns which we made
_LONGEST: Final = 48  # PostgreSQL cuts names at 63 bytes, and ours are longer than the user's
_NUMBERS: Final = (Family.INTEGER, Family.FLOAT, Family.DECIMAL)
ADD, REFUSE, IGNORE = "add", "refuse", "ignore"


@dataclass(frozen=True, slots=True)
class TableOptions:
    """What a user says about a table."""

    table: TableName
    types: Mapping[str, str] = field(default_factory=dict)  # of columns that we make
    new_columns: str = ADD

    def __post_init__(self) -> None:
        if not 0 < len(self.table.name.encode()) <= _LONGEST:
            raise InvalidConnectSetting("table", self.table.plain, f"a name has 1 to {_LONGEST} bytes")
        if self.new_columns not in (ADD, REFUSE, IGNORE):
            raise InvalidConnectSetting("new_columns", self.new_columns, "choose 'add', 'refuse' or 'ignore'")


class GrowingTable:
    """The shape of one table; `made` are columns whose types nobody chose."""

    def __init__(self, database: TableDatabase, options: TableOptions, topic: str, made: frozenset[str]) -> None:
        self._database, self._options, self._topic = database, options, topic
        self._table = options.table
        self.columns: dict[str, ColumnType] = {}
        self._made = made

    @property
    def where(self) -> str:
        """The table, for people."""
        return f"{self._database.kind} table {self._table.plain}"

    def read(self) -> None:
        """What the database has."""
        self.columns = self._database.columns(self._table)
        made = read_made(self._database, self._table)
        if made is not None:
            self._made = made
        elif self._made:
            self._keep_made(self._made)

    def saved(self) -> Callable[[], None]:
        """What puts back what is known now, when a transaction that changed the table is rolled back."""
        columns, made = self.columns, self._made

        def restore() -> None:
            self.columns, self._made = columns, made

        return restore

    def column(self, name: str) -> ColumnType:
        if name not in self.columns:
            raise SinkRefused(f"{self.where} has no column {name!r}, by which rows are known: add it as its key")
        return self.columns[name]

    def ensure(self, changes: Sequence[RowChange], check_owner: Callable[[], None]) -> None:
        """Have a table that can hold these rows."""
        database, columns = self._database, self.columns
        others = _keyed_otherwise(changes, columns)
        # The source's table got a key or lost it. For that its topic is emptied, perhaps a few records later.
        if (
            others
            and columns
            and self._made >= set(database.key_columns(self._table))
            and not database.run(f"SELECT 1 FROM {self._table} LIMIT 1")  # noqa: S608
        ):
            check_owner()
            database.run(f"DROP TABLE {self._table}")
            self.columns = {}
            others = _keyed_otherwise(changes, {})
        if others:
            key = database.key_columns(self._table) if self.columns else [ROW_COLUMN]
            raise other_key(self.where, key, others[0])
        self._ensure_columns(changes)

    def _ensure_columns(self, changes: Sequence[RowChange]) -> None:
        """Make the table, or the columns that it lacks."""
        missing: dict[str, Family] = {}
        key: Sequence[str] = ()
        for change in changes:
            if change.row is None:
                continue
            key = list(change.key)
            for name, value in change.row.items():
                if name in self.columns:
                    continue
                family = missing.get(name) or family_of_value(value)
                if family is not None:
                    missing[name] = self._wider(family, value)
        if not missing:
            return
        for change in changes:  # what came before a column was widened must fit, too
            for name in missing:
                missing[name] = self._wider(missing[name], (change.row or {}).get(name))
        database, options = self._database, self._options
        if not self.columns or options.new_columns == ADD:
            self._keep_made(self._made | {name for name in missing if name not in options.types})
        spelled = {
            name: options.types.get(name) or database.type_for(family, is_key=name in key)
            for name, family in missing.items()
        }
        if not self.columns:
            database.run(create_table(self._table, list(spelled.items()), key))
        elif options.new_columns == REFUSE:
            raise SinkRefused(
                f"{self.where} has no column {', '.join(map(repr, missing))}, which rows of {self._topic} have: add "
                "it, or set new_columns to 'add' or 'ignore'"
            )
        elif options.new_columns == ADD:
            for name, spelling in spelled.items():
                database.run(f"ALTER TABLE {self._table} ADD COLUMN {quote(name)} {spelling}")
        self.columns = database.columns(self._table)

    def _keep_made(self, names: frozenset[str]) -> None:
        """Before the columns are there: one that is named and was not made harms nobody."""
        if names == self._made and names:
            return
        state = self._table.state
        self._database.run(f"DELETE FROM {state} WHERE id = {_MADE}")  # noqa: S608
        self._database.run(
            f"INSERT INTO {state} (id, owner, place) VALUES ({_MADE}, '', ?)",  # noqa: S608
            (json.dumps(sorted(names)),),
        )
        self._made = names

    def find_wider(self, changes: Sequence[RowChange]) -> tuple[dict[str, ColumnType], Sequence[str]]:
        """The types that these rows need, of the columns that we made, and the key; none where all fit."""
        database = self._database
        families = {name: column.family for name, column in self.columns.items() if name in self._made}
        keys: Sequence[str] = ()
        for change in changes:
            keys = list(change.key)
            for name, value in (change.row or {}).items():
                if name in families:
                    families[name] = self._wider(families[name], value)
        for name, family in families.items():
            if family is Family.FLOAT and self.columns[name].family is Family.INTEGER and self._has_many_digits(name):
                families[name] = Family.TEXT
        wider = {
            name: ColumnType(database.type_for(family, is_key=name in keys), family)
            for name, family in families.items()
            if family is not self.columns[name].family
        }
        return wider, keys

    def _has_many_digits(self, name: str) -> bool:
        column, most = quote(name), 2**53
        query = f"SELECT 1 FROM {self._table} WHERE {column} > {most} OR {column} < -{most} LIMIT 1"  # noqa: S608
        return bool(self._database.run(query))

    def _wider(self, family: Family, value: Any) -> Family:
        result = widen(family, value)
        if result is family and result in _NUMBERS and value is not None:
            try:
                self._database.bind(reader_of(result)(value), result)
            except Misfit:  # a number that this database has not
                return Family.TEXT
        return result


def read_made(database: TableDatabase, table: TableName) -> frozenset[str] | None:
    """The columns that we made, as a table's state names them; None where it does not say."""
    names = database.run(f"SELECT place FROM {table.state} WHERE id = {_MADE}")  # noqa: S608
    return frozenset(json.loads(names[0][0])) if names else None


def _keyed_otherwise(changes: Sequence[RowChange], columns: Mapping[str, ColumnType]) -> list[RowChange]:
    """Changes of rows with a key in a table of rows without one, or the other way; a new table begins without."""
    is_counted = ROW_COLUMN in columns if columns else any(ROW_COLUMN in change.key for change in changes)
    return [change for change in changes if (ROW_COLUMN in change.key) != is_counted]
