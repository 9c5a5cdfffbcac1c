"""Random work and DDL on a real server, source and server cut off at any moment: the copy is the tables."""

import os
import random
import threading

import pytest

from headrace.connect.errors import SourceUnavailable
from headrace.connect.mysql import MemoryHistory, MysqlSource
from tests.integration.cdc_mysql.shop import Cursor, Worker, assert_same, connect, follower_of, make_tables, settings_of
from tests.integration.cdc_replica import Follower
from tests.servers.mariadb import MariadbServer


def test_random_work_with_cuts_of_source_and_server(server: MariadbServer, db: Cursor) -> None:
    seed = int(os.environ.get("HEADRACE_SEED", random.randrange(1 << 30)))
    print(f"HEADRACE_SEED={seed}")
    chance = random.Random(seed)
    make_tables(db)
    worker = Worker(connect(server), chance)
    worker.work(300)
    history = MemoryHistory()
    follower = Follower(lambda: MysqlSource(settings_of(server, batch_rows=chance.choice([1, 7, 100, 1000])), history))
    for turn in range(25):
        if follower.source is None:
            follower.start()
        worker.work(30)
        if turn % 5 == 2:
            if follower.position is None or "snapshot" in follower.position:
                follower.crash()  # a table that is being read would hold the statement up, and nobody else reads on
            worker.change_shape()
            if follower.source is None:
                follower.start()
        if turn in (6, 13):
            worker.large()
        for _ in range(chance.randrange(12)):
            if follower.source is not None:
                follower.step(0.01, lose=chance.random() < 0.1)
        if chance.random() < 0.3:
            follower.crash()
        if turn in (8, 17):
            server.kill()
            if follower.source is not None:
                with pytest.raises(SourceUnavailable):
                    follower.drain(10)
                follower.crash()
            server.start()
            worker = Worker(connect(server), chance)
    if follower.source is None:
        follower.start()
    follower.drain(1)
    while "incremental" in (follower.position or {}):  # tables are read again
        follower.drain(0.5)
    follower.crash()
    cursor = connect(server).cursor()
    cursor.execute("USE shop")
    assert_same(cursor, follower.replica)


def test_writers_beside_each_other_and_the_snapshot(server: MariadbServer, db: Cursor) -> None:
    make_tables(db)
    workers = [Worker(connect(server), random.Random(seed)) for seed in range(3)]
    threads = [threading.Thread(target=worker.work, args=(250,)) for worker in workers]
    for thread in threads:
        thread.start()
    follower = follower_of(server, batch_rows=5)
    follower.start()
    while any(thread.is_alive() for thread in threads):
        follower.step(0.01)
    follower.drain(0.5)
    follower.crash()
    assert_same(db, follower.replica)
