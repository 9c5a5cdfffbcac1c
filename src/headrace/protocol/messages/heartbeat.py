"""Heartbeat (API 12): stay a member of a classic group, and hear of rebalances.

Since 3 static members say who they are (KIP-345); 4 is flexible.
"""

from headrace.protocol import schema as wire


class HeartbeatRequest(wire.Message, api_key=12, versions=range(5), flexible_since=4):
    group_id: str = wire.string()
    generation_id: int = wire.int32()
    member_id: str = wire.string()
    group_instance_id: str | None = wire.nullable_string(since=3, default=None)


class HeartbeatResponse(wire.Message, api_key=12, versions=range(5), flexible_since=4):
    throttle_time_ms: int = wire.int32(since=1, ignorable=True)
    error_code: int = wire.int16()
