"""Clients with quotas are made to wait, as they are told and whether they like it or not; those beside them are not."""

from __future__ import annotations

import os
import signal
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, Producer

from headrace import Broker
from headrace.protocol.messages.alter_client_quotas import AlterClientQuotasRequest, EntryData, OpData
from headrace.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from headrace.protocol.messages.describe_client_quotas import DescribeClientQuotasRequest
from headrace.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from headrace.protocol.messages.metadata import MetadataRequest
from headrace.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from headrace.protocol.messages.shared import EntityPart
from tests.conformance.clients.wire import Wire, batch_of, error_name

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_BATCH = batch_of(b"x" * 100_000)
_AT_ONCE = 0.9  # seconds; nobody who waits for a quota here is through so soon


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(tmp_path / "data") as broker:
        yield broker


def set_quota(wire: Wire, key: str, value: float | None, **entity: str | None) -> None:
    parts = [EntityPart(entity_type=kind.replace("_", "-"), entity_name=name) for kind, name in entity.items()]
    op = OpData(key=key, value=value or 0, remove=value is None)
    (result,) = wire.ask(AlterClientQuotasRequest(entries=[EntryData(entity=parts, ops=[op])])).entries
    assert error_name(result.error_code) == "NONE", result.error_message


def quotas_of(wire: Wire) -> list[tuple[dict[str, str | None], dict[str, float]]]:
    entries = wire.ask(DescribeClientQuotasRequest()).entries
    return [
        ({part.entity_type: part.entity_name for part in entry.entity}, {each.key: each.value for each in entry.values})
        for entry in entries
    ]


def produce(wire: Wire, acks: int = 1) -> int:
    """Produce 100 kB; the time to wait that is answered."""
    data = TopicProduceData(name="topic", partition_data=[PartitionProduceData(index=0, records=_BATCH)])
    request = ProduceRequest(acks=acks, timeout_ms=30000, topic_data=[data])
    if acks == 0:
        wire.send(request, 12)
        return 0
    response = wire.ask(request, 12)
    assert error_name(response.responses[0].partition_responses[0].error_code) == "NONE"
    return int(response.throttle_time_ms)


def fetch(wire: Wire, offset: int, **session: int) -> Any:
    wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    topics = [FetchTopic(topic="topic", partitions=[wanted])]
    return wire.ask(FetchRequest(topics=topics, max_wait_ms=500, min_bytes=1, **session), 12)


def is_told_to_wait(throttle_ms: int, full_ms: int, began: float) -> bool:
    """Whether that is as long as a client waits at first, less at most what has gone by since."""
    gone_ms = (time.monotonic() - began) * 1000
    return full_ms - gone_ms - 100 <= throttle_ms <= full_ms + 100


def seconds_to_answer(wire: Wire) -> float:
    began = time.monotonic()
    wire.ask(MetadataRequest(topics=[]))
    return time.monotonic() - began


def test_a_producer_is_answered_at_once_and_not_read_from_then(broker: Broker) -> None:
    with Wire(broker.bootstrap_servers) as wire, Wire(broker.bootstrap_servers) as beside:
        wire.create("topic")
        set_quota(wire, "producer_byte_rate", 10_000, client_id="wire")
        began = time.monotonic()
        assert produce(wire) == pytest.approx(0, abs=200)  # ten seconds of the quota, and a header
        first = produce(wire)
        assert time.monotonic() - began < 5
        assert is_told_to_wait(first, 10_000, began)
        set_quota(beside, "producer_byte_rate", None, client_id="wire")  # on another connection, which goes on
        assert seconds_to_answer(beside) < 5
        assert produce(beside) == 0
        wire.wait_at_most(1)
        with pytest.raises(TimeoutError):
            wire.ask(MetadataRequest(topics=[]))


def test_whoever_waited_goes_on_where_it_was(broker: Broker) -> None:
    """What came while nobody read is served then, and what was asked for with acks=0 is waited for as well."""
    with Wire(broker.bootstrap_servers) as wire:
        wire.create("topic")
        set_quota(wire, "producer_byte_rate", 100_000, client_id="wire")
        began = time.monotonic()
        for _ in range(11):
            produce(wire, acks=0)
        wire.ask(MetadataRequest(topics=[]))
        assert time.monotonic() - began >= 0.9
        assert seconds_to_answer(wire) < _AT_ONCE
        assert wire.fetch("topic", 0).high_watermark == 11


def test_a_consumer_gets_nothing_until_it_has_waited(broker: Broker) -> None:
    with Wire(broker.bootstrap_servers) as wire:
        wire.create("topic")
        for _ in range(10):
            produce(wire)
        set_quota(wire, "consumer_byte_rate", 100_000, client_id="wire")
        began = time.monotonic()
        begun = fetch(wire, 0, session_id=0, session_epoch=0)
        sent = len(begun.responses[0].partitions[0].records)
        assert (begun.throttle_time_ms, sent) == (0, 1_000_000)  # as much as ten seconds allow, the last batch in part
        waited = time.monotonic()
        refused = fetch(wire, 9, session_id=begun.session_id, session_epoch=1)
        assert (refused.session_id, refused.responses) == (begun.session_id, [])
        assert refused.throttle_time_ms > 0
        assert is_told_to_wait(refused.throttle_time_ms, 1000, began)
        again = fetch(wire, 9, session_id=begun.session_id, session_epoch=2)
        assert time.monotonic() - waited > refused.throttle_time_ms / 1000 - 0.1
        assert again.throttle_time_ms == 0
        assert len(again.responses[0].partitions[0].records) // 100_000 == 1


def test_a_batch_larger_than_the_quota_is_read(broker: Broker) -> None:
    with Wire(broker.bootstrap_servers) as wire:
        wire.create("topic")
        produce(wire)
        set_quota(wire, "consumer_byte_rate", 1, client_id="wire")
        response = fetch(wire, 0)
        assert len(response.responses[0].partitions[0].records) > 100_000
        assert response.throttle_time_ms > 90_000_000


def test_time_of_requests_is_a_quota(broker: Broker) -> None:
    with Wire(broker.bootstrap_servers) as wire, Wire(broker.bootstrap_servers, source="127.0.0.2") as beside:
        set_quota(wire, "request_percentage", 1e-6, client_id="wire")
        began = time.monotonic()
        response = wire.ask(MetadataRequest(topics=[]))
        assert response.throttle_time_ms == 1000
        wire.ask(MetadataRequest(topics=[]))
        assert time.monotonic() - began > 0.9
        assert seconds_to_answer(beside) < _AT_ONCE  # its own connection is not muted yet


def test_partitions_made_are_a_quota(broker: Broker) -> None:
    def create(version: int, name: str, partitions: int) -> tuple[str, int]:
        topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
        response = wire.ask(CreateTopicsRequest(topics=[topic], timeout_ms=1000), version)
        return error_name(response.topics[0].error_code), response.throttle_time_ms

    with Wire(broker.bootstrap_servers) as wire:
        set_quota(wire, "controller_mutation_rate", 1, user=None)
        began = time.monotonic()
        assert create(7, "first", 14) == ("NONE", 0)
        error, throttle_ms = create(7, "refused", 1)
        assert error == "THROTTLING_QUOTA_EXCEEDED"
        assert is_told_to_wait(throttle_ms, 3000, began)
        assert create(7, "first", 1)[0] == "TOPIC_ALREADY_EXISTS"
        assert wire.metadata("refused").error_code
        error, throttle_ms = create(5, "old client", 1)
        assert (error, throttle_ms > 0) == ("INVALID_TOPIC_EXCEPTION", True)
        assert create(5, "old-client", 1)[0] == "NONE"


def test_connections_are_a_quota_of_an_address(broker: Broker) -> None:
    """The eleventh in a second is closed; those that are there, and those from elsewhere, are served."""

    with ExitStack() as open_ones:

        def connect(source: str) -> Wire:
            wire = open_ones.enter_context(Wire(broker.bootstrap_servers, source=source))
            wire.ask(MetadataRequest(topics=[]))
            return wire

        set_quota(connect("127.0.0.1"), "connection_creation_rate", 1, ip="127.0.0.3")
        connected = [connect("127.0.0.3") for _ in range(10)]
        began = time.monotonic()
        with pytest.raises(ConnectionError):
            [connect("127.0.0.3") for _ in range(5)]
        assert time.monotonic() - began > 0.1  # it is closed after a while, not at once
        connect("127.0.0.4")
        assert seconds_to_answer(connected[0]) < 5


def test_quotas_survive_a_kill(tmp_path: Path) -> None:
    with Broker(tmp_path / "data", own_process=True) as broker, Wire(broker.bootstrap_servers) as wire:
        wire.create("topic")
        set_quota(wire, "producer_byte_rate", 5000, client_id="wire")
        set_quota(wire, "request_percentage", 12.5, user="alice", client_id=None)
        set_quota(wire, "consumer_byte_rate", 7, user=None)
        set_quota(wire, "consumer_byte_rate", None, user=None)
        os.kill(broker.pid, signal.SIGKILL)
    with Broker(tmp_path / "data") as broker, Wire(broker.bootstrap_servers) as wire:
        assert quotas_of(wire) == [
            ({"client-id": "wire"}, {"producer_byte_rate": 5000}),
            ({"user": "alice", "client-id": None}, {"request_percentage": 12.5}),
        ]
        assert produce(wire) == pytest.approx(10_000, abs=200)


def _send(servers: str, client_id: str, waits: list[int]) -> float:
    """Produce a megabyte in records of 10 kB with librdkafka; how many seconds until all of it is acknowledged."""
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "client.id": client_id,
            "linger.ms": 0,
            "batch.size": 50_000,
            "throttle_cb": lambda event: waits.append(event.throttle_time),
        }
    )
    began = time.monotonic()
    for _ in range(100):
        producer.produce("topic", os.urandom(10_000))
        producer.poll(0)
    assert producer.flush(30) == 0
    producer.poll(0)
    return time.monotonic() - began


def test_librdkafka_is_slowed_down_and_its_neighbour_is_not(broker: Broker) -> None:
    servers = broker.bootstrap_servers
    with Wire(servers) as wire:
        wire.create("topic")
        set_quota(wire, "producer_byte_rate", 80_000, client_id="slow")
        set_quota(wire, "consumer_byte_rate", 160_000, client_id="slow")
        waits: list[int] = []
        slow_s = _send(servers, "slow", waits)
        assert (
            slow_s > 1.5
        )  # a megabyte less ten seconds of the quota, at that: 2.5 s, and the last is answered at once
        assert max(waits) > 0
        other_waits: list[int] = []
        assert _send(servers, "beside", other_waits) < slow_s
        assert not any(other_waits)
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "client.id": "slow",
            "group.id": "group",
            "auto.offset.reset": "earliest",
            "fetch.max.bytes": 200_000,
            "message.max.bytes": 200_000,
        }
    )
    consumer.subscribe(["topic"])
    began = time.monotonic()
    read = 0
    while read < 200:
        read += len(consumer.consume(200 - read, 1))
        assert time.monotonic() - began < 60
    consumer.close()
    assert time.monotonic() - began > 1.5  # two megabytes less 1.6, at 160 kB a second: 2.5 s
