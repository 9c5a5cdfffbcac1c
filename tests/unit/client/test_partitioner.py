"""Keys go where Kafka's own clients send them."""

import time
import warnings
from itertools import pairwise
from random import Random
from types import SimpleNamespace

import pytest
from confluent_kafka import Producer
from hypothesis import given
from hypothesis import strategies as st

from headrace import Broker
from headrace.client.address import parse_bootstrap
from headrace.client.admin import create_topic
from headrace.client.cluster import Cluster
from headrace.client.writer import STICKY_BYTES, Partitioner
from headrace.records.partitioning import murmur2, partition_of_key

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # it reads its schemas in a way that Python has come to regret
    from kafka.partitioner.default import DefaultPartitioner
    from kafka.partitioner.default import murmur2 as murmur2_of_kafka_python


# The values in Kafka's own test, UtilsTest.testMurmur2, as Java shows them: signed.
@pytest.mark.parametrize(
    ("key", "hash_in_java"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_golden_values_of_the_java_client(key, hash_in_java):
    assert murmur2(key) == hash_in_java & 0xFFFFFFFF


@given(st.binary(max_size=64))
def test_the_hash_is_kafka_pythons(key):
    assert murmur2(key) == murmur2_of_kafka_python(key) & 0xFFFFFFFF


@given(st.binary(max_size=40), st.integers(1, 1000))
def test_the_partition_is_kafka_pythons(key, partitions):
    everything = set(range(partitions))
    cluster = SimpleNamespace(
        topics=lambda: {"t"},
        partitions_for_topic=lambda _: everything,
        available_partitions_for_topic=lambda _: everything,
    )
    assert partition_of_key(key, partitions) == DefaultPartitioner().partition("t", key, key, b"", b"", cluster)


def test_records_without_a_key_stick_and_then_move_on():
    partitioner = Partitioner(5, Random(1))
    size = 1024
    chosen = [partitioner.choose(None, size) for _ in range(50 * STICKY_BYTES // size)]
    stretches = [chosen[at : at + STICKY_BYTES // size] for at in range(0, len(chosen), STICKY_BYTES // size)]
    assert all(len(set(stretch)) == 1 for stretch in stretches)
    assert all(one[0] != next_one[0] for one, next_one in pairwise(stretches))
    assert set(chosen) == set(range(5))


def test_one_partition_is_enough():
    partitioner = Partitioner(1)
    assert {partitioner.choose(None, STICKY_BYTES) for _ in range(10)} == {0}


def test_keys_do_not_move_the_sticky_partition():
    partitioner = Partitioner(8, Random(3))
    before = partitioner.choose(None, 1)
    assert [partitioner.choose(b"abc", STICKY_BYTES) for _ in range(5)] == [479470107 % 8] * 5
    assert partitioner.choose(None, 1) == before


@pytest.mark.parametrize("partitions", [1, 3, 12])
def test_librdkafkas_murmur2_agrees(partitions):
    random = Random(partitions)
    keys = [random.randbytes(random.randrange(1, 40)) for _ in range(500)]
    landed = {}

    def remember(error, message):
        assert error is None
        landed[message.key()] = message.partition()

    with Broker(durability="os") as broker:
        with Cluster(parse_bootstrap(broker.bootstrap_servers)) as cluster:
            create_topic(cluster, "keys", partitions=partitions)
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "partitioner": "murmur2_random"})
        for key in keys:
            producer.produce("keys", b"", key, on_delivery=remember)
        deadline = time.monotonic() + 30
        while producer.flush(1) and time.monotonic() < deadline:
            pass
    assert landed == {key: partition_of_key(key, partitions) for key in keys}
