"""A classic group as it is stored, and back: one record for the group with the assignments of all members."""

from headrace.coordinator.decision import CoordinatorRecord
from headrace.coordinator.group.classic.state import ClassicGroup, Member, Phase, Supported
from headrace.coordinator.group.record_formats.classic import GroupMetadataKey, GroupMetadataValue, MemberMetadata

_UNKNOWN = -1


def group_record(group: ClassicGroup) -> CoordinatorRecord:
    """The record that keeps a group; of each member's protocols only the chosen one is kept."""
    value = GroupMetadataValue(
        protocol_type=group.protocol_type or "",
        generation=group.generation,
        protocol=group.protocol,
        leader=group.leader,
        current_state_timestamp=_UNKNOWN if group.since_ms is None else group.since_ms,
        members=[
            MemberMetadata(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.metadata(group.protocol),
                assignment=member.assignment,
            )
            for member in group.members.values()
        ],
    )
    return CoordinatorRecord(GroupMetadataKey(group=group.group_id), value)


def group_tombstone(group_id: str) -> CoordinatorRecord:
    """The record that removes a group."""
    return CoordinatorRecord(GroupMetadataKey(group=group_id), None)


def stored_group(group_id: str, value: GroupMetadataValue) -> ClassicGroup:
    """The group that a record keeps: empty, or stable with its last assignment."""
    members = {
        stored.member_id: Member(
            member_id=stored.member_id,
            instance_id=stored.group_instance_id,
            client_id=stored.client_id,
            client_host=stored.client_host,
            rebalance_timeout_ms=(
                stored.session_timeout if stored.rebalance_timeout == _UNKNOWN else stored.rebalance_timeout
            ),
            session_timeout_ms=stored.session_timeout,
            protocols=(Supported(value.protocol or "", stored.subscription),),
            assignment=stored.assignment,
        )
        for stored in value.members
    }
    return ClassicGroup(
        group_id=group_id,
        phase=Phase.STABLE if members else Phase.EMPTY,
        since_ms=None if value.current_state_timestamp == _UNKNOWN else value.current_state_timestamp,
        generation=value.generation,
        protocol_type=value.protocol_type or None,
        protocol=value.protocol,
        leader=value.leader if value.leader in members else next(iter(members), None),
        members=members,
    ).with_topics_read()
