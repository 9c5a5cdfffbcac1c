"""Records of `__transaction_state` as bytes, and what is made of them."""

import pytest

from headrace.coordinator.decision import CoordinatorRecord
from headrace.coordinator.transaction.coordinator import TransactionCoordinator
from headrace.coordinator.transaction.machine import InvalidTransactionRecord, TransactionState
from headrace.coordinator.transaction.records import (
    LastEpoch,
    PartitionsSchema,
    TransactionLogKey,
    TransactionLogValue,
    decode,
    encode,
)
from headrace.protocol import codec
from headrace.protocol.errors import MalformedMessage, NotRepresentable

KEY = TransactionLogKey(transactional_id="t")
VALUE = TransactionLogValue(
    producer_id=1,
    producer_epoch=2,
    transaction_timeout_ms=3,
    transaction_status=1,
    transaction_partitions=[PartitionsSchema(topic="a", partition_ids=[4])],
    transaction_last_update_timestamp_ms=5,
    transaction_start_timestamp_ms=6,
)
TAGGED = TransactionLogValue(
    producer_id=1,
    previous_producer_id=7,
    next_producer_id=8,
    next_producer_epoch=9,
    client_transaction_version=2,
    transaction_partitions=None,
)


def _bytes(text):
    return bytes.fromhex(text.replace(" ", ""))


def test_a_record_is_written_as_kafka_writes_it():
    key, value = encode(CoordinatorRecord(KEY, VALUE))
    assert key == _bytes("0000 0001 74")
    assert value == _bytes(
        "0001 0000000000000001 0002 00000003 01 02 02 61 02 00000004 00 0000000000000005 0000000000000006 00"
    )


def test_tagged_fields_are_written_only_if_they_say_something():
    _, value = encode(CoordinatorRecord(KEY, TAGGED))
    assert value.endswith(_bytes("04 0008 0000000000000007 0108 0000000000000008 0202 0002 0302 0009"))


@pytest.mark.parametrize("value", [VALUE, TAGGED, None], ids=["plain", "tagged", "tombstone"])
def test_a_record_comes_back(value):
    record = CoordinatorRecord(KEY, value)
    assert decode(*encode(record)) == record


def test_the_old_version_is_read_too():
    old = b"\0\0" + codec.encode(VALUE, 0)
    assert decode(encode(CoordinatorRecord(KEY, None))[0], memoryview(old)) == CoordinatorRecord(KEY, VALUE)
    with pytest.raises(NotRepresentable):
        codec.encode(TAGGED, 0)


def test_what_a_newer_broker_wrote_is_passed_over():
    key, value = encode(CoordinatorRecord(KEY, VALUE))
    assert decode(b"\0\1" + key[2:], value) is None
    assert decode(key, b"\0\2" + value[2:]) is None


@pytest.mark.parametrize("torn", [b"", b"\0"])
def test_what_has_no_type_or_version_is_malformed(torn):
    key, value = encode(CoordinatorRecord(KEY, VALUE))
    with pytest.raises(MalformedMessage):
        decode(torn, value)
    with pytest.raises(MalformedMessage):
        decode(key, torn)


@pytest.mark.parametrize(
    "record",
    [
        CoordinatorRecord("t", VALUE),
        CoordinatorRecord(KEY, "value"),
        CoordinatorRecord(LastEpoch("t"), 3, is_kept=False),
    ],
    ids=["a foreign key", "a foreign value", "what is not kept"],
)
def test_other_records_are_not_written(record):
    with pytest.raises(TypeError):
        encode(record)


@pytest.mark.parametrize(
    ("value", "what"),
    [
        (TransactionLogValue(transaction_status=8), "has status 8"),
        (TransactionLogValue(transaction_status=-1), "has status -1"),
        (TransactionLogValue(transaction_status=TransactionState.DEAD), "Dead, which is never written"),
        (TransactionLogValue(transaction_status=TransactionState.PREPARE_EPOCH_FENCE), "is never written"),
        (TransactionLogValue(transaction_partitions=[PartitionsSchema(topic="a")]), "is empty and has partitions"),
    ],
)
def test_a_record_that_means_nothing_is_refused(value, what):
    coordinator = TransactionCoordinator()
    with pytest.raises(InvalidTransactionRecord, match=what):
        coordinator.apply(CoordinatorRecord(KEY, value))
    assert not coordinator.transactions


def test_a_foreign_record_is_refused():
    coordinator = TransactionCoordinator()
    with pytest.raises(TypeError, match="str is not the key"):
        coordinator.apply(CoordinatorRecord("t", VALUE))
    with pytest.raises(InvalidTransactionRecord, match="last epoch of what is not known"):
        coordinator.apply(CoordinatorRecord(LastEpoch("t"), 3))


def test_a_tombstone_of_what_is_not_known_says_nothing():
    coordinator = TransactionCoordinator()
    coordinator.apply(CoordinatorRecord(KEY, None))
    assert not coordinator.transactions
