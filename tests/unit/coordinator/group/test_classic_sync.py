"""SyncGroup: the assignment is stored before it is given out, and nobody waits for it for ever."""

import pytest

from headrace.coordinator.group.classic.state import Phase, SessionTimer, SyncTimer
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.sync_group import SyncGroupRequest
from tests.group_requests import REBALANCE_MS, SESSION_MS, heartbeat, join, leave, settle, stable_group, sync
from tests.group_shell import GroupShell


@pytest.fixture
def shell():
    return GroupShell()


def joined_group(shell, count=2):
    tokens = [shell.send(join(), 3, client_id=f"c{number}") for number in range(count)]
    shell.advance(0)
    return [shell.answers[token].member_id for token in tokens]


def test_followers_wait_for_the_leader_whose_assignment_is_stored_first(shell):
    leader, follower = joined_group(shell)
    waiting = shell.send(sync(follower, 1), 5)
    assert waiting not in shell.answers
    assert shell.kept == []

    answer = shell.ask(sync(leader, 1, {leader: b"one", follower: b"two"}), 5)
    (kept,) = shell.kept
    assert {member.member_id: member.assignment for member in kept.value.members} == {leader: b"one", follower: b"two"}
    assert (kept.value.generation, kept.value.protocol, kept.value.leader) == (1, "range", leader)
    assert (answer.assignment, answer.protocol_type, answer.protocol_name) == (b"one", "consumer", "range")
    assert shell.answers[waiting].assignment == b"two"
    assert SyncTimer("g", 1) not in shell.timers
    assert shell.timers[SessionTimer("g", follower)] == shell.now_ms + SESSION_MS


def test_a_member_without_an_assignment_gets_an_empty_one(shell):
    leader, follower = joined_group(shell)
    shell.ask(sync(leader, 1, {leader: b"all"}), 5)
    assert shell.ask(sync(follower, 1), 5).assignment == b""


def test_whoever_syncs_late_gets_its_assignment_at_once(shell):
    leader, follower = joined_group(shell)
    shell.ask(sync(leader, 1, {leader: b"one", follower: b"two"}), 5)
    assert SyncTimer("g", 1) in shell.timers
    assert shell.ask(sync(follower, 1), 5).assignment == b"two"
    assert SyncTimer("g", 1) not in shell.timers
    assert shell.ask(sync(follower, 1), 5).assignment == b"two"


def test_the_assignment_survives_a_restart(shell):
    first, second = stable_group(shell, 2)
    shell.restart()
    assert shell.ask(sync(second, 1), 5).assignment == second.encode()
    assert shell.ask(sync(first, 1), 5).assignment == first.encode()


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        (sync("x", 1, group=""), ErrorCode.INVALID_GROUP_ID),
        (sync("x", 1, group="other"), ErrorCode.UNKNOWN_MEMBER_ID),
        (sync("x", 1), ErrorCode.UNKNOWN_MEMBER_ID),
        (sync("c0-fresh1", 2), ErrorCode.ILLEGAL_GENERATION),
        (sync("c0-fresh1", 1, protocol="sticky"), ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        (SyncGroupRequest(group_id="g", member_id="c0-fresh1", generation_id=1), ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    ],
)
def test_what_is_refused(shell, asked, error):
    joined_group(shell)
    assert shell.ask(asked, 5).error_code == error


def test_before_version_5_the_protocol_need_not_be_named(shell):
    leader, _ = joined_group(shell)
    asked = SyncGroupRequest(group_id="g", member_id=leader, generation_id=1)
    assert shell.ask(asked, 4).error_code == 0


def test_a_sync_in_a_rebalance_is_told_to_join_again(shell):
    first, second = stable_group(shell, 2)
    shell.send(join(first), 9)
    assert shell.ask(sync(second, 1), 5).error_code == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_group_whose_leader_dies_before_it_assigns_finds_another(shell):
    leader, follower = joined_group(shell)
    waiting = shell.send(sync(follower, 1), 5)
    shell.advance(SESSION_MS)
    assert leader not in shell.group().members
    assert shell.answers[waiting].error_code == ErrorCode.REBALANCE_IN_PROGRESS
    again = shell.send(join(follower), 9)
    assert (shell.answers[again].leader, shell.answers[again].generation_id) == (follower, 2)
    settle(shell, follower)
    assert shell.group().phase is Phase.STABLE


def test_a_leader_that_lives_but_does_not_assign_is_removed(shell):
    leader, follower = joined_group(shell)
    waiting = shell.send(sync(follower, 1), 5)
    for _ in range(8):
        shell.advance(REBALANCE_MS // 8)
        if leader in shell.group().members:
            assert shell.ask(heartbeat(leader, 1), 4).error_code == 0
    assert shell.answers[waiting].error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert leader not in shell.group().members
    assert SessionTimer("g", leader) not in shell.timers


def test_a_member_that_waits_for_its_assignment_need_not_send_heartbeats(shell):
    leader, follower = joined_group(shell)
    waiting = shell.send(sync(follower, 1), 5)
    for _ in range(4):
        shell.advance(SESSION_MS - 1)
        shell.ask(heartbeat(leader, 1), 4)
    assert follower in shell.group().members
    shell.ask(sync(leader, 1, {follower: b"two"}), 5)
    assert shell.answers[waiting].assignment == b"two"
    assert shell.timers[SessionTimer("g", follower)] == shell.now_ms + SESSION_MS


def test_a_sync_that_is_repeated_replaces_the_one_that_waits(shell):
    leader, follower = joined_group(shell)
    lost = shell.send(sync(follower, 1), 5)
    waiting = shell.send(sync(follower, 1), 5)
    assert shell.answers[lost].error_code == ErrorCode.REBALANCE_IN_PROGRESS
    shell.ask(sync(leader, 1, {follower: b"two"}), 5)
    assert shell.answers[waiting].assignment == b"two"


def test_a_member_that_is_removed_while_it_waits_is_told(shell):
    _, follower = joined_group(shell)
    waiting = shell.send(sync(follower, 1), 5)
    shell.ask(leave(follower), 5)
    assert shell.answers[waiting].error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_join_between_join_and_sync_makes_everybody_join_again(shell):
    leader, follower = joined_group(shell)
    waiting = shell.send(sync(follower, 1), 5)
    newcomer = shell.send(join(), 3)
    assert shell.answers[waiting].error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert shell.ask(sync(leader, 1, {leader: b"old"}), 5).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    tokens = [newcomer, shell.send(join(leader), 9), shell.send(join(follower), 9)]
    assert {shell.answers[token].generation_id for token in tokens} == {2}
    assert shell.ask(sync(leader, 1, {leader: b"old"}), 5).error_code == ErrorCode.ILLEGAL_GENERATION
