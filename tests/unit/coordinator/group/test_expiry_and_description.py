"""Groups seen from outside, deleted, and forgotten when nobody needs them."""

import pytest

from headrace.coordinator.decision import CoordinatorRecord
from headrace.coordinator.group.classic.state import group_tombstone
from headrace.coordinator.group.events import TransactionEnded
from headrace.coordinator.group.offsets.forgetting import ExpiryTimer
from headrace.coordinator.group.record_formats import OffsetCommitKey
from headrace.coordinator.group.settings import GroupSettings
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.delete_groups import DeleteGroupsRequest
from headrace.protocol.messages.describe_groups import DescribeGroupsRequest
from headrace.protocol.messages.list_groups import ListGroupsRequest
from tests.group_requests import (
    SESSION_MS,
    commit,
    fetched,
    heartbeat,
    join,
    leave,
    stable_group,
    subscription,
    txn_commit,
)
from tests.group_shell import GroupShell

MINUTE_MS = 60_000
RETENTION_MS = 10 * MINUTE_MS


@pytest.fixture
def shell():
    return GroupShell(
        GroupSettings(
            group_initial_rebalance_delay_ms=0,
            offsets_retention_minutes=10,
            offsets_retention_check_interval_ms=MINUTE_MS,
        )
    )


def keep_alive(shell, member_id, generation, for_ms):
    for _ in range(for_ms // SESSION_MS + 1):
        shell.advance(SESSION_MS - 1)
        assert shell.ask(heartbeat(member_id, generation), 4).error_code == 0


def test_offsets_of_a_group_expire_after_it_has_become_empty(shell):
    (member_id,) = stable_group(shell)
    shell.ask(commit(5, member_id=member_id, generation=1), 9)
    keep_alive(shell, member_id, 1, RETENTION_MS)
    assert fetched(shell) != {}, "as long as it has members, what they read is kept"
    shell.ask(leave(member_id), 5)
    shell.advance(RETENTION_MS - MINUTE_MS)
    assert fetched(shell) != {}
    shell.advance(2 * MINUTE_MS)
    assert fetched(shell) == {}
    assert not shell.coordinator._classic.holds("g")
    assert ExpiryTimer() in shell.timers


def test_the_time_since_a_group_is_empty_survives_a_restart(shell):
    (member_id,) = stable_group(shell)
    shell.ask(commit(5, member_id=member_id, generation=1), 9)
    shell.ask(leave(member_id), 5)
    shell.advance(RETENTION_MS // 2)
    shell.restart()
    shell.advance(RETENTION_MS // 2)
    assert fetched(shell) == {}


def test_offsets_of_a_simple_consumer_expire_by_their_own_age(shell):
    shell.ask(commit(5), 9)
    shell.advance(RETENTION_MS // 2)
    shell.ask(commit(6, partition=1), 9)
    shell.advance(RETENTION_MS // 2)
    assert fetched(shell) == {("t", 1): (6, -1, "", 0)}
    shell.advance(RETENTION_MS // 2)
    assert not shell.coordinator._classic.holds("g")


def test_a_stable_group_loses_offsets_of_topics_that_it_has_given_up(shell):
    (member_id,) = stable_group(shell)
    shell.ask(commit(5, member_id=member_id, generation=1), 9)
    shell.ask(commit(5, member_id=member_id, generation=1, topic="given up"), 9)
    keep_alive(shell, member_id, 1, RETENTION_MS)
    assert fetched(shell) == {("t", 0): (5, -1, "", 0)}


def test_members_that_are_no_consumers_keep_all_offsets(shell):
    (member_id,) = stable_group(shell, protocol_type="connect")
    shell.ask(commit(5, member_id=member_id, generation=1), 9)
    keep_alive(shell, member_id, 1, RETENTION_MS)
    assert fetched(shell) != {}


def test_an_old_client_may_say_how_long(shell):
    shell.ask(commit(5, retention_time_ms=3 * MINUTE_MS), 4)
    shell.ask(commit(5, partition=1), 4)
    shell.advance(3 * MINUTE_MS)
    assert fetched(shell) == {("t", 1): (5, -1, "", 0)}


def test_an_old_client_may_say_for_ever(shell):
    """The time of the end is an int64 in the log: what lies beyond it could not be written, time and again."""
    shell.ask(commit(5, retention_time_ms=2**63 - 1), 4)
    shell.advance(2 * RETENTION_MS)
    assert fetched(shell) == {("t", 0): (5, -1, "", 0)}


def test_an_open_transaction_keeps_its_group(shell):
    shell.ask(commit(5), 9)
    shell.ask(txn_commit(6, producer_id=9), 5)
    shell.advance(2 * RETENTION_MS)
    assert fetched(shell) == {("t", 0): (5, -1, "", 0)}
    shell.tell(TransactionEnded(9, 3, committed=True))
    shell.advance(MINUTE_MS)
    assert fetched(shell) == {}


def test_an_empty_group_without_offsets_goes_at_the_next_look(shell):
    shell.ask(join(), 9)
    shell.advance(MINUTE_MS)
    assert not shell.coordinator._classic.holds("g")
    assert shell.log[-1][1] is None


def test_a_group_is_deleted_with_its_offsets(shell):
    (member_id,) = stable_group(shell)
    shell.ask(commit(5, member_id=member_id, generation=1), 9)
    refused, missing = shell.ask(DeleteGroupsRequest(groups_names=["g", "other"]), 2).results
    assert (refused.error_code, missing.error_code) == (ErrorCode.NON_EMPTY_GROUP, ErrorCode.GROUP_ID_NOT_FOUND)
    shell.ask(leave(member_id), 5)
    shell.ask(txn_commit(5, producer_id=9, partition=1), 5)
    (deleted,) = shell.ask(DeleteGroupsRequest(groups_names=["g"]), 2).results
    assert deleted.error_code == 0
    assert shell.kept == [
        CoordinatorRecord(OffsetCommitKey(group="g", topic="t", partition=0), None),
        CoordinatorRecord(OffsetCommitKey(group="g", topic="t", partition=1), None),
        group_tombstone("g"),
    ]
    assert fetched(shell) == {}
    assert shell.ask(heartbeat(member_id, 2), 4).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    shell.restart()
    assert not shell.coordinator._classic.holds("g")


def test_describing_a_group(shell):
    first, second = stable_group(shell, 2)
    (group,) = shell.ask(DescribeGroupsRequest(groups=["g"]), 6).groups
    assert (group.error_code, group.group_state, group.protocol_type, group.protocol_data) == (
        0,
        "Stable",
        "consumer",
        "range",
    )
    members = {member.member_id: member for member in group.members}
    assert members[first].member_assignment == first.encode()
    assert members[second].member_metadata == subscription("t")
    assert (members[first].client_id, members[first].client_host) == ("client", "/10.0.0.1")

    shell.send(join(first), 9)
    (group,) = shell.ask(DescribeGroupsRequest(groups=["g"]), 6).groups
    assert (group.group_state, group.protocol_data) == ("PreparingRebalance", "")
    assert {member.member_metadata for member in group.members} == {b""}


def test_describing_a_group_that_does_not_exist(shell):
    (group,) = shell.ask(DescribeGroupsRequest(groups=["g"]), 5).groups
    assert (group.error_code, group.group_state) == (0, "Dead")
    (group,) = shell.ask(DescribeGroupsRequest(groups=["g"]), 6).groups
    assert (group.error_code, group.error_message) == (ErrorCode.GROUP_ID_NOT_FOUND, "Group g not found.")


def test_listing_groups_by_state_and_type(shell):
    stable_group(shell, group="stable")
    shell.ask(commit(5, group="simple"), 9)

    def listed(**filters):
        groups = shell.ask(ListGroupsRequest(**filters), 5).groups
        return {group.group_id: (group.group_state, group.group_type, group.protocol_type) for group in groups}

    stable, simple = ("Stable", "classic", "consumer"), ("Empty", "classic", "")
    assert listed() == {"stable": stable, "simple": simple}
    assert listed(states_filter=[" STABLE"]) == {"stable": stable}
    assert listed(states_filter=["Empty", "Dead"]) == {"simple": simple}
    assert listed(types_filter=["Classic"]) == {"stable": stable, "simple": simple}
    assert listed(types_filter=["consumer"]) == {}
    assert listed(types_filter=["nonsense"]) == {}


def test_nothing_else_is_a_request_for_groups(shell):
    with pytest.raises(TypeError):
        shell.ask(OffsetCommitKey(), 0)
