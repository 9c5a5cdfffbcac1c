"""ListGroups (API 16): the groups that this broker coordinates.

Since 4 by state (KIP-518), since 5 by type: classic, consumer, share (KIP-848).
"""

from headrace.protocol.schema import STRING, Message, Struct, array, int16, int32, string


class ListGroupsRequest(Message, api_key=16, versions=range(6), flexible_since=3):
    """Which states and types are wanted; none given means all."""

    states_filter: list[str] = array(STRING, since=4)
    types_filter: list[str] = array(STRING, since=5)


class ListedGroup(Struct):
    group_id: str = string()
    protocol_type: str = string()
    group_state: str = string(since=4, ignorable=True)
    group_type: str = string(since=5, ignorable=True)


class ListGroupsResponse(Message, api_key=16, versions=range(6), flexible_since=3):
    throttle_time_ms: int = int32(since=1, ignorable=True)
    error_code: int = int16()
    groups: list[ListedGroup] = array(ListedGroup)
