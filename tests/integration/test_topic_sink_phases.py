"""The two phases of the topic sink without Spark: a driver that dies at every instant there is, on both brokers."""

import json
import time
import uuid
from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import pytest

from headrace.client.address import parse_bootstrap
from headrace.client.admin import create_topic
from headrace.client.cluster import Cluster
from headrace.client.fetch import FetchOptions
from headrace.client.offsets import bounds
from headrace.client.reader import read_records
from headrace.client.transactions import Transactions
from headrace.pipelines.clusters import close_clusters
from headrace.pipelines.errors import PipelineError
from headrace.pipelines.sink.topic.decisions import Decision, Decisions, Part
from headrace.pipelines.sink.topic.options import SinkOptions
from headrace.pipelines.sink.topic.phases import (
    Attempt,
    PartlyCommitted,
    abort_open,
    commit_batch,
    complete_batch,
    complete_task,
    forget,
    is_done,
    settle,
    write_task,
)

pytestmark = pytest.mark.java

ROWS = 300


class Sink:
    """A query's sink with a topic of its own."""

    def __init__(self, servers: str) -> None:
        self.cluster = Cluster(parse_bootstrap(servers))
        self.query = str(uuid.uuid4())
        self.topic = f"out-{self.query}"
        create_topic(self.cluster, self.topic, partitions=3)
        self.options = SinkOptions(servers, topic=self.topic, batch_bytes=1024)
        self.decisions = Decisions(self.cluster, self.options.decisions_topic)
        self.transactions = Transactions(self.cluster)

    def write(self, batch: int, tasks: int = 3) -> list[Part]:
        written = [
            write_task(rows(batch, slot), Attempt(self.query, batch, slot), self.options) for slot in range(tasks)
        ]
        return [part for part in written if part]

    def decide(self, batch: int, parts: list[Part]) -> None:
        self.decisions.write(Decision(self.query, batch, tuple(parts)))

    def commit(self, part: Part) -> bool:
        return self.transactions.commit(part.transaction)

    def lose(self, part: Part) -> None:
        """What the broker does when a transaction's time is over."""
        self.transactions.begin(part.transaction.transactional_id, 60_000)

    def rerun(self, batch: int, tasks: int = 3, content: int | None = None) -> None:
        """What a driver that comes back does with a batch that Spark runs again."""
        parts = []
        try:
            if is_done(self.query, batch, self.options):
                return
        except PartlyCommitted as found:
            for slot in range(tasks):
                again = rows(batch if content is None else content, slot)
                part = complete_task(again, Attempt(self.query, batch, slot), found, self.options)
                parts += [part] if part else []
            complete_batch(self.query, batch, parts, self.options)
        else:
            commit_batch(self.query, batch, self.write(batch, tasks), self.options)

    def settled(self) -> list[str]:
        """What is seen once the markers are written, which Kafka does after it has answered."""
        partitions = self.cluster.partitions(self.topic)
        deadline = time.monotonic() + 60
        while bounds(self.cluster, partitions, committed=True) != bounds(self.cluster, partitions):
            assert time.monotonic() < deadline, "a transaction stays open"
            time.sleep(0.01)
        return self.seen()

    def seen(self) -> list[str]:
        held = bounds(self.cluster, self.cluster.partitions(self.topic), committed=True)
        starts, ends = ({where: getattr(bound, end) for where, bound in held.items()} for end in ("start", "end"))
        return sorted(
            (record.value or b"").decode()
            for records in read_records(self.cluster, starts, until=ends, options=FetchOptions(committed=True))
            for _, record in records
        )

    def is_quiet(self) -> bool:
        return not self.transactions.open_ids(f"headrace-sink-{self.query}")


def rows(batch: int, slot: int) -> Iterator[pa.RecordBatch]:
    for part in range(3):
        numbers = range(part * 100, part * 100 + 100)
        keys = pa.array([None if number % 3 else f"k{number}" for number in numbers])
        yield pa.record_batch({"key": keys, "value": pa.array([f"{batch}/{slot}/{number}" for number in numbers])})


def expected(batch: int, tasks: int = 3) -> list[str]:
    return sorted(f"{batch}/{slot}/{number}" for slot in range(tasks) for number in range(ROWS))


@pytest.fixture
def sink(servers: str) -> Iterator[Sink]:
    made = Sink(servers)
    yield made
    made.cluster.close()
    close_clusters()


def test_nothing_is_seen_before_the_decision_and_all_after(sink: Sink) -> None:
    transactions = sink.write(0)
    assert sink.seen() == []
    commit_batch(sink.query, 0, transactions, sink.options)
    assert sink.settled() == expected(0)
    assert sink.is_quiet()


def test_died_while_tasks_were_writing(sink: Sink) -> None:
    sink.write(0, tasks=2)
    sink.rerun(0)
    assert sink.settled() == expected(0)
    assert sink.is_quiet()


def test_died_before_the_decision_and_comes_back_with_fewer_tasks(sink: Sink) -> None:
    sink.write(0, tasks=5)
    sink.rerun(0, tasks=2)
    assert sink.settled() == expected(0, tasks=2)
    assert sink.is_quiet()


@pytest.mark.parametrize("committed", [0, 1, 3])
def test_died_after_the_decision(sink: Sink, committed: int) -> None:
    transactions = sink.write(0)
    sink.decide(0, transactions)
    for transaction in transactions[:committed]:
        assert sink.commit(transaction)
    sink.rerun(0)
    sink.rerun(0)  # once more, as often as one likes
    assert sink.settled() == expected(0)
    assert sink.is_quiet()


@pytest.mark.parametrize("committed", [0, 1])
def test_a_commit_that_fails_half_way_is_not_aborted(sink: Sink, committed: int) -> None:
    """Spark asks for an abort then; the decision stands."""
    transactions = sink.write(0)
    sink.decide(0, transactions)
    for transaction in transactions[:committed]:
        sink.commit(transaction)
    settle(sink.query, 0, sink.options)
    sink.rerun(0)
    assert sink.settled() == expected(0)


def test_a_batch_that_was_not_decided_is_aborted_on_failure(sink: Sink) -> None:
    sink.write(0)
    settle(sink.query, 0, sink.options)
    assert sink.is_quiet()
    sink.rerun(0)
    assert sink.settled() == expected(0)


def test_a_second_run_of_a_batch_that_was_decided_and_lost_is_aborted_on_failure(sink: Sink) -> None:
    transactions = sink.write(0)
    sink.decide(0, transactions)
    for transaction in transactions:
        sink.lose(transaction)
    assert not is_done(sink.query, 0, sink.options)
    sink.write(0, tasks=2)  # and the third task fails
    settle(sink.query, 0, sink.options)
    assert sink.is_quiet(), "readers wait behind a transaction that nobody will end"
    sink.rerun(0)
    assert sink.settled() == expected(0)


def test_decided_and_out_of_time_is_written_again(sink: Sink) -> None:
    transactions = sink.write(0)
    sink.decide(0, transactions)
    for transaction in transactions:
        sink.lose(transaction)
    sink.rerun(0)
    assert sink.settled() == expected(0)


def committed_in_part(sink: Sink, lost: list[int]) -> None:
    """A driver that died amid its commits and came back too late for some of them."""
    parts = sink.write(0)
    sink.decide(0, parts)
    sink.commit(parts[0])
    for slot in lost:
        sink.lose(parts[slot])


@pytest.mark.parametrize("lost", [[1], [2], [1, 2]])
def test_partly_out_of_time_is_completed(sink: Sink, lost: list[int]) -> None:
    committed_in_part(sink, lost)
    for _ in range(2):
        sink.rerun(0)
        assert sink.settled() == expected(0)
        assert sink.is_quiet()
    sink.rerun(1)
    assert sink.settled() == sorted(expected(0) + expected(1))


def test_partly_out_of_time_twice(sink: Sink) -> None:
    """A driver that dies amid the completion too, before and after its decision."""
    committed_in_part(sink, [1, 2])
    with pytest.raises(PartlyCommitted) as caught:
        is_done(sink.query, 0, sink.options)
    again = [
        complete_task(rows(0, slot), Attempt(sink.query, 0, slot), caught.value, sink.options) for slot in (0, 1, 2)
    ]
    parts = [part for part in again if part]
    assert len(parts) == 3
    sink.decide(0, parts)
    sink.commit(parts[1])
    sink.lose(parts[2])
    sink.rerun(0)
    assert sink.settled() == expected(0)
    assert sink.is_quiet()


def test_rows_that_come_out_differently_are_not_guessed(sink: Sink) -> None:
    committed_in_part(sink, [1])
    with pytest.raises(PipelineError, match="task 0 had other rows than before"):
        sink.rerun(0, content=7)
    with pytest.raises(PipelineError, match="other tasks than before"):
        sink.rerun(0, tasks=2)
    abort_open(sink.query, sink.options)
    assert sink.settled() == [value for value in expected(0) if not value.startswith("0/1/")]


def test_a_decision_of_an_earlier_version_is_read(sink: Sink) -> None:
    parts = sink.write(0)
    old = {"format": 1, "batch": 0, "transactions": [part.transaction for part in parts]}
    found = Decision.decoded(sink.query, json.dumps(old).encode())
    assert [part.transaction for part in found.parts] == [part.transaction for part in parts]
    sink.decisions.write(found)
    sink.rerun(0)
    assert sink.settled() == expected(0)


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_one_that_is_out_of_time_means_that_nothing_is_committed(sink: Sink, lost: int) -> None:
    """A slow batch, one of whose transactions was open for too long, the driver alive all the time."""
    transactions = sink.write(0)
    sink.lose(transactions[lost])
    with pytest.raises(PipelineError, match="took more of its transactions' time than it may"):
        commit_batch(sink.query, 0, transactions, sink.options)
    assert sink.settled() == []
    sink.rerun(0)
    assert sink.settled() == expected(0)


def test_a_checkpoint_older_than_the_topic_is_refused(sink: Sink) -> None:
    for batch in range(2):
        sink.rerun(batch)
    with pytest.raises(PipelineError, match="is to write batch 0, and has written batch 1 already"):
        sink.rerun(0)


def test_a_writer_that_was_taken_over_writes_no_more(sink: Sink) -> None:
    old = sink.write(0)
    sink.rerun(0)
    assert not sink.commit(old[0])
    assert sink.settled() == expected(0)


def test_time_runs_out_at_the_broker(sink: Sink) -> None:
    """For a task that wrote at once, while its siblings began before it and wrote late."""
    patient, sink.options = sink.options, replace(sink.options, transaction_timeout_ms=3000)
    early = sink.write(0, tasks=1)
    deadline = time.monotonic() + 60  # Kafka looks every ten seconds
    while not sink.is_quiet():
        assert time.monotonic() < deadline, "the broker does not abort what is out of time"
        time.sleep(0.1)
    sink.options = patient
    late = sink.write(0)[1:]
    with pytest.raises(PipelineError, match="took more of its transactions' time than it may"):
        commit_batch(sink.query, 0, [*late, *early], sink.options)
    abort_open(sink.query, sink.options)
    assert sink.settled() == []
    sink.rerun(0)
    assert sink.settled() == expected(0)


def test_a_batch_that_leaves_no_room_is_not_begun_with(sink: Sink) -> None:
    """All of its transactions are open still, and one may be aborted before the last is committed."""
    patient, sink.options = sink.options, replace(sink.options, transaction_timeout_ms=3000)
    parts = sink.write(0)
    looks = [(part.transaction, sink.transactions.look(part.transaction)) for part in parts]
    assert {look.timeout_ms for _, look in looks} == {3000}
    deadline = time.monotonic() + 60
    while not sink.transactions.has_older(looks, 2250):
        assert time.monotonic() < deadline, "the broker does not say how old a transaction is"
        time.sleep(0.02)
    with pytest.raises(PipelineError, match="took more of its transactions' time than it may"):
        commit_batch(sink.query, 0, parts, sink.options)
    assert sink.settled() == []
    sink.options = patient
    sink.rerun(0)
    assert sink.settled() == expected(0)


def test_a_decision_that_is_done_with_is_forgotten(sink: Sink) -> None:
    commit_batch(sink.query, 0, sink.write(0), sink.options)
    assert sink.decisions.last(sink.query) is not None
    forget(sink.query, sink.options)
    assert sink.decisions.last(sink.query) is None


def test_an_empty_batch_is_no_transaction(sink: Sink) -> None:
    assert write_task(iter([]), Attempt(sink.query, 0, 0), sink.options) is None
    commit_batch(sink.query, 0, [], sink.options)
    assert sink.is_quiet()
