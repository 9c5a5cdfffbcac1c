"""Settings of topics and of the broker, as clients describe and alter them.

Described is the value in force, and every source it could have come from.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from typing import NamedTuple

from headrace.broker.context import Context
from headrace.broker.errors import BrokerError
from headrace.broker.settings import BROKER_SETTINGS, TOPIC_SETTINGS, Setting
from headrace.protocol.errors import ErrorCode

TOPIC, BROKER = 2, 4
_WITHOUT_SETTINGS = {8: "broker loggers", 16: "client metrics", 32: "groups"}


class Source(IntEnum):
    """Where a value comes from, by Kafka's numbers."""

    TOPIC = 1
    STATIC_BROKER = 4
    DEFAULT = 5


class Synonym(NamedTuple):
    """A place that the value could come from."""

    name: str
    value: str
    source: Source


class DescribedConfig(NamedTuple):
    """A setting with its value in force."""

    setting: Setting
    synonyms: list[Synonym]  # the first one is in force; none if the value is a default that has no name of its own
    default: str | None

    @property
    def name(self) -> str:
        """The setting's name."""
        return self.setting.name

    @property
    def value(self) -> str | None:
        """The value in force."""
        return self.synonyms[0].value if self.synonyms else self.default

    @property
    def source(self) -> Source:
        """Where that comes from."""
        return self.synonyms[0].source if self.synonyms else Source.DEFAULT


def describe_topic(topic: Mapping[str, str], broker: Mapping[str, str]) -> list[DescribedConfig]:
    """Every setting of a topic."""
    described = []
    for setting in TOPIC_SETTINGS.values():
        synonyms = _broker_synonyms(setting, setting.broker_name, broker) if setting.broker_name else []
        if setting.name in topic:
            synonyms.insert(0, Synonym(setting.name, topic[setting.name], Source.TOPIC))
        described.append(DescribedConfig(setting, synonyms, setting.default))
    return described


def describe_broker(broker: Mapping[str, str]) -> list[DescribedConfig]:
    """Every setting of the broker."""
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
