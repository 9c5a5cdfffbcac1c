"""Topics in memory: everything a client does with a topic, nothing on the disk, bounded, and forgotten at a restart."""

from __future__ import annotations

import os
import signal
import threading
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from headrace import Broker
from headrace.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from headrace.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from headrace.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from headrace.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from headrace.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from headrace.protocol.messages.end_txn import EndTxnRequest
from headrace.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from headrace.protocol.messages.init_producer_id import InitProducerIdRequest
from headrace.protocol.messages.shared import TopicPartitions
from headrace.records import headers_in
from tests.conformance.clients.sharing import ACCEPT, Sharer, set_group
from tests.conformance.clients.wire import NOON_MS, Wire, batch_of, error_name
from tests.conformance.comparison import wait_until
from tests.integration.test_bindings import bind, read_until
from tests.integration.test_memory_bound import MIB, own_mib
from tests.integration.test_overflow import EARLIEST, FEW_BOOKS, LATEST, number_of, offset_of, put
from tests.integration.test_queue_delivery import Group
from tests.ports import free_port
from tests.reading import read_committed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PATIENCE_S = 60
MEMORY = {"headrace.storage": "memory"}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(settings=FEW_BOOKS) as broker:
        yield broker


@pytest.fixture
def wire(broker: Broker) -> Iterator[Wire]:
    with Wire(broker.bootstrap_servers) as wire:
        yield wire


def size_of(wire: Wire, topic: str) -> int:
    asked = DescribeLogDirsRequest(topics=[TopicPartitions(topic=topic, partitions=[0])])
    return int(wire.ask(asked).results[0].topics[0].partitions[0].partition_size)


def count_from(wire: Wire, topic: str, offset: int) -> int:
    """How many records can be read from an offset to the end."""
    end, count = offset_of(wire, topic, LATEST), 0
    while offset < end:
        data = wire.fetch(topic, offset)
        assert data.error_code == 0, error_name(data.error_code)
        for _, header in headers_in(bytes(data.records)):
            count += header.last_offset - max(header.base_offset, offset) + 1
            offset = header.last_offset + 1
    return count


def create(wire: Wire, name: str, **settings: str) -> tuple[str, str]:
    """Try to create a topic; the error's name and its sentence."""
    configs = [CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in settings.items()]
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1, configs=configs)
    (made,) = wire.ask(CreateTopicsRequest(topics=[topic])).topics
    return error_name(made.error_code), made.error_message or ""


def test_a_memory_topic_is_read_by_offset_and_by_time_and_cut_off(wire: Wire) -> None:
    topic = "read"
    wire.create(topic, configs=MEMORY)
    for number in range(60):  # some segments
        assert put(wire, topic, b"x" * 50_000, timestamp=NOON_MS + number) == ("NONE", number)
    assert (offset_of(wire, topic, EARLIEST), offset_of(wire, topic, LATEST)) == (0, 60)
    assert offset_of(wire, topic, NOON_MS + 41) == 41
    assert count_from(wire, topic, 0) == 60
    cut = DeleteRecordsTopic(name=topic, partitions=[DeleteRecordsPartition(partition_index=0, offset=33)])
    assert wire.ask(DeleteRecordsRequest(topics=[cut])).topics[0].partitions[0].low_watermark == 33
    assert error_name(wire.fetch(topic, 32).error_code) == "OFFSET_OUT_OF_RANGE"
    assert count_from(wire, topic, 33) == 27
    assert size_of(wire, topic) < 48 * 50_000


def test_transactions_of_a_memory_topic_are_read_once_they_are_committed(broker: Broker, wire: Wire) -> None:
    topic = "transactions"
    wire.create(topic, configs=MEMORY)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": topic})
    producer.init_transactions(PATIENCE_S)
    for number in range(4):
        producer.begin_transaction()
        producer.produce(topic, b"%d" % number)
        producer.flush(PATIENCE_S)
        producer.abort_transaction(PATIENCE_S) if number % 2 else producer.commit_transaction(PATIENCE_S)
    assert [message.value() for message in read_committed(broker.bootstrap_servers, topic)] == [b"0", b"2"]


def test_what_every_share_group_has_finished_is_freed(broker: Broker, wire: Wire) -> None:
    topic = "freed"
    wire.create(topic, configs=MEMORY)
    set_group(wire, topic, share_auto_offset_reset="earliest")
    sharer = Sharer(wire, topic, topic)
    sharer.join()
    with Wire(broker.bootstrap_servers) as writer:
        for _ in range(40):
            assert put(writer, topic, b"x" * 100_000)[0] == "NONE"
        full = size_of(writer, topic)
        assert full > 4_000_000
        done = 0
        while done < 40:
            runs = sharer.fetch_some().responses[0].partitions[0].acquired_records
            sharer.acknowledge(*((run.first_offset, run.last_offset, [ACCEPT]) for run in runs))
            done = runs[-1].last_offset + 1
        assert wait_until(lambda: size_of(writer, topic), 0, timeout_s=PATIENCE_S) == 0
        assert offset_of(writer, topic, EARLIEST) == 40


@pytest.mark.parametrize("kill", [False, True])
def test_records_are_gone_after_a_restart_and_their_offsets_are_never_used_again(tmp_path: Path, kill: bool) -> None:
    topic = "forgotten"
    data = tmp_path / "data"
    with Broker(data, own_process=True, settings=FEW_BOOKS) as broker, Wire(broker.bootstrap_servers) as wire:
        wire.create(topic, configs=MEMORY)
        set_group(wire, topic, share_auto_offset_reset="earliest")
        wire.create("kept")
        assert put(wire, "kept", b"of the disk") == ("NONE", 0)
        assert put(wire, topic, *[b"not for the disk"] * 10) == ("NONE", 0)
        sharer = Sharer(wire, topic, topic)
        sharer.join()
        (run,) = sharer.fetch_some().responses[0].partitions[0].acquired_records
        assert (run.first_offset, run.last_offset) == (0, 9)
        on_disk = b"".join(file.read_bytes() for file in data.rglob("*") if file.is_file())
        assert b"of the disk" in on_disk
        assert b"not for the disk" not in on_disk
        if kill:
            os.kill(broker.pid, signal.SIGKILL)
    with Broker(data, own_process=True, settings=FEW_BOOKS) as broker, Wire(broker.bootstrap_servers) as wire:
        start = offset_of(wire, topic, EARLIEST)
        assert start == offset_of(wire, topic, LATEST)
        assert start == 10 or (kill and start > 10)
        assert error_name(wire.fetch(topic, 9).error_code) == "OFFSET_OUT_OF_RANGE"
        assert offset_of(wire, "kept", LATEST) == 1
        assert put(wire, topic, b"new") == ("NONE", start)
        sharer = Sharer(wire, topic, topic)
        sharer.join()
        (run,) = sharer.fetch_some().responses[0].partitions[0].acquired_records
        assert (run.first_offset, run.last_offset) == (start, start)
        assert put(wire, topic, b"more", b"and more") == ("NONE", start + 1)
    with Broker(data, own_process=True, settings=FEW_BOOKS) as broker, Wire(broker.bootstrap_servers) as wire:
        assert offset_of(wire, topic, EARLIEST) == start + 3
        (gone,) = wire.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name=topic)])).responses
        assert gone.error_code == 0
        wire.create(topic, configs=MEMORY)
        assert put(wire, topic, b"of another topic") == ("NONE", 0)


def test_a_transaction_of_which_a_restart_took_the_beginning_cannot_be_committed_in_part(tmp_path: Path) -> None:
    topic, listen = "half", f"127.0.0.1:{free_port()}"
    with Broker(tmp_path, own_process=True, listen=listen) as broker:
        with Wire(broker.bootstrap_servers) as wire:
            wire.create(topic, configs=MEMORY)
        producer = Producer(
            {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": topic, "retry.backoff.ms": 50}
        )
        producer.init_transactions(PATIENCE_S)
        producer.begin_transaction()
        producer.produce(topic, b"first half")
        assert producer.flush(PATIENCE_S) == 0
        os.kill(broker.pid, signal.SIGKILL)
    with Broker(tmp_path, own_process=True, listen=listen) as broker:
        failed: list[Any] = []
        producer.produce(topic, b"second half", on_delivery=lambda error, _: failed.append(error))
        producer.flush(PATIENCE_S)
        assert [error is not None for error in failed] == [True]
        producer.abort_transaction(PATIENCE_S)
        assert read_committed(broker.bootstrap_servers, topic) == []


def test_what_is_bound_elsewhere_is_copied_before_it_is_freed(wire: Wire) -> None:
    source, target = "bound-in-memory", "bound-on-disk"
    wire.create(target)
    limits = {"headrace.overflow": "block", "headrace.overflow.bytes": "200000", **bind({"to": target})}
    wire.create(source, configs={**MEMORY, **limits})
    group = Group(wire, source, source)
    values = [b"%02d" % number * 20_000 for number in range(20)]  # four times what there is room for
    for value in values:
        assert put(wire, source, value)[0] == "NONE"
        group.take_until(value)
    assert [record.value for record in read_until(wire, target, values[-1])] == values
    assert wait_until(lambda: size_of(wire, source), 0, timeout_s=PATIENCE_S) == 0


def test_memory_stays_bounded_with_a_slow_consumer_and_with_none(tmp_path: Path) -> None:
    settings = {**FEW_BOOKS, "max.memory.topic.bytes": str(32 * MIB)}
    limits = {"headrace.overflow.bytes": str(8 * MIB)}
    with (
        Broker(tmp_path, own_process=True, durability="os", settings=settings) as broker,
        Wire(broker.bootstrap_servers) as wire,
    ):
        for policy in ("block", "drop-oldest", "drop-newest", "reject"):
            wire.create(policy, configs={**MEMORY, **limits, "headrace.overflow": policy})
            set_group(wire, policy, share_auto_offset_reset="earliest")
        value, before = os.urandom(500_000), own_mib(broker.pid)
        most = before
        for policy in ("drop-oldest", "drop-newest", "reject"):
            for _ in range(100):  # six times as much as fits
                error, _ = put(wire, policy, value)
                assert error == "NONE" or (policy, error) == ("reject", "NOT_ENOUGH_REPLICAS")
                most = max(most, own_mib(broker.pid))
            assert size_of(wire, policy) <= 8 * MIB
        with Wire(broker.bootstrap_servers) as reader:
            sharer = Sharer(reader, "block", "block")
            sharer.join()
            is_over = threading.Event()

            def produce() -> None:
                with Wire(broker.bootstrap_servers) as writer:
                    for _ in range(100):
                        assert put(writer, "block", value)[0] == "NONE"
                is_over.set()

            writing = threading.Thread(target=produce)
            writing.start()
            done = 0
            while done < 100:  # each record is accepted before the next is taken
                answer = sharer.fetch_some(max_records=1, share_acquire_mode=1)
                (run,) = answer.responses[0].partitions[0].acquired_records
                sharer.acknowledge((run.first_offset, run.last_offset, [ACCEPT]))
                done = run.last_offset + 1
                most = max(most, own_mib(broker.pid))
            writing.join(PATIENCE_S)
            assert is_over.is_set()
        assert most - before < 32 * 1.25 + 24  # beside what requests take that are under way


def test_memory_that_is_not_there_is_not_promised(tmp_path: Path) -> None:
    with (
        Broker(tmp_path, durability="os", settings={"max.memory.topic.bytes": "20000000"}) as broker,
        Wire(broker.bootstrap_servers) as wire,
    ):
        memory = {"headrace_storage": "memory"}
        assert create(wire, "first", **memory) == ("NONE", "")
        error, sentence = create(wire, "second", **memory)
        assert (error, "max.memory.topic.bytes=20000000 allows no more" in sentence) == ("POLICY_VIOLATION", True)
        assert create(wire, "small", **memory, headrace_overflow_bytes="100000") == ("NONE", "")


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"headrace_overflow": "buffer"}, "a memory topic needs a limit"),
        ({"headrace_overflow_bytes": "-1"}, "a memory topic needs a limit"),
        ({"cleanup_policy": "compact"}, "cannot be compacted"),
        ({"headrace_storage": "tape"}, "choose of disk, memory"),
        ({"headrace_storage": "disk", "headrace_overflow": "reject"}, "headrace.overflow=reject needs a limit"),
        ({"headrace_storage": "disk", "headrace_overflow_records": "5"}, "headrace.overflow=buffer knows no limit"),
        ({"headrace_overflow": "explode"}, "choose of buffer, block, reject, drop-oldest, drop-newest"),
        ({"headrace_queue": "true"}, "keeps messages that wait on the disk"),
        ({"errors_deadletterqueue_group_enable": "true"}, "dead letters are kept on the disk"),
        ({"headrace_overflow_records": "0"}, "at least 1, or -1"),
    ],
)
def test_settings_that_make_no_sense_are_refused_with_a_sentence(
    wire: Wire, settings: dict[str, str], sentence: str
) -> None:
    error, message = create(wire, "senseless", **{"headrace_storage": "memory", **settings})
    assert error == "INVALID_CONFIG"
    assert sentence in message


def test_where_records_are_kept_cannot_be_changed(wire: Wire) -> None:
    wire.create("stays", configs=MEMORY)
    change = AlterableConfig(name="headrace.storage", config_operation=0, value="disk")
    resource = AlterConfigsResource(resource_type=2, resource_name="stays", configs=[change])
    (answer,) = wire.ask(IncrementalAlterConfigsRequest(resources=[resource])).responses
    assert (error_name(answer.error_code), "stays as topic" in answer.error_message) == ("INVALID_CONFIG", True)


def test_an_ordinary_consumer_reads_a_memory_topic(broker: Broker, wire: Wire) -> None:
    topic = "ordinary"
    wire.create(topic, configs=MEMORY)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "compression.type": "lz4"})
    for number in range(500):
        producer.produce(topic, b"%d" % number)
    assert producer.flush(PATIENCE_S) == 0
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": topic})
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    read: list[int] = []
    while len(read) < 500:
        (message,) = consumer.consume(1, PATIENCE_S)
        read.append(int(message.value()))
    consumer.close()
    assert read == list(range(500))


def test_an_idempotent_producer_goes_on_after_its_records_were_dropped(wire: Wire) -> None:
    topic = "numbered"
    wire.create(topic, configs={**MEMORY, "headrace.overflow": "drop-oldest", "headrace.overflow.bytes": "20000"})
    producer = wire.producer_id()
    for number in range(50):
        assert put(wire, topic, b"x" * 5000, **number_of(producer, number)) == ("NONE", number)
    assert put(wire, topic, b"x" * 5000, **number_of(producer, 49)) == ("NONE", 49)
    assert offset_of(wire, topic, LATEST) == 50


def test_batches_are_small_enough_for_what_is_promised(wire: Wire) -> None:
    wire.create("tiny", configs={**MEMORY, "headrace.overflow.bytes": "5000"})
    assert put(wire, "tiny", b"x" * 6000) == ("MESSAGE_TOO_LARGE", -1)
    assert wire.produce("tiny", batch_of(b"x" * 4000)).error_code == 0


def test_files_beside_the_records_take_little_however_many_producers_there_are(broker: Broker, wire: Wire) -> None:
    limit = 200_000
    wire.create(
        "many-producers", configs={**MEMORY, "headrace.overflow": "drop-oldest", "headrace.overflow.bytes": str(limit)}
    )
    for producer in range(10_000, 10_600):
        assert put(wire, "many-producers", b"x" * 900, **number_of(producer, 0))[0] == "NONE"
    files = broker._host._server.runtime.directory._memory  # type: ignore[union-attr]
    folder = f"{broker.data_dir}/many-producers-0"
    taken = sum(files.size(f"{folder}/{name}") for name in files.list(folder))
    assert limit / 2 < taken < limit * 1.1


def test_transactions_that_write_nothing_take_nothing(wire: Wire) -> None:
    wire.create("unwritten", configs={**MEMORY, "headrace.overflow.bytes": "20000"})
    name = "writes-nothing"
    wire.find_coordinator(name)
    given = wire.ask(InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000), 4)
    number = (given.producer_id, given.producer_epoch)
    for is_committed in [True, False] * 5:
        topics = [AddPartitionsToTxnTopic(name="unwritten", partitions=[0])]
        added = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=name,
            v3_and_below_producer_id=number[0],
            v3_and_below_producer_epoch=number[1],
            v3_and_below_topics=topics,
        )
        while wire.ask(added, 3).results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code:
            pass  # the markers of the one before are on their way
        ended = EndTxnRequest(
            transactional_id=name, producer_id=number[0], producer_epoch=number[1], committed=is_committed
        )
        assert wire.ask(ended, 3).error_code == 0
    numbered = {"producer_id": number[0], "producer_epoch": number[1], "base_sequence": 0}
    assert put(wire, "unwritten", b"x", **numbered) == ("NONE", 0)
    assert offset_of(wire, "unwritten", LATEST) == 1
