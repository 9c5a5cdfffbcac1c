"""What cannot be captured is refused, in one sentence with the statement that mends it."""

import json
from functools import partial
from typing import Any

import pymysql
import pytest

from headrace.connect.errors import InvalidConnectSetting, SourceRefused, SourceUnavailable
from headrace.connect.filters import Filters
from headrace.connect.mysql import MemoryHistory, MysqlSettings, MysqlSource
from tests.integration.cdc_mysql.shop import Cursor, connect, follower_of, is_read_again
from tests.integration.cdc_replica import Follower
from tests.integration.waiting import wait_until
from tests.servers.mariadb import MariadbServer
from tests.servers.mysql import binlog_server


def test_compressed_transactions_are_refused(server: MariadbServer, db: Cursor) -> None:
    """Even where a session alone turned them on: what is not read must not be passed over."""
    if server.is_mariadb:
        pytest.skip("MySQL's alone")
    db.execute("CREATE TABLE t (id INT PRIMARY KEY, a TEXT)")
    db.execute("SET GLOBAL binlog_transaction_compression = ON")
    with pytest.raises(SourceRefused, match="SET GLOBAL binlog_transaction_compression = OFF"):
        follower_of(server).run()
    db.execute("SET GLOBAL binlog_transaction_compression = OFF")
    follower = follower_of(server)
    follower.run()
    db.execute("SET SESSION binlog_transaction_compression = ON")
    db.execute("INSERT INTO t VALUES (1, %s)", ("x" * 2000,))
    with pytest.raises(SourceRefused, match="binlog_transaction_compression"):
        follower.drain(1)
    follower.crash()


def test_parts_of_documents_are_refused(server: MariadbServer, db: Cursor) -> None:
    if server.is_mariadb:
        pytest.skip("MySQL's alone")
    db.execute("CREATE TABLE t (id INT PRIMARY KEY, j JSON)")
    db.execute("INSERT INTO t VALUES (1, %s)", (json.dumps({"a": 1, "b": "x" * 500}),))
    follower = follower_of(server)
    follower.run()
    db.execute("SET SESSION binlog_row_value_options = PARTIAL_JSON")
    db.execute("UPDATE t SET j = JSON_SET(j, '$.a', 2)")
    with pytest.raises(SourceRefused, match="binlog_row_value_options"):
        follower.drain(1)
    follower.crash()


def test_mistakes_are_told_with_the_statement_that_mends_them(server: MariadbServer, db: Cursor) -> None:
    root = pymysql.connect(unix_socket=str(server.folder / "socket"), user="root").cursor()
    root.execute("DROP USER IF EXISTS reader@'%'")
    root.execute("CREATE USER reader@'%' IDENTIFIED BY 'right'")
    root.execute("GRANT SELECT ON shop.* TO reader@'%'")

    def refusal(url: str, **more: Any) -> str:
        follower = Follower(lambda: MysqlSource(MysqlSettings(url, **more), MemoryHistory()))
        with pytest.raises(SourceRefused) as refused:
            follower.run()
        follower.crash()
        return str(refused.value)

    there = f"127.0.0.1:{server.port}/shop"
    assert "password of reader: ALTER USER" in refusal(f"mysql://reader:wrong@{there}")
    assert "there is no table shop.nowhere" in refusal(server.url, filters=Filters(include_tables=["shop.nowhere"]))
    db.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    assert "GRANT REPLICATION SLAVE" in refusal(f"mysql://reader:right@{there}")
    db.execute("CREATE TABLE plain (id INT PRIMARY KEY) ENGINE=MyISAM")
    assert "ENGINE = InnoDB" in refusal(server.url)
    db.execute("DROP TABLE plain")
    for setting, wrong, right in (("binlog_format", "'MIXED'", "'ROW'"), ("binlog_row_image", "'MINIMAL'", "'FULL'")):
        db.execute(f"SET GLOBAL {setting} = {wrong}")
        assert f"SET GLOBAL {setting} =" in refusal(server.url)
        db.execute(f"SET GLOBAL {setting} = {right}")
    with pytest.raises(InvalidConnectSetting, match=r"write mysql://user:password@host:3306/database"):
        MysqlSettings("mysql://u:secret@h/x?what=1")


@pytest.mark.parametrize("is_checked", [False, True])
def test_a_password_as_mysql_wants_it_by_default(server: MariadbServer, db: Cursor, is_checked: bool) -> None:
    """It must not go over the wire as it is, so the connection is encrypted; with `ssl_ca` to the right server only."""
    if server.is_mariadb:
        pytest.skip("MySQL's alone")
    db.execute("CREATE TABLE t (id INT PRIMARY KEY, a LONGTEXT)")
    root = pymysql.connect(unix_socket=str(server.folder / "socket"), user="root").cursor()
    root.execute("DROP USER IF EXISTS careful@'%'")
    root.execute("CREATE USER careful@'%' IDENTIFIED WITH caching_sha2_password BY 'right'")
    root.execute("GRANT ALL ON *.* TO careful@'%'")
    more = f"?ssl_ca={server.folder / 'data' / 'ca.pem'}" if is_checked else ""
    settings = MysqlSettings(f"mysql://careful:right@127.0.0.1:{server.port}/shop{more}")
    follower = Follower(lambda: MysqlSource(settings, MemoryHistory()))
    follower.run()
    db.execute("INSERT INTO t VALUES (1, %s), (2, 'b')", ("x" * 3_000_000,))
    follower.drain(1)
    follower.crash()
    assert {len(row["a"]) for row in follower.replica.tables["shop.t"].values()} == {3_000_000, 1}


def test_changes_written_as_statements_or_parts_of_rows_are_told_and_read_again(
    server: MariadbServer, db: Cursor
) -> None:
    for setting in ("binlog_format = STATEMENT", "binlog_row_image = MINIMAL"):
        db.execute("DROP TABLE IF EXISTS t")
        db.execute("CREATE TABLE t (id INT PRIMARY KEY, a INT, b INT)")
        follower = follower_of(server)
        follower.run()
        other = connect(server, database="shop").cursor()
        other.execute(f"SET SESSION {setting}")
        other.execute("INSERT INTO t VALUES (1, 1, 1)")
        other.execute("UPDATE t SET a = 2")
        wait_until(partial(is_read_again, follower), "the table was not read again")
        assert any("SET GLOBAL binlog_" in event.what for event in follower.replica.schema_changes)
        assert follower.replica.tables["shop.t"] == {(1,): {"id": 1, "a": 2, "b": 1}}
        follower.crash()


def test_a_server_without_a_log_is_told() -> None:
    plain = binlog_server(["--skip-log-bin"])
    try:
        with pytest.raises(SourceRefused, match=r"log_bin is OFF.*--log-bin"):
            MysqlSource(MysqlSettings(plain.url), MemoryHistory()).open(None)
    finally:
        plain.end()
    with pytest.raises(SourceUnavailable, match="does not answer"):
        MysqlSource(MysqlSettings(plain.url), MemoryHistory()).open(None)
