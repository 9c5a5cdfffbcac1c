"""JoinGroup (API 11): become a member of a classic group, and wait until the others have joined too.

The answer is held back until the rebalance is complete; the leader's answer lists all members. Since 1 the rebalance
has a timeout of its own (KIP-62); 4 makes a new member come back with the id that it is given (KIP-394); 5 has static
members (KIP-345); 7 says the protocol's type; 8 carries the reason for joining (KIP-800); 9 spares a static leader the
assignment after a mere restart (KIP-814).
"""

from headrace.protocol import schema as wire


class JoinGroupRequestProtocol(wire.Struct):
    name: str = wire.string()
    metadata: bytes = wire.blob()


class JoinGroupRequest(wire.Message, api_key=11, versions=range(10), flexible_since=6):
    """Who joins, and which assignment protocols it speaks, the preferred first."""

    group_id: str = wire.string()
    session_timeout_ms: int = wire.int32()
    rebalance_timeout_ms: int = wire.int32(since=1, default=-1, ignorable=True)
    member_id: str = wire.string()
    group_instance_id: str | None = wire.nullable_string(since=5, default=None)
    protocol_type: str = wire.string()
    protocols: list[JoinGroupRequestProtocol] = wire.array(JoinGroupRequestProtocol)
    reason: str | None = wire.nullable_string(since=8, default=None, ignorable=True)


class JoinGroupResponseMember(wire.Struct):
    member_id: str = wire.string()
    group_instance_id: str | None = wire.nullable_string(since=5, default=None, ignorable=True)
    metadata: bytes = wire.blob()


class JoinGroupResponse(wire.Message, api_key=11, versions=range(10), flexible_since=6):
    throttle_time_ms: int = wire.int32(since=2, ignorable=True)
    error_code: int = wire.int16()
    generation_id: int = wire.int32(default=-1)
    protocol_type: str | None = wire.nullable_string(since=7, default=None, ignorable=True)
    protocol_name: str | None = wire.nullable_string(nullable_since=7)
    leader: str = wire.string()
    skip_assignment: bool = wire.boolean(since=9)
    member_id: str = wire.string()
    members: list[JoinGroupResponseMember] = wire.array(JoinGroupResponseMember)
