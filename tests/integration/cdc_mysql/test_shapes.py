"""Tables that change their shapes: the log is read with the shapes of its time."""

import pytest

from headrace.broker.embedded import Broker
from headrace.client.address import parse_bootstrap
from headrace.client.cluster import Cluster
from headrace.connect.errors import SchemaChangeBlocked, SourceRefused
from headrace.connect.filters import Filters
from headrace.connect.mysql import MemoryHistory, MysqlSource, TopicHistory, rebuild_history
from tests.integration.cdc_mysql.shop import Cursor, connect, follower_of, is_read_again, settings_of
from tests.integration.cdc_replica import Follower
from tests.integration.waiting import wait_until
from tests.servers.mariadb import MariadbServer


def test_shapes_survive_a_restart_in_a_topic(server: MariadbServer, db: Cursor) -> None:
    """The reader is away while a column is added and dropped again: each row comes with the shape of its time."""
    db.execute("CREATE TABLE t (id INT PRIMARY KEY, a INT)")
    with Broker() as broker, Cluster(parse_bootstrap(broker.bootstrap_servers)) as cluster:
        follower = Follower(lambda: MysqlSource(settings_of(server), TopicHistory(cluster, "shop")))
        follower.start()
        follower.drain(0.2)
        follower.crash()
        db.execute("INSERT INTO t VALUES (1, 1)")
        db.execute("ALTER TABLE t ADD b VARCHAR(5) FIRST")
        db.execute("INSERT INTO t VALUES ('x', 2, 2)")
        db.execute("ALTER TABLE t DROP b, MODIFY a BIGINT")
        db.execute("INSERT INTO t VALUES (3, 3)")
        follower.start()
        follower.step(1, lose=True)  # the history is ahead of the position now
        follower.start()
        follower.drain(0.5)
        follower.crash()
        assert [event.what for event in follower.replica.schema_changes] == [
            "column b was added",
            "column b was dropped; column a became bigint",
        ]
        assert follower.replica.tables["shop.t"] == {(number,): {"id": number, "a": number} for number in (1, 2, 3)}
        numbers = [record.number for record in TopicHistory(cluster, "shop").load()]
        assert numbers == [1, 2, 3]
        assert TopicHistory(cluster, "another").load() == []


def test_a_lost_history_is_rebuilt_from_the_database(server: MariadbServer, db: Cursor) -> None:
    db.execute("CREATE TABLE t (id INT PRIMARY KEY, a INT)")
    history = MemoryHistory()
    follower = Follower(lambda: MysqlSource(settings_of(server), history))
    follower.run()
    follower.crash()
    db.execute("INSERT INTO t VALUES (1, 1)")
    history.forget([record.number for record in history.load()])
    with pytest.raises(SourceRefused, match=r"schema history is missing.*rebuild-history"):
        follower.start()
    assert follower.position is not None
    follower.position = rebuild_history(settings_of(server), history, follower.position)
    follower.crash()
    follower.run()
    follower.crash()
    assert follower.replica.tables["shop.t"] == {(1,): {"id": 1, "a": 1}}


def test_an_online_schema_change_swaps_tables(server: MariadbServer, db: Cursor) -> None:
    db.execute("CREATE TABLE t (id INT PRIMARY KEY, a INT)")
    db.execute("INSERT INTO t VALUES (1, 1)")
    history = MemoryHistory()
    settings = settings_of(server, filters=Filters(include_tables=[r"shop\.t"]))
    follower = Follower(lambda: MysqlSource(settings, history))
    follower.run()
    db.execute("CREATE TABLE _t_new LIKE t")
    db.execute("ALTER TABLE _t_new ADD b INT DEFAULT 7")
    db.execute("INSERT INTO _t_new (id, a) SELECT id, a FROM t")
    db.execute("RENAME TABLE t TO _t_old, _t_new TO t")
    wait_until(lambda: is_read_again(follower), "the table was not read again")
    assert follower.replica.tables == {"shop.t": {(1,): {"id": 1, "a": 1, "b": 7}}}
    db.execute("DROP TABLE _t_old")
    db.execute("UPDATE t SET a = 2")
    changed = {"shop.t": {(1,): {"id": 1, "a": 2, "b": 7}}}
    wait_until(lambda: follower.drain(0.1) or follower.replica.tables == changed, "the update does not come")
    follower.crash()
    [added, again] = [event.what for event in follower.replica.schema_changes]
    assert added == "column b was added"
    assert again.startswith("table shop._t_new took its name")


def test_policies_for_a_change_of_shape(server: MariadbServer, db: Cursor) -> None:
    db.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    blocking, skipping = follower_of(server, schema_changes="block"), follower_of(server, schema_changes="skip")
    blocking.run()
    skipping.run()
    db.execute("INSERT INTO t VALUES (1)")
    db.execute("ALTER TABLE t ADD a INT")
    db.execute("INSERT INTO t VALUES (2, 2)")
    with pytest.raises(SchemaChangeBlocked, match=r"shop\.t .*column a was added"):
        blocking.drain(1)
    blocking.crash()
    assert set(blocking.replica.tables["shop.t"]) == {(1,)}
    skipping.drain(0.3)
    skipping.crash()
    db.execute("INSERT INTO t VALUES (3, 3)")
    skipping.run()
    skipping.crash()
    assert set(skipping.replica.tables["shop.t"]) == {(1,)}
    assert len(skipping.replica.schema_changes) == 1


def test_a_truncated_and_a_dropped_table_are_emptied(server: MariadbServer, db: Cursor) -> None:
    db.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    db.execute("INSERT INTO t VALUES (1), (2)")
    follower = follower_of(server)
    follower.run()
    assert len(follower.replica.tables["shop.t"]) == 2
    db.execute("TRUNCATE t")
    follower.drain(0.3)
    assert follower.replica.tables["shop.t"] == {}
    db.execute("INSERT INTO t VALUES (3)")
    db.execute("DROP TABLE t")
    follower.drain(0.3)
    follower.crash()
    assert follower.replica.tables["shop.t"] == {}


def test_labels_of_enums_and_sets_are_what_was_meant(server: MariadbServer, db: Cursor) -> None:
    """From the information schema and from statements, whatever the session takes a backslash and a quote for."""
    labels = r"'a\\b', 'it''s', 'c\'d', '\"', 'x\ny', 'ü', '\\n'"
    db.execute(f"CREATE TABLE before_it (id INT PRIMARY KEY, e ENUM({labels}), s SET({labels}))")
    db.execute("INSERT INTO before_it VALUES (1, 1, 127)")
    follower = follower_of(server)
    follower.run()
    db.execute(f"CREATE TABLE t (id INT PRIMARY KEY, e ENUM({labels}), s SET({labels}))")
    plain = connect(server, database="shop", charset="latin1").cursor()
    plain.execute("SET sql_mode = 'NO_BACKSLASH_ESCAPES,ANSI_QUOTES'")
    plain.execute("CREATE TABLE \"u\" (\"id\" INT PRIMARY KEY, e ENUM('a\\b', '\"', 'ü'), s SET('\\', 'é'))")
    for number in range(1, 8):
        db.execute(f"INSERT INTO t VALUES ({number}, {number}, {number})")
        db.execute(f"INSERT INTO before_it VALUES ({number + 1}, {number}, {number})")
    for number in range(1, 4):
        db.execute(f"INSERT INTO u VALUES ({number}, {number}, {number})")
    wait_until(lambda: follower.step(0.2) is None and len(follower.replica.tables.get("shop.u", {})) == 3, "no rows")
    follower.crash()
    for table in ("before_it", "t", "u"):
        db.execute(f"SELECT id, e, s FROM {table}")
        held = {(number,): {"id": number, "e": label, "s": chosen} for number, label, chosen in db.fetchall()}
        assert follower.replica.tables[f"shop.{table}"] == held
    assert follower.replica.tables["shop.u"][1,]["e"] == "a\\b"
