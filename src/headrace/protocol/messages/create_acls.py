"""CreateAcls (API 30): add access-control entries (KIP-140, KIP-290).

Version 1 has pattern types, 2 is flexible, 3 knows users of delegation tokens.
"""

from headrace.protocol import schema as wire


class AclCreation(wire.Struct):
    resource_type: int = wire.int8()
    resource_name: str = wire.string()
    resource_pattern_type: int = wire.int8(default=3)
    principal: str = wire.string()
    host: str = wire.string()
    operation: int = wire.int8()
    permission_type: int = wire.int8()


class CreateAclsRequest(wire.Message, api_key=30, versions=range(1, 4), flexible_since=2):
    creations: list[AclCreation] = wire.array(AclCreation)


class AclCreationResult(wire.Struct):
    error_code: int = wire.int16()
    error_message: str | None = wire.nullable_string()


class CreateAclsResponse(wire.Message, api_key=30, versions=range(1, 4), flexible_since=2):
    throttle_time_ms: int = wire.int32()
    results: list[AclCreationResult] = wire.array(AclCreationResult)
