"""The two phases of the topic sink without Spark: a driver that dies at every instant there is, on both brokers."""

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
from headrace.client.transactions import Transaction, Transactions
from headrace.pipelines.clusters import close_clusters
from headrace.pipelines.errors import PipelineError
from headrace.pipelines.sink.topic.decisions import Decision, Decisions
from headrace.pipelines.sink.topic.options import SinkOptions
from headrace.pipelines.sink.topic.phases import Attempt, abort_open, commit_batch, forget, is_done, settle, write_task

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

    def write(self, batch: int, tasks: int = 3) -> list[Transaction]:
        written = [
            write_task(rows(batch, slot), Attempt(self.query, batch, slot), self.options) for slot in range(tasks)
        ]
        return [transaction for transaction in written if transaction]

    def decide(self, batch: int, transactions: list[Transaction]) -> None:
        self.decisions.write(Decision(self.query, batch, tuple(transactions)))

    def rerun(self, batch: int, tasks: int = 3) -> None:
        """What a driver that comes back does with a batch that Spark runs again."""
        if is_done(self.query, batch, self.options):
            return
        transactions = self.write(batch, tasks)
        commit_batch(self.query, batch, transactions, self.options)
        abort_open(self.query, self.options, but=transactions)

    def settled(self) -> list[str]:
        """What is seen once the markers are written, which Kafka does after it has answered."""
        partitions = self.cluster.partitions(self.topic)
        deadline = time.monotonic() + 20
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
        assert sink.transactions.commit(transaction)
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
        sink.transactions.commit(transaction)
    settle(sink.query, 0, sink.options)
    sink.rerun(0)
    assert sink.settled() == expected(0)


def test_a_batch_that_was_not_decided_is_aborted_on_failure(sink: Sink) -> None:
    sink.write(0)
    settle(sink.query, 0, sink.options)
    assert sink.is_quiet()
    sink.rerun(0)
    assert sink.settled() == expected(0)


def test_decided_and_out_of_time_is_written_again(sink: Sink) -> None:
    transactions = sink.write(0)
    sink.decide(0, transactions)
    for transaction in transactions:  # what the broker does when the time is over
        sink.transactions.begin(transaction.transactional_id, 60_000)
    sink.rerun(0)
    assert sink.settled() == expected(0)


def test_partly_out_of_time_is_told_and_not_guessed(sink: Sink) -> None:
    transactions = sink.write(0)
    sink.decide(0, transactions)
    sink.transactions.commit(transactions[0])
    sink.transactions.begin(transactions[1].transactional_id, 60_000)
    with pytest.raises(PipelineError, match=r"is committed in part: from .*-1 on, 2 of 3 transactions"):
        sink.rerun(0)


def test_the_oldest_out_of_time_means_that_nothing_is_committed(sink: Sink) -> None:
    """A slow batch whose first task began too long ago, the driver alive all the time."""
    transactions = sink.write(0)
    sink.transactions.begin(transactions[0].transactional_id, 60_000)
    with pytest.raises(PipelineError, match="ran out of its transactions' time"):
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
    assert not sink.transactions.commit(old[0])
    assert sink.settled() == expected(0)


def test_time_runs_out_at_the_broker(sink: Sink) -> None:
    patient, sink.options = sink.options, replace(sink.options, transaction_timeout_ms=1000)
    transactions = sink.write(0)
    time.sleep(1.5)
    deadline = time.monotonic() + 30  # Kafka looks every ten seconds
    while not sink.is_quiet() and time.monotonic() < deadline:
        time.sleep(0.2)
    with pytest.raises(PipelineError, match="ran out of its transactions' time"):
        commit_batch(sink.query, 0, transactions, sink.options)
    assert sink.seen() == []
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
