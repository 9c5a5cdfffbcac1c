"""LeaveGroup (API 13): leave a classic group at once, instead of by timeout.

Until 2 a member removes itself; since 3 any number of members can be removed, static ones by their instance id
(KIP-345); 5 carries the reason (KIP-800).
"""

from headrace.protocol import schema as wire


class MemberIdentity(wire.Struct):
    member_id: str = wire.string()
    group_instance_id: str | None = wire.nullable_string(default=None)
    reason: str | None = wire.nullable_string(since=5, default=None, ignorable=True)


class LeaveGroupRequest(wire.Message, api_key=13, versions=range(6), flexible_since=4):
    group_id: str = wire.string()
    member_id: str = wire.string(until=2)
    members: list[MemberIdentity] = wire.array(MemberIdentity, since=3)


class MemberResponse(wire.Struct):
    member_id: str = wire.string()
    group_instance_id: str | None = wire.nullable_string()
    error_code: int = wire.int16()


class LeaveGroupResponse(wire.Message, api_key=13, versions=range(6), flexible_since=4):
    throttle_time_ms: int = wire.int32(since=1, ignorable=True)
    error_code: int = wire.int16()
    members: list[MemberResponse] = wire.array(MemberResponse, since=3)
