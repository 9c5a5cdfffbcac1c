"""FindCoordinator (API 10): which broker coordinates a group or a transaction.

Version 0 knows consumer groups only; since 1 the key's type says what is meant: 0 a group, 1 a transactional id, and
since 6 also 2, a share group's partition (KIP-932). 4 asks for many keys at once, in fields of their own (KIP-699); 5
may answer TRANSACTION_ABORTABLE (KIP-890).
"""

from headrace.protocol import schema as wire


class FindCoordinatorRequest(wire.Message, api_key=10, versions=range(7), flexible_since=3):
    key: str = wire.string(until=3)
    key_type: int = wire.int8(since=1)
    coordinator_keys: list[str] = wire.array(wire.STRING, since=4)


class Coordinator(wire.Struct):
    key: str = wire.string()
    node_id: int = wire.int32()
    host: str = wire.string()
    port: int = wire.int32()
    error_code: int = wire.int16()
    error_message: str | None = wire.nullable_string()


class FindCoordinatorResponse(wire.Message, api_key=10, versions=range(7), flexible_since=3):
    """The coordinator: in the message itself until version 3, one per key since 4."""

    throttle_time_ms: int = wire.int32(since=1, ignorable=True)
    error_code: int = wire.int16(until=3)
    error_message: str | None = wire.nullable_string(since=1, until=3, ignorable=True)
    node_id: int = wire.int32(until=3)
    host: str = wire.string(until=3)
    port: int = wire.int32(until=3)
    coordinators: list[Coordinator] = wire.array(Coordinator, since=4)
