"""How much clients may use, on any Kafka: list quotas, set them, remove them (KIP-546)."""

from collections.abc import Mapping
from typing import NamedTuple

from headrace.client.cluster import Cluster
from headrace.client.errors import Refused
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntryData,
    OpData,
)
from headrace.protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from headrace.protocol.messages.shared import EntityPart
from headrace.security.quotas import Entity

_EXACT, _DEFAULT = 0, 1


class SetQuotas(NamedTuple):
    entity: Entity
    values: Mapping[str, float]


def list_quotas(cluster: Cluster, having: Entity | None = None) -> list[SetQuotas]:
    """The quotas of every entity that has these parts, whatever else it has; by default of all."""
    components = [
        ComponentData(entity_type=kind, match_type=_DEFAULT if name is None else _EXACT, match=name)
        for kind, name in (having or Entity()).parts.items()
    ]
    request = DescribeClientQuotasRequest(components=components, strict=False)

    def ask() -> list[SetQuotas]:
        response = cluster.any_broker().request(request, DescribeClientQuotasResponse)
        _check(cluster, "list quotas", response.error_code, response.error_message)
        found = []
        for entry in response.entries or ():
            parts = {part.entity_type.replace("-", "_"): part.entity_name for part in entry.entity}
            found.append(SetQuotas(Entity(**parts), {each.key: each.value for each in entry.values}))
        return sorted(found, key=lambda each: [(name is None, name or "") for name in each.entity])

    return cluster.run_with_retries(ask)


def alter_quotas(cluster: Cluster, entity: Entity, changes: Mapping[str, float | None]) -> None:
    """Set quotas of an entity, and remove those that are None; others stay."""
    ops = [OpData(key=key, value=value or 0.0, remove=value is None) for key, value in changes.items()]
    parts = [EntityPart(entity_type=kind, entity_name=name) for kind, name in entity.parts.items()]
    request = AlterClientQuotasRequest(entries=[EntryData(entity=parts, ops=ops)])

    def ask() -> None:
        response = cluster.controller().request(request, AlterClientQuotasResponse)
        for entry in response.entries:
            _check(cluster, "change quotas", entry.error_code, entry.error_message)

    cluster.run_with_retries(ask)


def _check(cluster: Cluster, doing: str, code: int, message: str | None) -> None:
    if code:
        raise Refused(f"cannot {doing} at {cluster}", ErrorCode.of(code), message)
