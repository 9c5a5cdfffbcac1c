"""Tables read again: asked for through the log, and chunks as they are now, read between two watermarks in it."""

from collections.abc import Sequence
from typing import Any, Final

import psycopg

from headrace.connect.change import Event, Message
from headrace.connect.errors import SourceRefused
from headrace.connect.filters import unknown_table
from headrace.connect.incremental import HIGH, LOW, Range, ReadChunk, mark_of
from headrace.connect.postgres.catalog import Catalog
from headrace.connect.postgres.connection import connect
from headrace.connect.postgres.rows import RowQuery, read_rows
from headrace.connect.postgres.shapes import Shapes
from headrace.connect.rereading import EXECUTE, SIGNAL, signal_message

WATERMARK: Final = "headrace.watermark"


def mark_in(event: Event) -> str | None:
    """The watermark that an event is: a message in the database's log."""
    if isinstance(event, Message) and event.prefix == WATERMARK:
        return event.content.decode(errors="replace")
    return None


def is_standby(connection: psycopg.Connection[tuple[Any, ...]]) -> bool:
    """Whether nothing can be written into the database's log."""
    return connection.execute("select pg_is_in_recovery()").fetchone() == (True,)


def check_marks(connection: psycopg.Connection[tuple[Any, ...]]) -> None:
    """Refuse a database into whose log nothing can be written."""
    if is_standby(connection):
        raise SourceRefused(
            "the database is a standby, and tables are read again between marks that are written into its log",
            "capture the primary, or start another capture with a name of its own, which begins with a snapshot",
        )


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
    part = ""
    if wanted.part and found.key:  # of one without a key a part cannot be told anew
        part = catalog.partition(found, wanted.part)
        if not part:
            return None
    table = shapes.view(catalog.relation(found))
    query = RowQuery(found, table, catalog.types_of(found.id), part)
    _emit(connection, mark_of(name, LOW))
    with connection.transaction():
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        row = connection.execute("select pg_current_snapshot()::text").fetchone()
        assert row is not None
        rows = list(read_rows(connection, query.statement(wanted, limit)))
    _emit(connection, mark_of(name, HIGH))
    # xmin:xmax:running, with 64 bits each; the log has the lower 32 of them.
    _, xmax, in_progress = row[0].split(":")
    running = frozenset(str(int(xid) & 0xFFFFFFFF) for xid in in_progress.split(",") if xid)
    last_key = query.key_of(rows[-1]) if rows and query.has_key else None
    is_last = len(rows) < limit or not query.has_key
    next_transaction = int(xmax) & 0xFFFFFFFF

    def has_seen(transaction_id: str) -> bool:
        """Numbers go round, so half of them are later."""
        is_later = (int(transaction_id) - next_transaction) & 0xFFFFFFFF < 0x80000000
        return not is_later and transaction_id not in running

    return ReadChunk(table, rows, last_key, is_last, running, has_seen)


def _emit(connection: psycopg.Connection[tuple[Any, ...]], content: str) -> None:
    connection.execute("select pg_logical_emit_message(true, %s, %s::text)", [WATERMARK, content])


def request_snapshot(url: str, tables: Sequence[str], *, slot: str = "") -> None:
    """Have every row of these tables (`schema.table`) read again, while the log runs on."""
    with connect(url) as connection:
        every = [table.full_name for table in Catalog(connection).tables()]
        for name in tables:
            if name not in every:
                raise unknown_table(name, every)
        check_marks(connection)
        content = signal_message(EXECUTE, tables, slot)
        connection.execute("select pg_logical_emit_message(true, %s, %s::text)", [SIGNAL, content])
