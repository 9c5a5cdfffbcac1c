"""`headrace.changes` of MariaDB, or of MySQL 8 with `HEADRACE_MYSQL`."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from headrace.connect.changes import BadToken, PositionLost, changes
from headrace.connect.errors import InvalidConnectSetting
from headrace.testing.contracts.changes import ChangesContract, ids, read
from tests.integration.cdc_mysql.shop import connect, end_others
from tests.integration.waiting import wait_until
from tests.servers.mariadb import MariadbServer
from tests.servers.mysql import binlog_server


class MysqlStand:
    def __init__(self, server: MariadbServer) -> None:
        self.server = server
        self.url = server.url
        self.tables = ["t"]
        self.settings: dict[str, Any] = {}
        self._connection = connect(server, init_command="SET sql_mode = ''")
        self.db = self._connection.cursor()
        end_others(self.db)
        self.db.execute("DROP DATABASE IF EXISTS shop")
        self.db.execute("CREATE DATABASE shop CHARACTER SET utf8mb4")
        self.db.execute("USE shop")
        self.db.execute("CREATE TABLE t (id INT PRIMARY KEY, v LONGTEXT)")

    def execute(self, *statements: str) -> None:
        for statement in statements:
            self.db.execute(statement)

    def put(self, rows: dict[int, str]) -> None:
        with closing(connect(self.server, database="shop", autocommit=False)) as connection:
            connection.cursor().executemany(
                "INSERT INTO t VALUES (%s, %s) ON DUPLICATE KEY UPDATE v = VALUES(v)", list(rows.items())
            )
            connection.commit()

    def remove(self, id_: int) -> None:
        self.db.execute("DELETE FROM t WHERE id = %s", (id_,))

    def lose(self) -> None:
        """What somebody still reads is not removed, so it is tried again."""

        def purged() -> bool:
            self.db.execute("FLUSH LOGS")
            self.db.execute("SHOW BINARY LOGS")
            newest = self.db.fetchall()[-1][0]
            self.db.execute("PURGE BINARY LOGS TO %s", (newest,))
            self.db.execute("SHOW BINARY LOGS")
            return bool(self.db.fetchall()[0][0] == newest)

        wait_until(purged, "the binary log was not purged")


@pytest.fixture(scope="module")
def server() -> Iterator[MariadbServer]:
    made = binlog_server()
    yield made
    made.end()


@pytest.fixture
def stand(server: MariadbServer) -> MysqlStand:
    return MysqlStand(server)


class TestMysql(ChangesContract):
    pass


def test_a_token_is_of_its_tables_and_of_its_server(stand: MysqlStand) -> None:
    stand.execute("CREATE TABLE u (id INT PRIMARY KEY)")
    with changes(stand.url, ["t"]) as stream:
        stand.put({1: "a"})
        token = read(stream, 1)[0].position
    with pytest.raises(BadToken, match=r"of tables shop\.t, and this stream is of tables shop\.u"):
        changes(stand.url, ["u"], resume=token)
    with pytest.raises(InvalidConnectSetting, match="leave it out"):
        changes(stand.url, ["t"], slot="mine")
    other = binlog_server()
    try:
        with closing(connect(other)) as connection:
            connection.cursor().execute("CREATE TABLE shop.t (id INT PRIMARY KEY, v LONGTEXT)")
        with pytest.raises((BadToken, PositionLost)):
            changes(other.url, ["t"], resume=token).open()
    finally:
        other.end()


def test_the_shapes_of_then_are_in_the_token(stand: MysqlStand) -> None:
    with changes(stand.url, ["t"]) as stream:
        stand.put({1: "a"})
        token = read(stream, 1)[0].position
    stand.put({2: "b"})
    stand.execute(
        "ALTER TABLE t ADD COLUMN w INT FIRST", "INSERT INTO t VALUES (5, 3, 'c')", "ALTER TABLE t DROP COLUMN v",
        "INSERT INTO t VALUES (6, 4)",
    )  # fmt: skip
    with changes(stand.url, ["t"], resume=token) as stream:
        found = read(stream, 3)
    assert [change.after for change in found] == [
        {"id": 2, "v": "b"}, {"w": 5, "id": 3, "v": "c"}, {"w": 6, "id": 4}
    ]  # fmt: skip


def test_a_server_that_restarts_is_waited_for(stand: MysqlStand, server: MariadbServer) -> None:
    with changes(stand.url, ["t"]) as stream:
        stand.put({1: "a"})
        assert ids(read(stream, 1)) == [1]
        server.kill()
        server.start()
        stand.put({2: "b"})
        assert ids(read(stream, 1)) == [2]
