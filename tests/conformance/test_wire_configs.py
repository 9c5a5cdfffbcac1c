"""Settings as the protocol tells and takes them: values, sources, synonyms, types; every way to change them."""

from __future__ import annotations

import itertools
import time

import pytest

from headrace.broker.settings import BROKER_SETTINGS
from headrace.protocol.messages.alter_configs import AlterableConfig as Replacement
from headrace.protocol.messages.alter_configs import AlterConfigsRequest
from headrace.protocol.messages.alter_configs import AlterConfigsResource as ReplacedResource
from headrace.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from headrace.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.conformance.clients.wire import Wire, plain

pytestmark = pytest.mark.java

_TOPIC, _BROKER, _LOGGER = 2, 4, 8
_SET, _DELETE, _APPEND, _SUBTRACT = range(4)
_ticks = itertools.count(1)


def _settle(wire, topic):
    """Wait until every change so far is seen: Kafka's broker follows its metadata log in order, a moment behind."""
    name, value = "segment.jitter.ms", str(next(_ticks))
    change = AlterableConfig(name=name, config_operation=_SET, value=value)
    resource = AlterConfigsResource(resource_type=_TOPIC, resource_name=f"{topic}-ticks", configs=[change])
    assert wire.ask(IncrementalAlterConfigsRequest(resources=[resource])).responses[0].error_code == 0
    while _describe(wire, f"{topic}-ticks", keys=[name])["configs"][name]["value"] != value:
        time.sleep(0.005)  # the pause of a poll


def _describe(wire, name, *, kind=_TOPIC, keys=None, version=None, synonyms=True):
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
    return plain(wire.ask(DescribeConfigsRequest(resources=[resource], include_synonyms=synonyms), version).results[0])


def topic_settings(wire, topic):
    """Every setting of a topic in each version, with where its value could come from."""
    wire.create(topic, configs={"retention.ms": "5000", "cleanup.policy": "compact,delete"})
    told = {f"version {version}": _describe(wire, topic, version=version) for version in range(1, 5)}
    return told | {
        "without synonyms": _describe(wire, topic, synonyms=False),
        "some": _describe(wire, topic, keys=["retention.ms", "no.such.setting", "segment.bytes"]),
        "none": _describe(wire, topic, keys=[]),
        "unknown topic": _describe(wire, f"{topic}-none"),
        "illegal topic": _describe(wire, "no spaces"),
        "empty topic": _describe(wire, ""),
    }


def test_topic_settings(brokers):
    told = brokers.compare(topic_settings, Wire)
    assert told["version 4"]["configs"]["retention.ms"]["value"] == "5000"


def broker_settings(wire, topic):
    """The broker's settings that we have: their values, types and sources. Kafka has many more."""
    # Kafka has no default for its node.id, and no durability; the delay is what the tests give it; what an authorizer
    # is configured with is no setting of the broker.
    of_authorizer = {"authorization", "super.users", "allow.everyone.if.no.acl.found"}
    not_alike = {"durability", "node.id", "group.initial.rebalance.delay.ms", *of_authorizer}
    ours_and_kafkas = sorted(set(BROKER_SETTINGS) - not_alike)
    return {
        "shared": _describe(wire, "1", kind=_BROKER, keys=ours_and_kafkas),
        "not ours": _describe(wire, "1", kind=_BROKER, keys=["no.such.setting"]),
        "another broker": _describe(wire, "9", kind=_BROKER, keys=["node.id"]),
        "no number": _describe(wire, "one", kind=_BROKER, keys=["node.id"]),
        "of an unknown kind": _describe(wire, "1", kind=77),
    }


def test_broker_settings(brokers):
    brokers.compare(broker_settings, Wire)


def other_resources(wire, topic):
    """Settings of broker loggers, client metrics and groups."""

    def change(kind, name, setting, value, operation=_SET):
        config = AlterableConfig(name=setting, config_operation=operation, value=value)
        resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=[config])
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=True)
        return plain(wire.ask(request).responses[0])["error_code"]

    return {
        "logger": _describe(wire, "1", kind=8, keys=["kafka.none"])["error_code"],
        "client metrics": _describe(wire, topic, kind=16)["error_code"],
        "group": _describe(wire, topic, kind=32)["error_code"],
        "logger changed": change(8, "1", "org.apache.kafka.none", "INFO"),
        "client metrics changed": change(16, topic, "interval.ms", "1000"),
        "group changed": change(32, topic, "consumer.session.timeout.ms", "50000"),
        "unknown kind changed": change(77, "1", "a", "b"),
        "broker, what was never set": change(4, "1", "leader.replication.throttled.rate", None, _DELETE),
        "all brokers, what was never set": change(4, "", "leader.replication.throttled.rate", None, _DELETE),
    }


def test_other_resources(brokers):
    brokers.compare(other_resources, Wire)


def incremental_changes(wire, topic):
    """Set, delete, append, subtract; what is refused; and what the topic has in the end."""

    def change(*changes, name=topic, kind=_TOPIC, validate_only=False):
        configs = [
            AlterableConfig(name=key, config_operation=operation, value=value) for key, operation, value in changes
        ]
        resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
        (answer,) = wire.ask(request).responses
        _settle(wire, topic)
        return plain(answer)["error_code"], own_settings()

    def own_settings():
        told = _describe(wire, topic)["configs"]
        return {key: each["value"] for key, each in told.items() if each["config_source"] == 1}

    wire.create(f"{topic}-ticks")
    wire.create(topic, configs={"retention.ms": "5000"})
    return {
        "checked": change(("retention.ms", _SET, "6000"), validate_only=True),
        "set": change(("retention.ms", _SET, "6000"), ("segment.ms", _SET, "7000")),
        "deleted": change(("retention.ms", _DELETE, None)),
        "deleted again": change(("retention.ms", _DELETE, None)),
        "deleted with a value": change(("segment.ms", _DELETE, "7000")),
        "appended to the default": change(("cleanup.policy", _APPEND, "compact")),
        "appended twice": change(("cleanup.policy", _APPEND, "compact")),
        "subtracted": change(("cleanup.policy", _SUBTRACT, "delete")),
        "subtracted what is not there": change(("cleanup.policy", _SUBTRACT, "delete")),
        "subtracted to nothing": change(("cleanup.policy", _SUBTRACT, "compact")),
        "set two in a list": change(("cleanup.policy", _SET, "compact,delete")),
        "set one twice in a list": change(("cleanup.policy", _SET, "compact,compact")),
        "appended something bad": change(("cleanup.policy", _APPEND, "burn")),
        "appended to no list": change(("retention.ms", _APPEND, "1")),
        "unknown operation": change(("retention.ms", 9, "1")),
        "null value": change(("retention.ms", _SET, None)),
        "null appended": change(("cleanup.policy", _APPEND, None)),
        "bad value": change(("retention.ms", _SET, "soon")),
        "bad value among good": change(("segment.ms", _SET, "1000"), ("retention.ms", _SET, "soon")),
        "unknown setting": change(("no.such.setting", _SET, "1")),
        "unknown setting deleted": change(("no.such.setting", _DELETE, None)),
        "one twice": change(("retention.ms", _SET, "1"), ("retention.ms", _SET, "2")),
        "set to the default": change(("retention.ms", _SET, "604800000")),
        "nothing": change(),
        "empty name": change(("", _SET, "1")),
        "boolean in capitals": change(("preallocate", _SET, "TRUE")),
        "local retention above retention": change(("local.retention.ms", _SET, "99999999999999")),
        "lags crossed": change(("min.compaction.lag.ms", _SET, "10"), ("max.compaction.lag.ms", _SET, "5")),
        "number with spaces": change(("segment.ms", _SET, " 9000 ")),
        "number too large": change(("segment.bytes", _SET, str(2**31))),
        "on the broker": change(("log.retention.ms", _SET, "604800000"), name="1", kind=_BROKER, validate_only=True),
        "two codecs": change(("compression.type", _SET, "gzip,lz4")),
        "no codec": change(("compression.type", _SET, "")),
        "a codec with spaces": change(("compression.type", _SET, " gzip ")),
        "a negative lag": change(("min.compaction.lag.ms", _SET, "-1")),
        "on an unknown topic": change(("retention.ms", _SET, "1"), name=f"{topic}-none"),
        "on an unknown kind": change(("retention.ms", _SET, "1"), kind=77),
    }


def test_incremental_changes(brokers):
    brokers.compare(incremental_changes, Wire)


def replacements(wire, topic):
    """AlterConfigs replaces all: what is not named goes back to its default."""

    def replace(configs, *, name=topic, validate_only=False):
        values = [Replacement(name=key, value=value) for key, value in configs]
        resource = ReplacedResource(resource_type=_TOPIC, resource_name=name, configs=values)
        (answer,) = wire.ask(AlterConfigsRequest(resources=[resource], validate_only=validate_only)).responses
        _settle(wire, topic)
        told = _describe(wire, topic)["configs"]
        return plain(answer)["error_code"], {k: v["value"] for k, v in told.items() if v["config_source"] == 1}

    wire.create(f"{topic}-ticks")
    wire.create(topic, configs={"retention.ms": "5000", "segment.ms": "7000"})
    return {
        "checked": replace([("retention.ms", "1")], validate_only=True),
        "replaced": replace([("retention.ms", "6000")]),
        "null": replace([("retention.ms", None)]),
        "bad": replace([("retention.ms", "soon")]),
        "unknown setting": replace([("no.such.setting", "1")]),
        "unknown topic": replace([("retention.ms", "1")], name=f"{topic}-none"),
        "emptied": replace([]),
    }


def test_replacements(brokers):
    brokers.compare(replacements, Wire)


def one_resource_twice(wire, topic):
    """The same topic twice in one request."""
    wire.create(f"{topic}-ticks")
    wire.create(topic)
    asked = [
        AlterConfigsResource(
            resource_type=_TOPIC,
            resource_name=topic,
            configs=[AlterableConfig(name="retention.ms", config_operation=_SET, value=value)],
        )
        for value in ("1000", "2000")
    ]
    answers = wire.ask(IncrementalAlterConfigsRequest(resources=asked)).responses
    _settle(wire, topic)
    described = _describe(wire, topic, keys=["retention.ms"])["configs"]["retention.ms"]["value"]
    resource = DescribeConfigsResource(resource_type=_TOPIC, resource_name=topic, configuration_keys=["retention.ms"])
    twice = wire.ask(DescribeConfigsRequest(resources=[resource, resource])).results
    return {"answers": plain(answers), "value": described, "described": len(twice)}


def test_one_resource_twice(brokers):
    brokers.compare(one_resource_twice, Wire)
