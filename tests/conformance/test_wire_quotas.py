"""Quotas as the protocol sets and tells them, on both brokers: every kind of entity, key and filter; and the waits."""

from __future__ import annotations

import math
import time

import pytest

from headrace.protocol.messages.alter_client_quotas import AlterClientQuotasRequest, EntryData, OpData
from headrace.protocol.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from headrace.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from headrace.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from headrace.protocol.messages.shared import EntityPart
from tests.conformance.clients.wire import Wire, batch_of, error_name
from tests.conformance.comparison import wait_until

pytestmark = pytest.mark.java

_EXACT, _DEFAULT, _SPECIFIED = range(3)
_RATE = 10_000


def _entry(entity, *ops):
    """An entity as pairs, and what is asked of it: `(key, value)`, with None to remove."""
    return EntryData(
        entity=[EntityPart(entity_type=kind, entity_name=name) for kind, name in entity],
        ops=[OpData(key=key, value=value or 0, remove=value is None) for key, value in ops],
    )


def _alter(wire, *entries, version=1, validate_only=False):
    """The outcome by entity."""
    response = wire.ask(AlterClientQuotasRequest(entries=list(entries), validate_only=validate_only), version)
    return sorted((_named(each.entity), error_name(each.error_code)) for each in response.entries)


def _named(entity):
    return ",".join(sorted(f"{part.entity_type}={part.entity_name}" for part in entity))


def _describe(wire, *components, strict=False, version=1):
    """What is set, by entity; or the error."""
    asked = [ComponentData(entity_type=kind, match_type=how, match=name) for kind, how, name in components]
    response = wire.ask(DescribeClientQuotasRequest(components=asked, strict=strict), version)
    if response.entries is None or response.error_code:
        return error_name(response.error_code), response.entries
    return {_named(each.entity): {value.key: value.value for value in each.values} for each in response.entries}


def setting_quotas(wire, topic):
    """What can be set, and what is refused."""
    user, app = ("user", topic), ("client-id", topic)
    rate = ("producer_byte_rate", 1e9)
    told = {
        "empty": _alter(wire),
        "no entity": _alter(wire, _entry([], rate)),
        "unknown type": _alter(wire, _entry([("group", topic)], rate)),
        "empty name": _alter(wire, _entry([("user", "")], rate)),
        "ip and user": _alter(wire, _entry([("ip", "10.0.0.1"), user], ("connection_creation_rate", 1))),
        "not an address": _alter(wire, _entry([("ip", "no such host")], ("connection_creation_rate", 1))),
        "name of a host": _alter(
            wire, _entry([("ip", "localhost")], ("connection_creation_rate", 1)), validate_only=True
        ),
        "unknown key": _alter(wire, _entry([user], ("no_such_rate", 1))),
        "key of an address": _alter(wire, _entry([user], ("connection_creation_rate", 1))),
        "key of a user": _alter(wire, _entry([("ip", "10.0.0.1")], rate)),
        "zero": _alter(wire, _entry([user], ("producer_byte_rate", 0))),
        "negative": _alter(wire, _entry([user], ("request_percentage", -1))),
        "fraction": _alter(wire, _entry([user], ("consumer_byte_rate", 1.5))),
        "nearly whole": _alter(wire, _entry([user], ("consumer_byte_rate", 1e9 + 1e-7)), validate_only=True),
        "too large": _alter(wire, _entry([user], ("consumer_byte_rate", 1e20))),
        "infinite": _alter(wire, _entry([user], ("request_percentage", math.inf)), validate_only=True),
        "infinite bytes": _alter(wire, _entry([user], ("consumer_byte_rate", math.inf))),
        "too many connections": _alter(wire, _entry([("ip", "10.0.0.1")], ("connection_creation_rate", 2**31))),
        "key twice": _alter(wire, _entry([user], rate, ("producer_byte_rate", 2e9))),
        "unknown removed": _alter(wire, _entry([user], ("no_such_rate", None))),
        "only checked": _alter(wire, _entry([user], rate), validate_only=True),
    }
    told["nothing set"] = _describe(wire, ("user", _EXACT, topic))
    told["set"] = _alter(
        wire,
        _entry([user], rate, ("request_percentage", 12.5)),
        _entry([app], ("consumer_byte_rate", 2e9)),
        _entry([user, app], ("controller_mutation_rate", 0.5)),
        _entry([user, ("client-id", None)], rate),
        _entry([("ip", "10.0.0.1")], ("connection_creation_rate", 7)),
        _entry([user, ("group", topic)], rate),
        version=0,
    )
    told["seen"] = wait_until(lambda: len(_describe(wire, ("user", _EXACT, topic))), 3)
    told["entity twice"] = _alter(wire, _entry([app], rate), _entry([app], ("producer_byte_rate", 3e9)))
    told["first of them"] = wait_until(
        lambda: _describe(wire, ("client-id", _EXACT, topic), strict=True)[f"client-id={topic}"],
        {"consumer_byte_rate": 2e9, "producer_byte_rate": 1e9},
    )
    told |= {
        "by user": _describe(wire, ("user", _EXACT, topic)),
        "by user alone": _describe(wire, ("user", _EXACT, topic), strict=True),
        "by both": _describe(wire, ("user", _EXACT, topic), ("client-id", _SPECIFIED, None), strict=True),
        "by the default": _describe(wire, ("user", _EXACT, topic), ("client-id", _DEFAULT, None), version=0),
        "by an address": _describe(wire, ("ip", _EXACT, "10.0.0.1")),
        "by none": _describe(wire, strict=True),
    }
    ours = [[user], [app], [user, app], [user, ("client-id", None)]]
    keys = ("producer_byte_rate", "request_percentage", "consumer_byte_rate", "controller_mutation_rate")
    told["removed"] = _alter(wire, *(_entry(entity, *((key, None) for key in keys)) for entity in ours))
    _alter(wire, _entry([("ip", "10.0.0.1")], ("connection_creation_rate", None)))
    told["nothing left"] = wait_until(lambda: _describe(wire, ("user", _EXACT, topic)), {})
    return told


def test_setting_quotas(brokers):
    told = brokers.compare(setting_quotas, Wire)
    assert told["by user alone"] == {f"user={_topic_of(told)}": {"producer_byte_rate": 1e9, "request_percentage": 12.5}}


def _topic_of(told):
    return next(iter(told["by user alone"])).removeprefix("user=")


def filtering_quotas(wire, topic):
    """Filters that are refused."""
    user = ("user", _EXACT, topic)
    return {
        "empty type": _describe(wire, ("", _EXACT, topic)),
        "unknown type": _describe(wire, ("group", _EXACT, topic)),
        "twice": _describe(wire, user, ("user", _DEFAULT, None)),
        "exactly nothing": _describe(wire, ("user", _EXACT, None)),
        "a named default": _describe(wire, ("user", _DEFAULT, topic)),
        "any of a name": _describe(wire, ("user", _SPECIFIED, topic)),
        "unknown match": _describe(wire, ("user", 3, None)),
        "address and user": _describe(wire, user, ("ip", _DEFAULT, None)),
        "nobody": _describe(wire, user),
    }


def test_filtering_quotas(brokers):
    told = brokers.compare(filtering_quotas, Wire)
    assert told["twice"] == ("INVALID_REQUEST", None)


def throttled(wire, topic):
    """How long clients are told to wait: not for ten seconds of their quotas at once, and then for what is more."""
    wire.create(topic)
    wire.client_id = topic  # nobody else's: other tests use the same Kafka
    entity = [("user", "ANONYMOUS"), ("client-id", topic)]

    def produce(size):
        data = TopicProduceData(
            name=topic, partition_data=[PartitionProduceData(index=0, records=batch_of(b"x" * size))]
        )
        return wire.ask(ProduceRequest(acks=1, timeout_ms=30000, topic_data=[data]), 12)

    def fetch():
        wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
        asked = FetchRequest(topics=[FetchTopic(topic=topic, partitions=[wanted])], max_wait_ms=500, min_bytes=1)
        response = wire.ask(asked, 12)
        return {"wait": _half_seconds(response), "partitions": sum(len(each.partitions) for each in response.responses)}

    def set_rates(rate):
        wire.reconnect()  # or we would wait
        _alter(wire, _entry(entity, ("producer_byte_rate", rate), ("consumer_byte_rate", rate)))
        found = [] if rate is None else [{"producer_byte_rate": rate, "consumer_byte_rate": rate}]
        wait_until(lambda: list(_describe(wire, *((kind, _EXACT, name) for kind, name in entity)).values()), found)

    set_rates(_RATE)
    began = time.monotonic()
    told = {"within": _half_seconds(produce(9 * _RATE))}
    beyond_ms = produce(3 * _RATE).throttle_time_ms
    gone_ms = (time.monotonic() - began) * 1000  # what passes between the two is waited less
    told["two seconds beyond"] = 1750 - gone_ms <= beyond_ms <= 2250
    set_rates(_RATE / 2)
    told["batch larger than the quota"] = fetch()
    set_rates(None)
    return told | {"without": fetch()}


def _half_seconds(response):
    return round(response.throttle_time_ms / 500)  # Kafka and we count the milliseconds between two requests


def test_throttled(brokers):
    told = brokers.compare(throttled, Wire)
    assert (told["within"], told["two seconds beyond"], told["without"]["wait"]) == (0, True, 0)
