"""A partition goes to its new owner only after the old one has given it up and said so."""

import pytest

from headrace.coordinator.group.consumer.member import Holding
from headrace.coordinator.group.consumer.membership import reconcile
from headrace.coordinator.group.consumer.state import GroupState
from headrace.coordinator.group.consumer.timers import MemberRebalanceTimer, MemberSessionTimer
from headrace.coordinator.group.heartbeats import MemberState, Refusal
from headrace.protocol.errors import ErrorCode
from tests.unit.coordinator.group_consumer.harness import GROUP, Shell, assigned, parts, topic_id


def test_a_newcomer_waits_for_what_others_still_have():
    shell = Shell(orders=4)
    shell.join("a", "orders")
    response = shell.join("b", "orders")
    assert (response.member_epoch, assigned(response)) == (2, {})
    assert shell.group.members["b"].holding.state is MemberState.UNRELEASED
    assert shell.group.state is GroupState.RECONCILING

    response = shell.beat("a", 1)  # it is told to give up two of four, and keeps its epoch
    assert (response.member_epoch, assigned(response)) == (1, {"orders": [0, 1]})
    assert shell.group.members["a"].holding.state is MemberState.UNREVOKED
    assert shell.written() == ["CurrentMemberAssignment"]
    assert shell.timers[MemberRebalanceTimer(GROUP, "a")] == 61_000

    assert assigned(shell.beat("b", 2)) is None  # still nothing
    assert shell.last.records == ()
    assert shell.beat("a", 1, parts(orders=[0, 1, 2])).member_epoch == 1  # one is not enough
    assert shell.last.records == ()

    response = shell.beat("a", 1, parts(orders=[0, 1]))
    assert (response.member_epoch, assigned(response)) == (2, None)
    assert MemberRebalanceTimer(GROUP, "a") not in shell.timers
    assert MemberSessionTimer(GROUP, "a") in shell.timers

    assert assigned(shell.beat("b", 2)) == {"orders": [2, 3]}
    assert shell.group.state is GroupState.STABLE


def test_who_does_not_give_up_in_time_is_removed():
    shell = Shell(orders=2)
    shell.join("a", "orders", rebalance_timeout_ms=9_000)
    shell.join("b", "orders")
    shell.beat("a", 1)
    for _ in range(2):
        assert shell.advance(4_000) == []
        assert shell.beat("a", 1, parts(orders=[0, 1])).error_code == 0
    assert shell.advance(1_000) == [MemberRebalanceTimer(GROUP, "a")]
    assert shell.written() == ["-CurrentMemberAssignment", "-TargetAssignmentMember", "-MemberMetadata", "Metadata"]
    assert shell.beat("a", 1, parts(orders=[0, 1])).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert assigned(shell.beat("b", 2)) == {"orders": [0, 1]}
    assert not any(key.member_id == "a" for key in shell.timers)


def test_a_new_target_does_not_interrupt_giving_up():
    shell = Shell(orders=4)
    shell.join("a", "orders")
    shell.join("b", "orders")
    shell.beat("a", 1)  # told to give up 2 and 3
    shell.beat("b", -1)  # b leaves, and a is to have all of it again
    assert assigned(shell.beat("a", 1, parts(orders=[0, 1, 2, 3]))) is None  # but it has been told, and has to
    response = shell.beat("a", 1, parts(orders=[0, 1]))
    assert (response.member_epoch, assigned(response)) == (3, {"orders": [0, 1, 2, 3]})


def test_a_member_one_epoch_behind_has_missed_an_answer():
    shell = Shell(orders=2)
    shell.join("a", "orders")
    shell.set_topics(orders=3)
    shell.beat("a", 1)  # the answer, with epoch 2 and a third partition, is lost
    assert shell.beat("a", 1).error_code == ErrorCode.FENCED_MEMBER_EPOCH  # it has to say what it has
    assert shell.beat("a", 1, parts(orders=[7])).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    response = shell.beat("a", 1, parts(orders=[0, 1]), rebalance_timeout_ms=60_000, subscribed_topic_names=["orders"])
    assert (response.member_epoch, assigned(response)) == (2, {"orders": [0, 1, 2]})


@pytest.mark.parametrize("epoch", [3, 9])
def test_a_member_in_another_epoch_is_fenced_and_may_join_again(epoch):
    shell = Shell(orders=2)
    shell.join("a", "orders")
    shell.set_topics(orders=3)
    shell.beat("a", 1)
    refused = shell.beat("a", epoch, parts(orders=[0, 1]))
    assert refused.error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert "join again" in refused.error_message
    assert shell.last.records == shell.last.timers == ()
    response = shell.join("a", "orders")
    assert (response.member_epoch, assigned(response)) == (2, {"orders": [0, 1, 2]})


def test_who_joins_again_has_nothing_to_give_up():
    shell = Shell(orders=2)
    shell.join("a", "orders")
    shell.join("b", "orders")
    shell.beat("a", 1)  # told to give up, and then starts over
    response = shell.join("a", "orders")
    assert (response.member_epoch, assigned(response)) == (2, {"orders": [0]})
    assert MemberRebalanceTimer(GROUP, "a") not in shell.timers
    assert assigned(shell.beat("b", 2)) == {"orders": [1]}


def test_a_state_of_a_newer_broker_is_fenced_until_the_member_has_nothing():
    holding = Holding(3, 2, MemberState(55), parts(orders=[0]))
    target = parts(orders=[0, 1])
    assert holding.state is MemberState.UNKNOWN
    for owned in (None, parts(orders=[0])):
        with pytest.raises(Refusal) as refusal:
            reconcile(holding, target, 4, owned, lambda *_: True)
        assert refusal.value.code is ErrorCode.FENCED_MEMBER_EPOCH
    assert reconcile(holding, target, 4, {}, lambda *_: True) == Holding(
        4, 3, MemberState.STABLE, target, since={(topic_id("orders"), 0): 3}
    )


def test_a_member_takes_what_is_free_and_waits_for_the_rest():
    holding = Holding(1, 0, MemberState.STABLE, parts(orders=[0]))
    step = reconcile(holding, parts(orders=[0, 1, 2]), 2, None, lambda _, partition: partition != 2)
    since = {(topic_id("orders"), 0): 1, (topic_id("orders"), 1): 2}
    assert step == Holding(2, 1, MemberState.UNRELEASED, parts(orders=[0, 1]), since=since)
    assert reconcile(step, parts(orders=[0, 1, 2]), 2, None, lambda _, partition: partition != 2) is step
