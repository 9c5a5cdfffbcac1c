"""`headrace sync verify --source`: a copy compared with the database itself, after DDL that fills columns."""

import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.integration.cdc_postgres_server import VERSIONS, CdcPostgres
from tests.integration.running_stack import RunningStack
from tests.integration.waiting import wait_until

PATIENCE_S = 90.0
FILE = """
[broker]
port = 0

[cdc.shop]
url = "{url}"
tables = ["public.items", "public.stubborn", "public.log"]
heartbeat_s = 0.2

[cdc.careful]
url = "{url}"
tables = ["public.stubborn"]
heartbeat_s = 0.2
unseen_changes = "stop"

[sync.items]
topic = "shop.public.items"
sink = "sqlite"
path = "copy.sqlite"
table = "items"

[sync.stubborn]
topic = "careful.public.stubborn"
sink = "sqlite"
path = "copy.sqlite"
table = "stubborn"
"""
CACHE = '\n[sync.cache]\ntopic = "shop.public.log"\nsink = "redis"\nurl = "redis://127.0.0.1:1/0"\nprefix = "log:"\n'


@pytest.fixture
def server() -> Iterator[CdcPostgres]:
    made = CdcPostgres(VERSIONS[-1])
    yield made
    made.end()


def test_a_copy_has_what_the_database_has(server: CdcPostgres, tmp_path: Path) -> None:
    server.execute(
        "create table items (id int primary key, gone text)",
        "insert into items select i, 'g' || i from generate_series(1, 2000) i",
        "create table stubborn (id int primary key)",
        "insert into stubborn select i from generate_series(1, 10) i",
        "create table log (line text)",
    )
    stack = RunningStack(tmp_path, FILE.format(url=server.url) + CACHE)
    refused = stack.run("up", "--check")  # a cache finds rows by a key
    assert refused.returncode == 1
    assert "[sync.cache] table public.log behind topic shop.public.log has no key, by which redis finds rows" in (
        refused.stderr
    )
    assert 'key_columns = { "public.log" = ["…"] } in [cdc.shop]' in refused.stderr
    (tmp_path / "headrace.toml").write_text(FILE.format(url=server.url))
    assert stack.run("up", "--check").returncode == 0

    stack.start()
    try:
        stack.wait_until_fine(PATIENCE_S)
        bootstrap = stack.state()["bootstrap"]

        def verified(name: str) -> dict[str, object]:
            done = stack.run("sync", "verify", name, "--source", "--json", "--bootstrap", bootstrap)
            found: dict[str, object] = json.loads(done.stdout)[0]
            assert (done.returncode == 0) == found["equal"], done
            return found

        wait_until(lambda: bool(verified("items")["equal"]), "the first rows are not there", patience_s=PATIENCE_S)
        with psycopg.connect(server.url, autocommit=True) as db:
            db.execute("alter table items add column n int default 5")  # every row has it, and the log tells none
            db.execute("alter table items add column empty text")  # no row has it
            db.execute("alter table items drop column gone")
            db.execute("insert into items values (2001)")
            db.execute("alter table stubborn add column n int default 5")

        def is_in_step() -> bool:
            with sqlite3.connect(tmp_path / "copy.sqlite") as copy:
                names = {row[1] for row in copy.execute("pragma table_info(items)").fetchall()}
                rows = copy.execute(f"select count(*), {'sum(n)' if 'n' in names else '0'} from items").fetchall()
            copy.close()
            return rows == [(2001, 2001 * 5)]

        wait_until(is_in_step, "the added column is not in the copy", patience_s=PATIENCE_S)
        wait_until(lambda: bool(verified("items")["equal"]), "it is not equal", patience_s=PATIENCE_S)

        # Where a table is not read again, the comparison with the log alone is content, and --source is not.
        def differs() -> bool:
            return verified("stubborn")["source"]["differences"] == 10  # type: ignore[index]

        wait_until(differs, "nobody notices the ten rows", patience_s=PATIENCE_S)
        told = stack.run("sync", "verify", "stubborn", "--source", "--bootstrap", bootstrap)
        assert told.returncode == 1
        assert "stubborn: equal to the log, 10 rows" in told.stdout
        assert "stubborn: headrace cdc snapshot careful public.stubborn reads the table again" in told.stdout
        assert stack.run("cdc", "snapshot", "careful", "public.stubborn", "--bootstrap", bootstrap).returncode == 0
        wait_until(lambda: bool(verified("stubborn")["equal"]), "the command did not help", patience_s=PATIENCE_S)
    finally:
        stack.end()
