"""KIP-1251: a member may commit in an earlier epoch what it has had since then.

The harness reads every written record back after each decision, and so checks that the epochs survive a restart.
"""

import pytest

from headrace.coordinator.group import record_formats as log
from headrace.coordinator.group.consumer import facts
from headrace.coordinator.group.consumer.member import Holding, MemberState
from headrace.coordinator.group.kinds import CommitClaim
from headrace.model import TopicPartition
from headrace.protocol.errors import ErrorCode
from tests.unit.coordinator.group_consumer.harness import GROUP, Shell, parts, topic_id

FINE, STALE, ILLEGAL = ErrorCode.NONE, ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.ILLEGAL_GENERATION


def commit(shell, member_id, epoch, *numbers, topic="orders", is_transactional=False):
    claim = CommitClaim(GROUP, member_id, None, epoch, is_transactional, 9)
    return shell.kind.check_commit(claim, [TopicPartition(topic, number) for number in numbers])


def since(shell, member_id):
    return {number: epoch for (_, number), epoch in shell.group.members[member_id].holding.since.items()}


def shared():
    """Two members; the first has kept two of four partitions, and the second has got the others."""
    shell = Shell(orders=4, other=1)
    shell.join("a", "orders")
    shell.join("b", "orders")
    shell.beat("a", 1)
    shell.beat("a", 1, parts(orders=[0, 1]))
    shell.beat("b", 2)
    return shell


def test_what_is_kept_is_had_since_it_was_given():
    shell = shared()
    assert since(shell, "a") == {0: 1, 1: 1}
    assert since(shell, "b") == {2: 2, 3: 2}
    shell.restart()
    assert since(shell, "a") == {0: 1, 1: 1}
    shell.beat("b", -1)
    shell.beat("a", 2)
    assert since(shell, "a") == {0: 1, 1: 1, 2: 3, 3: 3}


@pytest.mark.parametrize(
    ("epoch", "numbers", "code"),
    [
        (2, (0, 1), FINE),
        (1, (0, 1), FINE),
        (1, (), FINE),
        (0, (0,), STALE),
        (3, (0,), STALE),
        (1, (0, 2), STALE),  # one that it has given up spoils the whole request
        (2, (0, 2), FINE),  # in its own epoch it may commit whatever it likes
    ],
)
def test_an_earlier_epoch_will_do_for_what_was_had_since_then(epoch, numbers, code):
    shell = shared()
    assert commit(shell, "a", epoch, *numbers) is code
    shell.restart()
    assert commit(shell, "a", epoch, *numbers) is code


def test_producers_are_told_of_a_generation():
    shell = shared()
    assert commit(shell, "a", 1, 0, is_transactional=True) is FINE
    assert commit(shell, "a", 1, 2, is_transactional=True) is ILLEGAL
    assert commit(shell, "a", 3, 0, is_transactional=True) is ILLEGAL


def test_other_topics_are_not_had():
    shell = shared()
    assert commit(shell, "a", 1, 0, topic="other") is STALE
    assert commit(shell, "a", 1, 0, topic="no-such-topic") is STALE


def test_a_topic_that_was_made_anew_is_another_one():
    shell = shared()
    shell.set_topics(other=1)
    assert commit(shell, "a", 1, 0) is STALE


def test_without_the_partitions_only_the_own_epoch_will_do():
    shell = shared()
    claims = {epoch: CommitClaim(GROUP, "a", None, epoch, is_transactional=False, version=9) for epoch in (1, 2)}
    assert shell.kind.check_commit(claims[1]) is STALE
    assert shell.kind.check_commit(claims[2]) is FINE


def test_what_is_being_given_up_may_still_be_committed():
    shell = Shell(orders=4)
    shell.join("a", "orders")
    shell.join("b", "orders")
    shell.beat("b", -1)
    shell.beat("a", 1)  # nothing has changed for it but the epoch
    shell.join("b", "orders")
    shell.beat("a", 3)
    holding = shell.group.members["a"].holding
    assert (holding.epoch, holding.revoking) == (3, parts(orders=[2, 3]))
    assert commit(shell, "a", 1, 0, 3) is FINE
    shell.restart()
    assert commit(shell, "a", 1, 0, 3) is FINE
    shell.beat("a", 3, parts(orders=[0, 1]))
    assert commit(shell, "a", 3, 0) is FINE
    assert commit(shell, "a", 3, 3) is STALE


def test_what_was_given_up_and_is_taken_again_counts_from_then():
    shell = Shell(orders=2)
    shell.join("a", "orders")
    shell.join("b", "orders")
    shell.beat("a", 1)  # told to give one up
    shell.beat("b", -1)
    assert shell.beat("a", 1, parts(orders=[0])).member_epoch == 3  # it gives it up, and may have it again at once
    assert since(shell, "a") == {0: 1, 1: 3}
    assert commit(shell, "a", 1, 0) is FINE
    assert commit(shell, "a", 1, 1) is STALE


def test_whoever_comes_back_for_a_static_member_has_its_partitions_since_ever():
    shell = Shell(orders=2)
    shell.join("a", "orders", instance_id="i")
    shell.beat("a", -2, instance_id="i")
    assert since(shell, "a") == {0: 0, 1: 0}
    assert commit(shell, "a", 1, 0) is STALE  # it has left
    shell.join("a2", "orders", instance_id="i")
    assert since(shell, "a2") == {0: 0, 1: 0}


def test_who_joins_again_has_what_it_keeps_since_it_first_got_it():
    shell = shared()
    shell.join("a", "orders")
    assert since(shell, "a") == {0: 1, 1: 1}


@pytest.mark.parametrize("epochs", [None, [7]])
def test_records_without_epochs_mean_the_epoch_of_the_member(epochs):
    held = [log.TopicPartitions(topic_id=topic_id("orders"), partitions=[0, 1], assignment_epochs=epochs)]
    value = log.ConsumerGroupCurrentMemberAssignmentValue(member_epoch=5, previous_member_epoch=4)
    value.assigned_partitions = held
    assert facts.read_holding(value) == Holding(5, 4, MemberState.STABLE, parts(orders=[0, 1]))
    assert set(facts.read_holding(value).since.values()) == {5}
    value.member_epoch = -2
    assert set(facts.read_holding(value).since.values()) == {0}


def test_records_come_back_with_their_epochs():
    a, b = topic_id("a"), topic_id("b")
    epochs = {(a, 1): 2, (a, 2): 4, (b, 0): 3}
    holding = Holding(4, 3, MemberState.UNREVOKED, parts(a=[2, 1]), parts(b=[0]), epochs)
    value = facts.member_holding(GROUP, "m", holding).value
    assert value.assigned_partitions[0].assignment_epochs == [2, 4]
    assert value.partitions_pending_revocation[0].assignment_epochs == [3]
    assert facts.read_holding(value) == holding


def test_epochs_are_of_what_is_held_and_nothing_else():
    holding = Holding(4, 3, MemberState.STABLE, parts(a=[0]), since={(topic_id("a"), 0): 2, (topic_id("b"), 0): 1})
    assert holding.since == {(topic_id("a"), 0): 2}
