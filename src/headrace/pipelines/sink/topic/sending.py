"""Producing record batches while the next ones are encoded.

One thread sends, the caller's encodes. What `flush` returned from is durable. Batches of a partition go out in order,
one request after the other, so sequences never overtake each other.
"""

from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor

from headrace.client.cluster import Cluster
from headrace.client.errors import Refused
from headrace.client.produce import send
from headrace.client.transactions import Transaction, Transactions
from headrace.model import TopicPartition
from headrace.pipelines.errors import PipelineError
from headrace.protocol.errors import ErrorCode


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
