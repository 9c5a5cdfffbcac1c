"""Which columns a table's records are keyed by, where a user chose: checked before anything is done. Pure.

A source goes on finding its rows by the key that the database has; the choice is for the records. It is also how a
table is captured that has no key at all.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from headrace.connect.errors import InvalidConnectSetting, SourceRefused
from headrace.connect.table import UNCHANGED, Row, Table

Columns = Mapping[str, bool]  # by name: whether it may be null


def check_choice(chosen: Mapping[str, Sequence[str]]) -> None:
    """Refuse what can be told without the database: no columns, one of them twice, a text for a list."""
    for table, columns in chosen.items():
        wanted = f'write key_columns = {{ "{table}" = ["…"] }}'
        if not isinstance(columns, list | tuple) or not columns or not all(isinstance(one, str) for one in columns):
            raise InvalidConnectSetting(f"key_columns of {table}", columns, f"it is a list of columns: {wanted}")
        if len(set(columns)) < len(columns):
            raise InvalidConnectSetting(f"key_columns of {table}", columns, "it names a column twice")


def check_key_columns(chosen: Mapping[str, Sequence[str]], tables: Mapping[str, Columns]) -> None:
    """Refuse a table that is not captured, and columns that are not there or may be null."""
    for table, columns in chosen.items():
        if table not in tables:
            there = ", ".join(list(tables)[:5]) + (" …" if len(tables) > 5 else "") or "none"
            raise SourceRefused(
                f"key_columns names table {table}, which is not captured (captured are: {there})",
                "correct the name, as schema.table",
            )
        known = tables[table]
        for column in columns:
            if column not in known:
                raise SourceRefused(
                    f"key_columns names column {column} of {table}, which has only {', '.join(known)}",
                    "correct the name",
                )
            if known[column]:
                raise SourceRefused(
                    f"key_columns names column {column} of {table}, which may be null, and a record with no key "
                    "cannot be found again",
                    f"make {column} NOT NULL, or choose others",
                )


def keyed(table: Table, columns: Iterable[str]) -> Table:
    """A table whose records are keyed by these columns; as it is if none are named."""
    wanted = list(columns)
    if not wanted:
        return table
    places = {column.name: index for index, column in enumerate(table.columns)}
    for column in wanted:
        if column not in places:
            raise SourceRefused(
                f"column {column} of {table.full_name}, which key_columns names, is not there any more",
                "correct key_columns and start again",
            )
    return replace(table, key=tuple(places[column] for column in wanted))


def refuse_nulls(table: Table) -> Callable[[Row], None]:
    """A function that refuses a row whose key is not known; what was checked at the start may have changed since."""

    def check(row: Row) -> None:
        for place in table.key:
            if row[place] is None or row[place] is UNCHANGED:
                raise SourceRefused(
                    f"a row of {table.full_name} has no value in {table.columns[place].name}, which key_columns names",
                    "make the column NOT NULL, or choose others",
                )

    return check
