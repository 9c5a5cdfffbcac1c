"""What the binary log holds: values of every type, compressed events, transactions, a log that is gone."""

import json

import pytest

from headrace.connect.change import Change, SchemaChange, TransactionEnd
from headrace.connect.envelope import EnvelopeSettings, EnvelopeWriter, TopicNames
from headrace.connect.errors import SourceRefused
from headrace.connect.filters import Filters
from headrace.connect.mysql import MemoryHistory, MysqlSource
from tests.integration.cdc_mysql.shop import Cursor, changes_of, connect, end_others, follower_of, settings_of
from tests.integration.cdc_replica import Follower
from tests.servers.mariadb import MariadbServer


def test_log_and_query_give_the_same_for_every_type(server: MariadbServer, db: Cursor) -> None:
    columns = {
        "t": "TINYINT", "tu": "TINYINT UNSIGNED", "s": "SMALLINT", "m": "MEDIUMINT UNSIGNED", "b": "BIGINT UNSIGNED",
        "f": "FLOAT", "d": "DOUBLE", "n": "DECIMAL(30, 10)", "nz": "DECIMAL(5, 1) UNSIGNED ZEROFILL", "bi": "BIT",
        "bn": "BIT(13)", "da": "DATE", "dt": "DATETIME", "dt3": "DATETIME(3)", "dt6": "DATETIME(6)",
        "ts": "TIMESTAMP NULL", "ts6": "TIMESTAMP(6) NULL", "ti": "TIME", "ti2": "TIME(2)", "ti6": "TIME(6)",
        "y": "YEAR",
        "c": "CHAR(5)", "v": "VARCHAR(300)", "vl": "VARCHAR(20) CHARACTER SET latin1",
        "vu": "CHAR(20) CHARACTER SET utf16",
        "tx": "TEXT", "bl": "BLOB", "bin": "BINARY(4)", "vb": "VARBINARY(10)", "e": "ENUM('a', 'b''c', 'ü')",
        "st": "SET('x', 'y', 'z')", "j": "JSON", "g": "GEOMETRY", "p": "POINT", "u": "UUID", "i6": "INET6",
        "virt": "INT AS (t + 1) VIRTUAL", "kept": "INT AS (t + 2) STORED",
    }  # fmt: skip
    rows = [
        [-128, 255, -32768, 16777215, 2**64 - 1, 0.1, 0.1, "-12345678901234567890.0123456789", 42.5, 1, 5461,
         "2024-02-29",
         "1000-01-01 00:00:00", "9999-12-31 23:59:59.999", "2024-01-01 12:34:56.789012", "2024-06-01 00:00:00",
         "2038-01-19 03:14:07.999999", "-838:59:59", "12:34:56.78", "-00:00:00.000001", 1901, "ab  ", "ä€😀", "é€", "µ",
         "text \0 nul", b"\0\xff", b"ab", b"a\0", "b'c", "x,z", '{"a": [1, 2.5, "ü"]}', "POINT(1 2)", "POINT(3 4)",
         "123e4567-e89b-12d3-a456-426655440000", "2001:db8::ff"],
        [1, 2, 3, 4, 5, 3.4e38, 1.7976931348623157e308, 0, 0, 0, 1, "0000-00-00", "0000-00-00 00:00:00", "2024-02-00",
         "0000-00-00", "0000-00-00", "0000-00-00", "00:00:00", "-1:02:03.45", "838:59:59.999999", 0, "", "", "", "", "",
         b"",
         b"", b"", "", "", "null", None, None, "00000000-0000-0000-0000-000000000000", "::"],
        [None] * 36,
    ]  # fmt: skip
    if not server.is_mariadb:
        del columns["u"], columns["i6"]
    db.execute(
        f"CREATE TABLE kinds (id INT PRIMARY KEY, {', '.join(f'{name} {kind}' for name, kind in columns.items())})"
    )
    named = [name for name in columns if name not in ("virt", "kept")]
    marks = ", ".join("ST_GeomFromText(%s, 4326)" if name in ("g", "p") else "%s" for name in named)
    insert = f"INSERT INTO kinds (id, {', '.join(named)}) VALUES (%s, {marks})"
    for number, row in enumerate(rows):
        db.execute(insert, [number, *row[: len(named)]])
    source = MysqlSource(settings_of(server), MemoryHistory())
    source.open(None)
    read = {change.after[0]: change for change in changes_of(source)}
    for number, row in enumerate(rows):
        db.execute(insert, [number + 10, *row[: len(named)]])
    logged = {change.after[0] - 10: change for change in changes_of(source)}
    source.close()
    assert read.keys() == logged.keys() == {0, 1, 2}
    for number, change in read.items():
        for column, queried, found in zip(change.table.columns, change.after, logged[number].after, strict=True):
            if column.name != "id":
                assert (type(queried), queried) == (type(found), found), column.name
    writer = EnvelopeWriter(EnvelopeSettings("mysql", "shop", "0", TopicNames("p")), Filters())
    [record] = writer.write([logged[0]], 1)
    after = json.loads(record.value)["after"]
    expected = {
        "b": 2**64 - 1, "f": 0.1, "n": "-12345678901234567890.0123456789", "bi": True, "da": 19782,
        "ti": -3020399000000,
        "ts6": "2038-01-19T03:14:07.999999Z", "vl": "é€", "vu": "µ", "e": "b'c", "st": "x,z",
        "bin": "YWIAAA==",
    }  # fmt: skip
    if server.is_mariadb:
        expected["u"] = "123e4567-e89b-12d3-a456-426655440000"
    assert {name: after[name] for name in expected} == expected


def test_compressed_events_are_read(server: MariadbServer, db: Cursor) -> None:
    if not server.is_mariadb:
        pytest.skip("MariaDB's alone")
    db.execute("CREATE TABLE t (id INT PRIMARY KEY, a TEXT)")
    follower = follower_of(server)
    follower.run()
    db.execute("SET GLOBAL log_bin_compress = ON")
    try:
        other = connect(server, database="shop").cursor()
        other.execute("INSERT INTO t VALUES (1, %s), (2, 'b')", ("x" * 2000,))
        other.execute("UPDATE t SET a = concat(a, 'y') WHERE id = 1")
        other.execute(f"ALTER TABLE t ADD b INT COMMENT '{'long ' * 100}'")
        other.execute("DELETE FROM t WHERE id = 2")
    finally:
        db.execute("SET GLOBAL log_bin_compress = OFF")
    follower.drain(0.3)
    follower.crash()
    assert follower.replica.tables["shop.t"] == {(1,): {"id": 1, "a": "x" * 2000 + "y"}}


def test_the_position_moves_while_others_write(server: MariadbServer, db: Cursor) -> None:
    db.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    db.execute("CREATE TABLE quiet (id INT PRIMARY KEY)")
    follower = follower_of(server, filters=Filters(include_tables=[r"shop\.quiet"]), heartbeat_s=0.1)
    follower.run()
    assert follower.position is not None
    before = follower.position["gtid"]
    db.execute("INSERT INTO t VALUES (1)")
    for _ in range(20):
        follower.step(0.2)
        if follower.position["gtid"] != before:
            break
    follower.crash()
    assert follower.position["gtid"] != before


def test_transactions_end_and_have_their_gtid(server: MariadbServer, db: Cursor) -> None:
    db.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    source = MysqlSource(settings_of(server, snapshot="never"), MemoryHistory())
    source.open(None)
    db.execute("BEGIN")
    db.execute("INSERT INTO t VALUES (1)")
    db.execute("INSERT INTO t VALUES (2)")
    db.execute("COMMIT")
    events = []
    while len(events) < 3:
        batch = source.next_batch(5)
        assert batch is not None
        events += batch.events
    source.close()
    assert [type(event) for event in events] == [Change, Change, TransactionEnd]
    assert len({event.origin.transaction_id for event in events if not isinstance(event, SchemaChange)}) == 1


def test_a_purged_log_is_told_at_once_and_snapshot_again_if_allowed(server: MariadbServer, db: Cursor) -> None:
    db.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    history = MemoryHistory()
    modes = iter(["initial", "initial", "when-needed"])
    follower = Follower(lambda: MysqlSource(settings_of(server, snapshot=next(modes)), history))
    follower.run()
    follower.crash()
    db.execute("INSERT INTO t VALUES (1)")
    end_others(db)  # what a reader is about to read is not purged, even if it went away a moment ago
    while True:  # nor is what the server would need after a crash of its own; it finds out a moment later
        db.execute("FLUSH BINARY LOGS")
        db.execute("SHOW MASTER STATUS")
        db.execute(f"PURGE BINARY LOGS TO '{db.fetchone()[0]}'")
        if db.execute("SHOW BINARY LOGS") == 1:
            break
    db.execute("INSERT INTO t VALUES (2)")
    with pytest.raises(SourceRefused, match=r"no longer has the binary log.*when-needed"):
        follower.start()
    follower.crash()
    follower.run()
    follower.crash()
    assert set(follower.replica.tables["shop.t"]) == {(1,), (2,)}
