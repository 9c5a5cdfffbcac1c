"""A stack whose broker asks for logins: its parts log in by themselves, and nobody else comes in."""

import base64
import sqlite3
import urllib.error
import urllib.request
from contextlib import closing
from pathlib import Path

import pytest

from headrace.client.address import parse_bootstrap
from headrace.client.cluster import Cluster
from headrace.client.errors import ConnectionClosed
from tests.certificates import make_authority, make_certificate
from tests.integration.cli_runs import run_cli
from tests.integration.running_stack import RunningStack
from tests.integration.waiting import wait_until

STACK = """
[broker]
port = 0
security = "on"
{settings}

[topics."shop.main.orders"]
partitions = 2

[dashboard]
port = 0

[cdc.shop]
url = "sqlite:///shop.db"
tables = ["main.orders"]

[sync.copy]
topic = "shop.main.orders"
sink = "sqlite"
path = "copy.db"
table = "orders"
"""


def copied(file):
    if not file.exists():
        return []
    with closing(sqlite3.connect(file)) as db:
        try:
            return db.execute("SELECT id, cents FROM orders").fetchall()
        except sqlite3.OperationalError:  # no table yet
            return []


@pytest.mark.parametrize("has_tls", [pytest.param(False, marks=pytest.mark.long), True])
def test_a_whole_stack_logs_in_to_its_own_broker(tmp_path, monkeypatch, has_tls):
    settings = ""
    if has_tls:
        make_authority(tmp_path, "authority")
        store = make_certificate(tmp_path, "broker", "authority", alternative="IP:127.0.0.1")
        settings = f'settings = {{ "ssl.keystore.location" = "{store}" }}'
    with closing(sqlite3.connect(tmp_path / "shop.db")) as db, db:
        db.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, cents INTEGER)")
        db.execute("INSERT INTO orders VALUES (1, 250)")
    stack = RunningStack(tmp_path, STACK.format(settings=settings))
    secrets = tmp_path / ".headrace/security"
    try:
        stack.start()
        stack.wait_until_fine()
        wait_until(lambda: copied(tmp_path / "copy.db") == [(1, 250)], f"nothing is copied: {stack.members()}")
        bootstrap = stack.members()["broker"]["facts"]["bootstrap"]
        with Cluster(parse_bootstrap(bootstrap)) as stranger, pytest.raises(ConnectionClosed):
            stranger.brokers()
        password = (secrets / "users").read_text().partition("=")[2].strip()
        assert len(password) >= 32
        assert {path.stat().st_mode & 0o777 for path in secrets.iterdir()} == {0o600}
        assert secrets.stat().st_mode & 0o777 == 0o700
        for pid in stack.pids():
            assert password.encode() not in Path(f"/proc/{pid}/cmdline").read_bytes()
        # The dashboard asks for the broker's users.
        board = f"{stack.members()['dashboard']['facts']['url']}api/topics"
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(board)
        shown = base64.b64encode(f"headrace:{password}".encode()).decode()
        asked = urllib.request.Request(board, headers={"Authorization": f"Basic {shown}"})
        assert urllib.request.urlopen(asked).status == 200
        # Our own commands are let in by the file that the stack wrote.
        assert run_cli("topic", "list", bootstrap=bootstrap).code == 1
        monkeypatch.setenv("HEADRACE_KAFKA", str(secrets / "client.properties"))
        assert "shop.main.orders" in run_cli("topic", "list", bootstrap=bootstrap).out
        assert run_cli("user", "add", "alice", bootstrap=bootstrap, stdin="geheim\n").code == 0
        # Who did what is on record, by the broker and by the dashboard.
        monkeypatch.chdir(tmp_path)
        recorded = run_cli("audit", "--limit", "0", "--json").json_lines
        assert ("User:headrace", "ALTER_USER_SCRAM_CREDENTIALS") in {
            (event.get("principal"), event.get("api")) for event in recorded
        }
        assert ("http", "/api/topics", 401) in {
            (event["event"], event.get("path"), event.get("status")) for event in recorded
        }
    finally:
        assert stack.end() == 0
    for file in [stack.log, *(tmp_path / ".headrace").rglob("*.json"), *(tmp_path / ".headrace").rglob("*.log")]:
        assert password.encode() not in file.read_bytes()
