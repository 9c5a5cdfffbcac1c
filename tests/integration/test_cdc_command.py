"""`headrace cdc` as a user calls it: started from a file, watched, asked for a snapshot, stopped, started again."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psycopg
import pytest

from headrace import Broker
from headrace.client.address import parse_bootstrap
from headrace.client.cluster import Cluster
from headrace.client.fetch import FetchOptions
from headrace.client.offsets import bounds
from headrace.client.reader import read_records
from headrace.testing.postgres import Postgres

ORDERS = "shop.public.orders"
PATIENCE_S = 120.0


class Shop:
    """A database, a broker, a file that names them, and the command."""

    def __init__(self, folder: Path, database: Postgres, broker: Broker) -> None:
        self.folder, self.url = folder, database.url
        self._environment = os.environ | {"HEADRACE_BOOTSTRAP": broker.bootstrap_servers, "SHOP": database.url}
        self._bootstrap = parse_bootstrap(broker.bootstrap_servers)
        (folder / "headrace.toml").write_text('[cdc.shop]\nurl = "${SHOP}"\ntables = ["public.orders"]\n')
        self.execute("CREATE TABLE orders (id int PRIMARY KEY, what text)")
        self.execute("INSERT INTO orders SELECT n, 'tea' FROM generate_series(1, 500) n")

    def execute(self, statement: str) -> None:
        with psycopg.connect(self.url, autocommit=True) as db:
            db.execute(statement)

    def started(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "headrace.cli.main", "cdc", *arguments],
            cwd=self.folder, env=self._environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def run(self, *arguments: str, code: int = 0) -> str:
        done = self.started(*arguments)
        out, err = done.communicate(timeout=PATIENCE_S)
        assert done.returncode == code, out + err
        return out if code == 0 else err.strip().splitlines()[-1]

    def status(self) -> dict[str, Any]:
        found: list[dict[str, Any]] = json.loads(self.run("status", "--json"))
        return found[0] if found else {"state": "none", "records": 0}

    def wait(self, until: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        deadline = time.monotonic() + PATIENCE_S
        while not until(found := self.status()):
            assert time.monotonic() < deadline, found
            time.sleep(0.2)
        return found

    def operations(self) -> list[str]:
        with Cluster(self._bootstrap) as cluster:
            held = bounds(cluster, cluster.partitions(ORDERS))
            starts, ends = ({where: getattr(bound, end) for where, bound in held.items()} for end in ("start", "end"))
            read = read_records(cluster, starts, until=ends, options=FetchOptions(committed=True))
            return [json.loads(record.value)["op"] for records in read for _, record in records if record.value]


@pytest.fixture
def shop(tmp_path: Path, headrace_broker: Broker) -> Iterator[Shop]:
    # Not in pytest's own folder, which every pytest on the machine closes to others: the server runs as its own user.
    with TemporaryDirectory(prefix="headrace-pg-") as folder, Postgres(Path(folder) / "shop") as database:
        yield Shop(tmp_path, database, headrace_broker)


def test_a_capture_from_start_to_start(shop: Shop) -> None:
    running = shop.started("start")
    told = shop.wait(lambda told: told["state"] == "running" and told["records"] == 500)
    assert (told["kind"], told["slot"], told["snapshot_done"]) == ("postgresql", "headrace_shop", 500)
    assert shop.url not in json.dumps(told)

    assert "asked shop to read public.orders again" in shop.run("snapshot", "shop", "public.orders")
    shop.wait(lambda told: told["records"] == 1000)
    shop.execute("UPDATE orders SET what = 'coffee' WHERE id = 7")
    shop.wait(lambda told: told["records"] == 1001)
    assert shop.run("stop", "shop") == "shop is stopped after 1,001 records\n"
    assert running.wait(PATIENCE_S) == 0
    running.communicate()
    assert shop.operations() == ["r"] * 1000 + ["u"]

    # What happens meanwhile is not lost, and what was read is not read again.
    shop.execute("DELETE FROM orders WHERE id = 8")
    running = shop.started("start", "shop")
    shop.wait(lambda told: told["state"] == "running" and told["records"] == 2)  # the deletion and its tombstone
    running.terminate()
    assert running.wait(PATIENCE_S) == 0
    running.communicate()
    assert shop.operations() == ["r"] * 1000 + ["u", "d"]
    assert "does not run (it is stopped)" in shop.run("snapshot", "shop", "public.orders", code=1)


def test_mistakes_are_one_sentence_and_what_mends_them(shop: Shop) -> None:
    wrong = shop.url.replace(shop.url.split(":")[2].split("@")[0], "guessed")
    for arguments, said in (
        (("start", "--url", wrong), "does not take the password of postgres: ALTER ROLE postgres PASSWORD"),
        (("start", "--url", shop.url, "--table", "public.ordres"), "there is no table public.ordres"),
        (("start", "--url", shop.url, "--set", "snapshto=never"), "did you mean 'snapshot'?"),
        (("start", "market"), "headrace.toml has no section [cdc.market], only shop"),
        (("stop", "shop"), "capture 'shop' does not run (it is unknown): headrace cdc start shop"),
    ):
        err = shop.run(*arguments, code=1)
        assert err.startswith("headrace: ")
        assert said in err
        assert "guessed" not in err
