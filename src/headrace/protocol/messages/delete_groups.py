"""DeleteGroups (API 42): delete groups without members, and their offsets (KIP-229).

Version 2 is flexible; nothing else has changed.
"""

from headrace.protocol import schema as wire


class DeleteGroupsRequest(wire.Message, api_key=42, versions=range(3), flexible_since=2):
    groups_names: list[str] = wire.array(wire.STRING)


class DeletableGroupResult(wire.Struct):
    group_id: str = wire.string()
    error_code: int = wire.int16()


class DeleteGroupsResponse(wire.Message, api_key=42, versions=range(3), flexible_since=2):
    throttle_time_ms: int = wire.int32()
    results: list[DeletableGroupResult] = wire.array(DeletableGroupResult)
