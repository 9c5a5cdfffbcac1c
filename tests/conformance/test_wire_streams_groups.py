"""Streams groups (KIP-1071), request by request: who joins, what is assigned and told, and what is refused."""

from __future__ import annotations

import pytest

from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from headrace.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from headrace.protocol.messages.delete_groups import DeleteGroupsRequest
from headrace.protocol.messages.describe_groups import DescribeGroupsRequest
from headrace.protocol.messages.heartbeat import HeartbeatRequest
from headrace.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from headrace.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from headrace.protocol.messages.list_groups import ListGroupsRequest
from headrace.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from headrace.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from headrace.protocol.messages.shared import Endpoint, KeyValue, TaskIds, TopicInfo
from headrace.protocol.messages.streams_group_describe import StreamsGroupDescribeRequest
from headrace.protocol.messages.streams_group_heartbeat import (
    CopartitionGroup,
    StreamsGroupHeartbeatRequest,
    Subtopology,
    Topology,
)
from headrace.protocol.messages.sync_group import SyncGroupRequest
from tests.conformance.clients.wire import Wire, error_name, plain
from tests.conformance.comparison import wait_until

pytestmark = pytest.mark.java

COMPACT = [KeyValue(key="cleanup.policy", value="compact")]
GROUP_RESOURCE = 32


def topology(*sources, epoch=0, changelogs=(), **fields):
    logs = [TopicInfo(name=name, topic_configs=COMPACT) for name in changelogs]
    only = Subtopology(subtopology_id="0", source_topics=list(sources), state_changelog_topics=logs, **fields)
    return Topology(epoch=epoch, subtopologies=[only])


def word_count(name):
    """A topology with a topic to repartition by and one for its state, both of which the broker makes."""
    split = Subtopology(subtopology_id="0", source_topics=[name], repartition_sink_topics=[f"{name}-words"])
    words = TopicInfo(name=f"{name}-words", topic_configs=[KeyValue(key="retention.ms", value="-1")])
    counts = TopicInfo(name=f"{name}-counts", replication_factor=1, topic_configs=COMPACT)
    count = Subtopology(subtopology_id="1", repartition_source_topics=[words], state_changelog_topics=[counts])
    return Topology(subtopologies=[split, count])


class Group:
    """A streams group, and what its members are told: tasks, statuses and endpoints in an order of ours."""

    def __init__(self, wire, name):
        self.wire, self.name = wire, name
        self.epochs, self.tasks = {}, {}  # what each member was told last

    def send(self, member, epoch, owned=None, **fields):
        if owned is not None:
            tasks = [TaskIds(subtopology_id=name, partitions=numbers) for name, numbers in owned.items()]
            fields |= {"active_tasks": tasks, "standby_tasks": [], "warmup_tasks": []}
        ids = {"group_id": self.name, "member_id": member, "member_epoch": epoch}
        response = self.wire.ask(StreamsGroupHeartbeatRequest(**ids, **fields))
        if not response.error_code:
            self.epochs[member] = response.member_epoch
            if response.active_tasks is not None:
                self.tasks[member] = {each.subtopology_id: each.partitions for each in response.active_tasks}
        return _told(response)

    def join(self, member, given, **fields):
        known = {"rebalance_timeout_ms": 30_000, "process_id": f"process-{member}", "client_tags": []}
        return self.send(member, 0, {}, topology=given, **known | fields)

    def beat(self, member, owned=None, **fields):
        return self.send(member, self.epochs[member], owned, **fields)

    def beat_until(self, member, wanted):
        """Beat until the member was told to have these tasks: Kafka's coordinator learns of topics a moment later."""

        def beat():
            assert isinstance(self.beat(member), dict)
            return self.tasks[member]

        assert wait_until(beat, wanted) == wanted

    def describe(self):
        (group,) = self.wire.ask(StreamsGroupDescribeRequest(group_ids=[self.name])).groups
        answer = plain(group)
        answer["members"].sort(key=lambda member: member["member_id"])
        return answer

    def set(self, name, value):
        setting = AlterableConfig(name=name, value=value, config_operation=0)
        resource = AlterConfigsResource(resource_type=GROUP_RESOURCE, resource_name=self.name, configs=[setting])
        (response,) = self.wire.ask(IncrementalAlterConfigsRequest(resources=[resource])).responses
        return error_name(response.error_code)


def _told(response):
    """An answer as plain data: an error by its name, statuses by their codes, for their details are words."""
    if response.error_code:
        return error_name(response.error_code)
    endpoints = response.partitions_by_user_endpoint or []
    endpoints.sort(key=lambda each: each.user_endpoint.host)
    for each in endpoints:
        each.active_partitions.sort(key=lambda topic: topic.topic)
    return plain(response) | {"status": sorted(status.status_code for status in response.status)}


def ready(wire, topic, partitions):
    """Make a topic, and wait until the coordinator knows of it: another application has its tasks then."""
    wire.create(topic, partitions)
    wire.find_coordinator(topic)
    other = Group(wire, f"{topic}-ready")
    assert wait_until(lambda: isinstance(other.join("a", topology(topic)), dict), wanted=True)
    other.beat_until("a", {"0": list(range(partitions))})
    other.send("a", -1)


def life_of_a_group(wire, topic):
    """Two members share the tasks of a source; one leaves, and the other has all of them again."""
    ready(wire, topic, 4)
    group = Group(wire, topic)
    told = {"unknown": group.send("a", 3), "joined": group.join("a", topology(topic)), "unchanged": group.beat("a")}
    told["alone"] = group.describe()
    endpoint = Endpoint(host="there", port=8080)
    told["second"] = group.join("b", topology(topic), user_endpoint=endpoint, rack_id="r")
    told["waits"] = group.beat("b", endpoint_information_epoch=told["second"]["endpoint_information_epoch"])
    told["is to give up"] = group.beat("a")
    told["has not yet"] = group.beat("a", {"0": [0, 1, 2, 3]})
    told["has given up"] = group.beat("a", {"0": [0, 1]})
    told["taken"] = group.beat("b")
    told["both"] = group.describe()
    told["stale"] = group.send("a", 1), group.send("a", group.epochs["a"] + 9)
    told["tasks that there are not"] = [group.beat("a", tasks) for tasks in ({"9": [0]}, {"0": [7]})]
    told["left"] = group.send("b", -1), group.send("b", -1)
    told["has all again"] = group.beat("a")
    told["last left"] = group.send("a", -1)
    told["empty"] = group.describe()
    return told


def test_life_of_a_group(brokers):
    told = brokers.compare(life_of_a_group, Wire)
    assert told["alone"]["group_state"] == "Stable"
    assert told["stale"] == ("FENCED_MEMBER_EPOCH", "FENCED_MEMBER_EPOCH")
    assert told["taken"]["active_tasks"] == [{"subtopology_id": "0", "partitions": [2, 3]}]
    assert told["empty"]["group_state"] == "Empty"


def topics_of_an_application(wire, topic):
    """The broker makes topics to repartition by and for state, with as many partitions as they need."""
    wire.find_coordinator(topic)
    group = Group(wire, topic)
    assert wait_until(lambda: isinstance(group.join("a", word_count(topic)), dict), wanted=True)
    told = {"no source": group.beat("a"), "not ready": group.describe()}
    wire.create(topic, 3)
    group.beat_until("a", {"0": [0, 1, 2], "1": [0, 1, 2]})
    told["ready"] = group.describe()
    with_settings = [f"{topic}-words", f"{topic}-counts"]
    told["partitions"] = [len(wire.metadata(name).partitions) for name in with_settings]
    # How often the group was assigned anew depends on when the broker has seen which topic.
    for described in (told["ready"], *told["ready"]["members"]):
        for name in ("group_epoch", "assignment_epoch", "member_epoch"):
            described.pop(name, None)
    return told


def test_topics_of_an_application(brokers):
    told = brokers.compare(topics_of_an_application, Wire)
    assert told["no source"]["status"] == [1]
    assert told["not ready"]["group_state"] == "NotReady"
    assert told["ready"]["group_state"] == "Stable"
    assert told["partitions"] == [3, 3]


def standby_tasks(wire, topic):
    """Standby copies of the tasks with state, once the group has them set: on the other process."""
    ready(wire, topic, 1)
    ready(wire, f"{topic}-counts", 1)
    group = Group(wire, topic)
    given = topology(topic, changelogs=[f"{topic}-counts"])
    told = {"first": group.join("a", given), "second": group.join("b", given)}
    told["too many"] = group.set("streams.num.standby.replicas", "3")
    assert group.set("streams.num.standby.replicas", "1") == "NONE"
    wanted = [{"subtopology_id": "0", "partitions": [0]}]
    assert wait_until(lambda: group.beat("b")["standby_tasks"], wanted) == wanted
    told["described"] = [member["assignment"] for member in group.describe()["members"]]
    return told


def test_standby_tasks(brokers):
    first, second = brokers.compare(standby_tasks, Wire)["described"]
    assert (first["standby_tasks"], second["active_tasks"]) == ([], [])


def odd_heartbeats(wire, topic):
    """What makes no sense, by itself or for the topology that the group has."""
    ready(wire, topic, 2)
    ready(wire, f"{topic}-narrow", 1)
    group, none = Group(wire, topic), Group(wire, f"{topic}-none")
    good, other = topology(topic, epoch=5), f"{topic}-narrow"
    group.join("a", good)
    changelog = TopicInfo(name=f"{topic}-changelog", partitions=2)
    with_changelog = Subtopology(subtopology_id="0", source_topics=[topic], state_changelog_topics=[changelog])
    together = [CopartitionGroup(source_topics=[0, 1])]
    return {
        "stale topology": group.join("b", topology(topic, epoch=3))["status"],
        "another topology": group.join("c", topology(topic, other, epoch=5)),
        "newer topology": group.join("c", topology(topic, epoch=6)),
        "shut down": group.beat("a", shutdown_application=True)["status"],
        "and told to all": group.join("d", good)["status"],
        "topology in a beat": group.beat("a", topology=good),
        "some tasks": group.beat("a", active_tasks=[]),
        "unknown member": group.send("nobody", 1),
        "a member that is none leaves": group.send("nobody", -1),
        "epochs": [group.send("a", number) for number in (-2, -3)],
        "static": none.join("a", good, instance_id="i"),
        "no topology": none.join("a", None),
        "tasks in a join": none.send("a", 0, {"0": [0]}, topology=good, rebalance_timeout_ms=1),
        "no time to give up": none.join("a", good, rebalance_timeout_ms=-1),
        "empty ids": [none.join("", good), none.join("a", good, rack_id="")],
        "no sources": none.join("a", topology()),
        "an expression": none.join("a", topology(source_topic_regex=["a.*"])),
        "partitions of a changelog": none.join("a", Topology(subtopologies=[with_changelog])),
        "nobody writes it": none.join("a", topology(topic, repartition_source_topics=[TopicInfo(name=other)])),
        "internal": none.join("a", topology("__consumer_offsets")),
        "not a name": none.join("a", topology("a b")),
        "named twice": none.join("a", Topology(subtopologies=topology(topic).subtopologies * 2)),
        "epoch below zero": none.join("a", topology(topic, epoch=-1)),
        "a source that it does not have": none.join("a", topology(topic, copartition_groups=together)),
        "not partitioned alike": none.join("a", topology(topic, other, copartition_groups=together))["status"],
    }


def test_odd_heartbeats(brokers):
    told = brokers.compare(odd_heartbeats, Wire)
    assert told["stale topology"] == [0]
    assert told["another topology"] == "INVALID_REQUEST"
    assert told["not partitioned alike"] == [2]


def streams_among_other_kinds(wire, topic):
    """A group id belongs to one kind; offsets are its members' alone, as long as it has any."""
    ready(wire, topic, 1)
    group = Group(wire, topic)
    epoch = group.join("a", topology(topic))["member_epoch"]

    def join(name):
        protocols = [JoinGroupRequestProtocol(name="range", metadata=b"")]
        asked = {"session_timeout_ms": 30_000, "rebalance_timeout_ms": 30_000, "protocol_type": "consumer"}
        return error_name(wire.ask(JoinGroupRequest(group_id=name, protocols=protocols, **asked)).error_code)

    def consume(name):
        asked = {"rebalance_timeout_ms": 30_000, "subscribed_topic_names": [topic], "topic_partitions": []}
        return error_name(wire.ask(ConsumerGroupHeartbeatRequest(group_id=name, member_id="c", **asked)).error_code)

    def fetch(member, member_epoch):
        asked = OffsetFetchRequestGroup(group_id=topic, member_id=member, member_epoch=member_epoch, topics=None)
        return error_name(wire.ask(OffsetFetchRequest(groups=[asked]), 9).groups[0].error_code)

    def listed(name):
        (found,) = (each for each in wire.ask(ListGroupsRequest()).groups if each.group_id == name)
        return plain(found)

    def delete(name):
        return error_name(wire.ask(DeleteGroupsRequest(groups_names=[name])).results[0].error_code)

    deletion = OffsetDeleteRequestTopic(name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=0)])
    ids = {"group_id": topic, "member_id": "a", "generation_id": epoch}
    told = {
        "commits": [
            wire.commit(topic, topic, 1),
            wire.commit(topic, topic, 1, member="a", epoch=epoch),
            wire.commit(topic, topic, 1, member="a", epoch=0),
            wire.commit(topic, topic, 1, member="a", epoch=epoch + 9),
            wire.commit(topic, topic, 1, member="b", epoch=epoch),
        ],
        "fetches": [fetch(None, -1), fetch("a", epoch), fetch("a", epoch - 1), fetch("b", epoch)],
        "offset deleted": plain(wire.ask(OffsetDeleteRequest(group_id=topic, topics=[deletion]))),
        "classic": [
            join(topic),
            error_name(wire.ask(SyncGroupRequest(**ids)).error_code),
            error_name(wire.ask(HeartbeatRequest(**ids)).error_code),
        ],
        "consumer": consume(topic),
        "listed": listed(topic),
        "described as another": [
            error_name(wire.ask(request(**{name: [topic]})).groups[0].error_code)
            for request, name in ((DescribeGroupsRequest, "groups"), (ConsumerGroupDescribeRequest, "group_ids"))
        ],
        "deleted while it runs": delete(topic),
    }
    group.send("a", -1)
    told["empty"] = [consume(topic), wire.commit(topic, topic, 5), listed(topic)]
    told["classic then"] = join(topic)
    told["deleted"] = delete(topic), delete(topic)
    simple = Group(wire, f"{topic}-simple")
    told["began with a commit"] = (
        wire.commit(simple.name, topic, 1),
        simple.join("a", topology(topic))["status"],
        listed(simple.name)["group_type"],
    )
    consumer = Group(wire, f"{topic}-consumer")
    told["began with a consumer"] = consume(consumer.name), consumer.join("a", topology(topic))
    return told


def test_streams_among_other_kinds(brokers):
    told = brokers.compare(streams_among_other_kinds, Wire)
    assert told["commits"][1] == ErrorCode.NONE.name
    assert told["listed"]["group_type"] == "streams"
    assert told["began with a commit"] == ("NONE", [], "streams")
