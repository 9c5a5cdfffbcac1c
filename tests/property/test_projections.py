"""Whatever is appended, applied, interrupted and rebuilt in whatever order: a view is the fold of its events."""

from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headrace.eventsourcing.errors import ProjectionChanged, ProjectionFailed
from headrace.eventsourcing.memory import MemoryStore
from headrace.eventsourcing.model import StoredEvent, StreamAppend
from headrace.eventsourcing.projection import Projection, View
from headrace.eventsourcing.projection_runner import ProjectionRunner
from headrace.eventsourcing.sqlite_store import sqlite
from tests.unit.eventsourcing.bank import Deposited, types

APPEND = st.tuples(st.just("append"), st.integers(0, 2), st.lists(st.integers(0, 9), min_size=1, max_size=5))
STEP = st.tuples(st.just("step"), st.integers(0, 2), st.booleans())  # whether it is interrupted
REBUILD = st.tuples(st.just("rebuild"), st.integers(0, 2), st.booleans())
ACTIONS = st.lists(st.one_of(APPEND, STEP, STEP, REBUILD), max_size=25)


class Interrupted:
    """Interrupts a function at its next call, if it is asked to."""

    is_next = False

    def check(self) -> None:
        if self.is_next:
            self.is_next = False
            raise RuntimeError("interrupted")


def sums(version: int, interrupted: Interrupted) -> Projection:
    made = Projection("sums", types=types, version=version)

    @made.on
    def deposited(view: View, event: Deposited, stored: StoredEvent) -> None:
        row = view.get(stored.stream, {"sum": 0, "count": 0})
        view.put(stored.stream, {"sum": row["sum"] + event.amount, "count": row["count"] + 1})
        interrupted.check()

    return made


def check_actions(store: Any, actions: list[tuple[Any, ...]]) -> None:
    interrupted = Interrupted()
    # Two programs with the same code, and one with another.
    runners = [
        ProjectionRunner(store, sums(version, interrupted), batch=size) for version, size in ((1, 2), (1, 3), (2, 1))
    ]
    for what, which, how in actions:
        if what == "append":
            store.append([StreamAppend(f"s-{which}", [types.encode(Deposited(each)) for each in how])])
            continue
        interrupted.is_next = how
        runner = runners[which]
        try:
            runner.rebuild() if what == "rebuild" else runner._step(0.0)
        except ProjectionFailed:
            assert how
        except ProjectionChanged:
            assert not runner.is_current
        check_view(store, runner)
    interrupted.is_next = False
    last = next(runner for runner in runners if runner.is_current)
    assert last.catch_up() == store.last_position()
    check_view(store, last)


def check_view(store: Any, runner: ProjectionRunner) -> None:
    """The view is exactly the events up to its position."""
    sums, counts = Counter[str](), Counter[str]()
    for stored in store.read(to=runner.position):
        sums[stored.stream] += types.decode(stored).amount
        counts[stored.stream] += 1
    assert dict(runner.rows()) == {stream: {"sum": sums[stream], "count": counts[stream]} for stream in counts}


@given(ACTIONS)
def test_a_view_in_memory_is_the_fold_of_its_events(actions: list[tuple[Any, ...]]) -> None:
    check_actions(MemoryStore(), actions)


@given(ACTIONS)
def test_a_view_in_sqlite_is_the_fold_of_its_events(actions: list[tuple[Any, ...]]) -> None:
    with TemporaryDirectory() as folder:
        store = sqlite(Path(folder) / "events.db")
        try:
            check_actions(store, actions)
        finally:
            store.close()
