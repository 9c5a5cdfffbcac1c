"""Programs that append events are killed: what they were told is stored is stored, and every append is there whole."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
import pytest

from headrace.eventsourcing.model import where
from headrace.eventsourcing.postgres_store import postgres
from headrace.eventsourcing.sqlite_store import sqlite
from tests.integration.waiting import wait_until

WORKER = Path(__file__).with_name("events_worker.py")
WRITERS = ("x", "y")


def run_until_killed(kind: str, place: str, appends: int) -> dict[str, int]:
    """The last append that each writer was told is stored; each is killed while it goes on."""
    workers = {
        name: subprocess.Popen([sys.executable, str(WORKER), kind, place, name], stdout=subprocess.PIPE, text=True)
        for name in WRITERS
    }
    lines = dict.fromkeys(WRITERS, "")
    for name, worker in workers.items():
        assert worker.stdout is not None
        for _ in range(appends):
            lines[name] = worker.stdout.readline()
    for name, worker in workers.items():
        worker.kill()
        rest, _ = worker.communicate()
        whole = [line for line in rest.splitlines(keepends=True) if line.endswith("\n")]
        lines[name] = whole[-1] if whole else lines[name]
    return {name: int(line) for name, line in lines.items()}


def is_left_alone(url: str) -> bool:
    """Whether the server has ended what it did for others."""
    others = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
    with psycopg.connect(url) as db:
        return db.execute(others).fetchone() == (0,)


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_what_was_acknowledged_is_stored_whole(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    place = str(tmp_path / "events.db") if kind == "sqlite" else request.getfixturevalue("postgres_server").url
    for _ in range(3):
        told = run_until_killed(kind, place, 25)
        if kind == "postgres":
            wait_until(lambda: is_left_alone(place), "the server still works for those who were killed")
        store: Any = sqlite(place) if kind == "sqlite" else postgres(place, "killed")
        for name, last in told.items():
            first, second = list(store.read_stream(f"a-{name}")), list(store.read_stream(f"b-{name}"))
            assert len(first) > last
            assert [each.data for each in first] == [each.data for each in second]
            assert [each.version for each in first] == [int(each.data) + 1 for each in first]
            by_tag = list(store.read(where(tags=[f"writer:{name}"])))
            assert sorted(by_tag) == sorted(first + second)
        assert len(list(store.read())) == 2 * sum(len(list(store.read_stream(f"a-{name}"))) for name in WRITERS)
        store.close()
