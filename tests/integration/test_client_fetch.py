"""The fetcher of the internal client on a real broker."""

import time
from pathlib import Path

import pytest

from headrace import Broker
from headrace.client.address import parse_bootstrap
from headrace.client.admin import create_topic, delete_topics
from headrace.client.cluster import Cluster
from headrace.client.errors import TopicReplaced
from headrace.client.fetch import Fetcher, FetchOptions
from headrace.client.offsets import bounds
from headrace.client.writer import NewRecord, Writer
from headrace.model import TopicPartition

WHERE = TopicPartition("numbers", 0)


def test_nothing_is_asked_for_behind_the_end(tmp_path: Path) -> None:
    """A read-ahead past the end would wait at the broker, and the next question on the connection behind it."""
    with Broker(tmp_path) as broker, Cluster(parse_bootstrap(broker.bootstrap_servers)) as cluster:
        create_topic(cluster, WHERE.topic, partitions=1)
        writer = Writer(cluster, WHERE.topic)
        for number in range(1000):
            writer.add(NewRecord(None, b"x" * 1000, timestamp=number))
        writer.flush()
        options = FetchOptions(max_wait_ms=5000, partition_max_bytes=100_000, read_ahead=True)
        fetcher = Fetcher(cluster, {WHERE: 0}, options, until={WHERE: 1000})

        while fetcher.positions[WHERE] < 1000:
            assert fetcher.poll()

        started = time.monotonic()
        assert bounds(cluster, [WHERE])[WHERE].end == 1000
        assert time.monotonic() - started < 2.5, "the question waited behind a long poll"
        assert fetcher.poll() == []


def test_a_topic_made_again_is_read_by_who_knew_the_one_before(tmp_path: Path) -> None:
    """A task with the new id may run in a process that last heard of the old one: no record is lost by that."""
    with Broker(tmp_path) as broker:
        address = parse_bootstrap(broker.bootstrap_servers)
        with Cluster(address) as knows_the_old, Cluster(address) as cluster:
            create_topic(cluster, WHERE.topic, partitions=1)
            old = knows_the_old.topic(WHERE.topic).id_text
            delete_topics(cluster, [WHERE.topic])
            create_topic(cluster, WHERE.topic, partitions=1)
            writer = Writer(cluster, WHERE.topic)
            writer.add(NewRecord(None, b"new", timestamp=0))
            writer.flush()
            new = cluster.topic(WHERE.topic, refresh=True).id_text

            fetcher = Fetcher(knows_the_old, {WHERE: 0}, ids={WHERE.topic: new})
            while not (found := fetcher.poll()):
                pass
            assert found[0].next_offset == 1

            with pytest.raises(TopicReplaced):
                Fetcher(cluster, {WHERE: 0}, ids={WHERE.topic: old}).poll()
