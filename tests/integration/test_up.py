"""`headrace up` with real processes: a database, its changes, a copy; killed and ended in every way."""

import os
import pty
import signal
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.integration.running_stack import COMMAND, RunningStack
from tests.integration.waiting import wait_until

FILE = """
[broker]
port = 0

[topics."shop.main.orders"]
partitions = 2

[cdc.shop]
url = "sqlite:///${DATABASE}"
tables = ["main.orders"]
partitions = 2

[sync.copy]
topic = "shop.main.orders"
sink = "sqlite"
path = "copy.db"
table = "orders"

[dashboard]
port = 0

[supervisor]
first_pause_s = 0.1
"""


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[RunningStack]:
    with closing(sqlite3.connect(tmp_path / "shop.db")) as db:
        db.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, amount INTEGER)")
        db.commit()
    made = RunningStack(tmp_path, FILE, {"DATABASE": "shop.db"})
    yield made
    made.end(signal.SIGKILL)


def order(stack: RunningStack, number: int) -> None:
    with closing(sqlite3.connect(stack.folder / "shop.db")) as db:
        db.execute("INSERT INTO orders VALUES (?, ?)", (number, number * 10))
        db.commit()


def wait_for_copy(stack: RunningStack, count: int) -> None:
    def copied() -> bool:
        if not (stack.folder / "copy.db").exists():
            return False
        with closing(sqlite3.connect(stack.folder / "copy.db")) as db:
            try:
                found = db.execute("SELECT id, amount FROM orders ORDER BY id").fetchall()
            except sqlite3.OperationalError:  # no table yet
                return False
        return bool(found == [(number, number * 10) for number in range(1, count + 1)])

    wait_until(copied, f"the copy has not {count} rows: {stack.members()}", patience_s=60)


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def see_and_quit(stack: RunningStack) -> int:
    """`headrace top` in a terminal: until it shows the broker, then q; answers its exit code."""
    ours, its = pty.openpty()
    top = subprocess.Popen(
        [*COMMAND, "top", "--every", "0.5"], cwd=stack.folder, stdin=its, stdout=its, stderr=its, start_new_session=True
    )
    os.close(its)
    with open(ours, "r+b", buffering=0) as terminal:
        seen = b""
        while b"broker" not in seen:
            seen += terminal.read(65536)
        terminal.write(b"q")
        return top.wait(60)


def test_a_stack_from_its_start_to_its_end(stack: RunningStack) -> None:
    stack.start()
    order(stack, 1)
    stack.wait_until_fine()
    wait_for_copy(stack, 1)
    shown = stack.run("status")
    assert shown.returncode == 0
    assert [line.split()[:2] for line in shown.stdout.splitlines()[1:]] == [
        ["broker", "running"], ["topics", "done"], ["cdc.shop", "running"], ["sync.copy", "running"],
        ["dashboard", "running"],
    ]  # fmt: skip
    assert "shop.main.orders" in stack.run("top", "--every", "0.5").stdout
    assert see_and_quit(stack) == 0
    followed = stack.run("sync", "status")  # commands in its folder ask its broker, whatever its port
    assert (followed.returncode, "running" in followed.stdout) == (0, True), followed
    refused = stack.run("up")
    assert refused.returncode == 1
    assert f"already runs (pid {stack.state()['pid']})" in refused.stderr

    # A part that is killed comes back, and so does the broker, where the others know it.
    address = stack.state()["bootstrap"]
    for number, name in enumerate(("cdc.shop", "broker"), start=2):
        pid = stack.members()[name]["pid"]
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda name=name, pid=pid: stack.members()[name]["pid"] not in (None, pid), f"{name} stays away")
        stack.wait_until_fine()
        order(stack, number)
        wait_for_copy(stack, number)
        assert stack.members()[name]["restarts"] == 1
    assert stack.state()["bootstrap"] == address

    pids = stack.pids()
    assert stack.end(signal.SIGINT) == 0
    assert all(map(is_gone, pids))
    ended = [line["source"] for line in stack.lines() if line["event"] == "has ended"]
    assert ended == ["dashboard", "sync.copy", "cdc.shop", "broker"]
    assert stack.run("status").returncode == 1

    # Killed itself, it takes all with it, and the next one is not kept out by what it left behind.
    stack.start("--only", "copy")
    stack.wait_until_fine()
    assert set(stack.members()) == {"broker", "topics", "sync.copy"}
    pids = stack.pids()
    stack.end(signal.SIGKILL)
    wait_until(lambda: all(map(is_gone, pids)), "children outlive a supervisor that was killed")
    down = stack.run("status")
    assert down.returncode == 1
    assert down.stdout.count(" down ") == 2
    stack.start("--only", "dashboard")
    stack.wait_until_fine()
    assert stack.end() == 0


def test_what_is_wrong_is_told_before_anything_starts(stack: RunningStack) -> None:
    (stack.folder / "headrace.toml").write_text("[broker]\nprot = 1\n[dashboard]\nport = -1\n")
    refused = stack.run("up")
    assert refused.returncode == 1
    assert refused.stdout == ""
    assert refused.stderr == (
        "headrace: headrace.toml:2: [broker] has no key 'prot': did you mean 'port'?\n"
        "headrace: headrace.toml:4: [dashboard] port is -1: it must be at least 0\n"
    )
    assert not (stack.folder / ".headrace").exists()
