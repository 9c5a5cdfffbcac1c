"""The order of things in the two-phase sink, apart from Spark: in a task, in the driver, and after a crash.

What always holds: a transaction is committed only if a decision names it; a decision is durable before the first
commit; and a task writes in a batch only after it has seen that the batch is not decided.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa

from headrace.client.cluster import Cluster
from headrace.client.errors import ClientError
from headrace.client.produce import init_producer
from headrace.client.transactions import Transaction, Transactions
from headrace.model import TopicPartition
from headrace.pipelines.clusters import cluster_at
from headrace.pipelines.columns.encode import Stamp, encode
from headrace.pipelines.errors import PipelineError
from headrace.pipelines.sink.topic.decisions import Decision, Decisions
from headrace.pipelines.sink.topic.options import SinkOptions
from headrace.pipelines.sink.topic.outgoing import Sharing, columns_of, rounds
from headrace.pipelines.sink.topic.sending import Sender


@dataclass(frozen=True, slots=True)
class Attempt:
    """Where a task stands: which query, which of its batches, which of the batch's tasks."""

    query: str
    batch: int
    slot: int

    @property
    def transactional_id(self) -> str:
        """The same for every attempt at this task, so that a new one takes over from the old."""
        return f"{prefix_of(self.query)}{self.slot}"


def prefix_of(query: str) -> str:
    """What the transactional ids of a query begin with."""
    return f"headrace-sink-{query}-"


# --- in a task


def write_task(batches: Iterator[pa.RecordBatch], attempt: Attempt, options: SinkOptions) -> Transaction | None:
    """Write a task's rows into a transaction of its own and leave it open; None if there were none."""
    cluster = cluster_at(options.bootstrap, options.connection)
    gathered = rounds(batches)
    first = next(gathered, None)
    if first is None:
        return None
    transactions = Transactions(cluster)
    transaction = transactions.begin(attempt.transactional_id, options.transaction_timeout_ms)
    try:
        _write(cluster, first, gathered, transaction, attempt.slot, options)
    except BaseException:
        # Left open, it would hide what comes behind it from readers until its time runs out.
        with suppress(ClientError):
            transactions.abort(transaction)
        raise
    return transaction


def write_plainly(batches: Iterator[pa.RecordBatch], slot: int, options: SinkOptions) -> None:
    """Write a task's rows without a transaction: at least once."""
    cluster = cluster_at(options.bootstrap, options.connection)
    gathered = rounds(batches)
    first = next(gathered, None)
    if first is not None:
        _write(cluster, first, gathered, None, slot, options)


def _write(
    cluster: Cluster,
    first: pa.RecordBatch,
    rest: Iterator[pa.RecordBatch],
    transaction: Transaction | None,
    slot: int,
    options: SinkOptions,
) -> None:
    if transaction:
        start = Stamp(transaction.producer_id, transaction.epoch, 0, transactional=True)
    else:
        producer = init_producer(cluster)
        start = Stamp(producer.id, producer.epoch, 0)
    sharing = Sharing(options.topic, slot, options.batch_bytes)
    stamps: dict[TopicPartition, Stamp] = {}
    counts: dict[str, int] = {}
    sender = Sender(cluster, transaction)
    try:
        batch: pa.RecordBatch | None = first
        while batch is not None:
            out = columns_of(batch)
            unknown = [topic for topic, _ in sharing.topics(batch) if topic not in counts]
            if unknown:
                sender.flush()  # the cluster is the sender's while it sends
                counts |= {topic: len(cluster.topic(topic).partitions) for topic in unknown}
            # A request takes one batch per partition: the second ones go into the next.
            waiting: dict[TopicPartition, bytes] = {}
            for where, rows in sharing.share(batch, out, counts):
                if where in waiting:
                    sender.send(waiting)
                    waiting = {}
                stamp = stamps.get(where, start)
                waiting[where] = encode(out, rows, stamp, options.codec)
                stamps[where] = stamp.after(len(rows))
            sender.send(waiting)
            batch = next(rest, None)
        sender.flush()
    finally:
        sender.close()


# --- in the driver


def commit_batch(query: str, batch: int, transactions: Sequence[Transaction], options: SinkOptions) -> None:
    """Decide for a batch, then commit it."""
    cluster = cluster_at(options.bootstrap, options.connection)
    if not transactions:
        return
    decision = Decision(query, batch, tuple(transactions))  # the oldest first: see `finish`
    Decisions(cluster, options.decisions_topic).write(decision)
    if not finish(cluster, decision):
        raise PipelineError(
            f"batch {batch} ran out of its transactions' time ({options.transaction_timeout_ms} ms) before it could be "
            "committed: nothing of it is visible, and a restart writes it again; raise transactionTimeoutMs (and the "
            "broker's transaction.max.timeout.ms), or make batches smaller"
        )


def forget(query: str, options: SinkOptions) -> None:
    """Nobody will ask for this decision again."""
    Decisions(cluster_at(options.bootstrap, options.connection), options.decisions_topic).forget(query)


def finish(cluster: Cluster, decision: Decision) -> bool:
    """Commit whatever of a decided batch is not committed yet; False if none of it can be, because time ran out.

    The oldest transaction goes first, so the one whose time runs out first tells whether the batch can be committed at
    all, and what is committed is always a beginning of the list. Committing again is harmless, so several may do it.
    """
    transactions = Transactions(cluster)
    for number, transaction in enumerate(decision.transactions):
        if transactions.commit(transaction):
            continue
        if number == 0:
            for other in decision.transactions[1:]:
                transactions.abort(other)
            return False
        raise PipelineError(
            f"batch {decision.batch} of query {decision.query} was decided and is committed in part: from "
            f"{transaction.transactional_id} on, {len(decision.transactions) - number} of {len(decision.transactions)} "
            "transactions ran out of time before the driver came back. Their rows are missing from the topic and must "
            "not be guessed: rebuild the output, or accept the gap by deleting the query's checkpoint"
        )
    return True


def is_done(query: str, batch: int, options: SinkOptions) -> bool:
    """After a start: whether a batch that Spark runs again was decided before; it is committed to its end then."""
    cluster = cluster_at(options.bootstrap, options.connection)
    decision = Decisions(cluster, options.decisions_topic).last(query)
    if decision is None or decision.batch < batch:
        return False
    if decision.batch > batch:
        raise PipelineError(
            f"query {query} is to write batch {batch}, and has written batch {decision.batch} already: its checkpoint "
            "is older than what is in the topic, and writing on would double rows. Rebuild the output, or start with a "
            "new checkpoint"
        )
    return finish(cluster, decision)


def settle(query: str, batch: int, options: SinkOptions) -> None:
    """After a failure: what was decided is committed, what was not is aborted.

    Spark asks to abort a batch also when its commit failed half-way. Then the decision stands, and aborting the rest
    would lose it: whoever comes next finishes it, now or after a restart.
    """
    cluster = cluster_at(options.bootstrap, options.connection)
    decision = Decisions(cluster, options.decisions_topic).last(query)
    if decision is not None and decision.batch == batch:
        finish(cluster, decision)
    else:
        abort_open(query, options)


def abort_open(query: str, options: SinkOptions, *, but: Sequence[Transaction] = ()) -> None:
    """Abort what earlier attempts left open: a run with more tasks than this one, or tasks that failed.

    An open transaction hides everything behind it from readers in `read_committed` until its time runs out.
    """
    transactions = Transactions(cluster_at(options.bootstrap, options.connection))
    mine = [transaction.transactional_id for transaction in but]
    for name in transactions.open_ids(prefix_of(query), but=mine):
        transactions.begin(name, options.transaction_timeout_ms)
