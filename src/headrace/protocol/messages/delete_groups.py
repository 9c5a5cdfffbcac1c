"""DeleteGroups (API 42): delete groups without members, and their offsets (KIP-229).

Version 2 is flexible; nothing else has changed.
"""

from headrace.protocol.schema import STRING, Message, Struct, array, int16, int32, string


class DeleteGroupsRequest(Message, api_key=42, versions=range(3), flexible_since=2):
    groups_names: list[str] = array(STRING)


class DeletableGroupResult(Struct):
    group_id: str = string()
    error_code: int = int16()


class DeleteGroupsResponse(Message, api_key=42, versions=range(3), flexible_since=2):
    throttle_time_ms: int = int32()
    results: list[DeletableGroupResult] = array(DeletableGroupResult)
