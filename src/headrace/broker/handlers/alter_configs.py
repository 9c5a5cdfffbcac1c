"""AlterConfigs: replace all settings of a topic; what is not named goes back to its default."""

import asyncio

from headrace.broker.context import Context
from headrace.broker.errors import BrokerError, code_of
from headrace.broker.resource_configs import alter, named_twice, refuse_twice
from headrace.errors import HeadraceError
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from headrace.protocol.messages.shared import ResourceOutcome


async def handle(ctx: Context, request: AlterConfigsRequest) -> AlterConfigsResponse:
    """Change each resource; one that is refused does not touch the others."""
    response = AlterConfigsResponse()
    doubled = named_twice((resource.resource_type, resource.resource_name) for resource in request.resources)
    for resource in request.resources:
        await asyncio.sleep(0)  # there may be many, and those that are refused wait for nothing
        result = ResourceOutcome(
            error_message=None, resource_type=resource.resource_type, resource_name=resource.resource_name
        )
        response.responses.append(result)
        settings = {config.name: config.value or "" for config in resource.configs}
        try:
            if (resource.resource_type, resource.resource_name) in doubled:
                raise BrokerError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
            refuse_twice(config.name for config in resource.configs)
            if any(config.value is None for config in resource.configs):
                raise BrokerError(ErrorCode.INVALID_REQUEST, "Null value not supported: leave the setting out")
            await alter(
                ctx,
                resource.resource_type,
                resource.resource_name,
                lambda _, settings=settings: settings,  # type: ignore[misc]  # bound now, not later
                validate_only=request.validate_only,
            )
        except HeadraceError as error:
            result.error_code, result.error_message = code_of(error), str(error)
    return response
