"""A broker's life: start, several listeners, restart, a full disk, and the end."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

import headrace
from headrace.broker.config import Address, BrokerConfig
from headrace.broker.errors import BrokerError
from headrace.broker.server import BrokerServer
from headrace.broker.settings.setting import InvalidSetting
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.describe_producers import DescribeProducersRequest, DescribeProducersResponse
from headrace.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from headrace.protocol.messages.produce import ProduceResponse
from headrace.protocol.messages.shared import TopicIndexes
from headrace.records import Record, build_batch, headers_in
from headrace.storage.errors import DirectoryInUse
from headrace.testing import MemoryFileSystem
from tests.integration.transaction_wire import WireProducer, committed_offset, is_stable
from tests.integration.waiting import wait_until
from tests.integration.wire import Wire

NOW = 1_700_000_000_000
BATCH = build_batch([Record(0, NOW, b"k", b"v")])


def start_command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "headrace.cli.main", "broker", "start", *arguments]


def test_sync_async_in_process_and_as_a_process(tmp_path: Path) -> None:
    for own_process in (False, True):
        with (
            headrace.Broker(tmp_path / f"{own_process}", own_process=own_process) as broker,
            Wire(broker.bootstrap_servers) as wire,
        ):
            wire.create("orders")
            assert wire.produce("orders", BATCH) == (0, 0)
            assert (broker.pid != os.getpid()) == own_process

    async def use() -> tuple[int, int]:
        async with headrace.Broker(tmp_path / "async") as broker:
            with Wire(broker.bootstrap_servers) as wire:
                wire.create("orders")
                return wire.produce("orders", BATCH)

    assert asyncio.run(use()) == (0, 0)


@pytest.mark.parametrize("own_process", [False, True])
def test_a_broker_that_does_not_run_says_so_and_one_that_runs_is_not_started_again(own_process: bool) -> None:
    broker = headrace.Broker(own_process=own_process)
    asked: list[Callable[[], object]] = [
        lambda: broker.bootstrap_servers,
        lambda: broker.pid,
        lambda: broker.delete_topics(prefix="a"),
    ]
    for _ in range(2):
        for ask in asked:
            with pytest.raises(BrokerError, match="the broker is not running: start it"):
                ask()
        with broker, pytest.raises(BrokerError, match=rf"runs already, at {broker.bootstrap_servers}"):
            broker.start()
        broker.stop()


@pytest.mark.parametrize("own_process", [False, True])
def test_a_temporary_broker_that_does_not_start_leaves_nothing_behind(
    own_process: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        broker = headrace.Broker(listen=f"127.0.0.1:{taken.getsockname()[1]}", own_process=own_process)
        for _ in range(2):
            with pytest.raises(BrokerError, match="cannot listen"):
                broker.start()
            assert list(tmp_path.iterdir()) == []
    with broker, Wire(broker.bootstrap_servers) as wire:
        wire.create("orders")
        assert [folder.stat().st_mode & 0o777 for folder in tmp_path.iterdir()] == [0o700]
    with pytest.raises(InvalidSetting, match="nowhere"):
        headrace.Broker(listen="nowhere")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("damaged", ["broker.json", "topics/orders.json"])
def test_a_directory_whose_broker_did_not_start_is_free_again(damaged: str, tmp_path: Path) -> None:
    with headrace.Broker(tmp_path) as broker, Wire(broker.bootstrap_servers) as wire:
        wire.create("orders")
    good = (tmp_path / damaged).read_bytes()
    (tmp_path / damaged).write_bytes(b"?")
    with pytest.raises(BrokerError, match=f"{damaged}.*restore it"):
        headrace.Broker(tmp_path).start()
    (tmp_path / damaged).write_bytes(good)
    with headrace.Broker(tmp_path) as broker, Wire(broker.bootstrap_servers) as wire:
        assert wire.produce("orders", BATCH) == (0, 0)


def test_a_broker_of_its_own_takes_nothing_from_the_folder_that_its_user_is_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit('of the user')")
    monkeypatch.chdir(tmp_path)
    with headrace.Broker(own_process=True) as broker, Wire(broker.bootstrap_servers) as wire:
        wire.create("orders")
        assert wire.produce("orders", BATCH) == (0, 0)


@pytest.mark.parametrize("own_process", [False, True])
def test_a_forked_child_that_leaves_the_block_takes_nothing_from_its_parent(own_process: bool) -> None:
    with headrace.Broker(own_process=own_process) as broker:
        child = os.fork()
        if not child:
            try:
                broker.__exit__(None, None, None)  # as `sys.exit` in a worker does
            finally:
                os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        assert Path(broker.data_dir).is_dir()
        with Wire(broker.bootstrap_servers) as wire:
            wire.create("orders")
            assert wire.produce("orders", BATCH) == (0, 0)
    assert not Path(broker.data_dir).exists()


def test_a_silent_producer_is_forgotten_in_time() -> None:
    with (
        headrace.Broker(settings={"producer.id.expiration.ms": "300"}) as broker,
        Wire(broker.bootstrap_servers) as wire,
    ):
        wire.create("orders")
        first = build_batch([Record(0, NOW, b"k", b"v")], producer_id=7, producer_epoch=0, base_sequence=0)
        assert wire.produce("orders", first) == (0, 0)
        topics = [TopicIndexes(name="orders", partition_indexes=[0])]

        def is_forgotten() -> bool:
            wire.send(DescribeProducersRequest(topics=topics), 0)
            _, answer = wire.receive(DescribeProducersResponse, 0)
            return not answer.topics[0].partitions[0].active_producers

        wait_until(is_forgotten, "the producer is still known")


def test_a_temporary_broker_leaves_nothing_behind() -> None:
    with headrace.Broker() as broker:
        folder = broker.data_dir
        assert Path(folder).is_dir()
    assert not Path(folder).exists()
    with pytest.raises(BrokerError, match="not running"):
        _ = broker.bootstrap_servers


@pytest.mark.parametrize("durability", ["os", "fsync"])
def test_only_what_is_gone_with_the_broker_and_need_not_be_durable_is_never_synced(
    durability: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    for name in ("fsync", "fdatasync"):
        real = getattr(os, name)
        monkeypatch.setattr(os, name, lambda fd, real=real: synced.append(fd) or real(fd))
    with headrace.Broker(durability=durability) as broker, Wire(broker.bootstrap_servers) as wire:
        wire.create("orders")
        assert wire.produce("orders", BATCH) == (0, 0)
    assert bool(synced) == (durability == "fsync")


def test_the_command_line_prints_one_line_and_ends_cleanly_on_sigterm(tmp_path: Path) -> None:
    command = start_command("--data-dir", str(tmp_path / "d"), "--listen", "127.0.0.1:0", "--json")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        with Wire(ready["listeners"][0]) as wire:
            wire.create("orders")
            assert wire.produce("orders", BATCH) == (0, 0)
        process.send_signal(signal.SIGTERM)
        rest, _ = process.communicate(timeout=30)
    assert process.returncode == 0
    assert rest == ""
    assert (tmp_path / "d" / ".kafka_cleanshutdown").exists()


def test_a_port_in_use_and_a_directory_in_use_are_one_sentence_each(tmp_path: Path) -> None:
    with headrace.Broker(tmp_path / "a") as broker:
        port_taken = subprocess.run(
            start_command("--data-dir", str(tmp_path / "b"), "--listen", broker.bootstrap_servers),
            capture_output=True,
            text=True,
            check=False,
        )
        directory_taken = subprocess.run(
            start_command("--data-dir", str(tmp_path / "a"), "--listen", "127.0.0.1:0"),
            capture_output=True,
            text=True,
            check=False,
        )
        with pytest.raises(DirectoryInUse):
            headrace.Broker(tmp_path / "a").start()
    assert (port_taken.returncode, directory_taken.returncode) == (1, 1)
    (line,) = port_taken.stderr.splitlines()
    assert "cannot listen on" in line
    assert "--listen" in line
    (line,) = directory_taken.stderr.splitlines()
    assert "in use by another process" in line


def test_clients_are_told_the_address_they_came_by(tmp_path: Path) -> None:
    with headrace.Broker(tmp_path, listen=["127.0.0.1:0", "127.0.0.2:0", "[::1]:0"]) as broker:
        addresses = broker.bootstrap_servers.split(",")
        assert len(addresses) == 3
        for address in addresses:
            with Wire(address) as wire:
                (node,) = wire.ask(MetadataRequest(topics=[]), MetadataResponse, 9).brokers
                assert str(Address(node.host, node.port)) == address


def test_topics_settings_ids_and_records_survive_a_restart(tmp_path: Path) -> None:
    def topic_of(wire: Wire) -> tuple[bytes, int, int]:
        asked = [MetadataRequestTopic(name="orders")]
        (topic,) = wire.ask(MetadataRequest(topics=asked), MetadataResponse, 12).topics
        return topic.topic_id, len(topic.partitions), topic.partitions[0].leader_epoch

    with headrace.Broker(tmp_path) as broker, Wire(broker.bootstrap_servers) as wire:
        wire.create("orders", 3, max_message_bytes="200")
        assert wire.produce("orders", BATCH) == (0, 0)
        before = topic_of(wire)
    with headrace.Broker(tmp_path) as broker, Wire(broker.bootstrap_servers) as wire:
        after = topic_of(wire)
        assert after[:2] == before[:2]
        assert after[2] == before[2] + 1  # a new leader epoch with every start (KIP-320)
        assert [record.value for record in wire.read_all("orders")] == [b"v"]
        too_large = build_batch([Record(0, NOW, b"k", b"v" * 300)])
        assert wire.produce("orders", too_large)[0] == ErrorCode.MESSAGE_TOO_LARGE
        assert wire.produce("orders", BATCH) == (0, 1)


def use_coordinators(wire: Wire) -> None:
    """Commit an offset for each of five groups, and five transactions."""
    for number in range(5):
        producer = WireProducer(wire, f"writer-{number}")
        assert producer.send("orders", b"v") == 0
        assert producer.commit_offset(f"group-{number}", "orders", 1) == 0
        assert producer.end(committed=True) == 0


@pytest.mark.parametrize("was_clean", [True, False], ids=["clean", "crashed"])
@pytest.mark.parametrize("byte", [8, 70], ids=["length", "record"])
def test_damage_of_an_internal_topic_costs_what_it_says_and_not_the_start(
    byte: int, was_clean: bool, tmp_path: Path
) -> None:
    settings = {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}
    with headrace.Broker(tmp_path, settings=settings) as broker, Wire(broker.bootstrap_servers) as wire:
        wire.create("orders")
        use_coordinators(wire)
    for topic in ("__consumer_offsets", "__transaction_state"):
        path = tmp_path / f"{topic}-0" / f"{0:020d}.log"
        data = bytearray(path.read_bytes())
        position, header = list(headers_in(data))[2]
        assert not header.is_control
        data[position + byte] ^= 0x7F
        path.write_bytes(data)
    if not was_clean:
        (tmp_path / ".kafka_cleanshutdown").unlink()
    for _ in range(2):
        with headrace.Broker(tmp_path, settings=settings) as broker, Wire(broker.bootstrap_servers) as wire:
            known = [committed_offset(wire, f"group-{number}", "orders")[0] for number in range(5)]
            assert known == [1, -1, 1, 1, 1]
            wait_until(lambda wire=wire: is_stable(wire, "orders"), "a transaction was left open")
    with headrace.Broker(tmp_path, settings=settings) as broker, Wire(broker.bootstrap_servers) as wire:
        use_coordinators(wire)
        assert committed_offset(wire, "group-1", "orders")[0] == 1


def test_nothing_is_done_to_a_file_after_the_directory_was_let_go(tmp_path: Path) -> None:
    with headrace.Broker(tmp_path) as broker, Wire(broker.bootstrap_servers) as wire:
        wire.create("orders")
        producers = [WireProducer(wire, f"writer-{number}") for number in range(20)]
        for producer in producers:
            assert producer.send("orders", b"v") == 0
        for producer in producers:
            wire.send(producer.end_request(committed=True), 4)
        wire.receive_frame()  # the markers of many are on their way
    logs = [log for log in tmp_path.glob("*/*.log") if log.stat().st_size]
    assert len(logs) > 1
    assert [log.name for log in logs if not log.with_suffix(".index").exists()] == []


def test_acks_zero_is_not_answered(tmp_path: Path) -> None:
    with headrace.Broker(tmp_path) as broker, Wire(broker.bootstrap_servers) as wire:
        wire.create("orders")
        wire.send(wire.produce_request("orders", BATCH, acks=0), 9)
        asked = wire.send(MetadataRequest(topics=[]), 9)
        assert wire.receive(MetadataResponse, 9)[0] == asked
        assert len(wire.fetch("orders", 0, wait_ms=5000)[1]) == 1


def test_a_full_disk_refuses_appends_serves_reads_and_goes_on_with_room(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "headrace")
    filesystem = MemoryFileSystem()
    large = build_batch([Record(0, NOW, b"k", b"v" * 100_000)])

    async def run() -> None:
        server = BrokerServer(BrokerConfig("/data"), filesystem=filesystem)
        (address,) = server.start()
        await asyncio.to_thread(talk, str(address))
        server.stop()

    def talk(bootstrap: str) -> None:
        with Wire(bootstrap) as wire:
            wire.create("orders")
            assert wire.produce("orders", large) == (0, 0)
            filesystem.capacity_bytes = filesystem.used_bytes + 50_000
            answer = wire.ask(wire.produce_request("orders", large), ProduceResponse, 9)
            (partition,) = answer.responses[0].partition_responses
            assert partition.error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert ErrorCode(partition.error_code).retriable
            assert "no space left" in str(partition.error_message)
            for _ in range(5):
                assert wire.produce("orders", large)[0] == ErrorCode.KAFKA_STORAGE_ERROR
            assert len(wire.fetch("orders", 0)[1]) == 1
            filesystem.capacity_bytes = None
            assert wire.produce("orders", large) == (0, 1)
            assert len(wire.fetch("orders", 0)[1]) == 2

    asyncio.run(run())
    said = [record for record in caplog.records if record.getMessage().startswith("the disk ")]
    assert [record.getMessage() for record in said] == [
        "the disk is full: producers are refused until it takes writes again, reads go on",
        "the disk takes writes again",
    ]


def test_a_failed_sync_is_told_to_the_producer_and_hidden_from_readers() -> None:
    filesystem = MemoryFileSystem()

    async def run() -> None:
        server = BrokerServer(BrokerConfig("/data"), filesystem=filesystem)
        (address,) = server.start()
        await asyncio.to_thread(talk, str(address))
        server.stop()

    def talk(bootstrap: str) -> None:
        with Wire(bootstrap) as wire:
            wire.create("orders")
            assert wire.produce("orders", BATCH) == (0, 0)
            filesystem.fail_sync("*.log", times=1)
            assert wire.produce("orders", BATCH)[0] == ErrorCode.KAFKA_STORAGE_ERROR
            assert len(wire.fetch("orders", 0)[1]) == 1  # what is not durable is not shown
            assert wire.produce("orders", BATCH) == (0, 2)
            assert len(wire.fetch("orders", 0)[1]) == 3

    asyncio.run(run())
