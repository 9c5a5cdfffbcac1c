"""Operators over time, each once for real: from a topic, through Spark, to a topic on our broker."""

import json
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import DataFrame, SparkSession

from headrace import Broker
from headrace.pipelines.operators import aggregates as agg
from headrace.pipelines.operators import (
    compare,
    correct,
    correct_clock,
    event_time,
    hopping,
    on_time,
    routed,
    sessions,
    side_output,
    sliding,
    tumbling,
)
from headrace.pipelines.operators.errors import BadField, BadTime, BadWindow
from tests.reading import read_committed

pytestmark = pytest.mark.java

START = datetime(2026, 1, 1, tzinfo=UTC)
SHAPE = "shop string, at timestamp, cents long, sent timestamp, _timestamp timestamp, _idle boolean"
AGGREGATES = {
    "n": agg.count(),
    "total": agg.sum("cents"),
    "mean": agg.avg("cents"),
    "first": agg.first("cents"),
    "last": agg.last("cents"),
    "most": agg.max("cents"),
    "different": agg.count_distinct("cents"),
    "all": agg.collect("cents"),
}


def order(second: float, cents: int | None, shop: str = "a") -> dict[str, Any]:
    at = (START + timedelta(seconds=second)).isoformat()
    return {"shop": shop, "at": at, "cents": cents, "sent": at}


ORDERS = [order(n * 0.7 % 120, n if n % 11 else None, "abc"[n % 3]) for n in range(300)]


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with Broker(tmp_path_factory.mktemp("broker")) as broker:
        yield broker.bootstrap_servers


class Topics:
    """A topic in and a topic out, and queries between them that go on where they were."""

    def __init__(self, spark: SparkSession, servers: str, name: str, folder: Path) -> None:
        self.spark, self.servers, self.folder = spark, servers, folder
        self.source, self.sink = f"{name}-in", f"{name}-out"
        admin = AdminClient({"bootstrap.servers": servers})
        for future in admin.create_topics([NewTopic(self.source, 2), NewTopic(self.sink, 1)]).values():
            future.result()

    def made(self, name: str) -> str:
        """Another topic."""
        admin = AdminClient({"bootstrap.servers": self.servers})
        for future in admin.create_topics([NewTopic(name, 1)]).values():
            future.result()
        return name

    def produce(self, *rows: dict[str, Any]) -> None:
        producer = Producer({"bootstrap.servers": self.servers})
        for row in rows:
            producer.produce(self.source, json.dumps(row), key=row["shop"])
        assert producer.flush(30) == 0

    def orders(self, **options: Any) -> DataFrame:
        given = {"format": "json", "startingOffsets": "earliest"} | options
        reader = self.spark.readStream.format("headrace").options(bootstrap=self.servers, **given)
        return reader.schema(SHAPE).load(self.source)

    def writer(self, frame: DataFrame) -> Any:
        rows = frame.selectExpr("to_json(struct(*)) AS value")
        writer = rows.writeStream.format("headrace").options(bootstrap=self.servers, topic=self.sink)
        return writer.option("checkpointLocation", str(self.folder / "checkpoint"))

    def run(self, make: Callable[[DataFrame], DataFrame], **options: Any) -> tuple[list[dict[str, Any]], Any]:
        """To the end of what there is; what is new in the topic, and the query."""
        before = len(self.consumed())
        query = self.writer(make(self.orders(**options))).trigger(availableNow=True).start()
        query.awaitTermination()
        return self.consumed()[before:], query

    def consumed(self, topic: str | None = None) -> list[dict[str, Any]]:
        return [json.loads(message.value() or b"") for message in read_committed(self.servers, topic or self.sink)]


@pytest.fixture
def topics(spark: SparkSession, servers: str, tmp_path: Path, request: pytest.FixtureRequest) -> Topics:
    return Topics(spark, servers, request.node.name.partition("[")[0], tmp_path)


def timed(frame: DataFrame) -> DataFrame:
    return frame.transform(event_time("at", delay="5 seconds"))


def wait_for(asked: Callable[[], Any], query: Any) -> Any:
    """What is asked for, once it is there."""
    deadline = time.monotonic() + 90
    while not (found := asked()):
        assert query.exception() is None
        assert time.monotonic() < deadline, query.lastProgress
        time.sleep(0.2)
    return found


def observed(query: Any, name: str) -> int:
    """The sum of a count over all batches and operators."""
    metrics = [row.asDict() for each in query.recentProgress for row in each.observedMetrics.values()]
    return sum(row.get(name) or 0 for row in metrics)


def times(row: dict[str, Any]) -> tuple[float, float]:
    """A window's edges as seconds since the start."""
    start, end = (datetime.fromisoformat(row[name]) - START for name in ("window_start", "window_end"))
    return start.total_seconds(), end.total_seconds()


def test_tumbling_with_late_rows_dropped_handed_on_and_corrected(topics: Topics) -> None:
    """Native and keyed paths give the same; late rows are counted whichever it is."""
    flush = order(1000, 0, "z")

    def window(frame: DataFrame) -> DataFrame:
        return timed(frame).transform(tumbling("10 seconds", by="shop", **AGGREGATES))

    def aside(frame: DataFrame) -> DataFrame:
        return timed(frame).transform(tumbling("10 seconds", by="shop", stragglers=side_output(), **AGGREGATES))

    late_topic = topics.made(f"{topics.sink}-late")

    def run_keyed() -> Any:
        found = routed(aside(topics.orders()), results=topics.sink, late=late_topic)
        writer = found.writeStream.format("headrace").option("bootstrap", topics.servers)
        query = writer.option("checkpointLocation", str(topics.folder / "keyed")).trigger(availableNow=True).start()
        query.awaitTermination()
        return query

    topics.produce(*sorted(ORDERS, key=lambda row: row["at"]), flush)
    native, _ = topics.run(window)
    expected = {(row["shop"], row["at"][:18]) for row in ORDERS}
    assert {(row["shop"], row["window_start"][:18]) for row in native} == expected
    assert sum(row["n"] for row in native) == len(ORDERS)
    before = len(topics.consumed())
    run_keyed()
    assert sorted(map(str, topics.consumed()[before:])) == sorted(map(str, native))
    topics.produce(order(1, 7), order(2, 8) | {"at": None}, order(2000, 0, "z"))
    _, query = topics.run(window)
    assert sum(op.numRowsDroppedByWatermark for each in query.recentProgress for op in each.stateOperators) >= 1
    assert observed(query, "no_time") >= 1
    query = run_keyed()
    asides = {row["reason"]: row for row in topics.consumed(late_topic)}
    assert asides["late"]["row"]["cents"] == 7
    assert times(asides["late"]) == (0, 10)
    assert asides["late"]["lateness_ms"] == (1000 - 5 - 10) * 1000
    assert asides["no time"]["row"]["cents"] == 8
    assert (observed(query, "late"), len(asides)) == (1, 2)


def test_corrections_across_a_restart(topics: Topics) -> None:
    def window(frame: DataFrame) -> DataFrame:
        choice = correct("1 hour")
        return timed(frame).transform(tumbling("10 seconds", by="shop", total=agg.sum("cents"), stragglers=choice))

    topics.produce(order(1, 5), order(60, 1))
    first, _ = topics.run(window)
    assert [(row["total"], row["revision"], row["retracted"]) for row in first] == [(5, 1, False)]
    topics.produce(order(2, 6), order(61, 1))
    again, _ = topics.run(window)
    assert [(row["total"], row["revision"], row["retracted"]) for row in again] == [(5, 1, True), (11, 2, False)]


def test_hopping(topics: Topics) -> None:
    topics.produce(*ORDERS[:100], order(500, 0, "z"))
    found, _ = topics.run(
        lambda frame: timed(frame).transform(hopping("20 seconds", "5 seconds", by="shop", n=agg.count()))
    )
    expected: dict[tuple[str, float], int] = {}
    for row in ORDERS[:100]:
        second = (datetime.fromisoformat(row["at"]) - START).total_seconds()
        for start in range(int(second // 5 * 5) - 15, int(second // 5 * 5) + 1, 5):
            expected[row["shop"], start] = expected.get((row["shop"], start), 0) + 1
    assert {(row["shop"], times(row)[0]): row["n"] for row in found} == expected
    topics.produce(order(501, 0, "z"))
    words = "made with size = 20 seconds, and the query has size = 10 seconds.*write it as it was, or rebuild the job"
    with pytest.raises(Exception, match=words):
        topics.run(lambda frame: timed(frame).transform(hopping("10 seconds", "5 seconds", by="shop", n=agg.count())))


def test_a_replay_in_small_batches_drops_nothing(topics: Topics) -> None:
    """Partitions that are each in order, and uneven: what a batch happens to hold makes no row late."""
    # Shop a has most of its rows early and shop b late: by their lengths alone the two would be read hours apart.
    seconds = {"a": [n * 0.1 for n in range(900)] + list(range(90, 600, 50)), "b": [n * 2 for n in range(250)]}
    seconds["b"] += [500 + n * 0.1 for n in range(900)]
    rows = sorted((second, shop) for shop, of in seconds.items() for second in of)
    producer = Producer({"bootstrap.servers": topics.servers})
    for second, shop in [*rows, (900, "z")]:
        at_ms = int((START + timedelta(seconds=second)).timestamp() * 1000)
        producer.produce(topics.source, json.dumps(order(second, 1, shop)), partition=int(shop == "b"), timestamp=at_ms)
    assert producer.flush(30) == 0
    found, query = topics.run(
        lambda frame: frame.transform(event_time("at", delay="0 seconds")).transform(
            hopping("10 seconds", "5 seconds", by="shop", n=agg.count())
        ),
        maxRecordsPerTrigger=120,
    )
    expected: dict[tuple[str, float], int] = {}
    for second, shop in rows:
        for start in (second // 5 * 5 - 5, second // 5 * 5):
            expected[shop, start] = expected.get((shop, start), 0) + 1
    assert observed(query, "late") == 0
    assert {(row["shop"], times(row)[0]): row["n"] for row in found} == expected


def test_sessions_are_sparks_own(topics: Topics) -> None:
    bursts = [order(n * 3 + (n // 10) * 20, n, "ab"[n % 2]) for n in range(60)]
    topics.produce(*bursts, order(1000, 0, "z"))
    native, _ = topics.run(lambda frame: timed(frame).transform(sessions("6 seconds", by="shop", **AGGREGATES)))
    assert sum(row["n"] for row in native) == len(bursts)
    topics.folder /= "keyed"
    keyed, _ = topics.run(
        lambda frame: on_time(
            timed(frame).transform(sessions("6 seconds", by="shop", stragglers=side_output(), **AGGREGATES))
        )
    )
    assert sorted(map(str, keyed)) == sorted(map(str, native))


def test_sliding_across_a_restart_with_a_late_row(topics: Topics) -> None:
    def window(frame: DataFrame) -> DataFrame:
        back = sliding("10 seconds", by="shop", keep="cents", n=agg.count(), stragglers=correct("1 hour"))
        return timed(frame).transform(back)

    topics.produce(*(order(second, second) for second in range(0, 30, 4)))
    first, _ = topics.run(window)
    topics.produce(order(2, 2), *(order(second, second) for second in range(32, 60, 4)), order(500, -1, "z"))
    second, _ = topics.run(window)
    expected = {at: min(at // 4, 2) + 1 for at in range(0, 60, 4)}
    assert first
    assert all(row["n"] == expected[row["cents"]] and not row["retracted"] for row in first)
    # In the ten seconds before 4, 8 and 12 there is one row more now.
    changed = [(row["cents"], row["n"], row["revision"]) for row in second if row["retracted"]]
    assert sorted(changed) == [(at, expected[at], 1) for at in (4, 8, 12)]
    standing = {row["cents"]: (row["n"], row["revision"]) for row in first + second if not row["retracted"]}
    late = {at: (expected[at] + 1, 2) for at in (4, 8, 12)}
    assert standing == {at: (n, 1) for at, n in expected.items()} | late | {2: (2, 1)}


def test_comparison_of_windows(topics: Topics) -> None:
    def compared(frame: DataFrame) -> DataFrame:
        windows = timed(frame).transform(tumbling("10 seconds", by="shop", total=agg.sum("cents")))
        against = {"previous": "previous", "before": "20 seconds"}
        return windows.transform(compare("total", by="shop", against=against, rolling="20 seconds"))

    topics.produce(*(order(second, second) for second in range(0, 50, 10)), order(500, -1, "z"), order(900, -1, "z"))
    found, _ = topics.run(compared)
    rows = {times(row)[0]: row for row in found if row["shop"] == "a"}
    assert sorted(rows) == [0, 10, 20, 30, 40]
    assert [rows[at].get("previous_difference") for at in sorted(rows)] == [None, 10, 10, 10, 10]
    assert [rows[at].get("before_value") for at in sorted(rows)] == [None, None, 0, 10, 20]
    assert [rows[at]["rolling_average"] for at in sorted(rows)] == [0, 5, 15, 25, 35]


def test_a_wrong_clock_is_corrected_before_windows(topics: Topics) -> None:
    """The device's clock is years behind; its events are in windows of now."""
    topics.produce(*(order(second, 1) for second in range(5)))
    found, _ = topics.run(
        lambda frame: frame.transform(correct_clock(device="shop", event="at", sent="sent", received="_timestamp"))
    )
    now = time.time()
    corrected = [datetime.fromisoformat(row["corrected_time"]).timestamp() for row in found]
    assert len(found) == 5
    assert all(abs(now - at) < 300 for at in corrected)


def test_a_far_future_row_closes_nobodys_windows(topics: Topics) -> None:
    def window(frame: DataFrame) -> DataFrame:
        timed = frame.transform(event_time("at", delay="5 seconds", ahead="1 minute"))
        return timed.transform(tumbling("10 seconds", by="shop", n=agg.count()))

    topics.produce(order(1, 1), order(3_000_000_000, 1, "broken"), order(2, 1))
    first, query = topics.run(window)
    assert first == []
    assert observed(query, "ahead") >= 1
    topics.produce(order(3, 1), order(100, 1))
    second, _ = topics.run(window)
    assert [(row["shop"], row["n"]) for row in second] == [("a", 3)]


def test_an_idle_source_lets_windows_end(topics: Topics) -> None:
    """Nothing comes any more, and the last window ends all the same; its marks are nobody's rows."""
    orders = topics.orders(idleTimeout=1, eventTimeColumn="at")
    windows = timed(orders).transform(tumbling("10 seconds", by="shop", n=agg.count()))
    topics.produce(order(1, 1), order(2, 1))
    query = topics.writer(windows).start()
    try:
        found = wait_for(topics.consumed, query)
    finally:
        query.stop()
    assert [(row["shop"], row["n"]) for row in found] == [("a", 2)]


def test_a_mark_that_is_too_far_ahead_is_nobodys_row_either(spark: SparkSession) -> None:
    """As a clock that was put back makes it."""
    moment = datetime.now(UTC)
    rows = [("a", moment, None), (None, moment + timedelta(hours=1), True), ("b", moment + timedelta(hours=1), False)]
    frame = spark.createDataFrame(rows, "shop string, at timestamp, _idle boolean")
    found = frame.transform(event_time("at", delay="1 minute", ahead="1 minute")).collect()
    assert [(row.shop, row.event_time is None) for row in found] == [("a", False), ("b", True)]


def test_early_results_and_the_wall_clock(topics: Topics) -> None:
    """Told before the end, and closed although the watermark stands still."""
    windows = timed(topics.orders()).transform(
        tumbling("10 seconds", by="shop", n=agg.count(), early="1 second", wall_clock="6 days")
    )
    query = topics.writer(windows).start()
    try:
        wait_for(lambda: query.recentProgress, query)
        # Its window ends a while from now, so that it can be told before.
        topics.produce(order((datetime.now(UTC) - START).total_seconds() - 6 * 86400 + 10, 1))
        found = wait_for(lambda: [row for row in topics.consumed() if row["final"]] and topics.consumed(), query)
    finally:
        query.stop()
    assert [row["final"] for row in found] == [False, True]
    assert found[-1]["n"] == 1
    assert [row["revision"] for row in found] == list(range(1, len(found) + 1))


def test_times_are_read_from_text_numbers_and_dates(spark: SparkSession) -> None:
    moment = datetime(2026, 1, 1, 12, 0, 0, 250_000, tzinfo=UTC)
    rows = [
        ("2026-01-01T12:00:00.250Z", 1_767_268_800_250, 1_767_268_800.25),
        ("soon", 2**62, float("nan")),
        (None,) * 3,
    ]
    frame = spark.createDataFrame(rows, "text string, ms bigint, s double")
    for field, unit in (("text", None), ("ms", "ms"), ("s", "s")):
        found = frame.transform(event_time(field, delay="1 minute", unit=unit)).collect()
        assert [row.event_time and row.event_time.astimezone(UTC) for row in found] == [moment, None, None], field
    ahead = frame.transform(event_time("ms", delay="1 minute", unit="ms", ahead="1 minute"))
    assert ahead.where("event_time IS NULL").count() == 2


def test_mistakes_are_told_in_a_sentence(topics: Topics) -> None:
    frame = topics.orders()
    with pytest.raises(BadWindow, match="event_time"):
        frame.transform(tumbling("10 seconds", n=agg.count()))
    with pytest.raises(BadWindow, match="no watermark"):
        frame.transform(hopping("10 seconds", "1 second", time="at", n=agg.count()))
    with pytest.raises(BadField, match="did you mean 'cents'"):
        timed(frame).transform(tumbling("10 seconds", n=agg.sum("cent")))
    with pytest.raises(BadField, match="did you mean 'shop'"):
        timed(frame).transform(tumbling("10 seconds", by="shp", n=agg.count()))
    with pytest.raises(BadTime, match='unit="ms"'):
        frame.transform(event_time("cents", delay="1 minute"))
    with pytest.raises(BadWindow, match="every no longer than"):
        hopping("10 seconds", "11 seconds", n=agg.count())
    with pytest.raises(BadWindow, match="gap of '0 seconds'"):
        sessions("0 seconds", n=agg.count())
    with pytest.raises(BadWindow, match="stragglers=side_output"):
        on_time(frame)
