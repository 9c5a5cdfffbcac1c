"""Heartbeat (API 12): stay a member of a classic group, and hear of rebalances.

Since 3 static members say who they are (KIP-345); 4 is flexible.
"""

from headrace.protocol.schema import Message, int16, int32, nullable_string, string


class HeartbeatRequest(Message, api_key=12, versions=range(5), flexible_since=4):
    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = nullable_string(since=3, default=None)


class HeartbeatResponse(Message, api_key=12, versions=range(5), flexible_since=4):
    throttle_time_ms: int = int32(since=1, ignorable=True)
    error_code: int = int16()
