"""AlterClientQuotas (API 49): set quotas of entities, or remove them (KIP-546)."""

from headrace.protocol import schema as wire
from headrace.protocol.messages.shared import EntityPart


class OpData(wire.Struct):
    key: str = wire.string()
    value: float = wire.float64()
    remove: bool = wire.boolean()


class EntryData(wire.Struct):
    entity: list[EntityPart] = wire.array(EntityPart)
    ops: list[OpData] = wire.array(OpData)


class AlterClientQuotasRequest(wire.Message, api_key=49, versions=range(2), flexible_since=1):
    entries: list[EntryData] = wire.array(EntryData)
    validate_only: bool = wire.boolean()


class EntryResult(wire.Struct):
    error_code: int = wire.int16()
    error_message: str | None = wire.nullable_string()
    entity: list[EntityPart] = wire.array(EntityPart)


class AlterClientQuotasResponse(wire.Message, api_key=49, versions=range(2), flexible_since=1):
    throttle_time_ms: int = wire.int32()
    entries: list[EntryResult] = wire.array(EntryResult)
