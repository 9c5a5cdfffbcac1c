"""What a member is told that no longer is one, when it commits, beats or leaves: both protocols, request by request."""

from __future__ import annotations

import uuid

import pytest

from headrace.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from headrace.protocol.messages.heartbeat import HeartbeatRequest
from headrace.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from headrace.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from headrace.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.conformance.clients.wire import Wire, error_name
from tests.conformance.comparison import wait_until

pytestmark = pytest.mark.java


class _Classic:
    """A group of the old protocol with one member at a time."""

    def __init__(self, wire, group):
        self.wire, self.group = wire, group

    def join(self, member="", **options):
        """Join and be given the assignment that one gives oneself: member id and generation."""
        protocols = [JoinGroupRequestProtocol(name="range", metadata=b"")]
        asked = {"session_timeout_ms": 30_000, "rebalance_timeout_ms": 30_000, "protocol_type": "consumer"}
        request = JoinGroupRequest(group_id=self.group, member_id=member, protocols=protocols, **asked | options)
        joined = self.wire.ask(request)
        if error_name(joined.error_code) == "MEMBER_ID_REQUIRED":
            return self.join(joined.member_id, **options)
        assert joined.error_code == 0, error_name(joined.error_code)
        return joined.member_id, joined.generation_id

    def sync(self, member, generation, **options):
        given = [SyncGroupRequestAssignment(member_id=member, assignment=b"all")]
        ids = {"group_id": self.group, "member_id": member, "generation_id": generation}
        kinds = {"protocol_type": "consumer", "protocol_name": "range"}
        return error_name(self.wire.ask(SyncGroupRequest(assignments=given, **ids, **kinds, **options)).error_code)

    def beat(self, member, generation, **options):
        request = HeartbeatRequest(group_id=self.group, member_id=member, generation_id=generation, **options)
        return error_name(self.wire.ask(request).error_code)

    def leave(self, member, instance=None):
        identity = MemberIdentity(member_id=member, group_instance_id=instance)
        answer = self.wire.ask(LeaveGroupRequest(group_id=self.group, members=[identity]))
        return error_name(answer.error_code), [error_name(each.error_code) for each in answer.members]


def _ready(wire, topic):
    wire.create(topic)
    wire.find_coordinator(topic)
    assert wait_until(lambda: wire.commit(f"{topic}-nobody", topic, 1), "NONE") == "NONE"


def ousted_classic(wire, topic):
    """One that left, one of an earlier generation, one that is in a rebalance, one that was never there."""
    _ready(wire, topic)
    group = _Classic(wire, topic)
    old, first = group.join()
    told = {"before sync": wire.commit(topic, topic, 1, member=old, epoch=first), "sync": group.sync(old, first)}
    told["member"] = wire.commit(topic, topic, 2, member=old, epoch=first)
    told["administrator, while there are members"] = wire.commit(topic, topic, 3)
    told["stranger"] = wire.commit(topic, topic, 4, member="stranger", epoch=first)
    told["next generation"] = wire.commit(topic, topic, 5, member=old, epoch=first + 1)
    _, second = group.join(old)
    told["generations apart"] = second - first
    told["synced again"] = group.sync(old, second)
    told["earlier generation"] = wire.commit(topic, topic, 6, member=old, epoch=first)
    told["beat of an earlier generation"] = group.beat(old, first)
    told["left"] = group.leave(old)
    told["after it left"] = wire.commit(topic, topic, 7, member=old, epoch=second)
    told["beat after it left"] = group.beat(old, second)
    told["left twice"] = group.leave(old)
    told["administrator, of an empty group"] = wire.commit(topic, topic, 8)
    told["member of no group"] = wire.commit(f"{topic}-none", topic, 9, member="m", epoch=1)
    told["generation of no group"] = wire.commit(f"{topic}-none", topic, 9, epoch=1)
    return told


def test_ousted_classic(brokers):
    told = brokers.compare(ousted_classic, Wire)
    assert (told["member"], told["after it left"]) == ("NONE", "UNKNOWN_MEMBER_ID")
    assert told["next generation"] == "ILLEGAL_GENERATION"


def ousted_static(wire, topic):
    """Another process has taken the name: the first one is fenced whatever it says."""
    _ready(wire, topic)
    group = _Classic(wire, topic)
    old, first = group.join(group_instance_id="name")
    told = {"sync": group.sync(old, first, group_instance_id="name")}
    new, second = group.join(group_instance_id="name")
    told["another id"] = new != old
    told["generations apart"] = second - first
    name = {"group_instance_id": "name"}
    told["commit"] = wire.commit(topic, topic, 1, member=old, epoch=first, **name)
    told["commit without the name"] = wire.commit(topic, topic, 1, member=old, epoch=first)
    told["beat"] = group.beat(old, first, **name)
    told["sync of the old"] = group.sync(old, first, **name)
    told["leave"] = group.leave(old, "name")
    told["the new one"] = wire.commit(topic, topic, 2, member=new, epoch=second, **name)
    return told


def test_ousted_static(brokers):
    told = brokers.compare(ousted_static, Wire)
    assert (told["commit"], told["the new one"]) == ("FENCED_INSTANCE_ID", "NONE")


class _Consumer:
    """A group of the new protocol."""

    def __init__(self, wire, topic):
        self.wire, self.topic = wire, topic
        self.ids = {name: str(uuid.uuid4()) for name in ("first", "second")}

    def beat(self, name, epoch):
        joining = {"rebalance_timeout_ms": 30_000, "subscribed_topic_names": [self.topic], "topic_partitions": []}
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.topic, member_id=self.ids[name], member_epoch=epoch, **(joining if epoch == 0 else {})
        )
        answer = self.wire.ask(request)
        return error_name(answer.error_code), answer.member_epoch

    def beat_until_moved(self, name, epoch):
        """The next epoch, which comes when the group has seen to the assignment."""
        moved = epoch
        while moved == epoch:
            error, moved = self.beat(name, epoch)
            assert error == "NONE", error
        return moved

    def commit(self, name, epoch):
        return self.wire.commit(self.topic, self.topic, 1, member=self.ids.get(name, name), epoch=epoch)


def ousted_consumer(wire, topic):
    """The new protocol: an epoch of the future, one that left, one that was never there."""
    _ready(wire, topic)
    group = _Consumer(wire, topic)
    error, first = group.beat("first", 0)
    told = {"joined": error, "member": group.commit("first", first), "joined too": group.beat("second", 0)[0]}
    second = group.beat_until_moved("first", first)
    return told | {
        "epochs apart": second - first,
        "a later epoch": group.commit("first", second + 5),
        "stranger": group.commit("stranger", second),
        "administrator, while there are members": wire.commit(topic, topic, 1),
        "beat of a later epoch": group.beat("first", second + 5)[0],
        "left": group.beat("first", -1),
        "after it left": group.commit("first", second),
        "beat after it left": group.beat("first", second)[0],
        "left twice": group.beat("first", -1)[0],
        "the other left": group.beat("second", -1),
        "administrator, of an empty group": wire.commit(topic, topic, 1),
    }


def test_ousted_consumer(brokers):
    told = brokers.compare(ousted_consumer, Wire)
    assert (told["member"], told["after it left"]) == ("NONE", "UNKNOWN_MEMBER_ID")
    assert told["a later epoch"] == "STALE_MEMBER_EPOCH"


def earlier_epoch(wire, topic):
    """A member keeps its partition through a rebalance, and commits with the epoch that it had before."""
    _ready(wire, topic)
    group = _Consumer(wire, topic)
    _, first = group.beat("first", 0)
    group.beat("second", 0)
    group.beat_until_moved("first", first)
    return group.commit("first", first)


@pytest.mark.xfail(strict=True, reason="KIP-1251: Kafka 4.3 goes by the epoch at which the member got the partition")
def test_earlier_epoch(brokers):
    brokers.compare(earlier_epoch, Wire)
