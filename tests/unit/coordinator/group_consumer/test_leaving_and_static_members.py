"""Leaving, sessions that end, and static members that come back."""

from headrace.coordinator.group.consumer.state import GroupState
from headrace.coordinator.group.consumer.timers import MemberSessionTimer
from headrace.protocol.errors import ErrorCode
from tests.unit.coordinator.group_consumer.harness import GROUP, Shell, assigned, parts


def test_leaving_frees_the_partitions_for_the_next_who_is_heard_of():
    shell = Shell(orders=2)
    shell.join("a", "orders")
    shell.join("b", "orders")
    response = shell.beat("a", -1)
    assert (response.member_id, response.member_epoch, response.error_code) == ("a", -1, 0)
    assert shell.written() == ["-CurrentMemberAssignment", "-TargetAssignmentMember", "-MemberMetadata", "Metadata"]
    assert shell.timers.keys() == {MemberSessionTimer(GROUP, "b")}
    assert shell.group.state is GroupState.ASSIGNING
    assert assigned(shell.beat("b", 2)) == {"orders": [0, 1]}


def test_the_last_one_leaves_an_empty_group():
    shell = Shell(orders=2)
    shell.join("a", "orders")
    shell.beat("a", -1)
    assert shell.group.state is GroupState.EMPTY
    assert (shell.group.epoch, shell.group.targets, shell.group.owners) == (2, {}, {})
    assert shell.timers == {}
    assert shell.join("b", "orders").member_epoch == 3


def test_a_session_ends():
    shell = Shell(orders=2)
    shell.join("a", "orders")
    shell.advance(40_000)
    shell.join("b", "orders")
    assert shell.advance(5_000) == [MemberSessionTimer(GROUP, "a")]
    assert set(shell.group.members) == {"b"}
    assert assigned(shell.beat("b", 2)) == {"orders": [0, 1]}


def test_every_member_has_a_session_after_a_restart():
    shell = Shell(orders=2)
    shell.join("a", "orders", rebalance_timeout_ms=7_000)
    shell.join("b", "orders")
    shell.beat("a", 1)  # it is to give up a partition
    shell.clock.advance(1_000_000)
    shell.restart()
    waiting = {type(key).__name__: at_ms - shell.clock.now_ms() for key, at_ms in shell.timers.items()}
    assert waiting == {"MemberSessionTimer": 45_000, "MemberRebalanceTimer": 7_000}
    assert len(shell.timers) == 3
    assert shell.beat("a", 1, parts(orders=[0])).member_epoch == 2
    assert shell.written() == ["CurrentMemberAssignment"]


def test_a_static_member_keeps_its_place_while_it_is_away():
    shell = Shell(orders=2)
    shell.join("a", "orders", instance_id="i")
    shell.join("b", "orders")
    shell.join("b", "orders")
    shell.beat("a", 1, instance_id="i")
    shell.beat("a", 1, parts(orders=[0]), instance_id="i")
    shell.beat("b", 2)
    before = shell.timers[MemberSessionTimer(GROUP, "a")]
    response = shell.beat("a", -2, instance_id="i")
    assert (response.member_id, response.member_epoch) == ("a", -2)
    assert shell.written() == ["CurrentMemberAssignment"]
    assert shell.timers[MemberSessionTimer(GROUP, "a")] == before
    assert assigned(shell.beat("b", 2)) is None

    response = shell.join("c", "orders", instance_id="i")
    assert (response.member_epoch, assigned(response)) == (2, {"orders": [0]})
    assert shell.written() == [
        "-CurrentMemberAssignment",
        "-TargetAssignmentMember",
        "-MemberMetadata",
        "MemberMetadata",
        "TargetAssignmentMember",
        "CurrentMemberAssignment",
        "CurrentMemberAssignment",
    ]
    assert shell.group.epoch == 2  # nobody else notices
    assert shell.timers.keys() == {MemberSessionTimer(GROUP, "b"), MemberSessionTimer(GROUP, "c")}
    assert shell.beat("a", 2, instance_id="i").error_code == ErrorCode.FENCED_INSTANCE_ID


def test_a_static_member_that_stays_away_is_removed():
    shell = Shell(orders=2)
    shell.join("a", "orders", instance_id="i")
    shell.beat("a", -2, instance_id="i")
    shell.advance(45_000)
    assert shell.group.state is GroupState.EMPTY
    assert shell.group.instances == {}


def test_an_instance_id_in_use_is_not_given_away():
    shell = Shell(orders=2)
    shell.join("a", "orders", instance_id="i")
    refused = shell.join("b", "orders", instance_id="i")
    assert refused.error_code == ErrorCode.UNRELEASED_INSTANCE_ID
    assert shell.last.records == ()
    # Its owner may start over, as after an answer that was lost.
    assert assigned(shell.join("a", "orders", instance_id="i")) == {"orders": [0, 1]}


def test_static_members_are_known_by_both_ids():
    shell = Shell(orders=2)
    shell.join("a", "orders", instance_id="i")
    assert shell.beat("a", 1, instance_id="j").error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert shell.beat("b", 1, instance_id="i").error_code == ErrorCode.FENCED_INSTANCE_ID
    assert shell.beat("b", -2, instance_id="i").error_code == ErrorCode.FENCED_INSTANCE_ID
    assert shell.beat("a", -1, instance_id="i").member_epoch == -1
    assert shell.group.state is GroupState.EMPTY


def test_a_static_member_that_comes_back_with_another_subscription():
    shell = Shell(orders=2, payments=1)
    shell.join("a", "orders", instance_id="i")
    shell.beat("a", -2, instance_id="i")
    response = shell.join("b", "payments", instance_id="i")
    assert (response.member_epoch, assigned(response)) == (2, {"payments": [0]})
    assert set(shell.group.members) == {"b"}


def test_a_timer_for_somebody_who_is_gone_does_nothing():
    shell = Shell(orders=2)
    shell.join("a", "orders")
    shell.timers[MemberSessionTimer(GROUP, "stranger")] = shell.clock.now_ms()
    shell.timers[MemberSessionTimer("no group", "a")] = shell.clock.now_ms()
    assert len(shell.advance(0)) == 2
    assert shell.last.records == ()
