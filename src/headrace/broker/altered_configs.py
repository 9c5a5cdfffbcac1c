"""Changing the settings of a resource: what AlterConfigs and IncrementalAlterConfigs have in common."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from headrace.broker.context import Context
from headrace.broker.errors import BrokerError
from headrace.protocol.errors import ErrorCode

TOPIC, BROKER = 2, 4
_WITHOUT_SETTINGS = {8: "broker loggers", 16: "client metrics", 32: "groups"}


def named_twice(resources: Iterable[tuple[int, str]]) -> set[tuple[int, str]]:
    """The resources that a request names more than once: which of the changes should come last is not said."""
    return {resource for resource, times in Counter(resources).items() if times > 1}


def refuse_twice(settings: Iterable[str]) -> None:
    """Refuse a request that changes one setting twice."""
    twice = sorted(name for name, times in Counter(settings).items() if times > 1)
    if twice:
        raise BrokerError(ErrorCode.INVALID_REQUEST, f"Error due to duplicate config keys: {', '.join(twice)}")


def no_settings(resource_type: int) -> BrokerError:
    """What to answer about a resource that has none here."""
    what = _WITHOUT_SETTINGS.get(resource_type)
    if what is None:
        return BrokerError(ErrorCode.INVALID_REQUEST, f"there is no resource type {resource_type}")
    instead = ": what holds for all of them is set with the broker's group.* settings" if what == "groups" else ""
    return BrokerError(ErrorCode.INVALID_REQUEST, f"{what} have no settings of their own here{instead}")


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
        raise no_settings(resource_type)
    topic = ctx.broker.topic(name, b"", by_id=False)

    def work() -> None:
        ctx.broker.topics.alter(name, change(topic.settings), validate_only=validate_only)

    await ctx.broker.in_thread(work)
