"""Share groups by the clients that there are: Java's KafkaShareConsumer in Kafka's tools, and confluent-kafka's.

The same on our broker and on a real Kafka, but for the verifiable consumer, which counts for itself.
"""

from __future__ import annotations

import json
import time

import pytest
from confluent_kafka import AcknowledgeType, Producer, ShareConsumer

from peers.kafka.tools import run_tool
from tests.conformance.clients.confluent import Confluent
from tests.conformance.clients.java import Java
from tests.conformance.clients.sharing import Sharer, set_group
from tests.conformance.clients.wire import Wire
from tests.integration.test_share_letters import wait_for_letters

pytestmark = pytest.mark.java

_CONSOLE = "org.apache.kafka.tools.consumer.ConsoleShareConsumer"
_VERIFIABLE = "org.apache.kafka.tools.VerifiableShareConsumer"
_TOOL = "org.apache.kafka.tools.consumer.group.ShareGroupCommand"
PATIENCE_S = 60


def fill(servers: str, topic: str, count: int, partitions: int = 1, **settings: str) -> None:
    with Wire(servers) as wire:
        wire.create(topic, partitions)
        set_group(wire, topic, share_auto_offset_reset="earliest", **settings)
    producer = Producer({"bootstrap.servers": servers})
    for number in range(count):
        producer.produce(topic, b"%d" % number, partition=number % partitions)
    assert producer.flush(PATIENCE_S) == 0


def console_consumer(java, topic):
    """kafka-console-share-consumer accepts all, or rejects; kafka-share-groups tells, resets and deletes."""
    fill(java.servers, topic, 20)

    def consume(count, *args):
        said = java._run(
            _CONSOLE, "--topic", topic, "--group", topic, "--max-messages", str(count), "--timeout-ms", "60000", *args
        )
        return said.status, sorted(said.lines, key=int)

    def groups(*args):
        said = java._run(_TOOL, *args)
        lines = [line.split() for line in said.lines if topic in line]
        if "--offsets" in args:  # Kafka moves a start offset when it sees fit
            lines = [[*line[:3], *line[4:]] for line in lines]
        return said.status, lines, said.errors

    return {
        "accepted": consume(20),
        "listed": groups("--list"),
        "described": groups("--describe", "--group", topic, "--offsets"),
        "reset": groups("--reset-offsets", "--group", topic, "--topic", topic, "--to-earliest", "--execute"),
        "rejected": consume(20, "--reject"),
        "described after that": groups("--describe", "--group", topic, "--offsets"),
        "offsets deleted": groups("--delete-offsets", "--group", topic, "--topic", topic),
        "deleted": groups("--delete", "--group", topic),
        "listed after that": groups("--list"),
    }


def test_console_consumer(brokers):
    told = brokers.compare(console_consumer, Java)
    assert told["accepted"] == (0, [str(number) for number in range(20)])
    assert told["rejected"] == told["accepted"]


def test_what_a_java_consumer_rejects_is_a_dead_letter(our_broker, kafka_jars):
    topic = "rejected-by-java"
    fill(our_broker, topic, 10, errors_deadletterqueue_topic_name=f"dlq.{topic}")
    options = ("--max-messages", "10", "--timeout-ms", "60000", "--reject")
    run_tool(_CONSOLE, "--bootstrap-server", our_broker, "--topic", topic, "--group", topic, *options)
    letters = wait_for_letters(our_broker, f"dlq.{topic}", 10)
    assert {letter.offset: letter.value for letter in letters} == {number: b"%d" % number for number in range(10)}
    assert {letter.reason for letter in letters} == {"rejected by its consumer"}


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_the_verifiable_consumer_accepts_every_record_once(our_broker, kafka_jars, mode):
    topic = f"verifiable-share-{mode}"
    fill(our_broker, topic, 2000, partitions=3)
    args = ("--bootstrap-server", our_broker, "--topic", topic, "--group-id", topic, "--max-messages", "2000")
    finished = run_tool(_VERIFIABLE, *args, "--acknowledgement-mode", mode, own_jvm=True)
    lines = [json.loads(line) for line in finished.stdout.splitlines() if line.startswith("{")]
    acknowledged = [
        (partition["partition"], offset)
        for line in lines
        if line["name"] == "offsets_acknowledged" and line["success"]
        for partition in line["partitions"]
        for offset in partition["offsets"]
    ]
    assert len(acknowledged) == len(set(acknowledged)) >= 2000


def explicit_consumer(confluent, topic):
    """confluent-kafka's ShareConsumer: each record accepted, released or rejected, and released ones come again."""
    fill(confluent.servers, topic, 12)
    consumer = ShareConsumer(
        {
            "bootstrap.servers": confluent.servers,
            "group.id": topic,
            "share.acknowledgement.mode": "explicit",
        }
    )
    seen: dict[int, list[int]] = {}
    try:
        consumer.subscribe([topic])
        finished: set[int] = set()
        deadline = time.monotonic() + PATIENCE_S
        while len(finished) < 12 and time.monotonic() < deadline:
            messages = consumer.poll(1.0)
            for message in messages:
                assert message.error() is None, message.error()
                number = int(message.value())
                times = seen.setdefault(number, [])
                times.append(message.offset())
                if number % 3 == 0 and len(times) == 1:
                    consumer.acknowledge(message, AcknowledgeType.RELEASE)
                else:
                    kind = AcknowledgeType.REJECT if number % 3 == 1 else AcknowledgeType.ACCEPT
                    consumer.acknowledge(message, kind)
                    finished.add(number)
            if messages:
                consumer.commit_sync()
    finally:
        consumer.close()
    return {"seen": {str(number): len(offsets) for number, offsets in sorted(seen.items())}}


def test_explicit_consumer(brokers):
    told = brokers.compare(explicit_consumer, Confluent)
    assert told["seen"] == {str(number): 2 if number % 3 == 0 else 1 for number in range(12)}


def committed_only(wire, topic):
    """A group that reads committed records gets none of an aborted transaction, and none of an open one."""
    wire.create(topic)
    set_group(wire, topic, share_auto_offset_reset="earliest", share_isolation_level="read_committed")
    producer = Producer({"bootstrap.servers": wire.servers, "transactional.id": topic})
    producer.init_transactions(PATIENCE_S)
    for kind in ("committed", "aborted", "committed", "open"):
        producer.begin_transaction()
        for number in range(3):
            producer.produce(topic, f"{kind}{number}".encode())
        assert producer.flush(PATIENCE_S) == 0
        if kind == "aborted":
            producer.abort_transaction(PATIENCE_S)
        elif kind == "committed":
            producer.commit_transaction(PATIENCE_S)
    sharer = Sharer(wire, topic, topic)
    sharer.join()
    acquired: set[int] = set()
    deadline = time.monotonic() + PATIENCE_S
    while len(acquired & {0, 1, 2, 8, 9, 10}) < 6 and time.monotonic() < deadline:
        for answered in sharer.fetch().responses:
            for partition in answered.partitions:
                for run in partition.acquired_records:
                    acquired |= set(range(run.first_offset, run.last_offset + 1))
    producer.abort_transaction(PATIENCE_S)
    return {"records": sorted(acquired - {3, 7, 11})}  # without the markers, which Kafka leaves to the client


def test_committed_only(brokers):
    assert brokers.compare(committed_only, Wire)["records"] == [0, 1, 2, 8, 9, 10]
