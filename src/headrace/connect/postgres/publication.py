"""The publication: which tables the server sends, and that it sends all of their changes."""

from collections.abc import Sequence
from typing import Any, Final

import psycopg

from headrace.connect.errors import SourceRefused
from headrace.connect.postgres.catalog import CatalogTable, quote
from headrace.connect.postgres.connection import in_one_line
from headrace.telemetry.logs import get_logger

log = get_logger(__name__)
_OPERATIONS: Final = ("insert", "update", "delete", "truncate")
_PUBLICATION: Final = """
select puballtables, pubviaroot, array[pubinsert, pubupdate, pubdelete, pubtruncate],
       coalesce(to_jsonb(p)->>'pubgencols', 'n') in ('n', 'false') from pg_publication p where pubname = %s
"""
# Row filters and lists of columns exist since PostgreSQL 15; read this way, their absence is no error before.
_PARTLY: Final = """
select r.prrelid::bigint, to_jsonb(r)->>'prqual' is not null from pg_publication_rel r
join pg_publication p on p.oid = r.prpubid
where p.pubname = %s and (to_jsonb(r)->>'prqual' is not null or to_jsonb(r)->>'prattrs' is not null)
"""


# A number of 64 bits for a name; in no other use there than by these three.
_READERS: Final = "hashtextextended('headrace publication ' || %s, 0)"


class NotPublished(SourceRefused):
    """A table is not in the publication, and this user may not add it, or shall not."""


def ensure_publication(
    connection: psycopg.Connection[tuple[Any, ...]], name: str, tables: Sequence[CatalogTable], *, managed: bool = True
) -> bool:
    """Make the publication, or add what it lacks, and check it; whether it changed.

    A partitioned table is published as one. A publication that leaves changes out is refused, because rows would
    silently differ; it is never changed in what it holds already, for it may be another's as well.
    """
    row = connection.execute(_PUBLICATION, [name]).fetchone()
    if row is not None:
        _check(connection, name, tables, row)
    statement = None
    if row is None:
        listed = ", ".join(table.quoted for table in tables)
        of_tables = f" FOR TABLE {listed}" if tables else ""
        statement = f"CREATE PUBLICATION {quote(name)}{of_tables} WITH (publish_via_partition_root = true)"
    elif not row[0]:
        published = {
            (schema, table)
            for schema, table in connection.execute(
                "select schemaname, tablename from pg_publication_tables where pubname = %s", [name]
            )
        }
        missing = [table for table in tables if (table.schema, table.name) not in published]
        if missing:
            statement = f"ALTER PUBLICATION {quote(name)} ADD TABLE {', '.join(table.quoted for table in missing)}"
    if statement is None:
        return False
    if not managed:
        raise NotPublished(f"publication {name} does not hold every captured table", statement)
    try:
        connection.execute(statement)  # names were quoted
    except psycopg.errors.DuplicateObject:
        return ensure_publication(connection, name, tables, managed=managed)  # another was faster
    except psycopg.errors.InsufficientPrivilege as error:
        raise NotPublished(
            f"this user may not change publication {name} ({in_one_line(error)}); as an owner of the tables run",
            statement,
        ) from error
    log.info("publication ensured", publication=name, tables=len(tables))
    return True


def join_readers(connection: psycopg.Connection[tuple[Any, ...]], name: str) -> None:
    """Be one of those for whom a publication is kept, as long as this connection lasts; before it is made."""
    connection.execute(f"select pg_advisory_lock_shared({_READERS})", [name])


def leave_readers(connection: psycopg.Connection[tuple[Any, ...]], name: str) -> None:
    """Drop a publication unless somebody else reads by it: while it is there, the server refuses updates and deletes
    of its tables without a key. If this reader was killed, the next one of its tables does it."""
    connection.execute(f"select pg_advisory_unlock_shared({_READERS})", [name])
    row = connection.execute(f"select pg_try_advisory_lock({_READERS})", [name]).fetchone()
    if row is not None and row[0]:
        connection.execute(f"drop publication if exists {quote(name)}")


def _check(
    connection: psycopg.Connection[tuple[Any, ...]], name: str, tables: Sequence[CatalogTable], row: tuple[Any, ...]
) -> None:
    """Refuse a publication by which changes of captured tables would be missing."""
    _, via_root, sent, is_plain = row
    missing = [operation for operation, is_sent in zip(_OPERATIONS, sent, strict=True) if not is_sent]
    if missing:
        raise SourceRefused(
            f"publication {name} leaves out {', '.join(missing)}, so topics would not agree with their tables",
            f"ALTER PUBLICATION {quote(name)} SET (publish = 'insert, update, delete, truncate')",
        )
    parted = [table.full_name for table in tables if table.is_partitioned]
    if parted and not via_root:
        raise SourceRefused(
            f"publication {name} sends the partitions of {parted[0]} each by itself, and it is captured as one table",
            f"ALTER PUBLICATION {quote(name)} SET (publish_via_partition_root = true)",
        )
    if not is_plain:
        raise SourceRefused(
            f"publication {name} sends generated columns, which a snapshot does not read",
            f"ALTER PUBLICATION {quote(name)} SET (publish_generated_columns = none)",
        )
    by_id = {table.id: table for table in tables}
    for table_id, has_filter in connection.execute(_PARTLY, [name]):
        if table_id in by_id:
            table = by_id[table_id]
            what = "rows by a WHERE" if has_filter else "columns by a list"
            raise SourceRefused(
                f"publication {name} leaves out {what} of {table.full_name}, so its topic would not agree with the "
                "table; to hide columns there is exclude_columns",
                f"ALTER PUBLICATION {quote(name)} DROP TABLE {table.quoted}, and start again: it is added whole",
            )
