"""DescribeClientQuotas (API 48): which quotas are set, of the entities that a filter matches (KIP-546)."""

from headrace.protocol import schema as wire
from headrace.protocol.messages.shared import EntityPart


class ComponentData(wire.Struct):
    """What an entity has to have: a name of this type, the default of it, or either."""

    entity_type: str = wire.string()
    match_type: int = wire.int8()
    match: str | None = wire.nullable_string()


class DescribeClientQuotasRequest(wire.Message, api_key=48, versions=range(2), flexible_since=1):
    components: list[ComponentData] = wire.array(ComponentData)
    strict: bool = wire.boolean()


class ValueData(wire.Struct):
    key: str = wire.string()
    value: float = wire.float64()


class EntryData(wire.Struct):
    entity: list[EntityPart] = wire.array(EntityPart)
    values: list[ValueData] = wire.array(ValueData)


class DescribeClientQuotasResponse(wire.Message, api_key=48, versions=range(2), flexible_since=1):
    throttle_time_ms: int = wire.int32()
    error_code: int = wire.int16()
    error_message: str | None = wire.nullable_string()
    entries: list[EntryData] | None = wire.nullable_array(EntryData)
