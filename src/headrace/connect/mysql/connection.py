"""Connections to MariaDB and MySQL, what differs between the two, and their complaints in one sentence each."""

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn, TypeAlias

import pymysql

from headrace.connect.errors import PositionLost, SourceRefused, SourceUnavailable
from headrace.connect.mysql.gtid import GtidState, MariaDbState, MysqlState
from headrace.connect.mysql.settings import Address

Connection: TypeAlias = "pymysql.connections.Connection[Any]"
CONNECT_TIMEOUT_S = 10
_SESSION = "SET time_zone = '+00:00', sql_mode = '', wait_timeout = 86400, net_write_timeout = 3600"
_DENIED, _DENIED_DATABASE, _NO_DATABASE, _NO_PRIVILEGE, _DENIED_TABLE = 1045, 1044, 1049, 1227, 1142
_LOG_TROUBLE, _CHANGED_DEFINITION = 1236, 1412
_NO_ANSWER = range(2000, 2100)  # the client's own: gone away, cannot connect
_PASSING = {1040, 1053, 1158, 1159, 1160, 1161, 1205, 1213, 1927, 3169, _CHANGED_DEFINITION}


def connect(address: Address) -> Connection:
    """A connection whose values come as bytes, in UTC and UTF-8, whatever the server's settings are."""
    options = dict(address.options)
    tls: dict[str, Any] = {name: options[name] for name in ("ssl_ca", "ssl_cert", "ssl_key") if name in options}
    if options.get("ssl") in ("1", "true", "on") and not tls:
        tls["ssl"] = ssl.create_default_context()
    with translated(address):
        connection = pymysql.connect(
            host=address.host,
            port=address.port,
            user=address.user,
            password=address.password,
            charset="utf8mb4",
            use_unicode=False,
            conv={},
            autocommit=True,
            connect_timeout=CONNECT_TIMEOUT_S,
            program_name="headrace",
            **tls,
        )
        with connection.cursor() as cursor:
            cursor.execute(_SESSION)
    return connection


def ask(connection: Connection, statement: str) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return [
            tuple(value.decode(errors="replace") if isinstance(value, bytes) else value for value in row)
            for row in cursor.fetchall()
        ]


@contextmanager
def translated(address: Address) -> Iterator[None]:
    try:
        yield
    except pymysql.err.MySQLError as error:
        number = error.args[0] if error.args and isinstance(error.args[0], int) else 0
        said = error.args[1] if len(error.args) > 1 else error
        if isinstance(said, bytes):
            said = said.decode(errors="replace")
        raise_error(address, number, " ".join(str(said).split()), error)
    except RuntimeError as error:
        # PyMySQL asks for the package `cryptography` this way, when MySQL wants a password encrypted.
        raise SourceRefused(
            f"the password cannot be sent to {address.where} ({error})", "pip install cryptography"
        ) from error
    except OSError as error:
        raise SourceUnavailable(f"the connection to {address.where} broke ({error})") from error


def raise_error(address: Address, number: int, said: str, cause: BaseException | None = None) -> NoReturn:
    user = f"'{address.user}'@'%'"
    if number == _DENIED:
        raise SourceRefused(
            f"the server at {address.where} does not take the password of {address.user}",
            f"ALTER USER {user} IDENTIFIED BY '…'",
        ) from cause
    if number == _NO_DATABASE:
        raise SourceRefused(f"there is no such database ({said})", "CREATE DATABASE …, or correct the name") from cause
    if number == _NO_PRIVILEGE:
        raise no_replication(address, said) from cause
    if number in (_DENIED_TABLE, _DENIED_DATABASE):
        raise SourceRefused(
            f"user {address.user} may not read what is to be captured ({said})", f"GRANT SELECT ON *.* TO {user}"
        ) from cause
    if number == _LOG_TROUBLE:
        raise PositionLost(
            f"the server at {address.where} no longer has the binary log from the stored position on ({said})",
            "start with snapshot='when-needed', and let the server keep its log longer: "
            "SET GLOBAL binlog_expire_logs_seconds = 604800",
        ) from cause
    if number in _NO_ANSWER or number in _PASSING or not number:
        raise SourceUnavailable(f"the server at {address.where} does not answer ({said})") from cause
    raise SourceRefused(f"the server at {address.where} refused ({said})") from cause


def no_replication(address: Address, said: str) -> SourceRefused:
    return SourceRefused(
        f"user {address.user} may not read the binary log ({said})",
        f"GRANT REPLICATION SLAVE, REPLICATION CLIENT, RELOAD ON *.* TO '{address.user}'@'%'",
    )


MARIADB, MYSQL = "mariadb", "mysql"


@dataclass(frozen=True, slots=True)
class Server:
    """A server, as far as reading it depends on that."""

    flavor: str
    version: str
    has_checksum: bool
    lower_case_table_names: int = 0

    @property
    def is_mariadb(self) -> bool:
        return self.flavor == MARIADB

    def parse_state(self, text: str) -> GtidState:
        return MariaDbState.parse(text) if self.is_mariadb else MysqlState.parse(text)


def examine(connection: Connection) -> Server:
    """The server behind a connection; one whose log does not hold what is needed is refused."""
    version = ask(connection, "SELECT version()")[0][0]
    flavor = MARIADB if "mariadb" in version.lower() else MYSQL
    wanted = "'log_bin', 'binlog_format', 'binlog_row_image', 'binlog_checksum', 'gtid_mode', "
    wanted += "'binlog_transaction_compression', 'binlog_row_value_options', 'lower_case_table_names'"
    found = dict(ask(connection, f"SHOW GLOBAL VARIABLES WHERE variable_name IN ({wanted})"))
    if found.get("log_bin") != "ON":
        raise SourceRefused(
            "the server writes no binary log (log_bin is OFF)",
            "start it with --log-bin --server-id=1, or put log_bin and server_id=1 into the [mysqld] section of its "
            "configuration, and restart it",
        )
    if found.get("binlog_format", "ROW") != "ROW":
        raise SourceRefused(
            f"the binary log does not hold rows (binlog_format is {found['binlog_format']})",
            "SET GLOBAL binlog_format = ROW, and have every session connect anew",
        )
    if found.get("binlog_row_image", "FULL") != "FULL":
        raise SourceRefused(
            f"the binary log does not hold whole rows (binlog_row_image is {found['binlog_row_image']})",
            "SET GLOBAL binlog_row_image = FULL, and have every session connect anew",
        )
    if flavor == MYSQL and found.get("gtid_mode") != "ON":
        raise SourceRefused(
            f"transactions have no GTIDs (gtid_mode is {found.get('gtid_mode')})",
            "SET GLOBAL enforce_gtid_consistency = ON, then SET GLOBAL gtid_mode = OFF_PERMISSIVE, ON_PERMISSIVE and "
            "ON, one after the other",
        )
    if found.get("binlog_transaction_compression") == "ON":
        raise SourceRefused(
            "the binary log is compressed by whole transactions, which is not read here",
            "SET GLOBAL binlog_transaction_compression = OFF",
        )
    if "PARTIAL_JSON" in found.get("binlog_row_value_options", ""):
        raise SourceRefused(
            "the binary log holds only what changed inside JSON documents", "SET GLOBAL binlog_row_value_options = ''"
        )
    has_checksum = found.get("binlog_checksum", "NONE") != "NONE"
    return Server(flavor, version, has_checksum, int(found.get("lower_case_table_names", 0)))


def current_state(connection: Connection, server: Server) -> GtidState:
    """The transactions that the log holds now."""
    variable = "@@global.gtid_binlog_pos" if server.is_mariadb else "@@global.gtid_executed"
    return server.parse_state(ask(connection, f"SELECT {variable}")[0][0] or "")


def installed_at(connection: Connection) -> str:
    """When the server's own tables were made: which installation it is; empty if this user may not see them."""
    query = "SELECT MIN(create_time) FROM information_schema.tables WHERE table_schema = 'mysql'"
    return str(ask(connection, query)[0][0] or "")
