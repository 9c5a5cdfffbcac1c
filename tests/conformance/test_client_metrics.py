"""Clients push their metrics (KIP-714): a real client does by itself, and hand-made requests are answered as by Kafka.

A Kafka takes metrics only with a plugin, written in Java, that does something with them; without one it does not even
announce the APIs. What hand-made requests are answered was recorded on an Apache Kafka 4.3.1 with a plugin that takes
everything.
"""

from __future__ import annotations

import gzip
from itertools import count

import pytest
from confluent_kafka import Producer

from headrace import Broker
from headrace.protocol.messages.api_versions import ApiVersionsRequest
from headrace.protocol.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from headrace.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from headrace.protocol.messages.push_telemetry import PushTelemetryRequest
from headrace.records import compress
from tests.conformance.clients.wire import Wire, error_name
from tests.conformance.comparison import wait_until

_CLIENT_METRICS = 16
_ids = count(1000)


def _subscribe(wire, name, **settings):
    """Make, change or (without settings) remove a subscription."""
    named = {
        "interval.ms": settings.get("interval_ms"),
        "metrics": settings.get("metrics"),
        "match": settings.get("match"),
    }
    configs = [
        AlterableConfig(name=each, config_operation=0 if value else 1, value=value) for each, value in named.items()
    ]
    resource = AlterConfigsResource(resource_type=_CLIENT_METRICS, resource_name=name, configs=configs)
    assert wire.ask(IncrementalAlterConfigsRequest(resources=[resource])).responses[0].error_code == 0


def _fresh():
    return next(_ids).to_bytes(16, "big")


def _get(wire, instance_id):
    response = wire.ask(GetTelemetrySubscriptionsRequest(client_instance_id=instance_id))
    return error_name(response.error_code), response


def _push(wire, instance_id, subscription_id, metrics=b"", *, codec=0, terminating=False):
    request = PushTelemetryRequest(
        client_instance_id=instance_id,
        subscription_id=subscription_id,
        terminating=terminating,
        compression_type=codec,
        metrics=metrics,
    )
    return error_name(wire.ask(request).error_code)


def pushes(wire, name):
    """What a client is asked for, and what it is answered when it pushes: in time, too early, wrongly, at last."""
    wire.ask(ApiVersionsRequest(client_software_name="by-hand", client_software_version="1.2"))
    nobody = _get(wire, _fresh())[1]
    match = "client_id=wire,client_software_name=by-h.*,client_software_version=1\\.2,client_source_address=127.0.0.1"
    _subscribe(wire, name, interval_ms="300000", metrics="org.b.,org.a.", match=match)
    _subscribe(wire, f"{name}-other", interval_ms="1000", metrics="org.c.", match="client_id=somebody")
    wait_until(lambda: sorted(_get(wire, _fresh())[1].requested_metrics), ["org.a.", "org.b."])
    one = _fresh()
    error, asked = _get(wire, one)
    given = _get(wire, bytes(16))[1].client_instance_id
    told = {
        "nobody": (list(nobody.requested_metrics), nobody.push_interval_ms),
        "asked": (error, asked.client_instance_id == one, sorted(asked.requested_metrics), asked.push_interval_ms),
        "how": (list(asked.accepted_compression_types), asked.telemetry_max_bytes, asked.delta_temporality),
        "a client without an id": given != bytes(16),
        "asked again": _get(wire, one)[0],
        "pushed": _push(wire, one, asked.subscription_id),
        "pushed again": _push(wire, one, asked.subscription_id),
        "pushed for the last time": _push(wire, one, asked.subscription_id, terminating=True),
        "pushed after that": _push(wire, one, asked.subscription_id),
        "pushed as nobody": _push(wire, bytes(16), asked.subscription_id),
    }

    def asked_then_pushed(metrics=b"", **options):
        instance_id = _fresh()
        subscription_id = _get(wire, instance_id)[1].subscription_id
        first = _push(wire, instance_id, subscription_id + options.pop("off_by", 0), metrics, **options)
        return first, _get(wire, instance_id)[0]

    return told | {
        "another subscription": asked_then_pushed(off_by=1),
        "an unknown codec": asked_then_pushed(codec=9),
        "too much": asked_then_pushed(bytes(1_048_577)),
        "compressed": asked_then_pushed(gzip.compress(_METRICS), codec=1),
        "plain": asked_then_pushed(_METRICS),
        "not compressed as it says": asked_then_pushed(_METRICS, codec=1),
        "never asked": _push(wire, _fresh(), 1),
        "everything": _everything(wire, name),
    }


def _everything(wire, name):
    """A star is everything, and what a client was asked for before is another subscription."""
    one = _fresh()
    before = _get(wire, one)[1]
    _subscribe(wire, f"{name}-more", interval_ms="200000", metrics="org.d.,*")
    wait_until(lambda: list(_get(wire, _fresh())[1].requested_metrics), ["*"])
    outdated = _push(wire, one, before.subscription_id)
    error, after = _get(wire, one)
    for each in (name, f"{name}-other", f"{name}-more"):
        _subscribe(wire, each)
    return outdated, error, list(after.requested_metrics), after.push_interval_ms


def _field(number, content):
    return bytes([number << 3 | 2, len(content)]) + content


def _fixed(number, content):
    return bytes([number << 3 | 1]) + content


_ATTRIBUTE = _field(1, b"topic") + _field(2, _field(1, b"orders"))
_SUM = _field(1, _fixed(6, (5).to_bytes(8, "little")) + _field(7, _ATTRIBUTE)) + bytes([2 << 3, 1])  # a delta
_METRICS = _field(1, _field(2, _field(2, _field(1, b"org.a.count") + _field(7, _SUM))))

RECORDED = {
    "nobody": ([], 300000),
    "asked": ("NONE", True, ["org.a.", "org.b."], 300000),
    "how": ([4, 3, 1, 2], 1048576, True),
    "a client without an id": True,
    "asked again": "THROTTLING_QUOTA_EXCEEDED",
    "pushed": "NONE",
    "pushed again": "THROTTLING_QUOTA_EXCEEDED",
    "pushed for the last time": "NONE",
    "pushed after that": "INVALID_REQUEST",
    "pushed as nobody": "INVALID_REQUEST",
    "another subscription": ("UNKNOWN_SUBSCRIPTION_ID", "NONE"),
    "an unknown codec": ("UNSUPPORTED_COMPRESSION_TYPE", "NONE"),
    "too much": ("TELEMETRY_TOO_LARGE", "THROTTLING_QUOTA_EXCEEDED"),
    "compressed": ("NONE", "THROTTLING_QUOTA_EXCEEDED"),
    "plain": ("NONE", "THROTTLING_QUOTA_EXCEEDED"),
    "not compressed as it says": ("INVALID_RECORD", "THROTTLING_QUOTA_EXCEEDED"),
    "never asked": "UNKNOWN_SUBSCRIPTION_ID",
    "everything": ("UNKNOWN_SUBSCRIPTION_ID", "NONE", ["*"], 200000),
}


@pytest.fixture
def broker(tmp_path):
    with Broker(tmp_path / "data") as running:
        yield running


def test_hand_made_pushes_are_answered_as_by_kafka(broker):
    with Wire(broker.bootstrap_servers) as wire:
        assert pushes(wire, "by-hand") == RECORDED


def test_what_is_pushed_is_kept_by_client_and_adds_up(broker):
    with Wire(broker.bootstrap_servers) as wire:
        _subscribe(wire, "sums", interval_ms="100", metrics="*")
        one = _fresh()
        subscription_id = _get(wire, one)[1].subscription_id
        for codec, metrics in ((0, _METRICS), (1, gzip.compress(_METRICS))):
            wait_until(
                lambda codec=codec, metrics=metrics: _push(wire, one, subscription_id, metrics, codec=codec), "NONE"
            )
        assert (
            wait_until(lambda: _push(wire, one, subscription_id, b"not protobuf"), "INVALID_RECORD") == "INVALID_RECORD"
        )
    kept = {each.name: each for each in _samples(broker) if each.labels["client_id"] == "wire"}
    assert (kept["org.a.count"].value, kept["org.a.count"].labels["topic"]) == (10, "orders")
    assert (kept["client_metrics_pushes"].value, kept["client_metrics_refused"].value) == (2, 1)


@pytest.mark.parametrize("codec", [1, 3, 4])
def test_a_push_that_swells_beyond_measure_is_refused(broker, codec):
    swelling = compress(codec, bytes(50_000_000))
    assert len(swelling) < 1_048_576
    with Wire(broker.bootstrap_servers) as wire:
        one = _fresh()
        assert _push(wire, one, _get(wire, one)[1].subscription_id, swelling, codec=codec) == "INVALID_RECORD"


def test_a_real_client_pushes_by_itself(broker):
    with Wire(broker.bootstrap_servers) as wire:
        _subscribe(wire, "all", interval_ms="200", metrics="*", match="client_id=shop")
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "client.id": "shop"})
    producer.produce("orders", b"one")
    assert producer.flush(30) == 0

    def pushed():
        return [each.name for each in _samples(broker) if each.labels["client_id"] == "shop"]

    wait_until(lambda: any(name.startswith("org.apache.kafka.producer") for name in pushed()), wanted=True)
    assert "org.apache.kafka.producer.connection.creation.total" in pushed()


def _samples(broker):
    """What the broker's registry has; it runs in this process."""
    return list(broker._host._server.runtime.client_metrics.samples())
