"""Kafka Streams with `group.protocol=streams` on our broker: several instances, one killed, exactly once; and its tool.

The program is Kafka's word count: lines are split, repartitioned by word and counted, so that the broker makes a topic
to repartition by and one for the state.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from headrace import Broker
from headrace.protocol.messages.streams_group_describe import StreamsGroupDescribeRequest
from peers.java import java_command
from peers.kafka.tools import kafka_logging
from tests.conformance.clients.java import Java
from tests.conformance.clients.wire import Wire
from tests.conformance.test_wire_streams_groups import Group, ready, topology
from tests.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from typing import Any

    from tests.conformance.clients.java import Said
    from tests.conformance.comparison import Brokers

pytestmark = pytest.mark.java

APPLICATION, INPUT, OUTPUT = "streams-wordcount", "streams-plaintext-input", "streams-wordcount-output"
WORD_COUNT = "org.apache.kafka.streams.examples.wordcount.WordCountDemo"
PATIENCE_S = 120
PARTITIONS = 4
SETTINGS = {
    "group.streams.initial.rebalance.delay.ms": "0",
    "group.streams.heartbeat.interval.ms": "500",
    "group.streams.session.timeout.ms": "10000",
}


@pytest.fixture
def broker(tmp_path: Path, kafka_jars: Path) -> Iterator[Broker]:
    listen = f"127.0.0.1:{free_port()}"
    with Broker(tmp_path / "data", listen=listen, settings=SETTINGS, own_process=True) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap_servers})
        made = admin.create_topics([NewTopic(INPUT, PARTITIONS, 1), NewTopic(OUTPUT, 1, 1)])
        for done in made.values():
            done.result()
        yield running


class Instances:
    """Processes of the application; none outlives the test."""

    def __init__(self, servers: str, folder: Path) -> None:
        self._servers, self._folder = servers, folder
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str) -> None:
        """Start one, on the state that an earlier one of the name has left."""
        settings = self._folder / f"{name}.properties"
        settings.write_text(
            f"bootstrap.servers={self._servers}\ngroup.protocol=streams\nprocessing.guarantee=exactly_once_v2\n"
            f"commit.interval.ms=100\nstate.dir={self._folder / name}\nstatestore.cache.max.bytes=0\n"
            f"client.id={name}\n"
        )
        command = java_command(
            "streams", WORD_COUNT, str(settings), heap="256m", system_properties=kafka_logging("ERROR")
        )
        with (self._folder / f"{name}.log").open("ab") as log:
            self._running[name] = subprocess.Popen(command, stdout=log, stderr=log)

    def kill(self, name: str) -> None:
        process = self._running.pop(name)
        process.kill()
        process.wait(PATIENCE_S)

    def stop_all(self) -> None:
        for process in self._running.values():
            process.terminate()
        for name in list(self._running):
            try:
                self._running[name].wait(PATIENCE_S)
                del self._running[name]
            except subprocess.TimeoutExpired:
                self.kill(name)


@pytest.fixture
def instances(broker: Broker, tmp_path: Path) -> Iterator[Instances]:
    running = Instances(broker.bootstrap_servers, tmp_path)
    yield running
    running.stop_all()


def wait_for(ask: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + PATIENCE_S
    while not (answer := ask()):
        assert time.monotonic() < deadline, f"{what}: not within {PATIENCE_S} s"
        time.sleep(0.1)  # the pause of a poll
    return answer


def shares(wire: Wire, *names: str) -> dict[str, int]:
    """How many active tasks each instance has, once the group is stable and has these instances; empty before."""
    (group,) = wire.ask(StreamsGroupDescribeRequest(group_ids=[APPLICATION])).groups
    found = {
        next((name for name in names if member.client_id.startswith(f"{name}-")), member.client_id): sum(
            len(tasks.partitions) for tasks in member.assignment.active_tasks
        )
        for member in group.members
    }
    return found if group.group_state == "Stable" and set(found) == set(names) else {}


class Words:
    """Lines that are sent to the application, and the counts that come of them."""

    def __init__(self, servers: str) -> None:
        self._producer = Producer({"bootstrap.servers": servers})
        self._reader = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": "counts",
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
            }
        )
        self._reader.subscribe([OUTPUT])
        self.expected: Counter[str] = Counter()
        self.updates: dict[str, list[int]] = {}

    def send(self, lines: int) -> None:
        for number in range(lines):
            line = f"all streams lead to kafka {number % 7}"
            self.expected.update(line.split())
            self._producer.produce(INPUT, key=str(number), value=line)
        assert self._producer.flush(PATIENCE_S) == 0

    def read(self) -> None:
        """Read as many updates as there were words."""
        deadline = time.monotonic() + PATIENCE_S
        while sum(map(len, self.updates.values())) < self.expected.total():
            assert time.monotonic() < deadline, f"no more counts came: {self.updates.keys()}"
            message = self._reader.poll(1)
            if message is not None and message.error() is None:
                count = int.from_bytes(message.value() or b"", "big")
                self.updates.setdefault((message.key() or b"").decode(), []).append(count)

    def check(self) -> None:
        """Exactly once: without a cache each word's count goes up by one, and none is left out or told twice."""
        assert self.updates == {word: list(range(1, count + 1)) for word, count in self.expected.items()}

    def close(self) -> None:
        self._reader.close()


@pytest.mark.parametrize("comes_back", [False, pytest.param(True, marks=pytest.mark.long)])
def test_an_instance_that_is_killed_is_replaced_by_the_others_and_each_word_counted_once(
    broker: Broker, instances: Instances, comes_back: bool
) -> None:
    words = Words(broker.bootstrap_servers)
    with Wire(broker.bootstrap_servers) as wire:
        for name in ("one", "two"):
            instances.start(name)
        words.send(200)
        both = wait_for(lambda: shares(wire, "one", "two"), "two instances")
        assert both == {"one": PARTITIONS, "two": PARTITIONS}  # of each subtopology half
        words.read()
        words.send(200)  # which it may be in the middle of
        instances.kill("one")
        words.send(200)
        alone = wait_for(lambda: shares(wire, "two"), "the other alone")
        assert alone == {"two": 2 * PARTITIONS}
        words.read()
        if comes_back:
            instances.start("one")
            assert wait_for(lambda: shares(wire, "one", "two"), "both again") == both
            words.send(200)
            words.read()
    words.close()
    words.check()


@pytest.mark.long
def test_an_application_outlives_its_broker(broker: Broker, instances: Instances) -> None:
    words = Words(broker.bootstrap_servers)
    instances.start("one")
    words.send(200)
    words.read()
    with Wire(broker.bootstrap_servers) as wire:
        before = wait_for(lambda: shares(wire, "one"), "an instance")
    words.send(200)
    os.kill(broker.pid, signal.SIGKILL)
    broker.stop()
    broker.start()
    words.send(200)
    words.read()
    with Wire(broker.bootstrap_servers) as wire:
        assert wait_for(lambda: shares(wire, "one"), "the instance again") == before
    words.close()
    words.check()


def streams_groups_tool(java: Java, topic: str) -> dict[str, Said]:
    """kafka-streams-groups: list, describe, reset and delete offsets, delete."""
    group = ("--group", topic)
    with Wire(java.servers) as wire:
        ready(wire, topic, 1)
        application = Group(wire, topic)
        application.join("a", topology(topic))
        assert wire.commit(topic, topic, 3, member="a", epoch=application.epochs["a"]) == "NONE"
        told = {
            "listed": java.streams_groups("--list", "--state", "Stable"),
            "state": java.streams_groups("--describe", *group, "--state", "--verbose"),
            "members": java.streams_groups("--describe", *group, "--members", "--verbose"),
            "offsets": java.streams_groups("--describe", *group, "--offsets", "--verbose"),
            "deleted while it runs": java.streams_groups("--delete", *group),
        }
        application.send("a", -1)
    reset = ("--reset-offsets", *group, "--input-topic", topic, "--to-earliest")
    return told | {
        "empty": java.streams_groups("--describe", *group, "--state"),
        "would reset": java.streams_groups(*reset, "--dry-run"),
        "reset": java.streams_groups(*reset, "--execute"),
        "offset deleted": java.streams_groups("--delete-offsets", *group, "--input-topic", topic),
        "deleted": java.streams_groups("--delete", *group),
        "gone": java.streams_groups("--describe", *group, "--state")._replace(lines=[]),  # the sentence is ours
    }


def test_streams_groups_tool(brokers: Brokers) -> None:
    told = brokers.compare(streams_groups_tool, Java)
    assert any("Stable" in line for line in told["state"].lines)
    assert any("ACTIVE: 0:[0]" in line for line in told["members"].lines)
    assert told["reset"].lines[-1].split()[-2:] == ["0", "0"]  # the partition, and its new offset
    assert any("Deletion of requested streams groups" in line for line in told["deleted"].lines)
