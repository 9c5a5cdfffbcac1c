"""The publication: which tables the server sends."""

from collections.abc import Sequence
from typing import Any

import psycopg

from headrace.connect.errors import SourceRefused
from headrace.connect.postgres.catalog import CatalogTable, quote
from headrace.telemetry.logs import get_logger

log = get_logger(__name__)


def ensure_publication(
    connection: psycopg.Connection[tuple[Any, ...]], name: str, tables: Sequence[CatalogTable], *, managed: bool = True
) -> None:
    """Make the publication, or add what it lacks; a partitioned table is published as one."""
    row = connection.execute("select puballtables from pg_publication where pubname = %s", [name]).fetchone()
    if row is not None and row[0]:
        return
    wanted = {table.full_name: table for table in tables}
    statement = None
    if row is None:
        listed = ", ".join(table.quoted for table in tables)
        of_tables = f" FOR TABLE {listed}" if tables else ""
        statement = f"CREATE PUBLICATION {quote(name)}{of_tables} WITH (publish_via_partition_root = true)"
    else:
        published = {
            f"{schema}.{table}"
            for schema, table in connection.execute(
                "select schemaname, tablename from pg_publication_tables where pubname = %s", [name]
            )
        }
        missing = [table for full_name, table in wanted.items() if full_name not in published]
        if missing:
            statement = f"ALTER PUBLICATION {quote(name)} ADD TABLE {', '.join(table.quoted for table in missing)}"
    if statement is None:
        return
    if not managed:
        raise SourceRefused(f"publication {name} does not hold every captured table", statement)
    try:
        connection.execute(statement)  # names were quoted
    except psycopg.errors.DuplicateObject:
        ensure_publication(connection, name, tables, managed=managed)  # another was faster
    except psycopg.errors.InsufficientPrivilege as error:
        said = " ".join(str(error).split())
        raise SourceRefused(
            f"this user may not change publication {name} ({said}); as an owner of the tables run", statement
        ) from error
    else:
        log.info("publication ensured", publication=name, tables=len(tables))
