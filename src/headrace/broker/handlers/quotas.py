"""Describe- and AlterClientQuotas: how much clients may use, kept in the metadata log (KIP-546).

Each entity of a request is changed as a whole or refused, and one that is refused does not touch the others.
"""

from collections.abc import Iterable, Mapping

from headrace.broker.errors import BrokerError
from headrace.broker.handler import Answer, Context
from headrace.coordinator.decision import CoordinatorRecord
from headrace.coordinator.metadata import MetadataChange, MetadataImage, quota_record
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntryResult,
    OpData,
)
from headrace.protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntryData,
    ValueData,
)
from headrace.protocol.messages.shared import EntityPart
from headrace.security.quotas import CLIENT_ID, IP, USER, InvalidQuota, check_quota, match_entities, parse_entity

_EXACT, _DEFAULT, _SPECIFIED = range(3)  # what a component of a filter matches


def describe_quotas(ctx: Context, request: DescribeClientQuotasRequest) -> DescribeClientQuotasResponse:
    try:
        if ctx.refused:
            raise ctx.refused
        exact, any_of = _parse_filter(request.components)
    except BrokerError as error:
        return DescribeClientQuotasResponse(error_code=error.code, error_message=str(error), entries=None)
    found = match_entities(ctx.broker.metadata.image.quotas, exact, any_of, strict=request.strict)
    return DescribeClientQuotasResponse(
        error_message=None,
        entries=[
            EntryData(
                entity=_parts(entity.parts), values=[ValueData(key=key, value=value) for key, value in values.items()]
            )
            for entity, values in found
        ],
    )


def _parse_filter(components: Iterable[ComponentData]) -> tuple[dict[str, str | None], set[str]]:
    """What entities have to match exactly, and of which types they need any."""
    exact: dict[str, str | None] = {}
    any_of: set[str] = set()
    for component in components:
        kind = component.entity_type
        if not kind:
            raise _invalid("Invalid empty entity type.")
        if kind in exact or kind in any_of:
            raise _invalid(f"Entity type {kind} cannot appear more than once in the filter.")
        if kind not in (USER, CLIENT_ID, IP):
            raise BrokerError(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {kind}")
        if component.match_type not in (_EXACT, _DEFAULT, _SPECIFIED):
            raise _invalid(f"Unknown match type {component.match_type}")
        if (component.match is None) == (component.match_type == _EXACT):
            raise _invalid(f"A filter for {kind} has a name if it matches exactly, and only then.")
        if component.match_type == _SPECIFIED:
            any_of.add(kind)
        else:
            exact[kind] = component.match
    types = exact.keys() | any_of
    if IP in types and len(types) > 1:
        raise _invalid("A filter for ip cannot be combined with one for user or client-id.")
    return exact, any_of


def _invalid(text: str) -> BrokerError:
    return BrokerError(ErrorCode.INVALID_REQUEST, text)


def alter_quotas(ctx: Context, request: AlterClientQuotasRequest) -> Answer:
    asked = [({part.entity_type: part.entity_name for part in entry.entity}, entry.ops) for entry in request.entries]
    if ctx.refused:
        return AlterClientQuotasResponse(entries=[_result(parts, ctx.refused) for parts, _ in asked])

    def decide(image: MetadataImage) -> MetadataChange:
        results: dict[frozenset[tuple[str, str | None]], EntryResult] = {}
        records = []
        for parts, ops in asked:
            name = frozenset(parts.items())
            try:
                if name in results:  # what was asked first for it holds, as with Kafka
                    raise _invalid(f"Ignoring duplicate entity {parts}")
                records += _decide(image, parts, ops)
                results[name] = _result(parts, None)
            except BrokerError as error:
                results[name] = _result(parts, error)
        response = AlterClientQuotasResponse(entries=list(results.values()))
        return MetadataChange(response, [] if request.validate_only else records)

    return ctx.broker.metadata.change(decide)


def _decide(image: MetadataImage, parts: Mapping[str, str | None], ops: Iterable[OpData]) -> list[CoordinatorRecord]:
    """The record of an entity as it is to be, if that is not how it is."""
    changes: dict[str, float | None] = {}
    for op in ops:
        if op.key in changes:
            raise _invalid(f"Duplicate quota key {op.key} not updating quota for this entity {dict(parts)}")
        changes[op.key] = None if op.remove else op.value
    try:
        entity = parse_entity(parts)
        for key, value in changes.items():
            if value is not None:
                check_quota(entity, key, value)
    except InvalidQuota as error:
        raise _invalid(str(error)) from None
    before = image.quotas.of(entity)
    after = {key: value for key, value in {**before, **changes}.items() if value is not None}
    return [] if after == before else [quota_record(entity, after)]


def _result(parts: Mapping[str, str | None], error: BrokerError | None) -> EntryResult:
    return EntryResult(
        error_code=error.code if error else ErrorCode.NONE,
        error_message=str(error) if error else None,
        entity=_parts(parts),
    )


def _parts(parts: Mapping[str, str | None]) -> list[EntityPart]:
    return [EntityPart(entity_type=kind, entity_name=name) for kind, name in parts.items()]
