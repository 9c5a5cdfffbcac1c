"""Money is conserved: under crashes at random points, with several who transfer at once, and when all is replayed."""

import threading

from hypothesis import given
from hypothesis import strategies as st

from headrace.eventsourcing import (
    EventStore,
    MemoryStore,
    NewEvent,
    ProcessRunner,
    ProjectionRunner,
    Repository,
    StreamAppend,
)
from headrace.testing import FakeClock
from tests.property.bank import Crash, CrashingStore, accounts, in_flight, statements, transfers
from tests.property.storage_model import examples

NAMES = ("ann", "bob", "cy", "dan")
PUT_IN = 10_000
wishes = st.lists(
    st.tuples(st.sampled_from(NAMES), st.sampled_from((*NAMES, "nobody")), st.integers(1, 2 * PUT_IN)), max_size=12
)
plans = st.lists(st.sampled_from(["go on", "go on", "go on", "before", "after"]), max_size=60)


def open_bank(store: EventStore) -> Repository:
    repository = Repository(store)
    for name in NAMES:
        repository.handle(accounts.account, name, accounts.OpenAccount(name))
        repository.handle(accounts.account, name, accounts.Deposit(PUT_IN))
    repository.handle(accounts.account, "dan", accounts.Withdraw(PUT_IN))
    repository.handle(accounts.account, "dan", accounts.CloseAccount())
    return repository


def request(repository: Repository, number: int, source: str, target: str, cents: int) -> None:
    name = f"t{number}"
    repository.handle(
        accounts.transfer, name, accounts.RequestTransfer(name, source, target, cents), command_id=f"request {name}"
    )


def balances(store: EventStore) -> dict[str, int]:
    repository = Repository(store)
    return {name: repository.load(accounts.account, name).state.cents for name in NAMES}


def check(store: EventStore, count: int) -> None:
    """All transfers are over, all money is there, nobody owes any, and every view says the same."""
    repository = Repository(store)
    ended = [repository.load(accounts.transfer, f"t{number}") for number in range(count)]
    assert {each.state.status for each in ended} <= {"done", "failed"}
    assert {each.version for each in ended} <= {2}  # requested, and ended once
    found = balances(store)
    assert sum(found.values()) == (len(NAMES) - 1) * PUT_IN
    assert min(found.values()) >= 0
    assert in_flight(store) == 0
    seen = ProjectionRunner(store, statements.balances)
    seen.catch_up()
    assert {name: seen.get(f"account-{name}")["cents"] for name in NAMES} == found


@given(wishes, plans)
@examples(60)
def test_money_is_conserved_whatever_crashes_when(drawn, plan):
    store, steps = MemoryStore(), iter(plan)
    open_bank(store)
    drawn = [wish for wish in drawn if wish[0] != wish[1]]
    for number, wish in enumerate(drawn):
        while True:  # whoever crashes begins anew, and knows nothing but what is stored
            try:
                request(Repository(CrashingStore(store, steps)), number, *wish)
                ProcessRunner(CrashingStore(store, steps), transfers.transferring).settle()
                break
            except Crash:
                assert sum(balances(store).values()) + in_flight(store) == (len(NAMES) - 1) * PUT_IN
    check(store, len(drawn))
    again = MemoryStore()  # what is replayed into another store is the same bank
    copy_events(store, again)
    assert balances(again) == balances(store)


def copy_events(store: EventStore, other: MemoryStore) -> None:
    for each in store.read():
        event = NewEvent(each.type, each.data, each.tags, each.schema, each.id, each.time_ms)
        other.append([StreamAppend(each.stream, [event], each.version - 1)], command_id="")


def test_money_is_conserved_with_several_who_transfer_at_once():
    store = MemoryStore()
    open_bank(store)
    errors: list[BaseException] = []

    def work(first: int) -> None:
        try:
            for number in range(first, first + 25):
                source, target = NAMES[number % 3], NAMES[(number + 1 + first // 25) % 4]
                if source != target:
                    request(Repository(store), number, source, target, 1 + number * 37 % 6_000)
        except BaseException as error:
            errors.append(error)

    with ProcessRunner(store, transfers.transferring), ProcessRunner(store, transfers.transferring):
        threads = [threading.Thread(target=work, args=(first,)) for first in (0, 25, 50)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    ProcessRunner(store, transfers.transferring).settle()
    assert errors == []
    requested = [stored for stored in store.read() if stored.type == "transfer-requested"]
    ended = [stored for stored in store.read() if stored.type in ("transfer-done", "transfer-failed")]
    assert sorted(each.stream for each in requested) == sorted(each.stream for each in ended)
    assert sum(balances(store).values()) == (len(NAMES) - 1) * PUT_IN
    assert min(balances(store).values()) >= 0
    assert in_flight(store) == 0


def test_a_large_transfer_waits_for_somebody_to_approve_it():
    store, clock = MemoryStore(), FakeClock()
    bank = Repository(store, clock=clock)
    for name in ("ann", "bob"):
        bank.handle(accounts.account, name, accounts.OpenAccount(name))
        bank.handle(accounts.account, name, accounts.Deposit(3 * transfers.LARGE_CENTS))
    for number in (0, 1):
        request(bank, number, "ann", "bob", transfers.LARGE_CENTS)
    ProcessRunner(store, transfers.transferring, clock=clock).settle()
    assert balances_of(bank) == (3, 3)
    bank.handle(accounts.transfer, "t0", accounts.ApproveTransfer("t0", "carol"))
    ProcessRunner(store, transfers.transferring, clock=clock).settle()
    assert balances_of(bank) == (2, 4)
    clock.advance(transfers.APPROVAL_S * 1000 + 1)
    ProcessRunner(store, transfers.transferring, clock=clock).settle()
    assert balances_of(bank) == (2, 4)
    assert bank.load(accounts.transfer, "t1").state.status == "failed"


def balances_of(bank: Repository) -> tuple[float, float]:
    ann, bob = (bank.load(accounts.account, name).state.cents / transfers.LARGE_CENTS for name in ("ann", "bob"))
    return ann, bob


def test_money_that_goes_round_and_many_withdrawals_are_watched():
    store, clock = MemoryStore(), FakeClock()
    bank = Repository(store, clock=clock)
    for name in ("ann", "bob", "cy"):
        bank.handle(accounts.account, name, accounts.OpenAccount(name))
        bank.handle(accounts.account, name, accounts.Deposit(PUT_IN))
    request(bank, 0, "ann", "bob", 500)
    ProcessRunner(store, transfers.transferring, clock=clock).settle()
    request(bank, 1, "bob", "ann", 500)
    ProcessRunner(store, transfers.transferring, clock=clock).settle()
    for _ in range(statements.MANY + 1):
        bank.handle(accounts.account, "cy", accounts.Withdraw(1))
    watch = ProjectionRunner(store, statements.fraud_watch)
    watch.catch_up()
    assert watch.get("account-bob")["why"] == "money went round with ann"
    assert watch.get("account-cy")["why"] == "6 withdrawals within ten minutes"
    assert watch.get("account-ann") is None
