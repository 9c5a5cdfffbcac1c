"""Static membership (KIP-345): a restart is no rebalance, and the former self is fenced."""

import pytest

from headrace.coordinator.group.classic.state import Phase, SessionTimer
from headrace.protocol.errors import ErrorCode
from tests.group_requests import REBALANCE_MS, SESSION_MS, commit, heartbeat, join, leave, settle, sync
from tests.group_shell import GroupShell


@pytest.fixture
def shell():
    return GroupShell()


def static_group(shell, *instances):
    tokens = [shell.send(join(instance=instance), 9) for instance in instances]
    shell.advance(0)
    members = [shell.answers[token].member_id for token in tokens]
    settle(shell, *members)
    return members


def test_a_static_member_is_let_in_at_once_and_has_its_name_in_its_id(shell):
    (member_id,) = static_group(shell, "i")
    assert member_id.startswith("i-")
    assert shell.group().members[member_id].instance_id == "i"


def test_a_restarted_follower_gets_its_place_back_without_a_rebalance(shell):
    leader, follower = static_group(shell, "i", "j")
    answer = shell.ask(join(instance="j"), 9)
    assert (answer.error_code, answer.generation_id, answer.leader, answer.members) == (0, 1, leader, [])
    assert not answer.skip_assignment
    (kept,) = shell.kept
    assert {member.member_id for member in kept.value.members} == {leader, answer.member_id}
    assert SessionTimer("g", follower) not in shell.timers
    assert shell.ask(sync(answer.member_id, 1, instance="j"), 5).assignment == follower.encode()
    assert shell.ask(heartbeat(leader, 1, instance="i"), 4).error_code == 0


def test_a_restarted_leader_is_told_to_skip_the_assignment(shell):
    leader, follower = static_group(shell, "i", "j")
    answer = shell.ask(join(instance="i"), 9)
    assert answer.skip_assignment
    assert answer.leader == answer.member_id != leader
    assert {member.member_id for member in answer.members} == {answer.member_id, follower}


def test_before_version_9_a_restarted_leader_believes_to_be_a_follower(shell):
    leader, _ = static_group(shell, "i", "j")
    answer = shell.ask(join(instance="i"), 8)
    assert (answer.leader, answer.members, answer.skip_assignment) == (leader, [], False)
    assert shell.group().leader == answer.member_id


def test_the_former_self_is_fenced(shell):
    (former,) = static_group(shell, "i")
    shell.ask(join(instance="i"), 9)
    fenced = ErrorCode.FENCED_INSTANCE_ID
    assert shell.ask(heartbeat(former, 1, instance="i"), 4).error_code == fenced
    assert shell.ask(sync(former, 1, instance="i"), 5).error_code == fenced
    assert shell.ask(join(former, instance="i"), 9).error_code == fenced
    asked = commit(5, member_id=former, generation=1, group_instance_id="i")
    assert shell.ask(asked, 9).topics[0].partitions[0].error_code == fenced
    assert shell.ask(heartbeat(former, 1), 4).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_former_self_that_waits_is_fenced_at_once(shell):
    static_group(shell, "i", "j")
    first, second = shell.group().members
    waiting = shell.send(join(first, instance="i"), 9)
    assert waiting not in shell.answers
    again = shell.send(join(instance="i"), 9)
    assert shell.answers[waiting].error_code == ErrorCode.FENCED_INSTANCE_ID
    other = shell.send(join(second, instance="j"), 9)
    assert {shell.answers[token].generation_id for token in (again, other)} == {2}


def test_a_restart_between_join_and_sync_is_a_rebalance(shell):
    tokens = [shell.send(join(instance=instance), 9) for instance in ("i", "j")]
    shell.advance(0)
    first, second = (shell.answers[token].member_id for token in tokens)
    waiting = shell.send(sync(second, 1, instance="j"), 5)
    again = shell.send(join(instance="i"), 9)
    assert shell.answers[waiting].error_code == ErrorCode.REBALANCE_IN_PROGRESS
    other = shell.send(join(second, instance="j"), 9)
    assert shell.answers[again].generation_id == shell.answers[other].generation_id == 2
    assert first not in shell.group().members


def test_a_restart_with_another_protocol_is_a_rebalance(shell):
    tokens = [shell.send(join(instance=i, protocols=("range", "sticky")), 9) for i in ("i", "j")]
    shell.advance(0)
    first, _ = members = [shell.answers[token].member_id for token in tokens]
    settle(shell, *members)
    token = shell.send(join(instance="j", protocols=("sticky",)), 9)
    assert token not in shell.answers
    assert shell.ask(heartbeat(first, 1, instance="i"), 4).error_code == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_static_member_that_is_away_keeps_its_place_through_a_rebalance(shell):
    members = [
        shell.answers[token].member_id
        for token in [shell.send(join(instance=i, session_ms=600_000), 9) for i in ("i", "j")]
        if not shell.advance(0)
    ]
    settle(shell, *members)
    first, away = members
    again = shell.send(join(first, instance="i", session_ms=600_000), 9)
    assert again not in shell.answers
    shell.advance(REBALANCE_MS)
    assert {member.member_id for member in shell.answers[again].members} == {first, away}


def test_a_rebalance_waits_as_long_as_only_members_that_are_away_are_left(shell):
    tokens = [shell.send(join(instance=i, session_ms=200_000), 9) for i in ("i", "j")]
    shell.advance(0)
    first, _ = members = [shell.answers[token].member_id for token in tokens]
    settle(shell, *members)
    shell.ask(leave(first), 5)
    shell.advance(REBALANCE_MS)
    assert shell.group().phase is Phase.PREPARING_REBALANCE, "nobody has joined who could lead"
    shell.advance(200_000)
    assert shell.group().phase is Phase.EMPTY


def test_a_static_member_can_be_removed_by_its_name(shell):
    _, second = static_group(shell, "i", "j")
    answer = shell.ask(leave(instances=["j", "k"]), 5)
    assert [(member.group_instance_id, member.error_code) for member in answer.members] == [
        ("j", 0),
        ("k", ErrorCode.UNKNOWN_MEMBER_ID),
    ]
    assert second not in shell.group().members


def test_a_static_member_keeps_its_place_through_a_restart_of_the_coordinator(shell):
    _, follower = static_group(shell, "i", "j")
    shell.restart()
    answer = shell.ask(join(instance="j"), 9)
    assert (answer.error_code, answer.generation_id) == (0, 1)
    assert shell.ask(sync(answer.member_id, 1, instance="j"), 5).assignment == follower.encode()


def test_a_static_member_that_stays_away_too_long_is_removed(shell):
    first, second = static_group(shell, "i", "j")
    shell.advance(SESSION_MS - 1)
    shell.ask(heartbeat(first, 1, instance="i"), 4)
    shell.advance(1)
    assert second not in shell.group().members
