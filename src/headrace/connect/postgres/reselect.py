"""Large values that the log did not repeat, read from the table.

PostgreSQL does not send a large value again that an update left as it was. Who holds the row has the value, unless the
update moved the row to another key: under the new key nobody has it, and under the old one it is forgotten. So of rows
that moved it is always read, and of others for who needs the whole row in every record (a compacted topic keeps the
last record of a key alone). It is read as it is now, which may be newer than the change; then the change that made it
so comes later, with the value. A row that is gone keeps the placeholder, and its delete comes later too.
"""

from collections.abc import Callable
from typing import Any, TypeGuard

import psycopg

from headrace.connect.change import Change, Event
from headrace.connect.errors import ConnectError
from headrace.connect.postgres.catalog import quote
from headrace.connect.postgres.rows import literal, read_rows
from headrace.connect.table import UNCHANGED, Row, Table, from_wire

_KEYS_A_QUERY = 500


def complete(
    connection: psycopg.Connection[tuple[Any, ...]],
    events: list[Event],
    types_of: Callable[[Table], dict[str, str]],
    *,
    only_moved: bool = False,
) -> list[Event]:
    """The events, with what was not sent again filled in as far as it can be had; of rows that moved, or of all."""
    wanted: dict[int, tuple[Table, set[Row]]] = {}
    lacking = [_lacks(event) and not (only_moved and event.before is None) for event in events]
    for event, is_lacking in zip(events, lacking, strict=True):
        if is_lacking and isinstance(event, Change):
            table = event.table
            wanted.setdefault(id(table), (table, set()))[1].add(table.key_of(event.after or ()))
    if not wanted:
        return events
    found: dict[int, dict[Row, Row]] = {}
    for table, keys in wanted.values():
        listed = sorted(keys)
        rows = found[id(table)] = {}
        for start in range(0, len(listed), _KEYS_A_QUERY):
            rows |= _rows(connection, table, listed[start : start + _KEYS_A_QUERY], types_of)
    return [
        _filled(event, found) if is_lacking and isinstance(event, Change) else event
        for event, is_lacking in zip(events, lacking, strict=True)
    ]


def _lacks(event: Event) -> TypeGuard[Change]:
    return isinstance(event, Change) and event.after is not None and bool(event.table.key) and UNCHANGED in event.after


def _filled(change: Change, found: dict[int, dict[Row, Row]]) -> Change:
    assert change.after is not None
    row = found[id(change.table)].get(change.table.key_of(change.after))
    if row is None:
        return change
    after = tuple(now if value is UNCHANGED else value for value, now in zip(change.after, row, strict=True))
    return change._replace(after=after)


def _rows(
    connection: psycopg.Connection[tuple[Any, ...]],
    table: Table,
    keys: list[Row],
    types_of: Callable[[Table], dict[str, str]],
) -> dict[Row, Row]:
    types = types_of(table)
    while True:
        try:
            return {table.key_of(row): row for row in read_rows(connection, _statement(table, keys, types))}
        except ConnectError:
            if connection.closed:
                raise
            before, types = types, types_of(table)
            if types == before:  # and not because it was altered in between
                return {}


def _statement(table: Table, keys: list[Row], types: dict[str, str]) -> str:
    """Columns that were dropped meanwhile have no value any more, and take none of the others' away."""
    columns = ", ".join(quote(column.name) if column.name in types else "NULL" for column in table.columns)
    names = [column.name for column in table.key_columns]
    tuples = ", ".join(
        "("
        + ", ".join(
            f"{literal(from_wire(value))}::{types.get(name, 'text')}" for name, value in zip(names, key, strict=True)
        )
        + ")"
        for key in keys
    )
    return (
        f"COPY (SELECT {columns} FROM {quote(table.schema)}.{quote(table.name)} "  # noqa: S608 - quoted
        f"WHERE ({', '.join(map(quote, names))}) IN ({tuples})) TO STDOUT"
    )
