"""Where things are: ends, times, seeks, deleted records, compaction, retention, topics that go, as clients see it."""

from __future__ import annotations

import time

import pytest

from headrace import Broker
from headrace.records import headers_in, records_of
from peers.kafka.broker import running_kafka
from tests.conformance.clients.aio import Aio
from tests.conformance.clients.confluent import Confluent
from tests.conformance.clients.python import Python
from tests.conformance.clients.wire import NOON_MS, Wire, batch_of
from tests.conformance.comparison import Brokers, wait_until

pytestmark = pytest.mark.java

_EVERY_CLIENT = pytest.mark.parametrize("client", [Confluent, Aio, Python])


def _make(servers, topic, partitions=1, configs=None):
    with Wire(servers) as wire:
        wire.create(topic, partitions, configs)


def ends_and_seeks(client, topic):
    """Ends and times of a log with records and of an empty one; reading from the middle of a batch; out of range."""
    _make(client.servers, topic, 2)
    with Wire(client.servers) as wire:
        for i in range(4):
            wire.produce(topic, batch_of(b"a%d" % i, b"b%d" % i, b"c%d" % i, timestamp=NOON_MS + 1000 * i))
    return {
        "ends": client.ends(topic),
        "empty": client.ends(topic, 1),
        "times": [client.offset_at(topic, NOON_MS + at) for at in (-1, 0, 1, 2, 3, 1001, 3002, 3003, 10**9)],
        "time in the empty": client.offset_at(topic, NOON_MS, 1),
        "middle": client.consume(topic, {0: 4}, 8),
        "last": client.consume(topic, {0: 11}, 1),
        "behind": client.error_at(topic, 13),
    }


@_EVERY_CLIENT
def test_ends_and_seeks(brokers, client):
    told = brokers.compare(ends_and_seeks, client)
    assert told["ends"] == (0, 12)
    assert told["behind"] == "OFFSET_OUT_OF_RANGE" or "OutOfRange" in told["behind"] or "AUTO_OFFSET" in told["behind"]


def youngest_record(client, topic):
    """The offset of the largest timestamp, which is not the last one."""
    _make(client.servers, topic, 2)
    for at in (0, 50, 20, 50, 10):
        client.produce(topic, [{"value": b"v", "partition": 0, "timestamp": NOON_MS + at}])
    return {"youngest": client.youngest(topic), "of none": client.youngest(topic, 1)}


@pytest.mark.parametrize("client", [Confluent, Python])
def test_youngest_record(brokers, client):
    assert brokers.compare(youngest_record, client)["youngest"][0] == 1


def start_moved(client, topic):
    """DeleteRecords through a client: the start, what is left, what is out of range now, what is refused."""
    _make(client.servers, topic)
    client.produce(topic, [{"value": b"%d" % i, "partition": 0, "timestamp": NOON_MS + i} for i in range(10)])
    return {
        "deleted": client.delete_records(topic, 4),
        "ends": client.ends(topic),
        "left": client.consume(topic, {0: 4}, 6),
        "before": client.error_at(topic, 2),
        "by time": client.offset_at(topic, NOON_MS),
        "behind the end": client.delete_records(topic, 11),
        "all": client.delete_records(topic, -1),
        "ends then": client.ends(topic),
        "written on": client.produce(topic, [{"value": b"x", "partition": 0}]),
    }


@_EVERY_CLIENT
def test_start_moved(brokers, client):
    told = brokers.compare(start_moved, client)
    assert (told["deleted"], told["ends"], told["ends then"]) == (4, (4, 10), (10, 10))


def woken(client, topic):
    """A consumer that waits for records is woken by a produce, long before its longest wait of 20 s is over."""
    _make(client.servers, topic)
    begin = time.monotonic()
    with Wire(client.servers) as wire:
        wire.produce(topic, batch_of(b"0"))

        def write_next(count):
            wire.produce(topic, batch_of(b"%d" % count))

        seen = client.consume(topic, {0: 0}, 6, on_record=write_next, **client.long_wait)
    # Five waits, each of which could take 20 s.
    return {"seen": seen, "soon": time.monotonic() - begin < 40}


@_EVERY_CLIENT
def test_woken(brokers, client):
    assert brokers.compare(woken, client)["soon"]


_SMALL = {"internal.segment.bytes": "1000"}


def compacted(client, topic):
    """The latest value of each key is kept, in its place, and so is the tombstone of one that is gone."""
    settings = _SMALL | {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
    _make(client.servers, topic, 1, settings)
    with Wire(client.servers) as wire:
        for i in range(40):
            value = None if i == 39 else b"%d " % i * 30
            wire.produce(topic, batch_of(value, key=b"key-%d" % (i % 4), timestamp=NOON_MS + i))
        # The cleaner leaves the active segment alone: two records that fill one each bring all others before it.
        for key in (b"full", b"active"):
            wire.produce(topic, batch_of(b"v" * 700, key=key, timestamp=NOON_MS + 50))
        wait_until(lambda: _all_offsets(wire, topic), _CLEANED)
    return {"ends": client.ends(topic), "left": client.consume(topic, {0: 0}, len(_CLEANED))}


_CLEANED = [36, 37, 38, 39, 40, 41]


def _all_offsets(wire, topic):
    offsets, at = [], 0
    while data := bytes(wire.fetch(topic, at).records):
        for position, header in headers_in(data):
            offsets += [each.offset for each in records_of(data[position : position + header.size])]
            at = header.next_offset
    return offsets


@_EVERY_CLIENT
def test_compacted(brokers, client):
    told = brokers.compare(compacted, client)
    assert told["ends"] == (0, 42)
    assert [(each.offset, each.key, each.value is None) for each in told["left"]] == [
        *((36 + i, b"key-%d" % i, i == 3) for i in range(4)),
        (40, b"full", False),
        (41, b"active", False),
    ]


def retained(client, topic):
    """Old segments go, by size and by age; the start moves to what is left."""
    _make(client.servers, f"{topic}-size", 1, _SMALL | {"retention.bytes": "2000"})
    _make(client.servers, f"{topic}-age", 1, _SMALL | {"retention.ms": "1000"})
    now = int(time.time() * 1000)
    with Wire(client.servers) as wire:
        for i in range(12):
            wire.produce(f"{topic}-size", batch_of(b"v" * 300, timestamp=now))
            wire.produce(f"{topic}-age", batch_of(b"v" * 300, timestamp=NOON_MS + i))
    by_size = wait_until(lambda: client.ends(f"{topic}-size")[0] > 0, True)
    by_age = wait_until(lambda: client.ends(f"{topic}-age")[0], 12)
    return {"by size": by_size, "end": client.ends(f"{topic}-size")[1], "by age": by_age}


@_EVERY_CLIENT
def test_retained(brokers, client):
    assert brokers.compare(retained, client) == {"by size": True, "end": 12, "by age": 12}


def gone(client, topic):
    """A topic is deleted: what its writers and readers are told, and that a new one of its name begins anew."""
    _make(client.servers, topic)
    written = client.produce(topic, [{"value": b"old", "partition": 0, "timestamp": NOON_MS}] * 3)
    deleted = client.delete(topic)
    with Wire(client.servers) as wire:
        wire.wait_for(topic, None)
        wire.create(topic)
    again = client.produce(topic, [{"value": b"new", "partition": 0, "timestamp": NOON_MS}])
    return {"written": written, "deleted": deleted, "again": again, "read": client.consume(topic, {0: 0}, 1)}


@_EVERY_CLIENT
def test_gone(brokers, client):
    told = brokers.compare(gone, client)
    assert [each.value for each in told["read"]] == [b"new"]


def made_on_demand(client, topic):
    """A producer writes to a topic that is not there, and it is made."""
    told = client.produce(topic, [{"value": b"v", "timestamp": NOON_MS}])
    return {"told": told, "read": client.consume(topic, {0: 0}, 1), "described": client.describe(topic)}


@_EVERY_CLIENT
def test_made_on_demand(brokers, client):
    assert brokers.compare(made_on_demand, client)["told"] == [(0, 0)]


def not_made(client, topic):
    """Without auto-creation a producer is told that there is no such topic, and none is made."""
    patience = {"Confluent": {"delivery_timeout_ms": 2000}, "Aio": {"request_timeout_ms": 2000}}
    options = patience.get(type(client).__name__, {"max_block_ms": 2000})
    return {"told": client.produce(topic, [{"value": b"v"}], **options), "topics": client.topics()}


@pytest.fixture(scope="module")
def strict_brokers(kafka_jars, tmp_path_factory):
    settings = {"auto.create.topics.enable": "false"}
    folder = tmp_path_factory.mktemp("strict-kafka")
    with running_kafka(folder, properties=settings) as kafka, Broker(settings=settings, own_process=True) as broker:
        yield Brokers(ours=broker.bootstrap_servers, kafka=kafka.bootstrap_servers)


def test_not_made(strict_brokers):
    # All clients in one test: the second Kafka is started in one worker alone.
    for client in (Confluent, Aio, Python):
        assert strict_brokers.compare(not_made, client)["topics"] == set()
