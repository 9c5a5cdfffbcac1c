"""SyncGroup (API 14): hand in the assignment (the leader), and receive one's own part of it (everybody).

The answer is held back until the leader has sent the assignment. Since 3 static members say who they are (KIP-345); 5
names the protocol, so that a mix-up is noticed (KIP-559).
"""

from headrace.protocol.schema import Message, Struct, array, blob, int16, int32, nullable_string, string


class SyncGroupRequestAssignment(Struct):
    """What one member is to have, in the protocol's own bytes."""

    member_id: str = string()
    assignment: bytes = blob()


class SyncGroupRequest(Message, api_key=14, versions=range(6), flexible_since=4):
    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = nullable_string(since=3, default=None)
    protocol_type: str | None = nullable_string(since=5, default=None, ignorable=True)
    protocol_name: str | None = nullable_string(since=5, default=None, ignorable=True)
    assignments: list[SyncGroupRequestAssignment] = array(SyncGroupRequestAssignment)


class SyncGroupResponse(Message, api_key=14, versions=range(6), flexible_since=4):
    throttle_time_ms: int = int32(since=1, ignorable=True)
    error_code: int = int16()
    protocol_type: str | None = nullable_string(since=5, default=None, ignorable=True)
    protocol_name: str | None = nullable_string(since=5, default=None, ignorable=True)
    assignment: bytes = blob()
