"""Kafka's own command-line tools, the Java client, on both brokers; and records between Java and the others."""

from __future__ import annotations

import json
import re

import pytest

from headrace.records import Codec, headers_in
from tests.conformance.clients.confluent import Confluent
from tests.conformance.clients.java import Java
from tests.conformance.clients.wire import NOON_MS, Wire, batch_of

pytestmark = pytest.mark.java

_STAMP = re.compile(r"CreateTime:\d+")


def _make(servers, topic, partitions=1, configs=None):
    with Wire(servers) as wire:
        wire.create(topic, partitions, configs)


def topics_tool(java, topic):
    """kafka-topics: create, create again, describe, alter, list, delete."""
    told = {
        "created": java.topics("--create", "--topic", topic, "--partitions", "2", "--config", "retention.ms=5000"),
        "again": java.topics("--create", "--topic", topic),
    }
    with Wire(java.servers) as wire:
        wire.wait_for(topic, 2)
        told["grown"] = java.topics("--alter", "--topic", topic, "--partitions", "3")
        wire.wait_for(topic, 3)
        told["described"] = _described(java.topics("--describe", "--topic", topic).lines)
        told["listed"] = [line for line in java.topics("--list").lines if line.startswith(topic)]
        told["deleted"] = java.topics("--delete", "--topic", topic)
        wire.wait_for(topic, None)
    return told


def _described(lines):
    """The first line's settings by name: they come in no order."""
    first, settings = lines[0].split("Configs: ")
    return {"topic": first, "configs": dict(each.split("=") for each in settings.split(",")), "partitions": lines[1:]}


def test_topics_tool(brokers):
    told = brokers.compare(topics_tool, Java)
    assert told["listed"] == ["topics_tool-java"]
    assert told["again"].errors == ["TopicExistsException"]


def configs_tool(java, topic):
    """kafka-configs: alter, describe all with synonyms, alter badly."""
    _make(java.servers, topic)
    entity = ("--entity-type", "topics", "--entity-name", topic)
    added = "retention.ms=5000,cleanup.policy=[compact,delete]"
    told = {"altered": java.configs("--alter", *entity, "--add-config", added)}
    told["bad"] = java.configs("--alter", *entity, "--add-config", "retention.ms=soon")
    lines = java.configs("--describe", "--all", *entity).lines
    return told | {"described": {line.split("=")[0].strip(): line.strip() for line in lines}}


def test_configs_tool(brokers):
    told = brokers.compare(configs_tool, Java)
    assert told["described"]["retention.ms"].startswith("retention.ms=5000 ")


def administration(java, topic):
    """What concerns many brokers or access control, on one without an authorizer: acls, elections, moved partitions."""
    _make(java.servers, topic, 2)
    plan = {"version": 1, "partitions": [{"topic": topic, "partition": 0, "replicas": [1]}]}
    moved = java.reassign(json.dumps(plan), "--execute")
    return {
        "acls": java.acls("--list").errors,
        "elected": java.elect("--election-type", "preferred", "--topic", topic, "--partition", "0"),
        "moved": moved._replace(lines=[line for line in moved.lines if "log_dirs" not in line]),
        "verified": java.reassign(json.dumps(plan), "--verify"),
    }


def test_administration(brokers, settings_of_brokers):
    told = brokers.compare(administration, Java)
    assert told["acls"] == ["SecurityDisabledException"]
    assert told["elected"].status == 0
    assert any("is completed" in line for line in told["verified"].lines)


_LINES = ["h1:v1,h2:v2\tkey-1\tvalue 1", "h:x\tkey-2\tNULL", "h:\tNULL\tvalue 3", "a:b,a:c\tkey-3\tgrüße"]


def written_by_java(java, topic):
    """The console producer with every codec, idempotent as it is by default and not; read by the C client and Java."""
    _make(java.servers, topic)
    told = {}
    for codec in java.codecs:
        acks = ("enable.idempotence=false", "acks=1") if codec == "gzip" else ()
        told[codec] = java.produce(topic, _LINES, *acks, codec=codec)
    with Confluent(java.servers) as reader:
        count = len(_LINES) * len(java.codecs)
        seen = [each._replace(timestamp=None) for each in reader.consume(topic, {0: 0}, count)]
    with Wire(java.servers) as wire:
        headers = _batch_headers(wire, topic)
    lines = java.consume(topic, count, "--partition", "0", "--offset", "earliest").lines
    return told | {"read by C": seen, "batches": headers, "read by Java": [_STAMP.sub("…", line) for line in lines]}


def _batch_headers(wire, topic):
    told = []
    for _, header in headers_in(bytes(wire.fetch(topic, 0).records)):
        told.append((Codec(header.codec).name, header.record_count, header.producer_id >= 0, header.base_sequence))
    return told


def test_written_by_java(brokers):
    told = brokers.compare(written_by_java, Java)
    assert len(told["read by Java"]) == len(told["read by C"]) == 20


def read_by_java(java, topic):
    """The console consumer reads what was written with every codec, from the middle of a batch on."""
    _make(java.servers, topic)
    with Wire(java.servers) as wire:
        for codec in Codec:
            assert wire.produce(topic, batch_of(b"one", b"two", None, b"", codec=codec)).error_code == 0
    return java.consume(topic, 17, "--partition", "0", "--offset", "3")


def test_read_by_java(brokers):
    told = brokers.compare(read_by_java, Java)
    assert told.lines[0] == f"CreateTime:{NOON_MS + 3}\tPartition:0\tOffset:3\tNO_HEADERS\tk"


def offsets_tools(java, topic):
    """kafka-get-offsets at both ends, by time and for the youngest; kafka-delete-records; kafka-log-dirs."""
    _make(java.servers, topic, 2)
    with Wire(java.servers) as wire:
        for at in (0, 100, 50):
            wire.produce(topic, batch_of(b"a", b"b", timestamp=NOON_MS + at))
    asked = [{"topic": topic, "partition": partition, "offset": offset} for partition, offset in ((0, 3), (1, 5))]
    told = {name: java.offsets(topic, name) for name in ("latest", "max-timestamp", str(NOON_MS + 60))}
    deleted = java.delete_records(json.dumps({"partitions": asked, "version": 1}))
    told["deleted"] = deleted._replace(lines=sorted(deleted.lines))
    told["earliest then"] = java.offsets(topic, "earliest")
    (described,) = [json.loads(line) for line in java.log_dirs(topic).lines if line.startswith("{")]
    dirs = described["brokers"][0]["logDirs"]
    return told | {"log dirs": [(each["error"], sorted(each["partitions"], key=str)) for each in dirs]}


def test_offsets_tools(brokers):
    told = brokers.compare(offsets_tools, Java)
    assert told["latest"].lines == ["offsets_tools-java:0:6", "offsets_tools-java:1:0"]


def performance_tool(java, topic):
    """kafka-producer-perf-test: 20,000 records over four partitions, idempotent, all of them there and readable."""
    _make(java.servers, topic, 4)
    told = java.performance(topic, 20_000, "compression.type=lz4", "batch.size=4096", "linger.ms=1")
    with Confluent(java.servers) as reader:
        count = sum(reader.ends(topic, partition)[1] for partition in range(4))
        seen = reader.consume(topic, dict.fromkeys(range(4), 0), count)
    return {"told": told, "count": count, "read": len({(each.partition, each.offset) for each in seen})}


def test_performance_tool(brokers):
    told = brokers.compare(performance_tool, Java)
    assert (told["count"], told["read"]) == (20_000, 20_000)


def sessions_of_java(java, topic):
    """The Java consumer over one partition in many small fetches: its incremental session reads on to the end."""
    _make(java.servers, topic, 3)
    with Wire(java.servers) as wire:
        for i in range(200):
            wire.produce(topic, batch_of(b"%d" % i, timestamp=NOON_MS + i), partition=1)
    small = ("--command-property", "max.partition.fetch.bytes=200", "--command-property", "fetch.max.bytes=300")
    return java.consume(topic, 200, "--partition", "1", "--offset", "earliest", *small)


def test_sessions_of_java(brokers):
    assert len(brokers.compare(sessions_of_java, Java).lines) == 200
