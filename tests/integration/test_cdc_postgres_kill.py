"""A random workload on a real PostgreSQL, with connector, broker and database killed: nothing lost, nothing doubled.

`HEADRACE_KILLS` is the number of kills of the connector; each third also kills the broker, and each third the database.
The seed is printed; `HEADRACE_SEED` replays the choices as far as a machine allows.
"""

import contextlib
import itertools
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import psycopg
import pytest
from psycopg.rows import dict_row

import headrace
from tests.integration.cdc_postgres_server import EACH_VERSION, CdcPostgres
from tests.integration.cdc_postgres_topics import CdcWorker, read_topic, replica_of, wait_for
from tests.ports import free_port

pytestmark = pytest.mark.timeout(1800)
KILLS = int(os.environ.get("HEADRACE_KILLS", "4"))
SEED = int(os.environ.get("HEADRACE_SEED", str(time.time_ns() % 1_000_000)))
TABLES = ("apples", "pears")
WRITERS = 2


@pytest.fixture(scope="module", params=EACH_VERSION)
def database(request: pytest.FixtureRequest) -> Iterator[CdcPostgres]:
    server = CdcPostgres(request.param)
    yield server
    server.end()


class Writer(threading.Thread):
    """Random transactions on keys of its own; remembers what was committed, what was not, and what nobody knows."""

    def __init__(self, database: CdcPostgres, number: int, versions: Iterator[int], stop: threading.Event) -> None:
        super().__init__(daemon=True)
        self._database = database
        self._number = number
        self._random = random.Random(SEED * 10 + number)
        self._versions = versions
        self._stop_event = stop
        self._ids = {table: set(range(number, 200, WRITERS)) for table in TABLES}
        self.committed: list[tuple[str, int]] = []
        self.rolled_back: set[tuple[str, int]] = set()
        self.transactions = 0
        self.failed: BaseException | None = None

    def run(self) -> None:
        try:
            while not self._stop_event.is_set():
                try:
                    with psycopg.connect(self._database.url) as connection:
                        while not self._stop_event.is_set():
                            self._transact(connection)
                except psycopg.OperationalError:
                    time.sleep(0.1)
        except BaseException as error:
            self.failed = error
            raise

    def _transact(self, connection: psycopg.Connection[Any]) -> None:
        written: list[tuple[str, int]] = []
        undone: list[tuple[str, int]] = []
        ids = {table: set(known) for table, known in self._ids.items()}
        many = 1500 if self._random.random() < 0.03 else self._random.randint(1, 8)
        for _ in range(many):
            self._change(connection, ids, written)
        if self._random.random() < 0.1:
            mark = len(written)
            kept = {table: set(known) for table, known in ids.items()}
            connection.execute("savepoint s")
            for _ in range(self._random.choice([3, 300])):
                self._change(connection, ids, written)
            connection.execute("rollback to savepoint s")
            undone += written[mark:]
            del written[mark:]
            ids = kept
        if self._random.random() < 0.1:
            connection.rollback()
            self.rolled_back.update(written, undone)
            return
        self.rolled_back.update(undone)
        try:
            connection.commit()
        except psycopg.OperationalError:
            # Nobody knows how it ended: look.
            self._look(ids)
            raise
        self._ids = ids
        self.committed += written
        self.transactions += 1
        time.sleep(self._random.random() * 0.01)

    def _look(self, maybe: dict[str, set[int]]) -> None:
        while not self._stop_event.is_set():
            try:
                with psycopg.connect(self._database.url) as connection:
                    for table in TABLES:
                        rows = connection.execute(
                            f"select id from {table} where id % {WRITERS} = {self._number}"
                        ).fetchall()
                        self._ids[table] = {row[0] for row in rows}
                    return
            except psycopg.OperationalError:
                time.sleep(0.1)

    def _change(
        self, connection: psycopg.Connection[Any], ids: dict[str, set[int]], written: list[tuple[str, int]]
    ) -> None:
        table = self._random.choice(TABLES)
        known = ids[table]
        version = next(self._versions)
        choice = self._random.random()
        text = self._random.choice(["", "plain", 'quo"te\\', "tab\tand\nline", "żółć 🦉", None])
        if choice < 0.35 or not known:
            new = self._random.randrange(10**6) * WRITERS + self._number
            if new in known:
                return
            big = "".join(self._random.choices("abcdefgh", k=6000)) if self._random.random() < 0.1 else "small"
            connection.execute(
                f"insert into {table} (id, v, t, big) values (%s, %s, %s, %s)", [new, version, text, big]
            )
            known.add(new)
        elif choice < 0.8:
            chosen = self._random.choice(sorted(known))
            connection.execute(f"update {table} set v = %s, t = %s where id = %s", [version, text, chosen])
        elif choice < 0.9:
            chosen = self._random.choice(sorted(known))
            new = self._random.randrange(10**6) * WRITERS + self._number
            if new in known:
                return
            connection.execute(f"update {table} set id = %s, v = %s where id = %s", [new, version, chosen])
            known.remove(chosen)
            known.add(new)
        else:
            chosen = self._random.choice(sorted(known))
            connection.execute(f"delete from {table} where id = %s", [chosen])
            known.remove(chosen)
            return
        written.append((table, version))


class KillableBroker:
    """A broker in a process of its own, on one port and one directory for as long as the test runs."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.bootstrap_servers = f"127.0.0.1:{free_port()}"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._broker.stop()

    def start(self) -> None:
        self._broker = headrace.Broker(self._folder, listen=self.bootstrap_servers, own_process=True).start()

    def kill(self) -> None:
        os.kill(self._broker.pid, signal.SIGKILL)
        self._broker.stop()


def alter(database: CdcPostgres, table: str, number: int) -> None:
    """Another column, and the one before the last one gone; writers may hold the table too long."""
    with psycopg.connect(database.url, autocommit=True) as connection:
        connection.execute("set lock_timeout = '2s'")
        with contextlib.suppress(psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected):
            connection.execute(f"alter table {table} add column extra{number} text")
            connection.execute(f'alter table {table} drop column if exists "extra{number - 2}"')


def test_nothing_is_lost_or_doubled(
    database: CdcPostgres, tmp_path: Path, capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest
) -> None:
    with capsys.disabled():
        print(f" seed {SEED}", end="", flush=True)
    for table in TABLES:
        database.execute(
            f"create table {table} (id int primary key, v bigint, t text, big text)",
            f"alter table {table} alter column big set storage external",
            f"insert into {table} select i, 0, 'first', 'small' from generate_series(0, 199) i",
        )
    chance = random.Random(SEED)
    versions = itertools.count(1)
    stop = threading.Event()
    with KillableBroker(tmp_path / "broker") as broker:
        told = {
            "name": "fruit",
            "url": database.url,
            "bootstrap": broker.bootstrap_servers,
            "tables": [rf"public\.{table}" for table in TABLES],
        }
        worker = CdcWorker(told)
        request.addfinalizer(worker.end)
        wait_for(lambda: worker.has_said("snapshot done"), lambda: "\n".join(worker.lines))
        writers = [Writer(database, number, versions, stop) for number in range(WRITERS)]
        for writer in writers:
            writer.start()
        for kill in range(KILLS):
            time.sleep(0.3 + chance.random() * 2)
            alter(database, chance.choice(TABLES), kill)
            if kill % 3 == 2:
                database.restart("immediate")
                time.sleep(chance.random())
            if kill % 3 == 1:
                broker.kill()
                time.sleep(chance.random())
                broker.start()
                time.sleep(chance.random())
            assert worker.is_running, "\n".join(worker.lines)
            worker.kill()
            if chance.random() < 0.5:
                time.sleep(chance.random() * 0.5)
            worker = CdcWorker(told)
            request.addfinalizer(worker.end)
        # Let it come far enough that the last kill is behind it.
        wait_for(lambda: worker.has_said("connector runs"), lambda: "\n".join(worker.lines))
        time.sleep(1)
        stop.set()
        for writer in writers:
            writer.join(60)
            assert writer.failed is None
        last = next(versions)
        for table in TABLES:
            database.execute(f"insert into {table} (id, v, t, big) values (-1, {last}, 'end', 'small')")

        def has_end() -> bool:
            return all(
                any(key == {"id": -1} for key, _ in read_topic(broker.bootstrap_servers, f"fruit.public.{table}"))
                for table in TABLES
            )

        wait_for(has_end, lambda: "\n".join(worker.lines[-20:]))
        worker.stop()
        committed = {pair for writer in writers for pair in writer.committed}
        rolled_back = {pair for writer in writers for pair in writer.rolled_back}
        assert len(committed) > 100
        for table in TABLES:
            records = read_topic(broker.bootstrap_servers, f"fruit.public.{table}")
            seen = Counter(
                value["after"]["v"] for _, value in records if value is not None and value["op"] in ("c", "u")
            )
            assert [version for version, times in seen.items() if times > 1] == []
            assert {version for name, version in committed if name == table} - set(seen) == set()
            assert {version for name, version in rolled_back if name == table} & set(seen) == set()
            newest: dict[int, int] = {}
            for key, value in records:
                assert key is not None
                if value is not None and value["after"] is not None:
                    assert value["after"]["v"] >= newest.get(key["id"], -1), (key, value)
                    newest[key["id"]] = value["after"]["v"]
            with psycopg.connect(database.url, row_factory=dict_row) as connection:
                rows = connection.execute(f"select * from {table}").fetchall()
            # A column that was added later is null in rows that nobody has touched since, and was not sent.
            replica = replica_of(records)
            names = list(rows[0])
            assert {row["id"]: row for row in rows} == {
                number: {name: row.get(name) for name in names} for number, row in replica.items()
            }
    for table in TABLES:
        database.execute(f"drop table {table}")
