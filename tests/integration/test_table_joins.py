"""Tables as changes, for real: change topics on our broker, through Spark, joined, with restarts in between."""

import base64
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import DataFrame, SparkSession

from headrace import Broker
from headrace.pipelines.operators.errors import BadField
from headrace.pipelines.operators.tables.changes import row_versions, table_changes
from headrace.pipelines.operators.tables.changes_reading import envelope_schema, row_schema
from headrace.pipelines.operators.tables.form import TIME, VERSIONS, WEIGHT
from headrace.pipelines.operators.tables.joins.join import join_tables

pytestmark = pytest.mark.java
ORDER, CUSTOMER = "id long, customer long, cents long", "id long, name string, region string"


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with Broker(tmp_path_factory.mktemp("broker")) as broker:
        yield broker.bootstrap_servers


class Log:
    """Change topics, written as a capture writes them."""

    def __init__(self, spark: SparkSession, servers: str, *topics: str) -> None:
        self.spark, self.servers = spark, servers
        self.producer = Producer({"bootstrap.servers": servers})
        self.lsn = 1000
        admin = AdminClient({"bootstrap.servers": servers})
        for future in admin.create_topics([NewTopic(topic, 2) for topic in topics]).values():
            future.result()

    def change(self, topic: str, op: str, before: Any = None, after: Any = None) -> None:
        self.lsn += 1
        source = {"ts_ms": self.lsn, "lsn": self.lsn, "table": topic}
        key = {"id": (after or before or {"id": None})["id"]}
        value = {"before": before, "after": after, "source": source, "op": op, "ts_ms": 0}
        for partition in (0, 1) if op == "t" else (-1,):
            self.producer.produce(topic, json.dumps(value), key=json.dumps(key), partition=partition)
        if op == "d":
            self.producer.produce(topic, None, key=json.dumps(key))

    def put(self, topic: str, key: str, value: Any) -> None:
        self.producer.produce(topic, None if value is None else json.dumps(value), key=key)

    def stream(self, topic: str, schema: str) -> DataFrame:
        options = {"bootstrap": self.servers, "format": "json", "startingOffsets": "earliest"}
        return self.spark.readStream.format("headrace").options(**options).schema(schema).load(topic)

    def rows(self, topic: str, schema: str) -> DataFrame:
        options = {"bootstrap": self.servers, "format": "json"}
        return self.spark.read.format("headrace").options(**options).schema(schema).load(topic)


class View:
    """The rows that are there, by all that was told of them."""

    def __init__(self, frame: DataFrame, folder: Path) -> None:
        self.frame, self.folder = frame, folder
        self.rows: Counter[Any] = Counter()
        self.versions: dict[Any, Any] = {}

    def update(self) -> "View":
        writer = self.frame.writeStream.option("checkpointLocation", str(self.folder)).trigger(availableNow=True)
        query = writer.foreachBatch(self._add).start()
        assert query.awaitTermination(120)
        self.rows = Counter({row: count for row, count in self.rows.items() if count})
        return self

    def _add(self, frame: DataFrame, _batch: int) -> None:
        for row in frame.collect():
            cells = row.asDict(recursive=True)
            weight, versions, _ = cells.pop(WEIGHT), cells.pop(VERSIONS), cells.pop(TIME)
            key = tuple(cells.values())
            self.rows[key] += weight
            if weight > 0:
                self.versions[key] = [(each["table"], each["key"], each["lsn"]) for each in versions]


@pytest.fixture
def one_partition(spark: SparkSession) -> Iterator[None]:
    """Five operators with state are quicker so, and what they say is the same."""
    name = "spark.sql.shuffle.partitions"
    before = spark.conf.get(name)
    spark.conf.set(name, "1")
    yield
    spark.conf.set(name, str(before))


@pytest.mark.usefixtures("one_partition")
@pytest.mark.long
def test_a_join_of_three_tables_goes_on_after_a_restart(spark: SparkSession, servers: str, tmp_path: Path) -> None:
    log = Log(spark, servers, "orders", "customers", "regions")
    orders = log.stream("orders", envelope_schema(ORDER)).transform(table_changes("id", buckets=2))
    customers = log.stream("customers", envelope_schema(CUSTOMER)).transform(table_changes("id", buckets=2))
    regions = log.stream("regions", row_schema("region string"))  # a table that is all key
    regions = regions.transform(table_changes("region", form="rows", buckets=2))
    with_customers = join_tables(customers, on={"customer": "id"}, how="left", prefix="customer_", buckets=2)
    with_regions = join_tables(regions.withColumnRenamed("region", "customer_region"), on="customer_region", buckets=2)
    joined = orders.transform(with_customers).where("cents > 0").transform(with_regions)
    assert joined.columns == [
        *("id", "customer", "cents", "customer_id", "customer_name", "customer_region", WEIGHT, VERSIONS, TIME)
    ]
    view = View(joined, tmp_path / "joined")

    ann, ben = {"id": 7, "name": "Ann", "region": "north"}, {"id": 8, "name": "Ben", "region": "south"}
    order = {"id": 1, "customer": 7, "cents": 250}
    log.change("orders", "r", after=order)
    log.change("orders", "c", after={"id": 2, "customer": 8, "cents": 600})
    log.change("orders", "c", after={"id": 3, "customer": None, "cents": 1})
    log.change("customers", "r", after=ann)
    log.change("customers", "r", after=ben)
    log.put("regions", '{"region": "north"}', {"region": "north"})
    log.put("regions", "south", {"region": "south"})
    log.producer.flush()
    assert view.update().rows == {
        (1, 7, 250, 7, "Ann", "north"): 1,
        (2, 8, 600, 8, "Ben", "south"): 1,
    }
    assert view.versions[1, 7, 250, 7, "Ann", "north"] == [
        ("orders", '{"id": 1}', "1001"),
        ("customers", '{"id": 7}', "1004"),
        ("regions", '{"region": "north"}', None),
    ]

    log.change("orders", "u", after=order | {"customer": 8})  # without before, as PostgreSQL has it by default
    log.change("orders", "d", before={"id": 2, "customer": None, "cents": None})
    log.change("customers", "u", after=ben | {"region": "north"})
    log.put("regions", "south", None)
    log.change("customers", "d", before=ann)
    log.producer.flush()
    assert view.update().rows == {(1, 8, 250, 8, "Ben", "north"): 1}

    log.change("customers", "t")
    log.change("customers", "c", after=ben | {"name": "Bea", "region": "north"})
    log.producer.flush()
    assert view.update().rows == {(1, 8, 250, 8, "Bea", "north"): 1}


def test_what_records_say_is_taken_at_its_word_or_refused(spark: SparkSession, servers: str) -> None:
    log = Log(spark, servers, "told", "half", "emptied")
    row = {"id": 1, "customer": 7, "cents": 250}
    log.change("told", "c", after=row)
    log.change("told", "u", before=row, after=row | {"cents": 300})
    log.change("told", "d", before=row | {"cents": 300})
    log.change("half", "u", after=row)
    log.change("emptied", "t")
    log.producer.flush()
    schema = envelope_schema(ORDER)
    told = log.rows("told", schema).transform(table_changes("id", trust_before=True)).collect()
    assert [(each.cents, each[WEIGHT], each["_version"].offset is not None) for each in told] == [
        *((250, 1, True), (250, -1, False), (300, 1, True), (300, -1, False))
    ]
    with pytest.raises(Exception, match="has no before, which trust_before=True needs: write ALTER TABLE"):
        log.rows("half", schema).transform(table_changes("id", trust_before=True)).collect()
    with pytest.raises(Exception, match=r"offset 0 of partition . of emptied is a truncate"):
        log.rows("emptied", schema).transform(table_changes("id", trust_before=True)).collect()
    assert not log.rows("emptied", schema).transform(table_changes("id", trust_before=True, truncates="ignore")).count()

    left = log.rows("told", schema).transform(table_changes("id", trust_before=True))
    right = left.selectExpr("cast(id as int) id", "cents", WEIGHT, "_version", TIME)
    with pytest.raises(BadField, match=r"'id' is int64 on the left and 'id' is int32 .* cast one.*cast\('bigint'\)"):
        left.transform(join_tables(right, on="id"))
    with pytest.raises(BadField, match="both tables have a column 'cents': rename one, or write prefix='right_'"):
        left.transform(join_tables(left, on="id"))
    with pytest.raises(BadField, match=r"is not a table as changes, because it has no column _weight"):
        left.drop(WEIGHT).transform(join_tables(left, on="id"))
    with pytest.raises(BadField, match=r"key in table_changes names 'ide', which the rows do not have: did you mean"):
        log.rows("told", schema).transform(table_changes("ide"))


TEXT = "__debezium_unavailable_value"
MARK_BASE64 = base64.b64encode(TEXT.encode()).decode()
LARGE = "id long, n int, body string, raw binary, counts array<int>, tags array<string>"
# No value of these can stand for one that was not sent, and all of them may be in the same row.
OTHERS = "at timestamp, on date, times array<timestamp>, nested struct<at: timestamp, n: int>, price decimal(9,2)"


def test_a_large_value_that_was_not_sent_again(spark: SparkSession, servers: str) -> None:
    log = Log(spark, servers, "large", "known", "unknown")
    schema = envelope_schema(f"{LARGE}, {OTHERS}")
    sent = {"id": 1, "n": 0, "body": "long", "raw": "Zm9v", "counts": [1, 2], "tags": ["a"]}
    left_out = {"id": 1, "n": 1, "body": TEXT, "raw": MARK_BASE64, "counts": [TEXT], "tags": [TEXT]}
    for topic in ("large", "known"):
        log.change(topic, "c", after=sent)
    log.change("large", "u", after=left_out)
    log.change("known", "u", before=sent, after=left_out)  # as with REPLICA IDENTITY FULL
    log.change("unknown", "u", after=left_out)
    log.producer.flush()
    row = ("long", bytearray(b"foo"), [1, 2], ["a"])
    (told,) = log.rows("large", schema).transform(table_changes("id")).collect()
    assert (told["n"], told[WEIGHT], told["body"], told["raw"], told["counts"], told["tags"]) == (1, 1, *row)
    trusting = log.rows("known", schema).transform(table_changes("id", trust_before=True))
    told = [
        (each[WEIGHT], each["n"], *(each[name] for name in told.asDict() if f"{name} " in LARGE))
        for each in trusting.collect()
    ]
    assert sorted(told, key=str) == sorted([(1, 0, 1, 0, *row), (-1, 0, 1, 0, *row), (1, 1, 1, 1, *row)], key=str)
    versions = log.rows("known", schema).transform(row_versions("id")).select("row.*").collect()
    assert sorted((each["n"], each["body"], each["counts"]) for each in versions) == [
        (0, "long", [1, 2]),
        (1, "long", [1, 2]),
    ]
    for transform in (table_changes("id"), row_versions("id")):
        with pytest.raises(Exception, match=r"of unknown leaves out .*unavailable = \"reselect\""):
            log.rows("unknown", schema).transform(transform).collect()
    whole = log.rows("unknown", envelope_schema("id long, n int")).transform(table_changes("id"))
    assert [(each["id"], each["n"]) for each in whole.collect()] == [(1, 1)]
