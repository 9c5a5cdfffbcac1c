"""What Spark calls: the streaming writer, exactly once or at least once, and the writer of a bounded DataFrame."""

import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from headrace.client.transactions import Transaction
from headrace.pipelines.sink.topic.options import SinkOptions
from headrace.pipelines.sink.topic.phases import (
    Attempt,
    abort_open,
    commit_batch,
    forget,
    is_done,
    settle,
    write_plainly,
    write_task,
)

_QUERY_ID, _BATCH_ID, _RUN_ID = "sql.streaming.queryId", "streaming.sql.batchId", "spark.jobGroup.id"
_seen_runs: set[tuple[str, str]] = set()  # by this worker: only a run's first batch can be one that was decided before


@dataclass
class Written(WriterCommitMessage):
    """What a task tells the driver."""

    query: str
    transaction: tuple[str, int, int] | None
    began: float = 0.0
    is_first: bool = False  # the first of its run, as far as this worker knows


def _oldest_first(written: Sequence[Written]) -> list[Transaction]:
    """The transactions of a batch in the order in which their time runs out."""
    return [Transaction(*one.transaction) for one in sorted(written, key=lambda one: one.began) if one.transaction]


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes the batches of a streaming query."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """A task of a batch."""
        context = TaskContext.get()
        assert context is not None
        query, batch = context.getLocalProperty(_QUERY_ID), context.getLocalProperty(_BATCH_ID)
        assert query is not None
        assert batch is not None
        attempt = Attempt(query, int(batch), context.partitionId())
        if not self._options.exactly_once:
            write_plainly(iterator, attempt.slot, self._options)
            return Written(query, None)
        run = (query, context.getLocalProperty(_RUN_ID) or "")
        is_first = run not in _seen_runs
        if is_first and is_done(query, attempt.batch, self._options):
            for _ in iterator:  # Spark wants its rows taken
                pass
            return Written(query, None)
        began = time.time()
        transaction = write_task(iterator, attempt, self._options)
        _seen_runs.add(run)
        return Written(query, transaction, began, is_first)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """All tasks of a batch are done."""
        written = [message for message in messages if isinstance(message, Written)]
        if not self._options.exactly_once or not written:
            return
        transactions = _oldest_first(written)
        commit_batch(written[0].query, batchId, transactions, self._options)
        if any(message.is_first for message in written):
            abort_open(written[0].query, self._options, but=transactions)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """A task of a batch failed for good, or the batch's commit did."""
        written = [message for message in messages if isinstance(message, Written)]
        if self._options.exactly_once and written:
            settle(written[0].query, batchId, self._options)


class BoundedWriter(DataSourceArrowWriter):
    """Writes a bounded DataFrame: all of it becomes visible at the end, or nothing does."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._job = f"job-{uuid.uuid4()}"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """A task."""
        context = TaskContext.get()
        assert context is not None
        if not self._options.exactly_once:
            write_plainly(iterator, context.partitionId(), self._options)
            return Written(self._job, None)
        began = time.time()
        transaction = write_task(iterator, Attempt(self._job, 0, context.partitionId()), self._options)
        return Written(self._job, transaction, began)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """All tasks are done."""
        written = [message for message in messages if isinstance(message, Written)]
        transactions = _oldest_first(written)
        commit_batch(self._job, 0, transactions, self._options)
        if transactions:
            forget(self._job, self._options)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:  # noqa: ARG002
        """A task failed for good, or the commit did."""
        if self._options.exactly_once:
            settle(self._job, 0, self._options)
