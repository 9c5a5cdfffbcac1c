"""UpdateFeatures (API 57): raise or lower the level of a feature of the cluster (KIP-584).

Since 1 a change can be tried without making it, and says whether it may lose what only the higher level knows; 2 has
no result for each feature any more.
"""

from headrace.protocol import schema as wire


class FeatureUpdateKey(wire.Struct):
    feature: str = wire.string()
    max_version_level: int = wire.int16()
    allow_downgrade: bool = wire.boolean(until=0)
    upgrade_type: int = wire.int8(since=1, default=1)


class UpdateFeaturesRequest(wire.Message, api_key=57, versions=range(3), flexible_since=0):
    timeout_ms: int = wire.int32(default=60_000)
    feature_updates: list[FeatureUpdateKey] = wire.array(FeatureUpdateKey)
    validate_only: bool = wire.boolean(since=1)


class UpdatableFeatureResult(wire.Struct):
    feature: str = wire.string()
    error_code: int = wire.int16()
    error_message: str | None = wire.nullable_string()


class UpdateFeaturesResponse(wire.Message, api_key=57, versions=range(3), flexible_since=0):
    throttle_time_ms: int = wire.int32()
    error_code: int = wire.int16()
    error_message: str | None = wire.nullable_string()
    results: list[UpdatableFeatureResult] = wire.array(UpdatableFeatureResult, until=1, ignorable=True)
