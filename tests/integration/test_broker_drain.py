"""A broker that ends: what is under way is answered, nothing that was acknowledged is lost, and clients go on."""

import asyncio
import json
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer

from headrace.broker.channel import MAX_UNDER_WAY
from headrace.broker.config import BrokerConfig
from headrace.broker.server import BrokerServer
from headrace.protocol.api import ApiKey
from headrace.protocol.messages.fetch import FetchResponse
from headrace.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from headrace.records import Record, build_batch
from headrace.storage.directory import CLEAN_SHUTDOWN
from tests.integration.waiting import wait_until
from tests.integration.wire import Wire
from tests.ports import free_port

NOW = 1_700_000_000_000
BATCH = build_batch([Record(0, NOW, b"k", b"v")])
LARGE = build_batch([Record(0, NOW, b"k", bytes(900_000))])
PATIENCE_S = 60.0
LONG_WAITS = {"shutdown.drain.timeout.ms": "600000", "group.initial.rebalance.delay.ms": "600000"}


@contextmanager
def broker_process(data_dir: Path, listen: str = "127.0.0.1:0", **settings: str) -> Iterator[tuple[Any, str, str]]:
    """The process, where it listens, and where it is watched, if it is."""
    command = [sys.executable, "-m", "headrace.cli.main", "broker", "start", "--json"]
    command += ["--data-dir", str(data_dir), "--listen", listen]
    for name, value in settings.items():
        command += ["--set", f"{name.replace('_', '.')}={value}"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, process.communicate()[1]
        told = json.loads(line)
        yield process, told["listeners"][0], told.get("metrics", "")
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def end(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE_S) == 0


def run_beside(talk: Callable[[BrokerServer, str, asyncio.AbstractEventLoop], None], data_dir: Path) -> None:
    """A broker in this process, so that it can be looked into, and `talk` in a thread, which ends it."""

    async def run() -> None:
        server = BrokerServer(BrokerConfig(str(data_dir), settings=LONG_WAITS))
        (address,) = server.start()
        await asyncio.to_thread(talk, server, str(address), asyncio.get_running_loop())

    asyncio.run(run())


def drain_from(server: BrokerServer, loop: asyncio.AbstractEventLoop) -> None:
    async def drain() -> None:
        await server.drain()
        server.stop()

    asyncio.run_coroutine_threadsafe(drain(), loop).result(PATIENCE_S)


def is_at_its_end(wire: Wire) -> bool:
    """Whether the broker has closed in order: a reset would raise."""
    return wire.socket.recv(1) == b""


def test_what_is_under_way_is_answered_and_what_waits_need_not_wait(tmp_path: Path) -> None:
    def talk(server: BrokerServer, bootstrap: str, loop: asyncio.AbstractEventLoop) -> None:
        runtime = server.runtime
        assert runtime is not None
        with Wire(bootstrap) as reader, Wire(bootstrap) as member, Wire(bootstrap) as idle:
            reader.create("orders")
            assert reader.produce("orders", BATCH) == (0, 0)
            reader.send(reader.fetch_request("orders", 1, wait_ms=600_000), 12)
            wait_until(lambda: len(runtime.waiting) == 1, "the fetch does not wait")
            protocols = [JoinGroupRequestProtocol(name="range", metadata=b"")]
            joining = JoinGroupRequest(
                group_id="g",
                protocol_type="consumer",
                session_timeout_ms=30_000,
                rebalance_timeout_ms=600_000,
                protocols=protocols,
            )
            member.send(joining, 2)
            wait_until(lambda: ApiKey.JOIN_GROUP in runtime.metrics.apis, "nobody joins")
            drain_from(server, loop)
            (partition,) = reader.receive(FetchResponse, 12)[1].responses[0].partitions
            assert partition.error_code == 0
            assert not partition.records
            for wire in (reader, member, idle):
                assert is_at_its_end(wire)
            assert not accepts(bootstrap)
        assert (tmp_path / CLEAN_SHUTDOWN).exists()

    run_beside(talk, tmp_path)


def test_requests_that_were_sent_and_not_begun_do_not_cost_the_answers_before_them(tmp_path: Path) -> None:
    """What lies unread in a socket that is closed has the kernel reset it, and throw away what was to be sent."""

    def talk(server: BrokerServer, bootstrap: str, loop: asyncio.AbstractEventLoop) -> None:
        runtime = server.runtime
        assert runtime is not None
        with Wire(bootstrap) as wire:
            wire.create("orders")
            for _ in range(MAX_UNDER_WAY):
                wire.send(wire.fetch_request("orders", 0, wait_ms=600_000), 12)
            wait_until(lambda: len(runtime.waiting) == MAX_UNDER_WAY, "the fetches do not wait")
            wire.send(wire.produce_request("orders", BATCH), 9)
            drain_from(server, loop)
            for _ in range(MAX_UNDER_WAY):
                assert wire.receive(FetchResponse, 12)[1].error_code == 0
            assert is_at_its_end(wire)

    run_beside(talk, tmp_path)


@contextmanager
def client_that_does_not_read(bootstrap: str) -> Iterator[None]:
    """It asks for more than sockets hold, and takes the beginning of the first answer."""
    with Wire(bootstrap) as wire:
        wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        wire.create("large")
        for _ in range(20):
            assert wire.produce("large", LARGE)[0] == 0
        for _ in range(4):
            wire.send(wire.fetch_request("large", 0, max_bytes=20_000_000), 12)
        assert wire.socket.recv(1)
        yield


def test_a_client_that_does_not_read_holds_the_end_up_for_no_longer_than_is_set(tmp_path: Path) -> None:
    with broker_process(tmp_path, shutdown_drain_timeout_ms="100") as (process, bootstrap, _):
        with client_that_does_not_read(bootstrap):
            end(process)
        assert "time was up" in process.stderr.read()
    assert (tmp_path / CLEAN_SHUTDOWN).exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_waits_for_nobody(number: signal.Signals, tmp_path: Path) -> None:
    with (
        broker_process(tmp_path, shutdown_drain_timeout_ms="600000") as (process, bootstrap, _),
        client_that_does_not_read(bootstrap),
    ):
        process.send_signal(signal.SIGTERM)
        wait_until(lambda: not accepts(bootstrap), "the broker does not begin to end")
        assert process.poll() is None
        process.send_signal(number)
        assert process.wait(PATIENCE_S) == 0
    assert (tmp_path / CLEAN_SHUTDOWN).exists()


def accepts(bootstrap: str) -> bool:
    try:
        Wire(bootstrap).socket.close()
    except OSError:
        return False
    return True


class Watched:
    """What real clients see: every error that they report, and what came of every record."""

    def __init__(self) -> None:
        self.errors: list[KafkaError] = []
        self.failed: list[KafkaError] = []
        self.acknowledged: list[int] = []

    def on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failed.append(error)
        else:
            self.acknowledged.append(int(message.value()))  # type: ignore[arg-type]


# What a client says of a broker that is away for a moment; it tries again by itself.
AWAY = {KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE, KafkaError._TIMED_OUT}


def test_clients_go_on_over_restarts_and_no_acknowledged_record_is_lost_or_doubled(tmp_path: Path) -> None:
    watched, restarts, stopping = Watched(), 3, threading.Event()
    with broker_process(tmp_path, listen=f"127.0.0.1:{free_port()}") as (first, bootstrap, _):
        with Wire(bootstrap) as wire:
            wire.create("orders")
        common = {"bootstrap.servers": bootstrap, "error_cb": watched.errors.append, "reconnect.backoff.max.ms": 200}
        producer = Producer(common | {"enable.idempotence": True, "linger.ms": 1, "message.timeout.ms": 300_000})

        def produce() -> None:
            number = 0
            while not stopping.is_set():
                producer.produce("orders", str(number).encode(), on_delivery=watched.on_delivery)
                number += 1
                producer.poll(0.001)
            assert producer.flush(PATIENCE_S) == 0

        work = threading.Thread(target=produce, name="producing")
        work.start()

        def wait_for_more() -> None:
            before = len(watched.acknowledged)
            wait_until(
                lambda: len(watched.acknowledged) > before + 50, "nothing is acknowledged", patience_s=PATIENCE_S
            )

        wait_for_more()
        end(first)
    for _ in range(restarts):
        with broker_process(tmp_path, listen=bootstrap) as (process, *_):
            wait_for_more()
            end(process)
            assert "recovered" not in process.stderr.read()
    with broker_process(tmp_path, listen=bootstrap):
        wait_for_more()
        stopping.set()
        work.join(PATIENCE_S)
        assert not work.is_alive()
        assert watched.failed == []
        assert {error.code() for error in watched.errors} <= AWAY
        consumer = Consumer(common | {"group.id": "g", "auto.offset.reset": "earliest"})
        consumer.subscribe(["orders"])
        read: list[int] = []
        try:
            while len(read) < len(watched.acknowledged):
                message = consumer.poll(PATIENCE_S)
                assert message is not None
                assert message.error() is None
                read.append(int(message.value()))  # type: ignore[arg-type]
        finally:
            consumer.close()
        assert read == sorted(watched.acknowledged) == list(range(len(read)))
