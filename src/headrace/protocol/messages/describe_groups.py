"""DescribeGroups (API 15): the state and the members of classic groups.

Since 3 it tells what the client may do with the group (KIP-430); 4 tells static members' ids; 6 has GROUP_ID_NOT_FOUND
and a message for groups that do not exist, which were described as dead before (KIP-1043).
"""

from headrace.protocol.schema import (
    STRING,
    Message,
    Struct,
    array,
    blob,
    boolean,
    int16,
    int32,
    nullable_string,
    string,
)


class DescribeGroupsRequest(Message, api_key=15, versions=range(7), flexible_since=5):
    groups: list[str] = array(STRING)
    include_authorized_operations: bool = boolean(since=3)


class DescribedGroupMember(Struct):
    member_id: str = string()
    group_instance_id: str | None = nullable_string(since=4, default=None, ignorable=True)
    client_id: str = string()
    client_host: str = string()
    member_metadata: bytes = blob()
    member_assignment: bytes = blob()


class DescribedGroup(Struct):
    error_code: int = int16()
    error_message: str | None = nullable_string(since=6, default=None)
    group_id: str = string()
    group_state: str = string()
    protocol_type: str = string()
    protocol_data: str = string()
    members: list[DescribedGroupMember] = array(DescribedGroupMember)
    authorized_operations: int = int32(since=3, default=-(2**31))


class DescribeGroupsResponse(Message, api_key=15, versions=range(7), flexible_since=5):
    throttle_time_ms: int = int32(since=1, ignorable=True)
    groups: list[DescribedGroup] = array(DescribedGroup)
