"""Transactions at work: the pure coordinator, its topic, and the markers that end a transaction in every partition.

A producer's first batch in a transaction may reach the disk before the coordinator's own record of it does. So at the
start every open transaction in every log is held against what the coordinator knows. If its producer can still go on
with it, the partition is added again: were it aborted alone, the producer, whose batch the log knows, would be told
that it is there, and commit the rest. One that nobody will end is aborted, and its epoch fenced off.

What share groups have acknowledged in a transaction is written in `__share_group_state` as what it is, and its end is
written there too, in place of a marker. Nobody was told of an acknowledgement whose transaction does not know of it.
"""

import asyncio
from collections.abc import Callable, Iterable

from headrace.broker.coordinator_log import CoordinatorLog, replay
from headrace.broker.coordinator_shell import CoordinatorShell, Durability
from headrace.broker.groups import OFFSETS_TOPIC, Groups
from headrace.broker.shares import Shares
from headrace.broker.topics import TopicCatalog
from headrace.broker.turns import Deferred
from headrace.coordinator.decision import CoordinatorRecord
from headrace.coordinator.share import partition as sharing
from headrace.coordinator.share.records import STATE_TOPIC as SHARE_STATE_TOPIC
from headrace.coordinator.transaction import adding
from headrace.coordinator.transaction.coordinator import TransactionCoordinator
from headrace.coordinator.transaction.ending import markers_of
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
from headrace.coordinator.transaction.machine import EPOCH_BUMP_TRANSACTIONS, MAX_EPOCH, Transaction, TransactionConfig
from headrace.coordinator.transaction.records import decode, encode
from headrace.model import NO_PRODUCER_ID, TopicPartition
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from headrace.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from headrace.protocol.messages.end_txn import EndTxnRequest
from headrace.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from headrace.protocol.schema import Message
from headrace.records import ControlType, build_marker
from headrace.storage.errors import ProducerError, StorageError
from headrace.storage.log import Log
from headrace.storage.producer_state import Producer
from headrace.telemetry.logs import get_logger

STATE_TOPIC = "__transaction_state"
PATIENCE_S = 1.0  # how long a request waits for the end of the transaction before it, if the disk does not get it done
MOST_HELD_BYTES = 64 * 1024 * 1024  # of all requests that wait like this; beyond it they are asked at once
_log = get_logger(__name__)

Asked = Message | Deferred[Message | None] | None  # as a handler may answer (`handler.Answer`)


class Transactions:
    def __init__(
        self,
        runtime: Durability,
        topics: TopicCatalog,
        groups: Groups,
        shares: Shares,
        config: TransactionConfig,
        *,
        partitions: int,
        next_producer_id: Callable[[], int],
        refuse_id: Callable[[int], bool] = lambda _: False,
    ) -> None:
        """`refuse_id` is asked whether a transactional id more is too many, besides so many that are known."""
        self._runtime = runtime
        self._refuse_id = refuse_id
        self._topics = topics
        self._groups = groups
        self._shares = shares
        self._next_producer_id = next_producer_id
        self._config = config
        self.coordinator = TransactionCoordinator(config, coordinator_epoch=runtime.leader_epoch)
        self.log = CoordinatorLog(topics, STATE_TOPIC, partitions=partitions, encode=encode, owner_of=_id_of)
        self._shell = CoordinatorShell(
            runtime,
            self.log,
            decide=lambda event, now_ms: self.coordinator.decide(event, now_ms),
            apply=lambda record, _: self.coordinator.apply(record),
            on_timer=self._fire,
            on_effect=self._end,
            load=self.load,
        )
        # By transactional id, what waits for the end of its transaction, in order, each with the end of its patience.
        self._held: dict[str, dict[Callable[[], None], asyncio.TimerHandle]] = {}
        self._held_bytes = 0

    def load(self) -> None:
        """Take in what was written, end what was prepared, and settle what is open in the logs; or do so anew."""
        self.coordinator = TransactionCoordinator(self._config, coordinator_epoch=self._runtime.leader_epoch)
        self.log.note_cuts()
        for log in self.log.partitions():
            replay(log, decode, lambda record, _: self.coordinator.apply(record))
        self._shell.tell(Loaded())
        self._settle_hanging()
        self._settle_acknowledged()

    # --- asking

    def is_ending(self, transactional_id: str) -> bool:
        """Whether the end of its transaction is decided, and not yet in all partitions."""
        known = self.coordinator.transactions.get(transactional_id)
        return known is not None and known.is_prepared

    def after_end(self, transactional_ids: Iterable[str], ask: Callable[[], Asked], size_bytes: int = 0) -> Asked:
        """Ask, but for as long as the markers of a transaction that is named wait for the disk, wait for them too.

        A client that is answered CONCURRENT_TRANSACTIONS comes back after a pause many times as long as a sync. What is
        asked for about one transactional id stays in its order. It is asked after a while in any case: then the client
        learns that it is too early.
        """
        ending = next(filter(self.is_ending, transactional_ids), None)
        if ending is None or self._held_bytes + size_bytes > MOST_HELD_BYTES:
            return ask()
        answer: Deferred[Message | None] = Deferred()

        def go_on() -> None:
            self._held_bytes -= size_bytes
            self._held[ending].pop(go_on).cancel()
            if not self._held[ending]:
                del self._held[ending]
            try:
                asked = ask()
            except Exception as error:  # noqa: BLE001 - whoever waits behind it has nothing to do with it
                answer.fail(error)
                return
            asked.then(answer.set, answer.fail) if isinstance(asked, Deferred) else answer.set(asked)

        patience = asyncio.get_running_loop().call_later(PATIENCE_S, go_on)
        self._held.setdefault(ending, {})[go_on] = patience
        self._held_bytes += size_bytes
        return answer

    def ask(self, message: TransactionRequest, version: int) -> Asked:
        return self.after_end(_ids_in(message), lambda: self._ask(message, version))

    def _ask(self, message: TransactionRequest, version: int) -> Deferred[Message | None]:
        if isinstance(message, InitProducerIdRequest) and message.transactional_id is not None:
            known = self.coordinator.transactions
            if message.transactional_id not in known and self._refuse_id(len(known)):
                refused: Deferred[Message | None] = Deferred()
                refused.set(InitProducerIdResponse(error_code=ErrorCode.POLICY_VIOLATION))
                return refused

        def event(token: int) -> Request:
            asked = Request(token, message, version)  # type: ignore[arg-type]  # a token is an int
            if self.coordinator.needs_producer_id(asked):
                return Request(asked.token, message, version, self._next_producer_id())
            return asked

        return self._shell.request(event)

    def is_part(self, transactional_id: str, producer_id: int, epoch: int, partition: TopicPartition) -> bool:
        """Whether the coordinator knows that a producer's open transaction writes to this partition."""
        known = self.coordinator.transactions.get(transactional_id)
        if known is None or not known.is_ongoing:
            return False
        return (known.producer_id, known.producer_epoch) == (producer_id, epoch) and partition in known.partitions

    def check_write(
        self, transactional_id: str, producer_id: int, epoch: int, partition: TopicPartition, support: WriterSupport
    ) -> tuple[ErrorCode, list[Log]]:
        """Whether a producer may write to this partition in its transaction; adds it where the client expects that."""
        return self.check_writes(transactional_id, producer_id, epoch, frozenset([partition]), support)

    def check_writes(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        partitions: frozenset[TopicPartition],
        support: WriterSupport,
    ) -> tuple[ErrorCode, list[Log]]:
        """Whether a producer may write to all of these partitions in its transaction.

        With the answer come the logs that must be durable before the write is acknowledged: a batch whose transaction
        does not know of it would be aborted after a crash.
        """
        response, logs = self._shell.ask_now(
            lambda token: VerifyOrAdd(token, transactional_id, producer_id, epoch, partitions, support)
        )
        if not isinstance(response, AddPartitionsToTxnResponse):
            return ErrorCode.COORDINATOR_NOT_AVAILABLE, []
        errors = adding.errors_in(response).values()
        return next((error for error in errors if error is not ErrorCode.NONE), ErrorCode.NONE), logs

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

        known = self.coordinator.transactions.get(effect.transactional_id)
        if known is None or not known.is_prepared or markers_of(known, effect.coordinator_epoch) != effect:
            return  # tried again, and meanwhile all was read anew, and ended: the producer is in its next one
        topic = self._topics.by_name.get(partition.topic)
        if topic is None or partition.partition >= len(topic.partitions):
            done(None)  # a partition that is gone has no transaction to end
            return
        log = topic.partitions[partition.partition]
        try:
            if partition.topic == SHARE_STATE_TOPIC:
                if not self._end_acknowledged(effect, partition.partition):
                    self._retry(effect, partition, left)
                    return
            elif not _is_there(effect, log):
                self.append_marker(
                    log, effect.producer_id, effect.producer_epoch, effect.coordinator_epoch, committed=effect.committed
                )
        except ProducerError:
            pass  # a later epoch has been here: the transaction is ended already
        except StorageError as error:
            _log.error("a transaction marker could not be written", log=str(partition), error=str(error))
            self._retry(effect, partition, left)
            return
        self._runtime.appended(log, log.end_offset, done)

    def _end_acknowledged(self, effect: WriteMarkers, index: int) -> bool:
        is_numbered = effect.transaction_version >= EPOCH_BUMP_TRANSACTIONS  # then the next one has the marker's epoch
        producer = sharing.Producer(effect.producer_id, effect.producer_epoch - is_numbered)
        return self._shares.end_transaction(index, producer, is_committed=effect.committed)

    def _settle_acknowledged(self) -> None:
        """Release what was acknowledged in a transaction that does not know of it, which was never answered."""
        for index, producer in self._shares.pending():
            partition = TopicPartition(SHARE_STATE_TOPIC, index)
            is_known = any(
                known.producer_id == producer.id
                and partition in known.partitions
                and known.producer_epoch - _is_numbered(known) == producer.epoch
                for known in self.coordinator.transactions.values()
            )
            if is_known:
                continue
            if not self._shares.end_transaction(index, producer, is_committed=False):
                self._shell.retry(self._settle_acknowledged)
                return
            log = self._shares.log.partitions()[index]
            self._runtime.appended(log, log.end_offset, self._settle_acknowledged_again)

    def _settle_acknowledged_again(self, error: StorageError | None) -> None:
        if error:  # the disk has lost it, and what was released is pending again
            self._shell.retry(self._settle_acknowledged)

    def _complete(self, effect: WriteMarkers) -> None:
        if not self._shell.tell(_to_written(effect)):
            self._shell.retry(self._complete, effect)
            return
        for go_on in tuple(self._held.get(effect.transactional_id, ())):
            go_on()

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
        owners = {}
        for known in self.coordinator.transactions.values():
            owners[known.producer_id] = known
            if known.next_producer_id != NO_PRODUCER_ID:
                owners[known.next_producer_id] = known
        for topic in list(self._topics.by_name.values()):
            for log in topic.partitions:
                for producer in list(log.producers.producers.values()):
                    owner = owners.get(producer.producer_id)
                    is_known = owner and log.topic_partition in owner.partitions and not _is_next(owner, producer)
                    if producer.transaction_start is not None and not is_known:
                        self._settle(log, owner and owner.transactional_id, producer.producer_id, producer.epoch)

    def _settle(self, log: Log, owner: str | None, producer_id: int, epoch: int) -> None:
        producer = log.producers.producers.get(producer_id)
        if producer is None or producer.transaction_start is None or producer.epoch != epoch:
            return
        if owner is not None:
            if self.is_ending(owner):  # whoever asks for it meanwhile comes after this
                self.after_end([owner], lambda: self._settle(log, owner, producer_id, epoch))
                return
            error, _ = self.check_write(owner, producer_id, epoch, log.topic_partition, WriterSupport.ADDS_PARTITIONS)
            if error is ErrorCode.NONE:
                _log.warning("added a partition to its transaction again", log=str(log.topic_partition), id=owner)
                return
            if error is ErrorCode.COORDINATOR_NOT_AVAILABLE:  # the disk refused it, and nothing is decided
                self._shell.retry(self._settle, log, owner, producer_id, epoch)
                return
        _log.warning("aborted a transaction that nobody would end", log=str(log.topic_partition))
        # Under the next epoch: the batches of this one, sent again, are refused, not taken for what is there already.
        next_epoch = min(epoch + 1, MAX_EPOCH)
        self.append_marker(log, producer_id, next_epoch, self._runtime.leader_epoch, committed=False)
        self._runtime.appended(log, log.end_offset)

    def close(self) -> None:
        """End; whoever waits is not answered any more."""
        for waiting in self._held.values():
            for patience in waiting.values():
                patience.cancel()
        self._held.clear()
        self._held_bytes = 0
        self._shell.close()


def _is_there(effect: WriteMarkers, log: Log) -> bool:
    """Whether a transaction has its marker already, where that can be seen: since version 2 by its epoch (KIP-1228).

    To write it again would end the producer's next transaction, whose first batches may follow it.
    """
    producer = log.producers.producers.get(effect.producer_id)
    is_numbered = effect.transaction_version >= EPOCH_BUMP_TRANSACTIONS
    return is_numbered and producer is not None and producer.epoch >= effect.producer_epoch


def _is_numbered(known: Transaction) -> bool:
    """Whether a transaction has moved its epoch on already, with the decision to end it."""
    return known.is_prepared and known.client_version >= EPOCH_BUMP_TRANSACTIONS


def _is_next(known: Transaction, producer: Producer) -> bool:
    """Whether what is open in a log belongs to the transaction after the one that the coordinator is about to end."""
    if not _is_numbered(known):
        return False
    return producer.producer_id != known.producer_id or producer.epoch >= known.producer_epoch


def _to_written(effect: WriteMarkers) -> MarkersWritten:
    return MarkersWritten(effect.transactional_id, effect.producer_id, effect.producer_epoch)


def _ids_in(message: TransactionRequest) -> Iterable[str]:
    match message:
        case InitProducerIdRequest(transactional_id=str(name)):
            return (name,)
        case AddPartitionsToTxnRequest():
            return (message.v3_and_below_transactional_id, *(each.transactional_id for each in message.transactions))
        case AddOffsetsToTxnRequest() | EndTxnRequest():
            return (message.transactional_id,)
    return ()


def _id_of(record: CoordinatorRecord) -> str:
    return str(getattr(record.key, "transactional_id", ""))
