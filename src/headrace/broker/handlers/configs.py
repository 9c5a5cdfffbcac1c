"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs: the settings of topics and of the broker.

Described is the value in force, and every source it could have come from. AlterConfigs replaces all settings of a
topic: what is not named goes back to its default. IncrementalAlterConfigs sets, deletes, appends to or takes from
single ones (KIP-339). One resource that is refused does not touch the others.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Any, NamedTuple

from headrace.broker.errors import BrokerError, code_of
from headrace.broker.handler import Answer, Context
from headrace.broker.settings import BROKER_SETTINGS, TOPIC_SETTINGS, Setting, SettingType
from headrace.broker.turns import Steps
from headrace.errors import HeadraceError
from headrace.model import check_topic_name
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.alter_configs import AlterableConfig as ReplacedConfig
from headrace.protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResource, AlterConfigsResponse
from headrace.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from headrace.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from headrace.protocol.messages.incremental_alter_configs import AlterConfigsResource as ChangedResource
from headrace.protocol.messages.shared import ResourceOutcome
from headrace.security.acl import CLUSTER_NAME, ResourceType

TOPIC, BROKER = 2, 4
SET, DELETE, APPEND, SUBTRACT = range(4)
_AUTHORIZED_AS = {
    TOPIC: ResourceType.TOPIC,
    BROKER: ResourceType.CLUSTER,
    8: ResourceType.CLUSTER,
    16: ResourceType.CLUSTER,
    32: ResourceType.GROUP,
}
_WITHOUT_SETTINGS = {8: "broker loggers", 16: "client metrics", 32: "groups"}


class Source(IntEnum):
    """Where a value comes from, by Kafka's numbers."""

    TOPIC = 1
    STATIC_BROKER = 4
    DEFAULT = 5


class Synonym(NamedTuple):
    name: str
    value: str
    source: Source


class DescribedConfig(NamedTuple):
    setting: Setting
    synonyms: list[Synonym]  # the first one is in force; none if the value is a default that has no name of its own
    default: str | None

    @property
    def name(self) -> str:
        return self.setting.name

    @property
    def value(self) -> str | None:
        return self.synonyms[0].value if self.synonyms else self.default

    @property
    def source(self) -> Source:
        return self.synonyms[0].source if self.synonyms else Source.DEFAULT


def describe_topic(topic: Mapping[str, str], broker: Mapping[str, str]) -> list[DescribedConfig]:
    described = []
    for setting in TOPIC_SETTINGS.values():
        synonyms = _broker_synonyms(setting, setting.broker_name, broker) if setting.broker_name else []
        if setting.name in topic:
            synonyms.insert(0, Synonym(setting.name, topic[setting.name], Source.TOPIC))
        described.append(DescribedConfig(setting, synonyms, setting.default))
    return described


def describe_broker(broker: Mapping[str, str]) -> list[DescribedConfig]:
    return [
        DescribedConfig(
            setting, _broker_synonyms(setting, setting.name, broker), None if setting.stand_in else setting.default
        )
        for setting in BROKER_SETTINGS.values()
    ]


def _broker_synonyms(setting: Setting, name: str, broker: Mapping[str, str]) -> list[Synonym]:
    """What the broker has for a setting; as in Kafka a stand-in is told only if the setting itself is set."""
    given = [Synonym(name, broker[name], Source.STATIC_BROKER)] if name in broker else []
    if not setting.stand_in:
        return [*given, Synonym(name, setting.default, Source.DEFAULT)]
    return [*given, Synonym(*setting.stand_in, Source.DEFAULT)] if given else []


def _find_doubled(resources: Iterable[tuple[int, str]]) -> set[tuple[int, str]]:
    """The resources that a request names more than once: which of the changes should come last is not said."""
    return {resource for resource, times in Counter(resources).items() if times > 1}


def _check_once(settings: Iterable[str]) -> None:
    twice = sorted(name for name, times in Counter(settings).items() if times > 1)
    if twice:
        raise BrokerError(ErrorCode.INVALID_REQUEST, f"Error due to duplicate config keys: {', '.join(twice)}")


def _require(ctx: Context, resource: DescribeConfigsResource | AlterConfigsResource | ChangedResource) -> None:
    """Refuse what the client may not do to the settings of a resource."""
    kind = _AUTHORIZED_AS.get(resource.resource_type)
    if kind is not None:
        ctx.require(kind, CLUSTER_NAME if kind is ResourceType.CLUSTER else resource.resource_name)


def _no_settings(resource_type: int) -> BrokerError:
    what = _WITHOUT_SETTINGS.get(resource_type)
    if what is None:
        return BrokerError(ErrorCode.INVALID_REQUEST, f"there is no resource type {resource_type}")
    instead = ": what holds for all of them is set with the broker's group.* settings" if what == "groups" else ""
    return BrokerError(ErrorCode.INVALID_REQUEST, f"{what} have no settings of their own here{instead}")


def describe_configs(ctx: Context, request: DescribeConfigsRequest) -> Steps[Answer]:
    """Describe each resource, once: an answer is in proportion to what there is, not to how often it is asked for."""
    response = DescribeConfigsResponse()
    doubled = _find_doubled((resource.resource_type, resource.resource_name) for resource in request.resources)
    for resource in request.resources:
        yield
        result = DescribeConfigsResult(
            error_message=None, resource_type=resource.resource_type, resource_name=resource.resource_name
        )
        response.results.append(result)
        try:
            if (resource.resource_type, resource.resource_name) in doubled:
                raise BrokerError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
            _require(ctx, resource)
            wanted = frozenset(resource.configuration_keys or ())
            for config in _settings(ctx, resource):
                if not wanted or config.name in wanted:
                    result.configs.append(_describe(request, resource, config))
        except HeadraceError as error:
            result.error_code, result.error_message = code_of(error), str(error)
    return response


def _settings(ctx: Context, resource: DescribeConfigsResource) -> list[DescribedConfig]:
    if resource.resource_type == TOPIC:
        check_topic_name(resource.resource_name)
        topic = ctx.topic(resource.resource_name)
        return describe_topic(topic.settings, ctx.broker.config.settings)
    if resource.resource_type == BROKER:
        if resource.resource_name not in ("", str(ctx.broker.node_id)):
            raise BrokerError(
                ErrorCode.INVALID_REQUEST,
                f"Unexpected broker id, expected {ctx.broker.node_id} or empty string, "
                f"but received {resource.resource_name}",
            )
        return describe_broker(ctx.broker.config.settings)
    raise _no_settings(resource.resource_type)


def _describe(
    request: DescribeConfigsRequest, resource: DescribeConfigsResource, config: DescribedConfig
) -> DescribeConfigsResourceResult:
    result = DescribeConfigsResourceResult(
        name=config.name,
        value=None if config.value is None else config.setting.shown(config.value),
        read_only=resource.resource_type == BROKER,
        config_source=config.source,
        is_sensitive=config.setting.is_secret,
        config_type=config.setting.type,
        documentation=config.setting.meaning if request.include_documentation else None,
    )
    if request.include_synonyms:
        result.synonyms = [
            DescribeConfigsSynonym(name=synonym.name, value=config.setting.shown(synonym.value), source=synonym.source)
            for synonym in config.synonyms
        ]
    return result


async def alter_configs(ctx: Context, request: AlterConfigsRequest) -> AlterConfigsResponse:
    def replace_all(_: Mapping[str, str], configs: list[ReplacedConfig]) -> dict[str, str]:
        return {config.name: config.value or "" for config in configs}

    return AlterConfigsResponse(
        responses=await _alter_each(ctx, request.resources, replace_all, validate_only=request.validate_only)
    )


async def change_configs(ctx: Context, request: IncrementalAlterConfigsRequest) -> IncrementalAlterConfigsResponse:
    return IncrementalAlterConfigsResponse(
        responses=await _alter_each(ctx, request.resources, _apply_changes, validate_only=request.validate_only)
    )


async def _alter_each(
    ctx: Context,
    resources: Sequence[AlterConfigsResource | ChangedResource],
    change: Callable[[Mapping[str, str], list[Any]], dict[str, str]],
    *,
    validate_only: bool,
) -> list[ResourceOutcome]:
    outcomes = []
    doubled = _find_doubled((resource.resource_type, resource.resource_name) for resource in resources)
    for resource in resources:
        await asyncio.sleep(0)  # there may be many, and those that are refused wait for nothing
        outcome = ResourceOutcome(
            error_message=None, resource_type=resource.resource_type, resource_name=resource.resource_name
        )
        outcomes.append(outcome)
        try:
            if (resource.resource_type, resource.resource_name) in doubled:
                raise BrokerError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
            _require(ctx, resource)
            _check_once(config.name for config in resource.configs)
            if isinstance(resource, AlterConfigsResource) and any(config.value is None for config in resource.configs):
                raise BrokerError(ErrorCode.INVALID_REQUEST, "Null value not supported: leave the setting out")
            if resource.resource_type == BROKER and _only_deletes(resource):
                continue  # nothing of the broker's is set while it runs: tools clean up after themselves like this
            await _alter(ctx, resource, change, validate_only=validate_only)
        except HeadraceError as error:
            outcome.error_code, outcome.error_message = code_of(error), str(error)
    return outcomes


async def _alter(
    ctx: Context,
    resource: AlterConfigsResource | ChangedResource,
    change: Callable[[Mapping[str, str], list[Any]], dict[str, str]],
    *,
    validate_only: bool,
) -> None:
    if resource.resource_type == BROKER:
        raise BrokerError(
            ErrorCode.INVALID_REQUEST, "this broker's settings are given at its start: use --config, and start it again"
        )
    if resource.resource_type != TOPIC:
        raise _no_settings(resource.resource_type)
    topic = ctx.topic(resource.resource_name)

    def work() -> None:
        ctx.broker.topics.alter(topic.name, change(topic.settings, resource.configs), validate_only=validate_only)

    await ctx.broker.in_thread(work)


def _only_deletes(resource: AlterConfigsResource | ChangedResource) -> bool:
    return (
        isinstance(resource, ChangedResource)
        and bool(resource.configs)
        and all(change.config_operation == DELETE for change in resource.configs)
    )


def _apply_changes(before: Mapping[str, str], changes: list[AlterableConfig]) -> dict[str, str]:
    after = dict(before)
    for change in changes:
        operation, name = change.config_operation, change.name
        if operation == DELETE:
            after.pop(name, None)
        elif change.value is None:
            raise BrokerError(ErrorCode.INVALID_REQUEST, f"no value is given for {name}")
        elif operation == SET:
            after[name] = change.value
        elif operation in (APPEND, SUBTRACT):
            after[name] = _edit_list(after, name, change.value, is_append=operation == APPEND)
        else:
            raise BrokerError(ErrorCode.INVALID_REQUEST, f"operation {operation} on {name} is unknown")
    return after


def _edit_list(settings: Mapping[str, str], name: str, value: str, *, is_append: bool) -> str:
    setting = TOPIC_SETTINGS.get(name)
    if setting is None or setting.type is not SettingType.LIST:
        raise BrokerError(
            ErrorCode.INVALID_CONFIG, f"{name} is not a list, so nothing can be appended to or taken from it"
        )
    items = [item for item in settings.get(name, setting.default).split(",") if item]
    for item in value.split(","):
        if is_append and item not in items:
            items.append(item)
        elif not is_append and item in items:
            items.remove(item)
    return ",".join(items)
