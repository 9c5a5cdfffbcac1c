r"""Rows of a table by COPY, in the order of the key: what snapshots are made of.

A row is a line, its values between tabs, `\N` for null; the same text as in the log, so the same codecs write it.
"""

import re
from collections.abc import Iterator
from typing import Any

import psycopg
from psycopg import pq

from headrace.connect.errors import SourceRefused, SourceUnavailable
from headrace.connect.incremental import Key, Range
from headrace.connect.postgres.catalog import CatalogTable, quote
from headrace.connect.table import Row, Table, from_wire

_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPED = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


def parse_line(line: str) -> Row:
    """A line of COPY's text format, in wire text."""
    values: list[str | None] = line.split("\t")  # type: ignore[assignment]
    if "\\" not in line:
        return tuple(values)
    return tuple(
        value if value is None or "\\" not in value else None if value == "\\N" else _ESCAPE.sub(_unescape, value)
        for value in values
    )


def _unescape(found: re.Match[str]) -> str:
    return _ESCAPED.get(found[1], found[1])


def literal(value: str) -> str:
    """A text as SQL wants it, whatever the server's settings are."""
    doubled = value.replace("'", "''")
    if "\\" in doubled:
        return " E'" + doubled.replace("\\", "\\\\") + "'"
    return f"'{doubled}'"


class RowQuery:
    """How to ask for the rows of one table."""

    def __init__(self, catalog_table: CatalogTable, table: Table, types: dict[str, str], part: str = "") -> None:
        """`part` is the quoted name of the only partition to read."""
        self._from = part or catalog_table.own_rows
        self._key = catalog_table.key
        self._types = types
        self._columns = ", ".join(quote(column.name) for column in table.columns)
        places = {column.name: index for index, column in enumerate(table.columns)}
        self._key_places = tuple(places[name] for name in self._key)

    @property
    def has_key(self) -> bool:
        """Whether the rows have an order to be read in."""
        return bool(self._key)

    def key_of(self, row: Row) -> Key:
        """A row's key in the order that it is read in, as text."""
        return tuple(from_wire(row[place]) for place in self._key_places)

    def statement(self, wanted: Range, limit: int | None = None) -> str:
        """The COPY of a range, or of its first rows."""
        names = ", ".join(quote(name) for name in self._key)
        conditions = []
        if self._key and wanted.after is not None:
            conditions.append(f"({names}) > ({self._literals(wanted.after)})")
        if self._key and wanted.upto is not None:
            conditions.append(f"({names}) <= ({self._literals(wanted.upto)})")
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        order = f" ORDER BY {names}" if self._key else ""
        head = f" LIMIT {limit}" if limit is not None and self._key else ""
        return f"COPY (SELECT {self._columns} FROM {self._from}{where}{order}{head}) TO STDOUT"  # noqa: S608 - quoted

    def _literals(self, key: Key) -> str:
        return ", ".join(f"{literal(value)}::{self._types[name]}" for name, value in zip(self._key, key, strict=True))

    def bounds_statement(self, rows: int, range_rows: int) -> str:
        """Keys that part the table into about equal ranges, from a sample of its pages."""
        percent = min(100.0, max(0.01, 100.0 * 400 * (rows / range_rows) / rows))
        names = ", ".join(f"{quote(name)}::text" for name in self._key)
        order = ", ".join(quote(name) for name in self._key)
        return (
            f"SELECT {names} FROM (SELECT {order} FROM {self._from} TABLESAMPLE SYSTEM ({percent:.4f})) sample "  # noqa: S608 - quoted
            f"ORDER BY {', '.join(f'sample.{quote(name)}' for name in self._key)}"
        )


def read_rows(connection: psycopg.Connection[tuple[Any, ...]], statement: str) -> Iterator[Row]:
    """The rows of a COPY, one by one; the connection is used for nothing else meanwhile."""
    inner = connection.pgconn
    inner.send_query(statement.encode())
    _expect(inner, pq.ExecStatus.COPY_OUT)
    get = inner.get_copy_data
    while True:
        size, view = get(0)
        if size > 0:
            yield parse_line(bytes(view)[:-1].decode("latin-1"))
        else:
            break
    _expect(inner, pq.ExecStatus.COMMAND_OK)
    while inner.get_result() is not None:
        pass


def _expect(inner: pq.abc.PGconn, status: pq.ExecStatus) -> None:
    result = inner.get_result()
    if result is None or inner.status != pq.ConnStatus.OK:
        raise SourceUnavailable("the database ended the connection while a table was read")
    if result.status != status:
        text = " ".join(result.error_message.decode(errors="replace").split())
        state = (result.error_field(pq.DiagnosticField.SQLSTATE) or b"").decode()
        while inner.get_result() is not None:
            pass
        if state == "42501":
            raise SourceRefused(f"this user may not read a captured table ({text})", "GRANT SELECT ON TABLE … TO …")
        # A table that was altered or dropped since it was looked at is looked at anew.
        if state[:2] in ("08", "57", "40", "53") or state in ("42703", "42P01"):
            raise SourceUnavailable(f"a table could not be read ({text})")
        raise SourceRefused(f"a table could not be read ({text})")
