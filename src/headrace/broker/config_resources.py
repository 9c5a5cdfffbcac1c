"""What has settings: topics, the broker, groups, subscriptions to client metrics, loggers; and where values come from.

A value has several sources, and the first that has it is in force: the resource itself, then the broker as it was
changed while it runs (this node, then all), as it was started, and the default. What is set on a resource is checked
here before it is written, and read with care after: a setting that another version wrote has no effect.
"""

from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import NamedTuple

from headrace.broker.client_metrics import CLIENT_METRICS_SETTINGS, parse_match
from headrace.broker.errors import BrokerError
from headrace.broker.settings.broker import BROKER_SETTINGS, THROTTLES
from headrace.broker.settings.groups import GROUP_SETTINGS, limits_of
from headrace.broker.settings.setting import InvalidSetting, Setting, SettingType, check_settings
from headrace.broker.settings.topics import TOPIC_SETTINGS, log_config
from headrace.coordinator.share.offset_reset import is_offset_reset
from headrace.errors import nearest
from headrace.model import InvalidTopicName, check_topic_name
from headrace.protocol.errors import ErrorCode
from headrace.telemetry.logs import levels_of_loggers

Settings = Mapping[str, str]
Layers = tuple[Settings, Settings, Settings]


class ConfigResource(IntEnum):
    """A kind of things that have settings, by Kafka's numbers."""

    TOPIC = 2
    BROKER = 4
    LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class Source(IntEnum):
    """Where a value comes from, by Kafka's numbers."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


_SHORTEST_INTERVAL_MS, _LONGEST_INTERVAL_MS = 100, 3_600_000
_LAYERS = (Source.DYNAMIC_BROKER, Source.DYNAMIC_DEFAULT_BROKER, Source.STATIC_BROKER)


class Synonym(NamedTuple):
    name: str
    value: str
    source: Source


class DescribedConfig(NamedTuple):
    setting: Setting
    synonyms: list[Synonym]  # the first one is in force; none if the value is a default that has no name of its own
    default: str | None
    default_source: Source = Source.DEFAULT
    is_read_only: bool = False

    @property
    def name(self) -> str:
        return self.setting.name

    @property
    def value(self) -> str | None:
        return self.synonyms[0].value if self.synonyms else self.default

    @property
    def source(self) -> Source:
        return self.synonyms[0].source if self.synonyms else self.default_source


# --- described


def describe_topic(topic: Settings, layers: Layers) -> list[DescribedConfig]:
    return [_describe_own(setting, topic, Source.TOPIC, layers) for setting in TOPIC_SETTINGS.values()]


def describe_group(group: Settings, layers: Layers) -> list[DescribedConfig]:
    return [_describe_own(setting, group, Source.GROUP, layers) for setting in GROUP_SETTINGS.values()]


def describe_client_metrics(subscription: Settings) -> list[DescribedConfig]:
    layers: Layers = ({}, {}, {})
    return [
        _describe_own(each, subscription, Source.CLIENT_METRICS, layers) for each in CLIENT_METRICS_SETTINGS.values()
    ]


def describe_loggers() -> list[DescribedConfig]:
    return [
        DescribedConfig(Setting(name, SettingType.UNKNOWN, level, ""), [], level, Source.LOGGER)
        for name, level in levels_of_loggers().items()
    ]


def _describe_own(setting: Setting, own: Settings, source: Source, layers: Layers) -> DescribedConfig:
    synonyms = _broker_synonyms(setting, setting.broker_name, layers) if setting.broker_name else []
    if setting.name in own:
        synonyms.insert(0, Synonym(setting.name, own[setting.name], source))
    return DescribedConfig(setting, synonyms, setting.default)


def describe_broker(layers: Layers) -> list[DescribedConfig]:
    throttles = [each for name, each in THROTTLES.items() if any(name in layer for layer in layers)]
    return [
        DescribedConfig(
            setting,
            _broker_synonyms(setting, setting.name, layers),
            None if setting.stand_in else setting.default,
            is_read_only=not setting.is_dynamic,
        )
        for setting in (*BROKER_SETTINGS.values(), *throttles)
    ]


def describe_all_brokers(cluster: Settings) -> list[DescribedConfig]:
    """What is set on all brokers together, and nothing else."""
    return [
        DescribedConfig(setting, [Synonym(name, value, Source.DYNAMIC_DEFAULT_BROKER)], None)
        for name, value in cluster.items()
        if (setting := _find_broker_setting(name))
    ]


def _broker_synonyms(setting: Setting, name: str, layers: Layers) -> list[Synonym]:
    """What the broker has for a setting; as in Kafka a stand-in is told only if the setting itself is set."""
    given = [Synonym(name, layer[name], source) for source, layer in zip(_LAYERS, layers, strict=True) if name in layer]
    if name in THROTTLES:
        return given
    if not setting.stand_in:
        return [*given, Synonym(name, setting.default, Source.DEFAULT)]
    return [*given, Synonym(*setting.stand_in, Source.DEFAULT)] if given else []


def _find_broker_setting(name: str) -> Setting | None:
    return BROKER_SETTINGS.get(name) or THROTTLES.get(name)


# --- changed


def check_broker(changed: Settings, settings: Settings) -> None:
    """Refuse what the broker cannot be set to while it runs; `settings` is all that it would have then."""
    for name in changed:
        setting = _find_broker_setting(name)
        if setting is None:
            known = [each.name for each in (*BROKER_SETTINGS.values(), *THROTTLES.values()) if each.is_dynamic]
            hint = nearest(name, known, otherwise="check its name")
            raise BrokerError(ErrorCode.INVALID_REQUEST, f"unknown setting {name!r}: {hint}")
        if not setting.is_dynamic:
            reason = f"Cannot update these configs dynamically: [{name}]; give it at the start with --config"
            raise BrokerError(ErrorCode.INVALID_REQUEST, reason)
    try:
        for name, value in changed.items():
            (_find_broker_setting(name) or BROKER_SETTINGS[name]).check(value)
        log_config({}, settings)
    except InvalidSetting as error:
        raise BrokerError(ErrorCode.INVALID_REQUEST, str(error)) from None


_KINDS_OF_GROUPS = ("consumer", "share", "streams")  # that have settings of their own


def check_group(group: Settings, broker: Callable[[str], int], dead_letter_prefix: str = "") -> None:
    """Refuse what a group cannot be set to; the broker has limits, and a member must be heard of in time."""
    check_settings(GROUP_SETTINGS, group)
    for name, value in group.items():
        limits = {limit: broker(limit) for limit in limits_of(f"group.{name}") if limit in BROKER_SETTINGS}
        least, most = limits_of(f"group.{name}")
        if limits and not limits.get(least, 0) <= int(value) <= limits.get(most, int(value)):
            told = ", ".join(f"{limit}={number}" for limit, number in limits.items())
            raise InvalidSetting(f"{name}={value} is out of the broker's limits: {told}")
    for kind in _KINDS_OF_GROUPS:
        interval, session = f"{kind}.heartbeat.interval.ms", f"{kind}.session.timeout.ms"
        interval_ms, session_ms = (int(group.get(name) or broker(f"group.{name}")) for name in (interval, session))
        if session_ms <= interval_ms:
            raise InvalidSetting(f"{session}={session_ms} must be greater than {interval}={interval_ms}")
    if not is_offset_reset(group.get("share.auto.offset.reset", "latest")):
        raise InvalidSetting(
            f"share.auto.offset.reset={group['share.auto.offset.reset']!r} is unknown: "
            "give earliest, latest, or by_duration: and a duration as PT1H"
        )
    check_dead_letter_topic(group.get("errors.deadletterqueue.topic.name", "").strip(), dead_letter_prefix)


def check_dead_letter_topic(name: str, prefix: str) -> None:
    """Refuse a topic that a share group's dead letters must not be written to, by its name (KIP-1191)."""
    if not name:
        return
    try:
        check_topic_name(name)
    except InvalidTopicName as error:
        raise InvalidSetting(f"errors.deadletterqueue.topic.name: {error}") from None
    if name.startswith("__"):
        raise InvalidSetting(
            f"errors.deadletterqueue.topic.name={name!r} is not for dead letters: "
            "names that begin with two underscores are those of the broker's own topics"
        )
    if not name.startswith(prefix):
        raise InvalidSetting(
            f"errors.deadletterqueue.topic.name={name!r} must begin with {prefix!r}, "
            "the broker's errors.deadletterqueue.topic.name.prefix"
        )


def check_client_metrics(subscription: Settings) -> None:
    for name in subscription:
        if name not in CLIENT_METRICS_SETTINGS:
            known = ", ".join(CLIENT_METRICS_SETTINGS)
            raise BrokerError(ErrorCode.INVALID_REQUEST, f"unknown client metrics setting {name!r}: {known} are known")
    check_settings(CLIENT_METRICS_SETTINGS, subscription)
    interval_ms = int(subscription.get("interval.ms", _LONGEST_INTERVAL_MS))
    if not _SHORTEST_INTERVAL_MS <= interval_ms <= _LONGEST_INTERVAL_MS:
        raise BrokerError(
            ErrorCode.INVALID_REQUEST,
            f"interval.ms={interval_ms} is out of its limits: {_SHORTEST_INTERVAL_MS} to {_LONGEST_INTERVAL_MS}",
        )
    parse_match(subscription.get("match", ""))


def usable(settings: Settings) -> dict[str, str]:
    """What of the broker's changed settings can take effect: a throttle has none, and what is invalid was never set."""
    return {name: value for name, value in settings.items() if _is_valid(BROKER_SETTINGS.get(name), value)}


def group_settings(by_group: Mapping[str, Settings]) -> dict[str, dict[str, int | str]]:
    """The settings of groups as the coordinators have them: typed, under the broker's names where it has one."""
    return {
        group: {
            (setting.broker_name or name).replace(".", "_"): _typed(setting, value)
            for name, value in own.items()
            if (setting := GROUP_SETTINGS.get(name)) and _is_valid(setting, value)
        }
        for group, own in by_group.items()
    }


def _typed(setting: Setting, value: str) -> int | str:
    if setting.type is SettingType.BOOLEAN:
        return value.strip().lower() == "true"
    return int(value) if setting.type is SettingType.INT else value.strip()


def _is_valid(setting: Setting | None, value: str) -> bool:
    if setting is None:
        return False
    try:
        setting.check(value)
    except InvalidSetting:
        return False
    return True
