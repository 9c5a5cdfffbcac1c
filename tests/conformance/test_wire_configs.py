"""Settings as the protocol tells and takes them: values, sources, synonyms, types; every way to change them."""

from __future__ import annotations

import itertools
import time

import pytest

from headrace.broker.settings.broker import BROKER_SETTINGS
from headrace.broker.settings.listeners import LISTENER_SETTINGS
from headrace.protocol.messages.alter_configs import AlterableConfig as Replacement
from headrace.protocol.messages.alter_configs import AlterConfigsRequest
from headrace.protocol.messages.alter_configs import AlterConfigsResource as ReplacedResource
from headrace.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from headrace.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from headrace.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from headrace.protocol.messages.list_config_resources import ListConfigResourcesRequest
from tests.conformance.clients.wire import Wire, error_name, plain
from tests.conformance.comparison import wait_until

pytestmark = pytest.mark.java

_TOPIC, _BROKER, _LOGGER, _CLIENT_METRICS, _GROUP = 2, 4, 8, 16, 32
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
    # Kafka has no default for its node.id, and no durability; the delay is what the tests give it.
    by_chance = {"durability", "node.id", "group.initial.rebalance.delay.ms"}
    # So is who may come in: Kafka has classes and key stores for it, and its listeners are others.
    of_security = {"authorization", "allow.everyone.if.no.acl.found", "super.users", "users.file"}
    of_security |= {"listener.security.protocol.map"}
    # Kafka knows few of our limits, has none by default, and lets those on addresses change while it runs.
    of_limits = {"queued.max.request.bytes", "max.connections.per.ip", "max.connections.per.ip.overrides"}
    of_limits |= {"max.group.members", "max.groups", "max.partitions", "max.partitions.per.topic"}
    of_limits |= {"max.in.flight.requests", "max.in.flight.requests.per.connection", "max.transactional.ids"}
    of_limits |= {"max.memory.topic.bytes", "max.share.partitions", "max.share.record.locks"}
    apart = by_chance | of_security | of_limits | set(LISTENER_SETTINGS)
    # How it is watched is not set by Kafka's names either.
    of_operation = ("audit.", "metrics.", "otel.", "shutdown.")
    of_queues = ("errors.deadletterqueue.", "headrace.")
    others = (*of_operation, *of_queues)
    ours_and_kafkas = sorted(name for name in set(BROKER_SETTINGS) - apart if not name.startswith(others))
    return {
        "shared": _describe(wire, "1", kind=_BROKER, keys=ours_and_kafkas),
        "not ours": _describe(wire, "1", kind=_BROKER, keys=["no.such.setting"]),
        "another broker": _describe(wire, "9", kind=_BROKER, keys=["node.id"]),
        "no number": _describe(wire, "one", kind=_BROKER, keys=["node.id"]),
        "of an unknown kind": _describe(wire, "1", kind=77),
    }


def test_broker_settings(brokers, settings_of_brokers):
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


def _change(wire, kind, name, *changes, validate_only=False):
    """The error, if any, and once it is seen everywhere."""
    configs = [AlterableConfig(name=key, config_operation=operation, value=value) for key, operation, value in changes]
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
    return plain(wire.ask(request).responses[0])["error_code"]


def dynamic_broker_settings(wire, topic):
    """Settings of the broker that change while it runs: on the node, on all, and what is refused."""
    wire.create(f"{topic}-ticks")
    backoff, expiration = "log.cleaner.backoff.ms", "producer.id.expiration.ms"
    throttle = "leader.replication.throttled.rate"

    def change(name, *changes, validate_only=False):
        error = _change(wire, _BROKER, name, *changes, validate_only=validate_only)
        _settle(wire, topic)
        return error, described("1", backoff, expiration, throttle), described("", backoff, expiration, throttle)

    def described(name, *keys):
        return _describe(wire, name, kind=_BROKER, keys=list(keys))["configs"]

    def replace(name, *configs):
        values = [Replacement(name=key, value=value) for key, value in configs]
        resource = ReplacedResource(resource_type=_BROKER, resource_name=name, configs=values)
        (answer,) = wire.ask(AlterConfigsRequest(resources=[resource])).responses
        _settle(wire, topic)
        return plain(answer)["error_code"], described("1", backoff, expiration, throttle)

    return {
        "checked": change("1", (backoff, _SET, "150"), validate_only=True),
        "on all": change("", (backoff, _SET, "150"), (expiration, _SET, "86400001")),
        "on the node": change("1", (backoff, _SET, "160")),
        "a throttle": change("1", (throttle, _SET, "1000")),
        "read-only": change("1", ("num.partitions", _SET, "2")),
        "read-only on all": change("", ("node.id", _SET, "2")),
        "read-only among others": change("1", (backoff, _SET, "170"), ("num.partitions", _SET, "2")),
        "not a number": change("1", (backoff, _SET, "soon")),
        "another node": change("9", (backoff, _SET, "150")),
        "no node": change("one", (backoff, _SET, "150")),
        "appended to no list": change("1", (backoff, _APPEND, "150")),
        "deleted what is read-only": change("1", ("node.id", _DELETE, None)),
        "replaced": replace("1", (expiration, "86400002")),
        "replaced what is read-only": replace("1", ("num.partitions", "2")),
        "emptied": replace("1"),
        "deleted on all": change("", (backoff, _DELETE, None), (expiration, _DELETE, None)),
    }


def test_dynamic_broker_settings(brokers, settings_of_brokers):
    told = brokers.compare(dynamic_broker_settings, Wire)
    assert told["on the node"][1]["log.cleaner.backoff.ms"]["value"] == "160"
    assert told["deleted on all"][1]["log.cleaner.backoff.ms"]["value"] == "100"


def group_settings(wire, topic):
    """Settings of one group, within the broker's limits; a member of it is told."""
    wire.create(topic)
    wire.create(f"{topic}-ticks")
    wire.find_coordinator(topic)
    session, interval = keys = ["consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"]

    def change(*changes, name=topic, validate_only=False):
        error = _change(wire, _GROUP, name, *changes, validate_only=validate_only)
        _settle(wire, topic)
        return error, _describe(wire, topic, kind=_GROUP, keys=keys)["configs"]

    def interval_of_a_member():
        heartbeat = ConsumerGroupHeartbeatRequest(
            group_id=topic,
            member_id=f"{topic}-member",
            subscribed_topic_names=[topic],
            rebalance_timeout_ms=1000,
            topic_partitions=[],
        )
        return wire.ask(heartbeat).heartbeat_interval_ms

    return {
        "before": _describe(wire, topic, kind=_GROUP, keys=keys),
        "a member before": wait_until(interval_of_a_member, 200),
        "checked": change((session, _SET, "4000"), validate_only=True),
        "set": change((session, _SET, "4000"), (interval, _SET, "300")),
        "a member then": wait_until(interval_of_a_member, 300),
        "below the limit": change((session, _SET, "1")),
        "above the limit": change((interval, _SET, "60000")),
        "not a number": change((session, _SET, "soon")),
        "a session as short as the interval": change((session, _SET, "2900"), (interval, _SET, "2900")),
        "unknown": change(("no.such.setting", _SET, "1")),
        "appended": change((interval, _APPEND, "1")),
        "without a name": change((interval, _SET, "300"), name=""),
        "described without a name": _describe(wire, "", kind=_GROUP)["error_code"],
        "listed": _list(wire, topic, _GROUP),
        "deleted": change((session, _DELETE, None), (interval, _DELETE, None), ("no.such.setting", _DELETE, None)),
        "a member after": wait_until(interval_of_a_member, 200),
        "listed after": _list(wire, topic, _GROUP),
    }


def _list(wire, prefix, *kinds):
    resources = wire.ask(ListConfigResourcesRequest(resource_types=list(kinds))).config_resources
    return sorted(
        (each.resource_type, each.resource_name) for each in resources if each.resource_name.startswith(prefix)
    )


def test_group_settings(brokers):
    told = brokers.compare(group_settings, Wire)
    assert (told["a member before"], told["a member then"], told["a member after"]) == (200, 300, 200)


def client_metrics_settings(wire, topic):
    """Subscriptions to the metrics of clients: made, listed, refused, removed."""
    wire.create(f"{topic}-ticks")

    def change(*changes, name=topic, validate_only=False):
        error = _change(wire, _CLIENT_METRICS, name, *changes, validate_only=validate_only)
        _settle(wire, topic)
        return error, _describe(wire, topic, kind=_CLIENT_METRICS)["configs"]

    old = wire.ask(ListConfigResourcesRequest(), 0)
    return {
        "before": _describe(wire, topic, kind=_CLIENT_METRICS),
        "checked": change(("interval.ms", _SET, "1000"), validate_only=True),
        "set": change(("interval.ms", _SET, "1000"), ("metrics", _SET, "org.none"), ("match", _SET, "client_id=none")),
        "listed": _list(wire, topic, _CLIENT_METRICS),
        "an interval too short": change(("interval.ms", _SET, "99")),
        "an interval too long": change(("interval.ms", _SET, "3600001")),
        "not a number": change(("interval.ms", _SET, "soon")),
        "matched by what is unknown": change(("match", _SET, "colour=red")),
        "matched by no expression": change(("match", _SET, "client_id=[")),
        "matched by a name": change(("match", _SET, "client_id")),
        "matched by too much": change(("match", _SET, "client_id=a=b")),
        "matched twice": change(("match", _SET, "client_id=none, client_software_name=a.*")),
        "unknown": change(("no.such.setting", _SET, "1")),
        "appended": change(("metrics", _APPEND, "org.another")),
        "without a name": change(("interval.ms", _SET, "1000"), name=""),
        "described without a name": _describe(wire, "", kind=_CLIENT_METRICS)["error_code"],
        "listed as of old": plain(old)["error_code"],
        "removed": change(*((name, _DELETE, None) for name in ("interval.ms", "metrics", "match"))),
        "listed after": _list(wire, topic, _CLIENT_METRICS),
    }


def test_client_metrics_settings(brokers):
    told = brokers.compare(client_metrics_settings, Wire)
    assert told["listed"] == [(16, "client_metrics_settings-wire")]
    assert told["listed after"] == []


def loggers(wire, topic):
    """Levels of loggers: Kafka's are its own, so only what is refused is compared, and the root."""

    def change(name, setting, operation, value, *, validate_only=False):
        return _change(wire, _LOGGER, name, (setting, operation, value), validate_only=validate_only)

    return {
        "described": _describe(wire, "1", kind=_LOGGER, keys=["root"])["configs"]["root"]["config_source"],
        "described of another": _describe(wire, "9", kind=_LOGGER)["error_code"],
        "described of all": _describe(wire, "", kind=_LOGGER)["error_code"],
        "checked": change("1", "root", _SET, "WARN", validate_only=True),
        "no level": change("1", "root", _SET, "LOUD"),
        "no logger": change("1", "no.such.logger", _SET, "INFO"),
        "appended": change("1", "root", _APPEND, "INFO"),
        "the root deleted": change("1", "root", _DELETE, None),
        "another node": change("9", "root", _SET, "INFO"),
        "all nodes": change("", "root", _SET, "INFO"),
    }


def test_loggers(brokers):
    told = brokers.compare(loggers, Wire)
    assert told["checked"] == "NONE"


def config_resources(wire, topic):
    """What has settings, by type: in one answer, and what does not exist."""
    wire.create(topic)

    def kinds(*asked):
        response = wire.ask(ListConfigResourcesRequest(resource_types=list(asked)))
        return error_name(response.error_code), sorted({each.resource_type for each in response.config_resources})

    return {
        "topics": _list(wire, topic, _TOPIC),
        "brokers": _list(wire, "", _BROKER, _LOGGER),
        "all": [each for each in kinds()[1] if each not in (_CLIENT_METRICS, _GROUP)],
        "unknown": kinds(77),
        "unknown among others": kinds(_TOPIC, 77),
    }


def test_config_resources(brokers):
    told = brokers.compare(config_resources, Wire)
    assert told["topics"] == [(2, "config_resources-wire")]
