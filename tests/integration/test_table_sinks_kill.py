"""Exactly once, with Spark's driver and PostgreSQL killed at random instants: contents compared row by row.

`HEADRACE_KILLS` is the number of kills of the driver; each third of them also crashes PostgreSQL, and the seed is
printed. `HEADRACE_SEED` replays the choice of instants as far as a machine allows.
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
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import deltalake
import duckdb
import psycopg
import pyarrow.dataset
import pytest

from tests.integration.table_sink_stores import PostgresServer
from tests.integration.table_sink_worker import changes, write_input

pytestmark = [
    pytest.mark.java,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.timeout(3600),
]
KILLS = int(os.environ.get("HEADRACE_KILLS", "6"))
ROWS = 200
FILES = 4 + 3 * KILLS
PATIENCE_S = 240.0


class Worker:
    """The driver program and what it has said."""

    def __init__(self, root: Path, url: str) -> None:
        self.lines: list[str] = []
        self._changed = threading.Condition()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.integration.table_sink_worker", str(root), url],
            stdout=subprocess.PIPE, stderr=(root / "worker.err").open("ab"), text=True, start_new_session=True,
            cwd=Path(__file__).parents[2],
        )  # fmt: skip
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

    def kill(self) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)  # with Spark's JVM and its Python workers
        self.end()

    def end(self) -> int:
        code = self._process.wait(PATIENCE_S)
        self._reader.join()
        assert self._process.stdout is not None
        self._process.stdout.close()
        return code


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    server = PostgresServer()
    yield server
    server.end()


def test_nothing_is_lost_and_nothing_doubled(tmp_path: Path, server: PostgresServer) -> None:
    seed = int(os.environ.get("HEADRACE_SEED", str(time.time_ns() % 10**6)))
    print(f"HEADRACE_SEED={seed}")
    chance = random.Random(seed)
    write_input(tmp_path / "input", FILES, ROWS)
    began: Counter[str] = Counter()  # what was at work at the instant of a kill
    kills = crashes = 0
    while True:
        worker = Worker(tmp_path, server.url)
        try:
            if kills < KILLS:
                last = worker.wait_for(chance.randrange(8, 40))
                if last != "gone":
                    if kills % 3 == 2:
                        server.crash()
                        crashes += 1
                        time.sleep(chance.random())
                        server.start()
                        last = worker.wait_for(len(worker.lines) + chance.randrange(1, 20))
                    time.sleep(chance.random() * 0.2)
                    worker.kill()
                    kills += 1
                    ends = {line.removeprefix("end ") for line in worker.lines if line.startswith("end ")}
                    begins = {line.removeprefix("begin ") for line in worker.lines if line.startswith("begin ")}
                    began.update(line.split()[0] for line in begins - ends)
                    continue
            worker.end()
            assert "all finished" in worker.lines, (tmp_path / "worker.err").read_text()[-3000:]
            break
        finally:
            if worker._process.poll() is None:
                worker.kill()
    print(f"{kills} kills, {crashes} crashes of PostgreSQL, interrupted: {dict(began)}")
    assert kills == KILLS, "the input ended before all kills: more files are needed"
    check(tmp_path, server.url)


def check(root: Path, url: str) -> None:
    everything = [row for file in range(FILES) for row in changes(file, ROWS)]
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
    for opened in (sqlite3.connect(root / "s.sqlite"), duckdb.connect(str(root / "s.duckdb"))):
        assert sorted(opened.execute(f"SELECT {columns} FROM log").fetchall()) == log
        assert sorted(opened.execute(f"SELECT {columns} FROM last").fetchall()) == last
        opened.close()
    for name, expected in (("log", log), ("last", last)):
        found = deltalake.DeltaTable(str(root / f"delta-{name}")).to_pyarrow_table().to_pylist()
        assert sorted((row["seq"], row["k"], row["v"], row["op"]) for row in found) == expected
    files = pyarrow.dataset.dataset(root / "parquet-log", partitioning="hive").to_table().to_pylist()
    assert sorted((row["seq"], row["k"], row["v"], row["op"]) for row in files) == log
    check_sent(root, everything)


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
