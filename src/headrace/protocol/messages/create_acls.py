"""CreateAcls (API 30): add access-control entries (KIP-140, KIP-290).

Version 1 has pattern types, 2 is flexible, 3 knows users of delegation tokens.
"""

from headrace.protocol.schema import Message, Struct, array, int8, int16, int32, nullable_string, string


class AclCreation(Struct):
    resource_type: int = int8()
    resource_name: str = string()
    resource_pattern_type: int = int8(default=3)
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


class CreateAclsRequest(Message, api_key=30, versions=range(1, 4), flexible_since=2):
    creations: list[AclCreation] = array(AclCreation)


class AclCreationResult(Struct):
    error_code: int = int16()
    error_message: str | None = nullable_string()


class CreateAclsResponse(Message, api_key=30, versions=range(1, 4), flexible_since=2):
    throttle_time_ms: int = int32()
    results: list[AclCreationResult] = array(AclCreationResult)
