"""Bad neighbours: whatever one client does, the others do not notice."""

import os
import random
import select
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.broker.config import Address
from headrace.broker.embedded import Broker
from headrace.protocol.frame import encode_request
from headrace.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from headrace.protocol.messages.fetch import FetchResponse
from headrace.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from headrace.protocol.messages.metadata import MetadataRequest, MetadataResponse
from headrace.protocol.messages.produce import ProduceResponse
from headrace.records import Record, build_batch
from tests.integration.wire import Wire

NOW = 1_700_000_000_000


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(tmp_path / "data", durability="os", own_process=True) as running:
        yield running


def resident_mib(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise AssertionError("no VmRSS")


def batch(size: int, count: int = 1) -> bytes:
    return build_batch([Record(n, NOW, b"k", os.urandom(size)) for n in range(count)])


def is_closed(sock: socket.socket) -> bool:
    """Whether the broker has hung up on us."""
    sock.settimeout(10)
    try:
        return sock.recv(1) == b""
    except ConnectionError:
        return True


GARBAGE = {
    "random bytes": random.Random(1).randbytes(4096),
    "an HTTP request": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a TLS hello": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),
    "a negative size": struct.pack(">i", -1),
    "a size over the limit": struct.pack(">i", 2**31 - 1),
    "an API that does not exist": struct.pack(">ihhih", 10, 32000, 0, 1, -1),
    "a frame too short for a header": struct.pack(">ih", 2, 3),
    "a request cut short inside": struct.pack(">ihhihi", 14, 3, 1, 1, -1, 1000),
    "a produce without a body": struct.pack(">ihhih", 10, 0, 9, 1, -1),
}


@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=GARBAGE.keys())
def test_garbage_closes_its_own_connection_and_no_other(broker: Broker, garbage: bytes) -> None:
    host, port = Address.parse(broker.bootstrap_servers)
    with Wire(broker.bootstrap_servers) as good, socket.create_connection((host, port)) as bad:
        good.create("orders")
        bad.sendall(garbage)
        assert is_closed(bad)
        assert good.produce("orders", batch(100)) == (0, 0)
        assert len(good.fetch("orders", 0)[1]) == 1


def test_a_corrupt_batch_is_refused_and_the_connection_goes_on(broker: Broker) -> None:
    with Wire(broker.bootstrap_servers) as wire:
        wire.create("orders")
        torn = bytearray(batch(100))
        torn[-1] ^= 0xFF
        assert wire.produce("orders", bytes(torn)) == (2, -1)  # CORRUPT_MESSAGE
        assert wire.produce("orders", batch(100)) == (0, 0)


def test_half_a_frame_and_then_silence_holds_up_nobody(broker: Broker) -> None:
    host, port = Address.parse(broker.bootstrap_servers)
    frame = encode_request(MetadataRequest(topics=[]), 9, 1, "half")
    with socket.create_connection((host, port)) as half, Wire(broker.bootstrap_servers) as good:
        half.sendall(frame[: len(frame) // 2])
        good.create("orders")
        assert good.produce("orders", batch(100)) == (0, 0)
        half.sendall(frame[len(frame) // 2 :])  # and it is answered when the rest comes
        assert len(half.recv(4)) == 4


def test_a_frame_that_comes_byte_by_byte_is_one_frame(broker: Broker) -> None:
    with Wire(broker.bootstrap_servers) as wire:
        wire.create("orders")
        request = encode_request(wire.produce_request("orders", batch(300)), 9, 77, "slow")
        for byte in request:
            wire.socket.sendall(bytes([byte]))
        correlation_id, answer = wire.receive(ProduceResponse, 9)
        assert correlation_id == 77
        assert answer.responses[0].partition_responses[0].error_code == 0


def test_a_reader_that_stops_reading_costs_the_others_nothing(broker: Broker) -> None:
    with Wire(broker.bootstrap_servers) as good, Wire(broker.bootstrap_servers) as stuck:
        good.create("orders")
        for _ in range(40):
            assert good.produce("orders", batch(900_000), acks=1)[0] == 0
        before = resident_mib(broker.pid)
        for _ in range(2000):  # 70 GB of answers, were they made
            stuck.send(stuck.fetch_request("orders", 0, max_bytes=50_000_000), 12)
            if stuck.next_id == 200:
                stuck.socket.settimeout(0.5)
                break
        stuck.socket.setblocking(False)
        sent = 0
        request = encode_request(stuck.fetch_request("orders", 0, max_bytes=50_000_000), 12, 1, "stuck")
        try:
            while sent < 100_000:
                stuck.socket.sendall(request)
                sent += 1
        except BlockingIOError:
            pass  # the broker has stopped reading from us, as it should
        assert sent < 100_000
        for _ in range(50):
            error, offset = good.produce("orders", batch(1000), acks=1)
            assert error == 0
            assert len(good.fetch("orders", offset)[1]) == 1
        assert resident_mib(broker.pid) - before < 50


def test_a_thousand_idle_connections_harm_nobody(broker: Broker) -> None:
    host, port = Address.parse(broker.bootstrap_servers)
    before = resident_mib(broker.pid)
    idle = [socket.create_connection((host, port)) for _ in range(1000)]
    try:
        with Wire(broker.bootstrap_servers) as wire:
            wire.create("orders")
            assert wire.produce("orders", batch(100)) == (0, 0)
            assert len(wire.fetch("orders", 0)[1]) == 1
        request = encode_request(MetadataRequest(topics=[]), 9, 1, "idle")
        for sock in idle:  # and each of them still works
            sock.sendall(request)
        for sock in idle:
            sock.settimeout(10)
            assert len(sock.recv(4)) == 4
        assert resident_mib(broker.pid) - before < 50
    finally:
        for sock in idle:
            sock.close()


def test_answers_come_in_the_order_of_the_requests(broker: Broker) -> None:
    with Wire(broker.bootstrap_servers) as wire, Wire(broker.bootstrap_servers) as other:
        wire.create("orders")
        waiting = wire.send(wire.fetch_request("orders", 0, wait_ms=20_000), 12)
        second = wire.send(MetadataRequest(topics=[]), 9)
        third = wire.send(wire.produce_request("other", batch(10)), 9)
        assert other.produce("orders", batch(100)) == (0, 0)  # wakes the fetch, long before its time is up
        assert wire.receive(FetchResponse, 12)[0] == waiting
        assert wire.receive(MetadataResponse, 9)[0] == second
        assert wire.receive(ProduceResponse, 9)[0] == third


def test_a_client_that_leaves_in_the_middle_of_a_long_poll_is_forgotten(broker: Broker) -> None:
    with Wire(broker.bootstrap_servers) as wire:
        wire.create("orders")
        for _ in range(50):
            with Wire(broker.bootstrap_servers) as leaving:
                leaving.send(leaving.fetch_request("orders", 0, wait_ms=60_000), 12)
        assert wire.produce("orders", batch(100)) == (0, 0)
        assert len(wire.fetch("orders", 0)[1]) == 1


def test_a_producer_begins_while_somebody_makes_a_wide_topic(broker: Broker) -> None:
    with Wire(broker.bootstrap_servers) as wide, Wire(broker.bootstrap_servers) as producer:
        topic = CreatableTopic(name="wide", num_partitions=600, replication_factor=1)
        wide.send(CreateTopicsRequest(topics=[topic], timeout_ms=60_000), 5)
        producer.send(InitProducerIdRequest(transactional_id=None), 4)
        _, answer = producer.receive(InitProducerIdResponse, 4)
        assert (answer.error_code, answer.producer_epoch) == (0, 0)
        assert not select.select([wide.socket], [], [], 0)[0], "the topic was there first: the producer has waited"
        _, made = wide.receive(CreateTopicsResponse, 5)
        assert made.topics[0].error_code == 0
