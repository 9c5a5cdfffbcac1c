"""What can be set either has an effect, or is said to have none."""

from dataclasses import fields
from pathlib import Path

import headrace.broker
from headrace.broker.config import BrokerConfig
from headrace.broker.runtime import _group_settings
from headrace.broker.settings.broker import BROKER_SETTINGS
from headrace.broker.settings.groups import GROUP_SETTINGS, limits_of
from headrace.broker.settings.topics import TOPIC_SETTINGS
from headrace.storage.config import LogConfig

WITHOUT_EFFECT = "without effect"
_SOURCES = [
    path.read_text(encoding="utf-8")
    for path in Path(headrace.broker.__file__).parent.rglob("*.py")
    if path.parent.name != "settings"
]


def test_a_topic_setting_is_read_somewhere_or_is_said_to_have_no_effect():
    of_the_log = set(LogConfig().to_properties())
    of_the_broker = {name for name in TOPIC_SETTINGS if any(f'"{name}"' in source for source in _SOURCES)}
    declared = {name for name, setting in TOPIC_SETTINGS.items() if WITHOUT_EFFECT in setting.meaning}
    assert of_the_log | of_the_broker | declared == set(TOPIC_SETTINGS)
    assert not (of_the_log | of_the_broker) & declared


def test_a_broker_setting_is_read_somewhere_or_is_said_to_have_no_effect():
    defaults_of_topics = {setting.broker_name for setting in TOPIC_SETTINGS.values()}
    named = [name for name in BROKER_SETTINGS if name.startswith(("group.", "offset"))]
    groups = _group_settings(BrokerConfig("", settings=dict.fromkeys(named, "7")))
    of_groups = {field.name.replace("_", ".") for field in fields(groups) if getattr(groups, field.name) == 7}
    limits = {limit for each in GROUP_SETTINGS.values() if each.broker_name for limit in limits_of(each.broker_name)}
    for name, setting in BROKER_SETTINGS.items():
        if name not in defaults_of_topics:
            is_read = name in of_groups | limits or any(f'"{name}"' in source for source in _SOURCES)
            assert is_read != (WITHOUT_EFFECT in setting.meaning), name
