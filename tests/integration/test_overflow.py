"""Topics that are full: who waits, who is refused, what is dropped; on the disk and in memory, with real producers."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer, ShareConsumer

from headrace import Broker
from headrace.client.address import parse_bootstrap
from headrace.client.admin import alter_configs
from headrace.client.cluster import Cluster
from headrace.protocol.api import APIS
from headrace.protocol.frame import decode_response
from headrace.protocol.messages.delete_groups import DeleteGroupsRequest
from headrace.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from headrace.protocol.messages.delete_topics import DeleteTopicsRequest
from headrace.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from headrace.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from headrace.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from headrace.records import headers_in
from tests.conformance.clients.sharing import ACCEPT, Sharer, set_group
from tests.conformance.clients.wire import Wire, batch_of, error_name
from tests.conformance.comparison import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

PATIENCE_S = 60
VERSION = 12  # of Produce
EARLIEST, LATEST = -2, -1
FEW_BOOKS = {"share.coordinator.state.topic.num.partitions": "4"}  # fifty take a tenth of a second to be made


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(settings=FEW_BOOKS) as broker:
        yield broker


@pytest.fixture(params=["disk", "memory"])
def storage(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def wire(broker: Broker) -> Iterator[Wire]:
    with Wire(broker.bootstrap_servers) as wire:
        yield wire


def create(wire: Wire, storage: str, policy: str, **limits: int) -> str:
    topic = f"{policy}-{storage}-{'-'.join(f'{unit}{limit}' for unit, limit in limits.items())}"
    settings = {f"headrace.overflow.{unit}": str(limit) for unit, limit in limits.items()}
    wire.create(topic, configs={"headrace.storage": storage, "headrace.overflow": policy, **settings})
    set_group(wire, topic, share_auto_offset_reset="earliest")
    return topic


def counted(broker: Broker, topic: str) -> dict[str, int]:
    counts = broker._host._server.runtime.overflow.counts  # type: ignore[union-attr]
    return {str(action): count for (name, action), count in counts.items() if name == topic}


def blocked(broker: Broker) -> int:
    return broker._host._server.runtime.overflow.blocked  # type: ignore[union-attr]


def send(wire: Wire, topic: str, *values: bytes, timeout_ms: int = 60_000, acks: int = -1, **options: Any) -> int:
    """Send a batch, and do not wait for the answer."""
    data = PartitionProduceData(index=0, records=batch_of(*values, **options))
    request = ProduceRequest(
        acks=acks, timeout_ms=timeout_ms, topic_data=[TopicProduceData(name=topic, partition_data=[data])]
    )
    return wire.send(request, VERSION)


def receive(wire: Wire) -> tuple[int, str, int]:
    """The number of the request that is answered next, the error and the offset."""
    response = next(api.response for api in APIS.values() if api.request is ProduceRequest)
    header, body = decode_response(response, VERSION, wire.receive())
    answer = body.responses[0].partition_responses[0]
    return header.correlation_id, error_name(answer.error_code), answer.base_offset


def put(wire: Wire, topic: str, *values: bytes, **options: Any) -> tuple[str, int]:
    send(wire, topic, *values, **options)
    return receive(wire)[1:]


def offset_of(wire: Wire, topic: str, timestamp: int) -> int:
    asked = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[asked])])
    (found,) = wire.ask(request).topics[0].partitions
    assert found.error_code == 0
    return int(found.offset)


def join(wire: Wire, topic: str, group: str = "") -> Sharer:
    sharer = Sharer(wire, group or topic, topic)
    sharer.join()
    return sharer


def finish(sharer: Sharer, count: int) -> None:
    """Accept so many records, one after the other."""
    for _ in range(count):
        answer = sharer.fetch_some(max_records=1, share_acquire_mode=1)
        (run,) = answer.responses[0].partitions[0].acquired_records
        told = sharer.acknowledge((run.first_offset, run.last_offset, [ACCEPT]))
        assert told.responses[0].partitions[0].error_code == 0


def test_a_full_topic_rejects_until_a_share_group_has_finished_something(
    broker: Broker, wire: Wire, storage: str
) -> None:
    topic = create(wire, storage, "reject", records=3)
    assert [put(wire, topic, b"%d" % number) for number in range(4)] == [
        ("NONE", 0),
        ("NONE", 1),
        ("NONE", 2),
        ("NOT_ENOUGH_REPLICAS", -1),
    ]
    with Wire(broker.bootstrap_servers) as other:
        finish(join(other, topic), 2)
    assert [put(wire, topic, b"a", b"b"), put(wire, topic, b"c")] == [("NONE", 3), ("NOT_ENOUGH_REPLICAS", -1)]
    assert put(wire, topic, *[b"x"] * 4) == ("MESSAGE_TOO_LARGE", -1)
    assert counted(broker, topic) == {"rejected": 2, "too_large": 1}


def test_the_slowest_of_several_groups_counts_until_it_is_deleted(broker: Broker, wire: Wire, storage: str) -> None:
    topic = create(wire, storage, "reject", records=2)
    set_group(wire, f"{topic}-slow", share_auto_offset_reset="earliest")
    with Wire(broker.bootstrap_servers) as quick, Wire(broker.bootstrap_servers) as slow:
        members = join(quick, topic), join(slow, topic, f"{topic}-slow")
        assert put(wire, topic, b"a", b"b") == ("NONE", 0)
        finish(members[0], 2)
        finish(members[1], 1)
        assert [put(wire, topic, b"c"), put(wire, topic, b"d")] == [("NONE", 2), ("NOT_ENOUGH_REPLICAS", -1)]
        members[1].beat(-1)
        (gone,) = wire.ask(DeleteGroupsRequest(groups_names=[f"{topic}-slow"])).results
        assert gone.error_code == 0
    assert put(wire, topic, b"d") == ("NONE", 3)


def test_who_is_blocked_waits_its_turn_and_is_not_read_from_while_others_go_on(
    broker: Broker, wire: Wire, storage: str
) -> None:
    topic, other_topic = create(wire, storage, "block", records=2), create(wire, storage, "reject", records=100)
    assert put(wire, topic, b"a", b"b") == ("NONE", 0)
    with Wire(broker.bootstrap_servers) as second, Wire(broker.bootstrap_servers) as reader:
        first_ids = [send(wire, topic, b"c"), send(wire, other_topic, b"behind it")]
        wait_until(lambda: counted(broker, topic), {"blocked": 1}, timeout_s=PATIENCE_S)
        send(second, topic, b"d")
        wait_until(lambda: counted(broker, topic), {"blocked": 2}, timeout_s=PATIENCE_S)
        assert put(reader, other_topic, b"not held up") == ("NONE", 0)
        assert offset_of(reader, other_topic, LATEST) == 1  # what came behind a blocked batch was not even taken
        sharer = join(reader, topic)
        finish(sharer, 1)
        assert receive(wire) == (first_ids[0], "NONE", 2)
        assert receive(wire) == (first_ids[1], "NONE", 1)
        finish(sharer, 1)
        assert receive(second)[1:] == ("NONE", 3)
        fetched = reader.fetch(topic, 2).records
        assert [header.base_offset for _, header in headers_in(bytes(fetched))] == [2, 3]


def test_who_is_blocked_for_too_long_is_told_so_and_nothing_is_appended(
    broker: Broker, wire: Wire, storage: str
) -> None:
    topic = create(wire, storage, "block", records=1)
    assert put(wire, topic, b"a") == ("NONE", 0)
    assert put(wire, topic, b"b", timeout_ms=100) == ("REQUEST_TIMED_OUT", -1)
    assert offset_of(wire, topic, LATEST) == 1
    assert counted(broker, topic) == {"blocked": 1, "timed_out": 1}


def test_who_waits_behind_a_batch_that_was_given_up_has_its_turn(broker: Broker, wire: Wire, storage: str) -> None:
    topic = create(wire, storage, "block", records=4)
    assert put(wire, topic, b"a", b"b", b"c") == ("NONE", 0)
    with Wire(broker.bootstrap_servers) as short, Wire(broker.bootstrap_servers) as patient:
        send(short, topic, b"d", b"e", timeout_ms=100)
        wait_until(lambda: counted(broker, topic).get("blocked"), 1, timeout_s=PATIENCE_S)
        send(patient, topic, b"f")
        assert receive(short)[1] == "REQUEST_TIMED_OUT"
        assert receive(patient)[1:] == ("NONE", 3)  # it fits, and waited for the one before it only


def test_a_blocked_batch_of_a_client_that_hung_up_is_not_appended(broker: Broker, wire: Wire, storage: str) -> None:
    topic = create(wire, storage, "block", records=6)
    assert put(wire, topic, *[b"x"] * 6) == ("NONE", 0)
    with Wire(broker.bootstrap_servers) as gone:
        send(gone, topic, b"gone", timeout_ms=2**31 - 1)
        wait_until(lambda: counted(broker, topic).get("blocked"), 1, timeout_s=PATIENCE_S)
    assert wait_until(lambda: blocked(broker), 0, timeout_s=PATIENCE_S) == 0
    with Wire(broker.bootstrap_servers) as reader:
        finish(join(reader, topic), 2)
    assert put(wire, topic, b"y") == ("NONE", 6)


def test_who_is_blocked_by_a_topic_that_is_deleted_is_told_so(broker: Broker, wire: Wire, storage: str) -> None:
    topic = f"deleted-{storage}"
    settings = {"headrace.storage": storage, "headrace.overflow": "block", "headrace.overflow.records": "1"}
    wire.create(topic, 2, settings)
    full = PartitionProduceData(index=1, records=batch_of(b"x"))
    request = ProduceRequest(
        acks=-1, timeout_ms=2**31 - 1, topic_data=[TopicProduceData(name=topic, partition_data=[full])]
    )
    assert wire.ask(request, VERSION).responses[0].partition_responses[0].error_code == 0
    wire.send(request, VERSION)
    wait_until(lambda: counted(broker, topic).get("blocked"), 1, timeout_s=PATIENCE_S)
    with Wire(broker.bootstrap_servers) as admin:
        assert admin.ask(DeleteTopicsRequest(topic_names=[topic], timeout_ms=30_000), 5).responses[0].error_code == 0
        admin.wait_for(topic, None)
        admin.create(topic, 1, settings)  # without the partition that somebody waits for
    assert receive(wire)[1] == "UNKNOWN_TOPIC_OR_PARTITION"


def test_deleted_records_make_room_for_who_is_blocked(broker: Broker, wire: Wire, storage: str) -> None:
    topic = create(wire, storage, "block", records=5)
    assert put(wire, topic, *[b"x"] * 5) == ("NONE", 0)
    send(wire, topic, b"y")
    wait_until(lambda: counted(broker, topic).get("blocked"), 1, timeout_s=PATIENCE_S)
    with Wire(broker.bootstrap_servers) as admin:
        asked = DeleteRecordsTopic(name=topic, partitions=[DeleteRecordsPartition(partition_index=0, offset=1)])
        assert admin.ask(DeleteRecordsRequest(topics=[asked])).topics[0].partitions[0].low_watermark == 1
    assert receive(wire)[1:] == ("NONE", 5)


def test_the_oldest_records_are_dropped_by_number_and_by_size(broker: Broker, wire: Wire, storage: str) -> None:
    topic = create(wire, storage, "drop-oldest", records=3)
    for number in range(10):
        assert put(wire, topic, b"%d" % number) == ("NONE", number)
    assert (offset_of(wire, topic, EARLIEST), offset_of(wire, topic, LATEST)) == (7, 10)
    assert counted(broker, topic) == {"dropped_oldest": 7}
    large = create(wire, storage, "drop-oldest", bytes=100_000)
    for number in range(40):
        assert put(wire, large, b"x" * 9000) == ("NONE", number)
    start = offset_of(wire, large, EARLIEST)
    held_bytes = 0
    while held_bytes < 100_000 and start + held_bytes // 9000 < 40:
        fetched = bytes(wire.fetch(large, start + held_bytes // 9000, partition_max_bytes=1 << 20).records)
        held_bytes += len(fetched)
    assert 80_000 < held_bytes <= 100_000
    assert counted(broker, large) == {"dropped_oldest": start}


def test_a_member_of_a_share_group_goes_on_behind_what_was_dropped(broker: Broker, wire: Wire, storage: str) -> None:
    topic = create(wire, storage, "drop-oldest", records=2)
    with Wire(broker.bootstrap_servers) as reader:
        sharer = join(reader, topic)
        assert put(wire, topic, b"a", b"b") == ("NONE", 0)
        held = sharer.fetch_some(max_records=1, share_acquire_mode=1).responses[0].partitions[0].acquired_records
        assert [(run.first_offset, run.last_offset) for run in held] == [(0, 0)]
        assert put(wire, topic, b"c", b"d") == ("NONE", 2)
        answer = sharer.fetch_some((0, 0, [ACCEPT]))
        data = answer.responses[0].partitions[0]
        assert (data.acknowledge_error_code, data.acquired_records[0].first_offset) == (0, 2)


def test_the_newest_records_are_dropped_acknowledged_and_counted(broker: Broker, wire: Wire, storage: str) -> None:
    topic = create(wire, storage, "drop-newest", records=2)
    answers = [put(wire, topic, b"%d" % number) for number in range(4)]
    assert answers == [("NONE", 0), ("NONE", 1), ("NONE", -1), ("NONE", -1)]
    assert (offset_of(wire, topic, EARLIEST), offset_of(wire, topic, LATEST)) == (0, 2)
    assert counted(broker, topic) == {"dropped_newest": 2}
    assert put(wire, topic, b"x")[0] == "NONE"


def number_of(producer_id: int, sequence: int) -> dict[str, Any]:
    return {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": sequence}


def test_a_producer_goes_on_behind_numbered_batches_that_were_dropped(broker: Broker, wire: Wire, storage: str) -> None:
    topic = create(wire, storage, "drop-newest", records=1)
    producer = wire.producer_id()
    assert put(wire, topic, b"0", **number_of(producer, 0)) == ("NONE", 0)
    assert put(wire, topic, b"1", **number_of(producer, 1)) == ("NONE", -1)
    assert put(wire, topic, b"2", **number_of(producer, 2)) == ("NONE", -1)
    assert put(wire, topic, b"0", **number_of(producer, 0)) == ("NONE", 0)  # sent again, it is recognised
    with Wire(broker.bootstrap_servers) as reader:
        finish(join(reader, topic), 1)
    assert put(wire, topic, b"3", **number_of(producer, 3)) == ("NONE", 1)
    assert put(wire, topic, b"2", **number_of(producer, 2)) == ("NONE", -1)  # whose answer was lost
    assert offset_of(wire, topic, LATEST) == 2


def test_numbered_batches_behind_one_that_was_refused_are_refused_until_it_comes_again(
    broker: Broker, wire: Wire, storage: str
) -> None:
    topic = create(wire, storage, "reject", records=4)
    producer = wire.producer_id()
    assert put(wire, topic, b"other", b"other", b"other") == ("NONE", 0)
    full, behind = (b"0", b"1"), (b"2",)
    assert put(wire, topic, *full, **number_of(producer, 0)) == ("NOT_ENOUGH_REPLICAS", -1)
    # There is room for this one, but its producer is not known: it would be taken for the first.
    assert put(wire, topic, *behind, **number_of(producer, 2)) == ("NOT_ENOUGH_REPLICAS", -1)
    with Wire(broker.bootstrap_servers) as reader:
        finish(join(reader, topic), 2)
    assert put(wire, topic, *behind, **number_of(producer, 2)) == ("NOT_ENOUGH_REPLICAS", -1)
    assert put(wire, topic, *full, **number_of(producer, 0)) == ("NONE", 3)
    assert put(wire, topic, *behind, **number_of(producer, 2)) == ("NONE", 5)


def test_a_producer_that_was_refused_goes_on_after_the_limit_was_lifted_for_a_while(
    broker: Broker, wire: Wire, storage: str
) -> None:
    topic = create(wire, storage, "reject", records=6)
    producer = wire.producer_id()
    assert put(wire, topic, *[b"x"] * 6, **number_of(producer, 0)) == ("NONE", 0)
    assert put(wire, topic, b"6", **number_of(producer, 6)) == ("NOT_ENOUGH_REPLICAS", -1)
    with Cluster(parse_bootstrap(broker.bootstrap_servers)) as cluster:
        if storage == "disk":  # in memory there is a limit always
            alter_configs(cluster, topic, changes={"headrace.overflow": "buffer", "headrace.overflow.records": "-1"})
            assert put(wire, topic, b"6", **number_of(producer, 6)) == ("NONE", 6)
        alter_configs(cluster, topic, changes={"headrace.overflow": "reject", "headrace.overflow.records": "9"})
    assert [put(wire, topic, b"%d" % number, **number_of(producer, number)) for number in (6, 7, 8, 9)] == [
        ("NONE", 6),
        ("NONE", 7),
        ("NONE", 8),
        ("NOT_ENOUGH_REPLICAS", -1),
    ]


@pytest.mark.parametrize("policy", ["block", "reject"])
def test_an_idempotent_producer_and_a_slow_share_consumer_lose_nothing(
    broker: Broker, wire: Wire, storage: str, policy: str
) -> None:
    topic, count = create(wire, storage, policy, records=50), 1000
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "enable.idempotence": True,
            "batch.num.messages": 10,
            "linger.ms": 0,
            "message.timeout.ms": 120_000,
            "retry.backoff.ms": 10,
        }
    )
    consumer = ShareConsumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": topic})
    seen: list[int] = []

    def consume() -> None:
        consumer.subscribe([topic])
        while len(set(seen)) < count and not is_over.is_set():
            seen.extend(int(message.value()) for message in consumer.poll(1.0))
        consumer.close()

    is_over = threading.Event()
    reader = threading.Thread(target=consume)
    reader.start()
    failed: list[Any] = []
    try:
        for number in range(count):
            producer.produce(
                topic, b"%d" % number, on_delivery=lambda error, _: failed.append(error) if error else None
            )
            producer.poll(0)
        assert producer.flush(PATIENCE_S) == 0
        reader.join(PATIENCE_S)
    finally:
        is_over.set()
        reader.join()
    assert failed == []
    assert sorted(set(seen)) == list(range(count))
    assert offset_of(wire, topic, LATEST) == count  # each once, though many were sent more than once


def test_what_a_topic_does_when_it_is_full_is_described(wire: Wire, storage: str) -> None:
    topic = create(wire, storage, "drop-oldest", records=5, bytes=70_000)
    resource = DescribeConfigsResource(resource_type=2, resource_name=topic, configuration_keys=None)
    (described,) = wire.ask(DescribeConfigsRequest(resources=[resource])).results
    values = {config.name: config.value for config in described.configs if config.name.startswith("headrace.overflow")}
    assert values == {
        "headrace.overflow": "drop-oldest",
        "headrace.overflow.records": "5",
        "headrace.overflow.bytes": "70000",
    }
