"""`format("headrace")` in a real Spark session: read and written, on our broker and on a real Kafka alike."""

import json
import shutil
import time
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic, OffsetSpec
from pyspark.sql import DataFrame, SparkSession

from headrace.client.address import parse_bootstrap
from headrace.client.admin import delete_topics
from headrace.client.cluster import Cluster
from headrace.client.transactions import Transactions
from headrace.pipelines.sink.topic.decisions import Decision, Decisions
from headrace.pipelines.sink.topic.options import DECISIONS_TOPIC, SinkOptions
from headrace.pipelines.sink.topic.phases import Attempt, prefix_of, write_task
from tests.integration.waiting import wait_until
from tests.reading import read_committed, wait_for_markers

pytestmark = pytest.mark.java

# What is decided before a broker is asked, or asks it nothing that another test here does not: it runs on a real Kafka
# with the tests that are long.
ON_KAFKA_IF_LONG = pytest.mark.parametrize(
    "servers", ["ours", pytest.param("kafka", marks=pytest.mark.long)], indirect=True, scope="module"
)
ROWS = [{"user": f"u{n % 31}", "n": n, "amount": n / 4, "tags": ["a"] * (n % 3)} for n in range(500)]
SHAPE = "user string, n long, amount double, tags array<string>"


@pytest.fixture
def topic(servers: str, request: pytest.FixtureRequest) -> str:
    """A topic of three partitions with `ROWS` in it, keyed by user."""
    name = f"in-{abs(hash(request.node.nodeid)) % 10**9}-{time.time_ns() % 10**6}"
    make(servers, name)
    produce(servers, name, [(row["user"], json.dumps(row)) for row in ROWS])
    return name


def make(servers: str, name: str, partitions: int = 3) -> str:
    admin = AdminClient({"bootstrap.servers": servers})
    for future in admin.create_topics([NewTopic(name, partitions)]).values():
        future.result()
    return name


def wait_until_empty(servers: str, topic: str, partitions: int) -> None:
    """Until a topic that was made again is written to: Kafka answers, and shows it, before its logs are the new ones.

    What is written until then is acknowledged, and goes to the old ones. Those have records, the new ones have none.
    """
    admin = AdminClient({"bootstrap.servers": servers})
    asked = {TopicPartition(topic, number): OffsetSpec.latest() for number in range(partitions)}

    def is_empty() -> bool:
        try:
            return all(found.result(30).offset == 0 for found in admin.list_offsets(asked).values())
        except KafkaException:  # the old ones are closed, the new ones not open yet
            return False

    wait_until(is_empty, "the new topic is not there")


def produce(servers: str, topic: str, records: list[tuple[str | None, Any]], **settings: Any) -> None:
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 5, "partitioner": "murmur2_random"} | settings)
    for key, value in records:
        producer.produce(topic, key=key, value=value, headers={"kind": b"test"})
    assert producer.flush(30) == 0


def consume(servers: str, topic: str) -> list[tuple[bytes | None, bytes | None]]:
    """Everything in a topic that is committed, by another client."""
    return [(message.key(), message.value()) for message in read_committed(servers, topic)]


def read(spark: SparkSession, servers: str, topic: str, shape: str | None = None, **options: Any) -> DataFrame:
    reader = spark.read.format("headrace").options(bootstrap=servers, subscribe=topic, **options)
    return (reader.schema(shape) if shape else reader).load()


def stream(spark: SparkSession, servers: str, topic: str, shape: str | None = None, **options: Any) -> DataFrame:
    reader = spark.readStream.format("headrace").options(bootstrap=servers, subscribe=topic)
    reader = reader.options(**({"startingOffsets": "earliest"} | options))
    return (reader.schema(shape) if shape else reader).load()


def run_to_topic(frame: DataFrame, servers: str, topic: str, checkpoint: Path, **options: Any) -> Any:
    writer = frame.writeStream.format("headrace").options(bootstrap=servers, topic=topic, **options)
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    query.awaitTermination()
    return query


# --- reading


def test_raw_records_are_those_of_sparks_own_source(spark: SparkSession, servers: str, topic: str) -> None:
    theirs = spark.read.format("kafka").option("kafka.bootstrap.servers", servers).option("subscribe", topic)
    columns = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers"]
    ours = read(spark, servers, topic, includeHeaders=True)
    expected = theirs.option("includeHeaders", True).load()
    assert ours.schema.simpleString() == expected.schema.simpleString()
    assert sorted(map(str, ours.select(columns).collect())) == sorted(map(str, expected.select(columns).collect()))


@ON_KAFKA_IF_LONG
def test_json_is_decoded_into_columns(spark: SparkSession, servers: str, topic: str) -> None:
    found = read(spark, servers, topic, f"{SHAPE}, _offset long, _key string", format="json").collect()
    assert sorted((row.n, row.user, row.amount, row.tags) for row in found) == [
        (row["n"], row["user"], row["amount"], row["tags"]) for row in ROWS
    ]
    assert all(row._key == row.user and row._offset >= 0 for row in found)


@ON_KAFKA_IF_LONG
def test_columns_are_learnt_and_pinned(spark: SparkSession, servers: str, topic: str, tmp_path: Path) -> None:
    pinned = tmp_path / "schema.json"
    found = read(spark, servers, topic, format="json", schemaFile=str(pinned))
    assert found.schema.simpleString() == "struct<user:string,n:bigint,amount:double,tags:array<string>>"
    produce(servers, topic, [(None, '{"user": "u", "later": 1}')])
    assert "later" not in read(spark, servers, topic, format="json", schemaFile=str(pinned)).columns


def test_bounds_by_offset_and_time(spark: SparkSession, servers: str, topic: str) -> None:
    bounded = read(
        spark, servers, topic,
        startingOffsets=json.dumps({topic: {"0": 5, "1": -2, "2": -1}}),
        endingOffsets=json.dumps({topic: {"0": 9, "1": 4, "2": -1}}),
    )  # fmt: skip
    found = sorted((row.partition, row.offset) for row in bounded.collect())
    assert found == [(0, 5), (0, 6), (0, 7), (0, 8), (1, 0), (1, 1), (1, 2), (1, 3)]
    assert read(spark, servers, topic, startingTimestamp=int(time.time() * 1000) + 60_000).count() == 0
    assert read(spark, servers, topic, startingTimestamp=int(time.time() * 1000) - 600_000).count() == len(ROWS)


@ON_KAFKA_IF_LONG
def test_a_large_backlog_is_read_by_more_tasks_than_partitions(spark: SparkSession, servers: str, topic: str) -> None:
    frame = read(spark, servers, topic, recordsPerTask=50)
    assert frame.rdd.getNumPartitions() >= 10
    assert sorted(row.value for row in frame.collect()) == sorted(json.dumps(row).encode() for row in ROWS)


def test_aborted_and_open_transactions_are_not_seen(spark: SparkSession, servers: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": servers, "transactional.id": f"{topic}-writer"})
    producer.init_transactions()
    for outcome in (producer.abort_transaction, producer.commit_transaction, lambda: None):
        producer.begin_transaction()
        producer.produce(topic, key="x", value='{"n": -1}')
        producer.flush()
        outcome()
    assert read(spark, servers, topic).count() == len(ROWS) + 1
    assert read(spark, servers, topic, isolation="read_uncommitted").count() == len(ROWS) + 3
    producer.abort_transaction()


def test_a_stream_goes_on_where_it_was_and_finds_new_partitions(
    spark: SparkSession, servers: str, topic: str, tmp_path: Path
) -> None:
    out = make(servers, f"{topic}-out")
    counts = stream(spark, servers, topic, SHAPE, format="json", maxRecordsPerTrigger=200)
    rows = counts.selectExpr("user AS key", "to_json(struct(*)) AS value")
    query = run_to_topic(rows, servers, out, tmp_path / "cp")
    assert [progress["numInputRows"] for progress in query.recentProgress][:2] != [500, 0], "the limit holds"
    assert len(consume(servers, out)) == 500
    admin = AdminClient({"bootstrap.servers": servers})
    for future in admin.create_partitions([NewPartitions(topic, 5)]).values():
        future.result()
    wait_until(lambda: len(admin.list_topics(topic).topics[topic].partitions) == 5, "the partitions are not there")
    produce(servers, topic, [(None, json.dumps(row)) for row in ROWS[:100]], **{"linger.ms": 0, "batch.size": 100})
    run_to_topic(rows, servers, out, tmp_path / "cp")
    assert len(consume(servers, out)) == 600


def test_a_topic_made_again_stops_a_stream_or_is_read_from_its_beginning(
    spark: SparkSession, servers: str, topic: str, tmp_path: Path
) -> None:
    out = make(servers, f"{topic}-out")
    run_to_topic(stream(spark, servers, topic).select("value"), servers, out, tmp_path / "cp")
    with Cluster(parse_bootstrap(servers)) as cluster:
        delete_topics(cluster, [topic])
    make(servers, topic, partitions=2)
    wait_until_empty(servers, topic, partitions=2)
    produce(servers, topic, [(None, json.dumps(row)) for row in [*ROWS, *ROWS[:100]]])
    with pytest.raises(Exception, match=rf"topic '{topic}' was deleted and made again since the last batch"):
        run_to_topic(stream(spark, servers, topic).select("value"), servers, out, tmp_path / "cp")
    assert len(consume(servers, out)) == 500
    again = stream(spark, servers, topic, failOnDataLoss="false").select("value")
    run_to_topic(again, servers, out, tmp_path / "cp")
    assert len(consume(servers, out)) == 1100


@ON_KAFKA_IF_LONG
def test_a_record_that_does_not_decode_goes_to_the_dead_letters(spark: SparkSession, servers: str, topic: str) -> None:
    produce(servers, topic, [("k", "no json"), ("k", '{"n": "text"}')])
    assert read(spark, servers, topic, "n long", format="json").where("n is not null").count() == len(ROWS)
    letters = read(spark, servers, f"{topic}.dead-letters", includeHeaders=True).collect()
    reasons = {row.value: {h.key: bytes(h.value).decode() for h in row.headers} for row in letters}
    assert reasons[b"no json"]["error"] == "the value is not a JSON object: it begins 'no json'"
    assert reasons[b'{"n": "text"}']["error"] == "field 'n' is '\"text\"', which is not a whole number"
    assert reasons[b"no json"]["topic"] == topic
    assert reasons[b"no json"]["key"] == "k"
    with pytest.raises(Exception, match=r"record \d+ of .* is not json with the wanted columns"):
        read(spark, servers, topic, "n long", format="json", onBadRecord="fail").count()


@ON_KAFKA_IF_LONG
@pytest.mark.parametrize(
    ("options", "shape", "said"),
    [
        ({"subscribe": "no-such-topic"}, None, "topic 'no-such-topic' does not exist"),
        ({"fromat": "json"}, None, "did you mean 'format'?"),
        ({"format": "json"}, "n interval day", "'n'"),
        ({}, "value int", "column 'value' is declared int: it can be binary or string"),
        ({}, "user string", "column 'user' is not among those of a raw record"),
    ],
)
def test_mistakes_are_told_before_anything_runs(
    spark: SparkSession, servers: str, topic: str, options: dict[str, str], shape: str | None, said: str
) -> None:
    others = {name: value for name, value in options.items() if name != "subscribe"}
    with pytest.raises(Exception) as caught:
        read(spark, servers, options.get("subscribe", topic), shape, **others).collect()
    assert said in str(caught.value)


# --- writing


def test_results_are_written_as_kafkas_own_clients_write_them(spark: SparkSession, servers: str, topic: str) -> None:
    """The same keys go to the same partitions, whoever wrote them."""
    out = make(servers, f"{topic}-out")
    frame = read(spark, servers, topic, includeHeaders=True).select("key", "value", "headers", "timestamp")
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        frame.write.format("headrace").mode("append").options(bootstrap=servers, topic=out, compression=codec).save()
    wait_for_markers(servers, out)
    copies = read(spark, servers, out, includeHeaders=True).collect()
    originals = read(spark, servers, topic, includeHeaders=True).collect()
    shown = ("key", "value", "partition", "timestamp", "headers")
    assert sorted(str([row[name] for name in shown]) for row in copies) == sorted(
        5 * [str([row[name] for name in shown]) for row in originals]
    )


def test_a_rerun_of_a_decided_batch_changes_nothing(
    spark: SparkSession, servers: str, topic: str, tmp_path: Path
) -> None:
    out = make(servers, f"{topic}-out")
    rows = stream(spark, servers, topic).select("key", "value")
    run_to_topic(rows, servers, out, tmp_path / "cp")
    (tmp_path / "cp" / "commits" / "0").unlink()  # as if the driver had died before Spark noted the end of the batch
    run_to_topic(rows, servers, out, tmp_path / "cp")
    assert sorted(consume(servers, out), key=str) == sorted(
        ((row["user"].encode(), json.dumps(row).encode()) for row in ROWS), key=str
    )
    query = json.loads((tmp_path / "cp" / "metadata").read_text())["id"]
    with Cluster(parse_bootstrap(servers)) as cluster:
        assert Transactions(cluster).open_ids(prefix_of(query)) == []


def test_a_batch_committed_in_part_is_completed(spark: SparkSession, servers: str, tmp_path: Path) -> None:
    """Another query on the same input knows what its tasks write; this one's driver died amid its commits."""
    name = f"in-part-{time.time_ns()}"
    source, whole, out = (make(servers, f"{name}-{word}", partitions=2) for word in ("in", "whole", "out"))
    values = {0: [f"0/{n}" for n in range(5)], 1: [f"1/{n}" for n in range(3)]}
    producer = Producer({"bootstrap.servers": servers})
    for partition, texts in values.items():
        for text in texts:
            producer.produce(source, value=text, partition=partition)
    assert producer.flush(30) == 0
    rows = stream(spark, servers, source, minPartitions=2).select("value")
    run_to_topic(rows, servers, whole, tmp_path / "cp")

    query = str(uuid.uuid4())
    known = json.loads((tmp_path / "cp" / "metadata").read_text())
    shutil.rmtree(tmp_path / "cp" / "commits")
    (tmp_path / "cp" / ".metadata.crc").unlink(missing_ok=True)
    (tmp_path / "cp" / "metadata").write_text(json.dumps({"id": query}))
    with Cluster(parse_bootstrap(servers)) as cluster:
        decisions, transactions = Decisions(cluster, DECISIONS_TOPIC), Transactions(cluster)
        before = decisions.last(known["id"])
        assert before is not None
        parts = []
        for slot, texts in values.items():
            written = iter([pa.record_batch({"value": pa.array([text.encode() for text in texts])})])
            part = write_task(written, Attempt(query, 0, slot), SinkOptions(servers, topic=out))
            assert part is not None
            parts.append(part)
        assert [part[1:] for part in parts] == [part[1:] for part in before.parts]
        decisions.write(Decision(query, 0, tuple(parts)))
        assert transactions.commit(parts[0].transaction)
        transactions.begin(parts[1].transaction.transactional_id, 60_000)  # its time is up
    run_to_topic(rows, servers, out, tmp_path / "cp")
    assert sorted(consume(servers, out), key=str) == sorted(consume(servers, whole), key=str)


@ON_KAFKA_IF_LONG
def test_at_least_once_remains_a_choice(spark: SparkSession, servers: str, topic: str, tmp_path: Path) -> None:
    out = make(servers, f"{topic}-out")
    rows = stream(spark, servers, topic).select("key", "value")
    run_to_topic(rows, servers, out, tmp_path / "cp", delivery="at-least-once")
    assert len(consume(servers, out)) == len(ROWS)


def test_a_batch_that_fails_shows_nothing(spark: SparkSession, servers: str, topic: str) -> None:
    out = make(servers, f"{topic}-out")
    frame = read(spark, servers, topic).selectExpr(
        "key", "value", "CAST(CASE WHEN offset = 60 THEN raise_error('stop') END AS string) AS topic"
    )
    with pytest.raises(Exception, match="stop"):
        frame.write.format("headrace").mode("append").options(bootstrap=servers, topic=out).save()
    assert consume(servers, out) == []  # which would fail if a transaction stayed open there


@ON_KAFKA_IF_LONG
@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ("value, key AS user", "column 'user' is not one that a record has"),
        ("key", "there is no column 'value' to write"),
        ("offset AS value", "column 'value' is bigint: it has to be string or binary"),
    ],
)
def test_columns_that_cannot_be_written_are_refused(
    spark: SparkSession, servers: str, topic: str, columns: str, said: str
) -> None:
    frame = read(spark, servers, topic).selectExpr(*columns.split(", "))
    with pytest.raises(Exception) as caught:
        frame.write.format("headrace").mode("append").options(bootstrap=servers, topic="x").save()
    assert said in str(caught.value)
