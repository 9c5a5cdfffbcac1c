"""What we remember in a compacted topic, and what becomes of it when somebody deletes the topic or makes it again."""

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from headrace import Broker
from headrace.client.address import parse_bootstrap
from headrace.client.admin import add_partitions, delete_topics
from headrace.client.cluster import Cluster
from headrace.records import Record
from headrace.stores.compacted_topic import CompactedTopic, SeveralPartitions


@pytest.fixture
def clusters() -> Iterator[tuple[Cluster, Cluster]]:
    """Two, for what one does the other has to find out."""
    with Broker(durability="os") as broker:
        address = parse_bootstrap(broker.bootstrap_servers)
        with Cluster(address) as one, Cluster(address) as other:
            yield one, other


def pairs(records: Iterator[Record] | list[Record]) -> list[tuple[bytes | None, bytes | None]]:
    return [(record.key, record.value) for record in records]


@pytest.mark.parametrize("new_length", [1, 3, 7], ids=["shorter", "as long", "longer"])
@pytest.mark.parametrize("waits", [False, True])
def test_a_topic_that_was_made_again_is_read_from_its_start(
    clusters: tuple[Cluster, Cluster], waits: bool, new_length: int
) -> None:
    ours, theirs = clusters
    forgotten: list[bool] = []
    topic = CompactedTopic(ours, "memory", forget=lambda: forgotten.append(True))
    for n in range(3):
        CompactedTopic(theirs, "memory").write(f"old-{n}", b"1")
    assert len(pairs(topic.read_news())) == 3
    delete_topics(theirs, ["memory"])
    for n in range(new_length):
        CompactedTopic(theirs, "memory").write(f"new-{n}", b"2")
    found = topic.wait_for_news(30) if waits else list(topic.read_news())
    assert pairs(found) == [(b"new-%d" % n, b"2") for n in range(new_length)]
    assert forgotten == [True]
    CompactedTopic(theirs, "memory").write("later", b"3")
    assert pairs(topic.read_news()) == [(b"later", b"3")]
    assert forgotten == [True]


def test_a_topic_that_was_deleted_is_forgotten_and_made_again_by_the_next_write(
    clusters: tuple[Cluster, Cluster],
) -> None:
    ours, theirs = clusters
    forgotten: list[bool] = []
    topic = CompactedTopic(ours, "memory", forget=lambda: forgotten.append(True))
    topic.write("a", b"1")
    assert pairs(topic.read_news()) == [(b"a", b"1")]
    delete_topics(theirs, ["memory"])
    assert pairs(topic.read_news()) == []
    assert forgotten == [True]
    topic.write("b", b"2")
    assert pairs(topic.read_news()) == [(b"b", b"2")]


def test_a_topic_with_several_partitions_is_neither_read_in_part_nor_written(clusters: tuple[Cluster, Cluster]) -> None:
    ours, theirs = clusters
    topic, memory = (CompactedTopic(ours, "memory", is_for_others=each) for each in (True, False))
    topic.write("a", b"1")
    assert pairs(topic.read_news()) == [(b"a", b"1")]
    add_partitions(theirs, "memory", 2)
    with pytest.raises(SeveralPartitions, match="topic memory has several partitions"):
        list(topic.read_news())
    with pytest.raises(SeveralPartitions):
        CompactedTopic(theirs, "memory", is_for_others=True).write("b", b"2")
    assert pairs(memory.read_news()) == [(b"a", b"1")], "nobody else writes there"


def test_what_is_not_committed_does_not_count(clusters: tuple[Cluster, Cluster]) -> None:
    ours, theirs = clusters
    topic = CompactedTopic(ours, "memory")
    topic.write("a", b"1")
    writer = Producer({"bootstrap.servers": str(theirs), "transactional.id": "somebody", "log_level": 0})
    writer.init_transactions(30)
    writer.begin_transaction()
    writer.produce("memory", key="a", value=b"2")
    writer.flush(30)
    assert pairs(topic.read_news()) == [(b"a", b"1")]
    writer.abort_transaction(30)
    topic.write("b", b"3")
    assert pairs(topic.wait_for_news(30)) == [(b"b", b"3")]
