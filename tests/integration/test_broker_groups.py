"""Consumer groups on a running broker: members that join, leave, crash and stall, old protocol and new (KIP-848)."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient

from headrace.broker.embedded import Broker
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from headrace.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from headrace.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from headrace.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from headrace.records import Record, build_batch
from tests.integration.transaction_wire import committed_offset
from tests.integration.waiting import wait_until
from tests.integration.wire import Wire

PARTITIONS = 4
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
    "group.consumer.session.timeout.ms": "2000",
    "group.consumer.heartbeat.interval.ms": "200",
    "log.retention.check.interval.ms": "100",
}
CLASSIC = {"session.timeout.ms": 2000, "heartbeat.interval.ms": 200}
PROTOCOLS = {
    "eager": {**CLASSIC, "partition.assignment.strategy": "range"},
    "cooperative": {**CLASSIC, "partition.assignment.strategy": "cooperative-sticky"},
    "consumer": {"group.protocol": "consumer"},
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(tmp_path_factory.mktemp("data"), settings=SETTINGS) as running:
        yield running


@pytest.fixture
def wire(broker: Broker) -> Iterator[Wire]:
    with Wire(broker.bootstrap_servers) as connected:
        yield connected


def fresh_batch(*values: bytes) -> bytes:
    now_ms = int(time.time() * 1000)
    return build_batch([Record(place, now_ms, None, value) for place, value in enumerate(values)])


def commit(wire: Wire, group: str, topic: str, offset: int) -> int:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="why")
    topics = [OffsetCommitRequestTopic(name=topic, partitions=[partition])]
    answer = wire.ask(OffsetCommitRequest(group_id=group, topics=topics), OffsetCommitResponse, 8)
    return answer.topics[0].partitions[0].error_code


class Member:
    """A member in its own process, and what it says."""

    def __init__(self, broker: Broker, group: str, topic: str, **settings: object) -> None:
        asked = {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "topic.metadata.refresh.interval.ms": 500,
            "log_level": 0,
            **settings,
        }
        command = [sys.executable, "-m", "tests.integration.group_member", json.dumps(asked), topic]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE)
        self.partitions: set[str] = set()
        self.gains = 0
        self.reads: list[tuple[float, str, int]] = []
        self._reader = threading.Thread(target=self._listen)
        self._reader.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            said = json.loads(line)
            if "gained" in said:
                self.gains += 1
                self.partitions = self.partitions | set(said["gained"])
            self.partitions = self.partitions - set(said.get("lost", ()))
            self.reads += [(said["at"], name, offset) for name, offset in said.get("read", ())]

    def tell(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def end(self, number: signal.Signals = signal.SIGKILL) -> None:
        self._process.send_signal(number)
        self._process.wait(30)
        self._reader.join()
        assert self._process.stdout is not None
        self._process.stdout.close()
        if number == signal.SIGKILL:
            self.partitions = set()


class Load(threading.Thread):
    """Writes to all partitions until it is told to stop."""

    def __init__(self, broker: Broker, topic: str) -> None:
        super().__init__()
        self._topic, self._stopping = topic, threading.Event()
        self._wire = Wire(broker.bootstrap_servers)
        self.written = 0

    def run(self) -> None:
        while not self._stopping.wait(0.05):
            for partition in range(PARTITIONS):
                assert self._wire.produce(self._topic, fresh_batch(b"x", b"y"), partition=partition)[0] == 0
            self.written += 2

    def stop(self) -> None:
        self._stopping.set()
        self.join()
        self._wire.socket.close()


def share(members: list[Member], topic: str) -> bool:
    """Whether the partitions are shared out among the members, each to one, and every member has its part."""
    wanted = sorted(f"{topic}-{number}" for number in range(PARTITIONS))
    held = [partition for member in members for partition in member.partitions]
    return sorted(held) == wanted and all(member.partitions for member in members)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_members_join_leave_crash_and_stall(broker: Broker, wire: Wire, protocol: str) -> None:
    topic = f"moving-{protocol}"
    wire.create(topic, PARTITIONS)
    load = Load(broker, topic)
    load.start()
    members: list[Member] = []

    def join() -> Member:
        members.append(Member(broker, topic, topic, **PROTOCOLS[protocol]))
        return members[-1]

    try:
        first = join()
        wait_until(lambda: share([first], topic), "one member has not got everything")
        second = join()
        wait_until(lambda: share([first, second], topic), "two do not share")
        second.end()  # a crash
        wait_until(lambda: share([first], topic), "what the crashed one had was not given away")
        third = join()
        wait_until(lambda: share([first, third], topic), "the third got nothing")
        first.tell(signal.SIGSTOP)  # a stall
        taken_over = set(first.partitions)
        wait_until(lambda: taken_over <= third.partitions, "what the stalled one had was not given away")
        first.tell(signal.SIGCONT)
        wait_until(lambda: share([first, third], topic), "the stalled one did not come back")
        third.end(signal.SIGTERM)  # it leaves
        wait_until(lambda: share([first], topic), "what the leaving one had was not given away")
        load.stop()
        ends = {f"{topic}-{number}": load.written - 1 for number in range(PARTITIONS)}
        wait_until(
            lambda: all(any(read[1:] == (name, end) for read in list(first.reads)) for name, end in ends.items()),
            "the end was not read",
        )
    finally:
        load.stop() if load.is_alive() else None
        for member in members:
            if member._process.poll() is None:
                member.tell(signal.SIGCONT)
                member.end()
    check_order(members, topic, load.written)


def check_order(members: list[Member], topic: str, written: int) -> None:
    """Everything was read, and in order: whoever takes a partition over may read again, but nobody leaves a gap."""
    for number in range(PARTITIONS):
        name = f"{topic}-{number}"
        reads = sorted(
            (at, offset, place) for place, member in enumerate(members) for at, read, offset in member.reads
            if read == name
        )  # fmt: skip
        assert {offset for _, offset, _ in reads} == set(range(written))
        farthest = -1
        for _, offset, _ in reads:
            assert offset <= farthest + 1, f"{name}: {offset} came after {farthest}"
            farthest = max(farthest, offset)


def test_a_static_member_that_comes_back_disturbs_nobody(broker: Broker, wire: Wire) -> None:
    wire.create("static", PARTITIONS)
    settings = {"session.timeout.ms": 30_000, "heartbeat.interval.ms": 200, "partition.assignment.strategy": "range"}
    members = [Member(broker, "static", "static", **settings, **{"group.instance.id": "a"})]
    try:
        wait_until(lambda: share(members, "static"), "one member has not got everything")
        members.append(Member(broker, "static", "static", **settings, **{"group.instance.id": "b"}))
        wait_until(lambda: share(members, "static"), "two do not share")
        had, gains = members[1].partitions, members[0].gains
        members[1].end()
        members[1] = Member(broker, "static", "static", **settings, **{"group.instance.id": "b"})
        wait_until(lambda: members[1].partitions == had, "it did not get back what it had")
        assert members[0].gains == gains, "the other one saw a rebalance"
    finally:
        for member in members:
            member.end()


def test_a_pattern_is_resolved_by_the_broker(broker: Broker, wire: Wire) -> None:
    wire.create("pattern.one")
    wire.create("other.one")
    member = Member(broker, "patterns", "^pattern[.].*", **{"group.protocol": "consumer"})
    try:
        wait_until(lambda: member.partitions == {"pattern.one-0"}, "the pattern found nothing")
        wire.create("pattern.two")
        wait_until(lambda: member.partitions == {"pattern.one-0", "pattern.two-0"}, "the new topic was not found")
    finally:
        member.end(signal.SIGTERM)


def test_offsets_survive_a_crash(tmp_path: Path) -> None:
    broker = Broker(tmp_path, own_process=True).start()
    try:
        with Wire(broker.bootstrap_servers) as wire:
            wire.create("kept")
            for group in range(20):
                for offset in range(5):
                    assert commit(wire, f"group-{group}", "kept", group + offset) == 0
        os.kill(broker.pid, signal.SIGKILL)
        broker.stop()
        broker.start()
        with Wire(broker.bootstrap_servers) as wire:
            for group in range(20):
                assert committed_offset(wire, f"group-{group}", "kept", stable=True) == (group + 4, 0)
    finally:
        broker.stop()


def test_offsets_of_a_deleted_topic_are_gone(broker: Broker, wire: Wire) -> None:
    wire.create("deleted")
    wire.create("kept")
    assert commit(wire, "remembers", "deleted", 7) == 0
    assert commit(wire, "remembers", "kept", 8) == 0
    assert committed_offset(wire, "remembers", "deleted") == (7, 0)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.delete_topics(["deleted"])["deleted"].result(30)
    wait_until(lambda: committed_offset(wire, "remembers", "deleted") == (-1, 0), "the offset is still there")
    wire.create("deleted")
    assert committed_offset(wire, "remembers", "deleted") == (-1, 0)
    assert committed_offset(wire, "remembers", "kept") == (8, 0)


def test_a_consumer_behind_what_is_retained_is_told_so(broker: Broker, wire: Wire) -> None:
    wire.create("shrinking", retention_ms="60000")
    old = build_batch([Record(place, 1_700_000_000_000, None, b"old") for place in range(10)])
    assert wire.produce("shrinking", old) == (0, 0)
    assert commit(wire, "slow", "shrinking", 3) == 0
    wait_until(lambda: wire.fetch("shrinking", 3)[0] == ErrorCode.OFFSET_OUT_OF_RANGE, "nothing was removed")
    assert wire.produce("shrinking", fresh_batch(b"new")) == (0, 10)

    def read(policy: str) -> tuple[int | None, int | None]:
        """The offset of the first message, or the error."""
        settings = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "slow", "log_level": 0}
        consumer = Consumer({**settings, "auto.offset.reset": policy, "enable.auto.commit": False})
        consumer.assign([TopicPartition("shrinking", 0)])  # where the group has committed
        message = consumer.poll(30)
        consumer.close()
        assert message is not None
        error = message.error()
        return (message.offset(), None) if error is None else (None, error.code())

    assert read("earliest") == (10, None)
    assert read("error") == (None, KafkaError._AUTO_OFFSET_RESET)


class WireMember:
    """A member that is only its requests; fifty of them are light."""

    def __init__(self, wire: Wire, group: str) -> None:
        self.wire, self.group = wire, group
        self.id, self.generation, self.leader = "", -1, ""
        self.others: list[str] = []

    def send_join(self) -> None:
        protocols = [JoinGroupRequestProtocol(name="range", metadata=b"\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00")]
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=30_000,
            rebalance_timeout_ms=30_000,
            member_id=self.id,
            protocol_type="consumer",
            protocols=protocols,
        )
        self.wire.send(request, 3)

    def receive_join(self) -> None:
        _, answer = self.wire.receive(JoinGroupResponse, 3)
        assert answer.error_code == 0, answer
        self.id, self.generation, self.leader = answer.member_id, answer.generation_id, answer.leader
        self.others = [member.member_id for member in answer.members]

    def send_sync(self) -> None:
        shares = [SyncGroupRequestAssignment(member_id=other, assignment=other.encode()) for other in self.others]
        request = SyncGroupRequest(
            group_id=self.group, generation_id=self.generation, member_id=self.id, assignments=shares
        )
        self.wire.send(request, 2)

    def receive_sync(self) -> None:
        _, answer = self.wire.receive(SyncGroupResponse, 2)
        assert answer.error_code == 0, answer
        assert answer.assignment == self.id.encode()

    def heartbeat(self) -> int:
        request = HeartbeatRequest(group_id=self.group, generation_id=self.generation, member_id=self.id)
        return self.wire.ask(request, HeartbeatResponse, 2).error_code


def settle(joined: list[WireMember]) -> None:
    """Read the answers to everybody's JoinGroup, and have the leader's assignment given out."""
    for member in joined:
        member.receive_join()
    assert len({(member.generation, member.leader) for member in joined}) == 1
    for member in joined:
        member.send_sync()
    for member in joined:
        member.receive_sync()


def test_a_group_of_fifty_settles_at_once(tmp_path: Path) -> None:
    with ExitStack() as stack:
        broker = stack.enter_context(
            Broker(tmp_path, own_process=True, settings={"group.initial.rebalance.delay.ms": "1000"})
        )
        fifty = [WireMember(stack.enter_context(Wire(broker.bootstrap_servers)), "fifty") for _ in range(50)]
        for member in fifty:
            member.send_join()
        settle(fifty)
        assert [member.heartbeat() for member in fifty] == [0] * 50

        newcomer = WireMember(stack.enter_context(Wire(broker.bootstrap_servers)), "fifty")
        began = time.monotonic()
        newcomer.send_join()
        for member in fifty:
            wait_until(
                lambda member=member: member.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS,  # type: ignore[misc]
                "nobody was told of the rebalance",
            )
            member.send_join()
        settle([*fifty, newcomer])
        took_s = time.monotonic() - began
        print(f"a rebalance of 51 members took {took_s * 1000:.0f} ms")
        assert [member.heartbeat() for member in [*fifty, newcomer]] == [0] * 51
        assert took_s < 10
