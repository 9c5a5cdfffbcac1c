"""ListGroups (API 16): the groups that this broker coordinates.

Since 4 by state (KIP-518), since 5 by type: classic, consumer, share (KIP-848).
"""

from headrace.protocol import schema as wire


class ListGroupsRequest(wire.Message, api_key=16, versions=range(6), flexible_since=3):
    """Which states and types are wanted; none given means all."""

    states_filter: list[str] = wire.array(wire.STRING, since=4)
    types_filter: list[str] = wire.array(wire.STRING, since=5)


class ListedGroup(wire.Struct):
    group_id: str = wire.string()
    protocol_type: str = wire.string()
    group_state: str = wire.string(since=4, ignorable=True)
    group_type: str = wire.string(since=5, ignorable=True)


class ListGroupsResponse(wire.Message, api_key=16, versions=range(6), flexible_since=3):
    throttle_time_ms: int = wire.int32(since=1, ignorable=True)
    error_code: int = wire.int16()
    groups: list[ListedGroup] = wire.array(ListedGroup)
