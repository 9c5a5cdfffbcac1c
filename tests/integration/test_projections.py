"""Views in databases: killed runners, two runners at once, PostgreSQL."""

from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headrace import Broker
from headrace.eventsourcing.errors import InvalidProjection, ProjectionFailed, StoreUnavailable
from headrace.eventsourcing.model import StoredEvent, StreamAppend
from headrace.eventsourcing.opening import open_store
from headrace.eventsourcing.projection import Projection, View
from headrace.eventsourcing.projection_runner import ProjectionRunner, project_inline
from tests.integration.projection_worker import Counted, open_runner, types
from tests.integration.test_events_kill import is_left_alone
from tests.integration.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

WORKER = Path(__file__).with_name("projection_worker.py")
PATIENCE_S = 60.0
_NUMBERS = count()


@pytest.fixture(params=["sqlite", "postgres", "topic"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, str]]:
    """Addresses of an empty event store, and of its views if they are not there, too."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/events.db", ""
    elif request.param == "postgres":
        server = request.getfixturevalue("postgres_server")
        url = server.url
        _empty(url)
        yield f"{url}{'&' if '?' in url else '?'}table=projected{next(_NUMBERS)}", ""
        _empty(url)
    else:
        with Broker() as broker:
            yield f"kafka://{broker.bootstrap_servers}/events", f"sqlite:///{tmp_path}/views.db"


def _empty(url: str) -> None:
    import psycopg

    with psycopg.connect(url, autocommit=True) as db:
        for table in ("by_stream", "applied", "by_stream__v2", "applied__v2", "balance", "balance__v2"):
            db.execute(f"DROP TABLE IF EXISTS {table}")
        for table in ("headrace_batches", "headrace_skipped_events"):
            if db.execute("SELECT to_regclass(%s)", (table,)).fetchone() != (None,):
                db.execute(f"DELETE FROM {table} WHERE sink LIKE 'projection:%%'")


def put(store: Any, stream: str, *numbers: int) -> int:
    events = [types.encode(Counted(number)) for number in numbers]
    return int(store.append([StreamAppend(stream, events)]).position)


def run_worker(place: tuple[str, str], batch: int | str) -> subprocess.Popen[str]:
    worker = subprocess.Popen(
        [sys.executable, str(WORKER), *place, str(batch)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert worker.stdout is not None
    assert worker.stdout.readline() == "ready\n", worker.communicate()
    return worker


def sums_of(store: Any) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for each in store.read():
        found.setdefault(each.stream, {"sum": 0})["sum"] += types.decode(each).number
    return found


def test_rows_and_position_agree_when_runners_are_killed(place: tuple[str, str]) -> None:
    store = open_store(place[0])
    for turn in range(3):
        for stream in range(4):
            put(store, f"s-{stream}", *range(turn, turn + 40))
        workers = [run_worker(place, batch) for batch in (3, 5)]  # two at once, all the time
        for worker in workers:
            assert worker.stdout is not None
            for _ in range(3):
                assert worker.stdout.readline(), worker.communicate()
        for worker in workers:
            worker.kill()
        for worker in workers:
            _, errors = worker.communicate()
            assert errors == ""
    runner = open_runner(*place)
    assert runner.query("SELECT count(*) FROM {applied}") != [(0,)]
    last = runner.catch_up()
    assert dict(runner.rows(table="by_stream")) == sums_of(store)
    assert runner.query("SELECT count(*), max(position) FROM {applied}") == [(480, last)]
    runner.close()
    runner.store.close()
    store.close()


@pytest.mark.parametrize("place", ["sqlite", "postgres"], indirect=True)
def test_inline_views_agree_with_the_events_when_programs_are_killed(place: tuple[str, str]) -> None:
    server = place[0].rpartition("table=")[0].rstrip("?&")
    for _ in range(2):
        workers = [run_worker(place, "inline") for _ in range(2)]
        for worker in workers:
            assert worker.stdout is not None
            for _ in range(8):
                assert worker.stdout.readline(), worker.communicate()
        for worker in workers:
            worker.kill()
            _, errors = worker.communicate()
            assert errors == ""
        if server:
            wait_until(lambda: is_left_alone(server), "the server still works for those who were killed")
        store, runner = open_store(place[0]), open_runner(*place)
        stored = [each.position for each in store.read()]
        assert runner.query("SELECT position FROM {applied} ORDER BY position") == [(each,) for each in stored]
        assert runner.position == stored[-1]
        assert dict(runner.rows(table="by_stream")) == sums_of(store)
        runner.store.close()
        store.close()


def test_two_runners_and_writers_at_once(place: tuple[str, str]) -> None:
    store = open_store(place[0])
    workers = [run_worker(place, batch) for batch in (1, 50)]
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda writer: [put(store, f"s-{writer}", number) for number in range(25)], range(3)))
    runner = open_runner(*place)
    runner.wait_for(store.last_position(), PATIENCE_S)
    assert dict(runner.rows(table="by_stream")) == sums_of(store)
    for worker in workers:
        assert worker.poll() is None, worker.communicate()
        worker.kill()
        worker.communicate()
    runner.close()
    runner.store.close()
    store.close()


def balance(factor: int = 1) -> Projection:
    made = Projection("balance", types=types, version=factor)

    @made.on
    def counted(view: View, event: Counted, stored: StoredEvent) -> None:
        if event.number < 0:
            raise ValueError("less than nothing")
        view.put("all", {"sum": view.get("all", {"sum": 0})["sum"] + factor * event.number})

    return made


def test_a_view_is_rebuilt_while_another_runner_goes_on(place: tuple[str, str]) -> None:
    store = open_store(place[0])
    put(store, "s", *range(500))
    views = place[1] or None
    with ProjectionRunner(store, balance(), views=views) as old:
        old.wait_for(store.last_position(), PATIENCE_S)
        new = ProjectionRunner(store, balance(2), views=views, batch=20)
        done = threading.Event()

        def write() -> None:
            for _ in range(60):
                put(store, "s", 1)
            done.set()

        writer = threading.Thread(target=write)
        writer.start()
        new.rebuild()
        assert new.position >= 500
        assert done.wait(PATIENCE_S)
        writer.join()
        new.catch_up()
        assert new.get("all") == {"sum": 2 * (sum(range(500)) + 60)}
        put(store, "s", 0)
        wait_until(lambda: old.status().state == "failed", "the old code goes on with the new view")
        assert "was made by other code" in old.status().text("problem")
        new.close()
    store.close()


def test_appends_project_inline_in_every_program_that_has_it(place: tuple[str, str]) -> None:
    if place[0].startswith("kafka"):
        store = open_store(place[0])
        with pytest.raises(InvalidProjection, match=r"cannot be inline in .*: only events in SQLite or PostgreSQL"):
            project_inline(store, balance())
        with pytest.raises(InvalidProjection, match="cannot be kept in a topic beside its events: name a database"):
            ProjectionRunner(store, balance())
        store.close()
        return
    stores = [open_store(place[0]) for _ in range(3)]
    views = [project_inline(store, balance()) for store in stores[:2]]

    def write(number: int) -> None:
        for _ in range(20):
            last = put(stores[number], f"s-{number}", 1)
            if number < 2:
                assert views[number].position >= last

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(write, range(3)))  # the third does not project
    put(stores[0], "s-0", 0)
    assert [each.get("all") for each in views] == [{"sum": 60}] * 2
    last = stores[0].last_position()
    with pytest.raises(ProjectionFailed, match="ValueError: less than nothing"):
        put(stores[1], "s-1", -1)
    assert len(list(stores[0].read())) == 61
    assert views[0].position == last
    for store in stores:
        store.close()
    with pytest.raises(StoreUnavailable):
        put(stores[0], "s-0", 1)
