"""Aggregates as they were, step by step, and under changed code; and where snapshots are kept for stores without."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from headrace.eventsourcing import (
    Aggregate,
    EventSourcingError,
    MemoryStore,
    Repository,
    Snapshots,
    StreamAppend,
    redact,
    sqlite,
)
from headrace.eventsourcing.errors import InvalidCommand
from headrace.eventsourcing.model import Snapshot, StreamInfo
from headrace.eventsourcing.travel import MISSING, Change, changes_between, compare_folds, state_as_json
from headrace.testing import FakeClock
from tests.unit.eventsourcing.bank import (
    Account,
    Deposit,
    Deposited,
    Open,
    Opened,
    Withdraw,
    Withdrawn,
    account,
    types,
)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Any]:
    store = sqlite(tmp_path / "bank.db")
    yield store
    store.close()


@pytest.fixture
def bank(store: Any) -> Repository:
    """Five events of account 7, one a second, and another account's in between."""
    clock = FakeClock()
    bank = Repository(store, clock=clock, snapshots=Snapshots(every=2))
    for command in (Open("ann"), Deposit(10), Deposit(5), Withdraw(3), Deposit(1)):
        bank.handle(account, "7", command)
        bank.handle(account, "8", Deposit(1))
        clock.advance(1000)
    return bank


def balances(bank: Repository, **as_of: Any) -> tuple[int, int]:
    loaded = bank.load(account, "7", **as_of)
    return loaded.version, loaded.state.balance


def test_a_state_as_of_a_version_an_event_or_a_time(bank: Repository) -> None:
    events = list(bank.store.read_stream("account-7"))
    expected = [(0, 0), (1, 0), (2, 10), (3, 15), (4, 12), (5, 13)]
    for version, event in enumerate(events, 1):
        moment = datetime.fromtimestamp(event.time_ms / 1000, UTC)
        assert balances(bank, to=version) == expected[version]
        assert balances(bank, position=event.position) == expected[version]
        assert balances(bank, position=event.position - 1) == expected[version - 1]
        assert balances(bank, event_id=event.id) == expected[version]
        assert balances(bank, at=moment) == expected[version]
        assert balances(bank, at=datetime.fromtimestamp((event.time_ms - 1) / 1000, UTC)) == expected[version - 1]
    assert balances(bank) == balances(bank, to=99) == balances(bank, position=99) == expected[-1]
    assert balances(bank, at=datetime.now(UTC)) == expected[-1]


def test_as_of_a_time_is_a_state_that_has_been(store: Any) -> None:
    """A clock that was late makes no event leave its place."""
    times = [1000, 3000, 2000, 4000]
    store.append([StreamAppend("account-7", [types.encode(Deposited(1), time_ms=each) for each in times])])
    bank = Repository(store)
    seen = [balances(bank, at=datetime.fromtimestamp(each, UTC))[0] for each in range(5)]
    assert seen == [0, 1, 1, 3, 4]


def test_what_cannot_be_asked_for(bank: Repository) -> None:
    with pytest.raises(InvalidCommand, match="as of one thing"):
        bank.load(account, "7", to=1, position=1)
    with pytest.raises(InvalidCommand, match="has no time zone"):
        bank.load(account, "7", at=datetime(2026, 1, 1))  # noqa: DTZ001 - that is the point
    with pytest.raises(InvalidCommand, match="version -1"):
        bank.load(account, "7", to=-1)
    with pytest.raises(EventSourcingError, match="'account-7' has no event with the id 'x'"):
        bank.load(account, "7", event_id="x")


def test_step_by_step(bank: Repository) -> None:
    steps = list(bank.history(account, "7"))
    assert steps[0] == (None, Account())
    assert [each.state.balance for each in steps] == [0, 0, 10, 15, 12, 13]
    assert [each.event.type for each in steps if each.event] == [
        "opened", "deposited", "deposited", "withdrawn", "deposited",
    ]  # fmt: skip
    assert [each.state.balance for each in bank.history(account, "7", to=2)] == [0, 0, 10]


def test_differences_of_states() -> None:
    before = {"a": 1, "b": [1, {"c": 2}], "d": None, "e": 1}
    after = {"a": 1, "b": [1, {"c": 3}, 4], "e": 1.0, "f": {}}
    assert list(changes_between(before, after)) == [
        Change("b[1].c", 2, 3), Change("b[2]", MISSING, 4), Change("d", None, MISSING), Change("e", 1, 1.0),
        Change("f", MISSING, {}),
    ]  # fmt: skip
    assert list(changes_between(before, before)) == []
    assert state_as_json(Account("ann", 1)) == {"owner": "ann", "balance": 1}
    assert state_as_json(object()).startswith("<object")


def test_what_if_the_code_were_another(bank: Repository) -> None:
    """A fee for each withdrawal, over the same events."""
    changed = Aggregate("account", Account, types=types)

    @changed.evolve
    def opened(state: Account, event: Opened) -> Account:
        return replace(state, owner=event.owner)

    @changed.evolve
    def moved(state: Account, event: Deposited | Withdrawn) -> Account:
        signed = event.amount if isinstance(event, Deposited) else -event.amount - 1
        return replace(state, balance=state.balance + signed)

    @changed.evolve
    def broken(state: Account, event: Broken) -> Account:
        raise ValueError("of the new code")

    bank.store.append([StreamAppend("account-9", [types.encode(Broken())])])
    compared = {each.stream: each for each in compare_folds(bank.store, bank.store.list_streams(), account, changed)}
    assert compared["account-7"].changes == [Change("balance", 13, 12)]
    assert not compared["account-8"].differs
    [failed] = compared["account-9"].changes
    assert failed.after == "fails: ValueError: of the new code"
    assert not next(compare_folds(bank.store, [StreamInfo("account-7", 3)], account, changed)).differs


@types.event("broken")
@dataclass(frozen=True)
class Broken:
    pass


# --- causes


def test_what_answers_an_event_goes_on_under_its_correlation(store: Any) -> None:
    bank = Repository(store)
    bank.handle(account, "7", Deposit(1), command_id="checkout")
    first = next(store.read_stream("account-7"))
    assert (first.causation_id, first.correlation_id) == ("checkout", "checkout")
    bank.handle(account, "8", Deposit(2), cause=first, command_id="answer-1")
    second = next(store.read_stream("account-8"))
    assert (second.causation_id, second.correlation_id, second.command_id) == (first.id, "checkout", "answer-1")
    bank.run(lambda work: work.handle(account, "9", Deposit(3)), cause=second)
    third = next(store.read_stream("account-9"))
    assert (third.causation_id, third.correlation_id) == (second.id, "checkout")
    bank.handle(account, "10", Deposit(1))
    lone = next(store.read_stream("account-10"))
    bank.handle(account, "11", Deposit(1), cause=lone)
    answer = next(store.read_stream("account-11"))
    assert (answer.causation_id, answer.correlation_id) == (lone.id, lone.id)
    bank.handle(account, "12", Deposit(1), cause=lone, correlation_id="own", causation_id="mine")
    assert next(store.read_stream("account-12"))[9:11] == ("mine", "own")


# --- snapshots beside


class Bare:
    """A store that keeps no snapshots, and counts what is read of it."""

    def __init__(self) -> None:
        self.store, self.count = MemoryStore(), 0

    def __getattr__(self, name: str) -> Any:
        if "snapshot" in name:
            raise AttributeError(name)
        return getattr(self.store, name)

    def read_stream(self, *what: Any, **part: Any) -> Iterator[Any]:
        for event in self.store.read_stream(*what, **part):
            self.count += 1
            yield event


def test_snapshots_in_another_store(tmp_path: Path) -> None:
    bare: Any = Bare()
    with pytest.raises(InvalidCommand, match="a Bare keeps no snapshots: give the repository a snapshot_store"):
        Repository(bare, snapshots=Snapshots(every=10))
    kept = sqlite(tmp_path / "snapshots.db")
    with pytest.raises(InvalidCommand, match="of no use without a policy"):
        Repository(bare, snapshot_store=kept)
    bank = Repository(bare, snapshots=Snapshots(every=10), snapshot_store=kept)
    for _ in range(25):
        bank.handle(account, "7", Deposit(1))
    bare.count = 0
    assert bank.load(account, "7").state.balance == 25
    assert bare.count == 6  # the five since, and the one that the snapshot ends with

    other: Any = Bare()  # another store under the same name
    there = Repository(other, snapshots=Snapshots(every=10), snapshot_store=kept)
    assert there.load(account, "7") == Repository(other).load(account, "7")
    for _ in range(30):
        there.handle(account, "7", Deposit(2))
    assert there.load(account, "7").state.balance == 60
    assert bank.load(account, "7").state.balance == 25
    kept.close()


def test_what_was_redacted_is_in_no_snapshot_beside(store: Any, tmp_path: Path) -> None:
    kept = sqlite(tmp_path / "snapshots.db")
    bank = Repository(store, snapshots=Snapshots(every=2), snapshot_store=kept)
    bank.handle(account, "7", Open("ann", gift=5))
    assert kept.read_snapshot("account-7", account.fingerprint) is not None
    redact(store, "account-7", 1, reason="asked for")
    assert bank.load(account, "7", to=2).state == Account("", 5)
    assert kept.read_snapshot("account-7", account.fingerprint) is None
    for _ in range(4):
        bank.handle(account, "7", Deposit(1))
    written = kept.read_snapshot("account-7", account.fingerprint)
    assert written is not None
    assert b"ann" not in written.data
    assert bank.load(account, "7").state == Account("", 9)
    kept.close()


def test_a_snapshot_is_never_of_another_version_than_its_state(store: Any) -> None:
    """What a decision by a query appends to the same stream, the state by stream has not seen."""
    from headrace.eventsourcing import where

    bank = Repository(store, snapshots=Snapshots(every=1))

    def both(work: Any) -> None:
        work.handle(account, "7", Deposit(1))
        work.handle_within(account, where(tags=["owner:x"]), Deposit(10), stream="account-7")

    bank.run(both)
    assert bank.load(account, "7").state.balance == 11


def test_a_snapshot_by_cost_counts_what_it_would_save(store: Any) -> None:
    """A state that takes long to read from its snapshot is not written again and again."""
    written: list[int] = []

    class Watched:
        def __getattr__(self, name: str) -> Any:
            return getattr(store, name)

        def read_snapshot(self, stream: str, fold: str) -> Any:
            return store.read_snapshot(stream, fold)

        def write_snapshot(self, stream: str, snapshot: Snapshot) -> None:
            written.append(snapshot.version)
            store.write_snapshot(stream, snapshot)

        def delete_snapshots(self, stream: str) -> None:
            store.delete_snapshots(stream)

    store.append([StreamAppend("account-7", [types.encode(Deposited(1)) for _ in range(20_000)])])
    watched: Any = Watched()
    bank = Repository(watched, snapshots=Snapshots(cost_ms=10))
    for _ in range(5):
        bank.handle(account, "7", Deposit(1))
    assert written[0] == 20_001
    assert len(written) < 5
    assert bank.load(account, "7").state.balance == 20_005


def test_a_state_that_is_nested_too_deeply_is_said_to_be() -> None:
    state: list[Any] = []
    for _ in range(5_000):
        state = [state]
    assert state_as_json(state) == "a list that is nested too deeply to be shown"
