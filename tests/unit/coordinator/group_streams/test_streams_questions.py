"""What others ask of streams groups: who may commit and fetch, what expires, how they meet groups of other kinds."""

import pytest

from headrace.coordinator.group.settings import GroupSettings
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from headrace.protocol.messages.delete_groups import DeleteGroupsRequest
from headrace.protocol.messages.heartbeat import HeartbeatRequest
from headrace.protocol.messages.list_groups import ListGroupsRequest
from headrace.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from headrace.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from headrace.protocol.messages.shared import TaskIds
from headrace.protocol.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest
from tests.group_requests import commit, join, sync, txn_commit
from tests.group_shell import GroupShell
from tests.unit.coordinator.group_streams.harness import one_stage

SETTINGS = GroupSettings(
    group_initial_rebalance_delay_ms=0,
    group_streams_initial_rebalance_delay_ms=0,
    group_streams_session_timeout_ms=45_000,
)


@pytest.fixture
def shell():
    return GroupShell(SETTINGS, topics={"lines": 2, "other": 1})


def beat(shell, member_id, epoch, active=None, *, group="g", **fields):
    if active is not None:
        tasks = [TaskIds(subtopology_id="0", partitions=active)] if active else []
        fields |= {"active_tasks": tasks, "standby_tasks": [], "warmup_tasks": []}
    asked = StreamsGroupHeartbeatRequest(group_id=group, member_id=member_id, member_epoch=epoch, **fields)
    return shell.ask(asked, 0)


def start(shell, member_id, *, group="g"):
    joined = beat(
        shell, member_id, 0, [], group=group, topology=one_stage("lines"), process_id=member_id, rebalance_timeout_ms=9
    )
    assert joined.error_code == 0, joined
    return joined.member_epoch


def consume(shell, member_id, epoch=0, *, group="g"):
    more = {"rebalance_timeout_ms": 1, "subscribed_topic_names": ["lines"], "topic_partitions": []} if not epoch else {}
    asked = ConsumerGroupHeartbeatRequest(group_id=group, member_id=member_id, member_epoch=epoch, **more)
    return ErrorCode(shell.ask(asked, 1).error_code)


def outcome(response):
    return ErrorCode(response.topics[0].partitions[0].error_code)


def committed(shell, **fields):
    return outcome(shell.ask(commit(1, topic="lines", **fields), 9))


def test_a_member_commits_in_its_epoch_or_in_one_since_which_it_has_the_task(shell):
    start(shell, "a")
    start(shell, "b")
    beat(shell, "a", 2)
    beat(shell, "a", 2, [0])
    beat(shell, "b", 3)
    assert committed(shell, member_id="a", generation=3) is ErrorCode.NONE
    assert committed(shell, member_id="a", generation=2) is ErrorCode.NONE  # task 0 was its own then, too
    assert committed(shell, member_id="a", generation=1) is ErrorCode.STALE_MEMBER_EPOCH
    assert committed(shell, member_id="a", generation=2, partition=1) is ErrorCode.STALE_MEMBER_EPOCH
    assert committed(shell, member_id="b", generation=2, partition=1) is ErrorCode.STALE_MEMBER_EPOCH
    assert committed(shell, member_id="c", generation=3) is ErrorCode.UNKNOWN_MEMBER_ID
    assert committed(shell) is ErrorCode.UNKNOWN_MEMBER_ID
    in_transaction = txn_commit(1, 7, topic="lines", member_id="a", generation_id=1)
    assert outcome(shell.ask(in_transaction, 3)) is ErrorCode.ILLEGAL_GENERATION
    assert outcome(shell.ask(commit(1, topic="lines", member_id="a", generation=3), 8)) is ErrorCode.UNSUPPORTED_VERSION


def test_a_group_without_members_takes_offsets_of_anybody(shell):
    start(shell, "a")
    beat(shell, "a", -1)
    assert committed(shell) is ErrorCode.NONE


@pytest.mark.parametrize(
    ("member", "epoch", "error"),
    [
        (None, -1, ErrorCode.NONE),
        ("a", 2, ErrorCode.NONE),
        ("a", 1, ErrorCode.STALE_MEMBER_EPOCH),
        ("b", 2, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_a_member_reads_offsets_in_its_epoch(shell, member, epoch, error):
    start(shell, "a")
    group = OffsetFetchRequestGroup(group_id="g", member_id=member, member_epoch=epoch, topics=None)
    assert shell.ask(OffsetFetchRequest(groups=[group]), 9).groups[0].error_code == error


def test_offsets_of_sources_stay_while_the_application_runs_and_expire_after(shell):
    start(shell, "a")
    committed(shell, member_id="a", generation=2)
    topic = OffsetDeleteRequestTopic(name="lines", partitions=[OffsetDeleteRequestPartition(partition_index=0)])
    asked = OffsetDeleteRequest(group_id="g", topics=[topic])
    assert outcome(shell.ask(asked, 0)) is ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    beat(shell, "a", -1)
    shell.advance(SETTINGS.offsets_retention_ms + SETTINGS.offsets_retention_check_interval_ms)
    assert shell.ask(ListGroupsRequest(), 5).groups == []  # the group went with its last offset


def test_a_group_is_deleted_once_its_members_are_gone(shell):
    start(shell, "a")
    deleted = DeleteGroupsRequest(groups_names=["g"])
    assert shell.ask(deleted, 2).results[0].error_code == ErrorCode.NON_EMPTY_GROUP
    beat(shell, "a", -1)
    assert shell.ask(deleted, 2).results[0].error_code == ErrorCode.NONE
    assert shell.ask(ListGroupsRequest(), 5).groups == []
    assert start(shell, "a") == 2


def test_groups_are_listed_by_their_kind_and_state(shell):
    start(shell, "a")
    start(shell, "a", group="h")
    beat(shell, "a", -1, group="h")
    (listed,) = shell.ask(ListGroupsRequest(types_filter=["Streams"], states_filter=["Stable"]), 5).groups
    assert (listed.group_id, listed.group_type, listed.group_state, listed.protocol_type) == (
        *("g", "streams", "Stable", "streams"),
    )


def test_a_classic_group_without_members_becomes_a_streams_group_and_back(shell):
    shell.ask(commit(5, topic="lines"), 9)  # an administrator's: the group is a classic one
    start(shell, "a")
    assert shell.coordinator._kind_of("g") is shell.coordinator.streams
    beat(shell, "a", -1)
    assert shell.ask(join(), 9).error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert shell.coordinator._kind_of("g") is shell.coordinator._classic
    shell.restart()
    assert shell.coordinator._kind_of("g") is shell.coordinator._classic


def test_others_do_not_get_into_a_running_streams_group(shell):
    start(shell, "a")
    assert shell.ask(join("x"), 9).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert shell.ask(sync("a", 2), 5).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    asked = HeartbeatRequest(group_id="g", member_id="a", generation_id=2)
    assert shell.ask(asked, 4).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert consume(shell, "c") is ErrorCode.GROUP_ID_NOT_FOUND
    beat(shell, "a", -1)
    assert consume(shell, "c") is ErrorCode.GROUP_ID_NOT_FOUND  # as in Kafka: not even when it is empty


def test_a_running_group_of_another_kind_does_not_become_a_streams_group(shell):
    assert consume(shell, "c") is ErrorCode.NONE
    asked = StreamsGroupHeartbeatRequest(
        group_id="g",
        member_id="a",
        rebalance_timeout_ms=1,
        topology=one_stage("lines"),
        active_tasks=[],
        standby_tasks=[],
        warmup_tasks=[],
    )
    assert shell.ask(asked, 0).error_code == ErrorCode.GROUP_ID_NOT_FOUND
