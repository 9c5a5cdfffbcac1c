"""DescribeAcls (API 29): which access-control entries there are (KIP-140, KIP-290).

Version 1 has pattern types, 2 is flexible, 3 knows users of delegation tokens.
"""

from headrace.protocol import schema as wire


class DescribeAclsRequest(wire.Message, api_key=29, versions=range(1, 4), flexible_since=2):
    """What the entries have to fit; null and 1 fit anything."""

    resource_type_filter: int = wire.int8()
    resource_name_filter: str | None = wire.nullable_string()
    pattern_type_filter: int = wire.int8(default=3)
    principal_filter: str | None = wire.nullable_string()
    host_filter: str | None = wire.nullable_string()
    operation: int = wire.int8()
    permission_type: int = wire.int8()


class AclDescription(wire.Struct):
    principal: str = wire.string()
    host: str = wire.string()
    operation: int = wire.int8()
    permission_type: int = wire.int8()


class DescribeAclsResource(wire.Struct):
    resource_type: int = wire.int8()
    resource_name: str = wire.string()
    pattern_type: int = wire.int8(default=3)
    acls: list[AclDescription] = wire.array(AclDescription)


class DescribeAclsResponse(wire.Message, api_key=29, versions=range(1, 4), flexible_since=2):
    throttle_time_ms: int = wire.int32()
    error_code: int = wire.int16()
    error_message: str | None = wire.nullable_string()
    resources: list[DescribeAclsResource] = wire.array(DescribeAclsResource)
