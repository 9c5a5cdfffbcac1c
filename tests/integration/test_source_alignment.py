"""Batches with a limit, on a broker and without Spark: whatever records' times are, no partition is left behind."""

import itertools
from collections.abc import Iterator

import pyarrow as pa
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from headrace import Broker
from headrace.client.address import parse_bootstrap
from headrace.client.admin import create_topic, delete_topics
from headrace.client.cluster import Cluster
from headrace.client.transactions import Transactions
from headrace.client.writer import NewRecord, Writer
from headrace.pipelines.clusters import close_clusters
from headrace.pipelines.sink.topic.options import read_options as read_sink_options
from headrace.pipelines.sink.topic.phases import Attempt, write_task
from headrace.pipelines.source.columns import raw_schema
from headrace.pipelines.source.options import read_options
from headrace.pipelines.source.stream import StreamReader

MINUTE = 60_000
OLD = 1_577_836_800_000  # in 2020
EVEN = [OLD + MINUTE * number for number in range(1000)]
_names = itertools.count()


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with Broker(tmp_path_factory.mktemp("broker")) as broker:
        yield broker.bootstrap_servers
    close_clusters()


@pytest.fixture
def cluster(bootstrap: str) -> Iterator[Cluster]:
    with Cluster(parse_bootstrap(bootstrap)) as found:
        yield found


@pytest.fixture
def topic(cluster: Cluster) -> str:
    name = f"times-{next(_names)}"
    create_topic(cluster, name, partitions=2)
    return name


def source(bootstrap: str, topic: str, **options: str) -> StreamReader:
    given = {"bootstrap": bootstrap, "subscribe": topic, "startingOffsets": "earliest", "maxRecordsPerTrigger": "100"}
    return StreamReader(raw_schema(include_headers=False), read_options(given | options))


def batches(reader: StreamReader) -> Iterator[list[int]]:
    """The times of each batch, in milliseconds, up to the end of what there is."""
    start = reader.initialOffset()
    while (end := reader.latestOffset(start, reader.getDefaultReadLimit())) != start:
        read = [batch for task in reader.partitions(start, end) for batch in reader.read(task)]
        yield [time // 1000 for batch in read for time in batch.column("timestamp").cast(pa.int64()).to_pylist()]
        start = end


def check_in_order(found: list[list[int]], rows: int) -> None:
    """No row is older than the rows of the batch before the last, by which it is judged."""
    assert sum(map(len, found)) == rows
    assert max(map(len, found)) <= 102
    old = [[time for time in batch if time < OLD + 2000 * MINUTE] for batch in found]
    ends = list(itertools.accumulate(map(max, filter(None, old)), max))
    for batch, judged_by in zip(old[2:], ends, strict=False):
        assert min(batch, default=judged_by) >= judged_by - 2 * MINUTE


def test_a_record_with_a_time_far_ahead_holds_up_no_partition(bootstrap: str, cluster: Cluster, topic: str) -> None:
    writer = Writer(cluster, topic)
    for number, time in enumerate(EVEN):
        is_ahead = number in (70, 500)
        writer.add(NewRecord(None, b"", timestamp=OLD + 10**6 * MINUTE if is_ahead else time, partition=0))
        writer.add(NewRecord(None, b"", timestamp=time, partition=1))
        if number % 50 == 0:
            writer.flush()
    writer.flush()

    check_in_order(list(batches(source(bootstrap, topic))), 2 * len(EVEN))


def test_markers_of_transactions_with_old_records_hold_up_no_partition(
    bootstrap: str, cluster: Cluster, topic: str
) -> None:
    """A marker has the time at which it was written, and the partitions were written one after the other."""
    options = read_sink_options({"bootstrap": bootstrap, "topic": topic})
    transactions = Transactions(cluster)
    for batch, (partition, start) in enumerate(itertools.product((0, 1), range(0, len(EVEN), 40))):
        times = [time * 1000 for time in EVEN[start : start + 40]]
        rows = {
            "value": pa.array([b""] * len(times)),
            "partition": pa.array([partition] * len(times), pa.int32()),
            "timestamp": pa.array(times, pa.timestamp("us", "UTC")),
        }
        part = write_task(iter([pa.RecordBatch.from_pydict(rows)]), Attempt(topic, batch, 0), options)
        assert part is not None
        assert transactions.commit(part.transaction)

    check_in_order(list(batches(source(bootstrap, topic))), 2 * len(EVEN))


def test_records_that_retention_removed_are_passed_over(bootstrap: str, cluster: Cluster, topic: str) -> None:
    writer = Writer(cluster, topic)
    for number, time in enumerate(EVEN):
        is_ahead = number == 40
        writer.add(NewRecord(None, b"", timestamp=OLD + 10**6 * MINUTE if is_ahead else time, partition=0))
        writer.add(NewRecord(None, b"", timestamp=time, partition=1))
    writer.flush()
    found = batches(source(bootstrap, topic, failOnDataLoss="false"))
    read = [next(found)]
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for removed in admin.delete_records([TopicPartition(topic, partition, 300) for partition in (0, 1)]).values():
        removed.result()
    read += found

    assert sum(map(len, read)) == len(read[0]) + 2 * 700


def test_a_run_up_to_now_goes_on_without_a_topic_that_is_deleted_meanwhile(
    bootstrap: str, cluster: Cluster, topic: str
) -> None:
    create_topic(cluster, f"{topic}-b", partitions=2)
    for name in (topic, f"{topic}-b"):
        writer = Writer(cluster, name)
        for number, time in enumerate(EVEN[:200]):
            writer.add(NewRecord(None, b"", timestamp=time, partition=number % 2))
        writer.flush()
    reader = source(bootstrap, f"{topic},{topic}-b", failOnDataLoss="false")
    reader.prepareForTriggerAvailableNow()

    found = batches(reader)
    read = [next(found)]
    delete_topics(cluster, [f"{topic}-b"])
    read += found

    assert 200 <= sum(map(len, read)) < 400
