"""ApiVersions (API 18): which versions of which APIs the broker speaks.

It is the first request on a connection, before the two sides know each other. So the response's header is version 0
always, even where its body is flexible, and a version that the broker does not know is answered in version 0 with
UNSUPPORTED_VERSION. Since 3 the client says what it is (KIP-511) and the answer carries feature levels (KIP-584); 4
lets a feature's lowest version be 0.
"""

from headrace.protocol.schema import Message, Struct, array, boolean, int16, int32, int64, string


class ApiVersionsRequest(Message, api_key=18, versions=range(5), flexible_since=3):
    client_software_name: str = string(since=3, ignorable=True)
    client_software_version: str = string(since=3, ignorable=True)


class ApiVersion(Struct):
    api_key: int = int16()
    min_version: int = int16()
    max_version: int = int16()


class SupportedFeatureKey(Struct):
    name: str = string()
    min_version: int = int16()
    max_version: int = int16()


class FinalizedFeatureKey(Struct):
    name: str = string()
    max_version_level: int = int16()
    min_version_level: int = int16()


class ApiVersionsResponse(Message, api_key=18, versions=range(5), flexible_since=3):
    error_code: int = int16()
    api_keys: list[ApiVersion] = array(ApiVersion)
    throttle_time_ms: int = int32(since=1, ignorable=True)
    supported_features: list[SupportedFeatureKey] = array(SupportedFeatureKey, since=3, ignorable=True, tag=0)
    finalized_features_epoch: int = int64(since=3, default=-1, ignorable=True, tag=1)
    finalized_features: list[FinalizedFeatureKey] = array(FinalizedFeatureKey, since=3, ignorable=True, tag=2)
    zk_migration_ready: bool = boolean(since=3, ignorable=True, tag=3)
