"""Views made of events: rows and position in one transaction, rebuilt beside, waited for."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from headrace.eventsourcing.errors import (
    InvalidAppend,
    InvalidProjection,
    ProjectionChanged,
    ProjectionFailed,
    StoreUnavailable,
    UnknownEventType,
    ViewBehind,
)
from headrace.eventsourcing.memory import MemoryStore
from headrace.eventsourcing.model import NewEvent, StoredEvent, StreamAppend
from headrace.eventsourcing.projection import Projection, View
from headrace.eventsourcing.projection_runner import ProjectionRunner, project_inline
from headrace.eventsourcing.sqlite_store import sqlite
from headrace.eventsourcing.views import MemoryViews
from headrace.retry import Backoff
from tests.unit.eventsourcing.bank import Deposited, Opened, Withdrawn, types

PATIENCE_S = 60.0


def balances(*, factor: int = 1, before: Callable[[StoredEvent], None] | None = None, **more: Any) -> Projection:
    """What each account has, as a view; with another factor it is other code. `before` is called for each event."""
    made = Projection("balances", types=types, category="account", **more)

    @made.on
    def opened(view: View, event: Opened, stored: StoredEvent) -> None:
        if before is not None:
            before(stored)
        view.put(stored.stream, {"owner": event.owner, "balance": 0})

    @made.on
    def moved(view: View, event: Deposited | Withdrawn, stored: StoredEvent) -> None:
        if before is not None:
            before(stored)
        row = view.get(stored.stream)
        amount = event.amount if isinstance(event, Deposited) else -event.amount
        view.put(stored.stream, {**row, "balance": row["balance"] + factor * amount})

    return made


def totals() -> Projection:
    """What was ever paid in, in a table with columns."""
    made = Projection(
        "totals",
        tables={"deposits": "position bigint PRIMARY KEY, amount bigint NOT NULL", "last": ""},
        indexes={"deposits": ["amount"]},
        types=types,
    )

    @made.on
    def deposited(view: View, event: Deposited, stored: StoredEvent) -> None:
        view.write("INSERT INTO {deposits} VALUES (?, ?)", (stored.position, event.amount))
        view.table("last").put("deposit", {"amount": event.amount, "note": "{deposits}"})

    return made


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    store: Any = MemoryStore() if request.param == "memory" else sqlite(tmp_path / "events.db")
    yield store
    store.close()


@pytest.fixture
def in_sqlite(tmp_path: Path) -> Iterator[Any]:
    store = sqlite(tmp_path / "events.db")
    yield store
    store.close()


def put(store: Any, stream: str, *events: Any) -> int:
    new = [each if isinstance(each, NewEvent) else types.encode(each) for each in events]
    return int(store.append([StreamAppend(stream, new)]).position)


def test_rows_are_made_of_events_batch_by_batch(store: Any) -> None:
    put(store, "account-1", Opened("ann"), Deposited(5), Withdrawn(2))
    put(store, "order-1", Deposited(7))
    last = put(store, "account-2", Opened("bob"), Deposited(1))
    runner = ProjectionRunner(store, balances(), batch=2)
    assert runner.position == 0
    assert runner.catch_up() == last
    rows = {"account-1": {"owner": "ann", "balance": 3}, "account-2": {"owner": "bob", "balance": 1}}
    assert dict(runner.rows()) == rows
    assert (runner.get("account-2"), runner.get("account-9")) == (rows["account-2"], None)
    again = ProjectionRunner(store, balances())
    last = put(store, "account-1", Deposited(1))
    assert again.catch_up() == last
    assert again.get("account-1")["balance"] == 4
    assert again.status().facts == {
        "kind": "projection", "state": "stopped", "position": last, "lag_records": 0, "target": str(store)
    }  # fmt: skip


def test_own_tables_in_sql(in_sqlite: Any) -> None:
    put(in_sqlite, "account-1", Deposited(5), Deposited(7))
    runner = ProjectionRunner(in_sqlite, totals())
    runner.catch_up()
    assert runner.query("SELECT sum(amount) FROM {deposits} WHERE amount > ?", (1,)) == [(12,)]
    assert runner.get("deposit", table="last") == {"amount": 7, "note": "{deposits}"}
    for _ in range(2):  # also its index is made anew
        runner.rebuild()
        assert runner.query("SELECT count(*) FROM {deposits}") == [(2,)]
        assert runner.get("deposit", table="last")["amount"] == 7
    put(in_sqlite, "account-1", Deposited(1))
    runner.catch_up()
    assert runner.query("SELECT sum(amount) FROM {deposits}") == [(13,)]


def test_what_the_database_does_not_take_says_where(in_sqlite: Any) -> None:
    made = Projection("once", tables={"amounts": "amount bigint PRIMARY KEY"}, types=types)
    ways: dict[str, Callable[..., Any]] = {}

    @made.on
    def deposited(view: View, event: Deposited) -> None:
        ways["way"](view, "INSERT INTO {amounts} VALUES (?)", (event.amount,))

    put(in_sqlite, "account-1", Deposited(5), Deposited(5))
    runner = ProjectionRunner(in_sqlite, made)
    ways["way"] = lambda view, *more: view.run(*more)
    with pytest.raises(ProjectionFailed, match=r"event 2 of stream .*do not take it: UNIQUE constraint failed"):
        runner.catch_up()
    ways["way"] = lambda view, *more: view.write(*more)
    with pytest.raises(ProjectionFailed, match=r"could not write events at positions 1 to 2: .*UNIQUE constraint"):
        runner.catch_up()
    assert runner.query("SELECT count(*) FROM {amounts}") == [(0,)]


class _Away:
    """A store that is away for some time."""

    def __init__(self, store: Any, times: int) -> None:
        self._store, self._times = store, times

    def wait(self, after: int, timeout_s: float) -> bool:
        if self._times:
            self._times -= 1
            raise StoreUnavailable("it is away")
        return bool(self._store.wait(after, timeout_s))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def test_a_runner_goes_on_when_the_store_is_back(store: Any) -> None:
    position, away = put(store, "account-1", Opened("ann")), Backoff(first_s=0.001, longest_s=0.01)
    with ProjectionRunner(_Away(store, 3), balances(), views=MemoryViews(), retry=away) as runner:  # type: ignore[arg-type]
        runner.wait_for(position, PATIENCE_S)
    for_good = ProjectionRunner(_Away(store, 9), balances(), views=MemoryViews(), retry=away.at_most(2))  # type: ignore[arg-type]
    with pytest.raises(StoreUnavailable, match="it is away"):
        for_good.run()
    assert (for_good.status().state, for_good.status().text("problem")) == ("failed", "it is away")


def test_a_runner_beside_an_event_loop(store: Any) -> None:
    async def write_and_read(runner: ProjectionRunner) -> Any:
        running = asyncio.create_task(runner.run_async())
        await runner.wait_for_async(await asyncio.to_thread(put, store, "account-1", Opened("ann")), PATIENCE_S)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        return runner.get("account-1")

    runner = ProjectionRunner(store, balances())
    assert asyncio.run(write_and_read(runner)) == {"owner": "ann", "balance": 0}
    assert runner.status().state == "stopped"


def test_a_function_that_fails_leaves_rows_and_position_as_they_were(store: Any) -> None:
    put(store, "account-1", Opened("ann"))
    runner = ProjectionRunner(store, balances())
    at = runner.catch_up()
    put(store, "account-1", Deposited(1))
    put(store, "account-7", Deposited(1))  # there is no such row
    for _ in range(2):
        with pytest.raises(
            ProjectionFailed,
            match=r"'balances' could not apply event 1 of stream 'account-7' \(position 3\): TypeError",
        ):
            runner.catch_up()
    assert (runner.position, runner.get("account-1")["balance"]) == (at, 0)


def test_a_user_reads_what_was_just_written(store: Any) -> None:
    with ProjectionRunner(store, balances()) as runner:
        for amount in range(1, 4):
            events = [Opened("ann"), Deposited(1)] if amount == 1 else [Deposited(1)]
            runner.wait_for(put(store, "account-1", *events), PATIENCE_S)
            assert runner.get("account-1")["balance"] == amount
        runner.wait_for(put(store, "order-1", Deposited(1)), PATIENCE_S)  # also what is not in the view
        assert runner.status().state == "running"
    position = put(store, "account-1", Deposited(1))
    with pytest.raises(ViewBehind, match=f"'balances' is at position {position - 1}, and {position} was waited for"):
        runner.wait_for(position, 0.05)


def test_who_waits_is_told_that_the_projection_failed(store: Any) -> None:
    with (
        ProjectionRunner(store, balances()) as runner,
        pytest.raises(ProjectionFailed, match="could not apply event 1"),
    ):
        runner.wait_for(put(store, "account-1", Deposited(1)), PATIENCE_S)
    assert runner.status().state == "failed"
    assert "could not apply event 1" in runner.status().text("problem")


def test_other_code_is_noticed_and_rebuilds_beside(store: Any) -> None:
    put(store, "account-1", Opened("ann"), Deposited(5))
    old = ProjectionRunner(store, balances())
    old.catch_up()
    new = ProjectionRunner(store, balances(factor=2))
    assert not new.is_current
    with pytest.raises(ProjectionChanged, match=r"'balances' \(at position 2\) was made by other code"):
        new.catch_up()
    put(store, "account-1", Deposited(1))
    old.catch_up()
    assert new.get("account-1")["balance"] == 6
    assert "other code" in new.status().text("problem")
    new.rebuild()
    assert (new.get("account-1")["balance"], new.is_current, new.position) == (12, True, 3)
    put(store, "account-1", Deposited(1))
    new.catch_up()
    assert new.get("account-1")["balance"] == 14
    with pytest.raises(ProjectionChanged):
        old.catch_up()
    kept = ProjectionRunner(store, balances(version=2), on_change="keep")
    put(store, "account-1", Deposited(1))
    kept.catch_up()
    assert kept.get("account-1")["balance"] == 15
    rebuilt = ProjectionRunner(store, balances(version=3), on_change="rebuild")
    put(store, "account-1", Deposited(1))
    rebuilt.catch_up()
    assert rebuilt.get("account-1")["balance"] == 9


def test_a_view_is_read_while_it_is_rebuilt(in_sqlite: Any) -> None:
    put(in_sqlite, "account-1", Opened("ann"), Deposited(5))
    old = ProjectionRunner(in_sqlite, balances())
    old.catch_up()
    building, go_on = threading.Event(), threading.Event()

    def hold(_: StoredEvent) -> None:
        building.set()
        assert go_on.wait(PATIENCE_S)

    new = ProjectionRunner(in_sqlite, balances(factor=2, before=hold))
    thread = threading.Thread(target=new.rebuild)
    thread.start()
    assert building.wait(PATIENCE_S)
    assert old.get("account-1")["balance"] == 5
    go_on.set()
    thread.join(PATIENCE_S)
    assert new.get("account-1")["balance"] == 10


def test_a_rebuild_comes_as_far_as_the_old_view_before_it_takes_its_place(store: Any) -> None:
    put(store, "account-1", Opened("ann"), Deposited(5))
    old, seen = ProjectionRunner(store, balances()), dict[int, int]()
    old.catch_up()

    def go_ahead(stored: StoredEvent) -> None:
        if stored.position == 1 and not seen:
            seen[1] = 1
            raise RuntimeError("interrupted")

    new = ProjectionRunner(store, balances(factor=2, before=go_ahead), batch=1)
    with pytest.raises(ProjectionFailed, match="RuntimeError: interrupted"):
        new.rebuild()
    last = put(store, "account-1", Deposited(1))
    old.catch_up()
    new.rebuild()
    assert (new.position, new.get("account-1")["balance"]) == (last, 12)


def test_a_rebuild_goes_on_where_it_was_interrupted(store: Any) -> None:
    put(store, "account-1", Opened("ann"), *[Deposited(1)] * 9)
    ProjectionRunner(store, balances()).catch_up()
    seen = dict[int, int]()

    def count(stored: StoredEvent) -> None:
        seen[stored.position] = seen.get(stored.position, 0) + 1
        if seen.get(6) == 1 and stored.position == 6:
            raise RuntimeError("interrupted")

    runner = ProjectionRunner(store, balances(factor=3, before=count), batch=2)
    with pytest.raises(ProjectionFailed):
        runner.rebuild()
    runner.rebuild()
    assert runner.get("account-1")["balance"] == 27
    assert [seen[position] for position in range(1, 11)] == [1, 1, 1, 1, 2, 2, 1, 1, 1, 1]


def test_of_two_runners_one_applies_each_event(store: Any) -> None:
    put(store, "account-1", Opened("ann"))
    one, other = ProjectionRunner(store, balances(), batch=1), ProjectionRunner(store, balances(), batch=3)
    one.catch_up()
    other.catch_up()
    for amount in range(1, 20):
        put(store, "account-1", Deposited(1))
        (one, other)[amount % 2].catch_up()
    last = store.last_position()
    threads = [threading.Thread(target=each.catch_up) for each in (one, other)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert (one.position, one.get("account-1")["balance"]) == (last, 19)


def test_rows_changed_by_hand_are_what_runners_go_on_with(store: Any) -> None:
    put(store, "account-1", Opened("ann"), Deposited(5))
    runner, other = ProjectionRunner(store, balances()), ProjectionRunner(store, balances())
    runner.catch_up()
    with other.edit() as view:
        view.put("account-1", {"owner": "", "balance": 100})
        view.delete("account-2")
    with suppress(KeyError), other.edit() as view:  # all or nothing
        view.put("account-1", {"owner": "never"})
        raise KeyError
    put(store, "account-1", Deposited(1))
    runner.catch_up()
    assert runner.get("account-1") == {"owner": "", "balance": 101}


def test_events_that_cannot_be_decoded(store: Any) -> None:
    put(store, "account-1", Opened("ann"), NewEvent("deposited", b'{"amount": "x"}'), Deposited(1))
    runner = ProjectionRunner(store, balances())
    with pytest.raises(Exception, match=r"event 2 of stream 'account-1' .*'x' is not int"):
        runner.catch_up()
    skipping = ProjectionRunner(store, balances(), on_invalid="skip")
    skipping.catch_up()
    assert skipping.get("account-1")["balance"] == 1
    for _ in range(2):
        (letter,) = skipping.dead_letters()
        assert (letter.offset, letter.key, letter.value) == (2, b"account-1", b'{"amount": "x"}')
        assert "'x' is not int" in letter.reason
        assert skipping.status().number("dead_letters") == 1
        skipping.rebuild()


def test_an_append_projects_inline(in_sqlite: Any) -> None:
    put(in_sqlite, "account-1", Opened("ann"), Deposited(5))
    runner = project_inline(in_sqlite, balances())
    assert runner.get("account-1")["balance"] == 5
    last = put(in_sqlite, "account-1", Deposited(2))
    assert (runner.get("account-1")["balance"], runner.position) == (7, last)
    elsewhere = sqlite(in_sqlite.path)  # does not project, and is made up for
    put(elsewhere, "account-1", Deposited(1))
    elsewhere.close()
    assert runner.get("account-1")["balance"] == 7
    last = put(in_sqlite, "order-1", Deposited(100))
    assert (runner.get("account-1")["balance"], runner.position) == (8, last)
    with pytest.raises(ProjectionFailed, match="could not apply event 1 of stream 'account-9'"):
        put(in_sqlite, "account-9", Deposited(1))
    assert in_sqlite.last_position() == last
    assert list(in_sqlite.read_stream("account-9")) == []
    runner.rebuild()
    last = put(in_sqlite, "account-1", Deposited(1))
    assert (runner.get("account-1")["balance"], runner.position) == (9, last)


def test_inline_elsewhere_is_refused() -> None:
    with pytest.raises(InvalidProjection, match="cannot be inline in memory: only events in SQLite or PostgreSQL"):
        project_inline(MemoryStore(), balances())


def test_a_view_in_another_place_than_the_events(tmp_path: Path, store: Any) -> None:
    put(store, "account-1", Opened("ann"), Deposited(5))
    runner = ProjectionRunner(store, balances(), views=f"sqlite:///{tmp_path}/views.db")
    runner.catch_up()
    runner.close()
    again = ProjectionRunner(store, balances(), views=f"sqlite:///{tmp_path}/views.db")
    assert (again.position, again.get("account-1")["balance"]) == (2, 5)
    again.close()


def _async_function(made: Projection) -> None:
    @made.on
    async def opened(view: View, event: Opened) -> None: ...


def _unannotated(made: Projection) -> None:
    @made.on
    def opened(view: View, event) -> None: ...  # type: ignore[no-untyped-def]


def _twice(made: Projection) -> None:
    @made.on
    def opened(view: View, event: Opened) -> None: ...

    @made.on
    def opened_again(view: View, event: Opened) -> None: ...


def _no_event(made: Projection) -> None:
    @made.on
    def opened(view: View, event: Path) -> None: ...


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Projection("a-b"), "projection 'a-b' cannot be a table's name: use letters"),
        (lambda: Projection("a", tables="rows"), r"tables='rows' is one text: give a list"),
        (lambda: Projection("a", indexes={"b": ["c"]}), "has no table 'b' to index"),
        (lambda: Projection("a", types=types).query, "projection 'a' has no functions: register one"),
        (lambda: _async_function(Projection("a", types=types)), "opened is async, and a view's transaction"),
        (lambda: _unannotated(Projection("a", types=types)), "must take a view and an event, whose type is annotated"),
        (lambda: _twice(Projection("a", types=types)), "two functions for Opened, .*opened and .*opened_again"),
        (lambda: _no_event(Projection("a", types=types)), "Path is not an event: declare it with @event"),
        (lambda: ProjectionRunner(MemoryStore(), balances(), on_change="x"), "on_change='x' is not possible: choose"),  # type: ignore[arg-type]
        (lambda: ProjectionRunner(MemoryStore(), totals()), "kept in memory, which has no SQL"),
        (lambda: ProjectionRunner(MemoryStore(), balances(), views="redis:"), "views are kept at sqlite:///path"),
        (lambda: balances().table_named("balance"), "has no table 'balance': did you mean 'balances'"),
    ],
)
def test_what_cannot_be_projected(make: Callable[[], Any], sentence: str) -> None:
    with pytest.raises((InvalidProjection, InvalidAppend), match=sentence):
        make()


def test_a_table_that_is_somebody_elses_is_not_touched(in_sqlite: Any) -> None:
    with in_sqlite.pool.borrow() as db:
        db.run("CREATE TABLE balances (mine text)")
    with pytest.raises(InvalidProjection, match=r"table 'balances' in SQLite .* is there already and is not that of"):
        ProjectionRunner(in_sqlite, balances())


def test_unknown_types_are_not_the_projections_business(store: Any) -> None:
    put(store, "account-1", Opened("ann"), NewEvent("renamed", b"{}"))
    runner = ProjectionRunner(store, balances())
    assert runner.catch_up() == 2
    with pytest.raises(UnknownEventType):
        types.decode(next(iter(store.read(after=1))))


def test_a_store_that_was_set_back_is_not_taken_for_one_without_news(tmp_path: Path) -> None:
    views = f"sqlite:///{tmp_path}/views.db"
    for name, owners in (("first", ["ann", "bob", "cy"]), ("second", ["dee"])):
        store = sqlite(tmp_path / f"{name}.db")
        for owner in owners:
            store.append([StreamAppend(f"account-{owner}", [types.encode(Opened(owner))])])
        runner = ProjectionRunner(store, balances(), views=views)
        if name == "first":
            assert runner.catch_up() == 3
        else:
            with pytest.raises(ProjectionFailed, match=r"is at position 3, and .* ends at 1: .* rebuild"):
                runner.catch_up()
            runner.rebuild()
            assert [key for key, _ in runner.rows()] == ["account-dee"]
            assert runner.catch_up() == 1
        runner.close()
        store.close()


def test_several_rebuild_at_once(store: Any) -> None:
    for number in range(300):
        store.append([StreamAppend(f"account-{number}", [types.encode(Opened("ann"))])])
    ProjectionRunner(store, balances()).catch_up()
    failures = list[Exception]()

    def rebuild() -> None:
        try:
            ProjectionRunner(store, balances(), batch=10).rebuild()
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=rebuild) for _ in range(3)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not failures
    assert len([*ProjectionRunner(store, balances()).rows()]) == 300
