"""ConsumerGroupHeartbeat: joining, staying, changing, and what is refused."""

from dataclasses import replace

import pytest

from headrace.coordinator.decision import Timer
from headrace.coordinator.group.consumer.kind import ConsumerGroups
from headrace.coordinator.group.consumer.state import GroupState
from headrace.coordinator.group.consumer.timers import MemberSessionTimer
from headrace.coordinator.group.settings import GroupSettings, SettingsChanged
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tests.unit.coordinator.group_consumer.harness import GROUP, SETTINGS, Shell, assigned, parts


def test_first_member_gets_everything_at_once():
    shell = Shell(orders=3, payments=2)
    response = shell.join("a", "orders", "payments")
    assert assigned(response) == {"orders": [0, 1, 2], "payments": [0, 1]}
    assert (response.member_id, response.member_epoch, response.heartbeat_interval_ms) == ("a", 1, 5_000)
    assert shell.written() == [
        "MemberMetadata",
        "Metadata",
        "TargetAssignmentMember",
        "TargetAssignmentMetadata",
        "CurrentMemberAssignment",
    ]
    assert shell.last.timers == (Timer(MemberSessionTimer(GROUP, "a"), 46_000),)
    assert shell.group.state is GroupState.STABLE


def test_old_clients_are_given_an_id_and_new_ones_bring_it():
    shell = Shell(orders=1)
    assert shell.join("", "orders", version=0).member_id == "fresh-1"
    refused = shell.join("", "orders", version=1)
    assert refused.error_code == ErrorCode.INVALID_REQUEST
    assert "MemberId" in refused.error_message


def test_a_heartbeat_that_says_nothing_new_writes_nothing():
    shell = Shell(orders=3)
    shell.join("a", "orders")
    shell.clock.advance(5_000)
    response = shell.beat("a", 1)
    assert assigned(response) is None
    assert response.member_epoch == 1
    assert shell.last.records == ()
    assert shell.last.timers == (Timer(MemberSessionTimer(GROUP, "a"), 51_000),)


def test_a_full_heartbeat_is_answered_with_the_assignment_again():
    shell = Shell(orders=3)
    shell.join("a", "orders")
    response = shell.beat(
        "a", 1, parts(orders=[0, 1, 2]), rebalance_timeout_ms=60_000, subscribed_topic_names=["orders"]
    )
    assert assigned(response) == {"orders": [0, 1, 2]}
    assert shell.last.records == ()


def test_a_changed_subscription_bumps_the_epoch():
    shell = Shell(orders=2, payments=2)
    shell.join("a", "orders")
    response = shell.beat("a", 1, subscribed_topic_names=["payments"])
    assert response.member_epoch == 1
    assert assigned(response) == {}  # it has to give up orders first
    response = shell.beat("a", 1, {})
    assert (response.member_epoch, assigned(response)) == (2, {"payments": [0, 1]})


def test_a_change_of_what_is_not_the_subscription_bumps_nothing():
    shell = Shell(orders=2)
    shell.join("a", "orders")
    response = shell.beat("a", 1, rack_id="b", rebalance_timeout_ms=7)
    assert response.member_epoch == 1
    assert shell.written() == ["MemberMetadata"]
    assert shell.group.members["a"].profile.rack_id == "b"


def test_more_partitions_and_new_topics_are_seen_at_the_next_heartbeat():
    shell = Shell(orders=2)
    shell.join("a", "orders", "later")
    shell.set_topics(orders=3, unrelated=9)
    assert assigned(shell.beat("a", 1)) == {"orders": [0, 1, 2]}
    shell.set_topics(orders=3, unrelated=9, later=1)
    response = shell.beat("a", 2)
    assert assigned(response) == {"later": [0], "orders": [0, 1, 2]}
    assert response.member_epoch == 3
    shell.set_topics(orders=3, unrelated=10, later=1)
    assert shell.beat("a", 3).member_epoch == 3
    assert shell.written() == []


def test_a_deleted_topic_is_taken_away():
    shell = Shell(orders=2, payments=1)
    shell.join("a", "orders", "payments")
    shell.set_topics(orders=2)
    assert assigned(shell.beat("a", 1)) == {"orders": [0, 1]}
    response = shell.beat("a", 1, parts(orders=[0, 1]))
    assert response.member_epoch == 2


def test_the_assignor_that_most_members_name_is_taken():
    shell = Shell(orders=4)
    shell.join("a", "orders", server_assignor="range")
    shell.join("b", "orders", server_assignor="range")
    shell.join("c", "orders", server_assignor="uniform")
    assert shell.group.targets == {"a": parts(orders=[0, 1]), "b": parts(orders=[2]), "c": parts(orders=[3])}


@pytest.mark.parametrize(
    ("fields", "code", "word"),
    [
        ({"group_id": " "}, ErrorCode.INVALID_REQUEST, "GroupId"),
        ({"instance_id": ""}, ErrorCode.INVALID_REQUEST, "InstanceId"),
        ({"rack_id": ""}, ErrorCode.INVALID_REQUEST, "RackId"),
        ({"member_epoch": -3}, ErrorCode.INVALID_REQUEST, "MemberEpoch"),
        ({"member_epoch": -2}, ErrorCode.INVALID_REQUEST, "InstanceId"),
        ({"member_epoch": 1, "member_id": ""}, ErrorCode.INVALID_REQUEST, "MemberId"),
        ({"rebalance_timeout_ms": -1}, ErrorCode.INVALID_REQUEST, "RebalanceTimeoutMs"),
        ({"topic_partitions": None}, ErrorCode.INVALID_REQUEST, "TopicPartitions"),
        ({"subscribed_topic_names": None}, ErrorCode.INVALID_REQUEST, "SubscribedTopicNames"),
        ({"server_assignor": "sticky"}, ErrorCode.UNSUPPORTED_ASSIGNOR, "uniform, range"),
        ({"subscribed_topic_regex": "(a"}, ErrorCode.INVALID_REGULAR_EXPRESSION, "missing )"),
    ],
)
def test_what_makes_no_sense_is_refused_in_a_sentence(fields, code, word):
    shell = Shell(orders=1)
    sound = {
        "group_id": GROUP,
        "member_id": "a",
        "member_epoch": 0,
        "rebalance_timeout_ms": 1_000,
        "subscribed_topic_names": ["orders"],
        "topic_partitions": [],
    }
    response = shell.ask(ConsumerGroupHeartbeatRequest(**{**sound, **fields}))
    assert response.error_code == code
    assert word in response.error_message
    assert shell.last.records == shell.last.timers == ()


def test_strangers_are_refused():
    shell = Shell(orders=1)
    assert shell.beat("a", 3).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert shell.beat("a", -1).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    shell.join("a", "orders")
    assert shell.beat("b", 1).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert shell.beat("b", -1).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_full_group_takes_nobody_but_its_members():
    shell = Shell(GroupSettings(group_consumer_max_size=1), orders=2)
    shell.join("a", "orders", instance_id="i")
    assert shell.join("b", "orders").error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert shell.join("a", "orders", instance_id="i").error_code == 0
    shell.beat("a", -2, instance_id="i")
    assert shell.join("c", "orders", instance_id="i").error_code == 0


def test_nothing_is_decided_before_the_topics_are_known():
    shell = Shell(orders=1)
    shell.join("a", "orders")
    shell.kind = shell.replayed().kind
    assert shell.beat("a", 1).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    shell.kind = ConsumerGroups(SETTINGS)


def test_a_member_without_topics_is_a_member():
    shell = Shell(orders=1)
    response = shell.join("a")
    assert (response.member_epoch, assigned(response)) == (1, {})
    assert shell.group.state is GroupState.STABLE


def test_a_group_with_settings_of_its_own_counts_by_them_from_the_next_heartbeat_on():
    shell = Shell(orders=1)
    epoch = shell.join("m1", "orders").member_epoch
    own = replace(shell.settings, group_consumer_session_timeout_ms=9_000, group_consumer_heartbeat_interval_ms=700)
    shell.run(SettingsChanged({GROUP: own, "another": shell.settings}))
    assert shell.beat("m1", epoch).heartbeat_interval_ms == 700
    assert shell.timers[MemberSessionTimer(GROUP, "m1")] == shell.clock.now_ms() + 9_000
    shell.run(SettingsChanged({}))
    assert shell.beat("m1", epoch).heartbeat_interval_ms == shell.settings.group_consumer_heartbeat_interval_ms
    shell.advance(9_001)
    assert "m1" in shell.group.members
