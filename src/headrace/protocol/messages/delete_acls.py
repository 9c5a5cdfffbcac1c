"""DeleteAcls (API 31): remove access-control entries (KIP-140, KIP-290).

Version 1 has pattern types, 2 is flexible, 3 knows users of delegation tokens.
"""

from headrace.protocol import schema as wire


class DeleteAclsFilter(wire.Struct):
    """What the entries have to fit that go; null and 1 fit anything."""

    resource_type_filter: int = wire.int8()
    resource_name_filter: str | None = wire.nullable_string()
    pattern_type_filter: int = wire.int8(default=3)
    principal_filter: str | None = wire.nullable_string()
    host_filter: str | None = wire.nullable_string()
    operation: int = wire.int8()
    permission_type: int = wire.int8()


class DeleteAclsRequest(wire.Message, api_key=31, versions=range(1, 4), flexible_since=2):
    filters: list[DeleteAclsFilter] = wire.array(DeleteAclsFilter)


class DeleteAclsMatchingAcl(wire.Struct):
    error_code: int = wire.int16()
    error_message: str | None = wire.nullable_string()
    resource_type: int = wire.int8()
    resource_name: str = wire.string()
    pattern_type: int = wire.int8(default=3)
    principal: str = wire.string()
    host: str = wire.string()
    operation: int = wire.int8()
    permission_type: int = wire.int8()


class DeleteAclsFilterResult(wire.Struct):
    error_code: int = wire.int16()
    error_message: str | None = wire.nullable_string()
    matching_acls: list[DeleteAclsMatchingAcl] = wire.array(DeleteAclsMatchingAcl)


class DeleteAclsResponse(wire.Message, api_key=31, versions=range(1, 4), flexible_since=2):
    throttle_time_ms: int = wire.int32()
    filter_results: list[DeleteAclsFilterResult] = wire.array(DeleteAclsFilterResult)
