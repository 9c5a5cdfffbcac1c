"""A group changes its protocol while it is in use (KIP-848, `group.consumer.migration.policy`).

Upwards: the first member that speaks the new protocol joins a classic group of consumers. The others become members of
the consumer group with the assignment that they have, and go on speaking as they did. Downwards: when the last member
that speaks the new protocol is gone, those who are left are a classic group again, and rebalance.
"""

from dataclasses import replace

from headrace.coordinator.decision import Answer, CoordinatorRecord, Decision, Timer, together
from headrace.coordinator.group.assignors import Assignment
from headrace.coordinator.group.classic import rebalance
from headrace.coordinator.group.classic.rebalance import Draft as ClassicDraft
from headrace.coordinator.group.classic.state import (
    ClassicGroup,
    JoinTimer,
    Phase,
    SessionTimer,
    Supported,
    SyncTimer,
    group_tombstone,
)
from headrace.coordinator.group.classic.state import Member as ClassicMember
from headrace.coordinator.group.consumer import facts, timers
from headrace.coordinator.group.consumer.embedded import (
    CONSUMER_PROTOCOL_TYPE,
    read_assignment,
    read_subscription,
    write_assignment,
)
from headrace.coordinator.group.consumer.member import ClassicVoice, Holding, Member, Profile
from headrace.coordinator.group.consumer.membership import union
from headrace.coordinator.group.consumer.state import ConsumerGroup
from headrace.coordinator.group.heartbeats import MemberState
from headrace.coordinator.group.settings import GroupSettings
from headrace.coordinator.group.topics import Topics
from headrace.protocol.errors import ErrorCode, ProtocolError
from headrace.protocol.messages.join_group import JoinGroupResponse
from headrace.protocol.messages.sync_group import SyncGroupResponse

_UPWARDS = ("bidirectional", "upgrade")
_DOWNWARDS = ("bidirectional", "downgrade")


def upgrade(classic: ClassicGroup, topics: Topics, settings: GroupSettings) -> tuple[CoordinatorRecord, ...] | None:
    """The records that make a classic group a consumer group; None if it has to stay what it is."""
    is_allowed = settings.group_consumer_migration_policy.lower() in _UPWARDS
    is_small = len(classic.members) <= settings.group_consumer_max_size
    if not (is_allowed and is_small and classic.is_consumer):
        return None
    try:
        members = [_upgraded_member(classic, member, topics) for member in classic.members.values()]
    except ProtocolError:
        return None
    group_id, epoch = classic.group_id, classic.generation
    return (
        *(facts.member_profile(group_id, member.member_id, member.profile) for member in members),
        facts.group_epoch(group_id, epoch, 0),
        *(facts.target_assignment(group_id, member.member_id, member.holding.assigned) for member in members),
        facts.assignment_epoch(group_id, epoch, 0),
        *(facts.member_holding(group_id, member.member_id, member.holding) for member in members),
    )


def _upgraded_member(classic: ClassicGroup, member: ClassicMember, topics: Topics) -> Member:
    # Before a group's first generation nobody has chosen a protocol; a member's own first one says the same.
    metadata = member.metadata(classic.protocol) if classic.protocol else member.protocols[0].metadata
    subscription = read_subscription(metadata, topics)
    profile = Profile(
        instance_id=member.instance_id,
        rack_id=subscription.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topic_names=subscription.topic_names,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        classic=ClassicVoice(member.session_timeout_ms, tuple((name, data) for name, data in member.protocols)),
    )
    assigned: Assignment = read_assignment(member.assignment, topics)
    holding = Holding(classic.generation, classic.generation, MemberState.STABLE, assigned)
    return Member(member.member_id, profile, holding)


def farewell(classic: ClassicGroup, group: ConsumerGroup, now_ms: int) -> Decision:
    """What ends with the classic group: its record, its timers, and the waiting of those who wait in it."""
    answers, kept = [], []
    for member in classic.members.values():
        if member.joining is not None:
            response = JoinGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS, member_id=member.member_id)
            answers.append(Answer(member.joining, response))
        if member.syncing is not None:
            answers.append(Answer(member.syncing, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)))
        if member.member_id in group.members:
            key = timers.MemberSessionTimer(classic.group_id, member.member_id)
            kept.append(Timer(key, now_ms + member.session_timeout_ms))
    ended = [
        JoinTimer(classic.group_id),
        SyncTimer(classic.group_id, classic.generation),
        *(SessionTimer(classic.group_id, member_id) for member_id in (*classic.members, *classic.pending_joins)),
    ]
    return Decision(tuple(answers), (group_tombstone(classic.group_id),), (*(Timer(key, None) for key in ended), *kept))


def downgrade(
    before: ConsumerGroup, after: ConsumerGroup, topics: Topics | None, settings: GroupSettings, now_ms: int
) -> Decision | None:
    """The decision that makes a consumer group a classic group again; None if it has to stay what it is.

    `before` is the group with the members that leave it, `after` the group without them.
    """
    is_allowed = settings.group_consumer_migration_policy.lower() in _DOWNWARDS
    is_alone = bool(after.members) and all(member.is_classic for member in after.members.values())
    if not (is_allowed and is_alone and topics is not None and len(after.members) <= settings.group_max_size):
        return None
    classic = _downgraded_group(after, topics, now_ms)
    if classic is None:
        return None
    draft = ClassicDraft(classic, settings, now_ms)
    for member in classic.members.values():
        draft.renew_session(member)
    rebalance.prepare(draft)
    draft.is_stored = True
    ended = [key for member in before.members.values() for key in timers.all_of(before.group_id, member)]
    tombstones = facts.no_group(before.group_id, sorted(before.members), sorted(before.expressions))
    end = Decision(records=tombstones, timers=tuple(Timer(key, None) for key in ended))
    return together(end, draft.decision())


def _downgraded_group(group: ConsumerGroup, topics: Topics, now_ms: int) -> ClassicGroup | None:
    classic = ClassicGroup(
        group.group_id,
        phase=Phase.STABLE,
        since_ms=now_ms,
        generation=group.epoch,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
    )
    for member_id in sorted(group.members):
        member = group.members[member_id]
        voice = member.profile.classic
        assert voice is not None
        version = read_subscription(voice.protocols[0][1], topics).version
        # What it has, and not what it is to have: if the group is upgraded again before everybody has joined, that is
        # still what it reads, and nobody else may.
        held = union(member.holding.assigned, member.holding.revoking)
        classic = classic.with_member(
            ClassicMember(
                member_id=member_id,
                instance_id=member.profile.instance_id,
                client_id=member.profile.client_id,
                client_host=member.profile.client_host,
                rebalance_timeout_ms=member.profile.rebalance_timeout_ms,
                session_timeout_ms=voice.session_timeout_ms,
                protocols=tuple(Supported(name, metadata) for name, metadata in voice.protocols),
                assignment=write_assignment(held, topics, version),
            )
        )
    if not set.intersection(*({known.name for known in member.protocols} for member in classic.members.values())):
        return None
    return replace(classic, protocol=classic.selected_protocol()).with_topics_read()
