"""Exactly once to every sink, with driver, broker and PostgreSQL killed at random instants: contents are compared.

One sink of each way to commit (a topic, a database's transaction, a folder's versions, side effects) is in every run of
the tests; all of them are with those that are long.

`HEADRACE_KILLS` is the number of kills of the driver and of the broker; each third round also crashes PostgreSQL. The
seed is printed; `HEADRACE_SEED` replays the choice of instants as far as a machine allows.
"""

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import deltalake
import duckdb
import psycopg
import pyarrow.dataset
import pytest

import headrace
from headrace.client.address import parse_bootstrap
from headrace.client.admin import create_topic
from headrace.client.cluster import Cluster
from headrace.client.fetch import FetchOptions
from headrace.client.offsets import bounds
from headrace.client.reader import read_records
from headrace.client.transactions import Transactions
from headrace.client.writer import NewRecord, Writer
from tests.integration.sink_worker import INPUT, OUTPUT, PER_BATCH, STORES, change
from tests.integration.table_sink_stores import PostgresServer
from tests.ports import free_port

pytestmark = [
    pytest.mark.java,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.timeout(3600),
]
KILLS = int(os.environ.get("HEADRACE_KILLS", "1"))
ROWS = PER_BATCH * (5 + 4 * KILLS)
PATIENCE_S = 300.0


class Worker:
    """The driver program and what it has said."""

    def __init__(self, root: Path, url: str, bootstrap: str, stores: tuple[str, ...]) -> None:
        self.lines: list[str] = []
        self._changed = threading.Condition()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.integration.sink_worker", str(root), url, bootstrap, *stores],
            stdout=subprocess.PIPE, stderr=(root / "worker.err").open("ab"), text=True, start_new_session=True,
            cwd=Path(__file__).parents[2],
        )  # fmt: skip
        self.much = 4 * len(stores)  # as it says in about two batches
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._changed:
                self.lines.append(line.strip())
                self._changed.notify_all()
        with self._changed:
            self.lines.append("gone")
            self._changed.notify_all()

    def wait_for(self, count: int) -> str:
        """Until it has said so many things; the last of them."""
        with self._changed:
            enough = self._changed.wait_for(lambda: len(self.lines) >= count or self.lines[-1:] == ["gone"], PATIENCE_S)
            assert enough, self.lines[-5:]
            return self.lines[-1]

    def wait_for_all(self) -> None:
        """Until it has nothing more to say; however long that is, as long as it goes on saying something."""
        while self.wait_for(len(self.lines) + 1) != "gone":
            pass

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)  # with Spark's JVM and its Python workers
        self.end()

    def end(self) -> int:
        code = self._process.wait(PATIENCE_S)
        self._reader.join()
        assert self._process.stdout is not None
        self._process.stdout.close()
        return code


class KillableBroker:
    """A broker in a process of its own, on one port and one directory for as long as the test runs."""

    def __init__(self, folder: Path) -> None:
        self._folder, self.bootstrap = folder, f"127.0.0.1:{free_port()}"
        self._broker: headrace.Broker | None = None
        self.start()

    def start(self) -> None:
        self._broker = headrace.Broker(self._folder, listen=self.bootstrap, own_process=True).start()

    def kill(self) -> None:
        assert self._broker is not None
        os.kill(self._broker.pid, signal.SIGKILL)
        self._broker.stop()

    def stop(self) -> None:
        assert self._broker is not None
        self._broker.stop()


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    server = PostgresServer()
    yield server
    server.end()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[KillableBroker]:
    broker = KillableBroker(tmp_path / "broker")
    yield broker
    broker.stop()


def write_input(bootstrap: str) -> None:
    with Cluster(parse_bootstrap(bootstrap)) as cluster:
        create_topic(cluster, INPUT, partitions=1)  # one order for all, so that the last change of a key is known
        create_topic(cluster, OUTPUT, partitions=3)
        writer = Writer(cluster, INPUT)
        for seq in range(ROWS):
            writer.add(NewRecord(None, json.dumps(change(seq)).encode(), int(time.time() * 1000)))
        writer.flush()


@pytest.mark.parametrize(
    "stores",
    [("topic", "postgres", "delta", "outbox"), pytest.param(STORES, marks=pytest.mark.long)],
    ids=["each kind", "all"],
)
def test_nothing_is_lost_and_nothing_doubled(
    tmp_path: Path, server: PostgresServer, broker: KillableBroker, stores: tuple[str, ...]
) -> None:
    seed = int(os.environ.get("HEADRACE_SEED", str(time.time_ns() % 10**6)))
    print(f"HEADRACE_SEED={seed}")
    chance = random.Random(seed)
    write_input(broker.bootstrap)
    began: Counter[str] = Counter()  # what was at work at the instant of a kill
    kills = 0
    while True:
        worker = Worker(tmp_path, server.url, broker.bootstrap, stores)
        try:
            if kills < KILLS and one_round(worker, server, broker, chance, crash_store=kills % 3 == 2):
                kills += 1
                ends = {line.removeprefix("end ") for line in worker.lines if line.startswith("end ")}
                begins = {line.removeprefix("begin ") for line in worker.lines if line.startswith("begin ")}
                began.update(line.split()[0] for line in begins - ends)
                continue
            worker.wait_for_all()
            worker.end()
            assert "all finished" in worker.lines, (tmp_path / "worker.err").read_text()[-3000:]
            break
        finally:
            if worker.is_alive:
                worker.kill()
    print(f"{kills} kills of driver and broker each, at work then: {dict(began)}")
    assert kills == KILLS, "the input ended before all kills: more rows are needed"
    check(tmp_path, server.url, broker.bootstrap, stores)


def one_round(
    worker: Worker, server: PostgresServer, broker: KillableBroker, chance: random.Random, *, crash_store: bool
) -> bool:
    """Kill the broker at one instant and the driver at a later one; False if the driver was done before."""
    if worker.wait_for(chance.randrange(2, worker.much)) == "gone":
        return False
    time.sleep(chance.random() * 0.3)
    broker.kill()
    if crash_store:
        server.crash()
    time.sleep(chance.random() * 0.5)
    broker.start()
    if crash_store:
        server.start()
    if worker.wait_for(len(worker.lines) + chance.randrange(1, worker.much)) == "gone":
        return False
    time.sleep(chance.random() * 0.3)
    worker.kill()
    return True


# --- what must be there in the end


def check(root: Path, url: str, bootstrap: str, stores: tuple[str, ...]) -> None:
    everything = [change(seq) for seq in range(ROWS)]
    log = sorted((row["seq"], row["k"], row["v"], row["op"]) for row in everything)
    state: dict[int, tuple[Any, ...]] = {}
    for row in everything:
        state.pop(row["k"], None)
        if row["op"] != "d":
            state[row["k"]] = (row["seq"], row["k"], row["v"], row["op"])
    last = sorted(state.values())
    assert last, "the last changes must not all be deletions"
    columns = "seq, k, v, op"
    with psycopg.connect(url) as pg:
        assert sorted(pg.execute(f"SELECT {columns} FROM log").fetchall()) == log
        assert sorted(pg.execute(f"SELECT {columns} FROM last").fetchall()) == last
        assert pg.execute("SELECT count(*) FROM pg_tables WHERE tablename LIKE 'headrace_stage%'").fetchone() == (0,)
    files: dict[str, Callable[[], Any]] = {
        "sqlite": lambda: sqlite3.connect(root / "s.sqlite"),
        "duckdb": lambda: duckdb.connect(str(root / "s.duckdb")),
    }
    for opened in [connect() for store, connect in files.items() if store in stores]:
        assert sorted(opened.execute(f"SELECT {columns} FROM log").fetchall()) == log
        assert sorted(opened.execute(f"SELECT {columns} FROM last").fetchall()) == last
        opened.close()
    for name, expected in (("log", log), ("last", last)):
        found = deltalake.DeltaTable(str(root / f"delta-{name}")).to_pyarrow_table().to_pylist()
        assert sorted((row["seq"], row["k"], row["v"], row["op"]) for row in found) == expected
    if "parquet" in stores:
        rows = pyarrow.dataset.dataset(root / "parquet-log", partitioning="hive").to_table().to_pylist()
        assert sorted((row["seq"], row["k"], row["v"], row["op"]) for row in rows) == log
    check_sent(root, everything)
    check_topic(bootstrap, log)


def check_topic(bootstrap: str, log: list[tuple[Any, ...]]) -> None:
    """A reader of committed records sees every result once, and no transaction is left open in its way."""
    with Cluster(parse_bootstrap(bootstrap)) as cluster:
        assert Transactions(cluster).open_ids("headrace-sink-") == []
        held = bounds(cluster, cluster.partitions(OUTPUT))
        starts, ends = ({where: getattr(bound, end) for where, bound in held.items()} for end in ("start", "end"))
        found = []
        for records in read_records(cluster, starts, until=ends, options=FetchOptions(committed=True)):
            for _, record in records:
                row = json.loads(record.value or b"")
                assert record.key == str(row["k"]).encode()
                found.append((row["seq"], row["k"], row["v"], row["op"]))
        assert sorted(found) == log


def check_sent(root: Path, everything: list[dict[str, Any]]) -> None:
    """Every record was sent, twice only if it was in doubt, always with its own key, and in order for one lane."""
    sent = [json.loads(line) for line in (root / "received").read_text().splitlines()]
    assert all(one["key"] == str(one["seq"]) for one in sent)
    times = Counter(one["seq"] for one in sent)
    assert set(times) == {row["seq"] for row in everything}
    # At a kill at most the four that were being sent are in doubt.
    assert sum(times.values()) - len(times) <= 4 * KILLS
    reached: dict[int, int] = {}
    for one in sent:
        assert one["seq"] >= reached.get(one["k"], -1), "a lane went backwards"
        reached[one["k"]] = one["seq"]
    db = sqlite3.connect(root / "outbox.sqlite")
    assert db.execute("SELECT state, count(*) FROM headrace_outbox GROUP BY state").fetchall() == [("done", len(times))]
    db.close()
