"""A group whose members change from the classic to the new protocol, one after another, and back."""

import pytest

from headrace.coordinator.decision import RequestToken
from headrace.coordinator.group.classic.kind import ClassicGroups
from headrace.coordinator.group.classic.state import JoinTimer, Phase, SessionTimer
from headrace.coordinator.group.consumer.embedded import (
    EmbeddedSubscription,
    NamedPartitions,
    read_assignment,
    write_assignment,
)
from headrace.coordinator.group.consumer.kind import ConsumerGroups
from headrace.coordinator.group.consumer.timers import (
    MemberRejoinTimer,
    MemberSessionTimer,
    MemberSyncTimer,
)
from headrace.coordinator.group.events import Request
from headrace.coordinator.group.kinds import CommitClaim
from headrace.coordinator.group.settings import GroupSettings
from headrace.coordinator.group.topics import TopicsChanged
from headrace.protocol import codec
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from headrace.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from headrace.protocol.messages.heartbeat import HeartbeatRequest
from headrace.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from headrace.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from headrace.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.unit.coordinator.group_consumer.harness import GROUP, Shell, assigned, by_name, parts

SETTINGS = GroupSettings(group_initial_rebalance_delay_ms=0)


class BothKinds(ConsumerGroups):
    """Consumer groups with classic ones beside them, as the coordinator has them."""

    def __init__(self, settings):
        super().__init__(settings)
        self.classic = ClassicGroups(settings)

    def decide(self, event, now_ms):
        group_id = getattr(getattr(event, "message", None), "group_id", None)
        if isinstance(event, Request) and self.classic.holds(group_id):
            if isinstance(event.message, ConsumerGroupHeartbeatRequest):
                return self.upgrade(event, self.classic.group(group_id), now_ms)
            return self.classic.decide(event, now_ms)
        if isinstance(event, Request) and not self.holds(group_id) and isinstance(event.message, JoinGroupRequest):
            return self.classic.decide(event, now_ms)
        if type(getattr(event, "key", None)) in self.classic.timer_keys:
            return self.classic.decide(event, now_ms)
        return super().decide(event, now_ms)

    def apply(self, record):
        if type(record.key) in self.classic.record_keys:
            self.classic.apply(record)
        else:
            super().apply(record)


class MixedShell(Shell):
    def __init__(self, settings=SETTINGS, **topics):
        super().__init__(settings, **topics)
        self.kind = BothKinds(settings)
        self.run(TopicsChanged(self.topics))
        self.waiting = {}

    def ask_and_wait(self, message, version):
        """Ask; the answer may come later. All answers so far, by request."""
        self.fresh += 1
        self.run(Request(RequestToken(self.fresh), message, version, "client", "/h", f"fresh-{self.fresh}"))
        for answer in self.last.answers:
            self.waiting[answer.to] = answer.response
        return self.fresh

    def classic_join(self, member_id, *topics, owned=None, instance_id=None, protocol="range", session_ms=10_000):
        subscription = EmbeddedSubscription(
            topics=list(topics),
            owned_partitions=[NamedPartitions(topic=t, partitions=p) for t, p in (owned or {}).items()],
        )
        metadata = b"\0\1" + codec.encode(subscription, 1)
        message = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=30_000,
            member_id=member_id,
            group_instance_id=instance_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name=protocol, metadata=metadata)],
        )
        token = self.ask_and_wait(message, 5)
        return self.waiting.get(token, token)

    def classic_sync(self, member_id, generation, **others):
        assignments = [SyncGroupRequestAssignment(member_id=m, assignment=a) for m, a in others.items()]
        message = SyncGroupRequest(
            group_id=GROUP,
            generation_id=generation,
            member_id=member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=assignments,
        )
        token = self.ask_and_wait(message, 5)
        return self.waiting.get(token, token)

    def classic_beat(self, member_id, generation):
        message = HeartbeatRequest(group_id=GROUP, generation_id=generation, member_id=member_id)
        return ErrorCode(self.ask(message, 4).error_code)

    def synced(self, member_id, generation):
        response = self.classic_sync(member_id, generation)
        assert response.error_code == 0, ErrorCode(response.error_code)
        return by_name(read_assignment(response.assignment, self.topics).items())


def stable_classic_group(shell, *topics):
    """One classic member with all partitions; its id and its generation."""
    member_id = shell.classic_join("", *topics).member_id  # MEMBER_ID_REQUIRED
    token = shell.classic_join(member_id, *topics)
    shell.advance(0)
    joined = token if not isinstance(token, int) else shell.last.answers[0].response
    everything = {t.topic_id: frozenset(range(t.partition_count)) for t in shell.topics.by_name.values()}
    share = write_assignment(everything, shell.topics, 1)
    assert shell.classic_sync(member_id, joined.generation_id, **{member_id: share}).error_code == 0
    assert shell.kind.classic.group(GROUP).phase is Phase.STABLE
    return member_id, joined.generation_id


def test_online_upgrade_and_downgrade():
    shell = MixedShell(orders=4)
    old, generation = stable_classic_group(shell, "orders")

    response = shell.join("new", "orders")
    assert not shell.kind.classic.holds(GROUP)
    assert (response.member_epoch, assigned(response)) == (generation + 1, {})
    assert shell.written()[0] == "-GroupMetadata"
    assert shell.timers.keys() == {MemberSessionTimer(GROUP, old), MemberSessionTimer(GROUP, "new")}
    assert [m.member_type for m in shell.ask(ConsumerGroupDescribeRequest(group_ids=[GROUP])).groups[0].members] == [
        0,
        1,
    ]

    # The classic member goes on as it did, is told to join again, and gives up what it shall not have.
    assert shell.classic_beat(old, generation) is ErrorCode.REBALANCE_IN_PROGRESS
    joined = shell.classic_join(old, "orders", owned={"orders": [0, 1, 2, 3]})
    assert (joined.error_code, joined.generation_id, joined.protocol_name) == (0, generation, "range")
    assert shell.synced(old, generation) == {"orders": [0, 1]}
    assert shell.classic_beat(old, generation) is ErrorCode.REBALANCE_IN_PROGRESS
    joined = shell.classic_join(old, "orders", owned={"orders": [0, 1]})
    assert joined.generation_id == generation + 1
    assert shell.synced(old, generation + 1) == {"orders": [0, 1]}
    assert shell.classic_beat(old, generation + 1) is ErrorCode.NONE
    assert assigned(shell.beat("new", generation + 1)) == {"orders": [2, 3]}

    # It commits with its epoch as its generation.
    claim = CommitClaim(GROUP, old, None, generation, is_transactional=False, version=8)
    assert shell.kind.check_commit(claim) is ErrorCode.ILLEGAL_GENERATION

    shell.beat("new", -1)
    assert not shell.kind.holds(GROUP)
    classic = shell.kind.classic.group(GROUP)
    assert classic.phase is Phase.PREPARING_REBALANCE
    assert (classic.generation, set(classic.members), classic.protocol) == (generation + 2, {old}, "range")
    assert shell.timers.keys() == {SessionTimer(GROUP, old), JoinTimer(GROUP)}


def test_a_member_of_a_group_that_is_classic_again_has_what_it_has_not_given_up():
    """If the group is upgraded once more before it has joined again, nobody else may be given that."""
    shell = MixedShell(orders=4)
    old, _ = stable_classic_group(shell, "orders")
    shell.join("new", "orders")  # half of it is to be the new member's, of which the old one has not heard yet
    shell.beat("new", -1)
    has = read_assignment(shell.kind.classic.group(GROUP).members[old].assignment, shell.topics)
    assert by_name(has.items()) == {"orders": [0, 1, 2, 3]}


@pytest.mark.parametrize("policy", ["disabled", "downgrade"])
def test_the_policy_may_forbid_to_upgrade(policy):
    shell = MixedShell(
        GroupSettings(group_initial_rebalance_delay_ms=0, group_consumer_migration_policy=policy), orders=1
    )
    stable_classic_group(shell, "orders")
    message = ConsumerGroupHeartbeatRequest(group_id=GROUP, member_id="new")
    request = Request(RequestToken(1), message, 1, "c", "/h", "f")
    assert shell.kind.upgrade(request, shell.kind.classic.group(GROUP), 0) is None


def test_the_policy_may_forbid_to_downgrade():
    settings = GroupSettings(group_initial_rebalance_delay_ms=0, group_consumer_migration_policy="upgrade")
    shell = MixedShell(settings, orders=1)
    old, _ = stable_classic_group(shell, "orders")
    shell.join("new", "orders")
    shell.beat("new", -1)
    assert set(shell.group.members) == {old}


def test_who_waits_in_a_classic_rebalance_is_sent_back():
    shell = MixedShell(orders=2)
    stable_classic_group(shell, "orders")
    second = shell.classic_join("", "orders").member_id
    token = shell.classic_join(second, "orders")  # waits for the first one to join again
    assert isinstance(token, int)
    shell.join("new", "orders")
    answers = {answer.to: answer.response for answer in shell.last.answers}
    assert answers[token].error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert len(shell.group.members) == 3


def test_a_refused_joiner_upgrades_nothing():
    shell = MixedShell(orders=2)
    stable_classic_group(shell, "orders")
    refused = shell.join("new", "orders", server_assignor="none")
    assert refused.error_code == ErrorCode.UNSUPPORTED_ASSIGNOR
    assert shell.kind.classic.holds(GROUP)


def test_classic_members_join_a_consumer_group():
    shell = MixedShell(orders=2)
    shell.join("new", "orders")
    required = shell.classic_join("", "orders")
    assert required.error_code == ErrorCode.MEMBER_ID_REQUIRED
    joined = shell.classic_join(required.member_id, "orders")
    assert (joined.error_code, joined.generation_id) == (0, 2)
    old = joined.member_id
    assert shell.timers[MemberSyncTimer(GROUP, old)] == shell.clock.now_ms() + 30_000
    assert shell.timers[MemberSessionTimer(GROUP, old)] == shell.clock.now_ms() + 10_000
    assert shell.synced(old, 2) == {}
    assert MemberSyncTimer(GROUP, old) not in shell.timers
    assert shell.classic_beat(old, 2) is ErrorCode.NONE  # nothing to gain yet
    shell.beat("new", 1)
    shell.beat("new", 1, parts(orders=[0]))
    assert shell.classic_beat(old, 2) is ErrorCode.REBALANCE_IN_PROGRESS
    assert shell.timers[MemberRejoinTimer(GROUP, old)] == shell.clock.now_ms() + 30_000
    shell.clock.advance(1_000)
    shell.classic_beat(old, 2)
    assert (
        shell.timers[MemberRejoinTimer(GROUP, old)] == shell.clock.now_ms() + 29_000
    )  # being told again is no reprieve
    joined = shell.classic_join(old, "orders")
    assert MemberRejoinTimer(GROUP, old) not in shell.timers
    assert shell.synced(old, joined.generation_id) == {"orders": [1]}


def test_a_classic_member_that_does_not_follow_is_removed():
    shell = MixedShell(orders=2)
    shell.join("new", "orders")
    old = shell.classic_join(
        shell.classic_join("", "orders", session_ms=60_000).member_id, "orders", session_ms=60_000
    ).member_id
    shell.beat("new", 1)
    assert shell.advance(30_000) == [MemberSyncTimer(GROUP, old)]  # it has joined, and not fetched its assignment
    assert set(shell.group.members) == {"new"}


def test_what_classic_members_are_refused():
    shell = MixedShell(orders=2)
    shell.join("new", "orders")
    old = shell.classic_join(shell.classic_join("", "orders").member_id, "orders").member_id
    assert shell.classic_join("x", "orders", session_ms=1).error_code == ErrorCode.INVALID_SESSION_TIMEOUT
    assert shell.classic_join("x", "orders", protocol="other").error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert shell.classic_beat(old, 7) is ErrorCode.ILLEGAL_GENERATION
    assert shell.classic_beat("new", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert shell.classic_sync("nobody", 1).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    shell.join("third", "orders")
    assert shell.classic_sync(old, 2).error_code == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_static_member_is_replaced_by_a_classic_one():
    shell = MixedShell(orders=2)
    shell.join("a", "orders", instance_id="i")
    joined = shell.classic_join("", "orders", instance_id="i")
    assert (joined.error_code, joined.generation_id) == (0, 1)
    assert shell.group.instances == {"i": joined.member_id}
    assert shell.beat("a", 1, instance_id="i").error_code == ErrorCode.FENCED_INSTANCE_ID


def test_classic_members_leave():
    shell = MixedShell(orders=2)
    shell.join("new", "orders")
    old = shell.classic_join(shell.classic_join("", "orders").member_id, "orders").member_id
    static = shell.classic_join("", "orders", instance_id="i").member_id
    message = LeaveGroupRequest(
        group_id=GROUP,
        members=[
            MemberIdentity(member_id=old),
            MemberIdentity(member_id="", group_instance_id="i"),
            MemberIdentity(member_id="new"),
            MemberIdentity(member_id="nobody"),
        ],
    )
    response = shell.ask(message, 4)
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    assert [outcome.error_code for outcome in response.members] == [0, 0, unknown, unknown]
    assert response.members[1].member_id == static
    assert set(shell.group.members) == {"new"}
    assert shell.timers.keys() == {MemberSessionTimer(GROUP, "new")}


def test_classic_members_alone_notice_that_a_topic_has_grown():
    settings = GroupSettings(group_consumer_migration_policy="disabled")
    shell = MixedShell(settings, orders=1)
    shell.join("new", "orders")
    old = shell.classic_join(shell.classic_join("", "orders").member_id, "orders").member_id
    shell.beat("new", -1)
    assert shell.classic_beat(old, 2) is ErrorCode.REBALANCE_IN_PROGRESS
    assert shell.synced(old, shell.classic_join(old, "orders").generation_id) == {"orders": [0]}
    assert shell.classic_beat(old, 3) is ErrorCode.NONE
    shell.set_topics(orders=2)
    assert shell.classic_beat(old, 3) is ErrorCode.REBALANCE_IN_PROGRESS
    assert shell.written() == ["Metadata"]
    joined = shell.classic_join(old, "orders", owned={"orders": [0]})
    assert shell.synced(old, joined.generation_id) == {"orders": [0, 1]}
