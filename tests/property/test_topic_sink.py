"""The two-phase sink against real coordinators in a simulated world: time passes, processes die, tasks come too late.

Each coordinator looks for transactions that are out of time on its own. Between any two requests of a driver time may
pass, the driver may die (before the request arrives, or before its answer does), or another may do the same work.
"""

from collections.abc import Callable, Iterator
from random import Random
from types import SimpleNamespace
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from headrace.client.cluster import Cluster
from headrace.client.errors import Refused
from headrace.client.transactions import Transaction, Transactions, TransactionStatus
from headrace.coordinator.transaction.machine import TransactionConfig
from headrace.model import TopicPartition
from headrace.pipelines.errors import PipelineError
from headrace.pipelines.sink.topic.decisions import Decision, Part
from headrace.pipelines.sink.topic.phases import Names, finish
from headrace.protocol.messages.describe_transactions import DescribeTransactionsRequest
from headrace.protocol.messages.end_txn import EndTxnRequest
from headrace.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tests.property.storage_model import examples
from tests.unit.coordinator.transaction.small_shell import SmallShell

TIMEOUT_MS, SWEEP_MS, COORDINATORS = 60_000, 10_000, 2
RESERVE_MS = TIMEOUT_MS // 4


class Died(Exception):
    """The process is gone."""


class World:
    """Coordinators that share a time, and what happens between the requests that they get."""

    def __init__(self) -> None:
        config = TransactionConfig(abort_timed_out_interval_ms=SWEEP_MS)
        self.shells = [SmallShell(config) for _ in range(COORDINATORS)]
        for node, shell in enumerate(self.shells):
            shell.next_producer_id += 1_000_000 * node
            shell.now_ms += node * SWEEP_MS // COORDINATORS  # so each sweeps at another time
        self.script: Iterator[Callable[[], None] | str] = iter(())
        self.passed_ms = 0
        self.begun_after_ms: int | None = None  # when whoever commits first had looked at the transactions

    def wait(self, ms: int) -> None:
        self.passed_ms += ms
        for shell in self.shells:
            shell.wait(ms)
            shell.finish()

    def request(self, looks: list[int], node: int, request: Any, response: Any, highest: int | None = None) -> Any:
        """What a connection does."""
        event = next(self.script, "")
        if callable(event):
            event()
        if event == "dies before":
            raise Died
        if isinstance(request, FindCoordinatorRequest):
            nodes = [SimpleNamespace(error_code=0, node_id=home_of(key)) for key in request.coordinator_keys]
            return SimpleNamespace(coordinators=nodes) if response is FindCoordinatorResponse else None
        if isinstance(request, DescribeTransactionsRequest):
            looks.append(self.passed_ms)
        versions = request.__schema__.versions
        answer = self.shells[node].request(request, min(highest if highest is not None else 99, max(versions)))
        if isinstance(request, EndTxnRequest) and request.committed and not answer.error_code:
            self.begun_after_ms = looks[-1] if self.begun_after_ms is None else self.begun_after_ms
        if event == "dies after":
            raise Died
        return answer

    def cluster(self) -> Cluster:
        """What a process sees of it."""
        looks = [self.passed_ms]
        connections = [
            SimpleNamespace(
                request=lambda request, response, node=node, highest=None: self.request(
                    looks, node, request, response, highest
                ),
                version_of=lambda _: 99,
            )
            for node in range(COORDINATORS)
        ]
        found = SimpleNamespace(
            brokers=lambda: SimpleNamespace(addresses=dict(enumerate(connections))),
            broker=lambda node: connections[node],
            coordinators={},
            any_broker=lambda: connections[0],
            run_with_retries=lambda attempt, **_: attempt(),
            pause=lambda _: [shell.finish() for shell in self.shells],
        )
        return cast("Cluster", found)

    def write(self, name: str) -> Transaction:
        """What a task does, up to the message to its driver."""
        transactions = Transactions(self.cluster())
        transaction = transactions.begin(name, TIMEOUT_MS)
        transactions.add(transaction, [TopicPartition("out", 0)])
        return transaction

    def standings(self, decision: Decision) -> list[TransactionStatus]:
        transactions = Transactions(self.cluster())
        return [transactions.look(part.transaction).status for part in decision.parts]


def home_of(transactional_id: str) -> int:
    """By its last character, because most of the rest is chosen at random."""
    return ord(transactional_id[-1]) % COORDINATORS


def run_to_the_end(world: World, decision: Decision) -> bool | None:
    """Whether a batch is committed, by a driver that nothing happens to any more; None if it is in part."""
    world.script = iter(())
    try:
        return finish(world.cluster(), decision)
    except PipelineError:  # the only one there is
        return None


PAUSES = st.sampled_from([0, 0, 0, 0, 10, 3_000, 20_000, 70_000])
EVENTS = st.one_of(
    st.just(""),
    st.tuples(st.just("wait"), PAUSES),
    st.just("dies before"),
    st.just("dies after"),
    st.just("another"),
    st.just("late task"),
)


@examples(300)
@given(
    pauses=st.lists(PAUSES, min_size=1, max_size=4),
    before=PAUSES,
    events=st.lists(EVENTS, max_size=25),
    away=PAUSES,
    chance=st.randoms(use_true_random=False),
)
def test_a_batch_is_seen_whole_or_not_at_all(
    pauses: list[int], before: int, events: list[Any], away: int, chance: Random
) -> None:
    """In part only if the reserve went by between the look at its transactions and the last of its commits."""
    world = World()
    names, late = Names(), Names()
    written = []
    for pause in pauses:
        written.append(world.write(names.next("q", 0)))
        world.wait(pause)
    world.wait(before)
    chance.shuffle(written)
    decision = Decision("q", 0, tuple(map(Part, written)))
    is_nested = False

    def happen(event: Any) -> Callable[[], None] | str:
        def act() -> None:
            nonlocal is_nested
            if event == "another" and not is_nested:
                is_nested = True
                script, world.script = world.script, iter(())
                run_to_the_end(world, decision)
                world.script = script
                is_nested = False
            elif event == "late task":
                script, world.script = world.script, iter(())
                late._process = (0, "")  # a worker of its own
                world.write(late.next("q", 0))
                world.script = script
            elif isinstance(event, tuple):
                world.wait(event[1])

        return event if event in ("dies before", "dies after") else act

    world.script = map(happen, events)
    result: bool | None
    try:
        result = finish(world.cluster(), decision)
    except (Died, PipelineError):
        result = None
    world.script = iter(())
    if result is None:
        world.wait(away)
        result = run_to_the_end(world, decision)
    standings = world.standings(decision)
    if result is None:
        assert world.begun_after_ms is not None
        assert world.passed_ms - world.begun_after_ms >= RESERVE_MS, standings
    else:
        assert set(standings) == ({TransactionStatus.COMMITTED} if result else {TransactionStatus.LOST}), (
            result,
            standings,
        )
        assert run_to_the_end(world, decision) is result, "who comes later sees it otherwise"


@given(
    pauses=st.lists(st.sampled_from([0, 1_000, 20_000, 44_000]), min_size=1, max_size=4),
    chance=st.randoms(use_true_random=False),
)
def test_a_driver_that_is_alive_never_commits_in_part(pauses: list[int], chance: Random) -> None:
    """However the tasks' first writes lie in time; whoever began first."""
    world = World()
    names = Names()
    written = []
    for pause in pauses:
        written.append(world.write(names.next("q", 0)))
        world.wait(pause)
    chance.shuffle(written)
    decision = Decision("q", 0, tuple(map(Part, written)))
    is_in_time = sum(pauses) <= TIMEOUT_MS - RESERVE_MS
    assert run_to_the_end(world, decision) is is_in_time
    assert set(world.standings(decision)) == {TransactionStatus.COMMITTED if is_in_time else TransactionStatus.LOST}


def test_a_late_begin_of_another_process_aborts_nothing() -> None:
    world = World()
    names, others = Names(), Names()
    decision = Decision("q", 0, tuple(Part(world.write(names.next("q", 0))) for _ in range(3)))
    world.write(others.next("q", 0))
    assert world.standings(decision) == [TransactionStatus.OPEN] * 3
    assert run_to_the_end(world, decision) is True


def test_ids_are_used_again_in_the_next_batch_and_never_in_the_same() -> None:
    names = Names()
    first = [names.next("q", 0) for _ in range(3)]
    assert len(set(first)) == 3
    assert [names.next("q", 1) for _ in range(2)] == first[:2]
    assert names.next("q", 1) == first[2]
    assert names.next("other", 1) not in first


def test_what_was_aborted_cannot_be_committed_and_the_other_way_round() -> None:
    world = World()
    transactions = Transactions(world.cluster())
    one, other = world.write("one"), world.write("other")
    assert transactions.commit(one)
    assert not transactions.abort(one)
    assert transactions.abort(other)
    assert not transactions.commit(other)
    world.wait(1)
    assert not transactions.abort(one)
    try:
        transactions.commit(Transaction("never", 1, 1))
    except Refused:
        pass
    else:
        raise AssertionError("an id that nobody knows was committed")
