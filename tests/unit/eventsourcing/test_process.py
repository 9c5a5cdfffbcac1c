"""Processes: events lead to commands, each carried out once, with deadlines and compensation."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from headrace.eventsourcing import Repository
from headrace.eventsourcing.errors import InvalidAppend, InvalidProcess, ProcessFailed, StoreUnavailable
from headrace.eventsourcing.memory import MemoryStore
from headrace.eventsourcing.model import StreamAppend, where
from headrace.eventsourcing.process import Cancel, End, Process, Send, Todo, Wait
from headrace.eventsourcing.process_effects import EffectRunner
from headrace.eventsourcing.process_runner import ProcessRunner
from headrace.eventsourcing.sqlite_store import sqlite
from headrace.testing.clock import FakeClock
from headrace.testing.events import follow
from tests.unit.eventsourcing.transfers import (
    OVERDUE_S,
    Close,
    Confirmed,
    Deposit,
    Deposited,
    Open,
    Refund,
    Requested,
    Withdraw,
    Withdrawn,
    account,
    transferring,
    types,
)
from tests.unit.eventsourcing.transfers import Transfer as State

PATIENCE_S = 60.0


@dataclass
class Mailing:
    count: int = 0


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    store: Any = MemoryStore() if request.param == "memory" else sqlite(tmp_path / "events.db")
    accounts = Repository(store)
    accounts.handle(account, "ann", Open(150))
    accounts.handle(account, "bob", Open(0))
    yield store
    store.close()


def put(store: Any, stream: str, *events: Any) -> int:
    return int(store.append([StreamAppend(stream, [types.encode(each) for each in events])]).position)


def request(store: Any, name: str, amount: int, target: str = "bob") -> int:
    return put(store, f"transfer-{name}", Requested(name, "ann", target, amount))


def balances(store: Any) -> tuple[int, int]:
    accounts = Repository(store)
    return accounts.load(account, "ann").state.balance, accounts.load(account, "bob").state.balance


def test_an_event_leads_to_commands(store: Any) -> None:
    runner = ProcessRunner(store, transferring)
    request(store, "t1", 30)
    runner.settle()
    assert balances(store) == (120, 30)
    assert runner.state("t1") == State("ann", "bob", 30, "done")
    assert runner.status().facts["open"] == 0
    (withdrawn,) = store.read(where(types=["withdrawn"]))
    (requested,) = store.read(where(types=["transfer-requested"]))
    assert withdrawn.causation_id == withdrawn.correlation_id == requested.id
    assert withdrawn.headers == {"process": "transferring-t1"}
    assert requested.id in withdrawn.command_id


def test_what_a_process_did_not_ask_for_is_not_its_business(store: Any) -> None:
    runner = ProcessRunner(store, transferring)
    Repository(store).handle(account, "ann", Withdraw(10))
    put(store, "transfer-t9", Confirmed("t9"))  # of a transfer that nobody requested
    runner.settle()
    assert balances(store) == (140, 0)
    assert runner.history("t9") == []


def test_a_refused_command_is_made_up_for(store: Any) -> None:
    runner = ProcessRunner(store, transferring)
    Repository(store).handle(account, "bob", Close())
    request(store, "t1", 30)
    request(store, "t2", 1000)
    runner.settle()
    assert balances(store) == (150, 0)
    assert runner.state("t1").status == "refunded"
    assert runner.state("t2").status == "refused: there are only 120"
    (refunded,) = store.read(where(types=["refunded"]))
    assert types.decode(refunded).reason == "the account is closed"


def test_a_deadline_that_passes_and_one_that_is_cancelled(store: Any) -> None:
    clock = FakeClock()
    runner = ProcessRunner(store, transferring, clock=clock)
    request(store, "slow", 100)
    runner.settle()
    assert balances(store) == (50, 0)
    clock.advance(OVERDUE_S * 1000 - 1)
    runner.settle()
    assert runner.state("slow").status == "withdrawn"
    later = ProcessRunner(store, transferring, clock=clock)  # a deadline is kept over a restart
    assert later.instance("slow").deadlines == {"overdue": clock.now_ms() + 1}
    clock.advance(1)
    later.settle()
    assert balances(store) == (150, 0)
    runner.settle()  # and fires once
    assert balances(store) == (150, 0)
    assert later.state("slow").status == "overdue"

    request(store, "quick", 120)
    later.settle()
    put(store, "transfer-quick", Confirmed("quick"))
    later.settle()
    clock.advance(OVERDUE_S * 2000)
    later.settle()
    assert balances(store) == (30, 120)
    assert later.state("quick").status == "done"


def test_nothing_is_done_twice_whoever_begins_anew_wherever(store: Any) -> None:
    """As if each runner were killed after each of its steps, and two ran at once."""
    Repository(store).handle(account, "cid", Open(0))
    Repository(store).handle(account, "cid", Close())
    for number in range(4):
        request(store, f"t{number}", 10, "bob" if number % 2 else "cid")
    for _ in range(60):
        ProcessRunner(store, transferring, batch=1)._advance(0.0)
    one, other = ProcessRunner(store, transferring), ProcessRunner(store, transferring)
    request(store, "t4", 10)
    while one._advance(0.0) | other._advance(0.0):
        pass
    assert balances(store) == (120, 30)
    counted = [each.type for each in store.read()]
    assert (counted.count("withdrawn"), counted.count("deposited"), counted.count("refunded")) == (5, 3, 2)
    assert [one.state(f"t{number}").status for number in range(5)] == ["refunded", "done", "refunded", "done", "done"]


class _Crash(BaseException):
    """As a process that is killed: nobody catches it."""


class _Crashing:
    """A store whose program dies at an append, before it is stored or after."""

    def __init__(self, store: Any, appends: int, *, is_stored: bool) -> None:
        self._store, self._left, self._is_stored = store, appends, is_stored

    def append(self, *arguments: Any, **more: Any) -> Any:
        self._left -= 1
        if self._left < 0:
            if self._is_stored:
                self._store.append(*arguments, **more)
            raise _Crash
        return self._store.append(*arguments, **more)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


class _Failing:
    """A store that is away for each append once, before it is stored or after."""

    def __init__(self, store: Any) -> None:
        self._store, self._seen = store, dict[str, int]()

    def append(self, *arguments: Any, command_id: str = "", **more: Any) -> Any:
        self._seen[command_id] = tries = self._seen.get(command_id, 0) + 1
        if tries == 1:
            if len(self._seen) % 2:
                self._store.append(*arguments, command_id=command_id, **more)
            raise StoreUnavailable("it is away")
        return self._store.append(*arguments, command_id=command_id, **more)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def test_a_store_that_is_away_now_and_then_loses_nothing(store: Any) -> None:
    clock, failing = FakeClock(), _Failing(store)
    runner = ProcessRunner(failing, transferring, clock=clock)  # type: ignore[arg-type]
    request(store, "t1", 10)
    request(store, "t2", 20)
    request(store, "overdue", 100)

    def settle() -> int:
        for failures in count():
            try:
                runner.settle()
            except StoreUnavailable:
                continue
            return failures
        raise AssertionError

    assert settle() > 5
    assert balances(store) == (20, 30)
    clock.advance(OVERDUE_S * 1000)
    assert settle() > 0
    assert balances(store) == (120, 30)
    assert [runner.state(name).status for name in ("t1", "t2", "overdue")] == ["done", "done", "overdue"]


@pytest.mark.parametrize("is_stored", [True, False])
def test_a_program_may_die_at_every_append(is_stored: bool) -> None:
    for appends in range(1, 40):
        store, clock = MemoryStore(), FakeClock()
        for name, amount in (("ann", 150), ("bob", 0), ("cid", 0)):
            Repository(store).handle(account, name, Open(amount))
        Repository(store).handle(account, "cid", Close())
        request(store, "done", 30)
        request(store, "refunded", 20, "cid")
        request(store, "refused", 1000)
        request(store, "overdue", 100)
        for runs in count():  # each program lives for one append more than the one before
            dying: Any = _Crashing(store, appends % 7 + runs, is_stored=is_stored)
            runner = ProcessRunner(dying, transferring, clock=clock)
            try:
                runner.settle()
                clock.advance(OVERDUE_S * 1000)
                runner.settle()
                break
            except _Crash:
                if runs == appends // 7:  # what may have been refused would not be any more
                    Repository(store).handle(account, "cid", Open(0))
        statuses = [runner.state(name).status for name in ("done", "refused", "overdue")]
        assert statuses[0] == "done"
        assert statuses[1].startswith("refused")
        assert statuses[2] == "overdue"
        accounts = {name: Repository(store).load(account, name).state.balance for name in ("ann", "bob", "cid")}
        assert sum(accounts.values()) == 150
        assert accounts["cid"] == (20 if runner.state("refunded").status == "done" else 0)
        kinds = [each.type for each in store.read(where(category="account"))]
        assert (kinds.count("withdrawn"), kinds.count("deposited") + kinds.count("refunded")) == (3, 3)


def test_a_runner_begins_with_what_the_one_before_has_saved(store: Any) -> None:
    clock = FakeClock()
    request(store, "t1", 100)
    first = ProcessRunner(store, transferring, clock=clock)
    first.settle()
    first._save()
    first = ProcessRunner(store, transferring, clock=clock)
    read = list[int]()
    first.store = _Watched(store, read)  # type: ignore[assignment]
    clock.advance(OVERDUE_S * 1000)
    first.settle()
    assert first.state("t1").status == "overdue"
    assert min(read) > 0


class _Watched:
    """A store that notes from where it is read."""

    def __init__(self, store: Any, read: list[int]) -> None:
        self._store, self._read = store, read

    def read(self, *arguments: Any, after: int = 0, **more: Any) -> Any:
        self._read.append(after)
        return self._store.read(*arguments, after=after, **more)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def test_processes_run_in_a_thread(store: Any) -> None:
    with ProcessRunner(store, transferring) as runner:
        request(store, "t1", 30)
        done = threading.Event()
        for _ in range(1000):
            if runner.state("t1").status == "done":
                done.set()
                break
            store.wait(store.last_position(), 0.05)
        assert done.is_set()
        assert runner.status().state == "running"
    assert runner.status().state == "stopped"


def test_a_new_process_may_leave_history_alone(store: Any) -> None:
    position = request(store, "old", 30)
    runner = ProcessRunner(store, transferring, after=position)
    request(store, "new", 10)
    runner.settle()
    assert balances(store) == (140, 10)


def test_a_process_followed_without_a_store() -> None:
    started = [Requested("t1", "ann", "bob", 100), Withdrawn(100)]
    process = follow(transferring).event(started[0]).then(Send("account", "ann", Withdraw(100)))
    process.then_state(State("ann", "bob", 100, "requested"))
    process.event(started[1]).then(Wait("overdue", OVERDUE_S * 1000))
    process.deadline("overdue").then(Send("account", "ann", Refund(100, "nobody confirmed it")), End())
    process = follow(transferring).event(started[0]).event(started[1]).event(Confirmed("t1"))
    process.then(Cancel("overdue"), Send("account", "bob", Deposit(100)))
    process.refused(Deposit(100), "closed").then(Send("account", "ann", Refund(100, "closed")), End())
    with pytest.raises(AssertionError, match=r"Close.* was not sent"):
        process.refused(Close(), "why")
    with pytest.raises(AssertionError):
        follow(transferring).event(started[0]).then(End())


def test_effects_are_sent_once_and_tried_again(store: Any, tmp_path: Path) -> None:
    ProcessRunner(store, transferring).settle()
    for number in range(3):
        request(store, f"t{number}", 10)
    ProcessRunner(store, transferring).settle()
    sent, tried, is_back = list[str](), dict[str, int](), threading.Event()

    def send(payload: Any, key: str) -> None:
        tried[key] = tried.get(key, 0) + 1
        if key == "transferring-t1/3" and tried[key] == 1:
            raise OSError("not now")
        if key == "transferring-t2/3" and not is_back.is_set():
            raise OSError("never")
        sent.append(f"{key}: {payload['text']}")

    effects = EffectRunner(
        store, transferring, send, outbox=f"sqlite:///{tmp_path}/outbox.db", attempts=2, first_pause_s=0.001
    )
    for _ in range(2):
        effects.settle()
    assert sent == ["transferring-t0/3: 10 from ann to bob", "transferring-t1/3: 10 from ann to bob"]
    (failed,) = effects.failed()
    assert (failed.key, failed.attempts, failed.error) == ("transferring-t2/3", 2, "OSError: never")
    request(store, "t3", 10)
    ProcessRunner(store, transferring).settle()
    effects.settle()
    assert "transferring-t3/3" not in tried  # it is behind one that failed, in the same lane
    is_back.set()
    assert effects.retry_failed() == 1
    effects.settle()
    assert [each.partition(":")[0] for each in sent[2:]] == ["transferring-t2/3", "transferring-t3/3"]
    assert tried["transferring-t0/3"] == 1


@dataclass
class Nothing:
    count: int = 0


def test_effects_of_a_store_that_was_set_back_are_not_passed_over(tmp_path: Path) -> None:
    outbox, sent = f"sqlite:///{tmp_path}/outbox.db", list[str]()
    for name, count_ in (("first", 2), ("second", 1)):
        store = sqlite(tmp_path / f"{name}.db")
        process = Process("mailing", Mailing, types=types)

        @process.starts("transfer")
        def requested(state: Mailing, event: Requested, todo: Todo) -> None:
            todo.effect({"about": event.transfer})

        for number in range(count_):
            put(store, f"transfer-{name}{number}", Requested(f"{name}{number}", "ann", "bob", 1))
        ProcessRunner(store, process).settle()
        effects = EffectRunner(store, process, lambda payload, _: sent.append(payload["about"]), outbox=outbox)
        if name == "first":
            effects.settle()
        else:
            with pytest.raises(ProcessFailed, match="was set back or replaced"):
                effects.settle()
        store.close()
    assert sorted(sent) == ["first0", "first1"]


def test_a_runner_that_died_of_a_mistake_is_not_said_to_run(store: Any) -> None:
    process = Process("mistaken", Mailing, types=types)

    @process.starts("no_such_field")
    def requested(state: Mailing, event: Requested, todo: Todo) -> None: ...

    request(store, "1", 100)
    runner = ProcessRunner(store, process).start()
    assert runner._thread is not None
    runner._thread.join(10)
    status = runner.status()
    assert status.state == "failed"
    assert "no_such_field" in status.facts["problem"]


def test_deadlines_that_were_moved_do_not_pile_up(store: Any) -> None:
    process = Process("moving", Mailing, types=types)

    @process.starts("target")
    def requested(state: Mailing, event: Requested, todo: Todo) -> None:
        todo.wait("late", 3600)

    @process.deadline("late")
    def late(state: Mailing, todo: Todo) -> None: ...

    clock = FakeClock()
    runner = ProcessRunner(store, process, clock=clock)
    for number in range(250):
        clock.advance(1)
        request(store, str(number), 1)
        runner.settle()
    assert runner._open is not None
    assert len(runner._open._due) <= 101


def test_a_function_that_fails_says_where(store: Any) -> None:
    broken = Process("broken", Nothing, sends=[account], types=types)

    @broken.starts("transfer")
    def requested(state: Nothing, event: Requested, todo: Todo) -> None:
        raise ValueError("odd")

    position = request(store, "t1", 30)
    with pytest.raises(
        ProcessFailed,
        match=rf"'broken-t1' could not go on with Requested of event 1 .*position {position}\): ValueError: odd",
    ):
        ProcessRunner(store, broken).settle()


def test_a_refusal_that_nobody_expected_is_a_problem_of_that_process_alone(store: Any) -> None:
    simple = Process("simple", Nothing, sends=[account], types=types)

    @simple.starts("transfer")
    def requested(state: Nothing, event: Requested, todo: Todo) -> None:
        todo.send(account, event.source, Withdraw(event.amount))

    @simple.on
    def withdrawn(state: Nothing, event: Withdrawn, todo: Todo) -> None:
        state.count += 1

    request(store, "t1", 1000)
    request(store, "t2", 10)
    runner = ProcessRunner(store, simple)
    runner.settle()
    assert runner.instance("t1").problem == "Withdraw for account 'ann' was refused: there are only 150"
    assert runner.state("t2").count == 1


def _begins_never() -> None:
    ProcessRunner(MemoryStore(), Process("never", Nothing, types=types))


def _sends_elsewhere() -> None:
    made = Process("elsewhere", Nothing, types=types)

    @made.starts("transfer")
    def requested(state: Nothing, event: Requested, todo: Todo) -> None:
        todo.send(account, "ann", Withdraw(1))

    _run_once(made)


def _waits_for_nothing() -> None:
    made = Process("waiting", Nothing, types=types)

    @made.starts("transfer")
    def requested(state: Nothing, event: Requested, todo: Todo) -> None:
        todo.wait("overdu", 1)

    _run_once(made)


def _run_once(made: Process[Any]) -> None:
    store = MemoryStore()
    put(store, "transfer-1", Requested("1", "a", "b", 1))
    ProcessRunner(store, made).settle()


def _twice() -> None:
    made = Process("twice", Nothing, types=types)
    for _ in range(2):

        @made.on
        def deposited(state: Nothing, event: Deposited, todo: Todo) -> None: ...


def _wrong_shape() -> None:
    @Process("wrong", Nothing, types=types).starts("transfer")
    def requested(state: Nothing, event: Requested) -> None: ...


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (_begins_never, "process 'never' begins with no event: register one"),
        (_sends_elsewhere, "sends to aggregate 'account', which is not among its `sends`: add it"),
        (_waits_for_nothing, "waits for 'overdu', and has no function for that deadline"),
        (_twice, "process 'twice' has two functions for Deposited: keep one"),
        (_wrong_shape, "requested must be a plain function of a state, an event or command"),
        (lambda: Process("odd", dict), "the state of process 'odd' is not a dataclass"),
        (lambda: Process("state", Nothing).on("x")(_reads_path), "Path is not an event"),
    ],
)
def test_what_cannot_be_a_process(make: Callable[[], Any], sentence: str) -> None:
    with pytest.raises((InvalidProcess, ProcessFailed, InvalidAppend), match=sentence):
        make()


def _reads_path(state: Nothing, event: Path, todo: Todo) -> None: ...
