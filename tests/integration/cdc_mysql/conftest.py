"""One server for all tests of this folder, and an empty database for each.

MariaDB, or MySQL 8 with `HEADRACE_MYSQL`, which names a mysqld; some types and settings are MariaDB's alone.
"""

import contextlib
from collections.abc import Iterator

import pymysql
import pytest

from tests.integration.cdc_mysql.shop import Cursor, connect, end_others
from tests.servers.mariadb import MariadbServer
from tests.servers.mysql import binlog_server


@pytest.fixture(scope="session")
def server() -> Iterator[MariadbServer]:
    server = binlog_server()
    yield server
    server.end()


@pytest.fixture
def db(server: MariadbServer) -> Iterator[Cursor]:
    """A database of its own, empty."""
    connection = connect(server)
    cursor = connection.cursor()
    cursor.execute("SET sql_mode = ''")
    end_others(cursor)  # a test that failed may have left some, with locks
    cursor.execute("DROP DATABASE IF EXISTS shop")
    cursor.execute("CREATE DATABASE shop CHARACTER SET utf8mb4")
    cursor.execute("USE shop")
    yield cursor
    with contextlib.suppress(pymysql.err.MySQLError):
        connection.close()
