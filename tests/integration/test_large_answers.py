"""Answers that threads send: in their order, byte for byte, to whoever reads, also beside many who do not."""

import os
import random
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from headrace.broker.answers import LOCAL_SEND_BUFFER_BYTES
from headrace.broker.config import Address
from headrace.broker.embedded import Broker
from headrace.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from headrace.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from headrace.protocol.messages.fetch import FetchPartition, FetchResponse
from headrace.records import Record, build_batch
from tests.integration.wire import Wire

NOW = 1_700_000_000_000
MEBIBYTE = 1024 * 1024
BATCHES = 24  # in segments of eight mebibytes
BATCH_BYTES = 1_000_000  # nearly the most that is taken by default


def batch(number: int) -> bytes:
    return build_batch([Record(0, NOW, b"%d" % number, random.Random(number).randbytes(BATCH_BYTES))])


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(tmp_path / "data", durability="os", own_process=True) as running:
        with Wire(running.bootstrap_servers) as wire:
            wire.create("large", segment_bytes=str(8 * MEBIBYTE))
            for number in range(BATCHES):
                assert wire.produce("large", batch(number)) == (0, number)
        yield running


def numbers_in(content: bytes) -> list[int]:
    """Which batches these are, every byte of each; the last one may be cut, as in Kafka, and does not count then."""
    numbers = []
    while len(content) > 16:
        number = int.from_bytes(content[:8], "big")
        whole = batch(number)
        # What the broker writes into a batch is its base offset and the leader epoch.
        there, content = content[: len(whole)], content[len(whole) :]
        assert there[8:12] + there[16:] == whole[8:12] + whole[16 : len(there)], number
        if len(there) == len(whole):
            numbers.append(number)
    return numbers


def slow_client(bootstrap: str) -> Wire:
    """One that takes little and reads nothing by itself."""
    wire = Wire.__new__(Wire)
    wire.next_id = 0
    wire.socket = socket.socket()
    wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    wire.socket.settimeout(30)
    wire.socket.connect(tuple(Address.parse(bootstrap)))
    return wire


def files_of(broker: Broker) -> list[str]:
    """What the broker has open, but for its own bookkeeping."""
    assert broker.pid is not None
    found = []
    for descriptor in Path(f"/proc/{broker.pid}/fd").iterdir():
        try:
            found.append(os.readlink(descriptor))
        except OSError:
            continue
    return [name for name in found if name.startswith("socket:") or "large" in name]


def until(holds, seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_pipelined_answers_come_in_their_order_and_byte_for_byte(broker: Broker) -> None:
    chance = random.Random(5)
    with Wire(broker.bootstrap_servers) as wire:
        asked = []
        for _ in range(60):
            offset = chance.randrange(BATCHES)
            size = chance.choice([0, 1, 100_000, 600_000, 3 * MEBIBYTE, 9 * MEBIBYTE, 40 * MEBIBYTE])
            if size:
                sent = wire.send(wire.fetch_request("large", offset, size), 12)
            else:  # something small in between
                sent = wire.send(ApiVersionsRequest(), 0)
            asked.append((sent, offset, size))
        for sent, offset, size in asked:
            if not size:
                assert wire.receive(ApiVersionsResponse, 0)[0] == sent
                continue
            received, answer = wire.receive(FetchResponse, 12)
            assert received == sent
            numbers = numbers_in(bytes(answer.responses[0].partitions[0].records or b""))
            assert numbers == list(range(offset, offset + len(numbers)))
            assert len(numbers) >= 1
            assert len(numbers) * BATCH_BYTES <= max(size, MEBIBYTE)


def test_who_reads_slowly_has_all_and_holds_up_nobody(broker: Broker) -> None:
    slow = [slow_client(broker.bootstrap_servers) for _ in range(40)]
    for wire in slow:
        wire.send(wire.fetch_request("large", 0, 9 * MEBIBYTE), 12)
    is_over = threading.Event()

    def sip() -> None:  # each goes on, a little at a time: its thread is wanted again and again
        while not is_over.is_set():
            for wire in slow[1:]:
                wire.socket.recv(16 * 1024)
            time.sleep(0.005)

    sipping = threading.Thread(target=sip)
    sipping.start()
    try:
        with Wire(broker.bootstrap_servers) as fast:
            began = time.monotonic()
            for _ in range(10):
                answer = fast.ask(fast.fetch_request("large", 8, 8 * MEBIBYTE), FetchResponse, 12)
                assert len(answer.responses[0].partitions[0].records or b"") > 7 * MEBIBYTE
            assert time.monotonic() - began < 15
    finally:
        is_over.set()
        sipping.join()
    _, answer = slow[0].receive(FetchResponse, 12)
    numbers = numbers_in(bytes(answer.responses[0].partitions[0].records or b""))
    assert numbers == list(range(len(numbers)))
    assert len(numbers) >= 7
    for wire in slow:
        wire.socket.close()


def test_who_leaves_in_the_middle_leaves_nothing_behind(broker: Broker) -> None:
    with Wire(broker.bootstrap_servers) as wire:
        wire.ask(wire.fetch_request("large", 0, 9 * MEBIBYTE), FetchResponse, 12)
    time.sleep(0.2)
    before = sorted(files_of(broker))
    chance = random.Random(7)
    for _ in range(300):  # some are reset while the loop has no time for them
        wire = slow_client(broker.bootstrap_servers) if chance.random() < 0.5 else Wire(broker.bootstrap_servers)
        for _ in range(3):
            wire.send(wire.fetch_request("large", 0, 9 * MEBIBYTE), 12)
        left = chance.choice([0, 1, 100_000, 3 * MEBIBYTE])
        while left > 0:
            left -= len(wire.socket.recv(min(left, 65536)))
        if chance.random() < 0.5:
            wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # a reset
        wire.socket.close()
    until(lambda: len(files_of(broker)) <= len(before))
    assert broker.pid is not None
    assert "large" not in Path(f"/proc/{broker.pid}/maps").read_text()
    with Wire(broker.bootstrap_servers) as wire:
        answer = wire.ask(wire.fetch_request("large", 3, 9 * MEBIBYTE), FetchResponse, 12)
        assert numbers_in(bytes(answer.responses[0].partitions[0].records or b""))[0] == 3


def test_many_who_fetch_much_in_small_slices_take_few_descriptors(broker: Broker) -> None:
    partitions = 200
    clients = [Wire(broker.bootstrap_servers) for _ in range(50)]
    clients[0].create("small", partitions=partitions)
    for partition in range(partitions):
        small = build_batch([Record(0, NOW, b"%d" % partition, random.Random(partition).randbytes(20_000))])
        assert clients[0].produce("small", small, partition=partition) == (0, 0)
    asked = clients[0].fetch_request("small", 0, 40 * MEBIBYTE)
    asked.topics[0].partitions = [
        FetchPartition(partition=partition, fetch_offset=0, partition_max_bytes=MEBIBYTE)
        for partition in range(partitions)
    ]
    most, is_over = 0, threading.Event()
    folder = f"/proc/{broker.pid}/fd"
    before = len(os.listdir(folder))

    def watch() -> None:
        nonlocal most
        while not is_over.is_set():
            most = max(most, len(os.listdir(folder)))

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        for _ in range(4):
            for wire in clients:
                wire.send(asked, 12)
            for wire in clients:
                _, answer = wire.receive(FetchResponse, 12)
                assert all(len(each.records or b"") > 20_000 for each in answer.responses[0].partitions)
    finally:
        is_over.set()
        watching.join()
        for wire in clients:
            wire.socket.close()
    assert most - before < 1_050  # sixteen loans of sixty-four parts, however many clients


def test_a_topic_that_is_deleted_while_it_is_sent_is_sent_whole(broker: Broker) -> None:
    with slow_client(broker.bootstrap_servers) as wire, Wire(broker.bootstrap_servers) as other:
        wire.send(wire.fetch_request("large", 0, 9 * MEBIBYTE), 12)
        assert wire.socket.recv(1, socket.MSG_PEEK)
        deleted = other.ask(DeleteTopicsRequest(topic_names=["large"], timeout_ms=10_000), DeleteTopicsResponse, 5)
        assert deleted.responses[0].error_code == 0
        other.create("large")
        assert other.produce("large", build_batch([Record(0, NOW, b"another", b"topic")])) == (0, 0)
        _, answer = wire.receive(FetchResponse, 12)
        numbers = numbers_in(bytes(answer.responses[0].partitions[0].records or b""))
        assert numbers == list(range(len(numbers)))
        assert len(numbers) >= 7


@pytest.mark.parametrize("left", [0, 3 * MEBIBYTE, 7_500_001])
def test_a_file_that_is_cut_while_it_is_sent_ends_its_connections_and_nothing_else(
    broker: Broker, tmp_path: Path, left: int
) -> None:
    clients = [slow_client(broker.bootstrap_servers) for _ in range(6)]
    for wire in clients:
        wire.send(wire.fetch_request("large", 0, 9 * MEBIBYTE), 12)
        assert wire.socket.recv(1, socket.MSG_PEEK)
    os.truncate(tmp_path / "data" / "large-0" / f"{0:020}.log", left)
    for wire in clients:
        with pytest.raises(ConnectionError):
            wire.receive(FetchResponse, 12)
        wire.socket.close()
    with Wire(broker.bootstrap_servers) as other:
        answer = other.ask(other.fetch_request("large", 8, 9 * MEBIBYTE), FetchResponse, 12)
        assert numbers_in(bytes(answer.responses[0].partitions[0].records or b""))[0] == 8


def send_buffer_to(client: tuple[str, int]) -> int:
    """That of this process's socket whose peer is this client."""
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            sock = socket.socket(fileno=os.dup(int(descriptor)))
        except OSError:  # no socket
            continue
        with sock, suppress(OSError):
            if sock.getpeername() == client:
                return sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
    raise AssertionError(f"no socket to {client}")


def test_little_is_under_way_to_a_client_on_this_machine_that_fetches_much(tmp_path: Path) -> None:
    with Broker(tmp_path, durability="os") as here, Wire(here.bootstrap_servers) as wire:
        wire.create("large")
        for number in range(4):
            assert wire.produce("large", batch(number)) == (0, number)
        answer = wire.ask(wire.fetch_request("large", 0, 4 * MEBIBYTE), FetchResponse, 12)
        assert numbers_in(bytes(answer.responses[0].partitions[0].records or b"")) == [0, 1, 2, 3]
        assert (
            send_buffer_to(wire.socket.getsockname()) <= 2 * LOCAL_SEND_BUFFER_BYTES
        )  # the system takes twice as much


def test_a_broker_ends_while_it_sends(broker: Broker) -> None:
    clients = [slow_client(broker.bootstrap_servers) for _ in range(8)]
    for wire in clients:
        wire.send(wire.fetch_request("large", 0, 9 * MEBIBYTE), 12)
        assert wire.socket.recv(1, socket.MSG_PEEK)
    began = time.monotonic()
    broker.stop()
    assert time.monotonic() - began < 60
    for wire in clients:
        wire.socket.close()
