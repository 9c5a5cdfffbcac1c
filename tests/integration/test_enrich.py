"""Enrichment from topics through Spark: the same answers however often and however it is run, and time that goes on."""

import json
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import DataFrame, SparkSession

from headrace import Broker
from headrace.pipelines.operators import aggregates as agg
from headrace.pipelines.operators import correct, event_time, hopping, on_time, side_output
from headrace.pipelines.operators.errors import BadField, BadTime, BadWindow
from headrace.pipelines.operators.tables.changes import row_versions
from headrace.pipelines.operators.tables.changes_reading import envelope_schema
from headrace.pipelines.operators.tables.enrichment.enrich import enrich

pytestmark = pytest.mark.java

START = datetime(2026, 1, 1, tzinfo=UTC)
ORDERS = "customer long, n long, at timestamp, _idle boolean"
CUSTOMERS = envelope_schema("id long, city string") + ", _idle boolean"


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with Broker(tmp_path_factory.mktemp("broker")) as broker:
        yield broker.bootstrap_servers


class Shop:
    """A topic of orders and one of changes of the customers table."""

    def __init__(self, spark: SparkSession, servers: str, name: str) -> None:
        self.spark, self.servers = spark, servers
        self.orders_topic, self.customers_topic = f"{name}-orders", f"{name}-customers"
        admin = AdminClient({"bootstrap.servers": servers})
        for made in admin.create_topics([NewTopic(self.orders_topic, 2), NewTopic(self.customers_topic, 1)]).values():
            made.result()
        self.producer = Producer({"bootstrap.servers": servers})

    def order(self, n: int, customer: int, at: datetime) -> None:
        value = {"customer": customer, "n": n, "at": at.isoformat()}
        self.producer.produce(self.orders_topic, json.dumps(value), key=str(n))

    def change(self, customer: int, city: str | None, at: datetime) -> None:
        """A city, a move to another, or the end."""
        row = {"id": customer, "city": city}
        stamp = round(at.timestamp() * 1000)
        before, after, op = (row, None, "d") if city is None else (None, row, "u")
        value = {"before": before, "after": after, "op": op, "source": {"ts_ms": stamp, "lsn": stamp}, "ts_ms": stamp}
        key = json.dumps({"id": customer})
        self.producer.produce(self.customers_topic, json.dumps(value), key=key, timestamp=stamp)
        if city is None:
            self.producer.produce(self.customers_topic, None, key=key, timestamp=stamp)

    def read(self, topic: str, schema: str, **options: Any) -> DataFrame:
        assert self.producer.flush(30) == 0
        given = {"bootstrap": self.servers, "format": "json", "startingOffsets": "earliest"} | options
        return self.spark.readStream.format("headrace").options(**given).schema(schema).load(topic)

    def orders(self, **options: Any) -> DataFrame:
        return self.read(self.orders_topic, ORDERS, **options).transform(event_time("at", delay="2 seconds"))

    def versions(self, **options: Any) -> DataFrame:
        return self.read(self.customers_topic, CUSTOMERS, **options).transform(row_versions("id"))


def second(n: float) -> datetime:
    return START + timedelta(seconds=n)


def run(frame: DataFrame, folder: Path, *, ends: bool = True) -> tuple[list[dict[str, Any]], Any]:
    """What comes out, to the end of what there is."""
    found: list[dict[str, Any]] = []

    def keep(batch: DataFrame, _: int) -> None:
        found.extend(row.asDict(recursive=True) for row in batch.collect())

    writer = frame.writeStream.foreachBatch(keep).option("checkpointLocation", str(folder))
    query = writer.trigger(availableNow=True).start() if ends else writer.trigger(processingTime="0 seconds").start()
    if ends:
        query.awaitTermination()
    return found, query


def wait_for(found: list[dict[str, Any]], query: Any) -> None:
    """Until anything has come out; then the query ends."""
    deadline = time.monotonic() + 90
    while not found:
        assert query.exception() is None
        assert time.monotonic() < deadline, query.lastProgress
        time.sleep(0.1)
    query.stop()


def told(found: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return sorted((row["n"], row["city"], row["_joined"] and tuple(row["_joined"].values())) for row in found)


@pytest.mark.long
def test_as_of_gives_the_same_rows_however_it_is_run(spark: SparkSession, servers: str, tmp_path: Path) -> None:
    shop = Shop(spark, servers, "as-of")
    for move in range(4):
        for customer in range(6):
            shop.change(customer, f"city {customer}.{move}", second(10 * move + customer / 10))
    shop.change(0, None, second(45))
    orders = [(n, n % 7, n * 0.37 % 50) for n in range(150)]
    for n, customer, at in orders:
        shop.order(n, customer, second(at))
    shop.order(1000, 1, second(100))
    shop.change(99, "far", second(100))

    def made(buckets: int = 3, **options: Any) -> DataFrame:
        join = enrich(
            shop.versions(**options), on={"customer": "id"}, how="left", as_of="event_time", delay="1 second",
            stragglers=correct("90 seconds", then=side_output()), buckets=buckets,
        )  # fmt: skip
        return shop.orders(**(options and {"maxRecordsPerTrigger": 60})).transform(join)

    first, _ = run(made().transform(on_time), tmp_path / "first")
    cities = {}
    for n, customer, at in orders:
        move = int((at - customer / 10) // 10) if at >= customer / 10 else -1
        there = customer < 6 and move >= 0 and not (customer == 0 and at >= 45)
        cities[n] = f"city {customer}.{min(move, 3)}" if there else None
    answered = {row["n"]: row["city"] for row in first}
    assert answered == {n: cities[n] for n in answered}
    assert answered.keys() == cities.keys(), "all but the last, which the watermark has not passed"
    ids = {row["n"]: row["_joined"] for row in first if row["city"] is not None}
    assert {each["table"] for each in ids.values()} == {"as-of-customers"}
    assert all(json.loads(ids[n]["key"]) == {"id": n % 7} and ids[n]["lsn"] is not None for n in ids)

    # Smaller batches, other buckets, and a stop in the middle: the same rows with the same versions.
    again, query = run(made(5, maxRecordsPerTrigger=12), tmp_path / "again", ends=False)
    wait_for(again, query)
    # Spark forgets what each side's watermark was, and waits for a row of either.
    shop.order(1001, 1, second(100))
    shop.change(98, "far", second(100))
    shop.order(2000, 2, second(-200))
    shop.change(97, "too late", second(-200))
    rest, query = run(made(5, maxRecordsPerTrigger=12), tmp_path / "again")
    whole = {row["n"]: row for row in [*again, *rest] if row["_aside"] is None}  # a stopped batch may be told twice
    assert told(list(whole.values())) == told(first)
    assert [row["_aside"]["row"]["n"] for row in rest if row["_aside"] is not None] == [2000], "handed on, whole"
    counts = [found.asDict() for each in query.recentProgress for found in each.observedMetrics.values()]
    assert [sum(each[name] for each in counts) for name in ("late", "no_time", "late_changes")] == [1, 0, 1]

    plain = shop.read(shop.orders_topic, ORDERS).drop("_idle")
    versions = shop.versions()
    on = {"customer": "id"}
    with pytest.raises(BadWindow, match=r"that column has none: write .transform\(event_time"):
        plain.transform(enrich(versions, on=on, as_of="at", delay="1 second"))
    with pytest.raises(BadWindow, match="that column has none: write as_of='event_time'"):
        shop.orders().transform(enrich(versions, on=on, as_of="at", delay="1 second"))
    with pytest.raises(BadWindow, match="the table has no watermark: write delay="):
        shop.orders().transform(enrich(versions, on=on, as_of="event_time"))
    marked = versions.withWatermark("_time", "1 second")
    with pytest.raises(BadWindow, match="a watermark already"):
        shop.orders().transform(enrich(marked, on=on, as_of="event_time", delay="1 second"))
    with pytest.raises(BadTime, match="which is bigint and not a timestamp"):
        shop.orders().transform(enrich(versions, on=on, as_of="n", delay="1 second"))
    text = shop.orders().selectExpr("string(customer) AS customer", "event_time")
    with pytest.raises(BadField, match="'customer' of the events, which is string"):
        text.transform(enrich(versions, on=on))
    once = spark.createDataFrame([(1, START)], "customer long, event_time timestamp")
    with pytest.raises(BadField, match="the events are read at once: read both with readStream"):
        once.transform(enrich(versions, on=on))


def test_what_has_waited_for_the_watermark_is_not_late_for_the_next(
    spark: SparkSession, servers: str, tmp_path: Path
) -> None:
    shop = Shop(spark, servers, "chain")
    for move in range(5):
        for customer in range(3):
            shop.change(customer, f"city {customer}.{move}", second(10 * move))
    orders = [(n, n % 3, n * 0.5) for n in range(90)]
    for n, customer, at in orders:
        shop.order(n, customer, second(at))
    for end in (100, 101):
        shop.order(1000 + end, 1, second(end))
        shop.change(9, "far", second(end))
    joins = [
        enrich(
            shop.versions(maxRecordsPerTrigger=4), on={"customer": "id"}, as_of="event_time", delay="1 second", **kind
        )
        for kind in ({}, {"prefix": "again_", "joined": "_again"})
    ]
    read = shop.orders()  # at once: the table's changes, a few in each micro-batch, hold the watermark back
    windows = hopping("10 seconds", "5 seconds", by=["city", "again_city"], orders=agg.count())
    found, query = run(read.transform(joins[0]).transform(joins[1]).transform(windows), tmp_path / "chain")
    expected = Counter(
        (f"city {customer}.{int(at // 10)}", end)
        for _, customer, at in orders
        for end in (at // 5 * 5 + 5, at // 5 * 5 + 10)
    )
    assert {row["city"] for row in found} == {row["again_city"] for row in found}
    counted = {
        (row["city"], (row["window_end"].replace(tzinfo=UTC) - START).total_seconds()): row["orders"] for row in found
    }
    assert counted == expected
    assert len(found) == len(counted), "each told once"
    assert query.lastProgress["batchId"] > 3
    late = [each["late"] for one in query.recentProgress for each in one.observedMetrics.values() if "late" in each]
    assert sum(late) == 0


def test_events_go_on_after_a_restart_though_the_table_has_been_read_before_it(
    spark: SparkSession, servers: str, tmp_path: Path
) -> None:
    shop = Shop(spark, servers, "restarted")
    for customer in range(3):
        shop.change(customer, f"city {customer}", second(0))
    shop.change(99, "far", second(1000))
    for n in range(10):
        shop.order(n, n % 3, second(n + 1))

    def enriched() -> DataFrame:
        join = enrich(shop.versions(), on={"customer": "id"}, as_of="event_time", delay="1 second")
        return shop.orders().transform(join)

    first, _ = run(enriched(), tmp_path / "restarted")
    answered = {row["n"] for row in first}
    assert answered == set(range(7)), "but for those within the delay of two seconds"
    for start in (10, 20):  # also after a run in which the table had no row at all
        for n in range(start, start + 10):
            shop.order(n, n % 3, second(n + 1))
        again, _ = run(enriched(), tmp_path / "restarted")
        assert {row["n"] for row in again} == set(range(start - 3, start + 7))


def test_a_table_that_seldom_changes_holds_nothing_up(spark: SparkSession, servers: str, tmp_path: Path) -> None:
    shop = Shop(spark, servers, "idle")
    now = datetime.now(UTC)
    shop.change(1, "Rome", now - timedelta(hours=1))
    shop.change(2, "Oslo", now - timedelta(hours=1))
    shop.change(2, None, now - timedelta(minutes=1))
    for n in range(4):
        shop.order(n, n, now - timedelta(seconds=10 - n))
    table = shop.read(shop.customers_topic, CUSTOMERS, idleTimeout=1, eventTimeColumn="_timestamp")
    versions = table.transform(event_time("_timestamp", delay="0 seconds", into="_timestamp")).transform(
        row_versions("id")
    )
    orders = shop.orders(idleTimeout=1, eventTimeColumn="at")
    joined = orders.transform(enrich(versions, on={"customer": "id"}, as_of="event_time"))
    found, query = run(joined, tmp_path / "idle", ends=False)
    wait_for(found, query)
    assert [(row["n"], row["city"]) for row in found] == [(1, "Rome")]

    # As it is now: nothing waits, and no watermark is needed.
    plain = shop.read(shop.orders_topic, ORDERS).drop("_idle")
    latest, _ = run(plain.transform(enrich(shop.versions(), on={"customer": "id"}, how="left")), tmp_path / "latest")
    assert [(row["n"], row["city"]) for row in sorted(latest, key=lambda row: row["n"])] == [
        (0, None), (1, "Rome"), (2, None), (3, None),
    ]  # fmt: skip
