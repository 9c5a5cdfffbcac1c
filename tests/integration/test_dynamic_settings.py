"""Settings that are changed while the broker runs take effect at once, and a killed broker has them when it is back."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

from headrace import Broker
from headrace.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from headrace.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from headrace.protocol.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from headrace.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.conformance.clients.wire import Wire, batch_of, error_name

if TYPE_CHECKING:
    from pathlib import Path

_BROKER, _LOGGER, _CLIENT_METRICS, _GROUP = 4, 8, 16, 32
_LARGE = batch_of(b"x" * 5000)
_SMALL = batch_of(b"x")


def _change(wire: Wire, kind: int, name: str, setting: str, value: str | None) -> str:
    change = AlterableConfig(name=setting, config_operation=0 if value is not None else 1, value=value)
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=[change])
    (outcome,) = wire.ask(IncrementalAlterConfigsRequest(resources=[resource])).responses
    return error_name(outcome.error_code)


def _value(wire: Wire, kind: int, name: str, setting: str) -> tuple[str, int]:
    """The value in force, and where it comes from."""
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=[setting])
    (config,) = wire.ask(DescribeConfigsRequest(resources=[resource])).results[0].configs
    return config.value, config.config_source


def _produce(wire: Wire, topic: str, batch: bytes) -> str:
    return error_name(wire.produce(topic, batch).error_code)


def _heartbeat_interval_ms(wire: Wire) -> int:
    asked = ConsumerGroupHeartbeatRequest(
        group_id="group",
        member_id="member",
        subscribed_topic_names=["topic"],
        rebalance_timeout_ms=1000,
        topic_partitions=[],
    )
    interval_ms = wire.ask(asked).heartbeat_interval_ms
    assert isinstance(interval_ms, int)
    return interval_ms


def _wanted_metrics(wire: Wire) -> list[str]:
    return list(wire.ask(GetTelemetrySubscriptionsRequest()).requested_metrics)


def test_what_is_changed_takes_effect_and_survives_a_kill(tmp_path: Path) -> None:
    with Broker(tmp_path / "data", own_process=True) as broker, Wire(broker.bootstrap_servers) as wire:
        wire.create("topic")
        wire.create("own", configs={"max.message.bytes": "100000"})
        assert _produce(wire, "topic", _LARGE) == "NONE"
        assert _change(wire, _BROKER, "", "message.max.bytes", "1000") == "NONE"
        assert [_produce(wire, "topic", each) for each in (_LARGE, _SMALL)] == ["MESSAGE_TOO_LARGE", "NONE"]
        assert _produce(wire, "own", _LARGE) == "NONE"
        wire.create("later")
        assert _produce(wire, "later", _LARGE) == "MESSAGE_TOO_LARGE"
        assert _change(wire, _BROKER, "1", "message.max.bytes", "10000") == "NONE"
        assert _produce(wire, "topic", _LARGE) == "NONE"
        assert _change(wire, _BROKER, "1", "message.max.bytes", None) == "NONE"
        assert _change(wire, _GROUP, "group", "consumer.heartbeat.interval.ms", "7000") == "NONE"
        assert _change(wire, _CLIENT_METRICS, "some", "metrics", "org.a") == "NONE"
        assert (_heartbeat_interval_ms(wire), _wanted_metrics(wire)) == (7000, ["org.a"])
        os.kill(broker.pid, signal.SIGKILL)
    with Broker(tmp_path / "data", own_process=True) as broker, Wire(broker.bootstrap_servers) as wire:
        assert _value(wire, _BROKER, "1", "message.max.bytes") == ("1000", 3)
        assert _produce(wire, "topic", _LARGE) == "MESSAGE_TOO_LARGE"
        assert (_heartbeat_interval_ms(wire), _wanted_metrics(wire)) == (7000, ["org.a"])
        assert _change(wire, _BROKER, "", "message.max.bytes", None) == "NONE"
        assert _produce(wire, "topic", _LARGE) == "NONE"
        assert _value(wire, _BROKER, "1", "message.max.bytes") == ("1048588", 5)


def test_a_logger_has_the_level_that_it_is_given_until_it_is_deleted(tmp_path: Path) -> None:
    name, level = "headrace.broker.server", "FATAL"
    with Broker(tmp_path / "data", own_process=True) as broker, Wire(broker.bootstrap_servers) as wire:
        before = _value(wire, _LOGGER, "1", name)
        assert _change(wire, _LOGGER, "1", name, level) == "NONE"
        assert _value(wire, _LOGGER, "1", name) == (level, 6)
        assert _value(wire, _LOGGER, "1", "root") == before
        assert _change(wire, _LOGGER, "1", name, None) == "NONE"
        assert _value(wire, _LOGGER, "1", name) == before
