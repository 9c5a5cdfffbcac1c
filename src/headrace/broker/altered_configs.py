"""Changing the settings of a resource: what AlterConfigs and IncrementalAlterConfigs have in common."""

from collections.abc import Callable, Mapping

from headrace.broker.context import Context
from headrace.broker.errors import BrokerError
from headrace.protocol.errors import ErrorCode

TOPIC, BROKER = 2, 4


async def alter(
    ctx: Context,
    resource_type: int,
    name: str,
    change: Callable[[Mapping[str, str]], Mapping[str, str]],
    *,
    validate_only: bool,
) -> None:
    """Give a topic the settings that `change` makes of those it has."""
    if resource_type == BROKER:
        raise BrokerError(
            ErrorCode.INVALID_REQUEST, "this broker's settings are given at its start: use --config, and start it again"
        )
    if resource_type != TOPIC:
        raise BrokerError(ErrorCode.INVALID_REQUEST, f"resource type {resource_type} has no settings here")
    topic = ctx.broker.topic(name, b"", by_id=False)

    def work() -> None:
        ctx.broker.topics.alter(name, change(topic.settings), validate_only=validate_only)

    await ctx.broker.in_thread(work)
