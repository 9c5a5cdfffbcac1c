"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs, ListConfigResources: the settings of whatever has any.

Described is the value in force, and every source it could have come from. AlterConfigs replaces all settings of a
resource: what is not named goes back to its default. IncrementalAlterConfigs sets, deletes, appends to or takes from
single ones (KIP-339). One resource that is refused does not touch the others.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from headrace.broker.config_resources import (
    ConfigResource,
    DescribedConfig,
    check_broker,
    check_client_metrics,
    check_group,
    describe_all_brokers,
    describe_broker,
    describe_client_metrics,
    describe_group,
    describe_loggers,
    describe_topic,
    usable,
)
from headrace.broker.errors import BrokerError, code_of
from headrace.broker.handler import Answer, Context
from headrace.broker.handlers.topics import require_targets
from headrace.broker.settings.broker import BROKER_SETTINGS
from headrace.broker.settings.setting import Setting, SettingType
from headrace.broker.settings.topics import TOPIC_SETTINGS
from headrace.broker.turns import Steps
from headrace.coordinator.metadata import MetadataChange, MetadataImage, config_record
from headrace.errors import HeadraceError, nearest
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
from headrace.protocol.messages.list_config_resources import ConfigResource as ListedResource
from headrace.protocol.messages.list_config_resources import ListConfigResourcesRequest, ListConfigResourcesResponse
from headrace.protocol.messages.shared import ResourceOutcome
from headrace.security.acl import CLUSTER_NAME, ResourceType
from headrace.telemetry.logs import LEVELS, ROOT, levels_of_loggers, set_level

SET, DELETE, APPEND, SUBTRACT = range(4)
_AUTHORIZED_AS: dict[int, ResourceType] = {
    ConfigResource.TOPIC: ResourceType.TOPIC,
    ConfigResource.BROKER: ResourceType.CLUSTER,
    ConfigResource.LOGGER: ResourceType.CLUSTER,
    ConfigResource.CLIENT_METRICS: ResourceType.CLUSTER,
    ConfigResource.GROUP: ResourceType.GROUP,
}
# Whose lists can be appended to.
_WITH_LISTS: dict[int, Mapping[str, Setting]] = {
    ConfigResource.TOPIC: TOPIC_SETTINGS,
    ConfigResource.BROKER: BROKER_SETTINGS,
}

# From the kind of a resource, its settings and the changes: its settings after them.
Change = Callable[[int, Mapping[str, str], list[Any]], dict[str, str]]


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


def _unknown_type(resource_type: int) -> BrokerError:
    return BrokerError(ErrorCode.INVALID_REQUEST, f"there is no resource type {resource_type} with settings")


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
                    result.configs.append(_describe(request, config))
        except HeadraceError as error:
            result.error_code, result.error_message = code_of(error), str(error)
    return response


def _settings(ctx: Context, resource: DescribeConfigsResource) -> list[DescribedConfig]:
    kind, name, layers = resource.resource_type, resource.resource_name, ctx.broker.layers
    match kind:
        case ConfigResource.TOPIC:
            check_topic_name(name)
            return describe_topic(ctx.topic(name).settings, layers)
        case ConfigResource.BROKER:
            _check_name(ctx, kind, name)
            return describe_broker(layers) if name else describe_all_brokers(layers[1])
        case ConfigResource.LOGGER:
            _check_name(ctx, kind, name)
            return describe_loggers()
        case ConfigResource.CLIENT_METRICS:
            _check_name(ctx, kind, name)
            return describe_client_metrics(_kept(ctx, kind, name))
        case ConfigResource.GROUP:
            _check_name(ctx, kind, name)
            return describe_group(_kept(ctx, kind, name), layers)
    raise _unknown_type(kind)


def _kept(ctx: Context, kind: int, name: str) -> Mapping[str, str]:
    """What is set on something whose settings are in the metadata log."""
    return ctx.broker.metadata.image.configs(kind).get(name, {})


def _check_name(ctx: Context, kind: int, name: str) -> None:
    """Refuse a name that nothing of its kind can have: brokers are known by number, and none but they all may be ''."""
    if kind in (ConfigResource.BROKER, ConfigResource.LOGGER):
        is_right = name == str(ctx.broker.node_id) or (not name and kind == ConfigResource.BROKER)
        reason = f"Unexpected broker id, expected {ctx.broker.node_id}, but received {name!r}"
    else:
        is_right, reason = bool(name), "the name of a group or of a subscription must not be empty"
    if not is_right:
        raise BrokerError(ErrorCode.INVALID_REQUEST, reason)


def _describe(request: DescribeConfigsRequest, config: DescribedConfig) -> DescribeConfigsResourceResult:
    result = DescribeConfigsResourceResult(
        name=config.name,
        value=None if config.value is None else config.setting.shown(config.value),
        read_only=config.is_read_only,
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
    def replace_all(_: int, __: Mapping[str, str], configs: list[ReplacedConfig]) -> dict[str, str]:
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
    change: Change,
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
            await _alter(ctx, resource, change, validate_only=validate_only)
        except HeadraceError as error:
            outcome.error_code, outcome.error_message = code_of(error), str(error)
    return outcomes


async def _alter(
    ctx: Context, resource: AlterConfigsResource | ChangedResource, change: Change, *, validate_only: bool
) -> None:
    kind, name = resource.resource_type, resource.resource_name
    if kind == ConfigResource.TOPIC:
        topic = ctx.topic(name)
        after = change(kind, topic.settings, resource.configs)
        require_targets(ctx, topic.name, topic.settings, after)
        await ctx.broker.in_thread(lambda: ctx.broker.topics.alter(topic.name, after, validate_only=validate_only))
        await ctx.broker.queues.settle(topic)
        await ctx.broker.events.settle(topic)
    elif kind in _CHECKS:
        _check_name(ctx, kind, name)
        await _alter_kept(ctx, resource, change, validate_only=validate_only)
    elif kind == ConfigResource.LOGGER and isinstance(resource, ChangedResource):
        _check_name(ctx, kind, name)
        _set_levels(resource.configs, validate_only=validate_only)
    else:
        raise _unknown_type(kind)


async def _alter_kept(
    ctx: Context, resource: AlterConfigsResource | ChangedResource, change: Change, *, validate_only: bool
) -> None:
    """Change settings that are in the metadata log; they are durable and in force when this returns."""
    kind, name = resource.resource_type, resource.resource_name

    def decide(image: MetadataImage) -> MetadataChange:
        before = image.configs(kind).get(name, {})
        after = change(kind, before, resource.configs)
        _CHECKS[kind](ctx, before, after)
        return MetadataChange(_DONE, [config_record(kind, name, after)] if after != before else [])

    refused: list[HeadraceError] = []

    def decide_again(image: MetadataImage) -> MetadataChange:
        try:
            return decide(image)
        except HeadraceError as error:  # somebody else's change came between
            refused.append(error)
            return MetadataChange(_DONE)

    if validate_only or not decide(ctx.broker.metadata.image).records:
        return
    if await ctx.broker.metadata.change(decide_again) is None:
        raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, "the change could not be written: check the disk")
    if refused:
        raise refused[0]
    await ctx.broker.in_thread(lambda: None)  # where topics follow the change: they have by now


def _check_broker(ctx: Context, before: Mapping[str, str], after: Mapping[str, str]) -> None:
    changed = {name: value for name, value in after.items() if before.get(name) != value}
    check_broker(changed, {**ctx.broker.config.settings, **usable(after)})


_CHECKS: dict[int, Callable[[Context, Mapping[str, str], Mapping[str, str]], None]] = {
    ConfigResource.BROKER: _check_broker,
    ConfigResource.CLIENT_METRICS: lambda _, __, after: check_client_metrics(after),
    ConfigResource.GROUP: lambda ctx, _, after: check_group(
        after, ctx.broker.config.number, ctx.broker.config.text("errors.deadletterqueue.topic.name.prefix")
    ),
}
_DONE = IncrementalAlterConfigsResponse()


def _set_levels(changes: list[AlterableConfig], *, validate_only: bool) -> None:
    """Set the levels of loggers, all or none; they last until the broker ends, as in Kafka."""
    known = levels_of_loggers()
    for change in changes:
        name, operation = change.name, change.config_operation
        if operation not in (SET, DELETE):
            raise BrokerError(
                ErrorCode.INVALID_REQUEST, "the level of a logger can be set and deleted, and nothing else"
            )
        if operation == DELETE and name == ROOT:
            raise BrokerError(ErrorCode.INVALID_REQUEST, "the level of the root logger cannot be deleted: set another")
        if name not in known:
            hint = nearest(name, known, otherwise="describe them to see which there are")
            raise BrokerError(ErrorCode.INVALID_CONFIG, f"there is no logger {name!r}: {hint}")
        if operation == SET and change.value not in LEVELS:
            raise BrokerError(
                ErrorCode.INVALID_CONFIG, f"{change.value!r} is not a level: choose of {', '.join(LEVELS)}"
            )
    if not validate_only:
        for change in changes:
            set_level(change.name, change.value if change.config_operation == SET else None)


def list_resources(ctx: Context, request: ListConfigResourcesRequest) -> ListConfigResourcesResponse:
    """List what has settings of its own: of the types that are asked for, or of all; once, client metrics alone."""
    asked = set(request.resource_types) or _LISTED.keys() if ctx.version else {ConfigResource.CLIENT_METRICS}
    if asked - _LISTED.keys():
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    return ListConfigResourcesResponse(
        config_resources=[
            ListedResource(resource_name=name, resource_type=kind)
            for kind, names in _LISTED.items()
            if kind in asked
            for name in names(ctx)
        ]
    )


_LISTED: dict[int, Callable[[Context], Iterable[str]]] = {
    ConfigResource.GROUP: lambda ctx: list(ctx.broker.metadata.image.configs(ConfigResource.GROUP)),
    ConfigResource.CLIENT_METRICS: lambda ctx: list(ctx.broker.metadata.image.configs(ConfigResource.CLIENT_METRICS)),
    ConfigResource.LOGGER: lambda ctx: [str(ctx.broker.node_id)],
    ConfigResource.BROKER: lambda ctx: [str(ctx.broker.node_id)],
    ConfigResource.TOPIC: lambda ctx: list(ctx.broker.topics.by_name),
}


def _apply_changes(kind: int, before: Mapping[str, str], changes: list[AlterableConfig]) -> dict[str, str]:
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
            after[name] = _edit_list(kind, after, name, change.value, is_append=operation == APPEND)
        else:
            raise BrokerError(ErrorCode.INVALID_REQUEST, f"operation {operation} on {name} is unknown")
    return after


def _edit_list(kind: int, settings: Mapping[str, str], name: str, value: str, *, is_append: bool) -> str:
    setting = _WITH_LISTS.get(kind, {}).get(name)
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
