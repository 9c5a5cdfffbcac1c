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
    synonyms: list[Synonym]  # the first one is in force

    @property
    def name(self) -> str:
        """The setting's name."""
        return self.setting.name

    @property
    def value(self) -> str:
        """The value in force."""
        return self.synonyms[0].value

    @property
    def source(self) -> Source:
        """Where that comes from."""
        return self.synonyms[0].source


def describe_topic(topic: Mapping[str, str], broker: Mapping[str, str]) -> list[DescribedConfig]:
    """Every setting of a topic."""
    described = []
    for setting in TOPIC_SETTINGS.values():
        synonyms = []
        if setting.name in topic:
            synonyms.append(Synonym(setting.name, topic[setting.name], Source.TOPIC))
        if setting.broker_name in broker:
            synonyms.append(Synonym(setting.broker_name, broker[setting.broker_name], Source.STATIC_BROKER))
        synonyms.append(Synonym(setting.broker_name or setting.name, setting.default, Source.DEFAULT))
        described.append(DescribedConfig(setting, synonyms))
    return described


def describe_broker(broker: Mapping[str, str]) -> list[DescribedConfig]:
    """Every setting of the broker."""
    described = []
    for setting in BROKER_SETTINGS.values():
        synonyms = [Synonym(setting.name, setting.default, Source.DEFAULT)]
        if setting.name in broker:
            synonyms.insert(0, Synonym(setting.name, broker[setting.name], Source.STATIC_BROKER))
        described.append(DescribedConfig(setting, synonyms))
    return described
