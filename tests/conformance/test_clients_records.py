"""Records from each client to each other, through both brokers: codecs, acks, keys, headers, times."""

from __future__ import annotations

import pytest

from tests.conformance.clients.aio import Aio
from tests.conformance.clients.confluent import Confluent
from tests.conformance.clients.python import Python
from tests.conformance.clients.record import Seen
from tests.conformance.clients.wire import NOON_MS, Wire

pytestmark = pytest.mark.java

_CLIENTS = (Confluent, Aio, Python)
_EVERY_CLIENT = pytest.mark.parametrize("client", _CLIENTS)
_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def _make(servers, topic, partitions=1, configs=None):
    with Wire(servers) as wire:
        wire.create(topic, partitions, configs)


def _odd_records(partition):
    """Null, empty and ordinary keys and values, headers of all sorts, times that run backwards."""
    headers = [
        [],
        [("trace", b"\x00\xff")],
        [("same", b"first"), ("same", b"second"), ("empty", b"")],
        [("größe", b"1")],
    ]
    keys = [None, b"", b"key", b"\xff\x00"]
    values = [b"value", b"", None, b"x" * 500]
    return [
        {
            "partition": partition,
            "key": keys[i % 4],
            # An empty record is no use to anybody, and some clients refuse it.
            "value": values[(i // 4) % 4] if keys[i % 4] is not None else b"value",
            "headers": headers[i % 4],
            "timestamp": NOON_MS + i * 1000 - (5000 if i % 3 == 2 else 0),
        }
        for i in range(16)
    ]


def _as_seen(partition, offset, record):
    return Seen(
        partition, offset, "CreateTime", record["timestamp"], record["key"], record["value"], tuple(record["headers"])
    )


def every_codec(client, topic):
    """Each codec into a partition of its own, read back by every client that can; and what the writer was told."""
    _make(client.servers, topic, len(_CODECS))
    told = {}
    for partition, codec in enumerate(_CODECS):
        if codec in client.codecs:
            told[f"written {codec}"] = client.produce(topic, _odd_records(partition), codec=codec)
    for reader in _CLIENTS:
        shared = [codec for codec in reader.codecs if codec in client.codecs]
        places = {_CODECS.index(codec): 0 for codec in shared}
        with reader(client.servers) as reading:
            told[f"read by {reader.__name__}"] = reading.consume(topic, places, 16 * len(shared))
    return told


@_EVERY_CLIENT
def test_every_codec(brokers, client):
    told = brokers.compare(every_codec, client)
    for reader in _CLIENTS:
        shared = [codec for codec in _CODECS if codec in client.codecs and codec in reader.codecs]
        assert told[f"read by {reader.__name__}"] == [
            _as_seen(_CODECS.index(codec), offset, record)
            for codec in shared
            for offset, record in enumerate(_odd_records(_CODECS.index(codec)))
        ]


def null_headers(client, topic):
    """A header whose value is null: only the C client lets one write it."""
    _make(client.servers, topic)
    told = client.produce(topic, [{"value": b"v", "headers": [("null", None), ("empty", b"")], "timestamp": NOON_MS}])
    readers = {}
    for reader in _CLIENTS:
        with reader(client.servers) as reading:
            readers[reader.__name__] = reading.consume(topic, {0: 0}, 1)
    return {"told": told, "read": readers}


@pytest.mark.parametrize("client", [Confluent])
def test_null_headers(brokers, client):
    told = brokers.compare(null_headers, client)
    assert all(seen[0].headers == (("null", None), ("empty", b"")) for seen in told["read"].values())


def acknowledgements(client, topic, acks):
    """acks 0, 1 and all: what the writer is told, and that all is there in the end."""
    _make(client.servers, topic)
    records = [{"value": b"%d" % i, "partition": 0, "timestamp": NOON_MS + i} for i in range(20)]
    told = client.produce(topic, records, acks=acks)
    # With acks=0 nobody knows offsets; clients say so in their own ways.
    return {"told": told if acks != "0" else [], "read": client.consume(topic, {0: 0}, 20)}


@_EVERY_CLIENT
@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_acknowledgements(brokers, client, acks):
    told = brokers.compare(acknowledgements, client, acks=acks)
    assert [seen.value for seen in told["read"]] == [b"%d" % i for i in range(20)]


def idempotent(client, topic):
    """An idempotent producer, in several batches and over two partitions."""
    _make(client.servers, topic, 2)
    records = [
        {"value": b"%d" % i, "key": b"k%d" % i, "partition": i % 2, "timestamp": NOON_MS + i} for i in range(200)
    ]
    told = [client.produce(topic, half, idempotent=True) for half in (records[:100], records[100:])]
    return {"told": told, "read": client.consume(topic, {0: 0, 1: 0}, 200)}


@_EVERY_CLIENT
def test_idempotent(brokers, client):
    told = brokers.compare(idempotent, client)
    assert sorted(int(seen.value) for seen in told["read"]) == list(range(200))


def partitioning(client, topic):
    """Keys to partitions by the client's own hash; the broker only says how many partitions there are."""
    _make(client.servers, topic, 5)
    records = [{"value": b"%d" % i, "key": b"key-%d" % i, "timestamp": NOON_MS} for i in range(50)]
    client.produce(topic, records)
    seen = client.consume(topic, dict.fromkeys(range(5), 0), 50)
    return {each.key.decode(): each.partition for each in seen}


@_EVERY_CLIENT
def test_partitioning(brokers, client):
    assert set(brokers.compare(partitioning, client).values()) == set(range(5))


def append_time(client, topic):
    """In a topic of log-append time the broker's clock counts, whatever the producer says."""
    _make(client.servers, topic, 1, {"message.timestamp.type": "LogAppendTime"})
    client.produce(topic, [{"value": b"%d" % i, "timestamp": NOON_MS} for i in range(5)])
    return {
        "read": client.consume(topic, {0: 0}, 5),
        "by time": (client.offset_at(topic, NOON_MS + 1), client.offset_at(topic, 4_000_000_000_000)),
    }


@_EVERY_CLIENT
def test_append_time(brokers, client):
    told = brokers.compare(append_time, client)
    assert {seen.timestamp_type for seen in told["read"]} == {"LogAppendTime"}


def refused_records(client, topic):
    """What the broker refuses, as a producer is told it."""
    _make(client.servers, f"{topic}-time", 1, {"message.timestamp.after.max.ms": "1000"})
    _make(client.servers, f"{topic}-keys", 1, {"cleanup.policy": "compact"})
    _make(client.servers, f"{topic}-size", 1, {"max.message.bytes": "2000"})
    _make(client.servers, f"{topic}-large", 1, {"max.message.bytes": "3000000"})
    far = 4_000_000_000_000
    return {
        "too far ahead": client.produce(f"{topic}-time", [{"value": b"v", "timestamp": far}]),
        "no key": client.produce(f"{topic}-keys", [{"value": b"v"}]),
        "no key, idempotent": client.produce(f"{topic}-keys", [{"value": b"v"}], idempotent=True),
        "after that": client.produce(f"{topic}-keys", [{"key": b"k", "value": b"v"}], idempotent=True),
        "just under": client.produce(f"{topic}-size", [{"value": b"v" * 1900}]),
        "just over": client.produce(f"{topic}-size", [{"value": b"v" * 2000}]),
        "large where it may be": client.produce(f"{topic}-large", [{"value": b"v" * 2_500_000}], **client.large),
        "larger than that": client.produce(f"{topic}-large", [{"value": b"v" * 3_100_000}], **client.large),
        "compressed under": client.produce(f"{topic}-size", [{"value": b"v" * 9000}], codec="gzip"),
    }


@_EVERY_CLIENT
def test_refused_records(brokers, client):
    told = brokers.compare(refused_records, client)
    assert told["just over"] == ["MESSAGE_TOO_LARGE"]


def large_batches(client, topic):
    """A record larger than what a consumer asks for at once still comes, and so do those behind it."""
    _make(client.servers, topic, 1, {"max.message.bytes": "3000000"})
    sizes = [10, 2_000_000, 10, 500_000, 10]
    for size in sizes:
        client.produce(topic, [{"value": b"v" * size, "timestamp": NOON_MS}], **client.large)
    seen = client.consume(topic, {0: 0}, 5, **client.small_fetch)
    return [(each.offset, len(each.value)) for each in seen]


@_EVERY_CLIENT
def test_large_batches(brokers, client):
    assert [size for _, size in brokers.compare(large_batches, client)] == [10, 2_000_000, 10, 500_000, 10]
