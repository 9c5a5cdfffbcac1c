"""A chunk of a table as it is now, read between two watermarks in the log."""

from typing import Any

import psycopg

from headrace.connect.postgres.catalog import Catalog
from headrace.connect.postgres.incremental import WATERMARK, ReadChunk
from headrace.connect.postgres.ranges import Range
from headrace.connect.postgres.rows import RowQuery, read_rows
from headrace.connect.postgres.shapes import Shapes


def read_between(
    connection: psycopg.Connection[tuple[Any, ...]],
    catalog: Catalog,
    shapes: Shapes,
    wanted: Range,
    name: str,
    limit: int,
) -> ReadChunk | None:
    """The first rows of a range; None if the table is not there any more.

    The table is taken in the shape that it has now: the log may not have come to its last change yet. One without a key
    has no order to be read in, and comes whole.
    """
    found = next((table for table in catalog.tables() if table.full_name == wanted.table), None)
    if found is None:
        return None
    table = shapes.view(catalog.relation(found))
    query = RowQuery(found, table, catalog.key_types(found))
    _emit(connection, f"{name}:low")
    with connection.transaction():
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        row = connection.execute("select pg_current_snapshot()::text").fetchone()
        assert row is not None
        rows = list(read_rows(connection, query.statement(wanted, limit)))
    _emit(connection, f"{name}:high")
    # xmin:xmax:running, with 64 bits each; the log has the lower 32 of them.
    running = frozenset(str(int(xid) & 0xFFFFFFFF) for xid in row[0].split(":")[2].split(",") if xid)
    last_key = query.key_of(rows[-1]) if rows and query.has_key else None
    return ReadChunk(table, rows, running, last_key, len(rows) < limit or not query.has_key)


def _emit(connection: psycopg.Connection[tuple[Any, ...]], content: str) -> None:
    connection.execute("select pg_logical_emit_message(true, %s, %s::text)", [WATERMARK, content])
