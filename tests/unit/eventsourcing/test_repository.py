"""Commands become events or are refused; conflicts are retried; commands are done once; snapshots follow their fold."""

import asyncio
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from headrace.eventsourcing import (
    Aggregate,
    AsyncRepository,
    BoundaryConflict,
    Conflict,
    EventTypes,
    MemoryStore,
    Refused,
    Repository,
    Snapshots,
    refuse,
    sqlite,
    where,
)
from headrace.eventsourcing.errors import InvalidAppend, InvalidCommand, UnknownEventType
from headrace.eventsourcing.model import NewEvent, Snapshot, StoredEvent, StreamAppend
from headrace.retry import Backoff
from headrace.testing import FakeClock
from tests.unit.eventsourcing.bank import (
    Account,
    CheckIn,
    Deposit,
    Deposited,
    Open,
    Opened,
    Withdraw,
    Withdrawn,
    account,
)

# More than there are appends in any test here: whoever conflicts was overtaken by one of them.
AT_ONCE = Backoff(first_s=0.0, longest_s=0.0, retries=200)


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    made = MemoryStore() if request.param == "memory" else sqlite(tmp_path / "events.db")
    yield made
    made.close()


@pytest.fixture
def bank(store: Any) -> Repository:
    return Repository(store, retry=AT_ONCE, clock=FakeClock(1_000))


# --- one command


def test_a_command_becomes_events_and_they_become_state(bank: Repository) -> None:
    assert bank.load(account, "7").version == 0
    done = bank.handle(account, "7", Open("ann", gift=5), command_id="c1", headers={"ip": "::1"})
    assert done.events == (Opened("ann"), Deposited(5))
    assert done.appended is not None
    assert done.appended.versions == {"account-7": 2}
    assert bank.handle(account, "7", Withdraw(3), correlation_id="r", causation_id="e").events == (Withdrawn(3),)
    assert (bank.load(account, "7").state, bank.load(account, "7").version) == (Account("ann", 2), 3)
    assert bank.load(account, "7", to=2).state == Account("ann", 5)
    first, _, third = bank.store.read_stream("account-7")
    assert (first.time_ms, first.causation_id, first.correlation_id, first.command_id) == (1_000, "c1", "c1", "c1")
    assert (first.tags, dict(first.headers)) == (("owner:ann",), {"ip": "::1"})
    assert (third.causation_id, third.correlation_id, third.command_id) == ("e", "r", "")


def test_a_command_that_is_refused_writes_nothing(bank: Repository) -> None:
    with pytest.raises(Refused) as refused:
        bank.handle(account, "7", Withdraw(3))
    assert refused.value.reason == str(refused.value) == "there are only 0"
    assert bank.store.last_position() == 0


def test_commands_and_decisions_of_a_wrong_shape(bank: Repository) -> None:
    with pytest.raises(InvalidCommand, match="'account' decides about no command Withdrawn: did you mean 'Withdraw'"):
        bank.handle(account, "7", Withdrawn(3))
    with pytest.raises(InvalidCommand, match="use an AsyncRepository"):
        bank.handle(account, "7", CheckIn())
    odd = Aggregate("odd", Account)

    @odd.decide
    def text(state: Account, command: Open) -> str:
        return "opened"

    @odd.decide
    def unknown(state: Account, command: Deposit) -> Deposit:
        return command

    with pytest.raises(InvalidCommand, match="decided 'opened', which is not an event"):
        bank.handle(odd, "7", Open("ann"))
    with pytest.raises(InvalidAppend, match="Deposit is not an event: declare it with @event"):
        bank.handle(odd, "7", Deposit(1))
    with pytest.raises(InvalidCommand, match=r"command Deposit cannot be .*: its field 'amount' is a str and not int"):
        bank.handle(account, "7", Deposit("x"))  # type: ignore[arg-type]
    assert bank.store.last_position() == 0


def test_a_command_is_done_once(bank: Repository) -> None:
    first = bank.handle(account, "7", Open("ann", gift=5), command_id="c1")
    again = bank.handle(account, "7", Open("ann", gift=5), command_id="c1")  # which is refused by now
    assert again.is_repeat
    assert (again.result, again.events, again.appended) == (None, (), replace(first.appended, is_repeat=True))
    for _ in range(2):
        bank.handle(account, "7", Deposit(1), command_id="c2")
    assert bank.load(account, "7").state.balance == 6
    with pytest.raises(Refused):
        bank.handle(account, "7", Open("bob"), command_id="c3")


# --- several at once


class Overtaken(MemoryStore):
    """Somebody else is first, so many times."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.times = times

    def append(self, appends: Sequence[StreamAppend], **more: Any) -> Any:
        if self.times:
            self.times -= 1
            data = b'{"amount":1}'
            super().append([StreamAppend(appends[0].stream, [NewEvent("deposited", data, ("owner:ann",))])])
        return super().append(appends, **more)


def test_a_conflict_is_retried_as_often_as_allowed() -> None:
    bank = Repository(Overtaken(3), retry=AT_ONCE.at_most(3))
    assert bank.handle(account, "7", Deposit(10)).events == (Deposited(10),)
    assert bank.load(account, "7").state.balance == 13
    bank = Repository(Overtaken(3), retry=AT_ONCE.at_most(2))
    with pytest.raises(Conflict, match="is at version 3, and version 2 was expected"):
        bank.handle(account, "7", Deposit(10))
    assert bank.load(account, "7").state.balance == 3


def test_what_is_decided_again_may_be_refused() -> None:
    bank = Repository(Overtaken(1), retry=AT_ONCE)
    only_first = Aggregate("account", Account, types=account.types)

    @only_first.decide
    def once(state: Account, command: Deposit) -> Deposited:
        if state.balance:
            refuse("somebody was first")
        return Deposited(command.amount)

    only_first.evolve(account._evolvers[Deposited])
    with pytest.raises(Refused, match="somebody was first"):
        bank.handle(only_first, "7", Deposit(10))


def test_several_streams_change_together_and_no_money_is_lost(bank: Repository) -> None:
    for name in "abc":
        bank.handle(account, name, Open(name, gift=100))

    def transfer(number: int) -> bool:
        source, target = "abc"[number % 3], "abc"[(number * 7 + 1) % 3]
        if source == target:
            return False

        def move(work: Any) -> None:
            work.handle(account, source, Withdraw(number % 60))
            work.handle(account, target, Deposit(number % 60))

        try:
            bank.run(move, command_id=f"transfer-{number % 40}")
        except Refused:
            return False
        return True

    with ThreadPoolExecutor(6) as pool:
        assert any(pool.map(transfer, range(80)))
    balances = [bank.load(account, name).state.balance for name in "abc"]
    assert sum(balances) == 300
    assert min(balances) >= 0
    events = list(bank.store.read(where(types=["withdrawn"])))
    assert len({each.command_id for each in events}) == len(events)


def test_what_one_work_decided_its_next_decision_sees(bank: Repository) -> None:
    def spend(work: Any) -> int:
        work.handle(account, "7", Open("ann", gift=5))
        work.handle(account, "7", Withdraw(3))
        with pytest.raises(Refused, match="only 2"):
            work.handle(account, "7", Withdraw(3))
        return int(work.load(account, "7").version)

    done = bank.run(spend)
    assert done.result == 3
    assert done.events == (Opened("ann"), Deposited(5), Withdrawn(3))
    assert bank.load(account, "7").version == 3
    assert bank.run(lambda work: work.load(account, "7").state.balance).result == 2


def test_two_aggregates_of_a_name_have_states_of_their_own(bank: Repository) -> None:
    visits = Aggregate("account", Places, types=account.types)
    visits.evolve(_count)
    bank.handle(account, "7", Open("ann"))

    def look(work: Any) -> tuple[Any, Any]:
        return work.load(account, "7").state, work.load(visits, "7").state

    assert bank.run(look).result == (Account("ann"), Places(1))


def _count(state: "Places", event: Opened) -> None:
    state.taken += 1


# --- by a query

types = EventTypes()


@types.event("enrolled", tags=["course", "student"])
@dataclass(frozen=True)
class Enrolled:
    course: str
    student: str


@dataclass(frozen=True)
class Enrol:
    course: str
    student: str


@dataclass
class Places:
    taken: int = 0


places = Aggregate("places", Places, types=types)


@places.decide
def enrol(state: Places, command: Enrol) -> Enrolled:
    if state.taken >= 3:
        refuse("the course is full")
    return Enrolled(command.course, command.student)


@places.evolve
def enrolled(state: Places, event: Enrolled) -> None:
    state.taken += 1


def test_a_decision_by_a_query_is_guarded_over_all_streams(bank: Repository) -> None:
    """A course has three places, and each student a stream: no stream's version guards the places."""

    def take(number: int) -> bool:
        query, command = where(tags=["course:x"]), Enrol("x", str(number))
        try:
            bank.run(lambda work: work.handle_within(places, query, command, stream=f"student-{number}"))
        except Refused:
            return False
        return True

    with ThreadPoolExecutor(6) as pool:
        assert sum(pool.map(take, range(12))) == 3
    assert len(list(bank.store.read(where(tags=["course:x"])))) == 3


def test_decisions_of_one_work_see_each_other_by_whatever_they_were_loaded(store: Any) -> None:
    """By a query, by a stream and by another query: what one of them decides, all see, and so does a snapshot."""
    bank = Repository(store, snapshots=Snapshots(every=1))

    def enrol_twice(work: Any) -> tuple[int, int, int]:
        work.handle(places, "x", Enrol("x", "ann"))
        work.handle_within(places, where(tags=["course:x"]), Enrol("x", "bob"), stream="places-x")
        work.handle_within(places, where(tags=["student:bob"]), Enrol("y", "bob"), stream="places-y")
        work.handle(places, "x", Enrol("x", "cy"))
        with pytest.raises(Refused, match="full"):
            work.handle_within(places, where(tags=["course:x"]), Enrol("x", "dee"), stream="places-x")
        with pytest.raises(Refused, match="full"):
            work.handle(places, "x", Enrol("x", "dee"))
        by_student = work.part_within(places, where(tags=["student:bob"])).state.taken
        return work.load(places, "x").version, work.load(places, "x").state.taken, by_student

    done = bank.run(enrol_twice)
    assert done.result == (3, 3, 2)
    students = [types.decode(each).student for each in store.read_stream("places-x")]
    assert students == ["ann", "bob", "cy"]  # in the order in which it was decided
    assert bank.load(places, "x").state == Repository(store).load(places, "x").state == Places(3)


def test_a_boundary_that_was_overtaken_too_often_is_a_conflict() -> None:
    bank = Repository(Overtaken(3), retry=AT_ONCE.at_most(0))
    query = where(tags=["owner:ann"])
    with pytest.raises(BoundaryConflict, match=r"an event at position 1 matches \(tag owner:ann\)"):
        bank.run(lambda work: work.handle_within(account, query, Deposit(1), stream="any"))


# --- asynchronously


def test_decisions_may_be_async(store: Any) -> None:
    async def run() -> None:
        bank = AsyncRepository(store, retry=AT_ONCE)
        assert (await bank.handle(account, "7", CheckIn())).events == (Deposited(1),)
        assert (await bank.handle(account, "7", CheckIn())).appended is None
        with pytest.raises(Refused):
            await bank.handle(account, "7", Withdraw(9))
        await bank.handle(account, "7", Open("ann"), command_id="c")
        assert (await bank.handle(account, "7", Open("ann"), command_id="c")).is_repeat
        await asyncio.gather(*(bank.handle(account, "7", Deposit(1)) for _ in range(8)))

        async def move(work: Any) -> None:
            state = (await work.load(account, "7")).state
            await work.handle(account, "7", Withdraw(state.balance))
            await work.handle(account, "8", Deposit(state.balance))
            await work.handle_within(places, where(tags=["course:y"]), Enrol("y", "ann"), stream="student-ann")

        await bank.run(move)
        assert (await bank.load(account, "8")).state.balance == 9

    asyncio.run(run())


# --- snapshots


class Counting:
    """A store that counts the events it was asked for."""

    def __init__(self, store: Any) -> None:
        self.store, self.read = store, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)

    def read_stream(self, *what: Any, **part: Any) -> Iterator[StoredEvent]:
        for event in self.store.read_stream(*what, **part):
            self.read += 1
            yield event


def test_async_decisions_that_are_begun_at_once_see_each_other(store: Any) -> None:
    types = EventTypes()
    types.event("taken", tags=())(Taken)
    purse = Aggregate("purse", Account, types=types)

    @purse.decide
    async def take(state: Account, command: Withdraw) -> Taken:
        await asyncio.sleep(0)
        if state.balance:
            refuse("it is taken")
        return Taken(command.amount)

    @purse.evolve
    def taken(state: Account, event: Taken) -> Account:
        return replace(state, balance=event.amount)

    async def take_all(work: Any) -> list[Any]:
        begun = [work.handle(purse, "7", Withdraw(amount)) for amount in (1, 2, 3)]
        return await asyncio.gather(*begun, return_exceptions=True)

    done = asyncio.run(AsyncRepository(store).run(take_all))
    assert done.result is not None
    assert [type(each) for each in done.result] == [list, Refused, Refused]
    assert [types.decode(each) for each in store.read()] == list(done.events) == [Taken(1)]


@dataclass(frozen=True)
class Taken:
    amount: int


def test_a_snapshot_by_count_saves_reading(store: Any) -> None:
    counting: Any = Counting(store)
    bank = Repository(counting, retry=AT_ONCE, snapshots=Snapshots(every=10))
    for _ in range(25):
        bank.handle(account, "7", Deposit(1))
    assert counting.read < 25 * 10
    counting.read = 0
    assert bank.load(account, "7").state.balance == 25
    assert counting.read == 5
    assert bank.load(account, "7", to=3).state.balance == 3
    assert Repository(store).load(account, "7").state.balance == 25


def test_a_snapshot_by_cost(store: Any) -> None:
    assert Snapshots(cost_ms=5).is_due(1, 0.005)
    assert not Snapshots(cost_ms=5).is_due(1, 0.004)
    assert not Snapshots().is_due(10**9, 10**9)
    bank = Repository(store, snapshots=Snapshots(cost_ms=1e-9))
    bank.handle(account, "7", Deposit(1))
    assert store.read_snapshot("account-7", account.fingerprint) is not None


def test_a_snapshot_of_another_fold_or_a_broken_one_is_not_used(store: Any) -> None:
    bank = Repository(store, snapshots=Snapshots(every=1))
    bank.handle(account, "7", Deposit(1))
    store.delete_snapshots("account-7")
    store.write_snapshot("account-7", Snapshot(1, "another fold", b'{"owner":"x","balance":99}'))
    assert bank.load(account, "7").state.balance == 1
    store.write_snapshot("account-7", Snapshot(1, account.fingerprint, b'{"owner":1}'))
    assert bank.load(account, "7").state.balance == 1


def test_an_event_of_an_unknown_type_is_an_error_of_its_stream_alone(bank: Repository) -> None:
    bank.store.append([StreamAppend("account-7", [NewEvent("gone", b"{}")])])
    with pytest.raises(UnknownEventType, match=r"event 1 of stream 'account-7' .* has the type 'gone'"):
        bank.handle(account, "7", Deposit(1))
    assert bank.handle(account, "8", Deposit(1)).events == (Deposited(1),)
