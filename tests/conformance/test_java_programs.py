"""Whole Java programs on our broker: Kafka's verifiers, its transactional copier, and Kafka Streams, exactly once."""

from __future__ import annotations

import json
import signal
import subprocess
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from headrace import Broker
from peers.java import java_command
from peers.kafka.tools import kafka_logging, run_tool
from tests.conformance.clients.wire import Wire
from tests.conformance.comparison import wait_until
from tests.integration.test_broker_drain import broker_process, end
from tests.integration.test_overflow import counted
from tests.integration.test_queue_delivery import Group
from tests.ports import free_port
from tests.reading import read_committed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.java


def run_program(name: str, *args: str) -> subprocess.CompletedProcess[str]:
    return run_tool(f"org.apache.kafka.tools.{name}", *args, own_jvm=True)


@pytest.fixture
def broker(tmp_path: Path, kafka_jars: Path) -> Iterator[Broker]:
    settings = {"group.initial.rebalance.delay.ms": "0"}
    with Broker(tmp_path / "data", settings=settings, own_process=True) as running:
        yield running


def create(broker: Broker, **topics: int) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    made = admin.create_topics([NewTopic(name.replace("_", "-"), count, 1) for name, count in topics.items()])
    for done in made.values():
        done.result()


def json_lines(text: str, name: str) -> list[dict[str, object]]:
    lines = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    return [line for line in lines if line.get("name") == name]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_what_the_verifiable_producer_writes_the_verifiable_consumer_reads(broker: Broker, protocol: str) -> None:
    create(broker, verify=3)
    servers = ("--bootstrap-server", broker.bootstrap_servers)
    produced = run_program("VerifiableProducer", *servers, "--topic", "verify", "--max-messages", "3000")
    sent = json_lines(produced.stdout, "producer_send_success")
    assert len(sent) == 3000
    assert json_lines(produced.stdout, "tool_data")[-1]["acked"] == 3000
    consumed = run_program(
        "VerifiableConsumer",
        *servers,
        *("--topic", "verify", "--group-id", "verifiers", "--max-messages", "3000"),
        *("--reset-policy", "earliest", "--verbose", "--group-protocol", protocol),
    )
    records = json_lines(consumed.stdout, "record_data")
    assert Counter(str(record["value"]) for record in records) == Counter(str(line["value"]) for line in sent)
    commits = json_lines(consumed.stdout, "offsets_committed")
    assert commits
    assert all(commit["success"] for commit in commits)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    assert "verifiers" in {group.group_id for group in admin.list_consumer_groups().result().valid}


@pytest.mark.long
def test_the_transactional_copier_copies_each_record_once_whatever_it_aborts(broker: Broker) -> None:
    create(broker, copier_in=1, copier_out=1)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    expected = [(b"%d" % number, b"value %d" % number) for number in range(2000)]
    for key, value in expected:
        producer.produce("copier-in", key=key, value=value)
    assert producer.flush(30) == 0
    copied = run_program(
        "TransactionalMessageCopier",
        *("--broker-list", broker.bootstrap_servers, "--input-topic", "copier-in", "--input-partition", "0"),
        *("--output-topic", "copier-out", "--transactional-id", "copier", "--consumer-group", "copiers"),
        *("--transaction-size", "150", "--max-messages", "2000", "--enable-random-aborts", "--group-mode"),
    )
    assert json.loads(copied.stdout.strip().splitlines()[-1])["remaining"] == 0
    copies = read_committed(broker.bootstrap_servers, "copier-out")
    assert [(message.key(), message.value()) for message in copies] == expected


def test_a_streams_application_counts_exactly_once(broker: Broker, tmp_path: Path) -> None:
    create(broker, streams_plaintext_input=2, streams_wordcount_output=1)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    lines = [f"all streams lead to kafka {number % 7}" for number in range(300)]
    for number, line in enumerate(lines):
        producer.produce("streams-plaintext-input", key=str(number), value=line)
    assert producer.flush(30) == 0
    expected = Counter(word for line in lines for word in line.split())
    settings = tmp_path / "streams.properties"
    settings.write_text(
        f"bootstrap.servers={broker.bootstrap_servers}\nprocessing.guarantee=exactly_once_v2\n"
        f"commit.interval.ms=100\nstate.dir={tmp_path / 'state'}\nstatestore.cache.max.bytes=0\n"
    )
    command = java_command(
        "streams",
        "org.apache.kafka.streams.examples.wordcount.WordCountDemo",
        str(settings),
        heap="256m",
        system_properties=kafka_logging("ERROR"),
    )
    reader = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "counts",
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
        }
    )
    reader.subscribe(["streams-wordcount-output"])
    updates: list[tuple[str, int]] = []
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as streams:
        try:
            while len(updates) < sum(expected.values()):
                message = reader.poll(60)
                assert message is not None, "no more counts came"
                assert message.error() is None
                updates.append(((message.key() or b"").decode(), int.from_bytes(message.value() or b"", "big")))
        finally:
            reader.close()
            streams.send_signal(signal.SIGTERM)
            streams.communicate(timeout=60)
    # Exactly once: without a cache each word's count goes up by one, and none is left out or told twice.
    for word, count in expected.items():
        assert [value for key, value in updates if key == word] == list(range(1, count + 1))


@pytest.mark.parametrize(("policy", "action"), [("block", "blocked"), ("reject", "rejected")])
def test_a_producer_of_a_full_topic_waits_and_loses_no_order(
    tmp_path: Path, kafka_jars: Path, policy: str, action: str
) -> None:
    """A refusal is retriable to the Java client, which backs off; several batches are under way all the while."""
    topic, count, limit = f"full-{policy}", 150, 20
    config = tmp_path / "producer.properties"
    config.write_text("batch.size=1\nretries=2147483647\nenable.idempotence=true\n")  # the tool itself retries nothing
    with (
        Broker(tmp_path / "data") as broker,
        Wire(broker.bootstrap_servers) as wire,
        ThreadPoolExecutor(1) as threads,
    ):
        wire.create(topic, configs={"headrace.overflow": policy, "headrace.overflow.records": str(limit)})
        options = ("--bootstrap-server", broker.bootstrap_servers, "--topic", topic, "--command-config", str(config))
        producing = threads.submit(run_program, "VerifiableProducer", *options, "--max-messages", str(count))
        wait_until(lambda: counted(broker, topic).get(action, 0) > 0 or producing.done(), True, timeout_s=60)
        assert not producing.done(), producing.result()
        taken = Group(wire, topic, topic).take_until(b"%d" % (count - 1))
        sent = json_lines(producing.result(timeout=60).stdout, "producer_send_success")
    assert [int(record.value or b"") for record in taken] == list(range(count))
    assert {int(str(line["value"])): line["offset"] for line in sent} == {number: number for number in range(count)}


def test_a_producer_goes_on_over_a_drain_and_a_start_without_losing_or_doubling(
    tmp_path: Path, kafka_jars: Path
) -> None:
    topic, count = "drained", 1000
    config = tmp_path / "producer.properties"
    config.write_text("retries=2147483647\nenable.idempotence=true\nreconnect.backoff.max.ms=500\n")
    listen = f"127.0.0.1:{free_port()}"
    options = ("--bootstrap-server", listen, "--topic", topic, "--command-config", str(config), "--throughput", "200")
    with ThreadPoolExecutor(1) as threads:
        with broker_process(tmp_path / "data", listen) as (process, _, _):
            with Wire(listen) as wire:
                wire.create(topic)
                producing = threads.submit(run_program, "VerifiableProducer", *options, "--max-messages", str(count))
                wait_until(lambda: wire.fetch(topic, 0).high_watermark >= 100 or producing.done(), True, timeout_s=60)
            end(process)  # it drains, and ends with 0
        with broker_process(tmp_path / "data", listen):
            sent = json_lines(producing.result(timeout=90).stdout, "producer_send_success")
            written = [int(message.value()) for message in read_committed(listen, topic)]
    assert written == list(range(count))
    assert sorted(int(str(line["value"])) for line in sent) == written
