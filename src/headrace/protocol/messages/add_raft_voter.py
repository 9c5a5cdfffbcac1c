"""AddRaftVoter (API 80): one more node keeps the metadata log (KIP-853). Since 1 one can choose when it answers."""

from headrace.protocol import schema as wire
from headrace.protocol.messages.shared import Listener


class AddRaftVoterRequest(wire.Message, api_key=80, versions=range(2), flexible_since=0):
    cluster_id: str | None = wire.nullable_string()
    timeout_ms: int = wire.int32()
    voter_id: int = wire.int32()
    voter_directory_id: wire.Uuid = wire.uuid()
    listeners: list[Listener] = wire.array(Listener)
    ack_when_committed: bool = wire.boolean(since=1, default=True)


class AddRaftVoterResponse(wire.Message, api_key=80, versions=range(2), flexible_since=0):
    throttle_time_ms: int = wire.int32()
    error_code: int = wire.int16()
    error_message: str | None = wire.nullable_string(ignorable=True)
