"""Transactions at work: the pure coordinator, its topic, and the markers that end a transaction in every partition.

A producer's first batch in a transaction may reach the disk before the coordinator's own record of it does. So at the
start every open transaction in every log is held against what the coordinator knows. If its producer can still go on
with it, the partition is added again: were it aborted alone, the producer, whose batch the log knows, would be told
that it is there, and commit the rest. One that nobody will end is aborted, and its epoch fenced off.
"""

from collections.abc import Callable

from headrace.broker.coordinator_log import CoordinatorLog
from headrace.broker.coordinator_shell import CoordinatorShell, Durability
from headrace.broker.deferred import Deferred
from headrace.broker.groups import OFFSETS_TOPIC, Groups
from headrace.broker.topics import TopicCatalog
from headrace.coordinator.decision import CoordinatorRecord
from headrace.coordinator.transaction import adding
from headrace.coordinator.transaction.config import TransactionConfig
from headrace.coordinator.transaction.coordinator import TransactionCoordinator
from headrace.coordinator.transaction.events import (
    Loaded,
    MarkersWritten,
    Request,
    TimerFired,
    TransactionRequest,
    VerifyOrAdd,
    WriteMarkers,
    WriterSupport,
)
from headrace.coordinator.transaction.machine import MAX_EPOCH
from headrace.coordinator.transaction.records import decode, encode
from headrace.model import TopicPartition
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnResponse
from headrace.protocol.schema import Message
from headrace.records import ControlType, build_marker, header_at, records_of
from headrace.storage.errors import ProducerError, StorageError
from headrace.storage.log import Log
from headrace.telemetry.logs import get_logger

STATE_TOPIC = "__transaction_state"
_log = get_logger(__name__)


class Transactions:
    """All transactional producers of the broker."""

    def __init__(
        self,
        runtime: Durability,
        topics: TopicCatalog,
        groups: Groups,
        config: TransactionConfig,
        *,
        partitions: int,
        next_producer_id: Callable[[], int],
    ) -> None:
        self._runtime = runtime
        self._topics = topics
        self._groups = groups
        self._next_producer_id = next_producer_id
        self.coordinator = TransactionCoordinator(config, coordinator_epoch=runtime.leader_epoch)
        self.log = CoordinatorLog(topics, STATE_TOPIC, partitions=partitions, encode=encode, owner_of=_id_of)
        self._shell = CoordinatorShell(
            runtime,
            self.log,
            decide=self.coordinator.decide,
            apply=lambda record, _: self.coordinator.apply(record),
            on_timer=self._fire,
            on_effect=self._end,
        )

    def load(self) -> None:
        """Take in what was written, end what was prepared, and settle what is open in the logs."""
        for batch in self.log.batches():
            for record in () if header_at(batch).is_control else records_of(batch):
                decoded = decode(record.key or b"", record.value)
                if decoded:
                    self.coordinator.apply(decoded)
        self._shell.tell(Loaded())
        self._settle_hanging()

    # --- asking

    def ask(self, message: TransactionRequest, version: int) -> Deferred[Message | None]:
        """Ask for a client."""

        def event(token: int) -> Request:
            asked = Request(token, message, version)  # type: ignore[arg-type]  # a token is an int
            if self.coordinator.needs_producer_id(asked):
                return Request(asked.token, message, version, self._next_producer_id())
            return asked

        return self._shell.request(event)

    def check_write(
        self, transactional_id: str, producer_id: int, epoch: int, partition: TopicPartition, support: WriterSupport
    ) -> tuple[ErrorCode, list[Log]]:
        """Whether a producer may write to this partition in its transaction; adds it where the client expects that.

        With the answer come the logs that must be durable before the write is acknowledged: a batch whose transaction
        does not know of it would be aborted after a crash.
        """
        response, logs = self._shell.ask_now(
            lambda token: VerifyOrAdd(token, transactional_id, producer_id, epoch, frozenset([partition]), support)
        )
        if not isinstance(response, AddPartitionsToTxnResponse):
            return ErrorCode.COORDINATOR_NOT_AVAILABLE, []
        return adding.errors_in(response)[partition], logs

    def _fire(self, key: object) -> bool:
        event = TimerFired(key)  # type: ignore[arg-type]  # the coordinator's own timers come back
        if self.coordinator.needs_producer_id(event):
            try:
                event = TimerFired(event.key, self._next_producer_id())
            except StorageError as error:  # the timer fires again
                _log.error("no producer id could be reserved", error=str(error))
                return False
        return self._shell.tell(event) is not None

    # --- markers

    def _end(self, effect: object) -> None:
        assert isinstance(effect, WriteMarkers)
        left = set(effect.partitions)
        if not left:
            self._complete(effect)
        for partition in sorted(effect.partitions):
            self._write_marker(effect, partition, left)

    def _write_marker(self, effect: WriteMarkers, partition: TopicPartition, left: set[TopicPartition]) -> None:
        def done(error: StorageError | None) -> None:
            if error:
                self._retry(effect, partition, left)
                return
            left.discard(partition)
            if not left:
                self._complete(effect)

        topic = self._topics.by_name.get(partition.topic)
        if topic is None or partition.partition >= len(topic.partitions):
            done(None)  # a partition that is gone has no transaction to end
            return
        log = topic.partitions[partition.partition]
        try:
            self.append_marker(
                log, effect.producer_id, effect.producer_epoch, effect.coordinator_epoch, committed=effect.committed
            )
        except ProducerError:
            done(None)  # a later epoch has been here: the transaction is ended already
            return
        except StorageError as error:
            _log.error("a transaction marker could not be written", log=str(partition), error=str(error))
            self._retry(effect, partition, left)
            return
        self._runtime.appended(log, log.end_offset, done)

    def _complete(self, effect: WriteMarkers) -> None:
        if not self._shell.tell(_written(effect)):
            self._shell.retry(self._complete, effect)

    def _retry(self, effect: WriteMarkers, partition: TopicPartition, left: set[TopicPartition]) -> None:
        self._shell.retry(self._write_marker, effect, partition, left)

    def append_marker(self, log: Log, producer_id: int, epoch: int, coordinator_epoch: int, *, committed: bool) -> None:
        """Write the marker that ends a producer's open transaction in one partition."""
        now_ms = self._runtime.now_ms()
        marker = build_marker(
            ControlType.COMMIT if committed else ControlType.ABORT,
            producer_id=producer_id,
            producer_epoch=epoch,
            coordinator_epoch=coordinator_epoch,
            timestamp=now_ms,
        )
        log.append(marker, now_ms=now_ms, leader_epoch=self._runtime.leader_epoch, from_client=False)
        if log.topic_partition.topic == OFFSETS_TOPIC:
            self._groups.transaction_ended(producer_id, epoch, committed=committed)

    def _settle_hanging(self) -> None:
        """Give every open transaction in a log somebody who will end it, or end it."""
        known = {
            (transaction.producer_id, partition)
            for transaction in self.coordinator.transactions.values()
            for partition in transaction.partitions
        }
        owners = {transaction.producer_id: name for name, transaction in self.coordinator.transactions.items()}
        for topic in list(self._topics.by_name.values()):
            for log in topic.partitions:
                for producer in list(log.producers.producers.values()):
                    is_open = producer.transaction_start is not None
                    if is_open and (producer.producer_id, log.topic_partition) not in known:
                        self._settle(log, owners.get(producer.producer_id), producer.producer_id, producer.epoch)

    def _settle(self, log: Log, owner: str | None, producer_id: int, epoch: int) -> None:
        if owner is not None:
            error, _ = self.check_write(owner, producer_id, epoch, log.topic_partition, WriterSupport.ADDS_PARTITIONS)
            if error is ErrorCode.NONE:
                _log.warning("added a partition to its transaction again", log=str(log.topic_partition), id=owner)
                return
        _log.warning("aborted a transaction that nobody would end", log=str(log.topic_partition))
        # Under the next epoch: the batches of this one, sent again, are refused, not taken for what is there already.
        next_epoch = min(epoch + 1, MAX_EPOCH)
        self.append_marker(log, producer_id, next_epoch, self._runtime.leader_epoch, committed=False)
        self._runtime.appended(log, log.end_offset)

    def close(self) -> None:
        """End."""
        self._shell.close()


def _written(effect: WriteMarkers) -> MarkersWritten:
    return MarkersWritten(effect.transactional_id, effect.producer_id, effect.producer_epoch)


def _id_of(record: CoordinatorRecord) -> str:
    return str(getattr(record.key, "transactional_id", ""))
