"""Arrow batches to record batches, shared out among partitions, and produced while the next ones are encoded.

One thread sends, the caller's encodes. What `flush` returned from is durable. Batches of a partition go out in order,
one request after the other, so sequences never overtake each other.
"""

import hashlib
import json
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.client.cluster import Cluster
from headrace.client.errors import Refused
from headrace.client.transactions import Transaction, Transactions
from headrace.client.writer import send
from headrace.model import TopicPartition
from headrace.pipelines.columns.arrow import join_batches
from headrace.pipelines.columns.encode import Outgoing, Spans, batches_of, outgoing, partitions_by_key, spread
from headrace.pipelines.columns.walk import Longs
from headrace.pipelines.errors import BadSchema, PipelineError
from headrace.protocol.errors import ErrorCode
from headrace.records.checksum import crc32c

ROUND_BYTES = 4 * 1024 * 1024


def rounds(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Arrow batches, small ones put together, so that a request is worth its way."""
    return join_batches(batches, ROUND_BYTES)


def columns_of(batch: pa.RecordBatch) -> Outgoing:
    names = batch.schema.names

    def column(name: str) -> pa.Array | None:
        return batch.column(name) if name in names else None

    return outgoing(
        batch.num_rows,
        values=column("value"),
        keys=column("key"),
        headers=column("headers"),
        timestamps=_milliseconds(column("timestamp"), batch.num_rows),
    )


def _milliseconds(column: pa.Array | None, rows: int) -> Longs:
    now = int(time.time() * 1000)
    if column is None:
        return np.full(rows, now, np.int64)
    # In whole numbers: a double does not hold the microseconds of every year. NumPy rounds down, also before 1970.
    micros = np.asarray(column.cast(pa.int64()).fill_null(now * 1000), np.int64)
    return np.floor_divide(micros, 1000)


class Content:
    """What some rows are, in so many numbers: the same rows in the same order, in whatever batches, give the same."""

    def __init__(self) -> None:
        self.rows = 0
        self._sums: dict[str, int] = {}

    def add(self, batch: pa.RecordBatch, out: Outgoing) -> None:
        """More rows. A time that is not the rows' own does not count: it is when they were written."""
        self.rows += len(out)
        spans = {"key": out.keys, "value": out.values, "name": out.header_names, "header": out.header_values}
        if "topic" in batch.schema.names:
            spans["topic"] = Spans.of(batch.column("topic"))
        for name, of in spans.items():
            self._sum(name, of.data[of.ends[0] : of.ends[-1]])
            self._sum(f"{name} lengths", np.diff(of.ends))
            self._sum(f"{name} nulls", of.is_null)
        self._sum("headers", np.diff(out.first_header))
        if "timestamp" in batch.schema.names:
            self._sum("timestamp", out.timestamps)
        if "partition" in batch.schema.names:
            self._sum("partition", np.asarray(batch.column("partition").cast(pa.int64()).fill_null(-1), np.int64))

    def _sum(self, name: str, numbers: np.ndarray[Any, Any]) -> None:
        self._sums[name] = crc32c(np.ascontiguousarray(numbers).data.cast("B"), self._sums.get(name, 0))

    @property
    def checksum(self) -> str:
        return hashlib.blake2b(json.dumps(sorted(self._sums.items())).encode(), digest_size=16).hexdigest()


class Sharing:
    """Chooses every row's partition; where keyless rows go on is remembered from round to round."""

    def __init__(self, topic: str | None, first: int, batch_bytes: int) -> None:
        self._topic = topic
        self._next = first
        self._batch_bytes = batch_bytes

    def share(
        self, batch: pa.RecordBatch, out: Outgoing, counts: Mapping[str, int]
    ) -> Iterator[tuple[TopicPartition, Longs]]:
        """For each partition the rows that go there, in order, in stretches that each make a batch."""
        for topic, rows in self.topics(batch):
            chosen = self._chosen(batch, out, rows, counts[topic], topic)
            for partition in np.unique(chosen).tolist():
                where = TopicPartition(topic, partition)
                for stretch in batches_of(out, rows[chosen == partition], self._batch_bytes):
                    yield where, stretch

    def topics(self, batch: pa.RecordBatch) -> list[tuple[str, Longs]]:
        """The rows of each topic; a row's own column goes before the option."""
        everything = np.arange(batch.num_rows, dtype=np.int64)
        if "topic" not in batch.schema.names:
            return [(self._topic or "", everything)]
        column = batch.column("topic")
        if column.null_count:
            if self._topic is None:
                raise BadSchema("a row's topic is null, and there is no option 'topic' for such rows")
            column = column.fill_null(self._topic)
        encoded = column.dictionary_encode()
        indexes = encoded.indices.to_numpy()
        return [(name, everything[indexes == index]) for index, name in enumerate(encoded.dictionary.to_pylist())]

    def _chosen(self, batch: pa.RecordBatch, out: Outgoing, rows: Longs, partitions: int, topic: str) -> Longs:
        chosen = partitions_by_key(out, rows, partitions)
        if "partition" in batch.schema.names:
            named = np.asarray(batch.column("partition").cast(pa.int64()).fill_null(-1), np.int64)
            if bool((named[rows] >= partitions).any()):
                raise BadSchema(
                    f"a row is for partition {int(named[rows].max())} of topic {topic!r}, which has {partitions}"
                )
            chosen = np.where(named >= 0, named, chosen)
        keyless = rows[chosen[rows] < 0]
        if len(keyless):
            spreads = spread(out.size, keyless, partitions, self._next, self._batch_bytes)
            chosen[keyless] = spreads
            self._next = int(spreads[-1])
        return chosen[rows]


class Sender:
    """Sends rounds of batches, in a transaction or without one."""

    def __init__(self, cluster: Cluster, transaction: Transaction | None) -> None:
        """From here on until `close` the cluster is the sending thread's."""
        self._cluster = cluster
        self._transactions = Transactions(cluster)
        self._transaction = transaction
        self._added: set[TopicPartition] = set()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="headrace-send")
        self._sending: Future[None] | None = None

    def send(self, batches: Mapping[TopicPartition, bytes]) -> None:
        """Hand over one batch per partition; waits until the round before is durable."""
        self.flush()
        self._sending = self._thread.submit(self._send, dict(batches))

    def flush(self) -> None:
        """Wait until everything handed over is durable; raises what went wrong."""
        sending, self._sending = self._sending, None
        if sending:
            sending.result()

    def close(self) -> None:
        """End the thread, once it is done with what it has."""
        self._thread.shutdown()

    def _send(self, batches: dict[TopicPartition, bytes]) -> None:
        name = None
        if self._transaction:
            name = self._transaction.transactional_id
            new = [where for where in batches if where not in self._added]
            if new:
                self._transactions.add(self._transaction, new)
                self._added.update(new)
        try:
            send(self._cluster, batches, transactional_id=name)
        except Refused as refusal:
            if refusal.code is ErrorCode.MESSAGE_TOO_LARGE:
                raise PipelineError(
                    f"{refusal}: raise the topic's max.message.bytes, or lower the option batchBytes of the sink"
                ) from refusal
            raise
