"""IncrementalAlterConfigs: set, delete, append to or take from single settings of a topic (KIP-339)."""

import asyncio
from collections.abc import Mapping

from headrace.broker.context import Context
from headrace.broker.errors import BrokerError, code_of
from headrace.broker.resource_configs import BROKER, alter, named_twice, refuse_twice
from headrace.broker.settings import TOPIC_SETTINGS, SettingType
from headrace.errors import HeadraceError
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from headrace.protocol.messages.shared import ResourceOutcome

SET, DELETE, APPEND, SUBTRACT = range(4)


async def handle(ctx: Context, request: IncrementalAlterConfigsRequest) -> IncrementalAlterConfigsResponse:
    """Change each resource; one that is refused does not touch the others."""
    response = IncrementalAlterConfigsResponse()
    doubled = named_twice((resource.resource_type, resource.resource_name) for resource in request.resources)
    for resource in request.resources:
        await asyncio.sleep(0)  # there may be many, and those that are refused wait for nothing
        result = ResourceOutcome(
            error_message=None, resource_type=resource.resource_type, resource_name=resource.resource_name
        )
        response.responses.append(result)
        try:
            if (resource.resource_type, resource.resource_name) in doubled:
                raise BrokerError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
            refuse_twice(config.name for config in resource.configs)
            if resource.resource_type == BROKER and _only_deletes(resource.configs):
                continue  # nothing of the broker's is set while it runs: tools clean up after themselves like this
            await alter(
                ctx,
                resource.resource_type,
                resource.resource_name,
                lambda before, changes=resource.configs: changed(before, changes),  # type: ignore[misc]
                validate_only=request.validate_only,
            )
        except HeadraceError as error:
            result.error_code, result.error_message = code_of(error), str(error)
    return response


def _only_deletes(changes: list[AlterableConfig]) -> bool:
    return bool(changes) and all(change.config_operation == DELETE for change in changes)


def changed(before: Mapping[str, str], changes: list[AlterableConfig]) -> dict[str, str]:
    """The settings after these changes."""
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
            after[name] = _edited_list(after, name, change.value, is_append=operation == APPEND)
        else:
            raise BrokerError(ErrorCode.INVALID_REQUEST, f"operation {operation} on {name} is unknown")
    return after


def _edited_list(settings: Mapping[str, str], name: str, value: str, *, is_append: bool) -> str:
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
