"""The records of `__transaction_state`, in Kafka's own formats, and what they say.

A key starts with two bytes that say its type, a value with two that say its version. There is one record for each move
of a transactional id, it holds all of its state, and the last one counts; a tombstone forgets the id. What always
holds: a transaction written and read back is the same, except for what Kafka does not write either: the epoch that a
producer had before it asked for a new one, which `LastEpoch` carries until the broker stops.
"""

from functools import lru_cache
from typing import NamedTuple

from headrace.coordinator.decision import CoordinatorRecord
from headrace.coordinator.transaction.machine import (
    EPOCH_BUMP_TRANSACTIONS,
    LAST_USABLE_EPOCH,
    NO_EPOCH,
    InvalidTransactionRecord,
    Transaction,
    TransactionState,
    by_topic,
)
from headrace.model import TopicPartition
from headrace.protocol import codec
from headrace.protocol.errors import MalformedMessage
from headrace.protocol.schema import (
    INT32,
    Buffer,
    Message,
    Struct,
    array,
    int8,
    int16,
    int32,
    int64,
    nullable_array,
    string,
)

_RECORD_TYPE = 0
_KEY_VERSION = 0
_WRITTEN_VERSION = 1  # the flexible one, of transaction version 1 and above (KIP-890)
_PREFIX_BYTES = 2

_NEVER_WRITTEN = frozenset({TransactionState.DEAD, TransactionState.PREPARE_EPOCH_FENCE})


class TransactionLogKey(Message, versions=range(1)):
    transactional_id: str = string()


class PartitionsSchema(Struct):
    topic: str = string()
    partition_ids: list[int] = array(INT32)


class TransactionLogValue(Message, versions=range(2), flexible_since=1):
    """All that is known of it; version 1 has tagged fields (KIP-890, KIP-939)."""

    producer_id: int = int64()
    previous_producer_id: int = int64(since=1, tag=0, default=-1)
    next_producer_id: int = int64(since=1, tag=1, default=-1)
    producer_epoch: int = int16()
    next_producer_epoch: int = int16(since=1, tag=3, default=-1)  # of two-phase commit, which Kafka has not finished
    transaction_timeout_ms: int = int32()
    transaction_status: int = int8()
    transaction_partitions: list[PartitionsSchema] | None = nullable_array(PartitionsSchema)
    transaction_last_update_timestamp_ms: int = int64()
    transaction_start_timestamp_ms: int = int64()
    client_transaction_version: int = int16(since=1, tag=2)


class LastEpoch(NamedTuple):
    """The key of a record that is applied and not written; its value is the epoch before the present one."""

    transactional_id: str


def encode(record: CoordinatorRecord) -> tuple[bytes, bytes | None]:
    """The key and the value as they are written; the value of a tombstone is None."""
    key, value = record.key, record.value
    if not isinstance(key, TransactionLogKey):
        raise TypeError(f"{type(key).__name__} is not the key of a record of __transaction_state")
    key_bytes = _RECORD_TYPE.to_bytes(_PREFIX_BYTES, "big") + codec.encode(key, _KEY_VERSION)
    if value is None:
        return key_bytes, None
    if not isinstance(value, TransactionLogValue):
        raise TypeError(f"{type(value).__name__} is not the value of a TransactionLogKey")
    return key_bytes, _WRITTEN_VERSION.to_bytes(_PREFIX_BYTES, "big") + codec.encode(value, _WRITTEN_VERSION)


def decode(key: Buffer, value: Buffer | None) -> CoordinatorRecord | None:
    """The record; None if its type or version is not known here: Kafka passes over what a newer broker wrote, too."""
    if _leading_number(key) != _RECORD_TYPE:
        return None
    decoded_key = codec.decode(TransactionLogKey, _KEY_VERSION, bytes(key[_PREFIX_BYTES:]))
    if value is None:
        return CoordinatorRecord(decoded_key, None)
    version = _leading_number(value)
    if version not in TransactionLogValue.__schema__.versions:
        return None
    return CoordinatorRecord(decoded_key, codec.decode(TransactionLogValue, version, bytes(value[_PREFIX_BYTES:])))


def _leading_number(data: Buffer) -> int:
    if len(data) < _PREFIX_BYTES:
        raise MalformedMessage("a record of __transaction_state ends before its type or version", 0)
    return int.from_bytes(data[:_PREFIX_BYTES], "big", signed=True)


def records_of(transaction: Transaction) -> tuple[CoordinatorRecord, ...]:
    key = TransactionLogKey(transactional_id=transaction.transactional_id)
    written = CoordinatorRecord(key, _value_of(transaction))
    if transaction.state is not TransactionState.EMPTY or transaction.last_producer_epoch == NO_EPOCH:
        return (written,)
    last = CoordinatorRecord(LastEpoch(transaction.transactional_id), transaction.last_producer_epoch, is_kept=False)
    return (written, last)


def tombstone_of(transaction: Transaction) -> CoordinatorRecord:
    return CoordinatorRecord(TransactionLogKey(transactional_id=transaction.transactional_id), None)


def transaction_of(transactional_id: str, value: TransactionLogValue, before: Transaction | None) -> Transaction:
    """The transaction that a record tells of; `before` is what was known of it until now."""
    try:
        state = TransactionState(value.transaction_status)
    except ValueError:
        raise InvalidTransactionRecord(transactional_id, f"has status {value.transaction_status}") from None
    if state in _NEVER_WRITTEN:
        raise InvalidTransactionRecord(transactional_id, f"has status {state.label}, which is never written")
    if min(value.producer_id, value.producer_epoch, value.transaction_timeout_ms) < 0:
        raise InvalidTransactionRecord(transactional_id, "has a negative producer id, epoch or time-out")
    topics = value.transaction_partitions or []
    if any(number < 0 for topic in topics for number in topic.partition_ids):
        raise InvalidTransactionRecord(transactional_id, "names a partition below 0")
    if state is TransactionState.EMPTY and topics:
        raise InvalidTransactionRecord(transactional_id, "is empty and has partitions")
    return Transaction(
        transactional_id=transactional_id,
        producer_id=value.producer_id,
        producer_epoch=value.producer_epoch,
        timeout_ms=value.transaction_timeout_ms,
        state=state,
        updated_ms=value.transaction_last_update_timestamp_ms,
        started_ms=value.transaction_start_timestamp_ms,
        partitions=frozenset(TopicPartition(topic.topic, number) for topic in topics for number in topic.partition_ids),
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        last_producer_epoch=_last_epoch(value, state, before),
        client_version=value.client_transaction_version,
    )


def _value_of(transaction: Transaction) -> TransactionLogValue:
    return TransactionLogValue(
        producer_id=transaction.producer_id,
        previous_producer_id=transaction.previous_producer_id,
        next_producer_id=transaction.next_producer_id,
        producer_epoch=transaction.producer_epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=transaction.state,
        transaction_partitions=_partitions_of(transaction),
        transaction_last_update_timestamp_ms=transaction.updated_ms,
        transaction_start_timestamp_ms=transaction.started_ms,
        client_transaction_version=transaction.client_version,
    )


def _partitions_of(transaction: Transaction) -> list[PartitionsSchema] | None:
    if transaction.state is TransactionState.EMPTY:
        return None
    return [
        PartitionsSchema(topic=topic, partition_ids=numbers)
        for topic, numbers in by_topic(transaction.partitions).items()
    ]


def _last_epoch(value: TransactionLogValue, state: TransactionState, before: Transaction | None) -> int:
    """The epoch that a producer may still name because it has not heard of the present one.

    Where every end moves the epoch on, the record itself tells it. Kafka forgets it at a restart nevertheless, and then
    fences a producer that only repeats itself.
    """
    if state is TransactionState.EMPTY:
        return NO_EPOCH  # unless a `LastEpoch` follows
    if state is not TransactionState.ONGOING and value.client_transaction_version >= EPOCH_BUMP_TRANSACTIONS:
        return value.producer_epoch - 1 if value.producer_epoch > 0 else LAST_USABLE_EPOCH
    if before is not None and (before.producer_id, before.producer_epoch) == (value.producer_id, value.producer_epoch):
        return before.last_producer_epoch
    return NO_EPOCH


_SIGN = 1 << 31
_WRAP = 1 << 32


def java_hash(text: str) -> int:
    """Java's `String.hashCode`: 31 times the hash so far plus the next UTF-16 unit, in 32 bits."""
    total = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(units[::2], units[1::2], strict=True):
        total = (31 * total + (high << 8 | low)) % _WRAP
    return total - _WRAP if total >= _SIGN else total


@lru_cache(maxsize=4096)  # asked for every record that is written, and for few keys
def partition_for(key: str, partition_count: int) -> int:
    """The partition of `__transaction_state` for a transactional id, or of `__consumer_offsets` for a group."""
    hashed = java_hash(key)
    # The smallest integer has no positive counterpart in Java, where it counts as zero.
    return 0 if hashed == -_SIGN else abs(hashed) % partition_count
