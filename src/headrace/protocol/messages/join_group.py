"""JoinGroup (API 11): become a member of a classic group, and wait until the others have joined too.

The answer is held back until the rebalance is complete; the leader's answer lists all members. Since 1 the rebalance
has a timeout of its own (KIP-62); 4 makes a new member come back with the id that it is given (KIP-394); 5 has static
members (KIP-345); 7 says the protocol's type; 8 carries the reason for joining (KIP-800); 9 spares a static leader the
assignment after a mere restart (KIP-814).
"""

from headrace.protocol.schema import Message, Struct, array, blob, boolean, int16, int32, nullable_string, string


class JoinGroupRequestProtocol(Struct):
    name: str = string()
    metadata: bytes = blob()


class JoinGroupRequest(Message, api_key=11, versions=range(10), flexible_since=6):
    """Who joins, and which assignment protocols it speaks, the preferred first."""

    group_id: str = string()
    session_timeout_ms: int = int32()
    rebalance_timeout_ms: int = int32(since=1, default=-1, ignorable=True)
    member_id: str = string()
    group_instance_id: str | None = nullable_string(since=5, default=None)
    protocol_type: str = string()
    protocols: list[JoinGroupRequestProtocol] = array(JoinGroupRequestProtocol)
    reason: str | None = nullable_string(since=8, default=None, ignorable=True)


class JoinGroupResponseMember(Struct):
    member_id: str = string()
    group_instance_id: str | None = nullable_string(since=5, default=None, ignorable=True)
    metadata: bytes = blob()


class JoinGroupResponse(Message, api_key=11, versions=range(10), flexible_since=6):
    throttle_time_ms: int = int32(since=2, ignorable=True)
    error_code: int = int16()
    generation_id: int = int32(default=-1)
    protocol_type: str | None = nullable_string(since=7, default=None, ignorable=True)
    protocol_name: str | None = nullable_string(nullable_since=7)
    leader: str = string()
    skip_assignment: bool = boolean(since=9)
    member_id: str = string()
    members: list[JoinGroupResponseMember] = array(JoinGroupResponseMember)
