"""DescribeGroups (API 15): the state and the members of classic groups.

Since 3 it tells what the client may do with the group (KIP-430); 4 tells static members' ids; 6 has GROUP_ID_NOT_FOUND
and a message for groups that do not exist, which were described as dead before (KIP-1043).
"""

from headrace.protocol import schema as wire


class DescribeGroupsRequest(wire.Message, api_key=15, versions=range(7), flexible_since=5):
    groups: list[str] = wire.array(wire.STRING)
    include_authorized_operations: bool = wire.boolean(since=3)


class DescribedGroupMember(wire.Struct):
    member_id: str = wire.string()
    group_instance_id: str | None = wire.nullable_string(since=4, default=None, ignorable=True)
    client_id: str = wire.string()
    client_host: str = wire.string()
    member_metadata: bytes = wire.blob()
    member_assignment: bytes = wire.blob()


class DescribedGroup(wire.Struct):
    error_code: int = wire.int16()
    error_message: str | None = wire.nullable_string(since=6, default=None)
    group_id: str = wire.string()
    group_state: str = wire.string()
    protocol_type: str = wire.string()
    protocol_data: str = wire.string()
    members: list[DescribedGroupMember] = wire.array(DescribedGroupMember)
    authorized_operations: int = wire.int32(since=3, default=-(2**31))


class DescribeGroupsResponse(wire.Message, api_key=15, versions=range(7), flexible_since=5):
    throttle_time_ms: int = wire.int32(since=1, ignorable=True)
    groups: list[DescribedGroup] = wire.array(DescribedGroup)
