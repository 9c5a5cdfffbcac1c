"""Our own client and command line on a real Kafka: what they are made for."""

import json
import time
import uuid
from functools import partial

import pytest
from confluent_kafka import Producer

from headrace.client import admin
from headrace.client.address import parse_bootstrap
from headrace.client.admin import alter_topic, describe_topic
from headrace.client.cluster import Cluster
from headrace.client.errors import OffsetOutOfRange, Refused, UnknownTopic
from headrace.client.fetch import Fetcher, FetchOptions
from headrace.client.offsets import EARLIEST, LATEST, Start, StartKind, find_stretch, list_offsets
from headrace.client.reader import read_records
from headrace.client.writer import NewRecord, Writer
from headrace.model import TopicPartition
from headrace.records import Codec, Header
from tests.integration.cli_runs import assert_one_sentence, run_cli

pytestmark = pytest.mark.java


@pytest.fixture
def cluster(real_kafka):
    with Cluster(parse_bootstrap(real_kafka)) as cluster:
        yield cluster


@pytest.fixture
def name():
    return f"client-{uuid.uuid4().hex[:8]}"


def eventually(check, timeout_s=10):
    """Kafka's brokers learn of a change a moment after the controller has acknowledged it."""
    deadline = time.monotonic() + timeout_s
    while not (found := check()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return found


def read_all(cluster, name, **options):
    stretch = find_stretch(
        cluster, cluster.partitions(name), Start(StartKind.EARLIEST), committed=options.get("committed", False)
    )
    groups = read_records(cluster, stretch.starts, until=stretch.ends, options=FetchOptions(**options))
    return [read for group in groups for read in group]


@pytest.mark.parametrize("codec", list(Codec))
def test_what_is_written_is_read(cluster, name, codec):
    admin.create_topic(cluster, name, partitions=3)
    writer = Writer(cluster, name, codec=codec, batch_bytes=5000)
    for number in range(1000):
        key = None if number % 3 == 0 else b"k%d" % number
        writer.add(NewRecord(key, b"v%d" % number, 1_700_000_000_000 + number, (Header("n", b"%d" % number),)))
    writer.flush()
    assert writer.written == 1000
    read = read_all(cluster, name)
    assert sorted(int(found.record.value[1:]) for found in read) == list(range(1000))
    assert all(found.record.headers[0].value == found.record.value[1:] for found in read)


def test_topics_from_their_making_to_their_end(cluster, name):
    admin.create_topic(cluster, name, partitions=2, configs={"retention.ms": "3600000"})
    with pytest.raises(Refused, match="already exists"):
        admin.create_topic(cluster, name)
    described = describe_topic(cluster, name)
    assert [found.records for found in described.partitions] == [0, 0]
    assert {config.name: config.value for config in described.configs} == {"retention.ms": "3600000"}
    with pytest.raises(Refused):
        alter_topic(cluster, name, partitions=1, changes={"segment.bytes": "2097152"})
    with pytest.raises(Refused):
        alter_topic(cluster, name, partitions=5, changes={"segment.bytes": "nonsense"})
    assert len(cluster.topic(name, refresh=True).partitions) == 2
    alter_topic(cluster, name, partitions=4, changes={"segment.bytes": "2097152"}, unset=["retention.ms"])
    wanted = {"segment.bytes": "2097152"}
    assert eventually(lambda: {config.name: config.value for config in describe_topic(cluster, name).configs} == wanted)
    assert eventually(lambda: len(cluster.topic(name, refresh=True).partitions) == 4)
    admin.delete_topics(cluster, [name])
    with pytest.raises(UnknownTopic):
        eventually(lambda: cluster.topic(name, refresh=True) and None)


def test_offsets_by_end_and_by_time(cluster, name):
    admin.create_topic(cluster, name)
    where = TopicPartition(name, 0)
    writer = Writer(cluster, name)
    for number in range(10):
        writer.add(NewRecord(None, b"v", 1_700_000_000_000 + number * 1000))
        writer.flush()
    for asked, offset in [(EARLIEST, 0), (LATEST, 10), (1_700_000_004_500, 5), (1_800_000_000_000, -1)]:
        assert list_offsets(cluster, {where: asked})[where].offset == offset
    with pytest.raises(OffsetOutOfRange, match=f"offset 99 is out of range: {name}-0 holds offsets 0 to 9"):
        Fetcher(cluster, {where: 99}).poll()


def test_aborted_transactions_are_left_out(cluster, name, real_kafka):
    admin.create_topic(cluster, name)
    producer = Producer({"bootstrap.servers": real_kafka, "transactional.id": name})
    producer.init_transactions(30)
    for number in range(6):
        producer.begin_transaction()
        for part in range(3):
            producer.produce(name, f"{number}-{part}")
        producer.flush(30)
        (producer.commit_transaction if number % 2 else producer.abort_transaction)(30)
    expected = [f"{number}-{part}".encode() for number in range(6) for part in range(3)]
    assert [found.record.value for found in read_all(cluster, name)] == expected
    committed = [value for value in expected if int(value[:1]) % 2]
    assert eventually(lambda: [found.record.value for found in read_all(cluster, name, committed=True)] == committed)
    run = run_cli("tail", name, "--no-follow", "--committed", "--json", bootstrap=real_kafka)
    assert [record["value"].encode() for record in run.json_lines] == committed


def test_the_commands(real_kafka, name):
    headrace = partial(run_cli, bootstrap=real_kafka)
    assert headrace("topic", "create", name, "--partitions", 2).out == f"created {name} with 2 partitions\n"
    assert name in [topic["topic"] for topic in headrace("topic", "list", "--json").json]
    lines = [{"key": "a", "value": {"cents": 5}, "headers": {"x": "y"}}, {"key": "b", "value": None}]
    assert headrace("produce", name, "--json-lines", stdin="\n".join(map(json.dumps, lines))).code == 0
    records = headrace("tail", name, "--no-follow", "--json").json_lines
    assert {record["key"]: record["value"] for record in records} == {"a": '{"cents":5}', "b": None}
    assert headrace("tail", name, "--no-follow", "--where", ".cents == 5", "--json").json["key"] == "a"
    described = headrace("topic", "describe", name, "--json").json
    assert described["records"] == 2
    assert described["size_bytes"] > 100
    assert_one_sentence(headrace("tail", f"{name}-x", "--no-follow"), "does not exist")
    assert_one_sentence(headrace("topic", "create", "bad name"), "'bad name'")
    assert_one_sentence(headrace("tail", name, "--from", "99"), "offset 99 is out of range")
    assert headrace("topic", "delete", name, "--yes").out == f"deleted {name}\n"


def test_a_compacted_topic_wants_keys(real_kafka, name):
    headrace = partial(run_cli, bootstrap=real_kafka)
    headrace("topic", "create", name, "--config", "cleanup.policy=compact")
    assert_one_sentence(headrace("produce", name, "v"), "key", name)
