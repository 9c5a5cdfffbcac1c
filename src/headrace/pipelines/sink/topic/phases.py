"""The order of things in the two-phase sink, apart from Spark: in a task, in the driver, and after a crash.

What always holds: a transaction is committed only if a decision names it; a decision is durable before the first
commit; the first commit comes after all transactions of the batch were shown to be open, with time to spare; a task
writes in a batch only after it has seen that the batch is not decided; and only the process that made a transactional
id begins transactions under it, one after the other, so that no task that is late aborts what another has written.
"""

import os
import uuid
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa

from headrace.client.cluster import Cluster
from headrace.client.errors import ClientError, LostConnection
from headrace.client.transactions import Transaction, Transactions, TransactionStatus
from headrace.client.writer import init_producer
from headrace.model import TopicPartition
from headrace.pipelines.clusters import cluster_at
from headrace.pipelines.columns.encode import Stamp, encode
from headrace.pipelines.errors import PipelineError
from headrace.pipelines.sink.topic.decisions import Decision, Decisions, Part
from headrace.pipelines.sink.topic.options import SinkOptions
from headrace.pipelines.sink.topic.outgoing import Content, Sender, Sharing, columns_of, rounds


@dataclass(frozen=True, slots=True)
class Attempt:
    """Where a task stands: which query, which of its batches, which of the batch's tasks."""

    query: str
    batch: int
    slot: int


def prefix_of(query: str) -> str:
    return f"headrace-sink-{query}-"


class Names:
    """The transactional ids of one process: never used by another, and each once in a batch.

    A begin aborts what is open under its id. With an id that several tasks or attempts share, a task on an executor
    that was given up could do that to what was decided meanwhile. When a process is given a task of the next batch, all
    that it wrote in the one before is committed, so its ids can be used again and stay few.
    """

    def __init__(self) -> None:
        self._process: tuple[int, str] = (0, "")
        self._used: dict[str, tuple[int, int]] = {}  # of each query: the batch, and how many ids so far

    def next(self, query: str, batch: int) -> str:
        if self._process[0] != os.getpid():  # a forked worker is another process
            self._process, self._used = (os.getpid(), uuid.uuid4().hex[:16]), {}
        last, used = self._used.get(query, (batch, 0))
        number = used if last == batch else 0
        self._used[query] = (batch, number + 1)
        return f"{prefix_of(query)}{self._process[1]}-{number}"


_names = Names()


# --- in a task


def write_task(batches: Iterator[pa.RecordBatch], attempt: Attempt, options: SinkOptions) -> Part | None:
    """Write a task's rows into a transaction of its own and leave it open; None if there were none."""
    cluster = cluster_at(options.bootstrap, options.connection)
    gathered = rounds(batches)
    first = next(gathered, None)
    if first is None:
        return None
    transactions = Transactions(cluster)
    transaction = transactions.begin(_names.next(attempt.query, attempt.batch), options.transaction_timeout_ms)
    try:
        content = _write(cluster, first, gathered, transaction, attempt.slot, options)
    except BaseException:
        # Left open, it would hide what comes behind it from readers until its time runs out.
        with suppress(ClientError):
            transactions.abort(transaction)
        raise
    return Part(transaction, attempt.slot, content.rows, content.checksum)


def complete_task(
    batches: Iterator[pa.RecordBatch], attempt: Attempt, found: "PartlyCommitted", options: SinkOptions
) -> Part | None:
    """A task of a batch that is committed in part: its rows are written again if they were lost.

    Either way they have to be what they were, or the batch would be made of two different runs.
    """
    before = next((part for part in found.decision.parts if part.slot == attempt.slot), None)
    if before is not None and before in found.lost:
        part = write_task(batches, attempt, options)
        if part is None or part[1:] != before[1:]:
            if part is not None:
                Transactions(cluster_at(options.bootstrap, options.connection)).abort(part.transaction)
            raise _differs(found, attempt)
        return part
    content = Content()
    for batch in rounds(batches):
        content.add(batch, columns_of(batch))
    if (content.rows, content.checksum) != ((0, Content().checksum) if before is None else before[2:]):
        raise _differs(found, attempt)
    return before


def _differs(found: "PartlyCommitted", attempt: Attempt) -> PipelineError:
    return PipelineError(
        f"{found}. The batch was run again to write them, and task {attempt.slot} had other rows than before, so they "
        "must not be guessed: rebuild the output, or accept the gap by deleting the query's checkpoint"
    )


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
) -> Content:
    content = Content()
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
            content.add(batch, out)
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
    return content


# --- in the driver

_RESERVE = (
    4  # of a transaction's time the fourth part is left for committing it and its siblings, whatever comes between
)


def commit_batch(query: str, batch: int, parts: Sequence[Part], options: SinkOptions) -> None:
    """Decide for a batch, then commit it, and abort what other attempts left open."""
    cluster = cluster_at(options.bootstrap, options.connection)
    if parts:
        decision = Decision(query, batch, tuple(parts))
        Decisions(cluster, options.decisions_topic).write(decision)
        if not finish(cluster, decision):
            raise PipelineError(
                f"batch {batch} took more of its transactions' time than it may: a transaction can be committed for "
                f"{options.transaction_timeout_ms} ms after its first row, and a quarter of that is kept in reserve. "
                "Nothing of the batch is visible, and a restart writes it again; raise transactionTimeoutMs (and the "
                "broker's transaction.max.timeout.ms), or make batches smaller"
            )
    # The batch is committed: a broker that is away keeps nobody from going on, and the next batch looks again.
    with suppress(LostConnection):
        abort_open(query, options, but=[part.transaction for part in parts])


def complete_batch(query: str, batch: int, parts: Sequence[Part], options: SinkOptions) -> None:
    """Commit a batch that was committed in part before, with what `complete_task` has written again."""
    cluster = cluster_at(options.bootstrap, options.connection)
    before = Decisions(cluster, options.decisions_topic).last(query)
    assert before is not None
    again = {part.slot: part for part in parts}
    if len(again) != len(before.parts) or any(part.slot not in again for part in before.parts):
        raise PipelineError(
            f"batch {batch} of query {query} is committed in part, and was run again with other tasks than before: "
            "rebuild the output, or accept the gap by deleting the query's checkpoint"
        )
    # In the same order: the first one is committed, which says that the others are to be.
    commit_batch(query, batch, [again[part.slot] for part in before.parts], options)


def forget(query: str, options: SinkOptions) -> None:
    Decisions(cluster_at(options.bootstrap, options.connection), options.decisions_topic).forget(query)


def finish(cluster: Cluster, decision: Decision) -> bool:
    """Commit whatever of a decided batch is not committed yet; False if none of it is, because time ran out.

    The first transaction decides: it is the first to be committed and the first to be aborted, and only one of the two
    can be. So the driver and the tasks of a batch that is run again may all do this at once, and come to the same.
    """
    transactions = Transactions(cluster)
    first, *rest = (part.transaction for part in decision.parts)
    if not (transactions.commit(first) if _may_begin(transactions, decision) else not transactions.abort(first)):
        for transaction in rest:
            transactions.abort(transaction)
        return False
    lost = [part for part in decision.parts[1:] if not transactions.commit(part.transaction)]
    if lost:
        raise PartlyCommitted(decision, lost)
    return True


class PartlyCommitted(PipelineError):
    """A decided batch, some of whose transactions ran out of time between the first commit and the last."""

    def __init__(self, decision: Decision, lost: Sequence[Part]) -> None:
        super().__init__(
            f"batch {decision.batch} of query {decision.query} was decided and is committed in part: {len(lost)} of "
            f"its {len(decision.parts)} transactions ran out of time before the driver came to commit them, and their "
            f"rows are missing from the topic (the first is {lost[0].transaction.transactional_id})"
        )
        self.decision = decision
        self.lost = tuple(lost)


def _may_begin(transactions: Transactions, decision: Decision) -> bool:
    """Whether to commit: all transactions are open with time to spare, or the first is committed already.

    Their coordinators abort what is out of time each on its own, and count from the first partition that was added: no
    order of commits says beforehand whether the last will succeed.
    """
    looks = [(part.transaction, transactions.look(part.transaction)) for part in decision.parts]
    if looks[0][1].status is TransactionStatus.COMMITTED:
        return True
    if any(look.status is TransactionStatus.LOST for _, look in looks):
        return False
    shortest_ms = min(look.timeout_ms for _, look in looks)
    return not transactions.has_older(looks, shortest_ms - shortest_ms // _RESERVE)


def is_done(query: str, batch: int, options: SinkOptions) -> bool:
    """After a start: whether a batch that Spark runs again was decided before; it is committed to its end then.

    Raises `PartlyCommitted` if it cannot be: `complete_task` then writes what is missing.
    """
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
    decided = decision.parts if decision is not None and decision.batch == batch else ()
    if decision is not None and decided:
        with suppress(PartlyCommitted):  # what failed says so already
            finish(cluster, decision)
    # A batch that was decided before and ran out of time may have been written again meanwhile.
    abort_open(query, options, but=[part.transaction for part in decided])


def abort_open(query: str, options: SinkOptions, *, but: Sequence[Transaction] = ()) -> None:
    """Abort what other attempts left open: those of an earlier run, and tasks that failed or were given up.

    An open transaction hides everything behind it from readers in `read_committed` until its time runs out.
    """
    transactions = Transactions(cluster_at(options.bootstrap, options.connection))
    mine = [transaction.transactional_id for transaction in but]
    for name in transactions.open_ids(prefix_of(query), but=mine):
        transactions.begin(name, options.transaction_timeout_ms)
