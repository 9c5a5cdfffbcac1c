"""Settings as DescribeConfigs tells them: the value in force, and every place it could have come from."""

from collections.abc import Mapping
from enum import IntEnum
from typing import NamedTuple

from headrace.broker.settings import BROKER_SETTINGS, TOPIC_SETTINGS, Setting


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
