"""Changes as records of topics, and without any broker."""

import asyncio
import threading
from typing import Any

import headrace
from headrace.connect.changes import changes
from headrace.connect.errors import TakenOver
from tests.integration.cdc_postgres.reading import running, runtime_of
from tests.integration.cdc_postgres_server import CdcPostgres
from tests.integration.cdc_postgres_topics import read_topic, replica_of, wait_for


def test_topics_rebuild_the_table_and_an_older_instance_is_fenced(database: CdcPostgres) -> None:
    database.execute("create table t (id int primary key, v text)", "insert into t values (1, 'a'), (2, 'b')")
    with headrace.Broker(durability="os") as broker:
        servers = broker.bootstrap_servers
        older = runtime_of(database, servers)
        failed: list[BaseException] = []

        def run_older() -> None:
            try:
                older.run()
            except TakenOver as error:
                failed.append(error)

        thread = threading.Thread(target=run_older)
        thread.start()
        wait_for(lambda: older.progress.records >= 2)
        with running(database, servers):
            thread.join(30)
            assert failed
            database.execute(
                "update t set v = 'c' where id = 1", "update t set id = 3 where id = 2",
                "insert into t values (4, null)", "delete from t where id = 4", "insert into t values (5, 'e')",
            )  # fmt: skip
            wait_for(lambda: 5 in replica_of(read_topic(servers, "srv.public.t")))
        records = read_topic(servers, "srv.public.t")
    assert replica_of(records) == {1: {"id": 1, "v": "c"}, 3: {"id": 3, "v": "b"}, 5: {"id": 5, "v": "e"}}
    assert [value["op"] for _, value in records if value] == ["r", "r", "u", "d", "c", "c", "d", "c"]


def test_the_runtime_waits_for_a_database_that_restarts(database: CdcPostgres) -> None:
    database.execute("create table t (id int primary key)")
    with headrace.Broker(durability="os") as broker, running(database, broker.bootstrap_servers) as runtime:
        wait_for(lambda: runtime.progress.batches > 0)
        database.restart("immediate")
        database.execute("insert into t values (1)")
        wait_for(lambda: 1 in replica_of(read_topic(broker.bootstrap_servers, "srv.public.t")))
        assert runtime.progress.failures > 0


def test_rows_of_many_megabytes(database: CdcPostgres) -> None:
    database.execute(
        "create table t (id int primary key, v text)",
        "insert into t select i, repeat('x', 3000000) from generate_series(1, 4) i",
    )
    with headrace.Broker(durability="os") as broker, running(database, broker.bootstrap_servers):
        database.execute("insert into t values (5, repeat('y', 20000000))")
        wait_for(lambda: 5 in replica_of(read_topic(broker.bootstrap_servers, "srv.public.t")))
        rows = replica_of(read_topic(broker.bootstrap_servers, "srv.public.t"))
    assert [len(rows[number]["v"]) for number in range(1, 6)] == [3000000] * 4 + [20000000]


def test_changes_without_a_broker(database: CdcPostgres) -> None:
    database.execute("create table t (id int primary key, v numeric)", "insert into t values (1, 1.5)")
    with changes(database.url, ["t"], snapshot=True) as stream:
        found = iter(stream)
        first = next(found)
        assert (first.op, first.key, str((first.after or {})["v"])) == ("r", {"id": 1}, "1.5")
        database.execute("insert into t values (2, 2)")
        assert next(found).key == {"id": 2}

    async def read() -> list[Any]:
        got = []
        async for change in changes(database.url, ["public.t"], slot="mine", snapshot=True):
            got.append(change.key)
            if len(got) == 2:
                return got
        return got

    assert asyncio.run(read()) == [{"id": 1}, {"id": 2}]


def test_a_named_slot_remembers(database: CdcPostgres) -> None:
    database.execute("create table t (id int primary key)")
    with changes(database.url, ["t"], slot="mine") as stream:
        stream.open()
        database.execute("insert into t values (1)", "insert into t values (2)")
        found = iter(stream)
        assert [next(found).key for _ in range(2)] == [{"id": 1}, {"id": 2}]
        database.execute("insert into t values (3)")
        assert next(found).key == {"id": 3}
    with changes(database.url, ["t"], slot="mine") as stream:
        assert next(iter(stream)).key in ({"id": 3}, {"id": 2})
