"""RemoveRaftVoter (API 81): a node keeps the metadata log no longer (KIP-853)."""

from headrace.protocol import schema as wire


class RemoveRaftVoterRequest(wire.Message, api_key=81, versions=range(1), flexible_since=0):
    cluster_id: str | None = wire.nullable_string()
    voter_id: int = wire.int32()
    voter_directory_id: wire.Uuid = wire.uuid()


class RemoveRaftVoterResponse(wire.Message, api_key=81, versions=range(1), flexible_since=0):
    throttle_time_ms: int = wire.int32()
    error_code: int = wire.int16()
    error_message: str | None = wire.nullable_string(ignorable=True)
