"""Bounded input ends: what a drained stream emits is what the same query gives of the same rows read at once."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from headrace import Broker
from headrace.client.address import parse_bootstrap
from headrace.client.admin import add_partitions, create_topic
from headrace.client.cluster import Cluster
from headrace.client.fetch import FetchOptions
from headrace.client.offsets import bounds
from headrace.client.reader import read_records
from headrace.client.writer import NewRecord, Writer
from headrace.pipelines import job, topic
from headrace.pipelines.jobs.build import check_over
from headrace.pipelines.jobs.declare import AVAILABLE_NOW, BadJob
from headrace.pipelines.jobs.place import Place
from headrace.pipelines.jobs.status import Lag, status_of
from headrace.pipelines.operators import aggregates as agg
from headrace.pipelines.operators import (
    compare,
    correct,
    event_time,
    hopping,
    join_streams,
    sessions,
    side_output,
    sliding,
    top_n,
    tumbling,
)
from headrace.pipelines.spark import watermarks
from headrace.pipelines.spark.draining import FINAL_WATERMARK_MS, Drained, Stage, drain, stage_of
from headrace.pipelines.spark.watermarks import keep_input_watermarks
from tests.integration.waiting import wait_until

pytestmark = pytest.mark.java

Read = Callable[[str], DataFrame]
Query = Callable[[Read], DataFrame]


def joined(read: Read) -> DataFrame:
    return read("left").transform(join_streams(read("right"), on="k", within="2 seconds", how="left"))


def united(read: Read) -> DataFrame:
    left, right = (read(side).transform(tumbling("2 seconds", by=["k"], n=agg.count())) for side in ("left", "right"))
    held_up = left.transform(join_streams(right, on="k", within="8 seconds", how="left"))
    return right.unionByName(held_up.select(*right.columns))


QUICK: dict[str, Query] = {
    "spark's windows": lambda read: read("left").transform(tumbling("10 seconds", by=["k"], n=agg.count())),
    "keyed windows": lambda read: read("left").transform(hopping("10 seconds", "5 seconds", by=["k"], n=agg.count())),
    "windows behind windows behind windows": lambda read: (
        read("left")
        .transform(tumbling("2 seconds", by=["k"], n=agg.count()))
        .transform(hopping("6 seconds", "2 seconds", by=["k"], n=agg.sum("n")))
        .transform(tumbling("10 seconds", most=agg.max("n"), all=agg.sum("n")))
    ),
    "a join and a window behind it": lambda read: joined(read).groupBy(fn.window("event_time", "10 seconds")).count(),
}
OTHERS: dict[str, Query] = {
    "the wall clock": lambda read: read("left").transform(
        tumbling("10 seconds", by=["k"], wall_clock="1000000 hours", n=agg.count())
    ),
    "a join": joined,
    "a keyed join": lambda read: read("left").transform(
        join_streams(read("right"), on="k", within="2 seconds", how="full", stragglers=correct("1 second"))
    ),
    "sliding": lambda read: read("left").transform(sliding("5 seconds", by=["k"], n=agg.count())),
    "sessions": lambda read: read("left").transform(sessions("4 seconds", by=["k"], n=agg.count())),
    "sessions of a maximum": lambda read: read("left").transform(
        sessions("4 seconds", maximum="7 seconds", by=["k"], n=agg.count())
    ),
    "windows over a union of what is and is not held up": lambda read: (
        united(read).transform(tumbling("10 seconds", by=["k"], n=agg.count(), all=agg.sum("n")))
    ),
    "comparisons behind windows": lambda read: (
        read("left")
        .transform(tumbling("5 seconds", by=["k"], n=agg.count()))
        .transform(compare("n", by=["k"], against={"before": "5 seconds"}))
    ),
    "a window of windows": lambda read: (
        read("left").groupBy(fn.window("event_time", "5 seconds"), "k").count()
        .groupBy(fn.window("window", "10 seconds")).agg(fn.max("count").alias("most"))
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("drained")
    for side, keys in (("left", 3), ("right", 5)):
        (folder / side).mkdir()
        for part in range(2):
            rows = [{"k": n % keys, "v": n, "at": f"2026-01-01T00:00:{part * 20 + n:02d}Z"} for n in range(20)]
            (folder / side / f"{part}.json").write_text("\n".join(map(json.dumps, rows)))
    return folder


@pytest.mark.parametrize(
    "query",
    [
        *(pytest.param(query, id=name) for name, query in QUICK.items()),
        *(pytest.param(query, id=name, marks=pytest.mark.long) for name, query in OTHERS.items()),
    ],
)
def test_a_drained_stream_gives_what_a_batch_gives(
    spark: SparkSession, files: Path, tmp_path: Path, query: Query
) -> None:
    shape = "k int, v int, at timestamp"

    def streamed(side: str) -> DataFrame:
        read = spark.readStream.schema(shape).option("maxFilesPerTrigger", 1).json(str(files / side))
        return read.transform(event_time("at", delay="5 seconds"))

    def at_once(side: str) -> DataFrame:
        return spark.read.schema(shape).json(str(files / side)).transform(event_time("at", delay="5 seconds"))

    found: list[Any] = []
    writer = query(streamed).writeStream.foreachBatch(lambda batch, _: found.extend(batch.collect()))
    drain(writer, checkpoint=tmp_path / "checkpoint")
    whole = sorted(map(str, query(at_once).collect()))
    assert whole, "a batch emits its last windows as well"
    assert sorted(map(str, found)) == whole
    assert stage_of(tmp_path / "checkpoint") is Stage.DRAINED
    with pytest.raises(Drained, match="was drained: all its windows are closed, so begin with a new checkpoint"):
        drain(writer, checkpoint=tmp_path / "checkpoint")


def at_once(spark: SparkSession, folder: Path) -> DataFrame:
    return (
        spark.read.schema("k int, v int, at timestamp").json(str(folder)).transform(event_time("at", delay="0 seconds"))
    )


@pytest.mark.parametrize(
    ("window", "columns"),
    [
        (tumbling("10 seconds", stragglers=correct("1 hour"), n=agg.count()), ["n", "revision", "retracted"]),
        (tumbling("10 seconds", early="1 hour", n=agg.count()), ["n", "revision", "final"]),
        (sessions("10 seconds", by="k", stragglers=side_output(), n=agg.count()), ["n", "_aside"]),
        (tumbling("10 seconds", wall_clock="1 hour", n=agg.count()), ["n"]),
    ],
    ids=["corrected", "early", "beside", "wall clock"],
)
def test_a_batch_has_the_columns_of_a_stream(
    spark: SparkSession, files: Path, window: Callable[[DataFrame], DataFrame], columns: list[str]
) -> None:
    found = at_once(spark, files / "left").transform(window)
    assert found.columns[found.columns.index("window_end") + 1 :] == columns


def test_nothing_in_a_batch_is_late_by_the_wall_clock_or_told_early(spark: SparkSession, files: Path) -> None:
    best = {"best": top_n(1, "-v"), "early": "1 microsecond"}
    windows = tumbling("10 seconds", wall_clock="1 hour", stragglers=correct("1 hour"), **best)  # type: ignore[arg-type]
    found = at_once(spark, files / "left").transform(windows).orderBy("window_start").collect()
    assert [(row.best[0].v, row.revision, row.retracted, row.final) for row in found] == [
        (best, 1, False, True) for best in (9, 19, 9, 19)
    ]


@pytest.mark.parametrize(
    "query",
    [
        pytest.param(joined, id="spark's join"),
        pytest.param(
            lambda read: read("left").unionByName(read("right")).transform(tumbling("2 seconds", n=agg.count())),
            id="a union",
            marks=pytest.mark.long,
        ),
    ],
)
def test_an_input_that_was_read_before_a_restart_holds_nothing_up(
    spark: SparkSession, tmp_path: Path, query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watermarks, "_LOOK_S", 1.5)  # however slow we are, the values are back before a micro-batch

    def write(side: str, seconds: range) -> None:
        (tmp_path / side).mkdir(exist_ok=True)
        at = [f"2026-01-01T00:{second // 60:02d}:{second % 60:02d}Z" for second in seconds]
        lines = "\n".join(json.dumps({"k": 1 if side == "left" else 2, "at": each}) for each in at)
        (tmp_path / side / f"{seconds.start}.json").write_text(lines)

    def read(side: str) -> DataFrame:
        rows = spark.readStream.schema("k int, at timestamp").json(str(tmp_path / side))
        return rows.transform(event_time("at", delay="5 seconds"))

    write("right", range(3000, 3001))
    found: list[Any] = []
    for start in (0, 20, 40):
        write("left", range(start, start + 20))
        frame = keep_input_watermarks(query(read))
        writer = frame.writeStream.foreachBatch(lambda batch, _: found.extend(batch.collect()))
        started = writer.option("checkpointLocation", str(tmp_path / "state")).trigger(availableNow=True).start()
        started.awaitTermination()
        times = [row["event_time"] if "event_time" in row else row["window_start"] for row in found]
        assert len(times) == len(set(times))
        last = max(times) - datetime(2026, 1, 1)  # noqa: DTZ001 - as Spark gives it
        assert start + 8 <= last.total_seconds() <= start + 14, "up to the left input's watermark"


PIPELINE = """
from headrace.pipelines import job, topic
from headrace.pipelines.operators import enrich, envelope_schema, event_time, row_versions

ORDERS = topic("orders", format="json", schema="customer long, n long, at timestamp", maxRecordsPerTrigger=7)
CUSTOMERS = topic("customers", format="json", schema=envelope_schema("id long, city string"))

@job(inputs={"orders": ORDERS, "customers": CUSTOMERS}, outputs=topic("answered"), trigger="100 ms")
def answered(orders, customers):
    versions = customers.transform(row_versions("id"))
    join = enrich(versions, on={"customer": "id"}, how="left", as_of="event_time", delay="1 second", buckets=2)
    found = orders.transform(event_time("at", delay="2 seconds")).transform(join)
    return found.selectExpr("cast(n as string) AS key", "concat(n, ' ', city) AS value")
"""
START_MS = 1_767_225_600_000  # 2026


def _iso(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat()


class Shop:
    """Orders, and customers who do not move any more; the job that answers them, run by the command."""

    def __init__(self, folder: Path, broker: Broker) -> None:
        self.folder, self.servers = folder, broker.bootstrap_servers
        self.cluster = Cluster(parse_bootstrap(self.servers))
        for name in ("orders", "customers", "answered"):
            create_topic(self.cluster, name, partitions=1, configs={"retention.ms": "-1"})  # the orders are old
        (folder / "shop.py").write_text(PIPELINE)
        self.said = folder / "said"
        self.checkpoint = folder / ".headrace" / "pipelines" / "answered" / "v1" / "checkpoint" / "out"

    def write(self, topic: str, values: list[tuple[int, dict[str, Any]]]) -> None:
        writer = Writer(self.cluster, topic)
        for at_ms, value in values:
            key = json.dumps({"id": value["after"]["id"]}) if "after" in value else "order"
            writer.add(NewRecord(key.encode(), json.dumps(value).encode(), at_ms))
        writer.flush()

    def order(self, numbers: range) -> None:
        times = [(n, START_MS + 1000 * n) for n in numbers]
        self.write("orders", [(at, {"customer": n % 3, "n": n, "at": _iso(at)}) for n, at in times])

    def settle(self, customer: int, second: int) -> None:
        at = START_MS + 1000 * second
        row = {"id": customer, "city": f"city {customer}"}
        self.write("customers", [(at, {"before": None, "after": row, "op": "c", "source": {"ts_ms": at}, "ts_ms": at})])

    def started(self, *arguments: str) -> subprocess.Popen[str]:
        environment = os.environ | {"HEADRACE_BOOTSTRAP": self.servers, "HEADRACE_SPARK_MASTER": "local[2]"}
        command = [sys.executable, "-m", "headrace.cli.main", "pipeline", "run", "shop.py", "--json", *arguments]
        with self.said.open("w") as said:
            return subprocess.Popen(
                command, cwd=self.folder, env=environment, stdout=said, stderr=said, text=True, start_new_session=True
            )

    def run(self, *arguments: str, code: int = 0) -> str:
        assert self.started(*arguments).wait(timeout=300) == code, self.said.read_text()
        return self.said.read_text()

    def killed_once(self, happened: Callable[[], bool], *arguments: str) -> None:
        running = self.started(*arguments)
        try:
            wait_until(lambda: happened() or running.poll() is not None, "it did not happen", patience_s=240)
            assert running.poll() is None, self.said.read_text()
        finally:
            os.killpg(running.pid, signal.SIGKILL)
            running.wait()

    def answers(self) -> list[str]:
        held = bounds(self.cluster, self.cluster.partitions("answered"))
        starts, ends = ({where: getattr(bound, end) for where, bound in held.items()} for end in ("start", "end"))
        read = read_records(self.cluster, starts, until=ends, options=FetchOptions(committed=True))
        return [(record.value or b"").decode() for records in read for _, record in records]


@pytest.fixture
def shop(tmp_path: Path, headrace_broker: Broker) -> Iterator[Shop]:
    made = Shop(tmp_path, headrace_broker)
    yield made
    made.cluster.close()


@pytest.mark.long
def test_a_table_read_before_a_kill_holds_nothing_up_and_a_kill_in_the_ending_loses_nothing(shop: Shop) -> None:
    for customer in range(3):
        shop.settle(customer, 0)
    shop.settle(99, 1000)
    shop.order(range(1, 21))
    shop.killed_once(lambda: len(shop.answers()) >= 5)
    shop.order(range(21, 41))
    shop.run("--trigger", "available-now")
    answered = [n for n in range(1, 41) if START_MS + 1000 * n < START_MS + 38_000]
    assert sorted(shop.answers()) == sorted(f"{n} city {n % 3}" for n in answered), "but for the delay of two seconds"

    ending = ("--trigger", "available-now", "--drain")
    shop.killed_once(lambda: stage_of(shop.checkpoint) is Stage.ENDING, *ending)
    shop.run(*ending)
    assert stage_of(shop.checkpoint) is Stage.DRAINED
    assert sorted(shop.answers()) == sorted(f"{n} city {n % 3}" for n in range(1, 41)), "each once"

    shop.order(range(41, 44))
    said = shop.run(*ending, code=1)
    assert "job 'answered' was drained: its windows are closed, and 3 new records would be late." in said
    assert "headrace pipeline reset" in said
    said = shop.run("--drain", code=1)
    assert "is to be drained, and its trigger is '100 ms': choose the trigger 'available-now'" in said


def checkpointed(folder: Path, *batches: dict[str, dict[str, int]], watermark_ms: int, is_done: bool = True) -> None:
    """A checkpoint as Spark leaves it behind batches up to these offsets; the last one may not be done."""
    for log in ("offsets", "commits"):
        (folder / log).mkdir(parents=True)
    for number, offsets in enumerate(batches):
        about = {"batchWatermarkMs": watermark_ms, "batchTimestampMs": number}
        (folder / "offsets" / str(number)).write_text(f"v1\n{json.dumps(about)}\n{json.dumps(offsets)}")
        if is_done or number < len(batches) - 1:
            (folder / "commits" / str(number)).write_text('v1\n{"nextBatchWatermarkMs":0}')


def test_what_was_begun_to_end_ends_before_a_drained_job_is_refused(tmp_path: Path, headrace_broker: Broker) -> None:
    made = job(inputs={"rows": topic("halves")}, outputs={"one": topic("one"), "two": topic("two")}, name="halves")(
        lambda rows: rows
    )
    place, read = Place(tmp_path, 1), {"halves": {"0": 2}}
    checkpointed(place.checkpoint("one"), read, read, watermark_ms=FINAL_WATERMARK_MS)
    checkpointed(place.checkpoint("two"), read, read, watermark_ms=FINAL_WATERMARK_MS, is_done=False)
    servers = headrace_broker.bootstrap_servers
    with Cluster(parse_bootstrap(servers)) as cluster:
        create_topic(cluster, "halves", partitions=1)
        writer = Writer(cluster, "halves")
        for number in range(3):
            writer.add(NewRecord(None, str(number).encode(), START_MS))
        writer.flush()
        check_over(made, place, servers, AVAILABLE_NOW)
        (place.checkpoint("two") / "commits" / "1").write_text("v1\n{}")
        with pytest.raises(BadJob, match="its windows are closed, and 1 new records would be late"):
            check_over(made, place, servers, AVAILABLE_NOW)


def test_records_of_partitions_that_were_added_to_a_drained_jobs_topic_are_new(
    tmp_path: Path, headrace_broker: Broker
) -> None:
    made = job(inputs={"rows": topic("grown")}, outputs=topic("out"), name="grown", checkpoint=str(tmp_path))(
        lambda rows: rows
    )
    place = Place(tmp_path, 1)
    checkpointed(place.checkpoint("out"), {"grown": {"0": 0}}, watermark_ms=FINAL_WATERMARK_MS)
    servers = headrace_broker.bootstrap_servers
    with Cluster(parse_bootstrap(servers)) as cluster:
        create_topic(cluster, "grown", partitions=1)
        check_over(made, place, servers, AVAILABLE_NOW)
        add_partitions(cluster, "grown", 2)
        cluster.refresh(["grown"])
        writer = Writer(cluster, "grown")
        writer.add(NewRecord(None, b"late", START_MS, partition=1))
        writer.flush()
        with pytest.raises(BadJob, match="1 new records would be late"):
            check_over(made, place, servers, AVAILABLE_NOW)
        told = status_of(made, tmp_path, servers, START_MS + 5000)
        (output,) = told.outputs
        assert (output.lag, output.is_drained) == (Lag(1, 5000), True)
        assert told.as_json()["outputs"][0]["drained"] is True
