"""LeaveGroup (API 13): leave a classic group at once, instead of by timeout.

Until 2 a member removes itself; since 3 any number of members can be removed, static ones by their instance id
(KIP-345); 5 carries the reason (KIP-800).
"""

from headrace.protocol.schema import Message, Struct, array, int16, int32, nullable_string, string


class MemberIdentity(Struct):
    """One of them, by member id or group.instance.id."""

    member_id: str = string()
    group_instance_id: str | None = nullable_string(default=None)
    reason: str | None = nullable_string(since=5, default=None, ignorable=True)


class LeaveGroupRequest(Message, api_key=13, versions=range(6), flexible_since=4):
    group_id: str = string()
    member_id: str = string(until=2)
    members: list[MemberIdentity] = array(MemberIdentity, since=3)


class MemberResponse(Struct):
    member_id: str = string()
    group_instance_id: str | None = nullable_string()
    error_code: int = int16()


class LeaveGroupResponse(Message, api_key=13, versions=range(6), flexible_since=4):
    throttle_time_ms: int = int32(since=1, ignorable=True)
    error_code: int = int16()
    members: list[MemberResponse] = array(MemberResponse, since=3)
