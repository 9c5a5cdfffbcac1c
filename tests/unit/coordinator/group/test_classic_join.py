"""JoinGroup: who is let in, and when a generation is complete."""

import pytest

from headrace.coordinator.decision import Timer
from headrace.coordinator.group.classic.join import NEW_MEMBER_TIMEOUT_MS
from headrace.coordinator.group.classic.state import JoinTimer, Phase, SessionTimer, SyncTimer
from headrace.coordinator.group.settings import GroupSettings
from headrace.protocol.errors import ErrorCode
from tests.group_requests import REBALANCE_MS, SESSION_MS, heartbeat, join, leave, settle, stable_group, subscription
from tests.group_shell import GroupShell


@pytest.fixture
def shell():
    return GroupShell()


def test_a_new_member_is_given_an_id_and_has_to_come_back_with_it(shell):
    answer = shell.ask(join(), 4)
    assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert answer.member_id == "client-fresh1"
    assert shell.last.timers == (Timer(SessionTimer("g", "client-fresh1"), shell.now_ms + SESSION_MS),)
    (kept,) = shell.kept
    assert (kept.value.generation, kept.value.members, kept.value.protocol_type) == (0, [], "")

    token = shell.send(join("client-fresh1"), 4)
    assert token not in shell.answers, "the first rebalance waits for more members"
    assert dict(shell.last.timers) == {
        SessionTimer("g", "client-fresh1"): shell.now_ms + NEW_MEMBER_TIMEOUT_MS,
        JoinTimer("g"): shell.now_ms,
    }
    shell.advance(0)
    assert shell.answers[token].generation_id == 1
    assert shell.answers[token].leader == shell.answers[token].member_id == "client-fresh1"
    assert [member.metadata for member in shell.answers[token].members] == [subscription("t")]
    assert shell.timers[SessionTimer("g", "client-fresh1")] == shell.now_ms + SESSION_MS
    assert shell.timers[SyncTimer("g", 1)] == shell.now_ms + REBALANCE_MS


@pytest.mark.parametrize("version", range(4))
def test_before_version_4_a_member_is_let_in_at_once(shell, version):
    token = shell.send(join(), version)
    shell.advance(0)
    assert shell.answers[token].error_code == 0
    assert shell.group().members["client-fresh1"].rebalance_timeout_ms == (SESSION_MS if version == 0 else REBALANCE_MS)


def test_an_id_that_does_not_come_back_is_forgotten_and_holds_up_the_others_no_longer(shell):
    (member_id,) = stable_group(shell)
    shell.ask(join(), 9)
    rejoined = shell.send(join(member_id), 9)
    assert rejoined not in shell.answers
    for _ in range(4):
        shell.advance(SESSION_MS // 4)
    assert shell.answers[rejoined].generation_id == 2
    assert shell.group().pending_joins == frozenset()


def test_an_id_that_was_given_out_can_be_given_back(shell):
    (member_id,) = stable_group(shell)
    asked = shell.ask(join(), 9).member_id
    rejoined = shell.send(join(member_id), 9)
    assert shell.ask(leave(asked), 5).members[0].error_code == 0
    assert shell.answers[rejoined].generation_id == 2
    assert SessionTimer("g", asked) not in shell.timers


def test_leaving_with_an_id_that_never_joined_disturbs_nobody(shell):
    (member_id,) = stable_group(shell)
    asked = shell.ask(join(), 9).member_id
    shell.ask(leave(asked), 5)
    assert shell.ask(heartbeat(member_id, 1), 4).error_code == 0


def test_the_first_rebalance_is_prolonged_while_members_come():
    shell = GroupShell(GroupSettings(group_initial_rebalance_delay_ms=3_000))
    first = shell.send(join(rebalance_ms=7_000), 3)
    shell.advance(2_999)
    second = shell.send(join(rebalance_ms=7_000), 3)
    shell.advance(1)
    assert first not in shell.answers
    shell.advance(2_999)
    third = shell.send(join(rebalance_ms=7_000), 3)
    shell.advance(1)
    assert third not in shell.answers
    shell.advance(1_000)  # never longer than the rebalance timeout
    assert {shell.answers[token].generation_id for token in (first, second, third)} == {1}
    assert len(shell.group().members) == 3


def test_a_group_that_was_left_alone_completes_after_one_delay():
    shell = GroupShell(GroupSettings(group_initial_rebalance_delay_ms=3_000))
    token = shell.send(join(), 3)
    shell.advance(2_999)
    assert token not in shell.answers
    shell.advance(1)
    assert shell.answers[token].generation_id == 1


def test_only_the_leader_learns_of_all_members(shell):
    tokens = [shell.send(join(), 3, client_id=f"c{number}") for number in range(3)]
    shell.advance(0)
    answers = [shell.answers[token] for token in tokens]
    leader = answers[0].leader
    assert {answer.leader for answer in answers} == {leader}
    assert [len(answer.members) for answer in answers if answer.member_id == leader] == [3]
    assert [answer.members for answer in answers if answer.member_id != leader] == [[], []]


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        (join(group=""), ErrorCode.INVALID_GROUP_ID),
        (join(session_ms=5_999), ErrorCode.INVALID_SESSION_TIMEOUT),
        (join(session_ms=1_800_001), ErrorCode.INVALID_SESSION_TIMEOUT),
        (join("nobody"), ErrorCode.UNKNOWN_MEMBER_ID),
        (join(protocols=()), ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        (join(protocol_type=""), ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    ],
)
def test_what_is_refused_of_a_group_that_does_not_exist(shell, asked, error):
    answer = shell.ask(asked, 9)
    assert (answer.error_code, answer.member_id) == (error, asked.member_id)


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        (join("nobody"), ErrorCode.UNKNOWN_MEMBER_ID),
        (join("nobody", instance="i"), ErrorCode.UNKNOWN_MEMBER_ID),
        (join(protocols=("sticky",)), ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        (join(protocol_type="connect"), ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    ],
)
def test_what_is_refused_of_a_stable_group(shell, asked, error):
    (member_id,) = stable_group(shell)
    assert shell.ask(asked, 9).error_code == error
    assert shell.ask(heartbeat(member_id, 1), 4).error_code == 0, "the others are not disturbed"


def test_the_protocol_that_most_members_prefer_is_chosen_of_those_that_all_speak(shell):
    tokens = [
        shell.send(join(protocols=protocols), 3)
        for protocols in (("roundrobin", "range"), ("sticky", "range", "roundrobin"), ("roundrobin", "range"))
    ]
    shell.advance(0)
    assert {shell.answers[token].protocol_name for token in tokens} == {"roundrobin"}


def test_a_member_that_joins_makes_the_others_join_again(shell):
    (first,) = stable_group(shell)
    asked = shell.ask(join(), 9).member_id
    assert shell.ask(heartbeat(first, 1), 4).error_code == 0, "nobody is disturbed before it comes back"
    second = shell.send(join(asked), 9)
    assert shell.group().phase is Phase.PREPARING_REBALANCE
    assert shell.ask(heartbeat(first, 1), 4).error_code == ErrorCode.REBALANCE_IN_PROGRESS

    again = shell.send(join(first), 9)
    assert {shell.answers[token].generation_id for token in (again, second)} == {2}
    assert shell.answers[again].leader == first
    assert [answer.assignment for answer in settle(shell, first, asked)] == [asked.encode(), first.encode()]


def test_members_that_do_not_join_again_in_time_are_removed(shell):
    first, second = stable_group(shell, 2)
    again = shell.send(join(second, topics=("u",)), 9)
    for _ in range(6):
        shell.advance(REBALANCE_MS // 6)
        if first in shell.group().members:
            shell.ask(heartbeat(first, 1), 4)
    answer = shell.answers[again]
    assert (answer.generation_id, answer.leader) == (2, second)
    assert [member.member_id for member in answer.members] == [second]
    assert shell.ask(heartbeat(first, 1), 4).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert SessionTimer("g", first) not in shell.timers


def test_a_member_that_times_out_while_the_group_prepares_is_waited_for_no_longer(shell):
    _, second = stable_group(shell, 2)
    again = shell.send(join(second, topics=("u",)), 9)
    shell.advance(SESSION_MS)
    assert shell.answers[again].generation_id == 2
    assert list(shell.group().members) == [second]


def test_a_new_member_whose_client_is_gone_does_not_stay_for_ever(shell):
    first, second = stable_group(shell, 2, rebalance_ms=3 * NEW_MEMBER_TIMEOUT_MS)
    asked = shell.ask(join(), 9).member_id
    token = shell.send(join(asked), 9)
    for _ in range(2 * NEW_MEMBER_TIMEOUT_MS // SESSION_MS):
        shell.advance(SESSION_MS // 2)
        shell.ask(heartbeat(first, 1), 4)
        shell.ask(heartbeat(second, 1), 4)
    assert shell.answers[token].error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert asked not in shell.group().members


def test_whoever_asks_twice_is_answered_twice(shell):
    (first, _) = stable_group(shell, 2)
    lost = shell.send(join(first), 9)
    again = shell.send(join(first), 9)
    assert shell.answers[lost].error_code == ErrorCode.REBALANCE_IN_PROGRESS
    shell.advance(SESSION_MS)
    assert shell.answers[again].generation_id == 2


def test_an_answer_that_was_lost_is_given_again(shell):
    tokens = [shell.send(join(), 3) for _ in range(2)]
    shell.advance(0)
    for token in tokens:
        answer = shell.answers[token]
        assert shell.ask(join(answer.member_id), 9) == answer
        assert shell.last.records == ()


def test_a_follower_that_joins_a_stable_group_unchanged_disturbs_nobody(shell):
    first, second = stable_group(shell, 2)
    answer = shell.ask(join(second), 9)
    assert (answer.error_code, answer.generation_id, answer.leader, answer.members) == (0, 1, first, [])
    changed = shell.send(join(second, topics=("u",)), 9)
    assert changed not in shell.answers
    assert shell.ask(heartbeat(first, 1), 4).error_code == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_leader_that_joins_a_stable_group_starts_a_rebalance(shell):
    first, second = stable_group(shell, 2)
    shell.send(join(first), 9)
    assert shell.ask(heartbeat(second, 1), 4).error_code == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_group_takes_no_more_members_than_allowed():
    shell = GroupShell(GroupSettings(group_initial_rebalance_delay_ms=0, group_max_size=2))
    stable_group(shell, 2)
    answer = shell.ask(join(), 9)
    assert (answer.error_code, answer.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "")


def test_a_group_that_has_become_too_large_loses_the_last_to_come_back(shell):
    members = stable_group(shell, 3)
    shell.settings = GroupSettings(group_initial_rebalance_delay_ms=0, group_max_size=2)
    shell.restart()
    assert shell.group().phase is Phase.PREPARING_REBALANCE
    tokens = [shell.send(join(member_id), 9) for member_id in members]
    assert shell.answers[tokens[2]].error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    shell.advance(REBALANCE_MS)
    assert {shell.answers[token].generation_id for token in tokens[:2]} == {2}


def test_members_come_back_to_a_restarted_coordinator(shell):
    first, second = stable_group(shell, 2)
    shell.restart()
    assert shell.timers[SessionTimer("g", first)] == shell.now_ms + SESSION_MS
    assert shell.ask(heartbeat(first, 1), 4).error_code == 0
    shell.advance(SESSION_MS - 1)
    shell.ask(heartbeat(first, 1), 4)
    shell.advance(1)
    assert list(shell.group().members) == [first], "the second was not heard of"
    assert second not in shell.group().members
