"""SyncGroup (API 14): hand in the assignment (the leader), and receive one's own part of it (everybody).

The answer is held back until the leader has sent the assignment. Since 3 static members say who they are (KIP-345); 5
names the protocol, so that a mix-up is noticed (KIP-559).
"""

from headrace.protocol import schema as wire


class SyncGroupRequestAssignment(wire.Struct):
    """What one member is to have, in the protocol's own bytes."""

    member_id: str = wire.string()
    assignment: bytes = wire.blob()


class SyncGroupRequest(wire.Message, api_key=14, versions=range(6), flexible_since=4):
    group_id: str = wire.string()
    generation_id: int = wire.int32()
    member_id: str = wire.string()
    group_instance_id: str | None = wire.nullable_string(since=3, default=None)
    protocol_type: str | None = wire.nullable_string(since=5, default=None, ignorable=True)
    protocol_name: str | None = wire.nullable_string(since=5, default=None, ignorable=True)
    assignments: list[SyncGroupRequestAssignment] = wire.array(SyncGroupRequestAssignment)


class SyncGroupResponse(wire.Message, api_key=14, versions=range(6), flexible_since=4):
    throttle_time_ms: int = wire.int32(since=1, ignorable=True)
    error_code: int = wire.int16()
    protocol_type: str | None = wire.nullable_string(since=5, default=None, ignorable=True)
    protocol_name: str | None = wire.nullable_string(since=5, default=None, ignorable=True)
    assignment: bytes = wire.blob()
