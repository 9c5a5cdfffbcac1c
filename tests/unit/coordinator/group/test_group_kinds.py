"""Where classic groups and consumer groups meet: one id, one kind at a time, and the offsets stay."""

import struct

import pytest

from headrace.coordinator.group.coordinator import GroupCoordinator
from headrace.coordinator.group.record_formats import OffsetCommitKey
from headrace.coordinator.group.records import decode
from headrace.coordinator.group.settings import GroupSettings
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from headrace.protocol.messages.delete_groups import DeleteGroupsRequest
from headrace.protocol.messages.describe_groups import DescribeGroupsRequest
from headrace.protocol.messages.list_groups import ListGroupsRequest
from tests.group_requests import SESSION_MS, commit, fetched, heartbeat, join, leave, stable_group, sync
from tests.group_shell import GroupShell

# What a classic leader assigns: version 0, one topic, two partitions, no user data.
ALL_OF_T = struct.pack(">hi", 0, 1) + struct.pack(">h1si2i", 1, b"t", 2, 0, 1) + struct.pack(">i", -1)


@pytest.fixture
def shell():
    return GroupShell(topics={"t": 2})


def beat(shell, member_id="m", epoch=0, **fields):
    if epoch == 0:
        fields = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": ["t"], "topic_partitions": []} | fields
    asked = ConsumerGroupHeartbeatRequest(group_id="g", member_id=member_id, member_epoch=epoch, **fields)
    return shell.ask(asked, 1)


def kinds(shell):
    return {group.group_id: group.group_type for group in shell.ask(ListGroupsRequest(), 5).groups}


def test_a_consumer_group_commits_to_the_same_store(shell):
    answer = beat(shell)
    assert answer.error_code == 0
    assert kinds(shell) == {"g": "consumer"}
    (outcome,) = shell.ask(commit(5, member_id="m", generation=answer.member_epoch), 9).topics[0].partitions
    assert outcome.error_code == 0
    assert fetched(shell) == {("t", 0): (5, -1, "", 0)}
    (outcome,) = shell.ask(commit(6, member_id="m", generation=answer.member_epoch + 1), 9).topics[0].partitions
    assert outcome.error_code == ErrorCode.STALE_MEMBER_EPOCH


def test_an_empty_classic_group_becomes_a_consumer_group_and_keeps_its_offsets(shell):
    (member_id,) = stable_group(shell)
    shell.ask(commit(5, member_id=member_id, generation=1), 9)
    shell.ask(leave(member_id), 5)
    assert beat(shell).error_code == 0
    assert kinds(shell) == {"g": "consumer"}
    assert fetched(shell) == {("t", 0): (5, -1, "", 0)}
    shell.restart()
    assert kinds(shell) == {"g": "consumer"}
    assert fetched(shell) == {("t", 0): (5, -1, "", 0)}


def test_an_empty_consumer_group_becomes_a_classic_group_and_keeps_its_offsets(shell):
    epoch = beat(shell).member_epoch
    shell.ask(commit(5, member_id="m", generation=epoch), 9)
    beat(shell, epoch=-1)
    stable_group(shell)
    assert kinds(shell) == {"g": "classic"}
    assert fetched(shell) == {("t", 0): (5, -1, "", 0)}
    shell.restart()
    assert kinds(shell) == {"g": "classic"}


def test_a_request_that_is_refused_changes_no_kind(shell):
    beat(shell)
    beat(shell, epoch=-1)
    assert shell.ask(join("nobody"), 9).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert shell.ask(sync("nobody", 1), 5).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert shell.ask(heartbeat("nobody", 1), 4).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert kinds(shell) == {"g": "consumer"}


def test_a_consumer_of_the_new_protocol_takes_a_classic_group_with_it(shell):
    token = shell.send(join(), 3)
    shell.advance(0)
    member_id = shell.answers[token].member_id
    assert shell.ask(sync(member_id, 1, {member_id: ALL_OF_T}), 5).error_code == 0
    shell.ask(commit(5, member_id=member_id, generation=1), 9)
    assert beat(shell).error_code == 0
    assert kinds(shell) == {"g": "consumer"}
    assert shell.ask(heartbeat(member_id, 1), 4).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert fetched(shell) == {("t", 0): (5, -1, "", 0)}
    beat(shell, epoch=-1)
    assert kinds(shell) == {"g": "classic"}, "nobody is left who speaks the new protocol"
    assert fetched(shell) == {("t", 0): (5, -1, "", 0)}
    shell.advance(10 * SESSION_MS)


def test_a_classic_group_that_may_not_change_refuses(shell):
    shell = GroupShell(
        GroupSettings(group_initial_rebalance_delay_ms=0, group_consumer_migration_policy="disabled"), topics={"t": 2}
    )
    (member_id,) = stable_group(shell)
    assert beat(shell).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert shell.ask(heartbeat(member_id, 1), 4).error_code == 0


def test_a_consumer_group_is_not_described_as_a_classic_one(shell):
    beat(shell)
    (group,) = shell.ask(DescribeGroupsRequest(groups=["g"]), 6).groups
    assert group.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert group.error_message == "Group g is not a classic group."


def test_a_consumer_group_is_deleted_with_its_offsets(shell):
    epoch = beat(shell).member_epoch
    shell.ask(commit(5, member_id="m", generation=epoch), 9)
    (refused,) = shell.ask(DeleteGroupsRequest(groups_names=["g"]), 2).results
    assert refused.error_code == ErrorCode.NON_EMPTY_GROUP
    beat(shell, epoch=-1)
    (deleted,) = shell.ask(DeleteGroupsRequest(groups_names=["g"]), 2).results
    assert deleted.error_code == 0
    assert kinds(shell) == {}
    assert fetched(shell) == {}


def test_offsets_that_compaction_left_in_front_of_their_group_do_not_make_it_classic(shell):
    epoch = beat(shell).member_epoch
    shell.ask(commit(5, member_id="m", generation=epoch), 9)
    records = [decode(key, value) for key, value, _ in shell.log]
    records.sort(key=lambda record: not isinstance(record.key, OffsetCommitKey))
    shell.log.clear()
    coordinator = shell._new_coordinator()
    for record in records:
        coordinator.apply(record)
    assert not coordinator._classic.holds("g")
    assert coordinator._consumer.holds("g")
    assert coordinator._offsets.committed("g")


def test_without_consumer_groups_their_requests_are_refused():
    shell = GroupShell()
    assert beat(shell).error_code == ErrorCode.UNSUPPORTED_VERSION
    assert isinstance(shell.coordinator, GroupCoordinator)
