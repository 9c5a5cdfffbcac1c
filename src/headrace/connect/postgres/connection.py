"""Connections to PostgreSQL, what a server has to permit, and its complaints with the statement that mends them."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, NoReturn

import psycopg
from psycopg import pq
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from headrace.connect.errors import InvalidConnectSetting, SourceRefused, SourceUnavailable
from headrace.connect.postgres.values import SESSION

CONNECT_TIMEOUT_S = 10
_OPTIONS = " ".join(f"-c {name}={value}" for name, value in SESSION.items() if name != "client_encoding")


def conninfo_of(url: str, **more: str) -> str:
    """A connection string with the session's settings in it; the user's own options come last and so have the say."""
    try:
        given: dict[str, Any] = dict(conninfo_to_dict(url))
    except psycopg.ProgrammingError as error:
        wanted = f"write for example postgresql://user@host/database ({str(error).strip()})"
        raise InvalidConnectSetting("url", _without_password(url), wanted) from error
    given.setdefault("connect_timeout", CONNECT_TIMEOUT_S)
    given.setdefault("application_name", "headrace")
    given["options"] = f"{given.get('options') or ''} {_OPTIONS}".strip()
    return make_conninfo(**{**given, "client_encoding": "UTF8", **more})


def where_of(url: str) -> str:
    """The server and database of a URL, without secrets."""
    given = conninfo_to_dict(url)
    return f"{given.get('dbname') or given.get('user') or 'postgres'!s} at {given.get('host') or 'localhost'!s}"


def connect(url: str, **options: Any) -> psycopg.Connection[tuple[Any, ...]]:
    """A connection for queries, each in a transaction of its own."""
    try:
        return psycopg.connect(conninfo_of(url), autocommit=True, **options)
    except psycopg.OperationalError as error:
        refuse_connection(url, str(error))


def connect_replication(url: str) -> pq.abc.PGconn:
    connection = pq.PGconn.connect(conninfo_of(url, replication="database").encode())
    if connection.status != pq.ConnStatus.OK:
        text = connection.error_message.decode(errors="replace")
        connection.finish()
        refuse_connection(url, text)
    return connection


def refuse_connection(url: str, text: str) -> NoReturn:
    """What is wrong with a connection that was not had."""
    user = conninfo_to_dict(url).get("user") or "the default user"
    where = where_of(url)
    said = in_one_line(text)
    if "password authentication failed" in text or "no password supplied" in text:
        raise SourceRefused(f"database {where} does not take the password of {user}", f"ALTER ROLE {user} PASSWORD '…'")
    if "no pg_hba.conf entry" in text:
        raise SourceRefused(f"database {where} rejects {user} ({said})", "add a line for it to pg_hba.conf")
    if "must be superuser or replication role" in text or "permission denied to start WAL sender" in text:
        raise no_replication(user)
    if "database" in text and "does not exist" in text:
        name = conninfo_to_dict(url).get("dbname")
        raise SourceRefused(f"there is no such database ({said})", f"CREATE DATABASE {name}")
    if "role" in text and "does not exist" in text:
        raise SourceRefused(f"there is no such user ({said})", f"CREATE ROLE {user} LOGIN REPLICATION")
    raise SourceUnavailable(f"database {where} cannot be reached: {said}")


def no_replication(user: object) -> SourceRefused:
    return SourceRefused(f"user {user} may not read the database's log", f"ALTER ROLE {user} REPLICATION")


def checked(connection: pq.abc.PGconn, command: str) -> pq.abc.PGresult:
    """Run a command of the replication protocol."""
    result = connection.exec_(command.encode())
    if result.status not in (pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK):
        raise_result(connection, result, command)
    return result


def raise_result(connection: pq.abc.PGconn, result: pq.abc.PGresult, command: str) -> NoReturn:
    """The error in a result, as passing or as lasting."""
    text = in_one_line(result.error_message.decode(errors="replace"))
    state = (result.error_field(pq.DiagnosticField.SQLSTATE) or b"").decode()
    if connection.status != pq.ConnStatus.OK or not state or state[:2] in ("08", "57"):
        raise SourceUnavailable(f"the database ended the replication connection ({text})")
    if state == "55006":  # object in use
        raise SourceUnavailable(f"the replication slot is in use by another reader ({text})")
    if state == "53400":  # configuration limit exceeded
        raise SourceRefused(
            f"the database has no replication slot left ({text})",
            "ALTER SYSTEM SET max_replication_slots = 20 and restart it, or drop a slot with pg_drop_replication_slot",
        )
    if state == "42501":
        raise SourceRefused(f"the database does not permit it ({text})", "ALTER ROLE … REPLICATION")
    raise SourceRefused(f"{command.split(' ', 1)[0]} was refused ({text})")


def _without_password(url: str) -> str:
    head, at, tail = url.rpartition("@")
    return f"{head.rpartition(':')[0]}:…@{tail}" if at and ":" in head.split("//")[-1] else url


@contextmanager
def translated(forbidden: str, remedy: str | None = None) -> Iterator[None]:
    """What the database says, in our words; `forbidden` and `remedy` where this user lacks a privilege."""
    try:
        yield
    except psycopg.errors.InsufficientPrivilege as error:
        raise SourceRefused(f"{forbidden} ({in_one_line(error)})", remedy) from error
    except psycopg.OperationalError as error:
        raise SourceUnavailable(f"the database is not there ({in_one_line(error)})") from error
    except psycopg.Error as error:
        # A table that was altered, renamed or dropped since it was looked at is looked at anew.
        raise SourceUnavailable(f"the database refused a question ({in_one_line(error)})") from error


def in_one_line(said: object) -> str:
    return " ".join(str(said).split())


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
