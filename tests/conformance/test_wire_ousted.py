"""What a member is told that no longer is one, when it commits, beats or leaves: both protocols, request by request."""

from __future__ import annotations

import uuid

import pytest

from headrace.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from headrace.protocol.messages.find_coordinator import FindCoordinatorRequest
from headrace.protocol.messages.heartbeat import HeartbeatRequest
from headrace.protocol.messages.init_producer_id import InitProducerIdRequest
from headrace.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from headrace.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from headrace.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from headrace.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from headrace.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.conformance.clients.wire import Wire, error_name
from tests.conformance.comparison import wait_until

pytestmark = pytest.mark.java

_OF_TRANSACTIONS = 1  # the kind of coordinator


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


def test_earlier_epoch(brokers):
    assert brokers.compare(earlier_epoch, Wire) == "NONE"


class _Sharing(_Consumer):
    """A group of the new protocol whose members say what they have, and commit several partitions at once."""

    def beat_until_given(self, name, epoch, count):
        """The epoch and the partitions, when the member has been told that it has so many."""
        given = None
        while given is None or len(given) != count:
            answer = self._answer(name, epoch, [] if epoch == 0 else None)
            epoch = answer.member_epoch
            if answer.assignment is not None:
                given = [number for topic in answer.assignment.topic_partitions for number in topic.partitions]
        return epoch, given

    def give_up(self, name, epoch, kept):
        """Say that only these are left; the epoch that follows."""
        owned = [TopicPartitions(topic_id=self.wire.topic_id(self.topic), partitions=kept)]
        return self._answer(name, epoch, owned).member_epoch

    def _answer(self, name, epoch, owned):
        joining = {"rebalance_timeout_ms": 30_000, "subscribed_topic_names": [self.topic]}
        ids = {"group_id": self.topic, "member_id": self.ids[name], "member_epoch": epoch}
        answer = self.wire.ask(
            ConsumerGroupHeartbeatRequest(**ids, topic_partitions=owned, **(joining if epoch == 0 else {}))
        )
        assert answer.error_code == 0, error_name(answer.error_code)
        return answer

    def commit_all(self, name, epoch, *numbers, too_much_metadata_for=()):
        partitions = [
            OffsetCommitRequestPartition(
                partition_index=number,
                committed_offset=1,
                committed_metadata="x" * 5_000 if number in too_much_metadata_for else "",
            )
            for number in numbers
        ]
        ids = {"group_id": self.topic, "member_id": self.ids[name], "generation_id_or_member_epoch": epoch}
        topics = [OffsetCommitRequestTopic(name=self.topic, partitions=partitions)]
        return _outcomes(self.wire.ask(OffsetCommitRequest(topics=topics, **ids), 9))

    def commit_in_transaction(self, name, epoch, *numbers, producer):
        partitions = [TxnOffsetCommitRequestPartition(partition_index=each, committed_offset=1) for each in numbers]
        ids = {"group_id": self.topic, "member_id": self.ids[name], "generation_id": epoch}
        topics = [TxnOffsetCommitRequestTopic(name=self.topic, partitions=partitions)]
        return _outcomes(self.wire.ask(TxnOffsetCommitRequest(topics=topics, **ids, **producer), 5))

    def producer(self):
        """A transactional producer, as the fields of its requests; Kafka makes its log when it is first asked for."""
        self.wire.ask(FindCoordinatorRequest(key_type=_OF_TRANSACTIONS, coordinator_keys=[self.topic]))
        request = InitProducerIdRequest(transactional_id=self.topic, transaction_timeout_ms=30_000)
        made = []

        def ask():
            made.append(self.wire.ask(request))
            return error_name(made[-1].error_code)

        assert wait_until(ask, "NONE") == "NONE"
        given = made[-1]
        return {
            "transactional_id": self.topic,
            "producer_id": given.producer_id,
            "producer_epoch": given.producer_epoch,
        }


def _outcomes(answer):
    return [error_name(partition.error_code) for topic in answer.topics for partition in topic.partitions]


def earlier_epoch_of_several(wire, topic):
    """A member gives up half of what it had: what of it may it still commit with the epoch that it had before?"""
    wire.create(topic, 4)
    wire.find_coordinator(topic)
    assert wait_until(lambda: wire.commit(f"{topic}-nobody", topic, 1), "NONE") == "NONE"
    group = _Sharing(wire, topic)
    first, had = group.beat_until_given("first", 0, 4)
    group.beat("second", 0)
    told_in, kept = group.beat_until_given("first", first, 2)
    gone = sorted(set(had) - set(kept))
    told = {
        "epochs apart until it gives up": told_in - first,
        "what it is giving up": group.commit_all("first", told_in, *kept, *gone),
    }
    second = group.give_up("first", told_in, kept)
    producer = group.producer()
    return told | {
        "epochs apart": second - first,
        "kept": group.commit_all("first", first, *kept),
        "kept, before it was given": group.commit_all("first", first - 1, *kept),
        "kept, in the future": group.commit_all("first", second + 1, *kept),
        "given up": group.commit_all("first", first, gone[0]),
        "given up, in its own epoch": group.commit_all("first", second, gone[0]),
        "both": group.commit_all("first", first, kept[0], gone[0]),
        "both, the other way round": group.commit_all("first", first, gone[0], kept[0]),
        "both, with too much metadata for the one": group.commit_all(
            "first", first, kept[0], gone[0], too_much_metadata_for=gone
        ),
        "kept, in a transaction": group.commit_in_transaction("first", first, *kept, producer=producer),
        "both, in a transaction": group.commit_in_transaction("first", first, kept[0], gone[0], producer=producer),
        "kept, in a transaction of the future": group.commit_in_transaction(
            "first", second + 1, *kept, producer=producer
        ),
    }


def test_earlier_epoch_of_several(brokers):
    told = brokers.compare(earlier_epoch_of_several, Wire)
    assert told["kept"] == told["kept, in a transaction"] == ["NONE", "NONE"]
    assert told["both"] == ["STALE_MEMBER_EPOCH", "STALE_MEMBER_EPOCH"]
    assert told["both, with too much metadata for the one"] == ["NONE", "OFFSET_METADATA_TOO_LARGE"]
    assert told["both, in a transaction"] == ["ILLEGAL_GENERATION", "ILLEGAL_GENERATION"]
