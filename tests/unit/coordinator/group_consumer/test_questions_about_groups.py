"""What others ask about consumer groups: descriptions, commits, listings, deletion; and what records do to a group."""

import pytest

from headrace.coordinator.decision import CoordinatorRecord
from headrace.coordinator.group import record_formats as log
from headrace.coordinator.group.consumer import facts
from headrace.coordinator.group.consumer.member import Holding, MemberState, Profile
from headrace.coordinator.group.kinds import CommitClaim, ExpiryRule, GroupKind, GroupListing
from headrace.coordinator.group.records import encode
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from tests.unit.coordinator.group_consumer.harness import GROUP, Shell, assigned, by_name, parts, topic_id


def claim(member_id="a", epoch=1, *, is_transactional=False, version=9):
    return CommitClaim(GROUP, member_id, None, epoch, is_transactional, version)


def described(shell):
    response = shell.ask(ConsumerGroupDescribeRequest(group_ids=[GROUP, "unknown"]))
    assert response.groups[1].error_code == ErrorCode.GROUP_ID_NOT_FOUND
    return response.groups[0]


def test_describe():
    shell = Shell(orders=2)
    shell.join("a", "orders", rack_id="r", instance_id="i")
    shell.join("b", subscribed_topic_regex="orders", server_assignor="range")
    group = described(shell)
    assert (group.group_state, group.group_epoch, group.assignment_epoch) == ("Reconciling", 2, 2)
    assert group.assignor_name == "range"
    first, second = group.members
    assert (first.member_id, first.instance_id, first.rack_id, first.member_epoch) == ("a", "i", "r", 1)
    assert (first.client_id, first.client_host, first.member_type) == ("client", "/127.0.0.1", 1)
    assert first.subscribed_topic_names == ["orders"]
    assert second.subscribed_topic_regex == "orders"
    has = [by_name((t.topic_id, t.partitions) for t in m.assignment.topic_partitions) for m in (first, second)]
    is_to_have = [
        by_name((t.topic_id, t.partitions) for t in m.target_assignment.topic_partitions) for m in (first, second)
    ]
    assert has == [{"orders": [0, 1]}, {}]
    assert is_to_have == [{"orders": [0]}, {"orders": [1]}]
    assert first.assignment.topic_partitions[0].topic_name == "orders"
    shell.set_topics(other=1)
    assert described(shell).members[0].assignment.topic_partitions == []


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        (claim(), ErrorCode.NONE),
        (claim(epoch=0), ErrorCode.STALE_MEMBER_EPOCH),
        (claim(epoch=2), ErrorCode.STALE_MEMBER_EPOCH),
        (claim(epoch=0, is_transactional=True, version=3), ErrorCode.ILLEGAL_GENERATION),
        (claim(is_transactional=True, version=3), ErrorCode.NONE),
        (claim(version=8), ErrorCode.UNSUPPORTED_VERSION),
        (claim("stranger"), ErrorCode.UNKNOWN_MEMBER_ID),
        (claim("", -1), ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_commits_are_checked_by_epoch(asked, code):
    shell = Shell(orders=2)
    shell.join("a", "orders")
    assert shell.kind.check_commit(asked) is code


def test_anybody_may_commit_to_a_group_without_members():
    shell = Shell(orders=2)
    shell.join("a", "orders")
    shell.beat("a", -1)
    assert shell.kind.check_commit(claim("", -1)) is ErrorCode.NONE
    assert shell.kind.check_commit(claim("a", 1)) is ErrorCode.UNKNOWN_MEMBER_ID


def test_fetches_are_checked_by_epoch_if_a_member_asks():
    shell = Shell(orders=2)
    shell.join("a", "orders")
    codes = [shell.kind.check_fetch(GROUP, *who) for who in ((None, -1), ("", -1), ("a", 1), ("a", 2), ("x", 1))]
    assert codes == [
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.UNKNOWN_MEMBER_ID,
    ]


def test_listing_and_other_questions():
    shell = Shell(orders=2)
    shell.join("a", "orders")
    kind: GroupKind = shell.kind
    assert list(kind.group_ids()) == [GROUP]
    assert kind.listing(GROUP) == GroupListing("Stable", "consumer")
    assert not kind.is_empty(GROUP)
    assert kind.check_offset_deletion(GROUP) is ErrorCode.NONE
    assert kind.is_subscribed(GROUP, "orders")
    assert kind.expiry(GROUP) == ExpiryRule()
    assert kind.session_timers(claim(), 0) == ()


def test_a_deleted_group_leaves_nothing():
    shell = Shell(orders=2)
    shell.join("a", "orders", subscribed_topic_regex="pay.*")
    records = shell.kind.tombstones(GROUP)
    assert {type(record.key) for record in records} <= shell.kind.record_keys
    for record in records:
        shell.kind.apply(record)
        shell.log.append(encode(record))
    assert not shell.kind.holds(GROUP)
    assert not shell.replayed().kind.holds(GROUP)
    assert shell.join("a", "orders").member_epoch == 1


def test_records_of_an_older_kafka_are_read_and_removed():
    shell = Shell(orders=2)
    shell.join("a", "orders")
    key = log.ConsumerGroupPartitionMetadataKey(group_id=GROUP)
    old = CoordinatorRecord(key, log.ConsumerGroupPartitionMetadataValue())
    shell.kind.apply(old)
    shell.log.append(encode(old))
    shell.join("b", "orders")
    assert "-PartitionMetadata" in shell.written()
    assert not shell.group.has_legacy_topics


def test_a_claim_read_late_does_not_take_a_partition_from_its_owner():
    """After compaction an old member's record may come first, and its release after the new owner's claim."""
    shell = Shell(orders=1)
    had = Holding(1, 0, MemberState.STABLE, parts(orders=[0]))
    for record in (
        facts.member_holding(GROUP, "old", had),
        facts.member_holding(GROUP, "new", had),
        facts.member_holding(GROUP, "old", Holding(2, 1)),
    ):
        shell.kind.apply(record)
    assert shell.group.owners == {(topic_id("orders"), 0): "new"}


def test_tombstones_of_what_is_not_known_are_passed_over():
    shell = Shell(orders=1)
    for record in facts.no_group(GROUP, ["a"], ["x.*"]):
        shell.kind.apply(record)
    assert not shell.kind.holds(GROUP)
    shell.join("a", "orders")
    for record in (*facts.no_member(GROUP, "stranger"), facts.no_expression(GROUP, "y")):
        shell.kind.apply(record)
    assert set(shell.group.members) == {"a"}


def test_records_come_back_as_they_were_made():
    profile = Profile("i", "r", "c", "/h", frozenset({"a", "b"}), "x.*", 7, "range")
    assert facts.read_profile(facts.member_profile(GROUP, "m", profile).value) == profile
    holding = Holding(4, 3, MemberState.UNREVOKED, parts(a=[1, 2]), parts(b=[0]))
    assert facts.read_holding(facts.member_holding(GROUP, "m", holding).value) == holding


def test_a_large_group_settles_in_a_few_heartbeats_each():
    shell = Shell(orders=100)
    shell.checks_replay = False
    clients = {f"m{number:02}": (0, {}) for number in range(50)}
    for member_id in clients:
        clients[member_id] = (shell.join(member_id, "orders").member_epoch, {})
    rounds = 0
    while shell.kind.listing(GROUP).state != "Stable":
        rounds += 1
        for member_id, (epoch, has) in clients.items():
            response = shell.beat(member_id, epoch, has)
            told = assigned(response)
            clients[member_id] = (response.member_epoch, has if told is None else parts(**told))
    assert rounds <= 4
    assert {sum(map(len, share.values())) for share in shell.group.targets.values()} == {2}
