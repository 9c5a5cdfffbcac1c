"""Heartbeat, LeaveGroup, and the end of sessions."""

import pytest

from headrace.coordinator.decision import Timer
from headrace.coordinator.group.classic.state import Phase, SessionTimer
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from tests.group_requests import SESSION_MS, commit, heartbeat, join, leave, stable_group
from tests.group_shell import GroupShell


@pytest.fixture
def shell():
    return GroupShell()


def test_a_heartbeat_moves_the_timer_and_writes_nothing(shell):
    (member_id,) = stable_group(shell)
    shell.advance(5)
    assert shell.ask(heartbeat(member_id, 1), 4).error_code == 0
    assert shell.last.records == ()
    assert shell.last.timers == (Timer(SessionTimer("g", member_id), shell.now_ms + SESSION_MS),)


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        (heartbeat("x", 1, group=""), ErrorCode.INVALID_GROUP_ID),
        (heartbeat("x", 1, group="other"), ErrorCode.UNKNOWN_MEMBER_ID),
        (heartbeat("x", 1), ErrorCode.UNKNOWN_MEMBER_ID),
        (heartbeat("c0-fresh1", 2), ErrorCode.ILLEGAL_GENERATION),
        (heartbeat("c0-fresh1", 1, instance="i"), ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_what_a_heartbeat_is_refused_for(shell, asked, error):
    stable_group(shell)
    assert shell.ask(asked, 4).error_code == error


def test_a_member_that_is_silent_is_removed_and_the_others_rebalance(shell):
    first, second = stable_group(shell, 2)
    shell.advance(SESSION_MS - 1)
    shell.ask(heartbeat(second, 1), 4)
    shell.advance(1)
    assert first not in shell.group().members
    assert shell.ask(heartbeat(second, 1), 4).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert shell.answers[shell.send(join(second), 9)].generation_id == 2


def test_a_group_that_loses_its_last_member_is_empty_and_stored_as_such(shell):
    stable_group(shell)
    shell.advance(SESSION_MS)
    assert shell.group().phase is Phase.EMPTY
    (kept,) = shell.kept
    assert (kept.value.generation, kept.value.members, kept.value.protocol, kept.value.leader) == (2, [], None, None)
    assert kept.value.protocol_type == "consumer"
    assert kept.value.current_state_timestamp == shell.now_ms


def test_a_commit_is_a_sign_of_life(shell):
    (member_id,) = stable_group(shell)
    shell.advance(SESSION_MS - 1)
    shell.ask(commit(5, member_id=member_id, generation=1), 9)
    assert shell.timers[SessionTimer("g", member_id)] == shell.now_ms + SESSION_MS


def test_members_leave_at_once(shell):
    first, second, third = stable_group(shell, 3)
    answer = shell.ask(leave(first, "nobody", third), 5)
    assert answer.error_code == 0
    assert [member.error_code for member in answer.members] == [0, ErrorCode.UNKNOWN_MEMBER_ID, 0]
    assert shell.group().phase is Phase.PREPARING_REBALANCE
    assert SessionTimer("g", first) not in shell.timers
    assert shell.answers[shell.send(join(second), 9)].leader == second


@pytest.mark.parametrize("version", range(3))
def test_before_version_3_a_member_leaves_by_itself(shell, version):
    (member_id,) = stable_group(shell)
    asked = LeaveGroupRequest(group_id="g", member_id="nobody")
    assert shell.ask(asked, version).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    answer = shell.ask(LeaveGroupRequest(group_id="g", member_id=member_id), version)
    assert (answer.error_code, answer.members) == (0, [])
    assert shell.group().phase is Phase.EMPTY


def test_leaving_a_group_that_does_not_exist(shell):
    assert shell.ask(leave("x", group=""), 5).error_code == ErrorCode.INVALID_GROUP_ID
    answer = shell.ask(leave("x"), 5)
    assert (answer.error_code, answer.members[0].error_code) == (0, ErrorCode.UNKNOWN_MEMBER_ID)
    asked = LeaveGroupRequest(group_id="g", member_id="x")
    assert shell.ask(asked, 2).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_leaving_as_somebody_else_is_refused(shell):
    token = shell.send(join(instance="i"), 9)
    shell.advance(0)
    member_id = shell.answers[token].member_id
    asked = LeaveGroupRequest(
        group_id="g",
        members=[
            MemberIdentity(member_id="other", group_instance_id="i"),
            MemberIdentity(member_id=member_id, group_instance_id="j"),
        ],
    )
    errors = [member.error_code for member in shell.ask(asked, 5).members]
    assert errors == [ErrorCode.FENCED_INSTANCE_ID, ErrorCode.UNKNOWN_MEMBER_ID]
    assert member_id in shell.group().members


def test_a_member_that_leaves_while_it_waits_is_told_to_join_as_somebody_new(shell):
    first, second = stable_group(shell, 2)
    waiting = shell.send(join(first), 9)
    shell.ask(leave(first), 5)
    answer = shell.answers[waiting]
    assert (answer.error_code, answer.member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, "")
    assert shell.answers[shell.send(join(second), 9)].generation_id == 2


def test_an_error_in_one_rebalance_does_not_leak_into_the_next(shell):
    """Members that come and go at once: each knows its id, and no one else's error."""
    first, second, third = stable_group(shell, 3)
    shell.ask(leave(third), 5)
    joining = shell.send(join(second), 9)
    newcomer = shell.ask(join(), 9).member_id
    rejoining = shell.send(join(newcomer), 9)
    assert shell.ask(heartbeat(first, 1), 4).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert shell.ask(heartbeat(second, 1), 4).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert shell.ask(heartbeat(third, 1), 4).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    last = shell.send(join(first), 9)
    answers = [shell.answers[token] for token in (joining, rejoining, last)]
    assert [(answer.error_code, answer.generation_id) for answer in answers] == [(0, 2)] * 3
    assert [answer.member_id for answer in answers] == [second, newcomer, first]
    for member_id in (first, second, newcomer):
        assert shell.ask(heartbeat(member_id, 2), 4).error_code == 0
    assert shell.ask(heartbeat(first, 1), 4).error_code == ErrorCode.ILLEGAL_GENERATION
