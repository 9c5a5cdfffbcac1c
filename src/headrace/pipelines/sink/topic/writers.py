"""What Spark calls: the streaming writer, exactly once or at least once, and the writer of a bounded DataFrame."""

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from headrace.pipelines.sink.topic.decisions import Part
from headrace.pipelines.sink.topic.options import SinkOptions
from headrace.pipelines.sink.topic.phases import (
    Attempt,
    PartlyCommitted,
    commit_batch,
    complete_batch,
    complete_task,
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
    query: str
    part: Part | None
    completes: bool = False  # of a batch that was committed in part before


def _written(messages: Sequence[WriterCommitMessage | None]) -> list[Written]:
    return [message for message in messages if isinstance(message, Written)]


def _parts(written: Sequence[Written]) -> list[Part]:
    return [one.part for one in written if one.part is not None]


class StreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
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
        try:
            if run not in _seen_runs and is_done(query, attempt.batch, self._options):
                for _ in iterator:  # Spark wants its rows taken
                    pass
                return Written(query, None)
        except PartlyCommitted as found:
            return Written(query, complete_task(iterator, attempt, found, self._options), completes=True)
        part = write_task(iterator, attempt, self._options)
        _seen_runs.add(run)
        return Written(query, part)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        written = _written(messages)
        if not self._options.exactly_once or not written:
            return
        commit = complete_batch if any(message.completes for message in written) else commit_batch
        commit(written[0].query, batchId, _parts(written), self._options)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """A task of a batch failed for good, or the batch's commit did."""
        written = _written(messages)
        if self._options.exactly_once and written:
            settle(written[0].query, batchId, self._options)


class BoundedWriter(DataSourceArrowWriter):
    """Writes a bounded DataFrame: all of it becomes visible at the end, or nothing does."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._job = f"job-{uuid.uuid4()}"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = TaskContext.get()
        assert context is not None
        if not self._options.exactly_once:
            write_plainly(iterator, context.partitionId(), self._options)
            return Written(self._job, None)
        return Written(self._job, write_task(iterator, Attempt(self._job, 0, context.partitionId()), self._options))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        parts = _parts(_written(messages))
        commit_batch(self._job, 0, parts, self._options)
        if parts:
            forget(self._job, self._options)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:  # noqa: ARG002
        """A task failed for good, or the commit did."""
        if self._options.exactly_once:
            settle(self._job, 0, self._options)
