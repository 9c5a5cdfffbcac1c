"""What a server has to be and to permit before anything is read from it."""

from typing import Any, Final

import psycopg

from headrace.connect.errors import SourceRefused
from headrace.connect.postgres.connection import no_replication

OLDEST_VERSION: Final = 140_000
_FACTS: Final = """
select current_setting('wal_level'), current_user::text, rolreplication or rolsuper
       or exists(select from pg_roles r where r.rolname = 'rds_replication' and pg_has_role(r.oid, 'member'))
from pg_roles where rolname = current_user
"""


def check_server(connection: psycopg.Connection[tuple[Any, ...]]) -> None:
    """Refuse a server that cannot be read, with the statement that mends it."""
    version = connection.info.server_version
    if version < OLDEST_VERSION:
        raise SourceRefused(f"PostgreSQL {version // 10000} is too old", "use 14 or newer")
    row = connection.execute(_FACTS).fetchone()
    assert row is not None
    level, user, may_replicate = row
    if level != "logical":
        raise SourceRefused(
            f"the database's log does not hold what is needed (wal_level is {level})",
            "ALTER SYSTEM SET wal_level = logical, and restart the server",
        )
    if not may_replicate:
        raise no_replication(user)


def system_of(connection: psycopg.Connection[tuple[Any, ...]]) -> str:
    """Which server and database this is, whatever its address: numbers that a restored copy does not share.

    Transactions and places in the log count for these alone. Empty where the server does not tell.
    """
    try:
        row = connection.execute(
            "select format('%s/%s', system_identifier, d.oid) from pg_control_system(), pg_database d "
            "where d.datname = current_database()"
        ).fetchone()
    except psycopg.errors.InsufficientPrivilege:
        return ""
    assert row is not None
    return str(row[0])
