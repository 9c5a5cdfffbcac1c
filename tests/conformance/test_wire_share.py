"""Share groups, as the protocol itself tells them: joining, acquiring, acknowledging, sessions, offsets, mistakes."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from headrace.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from headrace.protocol.messages.api_versions import ApiVersionsRequest
from headrace.protocol.messages.delete_groups import DeleteGroupsRequest
from headrace.protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from headrace.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)
from headrace.protocol.messages.find_coordinator import FindCoordinatorRequest
from headrace.protocol.messages.list_groups import ListGroupsRequest
from headrace.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
)
from headrace.protocol.messages.share_fetch import (
    ForgottenTopic,
)
from headrace.protocol.messages.share_group_describe import ShareGroupDescribeRequest
from headrace.protocol.schema import Uuid
from headrace.records import headers_in
from tests.conformance.clients.sharing import (
    ACCEPT,
    REJECT,
    RELEASE,
    RENEW,
    Sharer,
    set_group,
    wait_until_ok,
)
from tests.conformance.clients.wire import Wire, batch_of, error_name
from tests.conformance.comparison import wait_until

pytestmark = pytest.mark.java


def brief(answer: Any) -> Any:
    """What a fetch or an acknowledgement was answered, without ids and messages."""
    told: dict[str, Any] = {"error": error_name(answer.error_code), "lock": answer.acquisition_lock_timeout_ms}
    for topic in answer.responses:
        for partition in topic.partitions:
            one = {"error": error_name(partition.error_code)}
            if hasattr(partition, "acquired_records"):
                one["ack"] = error_name(partition.acknowledge_error_code)
                one["acquired"] = [
                    (r.first_offset, r.last_offset, r.delivery_count) for r in partition.acquired_records
                ]
                one["batches"] = [header.base_offset for _, header in headers_in(partition.records)]
            told[f"partition {partition.partition_index}"] = one
    return told


def ready(wire: Wire, topic: str, count: int = 10, batch: int = 5, **settings: str) -> Sharer:
    """A member of a group that begins at the start of a topic with some records in batches."""
    wire.create(topic)
    set_group(wire, topic, share_auto_offset_reset="earliest", **settings)
    for first in range(0, count, batch):
        wire.produce(topic, batch_of(*(b"%d" % number for number in range(first, first + batch))))
    sharer = Sharer(wire, topic, topic)
    sharer.join()
    return sharer


def delivery(wire, topic):
    """Records are acquired in batches, accepted, released, rejected, and delivered again with a higher count."""
    sharer = ready(wire, topic)
    told = {"first": brief(sharer.fetch_some(max_records=5))}
    types = [ACCEPT, ACCEPT, RELEASE, REJECT, RELEASE]
    told["accept some, release some, reject some"] = brief(sharer.acknowledge((0, 4, types)))
    told["again"] = brief(sharer.fetch_some())
    told["accept the rest"] = brief(sharer.acknowledge((2, 2, [ACCEPT]), (4, 9, [ACCEPT])))
    told["nothing left"] = brief(sharer.fetch(max_wait_ms=10))
    told["acknowledged twice"] = brief(sharer.acknowledge((4, 9, [ACCEPT])))
    told["never acquired"] = brief(sharer.acknowledge((50, 60, [ACCEPT])))
    return told


def test_delivery(brokers):
    told = brokers.compare(delivery, Wire)
    assert told["again"]["partition 0"]["acquired"] == [
        (2, 2, 2),
        (4, 4, 2),
        (5, 9, 1),
    ]


def record_limit(wire, topic):
    """Exactly so many records, or whole batches."""
    sharer = ready(wire, topic)
    return {
        "exactly three": brief(sharer.fetch_some(max_records=3, share_acquire_mode=1)),
        "exactly three more": brief(sharer.fetch_some(max_records=3, share_acquire_mode=1)),
        "one, by batches": brief(sharer.fetch_some(max_records=1)),
    }


def test_record_limit(brokers):
    brokers.compare(record_limit, Wire)


def delivery_limit(wire, topic):
    """A record that is released again and again is delivered as often as the limit says, and then never again."""
    sharer = ready(wire, topic, count=1, batch=1, share_delivery_count_limit="3")
    told = {"1": brief(sharer.fetch_some())}
    for number in range(2, 5):
        told[f"released {number}"] = brief(sharer.acknowledge((0, 0, [RELEASE])))
        told[str(number)] = brief(sharer.fetch(max_wait_ms=200 if number > 3 else 5000))
    return told


def test_delivery_limit(brokers):
    told = brokers.compare(delivery_limit, Wire)
    assert told["3"]["partition 0"]["acquired"] == [(0, 0, 3)]
    assert "partition 0" not in told["4"]


def own_fields(wire, topic):
    """A reason, and a time to come again, which Kafka skips: what they are said of is released and rejected even so."""
    sharer = ready(wire, topic, count=2, batch=2)
    told = {"first": brief(sharer.fetch_some())}
    said = {"reason": "no such customer", "retry_after_ms": 0}
    told["said"] = brief(sharer.acknowledge((0, 0, [RELEASE], said), (1, 1, [REJECT], said)))
    told["again"] = brief(sharer.fetch_some((0, 0, [RELEASE], said)))
    return told


def test_own_fields_disturb_no_kafka(brokers):
    told = brokers.compare(own_fields, Wire)
    assert told["said"]["partition 0"]["error"] == "NONE"
    assert told["again"]["partition 0"]["acquired"] == [(0, 0, 2)]


def own_features(servers):
    with Wire(servers) as wire:
        answer = wire.ask(ApiVersionsRequest(client_software_name="test", client_software_version="1"))
    return [(each.name, each.max_version) for each in answer.supported_features if each.name.startswith("headrace.")]


def test_only_we_announce_queues(our_broker, real_kafka):
    assert own_features(our_broker) == [("headrace.events", 1), ("headrace.queue", 2)]
    assert own_features(real_kafka) == []


def share_sessions(wire, topic):
    """Epochs out of order, sessions that are not there, and the end of one, which gives back what it had."""
    sharer = ready(wire, topic)
    told = {
        "no session yet": brief(sharer.fetch(epoch=5)),
        "acknowledge without a session": brief(sharer.acknowledge((0, 0, [ACCEPT]), epoch=3)),
        "acknowledge to begin": brief(sharer.acknowledge((0, 0, [ACCEPT]), epoch=0)),
        "end without a session": brief(sharer.fetch(epoch=-1)),
        "acknowledge when it begins": brief(sharer.fetch((0, 0, [ACCEPT]), epoch=0)),
    }
    told["begin"] = brief(sharer.fetch_some(max_records=5))
    told["wrong epoch"] = brief(sharer.fetch(epoch=77))
    told["wrong epoch to acknowledge"] = brief(sharer.acknowledge((0, 0, [ACCEPT]), epoch=78))
    told["forget and have nothing"] = brief(
        sharer.fetch(
            topics=[],
            max_wait_ms=10,
            forgotten_topics_data=[ForgottenTopic(topic_id=sharer.topic_id, partitions=[0])],
        )
    )
    told["acknowledge what was forgotten"] = brief(sharer.acknowledge((0, 1, [ACCEPT])))
    told["end"] = brief(sharer.fetch((2, 2, [ACCEPT]), epoch=-1))
    told["after the end"] = brief(sharer.fetch(epoch=9))
    sharer.member, sharer.session_epoch = str(uuid4()), 0
    given: list[tuple[int, int]] = []
    # Kafka gives it back a moment after it has answered, and to the same member also what that has acquired by then.
    # What is given is accepted at once: on a slow machine its lock would lapse before the rest has come.
    while len(given) < 7:
        for partition in (p for topic in sharer.fetch_some().responses for p in topic.partitions):
            for run in partition.acquired_records:
                given += [(offset, run.delivery_count) for offset in range(run.first_offset, run.last_offset + 1)]
                assert not sharer.acknowledge((run.first_offset, run.last_offset, [ACCEPT])).error_code
    told["what was given back"] = sorted(given)
    return told


def test_sessions(brokers):
    told = brokers.compare(share_sessions, Wire)
    assert told["what was given back"] == [(3, 2), (4, 2), *((offset, 1) for offset in range(5, 10))]


def strangers(wire, topic):
    """A group that nobody has joined."""
    wire.create(topic)
    wire.produce(topic, batch_of(b"v"))
    sharer = Sharer(wire, topic, topic)
    sharer.wire.find_coordinator(topic)
    return {"begin": brief(sharer.fetch(max_wait_ms=2000)), "go on": brief(sharer.fetch(max_wait_ms=2000))}


def test_strangers(brokers):
    brokers.compare(strangers, Wire)


def mistakes(wire, topic):
    """Requests that make no sense, each refused for itself."""
    sharer = ready(wire, topic)
    other = Sharer(wire, topic, topic)
    sharer.fetch_some(max_records=5)
    other.fetch(max_wait_ms=10, max_records=1, topics=[])
    return {
        "from behind": brief(sharer.acknowledge((3, 1, [ACCEPT]))),
        "twice": brief(sharer.acknowledge((0, 1, [ACCEPT]), (1, 2, [ACCEPT]))),
        "too few types": brief(sharer.acknowledge((0, 3, [ACCEPT, ACCEPT]))),
        "no types": brief(sharer.acknowledge((0, 3, []))),
        "unknown type": brief(sharer.acknowledge((0, 3, [9]))),
        "renewed without saying so": brief(sharer.acknowledge((0, 3, [RENEW]))),
        "somebody else's": brief(other.acknowledge((0, 0, [ACCEPT]))),
        "unknown topic": brief(sharer.acknowledge((0, 0, [ACCEPT]), topic_id=Uuid(b"nobody's topicid"))),
        "unknown partition": brief(sharer.acknowledge((0, 0, [ACCEPT]), partition=7)),
        "no member": brief(sharer.fetch(member_id="", epoch=0)),
        "renewed and fetched": brief(sharer.fetch((0, 0, [RENEW]), is_renew_ack=True)),
    }


def test_mistakes(brokers):
    brokers.compare(mistakes, Wire)


def renewal(wire, topic):
    """A lock that is renewed lasts longer, and is the member's still."""
    sharer = ready(wire, topic)
    sharer.fetch_some(max_records=5)
    return {
        "renewed": brief(sharer.acknowledge((0, 4, [RENEW]), is_renew_ack=True)),
        "renewed with a fetch": brief(
            sharer.fetch((0, 4, [RENEW]), is_renew_ack=True, max_wait_ms=0, min_bytes=0, max_bytes=0, max_records=0)
        ),
        "accepted": brief(sharer.acknowledge((0, 4, [ACCEPT]))),
    }


def test_renewal(brokers):
    brokers.compare(renewal, Wire)


def heartbeats(wire, topic):
    """Joining, fencing, leaving, and what no member may say."""
    wire.create(topic)
    sharer = Sharer(wire, topic, topic)
    wire.find_coordinator(topic)

    def told(answer):
        return {
            "error": error_name(answer.error_code),
            "epoch": answer.member_epoch,
            "every": answer.heartbeat_interval_ms,
        }

    wait_until_ok(lambda: sharer.beat(0, [topic]))
    joined = sharer.join()
    names = {
        "partitions": [each.partitions for each in joined.assignment.topic_partitions],
        "unknown member": told(sharer.beat(5, member_id="nobody")),
        "no member": told(sharer.beat(5, member_id="")),
        "no topics": told(sharer.beat(0, member_id=str(uuid4()))),
        "epoch of nobody": told(sharer.beat(sharer.member_epoch + 40)),
        "epoch that means nothing": told(sharer.beat(-3)),
        "rack of no name": told(sharer.beat(rack_id="")),
    }
    left = sharer.beat(-1)
    names["left"] = {"error": error_name(left.error_code), "epoch": left.member_epoch}
    names["after that"] = told(sharer.beat(3))
    names["no group"] = told(Sharer(wire, f"{topic}-none", topic).beat(3))
    return names


def test_heartbeats(brokers):
    brokers.compare(heartbeats, Wire)


def described(wire, topic):
    """A group as lists and descriptions have it, with a member and without; and one that is not there."""
    sharer = ready(wire, topic)
    sharer.fetch_some(max_records=5)
    sharer.acknowledge((0, 1, [ACCEPT]))

    def listed(*types):
        groups = wire.ask(ListGroupsRequest(types_filter=list(types))).groups
        return [(g.protocol_type, g.group_state, g.group_type) for g in groups if g.group_id == topic]

    def describe(name):
        (group,) = wire.ask(ShareGroupDescribeRequest(group_ids=[name])).groups
        return {
            "error": error_name(group.error_code),
            "state": group.group_state,
            "assignor": group.assignor_name,
            "members": [
                (m.subscribed_topic_names, [(t.topic_name, t.partitions) for t in m.assignment.topic_partitions])
                for m in group.members
            ],
        }

    def offsets(group, *partitions, name=topic):
        topics = (
            [DescribeShareGroupOffsetsRequestTopic(topic_name=name, partitions=list(partitions))]
            if partitions
            else None
        )
        asked = DescribeShareGroupOffsetsRequest(
            groups=[DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=topics)]
        )
        (answer,) = wire.ask(asked).groups
        return {
            "error": error_name(answer.error_code),
            "topics": [
                [(p.partition_index, p.lag, error_name(p.error_code)) for p in t.partitions] for t in answer.topics
            ],
        }

    told = {
        "listed": listed("share"),
        "listed among consumers": listed("consumer"),
        "described": describe(topic),
        "not there": describe(f"{topic}-none"),
        "offsets": offsets(topic, 0),
        "all offsets": offsets(topic),
        "offsets of no topic": offsets(topic, 0, name=f"{topic}-none"),
        "offsets of no group": offsets(f"{topic}-none", 0),
        "offset fetch": error_name(
            wire.ask(OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=topic, topics=None)]), 9)
            .groups[0]
            .error_code
        ),
        "deleted with a member": error_name(wire.ask(DeleteGroupsRequest(groups_names=[topic])).results[0].error_code),
        "altered with a member": alter(wire, topic, topic, 0),
    }
    sharer.fetch(epoch=-1)
    sharer.beat(-1)
    told["empty"] = describe(topic)
    told["altered"] = alter(wire, topic, topic, 3)
    told["offsets after that"] = offsets(topic, 0)
    told["altered behind the end"] = alter(wire, topic, topic, 300)
    told["altered in no topic"] = alter(wire, topic, f"{topic}-none", 3)
    told["altered in no group"] = alter(wire, f"{topic}-none", topic, 3)
    told["offsets deleted"] = delete(wire, topic, topic)
    told["offsets deleted again"] = delete(wire, topic, topic)
    told["offsets of no group deleted"] = delete(wire, f"{topic}-none", topic)
    told["no offsets"] = offsets(topic, 0)
    told["deleted"] = error_name(wire.ask(DeleteGroupsRequest(groups_names=[topic])).results[0].error_code)
    told["gone"] = describe(topic)
    return told


def alter(wire, group, topic, offset):
    partitions = [AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=offset)]
    topics = [AlterShareGroupOffsetsRequestTopic(topic_name=topic, partitions=partitions)]
    answer = wire.ask(AlterShareGroupOffsetsRequest(group_id=group, topics=topics))
    return error_name(answer.error_code), [
        [error_name(p.error_code) for p in each.partitions] for each in answer.responses
    ]


def delete(wire, group, topic):
    topics = [DeleteShareGroupOffsetsRequestTopic(topic_name=topic)]
    answer = wire.ask(DeleteShareGroupOffsetsRequest(group_id=group, topics=topics))
    return error_name(answer.error_code), [error_name(each.error_code) for each in answer.responses]


def test_described(brokers):
    brokers.compare(described, Wire)


def share_coordinators(wire, topic):
    """FindCoordinator knows partitions of share groups by their keys."""
    wire.create(topic)
    wire.find_coordinator(topic)

    def find(key):
        def ask():
            (found,) = wire.ask(FindCoordinatorRequest(key_type=2, coordinator_keys=[key])).coordinators
            return error_name(found.error_code)

        return wait_until(ask, "NONE", timeout_s=30 if key.startswith("g:A") else 0)

    return {key: find(key) for key in ("g:AAAAAAAAAAAAAAAAAAAAAQ:0", "nonsense", "g:x:0", "g:AAAAAAAAAAAAAAAAAAAAAQ:x")}


def test_coordinators(brokers):
    brokers.compare(share_coordinators, Wire)
