"""What can be seen of groups: DescribeGroups and ListGroups; and DeleteGroups."""

from collections.abc import Iterable

from headrace.coordinator.decision import Answer, CoordinatorRecord, Decision
from headrace.coordinator.group.classic.kind import ClassicGroups
from headrace.coordinator.group.classic.state import ClassicGroup, Phase
from headrace.coordinator.group.events import Request
from headrace.coordinator.group.kinds import GroupDeleted, GroupKind
from headrace.coordinator.group.offsets.fetch import KindOf
from headrace.coordinator.group.offsets.forgetting import forget_group
from headrace.coordinator.group.offsets.store import OffsetStore
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from headrace.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from headrace.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse

_NOT_FOUND_SINCE = 6  # KIP-1043
_DEAD = "Dead"


def describe(classic: ClassicGroups, kind_of: KindOf, request: Request, asked: DescribeGroupsRequest) -> Decision:
    groups = []
    for group_id in asked.groups:
        if classic.holds(group_id):
            groups.append(_describe_classic(classic.group(group_id)))
            continue
        described = DescribedGroup(group_id=group_id, group_state=_DEAD)
        if request.version >= _NOT_FOUND_SINCE:
            is_known = kind_of(group_id) is not None
            described.error_code = ErrorCode.GROUP_ID_NOT_FOUND
            described.error_message = f"Group {group_id} {'is not a classic group' if is_known else 'not found'}."
        groups.append(described)
    return Decision((Answer(request.token, DescribeGroupsResponse(groups=groups)),))


def _describe_classic(group: ClassicGroup) -> DescribedGroup:
    # In a rebalance nobody can say yet which of their protocols the members will use.
    protocol = group.protocol if group.phase is Phase.STABLE else None
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.phase.value,
        protocol_type=group.protocol_type or "",
        protocol_data=protocol or "",
        members=[
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=b"" if protocol is None else member.metadata(protocol),
                member_assignment=member.assignment,
            )
            for member in group.members.values()
        ],
    )


def list_groups(kinds: Iterable[GroupKind], request: Request, asked: ListGroupsRequest) -> Decision:
    """ListGroups: groups of all kinds, by state and by kind (KIP-518, KIP-848)."""
    states = {state.strip().lower() for state in asked.states_filter}
    types = {name.lower() for name in asked.types_filter}
    groups = []
    for kind in kinds:
        if types and kind.type_name not in types:
            continue
        for group_id in kind.group_ids():
            state, protocol_type = kind.listing(group_id)
            if not states or state.lower() in states:
                groups.append(
                    ListedGroup(
                        group_id=group_id, protocol_type=protocol_type, group_state=state, group_type=kind.type_name
                    )
                )
    return Decision((Answer(request.token, ListGroupsResponse(groups=groups)),))


def delete_groups(store: OffsetStore, kind_of: KindOf, request: Request, asked: DeleteGroupsRequest) -> Decision:
    """DeleteGroups: groups without members, with their offsets."""
    results = []
    records: list[CoordinatorRecord] = []
    gone: list[GroupDeleted] = []
    for group_id in dict.fromkeys(asked.groups_names):
        kind = kind_of(group_id)
        error = ErrorCode.NONE
        if kind is None:
            error = ErrorCode.GROUP_ID_NOT_FOUND
        elif not kind.is_empty(group_id):
            error = ErrorCode.NON_EMPTY_GROUP
        else:
            records.extend(forget_group(store, group_id))
            records.extend(kind.tombstones(group_id))
            gone.append(GroupDeleted(group_id))
        results.append(DeletableGroupResult(group_id=group_id, error_code=error))
    answer = Answer(request.token, DeleteGroupsResponse(results=results))
    return Decision((answer,), tuple(records), effects=tuple(gone))
