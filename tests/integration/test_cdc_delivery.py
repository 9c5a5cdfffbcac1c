"""Records and position in one transaction, on our broker and on Kafka: together or not at all, under one writer."""

import threading
import time
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest

import headrace
from headrace.client.address import parse_bootstrap
from headrace.client.admin import describe_configs
from headrace.client.cluster import Cluster
from headrace.client.transactions import Transactions
from headrace.client.writer import send
from headrace.connect.change import Batch, Change, Origin, Position
from headrace.connect.delivery import OFFSETS_TOPIC, Delivery, TopicSettings, build, position_key, read_position
from headrace.connect.envelope import EVERY_PARTITION, EnvelopeSettings, EnvelopeWriter, OutRecord, TopicNames
from headrace.connect.errors import RecordRefused, SourceUnavailable, TakenOver
from headrace.connect.filters import Filters
from headrace.connect.runtime import Runtime
from headrace.connect.table import Column, Table, text_codec
from headrace.model import TopicPartition
from headrace.retry import Backoff
from tests.conformance.shared_kafka import shared_kafka
from tests.integration.cdc_postgres_topics import read_topic, wait_for

PLAIN = TopicSettings()


@pytest.fixture(scope="module", params=["ours", pytest.param("kafka", marks=pytest.mark.java)])
def servers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Our broker, and then a real Kafka."""
    if request.param == "ours":
        with headrace.Broker(tmp_path_factory.mktemp("broker")) as broker:
            yield broker.bootstrap_servers
    else:
        request.getfixturevalue("kafka_jars")
        with shared_kafka(request.getfixturevalue("run_folder") / "connect-kafka", {}) as address:
            yield address


@pytest.fixture
def cluster(servers: str) -> Iterator[Cluster]:
    with Cluster(parse_bootstrap(servers)) as made:
        yield made


@pytest.fixture
def name() -> str:
    """A connector and a topic that no other test has."""
    return f"t{uuid4().hex[:12]}"


def record(topic: str, number: int, size: int = 1) -> OutRecord:
    return OutRecord(topic, b'{"id":%d}' % number, b'{"v":"%s"}' % (b"x" * size), 5)


def keys_of(cluster: Cluster, topic: str, count: int) -> list[Any]:
    """The keys in a topic; Kafka answers a commit before it shows what was committed."""
    wait_for(lambda: len(read_topic(str(cluster), topic)) >= count)
    return [(key or {})["id"] for key, _ in read_topic(str(cluster), topic)]


def test_records_and_position_come_together(cluster: Cluster, name: str) -> None:
    delivery = Delivery(cluster, name, PLAIN)
    assert delivery.begin() is None
    assert delivery.deliver([record(name, 1), record(name, 2)], {"at": 1}, 5) == 2
    assert delivery.deliver([], {"at": 2}, 5) == 0
    assert delivery.begin() == {"at": 2}
    assert delivery.deliver([record(name, 3)], {"at": 3}, 5) == 1
    assert keys_of(cluster, name, 3) == [1, 2, 3]


def test_many_and_large_records_go_in_several_batches_of_one_transaction(cluster: Cluster, name: str) -> None:
    delivery = Delivery(cluster, name, PLAIN)
    delivery.begin()
    records = [record(name, number, 1000) for number in range(20_000)] + [record(name, -1, 3_000_000)]
    assert delivery.deliver(records, {"at": 1}, 5) == 20_001
    assert keys_of(cluster, name, 20_001) == [*range(20_000), -1]


def test_batches_are_no_larger_than_a_topic_takes(cluster: Cluster, name: str) -> None:
    delivery = Delivery(cluster, name, TopicSettings(configs=(("max.message.bytes", "20000"),)))
    delivery.begin()
    assert delivery.deliver([record(name, number, 1000) for number in range(200)], {"at": 1}, 5) == 200


def test_an_older_instance_is_refused(cluster: Cluster, name: str) -> None:
    older, newer = Delivery(cluster, name, PLAIN), Delivery(cluster, name, PLAIN)
    older.begin()
    older.deliver([record(name, 1)], {"at": 1}, 5)
    assert newer.begin() == {"at": 1}
    with pytest.raises(TakenOver):
        older.deliver([record(name, 2)], {"at": 2}, 5)
    newer.deliver([record(name, 3)], {"at": 3}, 5)
    assert keys_of(cluster, name, 2) == [1, 3]


def test_topics_are_there_before_their_first_record(cluster: Cluster, name: str) -> None:
    delivery = Delivery(cluster, name, TopicSettings(partitions=2))
    delivery.begin()
    delivery.prepare({f"{name}.keyed": True, f"{name}.bare": False})
    delivery.prepare({f"{name}.keyed": True})
    policies = {
        topic: {config.name: config.value for config in describe_configs(cluster, f"{name}.{topic}")}["cleanup.policy"]
        for topic in ("keyed", "bare")
    }
    assert policies == {"keyed": "compact", "bare": "delete"}
    assert len(cluster.topic(f"{name}.keyed").partitions) == 2


def test_a_truncate_reaches_every_partition(cluster: Cluster, name: str) -> None:
    delivery = Delivery(cluster, name, TopicSettings(partitions=3))
    delivery.begin()
    delivery.deliver(
        [*(record(name, number) for number in range(30)), record(name, -1)._replace(partition=EVERY_PARTITION)], {}, 5
    )
    assert sorted(keys_of(cluster, name, 33)) == [-1, -1, -1, *range(30)]


def test_a_position_behind_another_connectors_open_transaction_is_found(cluster: Cluster, name: str) -> None:
    """Read only as far as everything is decided, the position would be an older one, and changes would come twice."""
    delivery = Delivery(cluster, name, PLAIN)
    delivery.begin()
    delivery.deliver([], {"at": 1}, 5)
    transactions = Transactions(cluster)
    other = transactions.begin(f"{name}-other", 60_000)
    where = TopicPartition(OFFSETS_TOPIC, 0)
    transactions.add(other, [where])
    entry = (position_key("other"), b"{}", 5, ())
    batch = build([entry], producer_id=other.producer_id, producer_epoch=other.epoch, base_sequence=0)
    send(cluster, {where: batch}, transactional_id=f"{name}-other")
    delivery.deliver([], {"at": 2}, 5)
    found: list[Position | None] = []

    def read() -> None:
        with Cluster(parse_bootstrap(str(cluster))) as own:
            found.append(read_position(own, name))

    reader = threading.Thread(target=read)
    reader.start()
    time.sleep(0.5)
    assert reader.is_alive()  # it waits for the other's end
    transactions.commit(other)
    reader.join(30)
    assert found == [{"at": 2}]


class CountingSource:
    """Numbers, two a batch; it fails now and then, and begins again where it is told to."""

    def __init__(self, end: int, fail_at: set[int], acknowledged: list[int]) -> None:
        self._end, self._fail_at, self._acknowledged = end, fail_at, acknowledged
        self._next = 0

    def open(self, position: Position | None) -> None:
        self._next = position["next"] if position else 0

    def next_batch(self, timeout_s: float) -> Batch | None:
        if self._next in self._fail_at:
            self._fail_at.discard(self._next)
            raise SourceUnavailable("gone for a moment")
        table = Table("s", "numbers", (Column("id", "text", text_codec(), optional=False),), (0,))
        origin = Origin(None, 0, "false", own=("lsn",))
        numbers = range(self._next, min(self._next + 2, self._end))
        events = [Change(table, "c", None, (str(number),), origin, 0) for number in numbers]
        self._next = numbers.stop
        return Batch(list(events), self.position(), is_last=self._next >= self._end)

    def position(self) -> Position:
        return {"next": self._next}

    def acknowledge(self, position: Position) -> None:
        self._acknowledged.append(position["next"])

    def close(self) -> None:
        pass


def runtime(cluster: Cluster, name: str, source: CountingSource, **settings: object) -> Runtime:
    envelope = EnvelopeSettings("counting", "d", "0", TopicNames(name))
    return Runtime(
        name,
        lambda: source,
        lambda _: EnvelopeWriter(envelope, Filters()),
        parse_bootstrap(str(cluster)),
        backoff=Backoff(0.01, 0.02, retries=3),
        **settings,  # type: ignore[arg-type]
    )


def test_a_source_that_fails_is_opened_again_and_nothing_is_lost_or_doubled(cluster: Cluster, name: str) -> None:
    acknowledged: list[int] = []
    running = runtime(cluster, name, CountingSource(21, {4, 6, 14}, acknowledged))
    running.run()
    assert keys_of(cluster, f"{name}.s.numbers", 21) == [str(number) for number in range(21)]
    assert acknowledged[-1] == 21
    assert acknowledged == sorted(acknowledged)
    assert running.progress.failures == 3


def test_what_waiting_does_not_mend_is_raised(cluster: Cluster, name: str) -> None:
    small = TopicSettings(configs=(("cleanup.policy", "compact"), ("max.message.bytes", "100")))
    with pytest.raises(RecordRefused, match=r"raise max\.message\.bytes"):
        runtime(cluster, name, CountingSource(4, set(), []), topics=small).run()


def test_giving_up_after_so_many_tries(cluster: Cluster, name: str) -> None:
    class Broken(CountingSource):
        def next_batch(self, timeout_s: float) -> Batch | None:
            raise SourceUnavailable("gone for good")

    with pytest.raises(SourceUnavailable, match="for good"):
        runtime(cluster, name, Broken(1, set(), [])).run()
