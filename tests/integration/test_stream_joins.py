"""Joins of two streams for real: by Spark's own join and on keyed state, with late rows and a restart in the middle.

One run joins many small sets at once, each by a key of its own, and DuckDB joins the same rows.
"""

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial, reduce
from pathlib import Path
from typing import Any

import duckdb
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from headrace import Broker
from headrace.pipelines.operators import correct, event_time, late_rows, on_time, side_output
from headrace.pipelines.operators.errors import BadField, BadTime, BadWindow
from headrace.pipelines.operators.joins.interval import KINDS, ONLY_LEFT
from headrace.pipelines.operators.joins.streams import join_streams
from tests.property.test_interval_join import QUERIES

pytestmark = pytest.mark.java

START = datetime(2026, 1, 1, tzinfo=UTC)
SHAPE = "k string, at timestamp, x long"
LOW, HIGH = -7, 12
END = 100_000


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with Broker(tmp_path_factory.mktemp("broker")) as broker:
        yield broker.bootstrap_servers


Row = tuple[str | None, int | None, int]


class Streams:
    """Two topics, and queries over both that go on where they were."""

    def __init__(self, spark: SparkSession, servers: str, name: str, folder: Path) -> None:
        self.spark, self.servers, self.name, self.folder = spark, servers, name, folder
        admin = AdminClient({"bootstrap.servers": servers})
        for future in admin.create_topics([NewTopic(f"{name}-{side}", 2) for side in ("left", "right")]).values():
            future.result()

    def produce(self, side: str, rows: list[Row]) -> None:
        producer = Producer({"bootstrap.servers": self.servers})
        for key, second, number in rows:
            at = None if second is None else (START + timedelta(seconds=second)).isoformat()
            producer.produce(f"{self.name}-{side}", json.dumps({"k": key, "at": at, "x": number}), key=str(key))
        assert producer.flush(30) == 0

    def read(self, side: str) -> DataFrame:
        reader = self.spark.readStream.format("headrace").options(
            bootstrap=self.servers, format="json", startingOffsets="earliest"
        )
        return reader.schema(SHAPE).load(f"{self.name}-{side}").transform(event_time("at", delay="0 seconds"))

    def run(self, make: Callable[[DataFrame, DataFrame], DataFrame]) -> tuple[list[Any], Any]:
        """To the end of what there is; what came out in this run, and the query."""
        out = str(self.folder / "out")
        before = self.spark.read.parquet(out).collect() if (self.folder / "out").exists() else []
        writer = make(self.read("left"), self.read("right")).writeStream.format("parquet").option("path", out)
        query = writer.option("checkpointLocation", str(self.folder / "checkpoint")).trigger(availableNow=True).start()
        query.awaitTermination()
        found = Counter(self.spark.read.parquet(out).collect())
        return list((found - Counter(before)).elements()), query


@pytest.fixture
def streams(spark: SparkSession, servers: str, tmp_path: Path, request: pytest.FixtureRequest) -> Streams:
    name = "".join(letter if letter.isalnum() else "-" for letter in request.node.name)
    return Streams(spark, servers, name, tmp_path)


def dropped(query: Any) -> int:
    return sum(op.numRowsDroppedByWatermark for each in query.recentProgress for op in each.stateOperators)


def observed(query: Any, name: str) -> int:
    metrics = [row.asDict() for each in query.recentProgress for row in each.observedMetrics.values()]
    return sum(row.get(name) or 0 for row in metrics)


def chosen(seed: int, first: int, last: int, numbered: int) -> list[Row]:
    """Rows of many sets; each key is a set of its own, and one is null."""
    draw = random.Random(seed)
    keys = [*(f"set-{number}" for number in range(40)), None]
    return [(draw.choice(keys), draw.randrange(first, last), numbered + number) for number in range(150)]


def expected(how: str, left: list[Row], right: list[Row]) -> Counter[tuple[Any, ...]]:
    with duckdb.connect() as connection:
        for name, rows in (("l", left), ("r", right)):
            connection.execute(f"CREATE TABLE {name} (k VARCHAR, t BIGINT, x BIGINT)")
            connection.executemany(f"INSERT INTO {name} VALUES (?, ?, ?)", rows)
        return Counter(connection.execute(QUERIES[how].format(low=LOW, high=HIGH)).fetchall())


def told(rows: list[Any], how: str) -> Counter[tuple[Any, ...]]:
    """Results as keys and numbers, without those that only move the time."""
    sides = ("x",) if how in ONLY_LEFT else ("x", "right_x")
    return Counter((row.k, *(row[name] for name in sides)) for row in rows if row.how == how and row.k != "end")


def within(frame: DataFrame, right: DataFrame, how: str, **options: Any) -> DataFrame:
    interval = (f"{LOW} seconds", f"{HIGH} seconds")
    return frame.transform(join_streams(right, on="k", within=interval, how=how, **options))


@pytest.mark.long
def test_sparks_joins_with_a_restart_in_the_middle_equal_a_database(streams: Streams) -> None:
    """All kinds in one query."""

    def joins(left: DataFrame, right: DataFrame) -> DataFrame:
        made = [within(left, right, how).withColumn("how", fn.lit(how)) for how in KINDS]
        return reduce(partial(DataFrame.unionByName, allowMissingColumns=True), made)

    left = [chosen(1, 0, 100, 0), chosen(2, 101, 200, 1000)]
    right = [chosen(3, 0, 100, 0), chosen(4, 101, 200, 1000)]
    found = []
    for ours, theirs, end in zip(left, right, ([], [("end", END, -1)]), strict=True):
        streams.produce("left", ours + end)
        streams.produce("right", theirs + end)
        found += streams.run(joins)[0]
    for how in KINDS:
        assert told(found, how) == expected(how, left[0] + left[1], right[0] + right[1]), how
    pairs = [row for row in found if row.how == "left" and row.right_x is not None]
    assert all(LOW <= (row.right_event_time - row.event_time).total_seconds() <= HIGH for row in pairs)
    # Too late, and without a time: counted, by each of the joins.
    streams.produce("left", [("set-1", 150, -2), ("set-1", None, -3)])
    streams.produce("right", [("set-1", 151, -2), ("end", END + 1, -1)])
    found, query = streams.run(joins)
    assert [row for row in found if row.k != "end"] == []
    assert (dropped(query), observed(query, "no_time")) == (2 * len(KINDS), len(KINDS))


def test_late_rows_correct_what_was_told_and_later_ones_are_handed_on(streams: Streams) -> None:
    def join(left: DataFrame, right: DataFrame) -> DataFrame:
        return within(left, right, "full", stragglers=correct("100 seconds", then=side_output()))

    streams.produce("left", [("a", 150, 1), ("b", 150, 2), ("end", 200, -1)])
    streams.produce("right", [("a", 155, 3), ("end", 300, -1)])
    found, _ = streams.run(join)
    assert sorted((row.k, row.x, row.right_x, row.retracted) for row in found) == [
        ("a", 1, 3, False),
        ("b", 2, None, False),
    ]
    streams.produce("left", [("b", None, 7)])
    streams.produce("right", [("b", 152, 4), ("b", 99, 6)])
    found, query = streams.run(join)
    assert {(row.k, row.x, row.right_x, row.retracted) for row in found if row._aside is None} == {
        ("b", 2, 4, False),
        ("b", 2, None, True),
    }
    assert (observed(query, "late"), observed(query, "no_time")) == (1, 1)
    everything = streams.spark.read.parquet(str(streams.folder / "out"))
    assert on_time(everything).count() == 4
    asides = {row.reason: row for row in late_rows(everything).collect()}
    assert asides["late"].row.right.x == 6
    assert asides["late"].lateness_ms == (200 - 99) * 1000
    assert asides["no time"].row.left.k == "b"


def test_joined_tables_at_rest_and_mistakes_told_in_a_sentence(streams: Streams) -> None:
    left, right = streams.read("left"), streams.read("right")
    bare = right.select("k", "at", "x")
    at_rest = streams.spark.createDataFrame([("a", START, 1), ("b", START, 2)], SHAPE)
    paired = at_rest.transform(join_streams(at_rest, on="k", within="1 second", time="at", right_time="at"))
    assert sorted((row.k, row.x, row.right_x) for row in paired.collect()) == [("a", 1, 1), ("b", 2, 2)]
    with pytest.raises(BadWindow, match=r"the right side of join_streams needs .*event_time\("):
        within(left, right.drop("event_time"), "inner")
    with pytest.raises(BadWindow, match="'at', which has no watermark"):
        within(left, bare, "inner", right_time="at")
    with pytest.raises(BadWindow, match="the right side is not one"):
        within(left, at_rest, "inner")
    with pytest.raises(BadField, match=r"string on the left and 'k' is bigint on the right"):
        within(left, right.withColumn("k", right.x), "inner")
    local = at_rest.selectExpr("k", "CAST(at AS TIMESTAMP_NTZ) AS at")
    with pytest.raises(BadTime, match="timestamp_ntz, which cannot be compared"):
        within(at_rest, local, "inner", time="at", right_time="at")
