"""Transactions and idempotent producers on a running broker: what readers see, who is refused, what a crash leaves."""

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from headrace.broker.embedded import Broker
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    ProducerState,
)
from headrace.protocol.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from headrace.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from headrace.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from headrace.protocol.messages.shared import TopicIndexes
from headrace.records import headers_in
from tests.integration.transaction_wire import (
    NEW,
    OLD,
    WireProducer,
    batch_of,
    committed_offset,
    end_offset,
    fetch_committed,
    is_stable,
)
from tests.integration.waiting import wait_until
from tests.integration.wire import Wire

CRASHES = 8


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    settings = {"group.initial.rebalance.delay.ms": "0"}
    with Broker(tmp_path_factory.mktemp("data"), settings=settings) as running:
        yield running


@pytest.fixture
def wire(broker: Broker) -> Iterator[Wire]:
    with Wire(broker.bootstrap_servers) as connected:
        yield connected


def crash(broker: Broker) -> None:
    """kill -9, and start again on the same data."""
    os.kill(broker.pid, signal.SIGKILL)
    broker.stop()
    broker.start()


def producers_of(wire: Wire, topic: str) -> list[ProducerState]:
    request = DescribeProducersRequest(topics=[TopicIndexes(name=topic, partition_indexes=[0])])
    (answer,) = wire.ask(request, DescribeProducersResponse, 0).topics[0].partitions
    assert answer.error_code == 0
    return answer.active_producers


@pytest.mark.parametrize("version", [OLD, NEW])
class TestReaders:
    def test_what_was_aborted_is_never_seen_and_what_was_committed_is(self, wire: Wire, version: int) -> None:
        topic = f"aborted-{version}"
        wire.create(topic)
        producer = WireProducer(wire, topic, version=version)
        seen = []
        for number, committed in enumerate([True, False, True, False, False, True]):
            value = b"%d" % number
            assert producer.send(topic, value, value) == 0
            assert producer.end(committed=committed) == 0
            if committed:
                seen += [value, value]
        wait_until(lambda: is_stable(wire, topic), "a transaction was left open")
        assert fetch_committed(wire, topic)[0] == seen
        wait_until(lambda: len(wire.read_all(topic)) == 12 + 6, "who reads everything does not see all of it")

    def test_an_open_transaction_holds_committed_readers_back(self, wire: Wire, version: int) -> None:
        topic = f"held-{version}"
        wire.create(topic)
        assert wire.produce(topic, batch_of(b"before")) == (0, 0)
        producer = WireProducer(wire, topic, version=version)
        assert producer.send(topic, b"open") == 0
        assert wire.produce(topic, batch_of(b"after")) == (0, 2)
        assert fetch_committed(wire, topic) == ([b"before"], 1)
        assert (end_offset(wire, topic, committed=True), end_offset(wire, topic, committed=False)) == (1, 3)
        assert [record.value for record in wire.read_all(topic)] == [b"before", b"open", b"after"]
        assert producer.end(committed=True) == 0
        wait_until(
            lambda: fetch_committed(wire, topic) == ([b"before", b"open", b"after"], 4),
            "the last stable offset did not move",
        )

    def test_offsets_count_only_once_the_transaction_is_committed(self, wire: Wire, version: int) -> None:
        topic, group = f"offsets-{version}", f"group-{version}"
        wire.create(topic)
        producer = WireProducer(wire, topic, version=version)
        assert producer.commit_offset(group, topic, 5) == 0
        assert committed_offset(wire, group, topic) == (-1, 0)
        assert committed_offset(wire, group, topic, stable=True)[1] == ErrorCode.UNSTABLE_OFFSET_COMMIT
        assert producer.end(committed=False) == 0
        wait_until(lambda: committed_offset(wire, group, topic, stable=True)[1] == 0, "still unstable")
        assert committed_offset(wire, group, topic, stable=True) == (-1, 0)
        wait_until(lambda: producer.commit_offset(group, topic, 7) == 0, "the next transaction did not begin")
        assert producer.end(committed=True) == 0
        wait_until(lambda: committed_offset(wire, group, topic, stable=True) == (7, 0), "not committed")


@pytest.mark.parametrize("version", [OLD, NEW])
def test_an_older_instance_is_refused_everything(broker: Broker, wire: Wire, version: int) -> None:
    topic = f"fenced-{version}"
    wire.create(topic)
    older = WireProducer(wire, topic, version=version)
    assert older.send(topic, b"older") == 0
    with Wire(broker.bootstrap_servers) as other:
        newer = WireProducer(other, topic, version=version)
        assert newer.id == older.id
        assert newer.epoch > older.epoch
        wait_until(lambda: is_stable(wire, topic), "what the older one left open was not aborted")
        refusals = {ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH}
        assert older.produce(topic, 1, b"late")[0] in refusals
        assert older.add(topic) in refusals
        assert older.commit_offset("fenced-group", topic, 1) in refusals
        for committed in (True, False):
            assert older.end(committed=committed) in refusals
        assert newer.send(topic, b"newer") == 0
        assert older.produce(topic, 1, b"later")[0] in refusals
        assert older.end(committed=False) in refusals, "the older one cannot end what is the newer one's"
        assert newer.end(committed=True) == 0
    wait_until(lambda: is_stable(wire, topic), "a transaction was left open")
    assert fetch_committed(wire, topic)[0] == [b"newer"]


def test_a_client_that_was_fenced_learns_it(broker: Broker) -> None:
    settings = {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "twins", "log_level": 0}
    older, newer = Producer(settings), Producer(settings)
    older.init_transactions(30)
    older.begin_transaction()
    older.produce("twins", b"older")
    older.flush(30)
    newer.init_transactions(30)
    with pytest.raises(KafkaException) as refused:
        older.commit_transaction(30)
    assert refused.value.args[0].fatal()
    assert refused.value.args[0].code() in (KafkaError._FENCED, KafkaError.PRODUCER_FENCED)
    newer.begin_transaction()
    newer.produce("twins", b"newer")
    newer.commit_transaction(30)
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": "twins", "auto.offset.reset": "earliest"}
    )
    consumer.assign([TopicPartition("twins", 0, 0)])
    assert [message.value() for message in consumer.consume(1, 30)] == [b"newer"]
    consumer.close()


def test_a_transaction_that_is_open_for_too_long_is_aborted(wire: Wire) -> None:
    wire.create("forgotten")
    producer = WireProducer(wire, "forgotten", timeout_ms=2000)
    assert producer.send("forgotten", b"forgotten") == 0
    assert not is_stable(wire, "forgotten")
    wait_until(lambda: is_stable(wire, "forgotten"), "the time-out did not come")
    assert fetch_committed(wire, "forgotten")[0] == []
    assert producer.end(committed=True) in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)
    assert producer.produce("forgotten", 1, b"late")[0] == ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_time_out_that_is_too_long_is_refused(wire: Wire) -> None:
    for timeout_ms in (900_001, 0, -1):
        request = InitProducerIdRequest(transactional_id="patient", transaction_timeout_ms=timeout_ms)
        assert wire.ask(request, InitProducerIdResponse, 4).error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT


def test_transactions_and_producers_can_be_looked_at(wire: Wire) -> None:
    wire.create("shown")
    producer = WireProducer(wire, "shown")
    assert producer.send("shown", b"one", b"two") == 0

    def state() -> str:
        listed = wire.ask(ListTransactionsRequest(producer_id_filters=[producer.id]), ListTransactionsResponse, 1)
        (found,) = listed.transaction_states
        assert found.transactional_id == "shown"
        return found.transaction_state

    assert state() == "Ongoing"
    request = DescribeTransactionsRequest(transactional_ids=["shown", "unheard-of"])
    described, unknown = wire.ask(request, DescribeTransactionsResponse, 0).transaction_states
    assert (described.error_code, described.transaction_state) == (0, "Ongoing")
    assert (described.producer_id, described.producer_epoch) == (producer.id, producer.epoch)
    assert [(topic.topic, topic.partitions) for topic in described.topics] == [("shown", [0])]
    assert described.transaction_start_time_ms > 0
    assert unknown.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    (shown,) = producers_of(wire, "shown")
    assert (shown.producer_id, shown.last_sequence, shown.current_txn_start_offset) == (producer.id, 1, 0)
    assert producer.end(committed=True) == 0
    wait_until(lambda: state() == "CompleteCommit", "not complete")
    (shown,) = producers_of(wire, "shown")
    assert shown.current_txn_start_offset == -1


class TestIdempotence:
    def test_a_duplicate_is_answered_with_its_offset_even_after_a_crash(self, tmp_path: Path) -> None:
        broker = Broker(tmp_path, own_process=True).start()
        try:
            with Wire(broker.bootstrap_servers) as wire:
                wire.create("counted")
                answer = wire.ask(InitProducerIdRequest(transactional_id=None), InitProducerIdResponse, 4)
                batches = [
                    batch_of(b"%d" % number, b"+", producer=answer.producer_id, epoch=0, sequence=2 * number)
                    for number in range(7)
                ]
                offsets = [wire.produce("counted", batch) for batch in batches]
                assert offsets == [(0, 2 * number) for number in range(7)]
                assert [wire.produce("counted", batch) for batch in batches[2:]] == offsets[2:]
            crash(broker)
            with Wire(broker.bootstrap_servers) as wire:
                assert [wire.produce("counted", batch) for batch in batches[2:]] == offsets[2:]
                gap = batch_of(b"gap", producer=answer.producer_id, epoch=0, sequence=15)
                assert wire.produce("counted", gap)[0] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
                following = batch_of(b"next", producer=answer.producer_id, epoch=0, sequence=14)
                assert wire.produce("counted", following) == (0, 14)
                assert len(wire.read_all("counted")) == 15
        finally:
            broker.stop()

    def test_a_gap_is_refused_and_an_old_epoch_too(self, wire: Wire) -> None:
        wire.create("gaps")
        producer_id = wire.ask(InitProducerIdRequest(transactional_id=None), InitProducerIdResponse, 4).producer_id
        assert wire.produce("gaps", batch_of(b"0", producer=producer_id, epoch=1, sequence=0)) == (0, 0)
        gap = batch_of(b"2", producer=producer_id, epoch=1, sequence=2)
        assert wire.produce("gaps", gap)[0] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        old = batch_of(b"1", producer=producer_id, epoch=0, sequence=1)
        assert wire.produce("gaps", old)[0] == ErrorCode.INVALID_PRODUCER_EPOCH
        assert [record.value for record in wire.read_all("gaps")] == [b"0"]

    def test_a_transactional_write_outside_of_any_transaction_is_refused(self, wire: Wire) -> None:
        wire.create("outside")
        producer = WireProducer(wire, "outside")
        assert producer.produce("outside", 0, b"not added")[0] == ErrorCode.INVALID_TXN_STATE
        assert wire.read_all("outside") == []


@pytest.mark.timeout(300)
def test_an_end_that_was_answered_is_carried_out_whatever_happens(tmp_path: Path) -> None:
    broker = Broker(tmp_path, own_process=True).start()
    expected: list[list[bytes]] = [[], []]
    try:
        with Wire(broker.bootstrap_servers) as wire:
            wire.create("ended", 2)
        for number in range(CRASHES):
            with Wire(broker.bootstrap_servers) as wire:
                producer = WireProducer(wire, "ended", version=NEW if number % 2 else OLD)
                committed = number % 4 < 2
                for partition in range(2):
                    value = b"%d/%d" % (number, partition)
                    assert producer.send("ended", value, partition=partition) == 0
                    if committed:
                        expected[partition].append(value)
                wait_until(
                    lambda producer=producer, number=number: (  # type: ignore[misc]
                        producer.commit_offset("ending", "ended", number) == 0
                    ),
                    "offsets were not taken",
                )
                assert producer.end(committed=committed) == 0
                crash(broker)
            with Wire(broker.bootstrap_servers) as wire:
                for partition in range(2):
                    wait_until(lambda p=partition: is_stable(wire, "ended", p), "left open")  # type: ignore[misc]
                    assert fetch_committed(wire, "ended", partition=partition)[0] == expected[partition]
                last = number if committed else number - number % 4 + 1
                wait_until(
                    lambda last=last: committed_offset(wire, "ending", "ended", stable=True) == (last, 0),  # type: ignore[misc]
                    "the offset is not what was committed",
                )
    finally:
        broker.stop()


def test_a_transaction_that_its_coordinator_has_lost_is_aborted_at_the_start(tmp_path: Path) -> None:
    broker = Broker(tmp_path, own_process=True).start()
    try:
        with Wire(broker.bootstrap_servers) as wire:
            wire.create("hanging")
            producer = WireProducer(wire, "hanging")
            assert producer.send("hanging", b"hanging") == 0
            assert producer.commit_offset("hung", "hanging", 3) == 0
            assert wire.produce("hanging", batch_of(b"behind it")) == (0, 1)
        os.kill(broker.pid, signal.SIGKILL)
        broker.stop()
        for folder in tmp_path.glob("__transaction_state-*"):
            shutil.rmtree(folder)
        broker.start()
        with Wire(broker.bootstrap_servers) as wire:
            wait_until(lambda: fetch_committed(wire, "hanging") == ([b"behind it"], 3), "the transaction hangs")
            assert committed_offset(wire, "hung", "hanging", stable=True) == (-1, 0)
            wait_until(lambda: is_stable(wire, "__consumer_offsets"), "the offsets' transaction hangs")
            producer.wire = wire
            assert producer.produce("hanging", 0, b"hanging")[0] == ErrorCode.INVALID_PRODUCER_ID_MAPPING
            again = WireProducer(wire, "hanging")
            assert again.send("hanging", b"again") == 0
            assert again.end(committed=True) == 0
            wait_until(lambda: is_stable(wire, "hanging"), "left open")
            assert fetch_committed(wire, "hanging")[0] == [b"behind it", b"again"]
    finally:
        broker.stop()


def test_a_partition_whose_addition_was_lost_is_part_of_its_transaction_again(tmp_path: Path) -> None:
    """Its batch was on the disk, the coordinator's record of it not yet, and nothing was acknowledged.

    Were the partition aborted at the start, the producer, sending its batch again, would hear that it is there, and the
    commit would lose it.
    """
    broker = Broker(tmp_path, own_process=True).start()
    try:
        with Wire(broker.bootstrap_servers) as wire:
            wire.create("added", 2)
            producer = WireProducer(wire, "added", version=NEW)
            assert producer.send("added", b"first", partition=0) == 0
            assert producer.send("added", b"second", partition=1) == 0
            old = Wire(broker.bootstrap_servers)
        os.kill(broker.pid, signal.SIGKILL)
        broker.stop()
        old.socket.close()
        drop_last_batch(tmp_path / "__transaction_state-0")
        broker.start()
        with Wire(broker.bootstrap_servers) as wire:
            producer.wire = wire
            assert producer.produce("added", 0, b"second", partition=1) == (0, 0), "sent again, and there already"
            assert producer.end(committed=True) == 0
            for partition, value in enumerate([b"first", b"second"]):
                wait_until(lambda p=partition: is_stable(wire, "added", p), "left open")  # type: ignore[misc]
                assert fetch_committed(wire, "added", partition=partition)[0] == [value]
    finally:
        broker.stop()


@pytest.mark.parametrize("lost", [1, 2], ids=["the new beginning", "and the old end"])
@pytest.mark.parametrize("partition", [0, 1], ids=["the same partition", "another"])
def test_a_transaction_that_follows_one_whose_end_was_lost_is_not_ended_with_it(
    tmp_path: Path, partition: int, lost: int
) -> None:
    """Of the coordinator's records the last are not on the disk; the batch of the second transaction is."""
    broker = Broker(tmp_path, own_process=True).start()
    try:
        with Wire(broker.bootstrap_servers) as wire:
            wire.create("following", 2)
            producer = WireProducer(wire, "following", version=NEW)
            assert producer.send("following", b"first") == 0
            assert producer.end(committed=True) == 0
            assert producer.send("following", b"second", partition=partition) == 0
        os.kill(broker.pid, signal.SIGKILL)
        broker.stop()
        for _ in range(lost):
            drop_last_batch(tmp_path / "__transaction_state-0")
        broker.start()
        with Wire(broker.bootstrap_servers) as wire:
            producer.wire = wire
            assert producer.produce("following", 0, b"second", partition=partition)[0] == 0, "sent again"
            assert not is_stable(wire, "following", partition), "the second was ended, and nobody asked for it"
            assert producer.end(committed=False) == 0
            for each in range(2):
                wait_until(lambda p=each: is_stable(wire, "following", p), "left open")  # type: ignore[misc]
            assert fetch_committed(wire, "following")[0] == [b"first"]
            assert fetch_committed(wire, "following", partition=1)[0] == []
    finally:
        broker.stop()


def test_an_old_marker_does_not_end_an_open_transaction_in_another_partition(tmp_path: Path) -> None:
    """One producer commits offsets of groups that are kept in different partitions of `__consumer_offsets`."""
    broker = Broker(tmp_path, own_process=True, settings={"offsets.topic.num.partitions": "8"}).start()
    groups = [f"g{number}" for number in range(8)]
    try:
        with Wire(broker.bootstrap_servers) as wire:
            wire.create("read")
            producer = WireProducer(wire, "reader")
            for group in groups[:4]:
                assert producer.commit_offset(group, "read", 1) == 0
            assert producer.end(committed=True) == 0
            wait_until(lambda: producer.commit_offset(groups[0], "read", 2) == 0, "no next transaction")
            for group in groups:
                assert producer.commit_offset(group, "read", 2) == 0
        crash(broker)
        with Wire(broker.bootstrap_servers) as wire:
            for place, group in enumerate(groups):
                assert committed_offset(wire, group, "read") == (1 if place < 4 else -1, 0)
                assert committed_offset(wire, group, "read", stable=True)[1] == ErrorCode.UNSTABLE_OFFSET_COMMIT
            producer.wire = wire
            assert producer.end(committed=True) == 0
            for group in groups:
                wait_until(
                    lambda group=group: committed_offset(wire, group, "read", stable=True) == (2, 0),  # type: ignore[misc]
                    "not committed",
                )
    finally:
        broker.stop()


def drop_last_batch(folder: Path) -> None:
    """Cut a log as a crash does that came before its last batch was on the disk."""
    (log,) = folder.glob("*.log")
    content = log.read_bytes()
    last = [position for position, _ in headers_in(content)][-1]
    log.write_bytes(content[:last])
