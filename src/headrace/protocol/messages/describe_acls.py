"""DescribeAcls (API 29): which access-control entries there are (KIP-140, KIP-290).

Version 1 has pattern types, 2 is flexible, 3 knows users of delegation tokens.
"""

from headrace.protocol.schema import Message, Struct, array, int8, int16, int32, nullable_string, string


class DescribeAclsRequest(Message, api_key=29, versions=range(1, 4), flexible_since=2):
    """What the entries have to fit; null and 1 fit anything."""

    resource_type_filter: int = int8()
    resource_name_filter: str | None = nullable_string()
    pattern_type_filter: int = int8(default=3)
    principal_filter: str | None = nullable_string()
    host_filter: str | None = nullable_string()
    operation: int = int8()
    permission_type: int = int8()


class AclDescription(Struct):
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


class DescribeAclsResource(Struct):
    resource_type: int = int8()
    resource_name: str = string()
    pattern_type: int = int8(default=3)
    acls: list[AclDescription] = array(AclDescription)


class DescribeAclsResponse(Message, api_key=29, versions=range(1, 4), flexible_since=2):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = nullable_string()
    resources: list[DescribeAclsResource] = array(DescribeAclsResource)
