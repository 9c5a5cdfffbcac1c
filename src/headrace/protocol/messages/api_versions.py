"""ApiVersions (API 18): which versions of which APIs the broker speaks.

It is the first request on a connection, before the two sides know each other. So the response's header is version 0
always, even where its body is flexible, and a version that the broker does not know is answered in version 0 with
UNSUPPORTED_VERSION. Since 3 the client says what it is (KIP-511) and the answer carries feature levels (KIP-584); 4
lets a feature's lowest version be 0.
"""

from headrace.protocol import schema as wire


class ApiVersionsRequest(wire.Message, api_key=18, versions=range(5), flexible_since=3):
    client_software_name: str = wire.string(since=3, ignorable=True)
    client_software_version: str = wire.string(since=3, ignorable=True)


class ApiVersion(wire.Struct):
    api_key: int = wire.int16()
    min_version: int = wire.int16()
    max_version: int = wire.int16()


class SupportedFeatureKey(wire.Struct):
    name: str = wire.string()
    min_version: int = wire.int16()
    max_version: int = wire.int16()


class FinalizedFeatureKey(wire.Struct):
    name: str = wire.string()
    max_version_level: int = wire.int16()
    min_version_level: int = wire.int16()


class ApiVersionsResponse(wire.Message, api_key=18, versions=range(5), flexible_since=3):
    error_code: int = wire.int16()
    api_keys: list[ApiVersion] = wire.array(ApiVersion)
    throttle_time_ms: int = wire.int32(since=1, ignorable=True)
    supported_features: list[SupportedFeatureKey] = wire.array(SupportedFeatureKey, since=3, ignorable=True, tag=0)
    finalized_features_epoch: int = wire.int64(since=3, default=-1, ignorable=True, tag=1)
    finalized_features: list[FinalizedFeatureKey] = wire.array(FinalizedFeatureKey, since=3, ignorable=True, tag=2)
    zk_migration_ready: bool = wire.boolean(since=3, ignorable=True, tag=3)
