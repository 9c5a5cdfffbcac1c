"""Each reach into Spark's private parts, on the Spark that is installed: a failure names what Spark has changed."""

import functools
import json
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyspark
import pytest
from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from headrace import Broker
from headrace.client.address import parse_bootstrap
from headrace.client.admin import create_topic
from headrace.client.cluster import Cluster
from headrace.pipelines.operators import aggregates as agg
from headrace.pipelines.operators import event_time, hopping
from headrace.pipelines.spark import internals
from headrace.pipelines.spark.checkpoint import last_batch, list_batches, read_planned
from headrace.pipelines.spark.internals import SEEN_ON, Execution, execution_of, running_execution
from headrace.pipelines.spark.plan import has_watermark, stateful_step, united_metadata
from headrace.pipelines.spark.stateful_steps import steps_of
from headrace.pipelines.spark.watermarks import inputs_in
from tests.integration.waiting import wait_until

pytestmark = pytest.mark.java

Test = Callable[..., None]


def needs(what: str) -> Callable[[Test], Test]:
    """A test of something that Spark has to have; a failure says what it was and where it was seen."""

    def named(test: Test) -> Test:
        @functools.wraps(test)
        def run(*args: Any, **kwargs: Any) -> None:
            try:
                test(*args, **kwargs)
            except Exception as error:
                raise AssertionError(
                    f"Spark {pyspark.__version__} is not as it was seen on {SEEN_ON}: {what} (pipelines/spark)"
                ) from error

        return run

    return named


class Streams:
    """Two streams of files, each with a watermark."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.folder, self.written = spark, folder, 0
        for side in ("left", "right"):
            (folder / side).mkdir()

    def write(self, side: str, *seconds: int) -> None:
        rows = [json.dumps({"k": n, "at": f"2026-01-01T00:00:{n:02d}Z"}) for n in seconds]
        (self.folder / side / f"{self.written}.json").write_text("\n".join(rows))
        self.written += 1

    def read(self, side: str) -> DataFrame:
        read = self.spark.readStream.schema("k long, at timestamp").json(str(self.folder / side))
        return read.withWatermark("at", "2 seconds")

    def both(self) -> DataFrame:
        return self.read("left").unionByName(self.read("right"))

    def start(self, frame: DataFrame, **trigger: Any) -> Any:
        writer = frame.writeStream.foreachBatch(lambda batch, _: batch.collect()).trigger(**trigger)
        return writer.option("checkpointLocation", str(self.folder / "a place")).start()


@pytest.fixture
def streams(spark: SparkSession, tmp_path: Path) -> Iterator[Streams]:
    yield Streams(spark, tmp_path)
    for query in spark.streams.active:
        query.stop()


@needs("SparkContext._active_spark_context, SparkContext._gateway")
def test_the_context_and_its_gateway(spark: SparkSession) -> None:
    assert internals.active_context() is spark.sparkContext
    assert internals.find_gateway().jvm.java.lang.Long.parseLong("7") == 7


@needs("dataSourceManager().lookupDataSource(name).dataSourceCls().envVars(), shared by all queries")
def test_the_environment_of_sources(spark: SparkSession) -> None:
    internals.fill_source_environment(spark)
    manager = spark._jsparkSession.sessionState().dataSourceManager()
    kept = dict(manager.lookupDataSource("headrace").dataSourceCls().envVars())
    assert set(internals._ENVIRONMENT_OF_SOURCES) <= kept.keys()


@needs("BasePythonRunner's environment: sc.environment, spark.executorEnv.…, SPARK_SIMPLIFIED_TRACEBACK")
def test_one_daemon_serves_sources_functions_and_state(
    spark: SparkSession, tmp_path: Path, headrace_broker: Broker
) -> None:
    spark.range(2).mapInArrow(lambda batches: batches, "id long").collect()
    before = daemons_of(spark)
    with Cluster(parse_bootstrap(headrace_broker.bootstrap_servers)) as cluster:
        create_topic(cluster, "numbers", partitions=1)
    options = {"bootstrap": headrace_broker.bootstrap_servers, "startingOffsets": "earliest"}
    numbers = spark.readStream.format("headrace").options(**options).load("numbers")
    counts = numbers.transform(event_time("timestamp", delay="1 second")).transform(
        hopping("2 seconds", "1 second", n=agg.count())
    )
    producer = Producer({"bootstrap.servers": headrace_broker.bootstrap_servers})
    producer.produce("numbers", "1")
    assert producer.flush(30) == 0
    writer = counts.writeStream.foreachBatch(lambda batch, _: batch.collect()).trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    query.awaitTermination()
    assert sum(progress.numInputRows for progress in query.recentProgress) == 1
    assert daemons_of(spark) == before


def daemons_of(spark: SparkSession) -> set[int]:
    """The processes from which the workers of a session's tasks are forked."""
    jvm = internals.find_gateway().proc.pid
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            parent = int((process / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == jvm and b"headrace.pipelines.spark.daemon" in (process / "cmdline").read_bytes():
                found.add(int(process.name))
    return found


@needs("LocalFileSystem over a RawLocalFileSystem in FilterFileSystem.fs, and Janino")
def test_files_get_their_permissions_without_a_process(spark: SparkSession, tmp_path: Path) -> None:
    internals.set_permissions_in_process(spark)
    jvm: Any = spark._jvm
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()  # type: ignore[attr-defined]
    before = hadoop.get("fs.permissions.umask-mode")
    by_mode = {}
    try:
        for mask in ("022", "077"):
            hadoop.set("fs.permissions.umask-mode", mask)
            path = jvm.org.apache.hadoop.fs.Path(f"{tmp_path.as_uri()}/of {mask}")
            files = path.getFileSystem(hadoop)  # as Spark's writer of checkpoints has it
            files.create(path, True).close()
            by_mode[mask] = (tmp_path / f"of {mask}").stat().st_mode & 0o777
    finally:
        hadoop.set("fs.permissions.umask-mode", before)
    assert by_mode == {"022": 0o644, "077": 0o600}
    assert files.getRaw().getClass().getName() == internals.PERMITTING_CLASS


@needs("what MLlib registers with every session, and a schema's text read without one")
def test_what_every_session_needs_is_initialized_while_its_context_starts(spark: SparkSession) -> None:
    jvm: Any = spark._jvm
    kind = jvm.java.lang.Class.forName("org.apache.spark.sql.SparkSessionExtensionsProvider")
    providers = {internals.class_of(found) for found in internals.each(jvm.java.util.ServiceLoader.load(kind))}
    assert internals.REGISTERED_ALWAYS.rpartition(".")[2] in providers
    with internals.initializing_meanwhile(internals.find_gateway()):
        pass
    assert jvm.java.lang.Class.forName(f"{internals.REGISTERED_ALWAYS}$")
    assert jvm.org.apache.spark.sql.types.StructType.fromDDL("word string").size() == 1


@needs("queryExecution().analyzed(): its text, its JSON, its nodes and their columns' metadata")
def test_plans(streams: Streams) -> None:
    frame = streams.both().withColumn("at", fn.col("at").alias("at", metadata={"noted": 1}))
    plan = internals.analyzed(frame)
    assert len(inputs_in(str(plan.toString()))) == 2, "EventTimeWatermark ID, column, delay"
    assert has_watermark(frame)
    assert stateful_step(frame) is None
    counted = frame.groupBy("k").count()
    assert stateful_step(counted) == "Aggregate"
    (step,) = steps_of(counted) or ()
    assert step.shown == "groupBy(k) with count(1)"
    assert internals.class_of(plan) == "Project"
    assert len(list(internals.each(plan.output()))) == 2
    assert [len(parts) for parts in united_metadata(streams.both()).values()] == [2, 2]


@needs("StreamingRelationV2 as the whole plan of a stream that was only loaded: sourceName, extraOptions")
def test_a_bare_source_is_known_by_its_options(spark: SparkSession, streams: Streams) -> None:
    given = {"bootstrap": "127.0.0.1:1", "subscribe": "Topic", "format": "json", "fetchBytes": "4096"}
    frame = spark.readStream.format("headrace").options(**given).schema("a long").load()
    assert internals.bare_source(frame) == given
    for other in (frame.select("a"), frame.where("a > 1"), frame.union(frame), streams.read("left")):
        assert internals.bare_source(other) is None


@needs("sql.classic.dataframe.DataFrame(jdf, session), of which a class of ours can be made")
def test_a_note_goes_with_its_dataframe_and_no_further(streams: Streams) -> None:
    noted = internals.add_note(streams.read("left"), "a note")
    assert internals.read_note(noted) == "a note"
    assert internals.read_note(noted.transform(lambda frame: frame)) == "a note"
    for frame in (streams.read("left"), noted.select("*"), noted.withColumn("more", fn.lit(1)), noted.where("k > 1")):
        assert internals.read_note(frame) is None
    assert noted.isStreaming
    assert noted.schema == streams.read("left").schema
    query = streams.start(noted, availableNow=True)
    query.awaitTermination()
    assert query.exception() is None


@needs("StreamExecution: trigger, analyzedPlan, resolvedCheckpointRoot, isActive; files offsets/N and commits/N, v1")
def test_a_run_and_its_files(streams: Streams) -> None:
    streams.write("left", 10)
    streams.write("right", 20)
    query = streams.start(streams.both().groupBy(fn.window("at", "1 second")).count(), availableNow=True)
    run = execution_of(streams.spark, query)
    assert run.trigger == "AvailableNowTrigger"
    assert len(inputs_in(run.plan)) == 2
    assert run.checkpoint == streams.folder / "a place"
    query.awaitTermination()
    assert not run.is_active
    assert list_batches(run.checkpoint, "commits") == list_batches(run.checkpoint, "offsets")
    planned = read_planned(run.checkpoint, last_batch(run.checkpoint, "offsets"))
    assert planned.watermark_ms == 1_767_225_608_000
    assert planned.about["batchTimestampMs"] > 0
    assert len(planned.sources) == 2
    assert not list(run.checkpoint.rglob(".*.crc")), "FileSystem.getLocal(…).setWriteChecksum(False)"


@needs("local properties of a micro-batch's thread, and sharedState().activeStreamingQueries()")
def test_the_run_behind_a_micro_batch(streams: Streams) -> None:
    seen: list[Any] = []

    def look(batch: DataFrame, number: int) -> None:
        run, context = running_execution(batch), batch.sparkSession.sparkContext
        names = (internals.QUERY_ID, internals.BATCH_ID, internals.RUN_ID)
        seen.append((run is not None and run.is_active, run and run.checkpoint, *map(context.getLocalProperty, names)))
        assert number == 0

    streams.write("left", 10)
    writer = streams.read("left").writeStream.foreachBatch(look).trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(streams.folder / "other")).start()
    query.awaitTermination()
    assert seen == [(True, streams.folder / "other", str(query.id), "0", str(query.runId))]
    assert running_execution(streams.spark.range(1)) is None


@needs("StreamingRelationV2 with extraOptions().asCaseSensitiveMap()")
def test_the_options_of_sources(streams: Streams) -> None:
    rate = streams.spark.readStream.format("rate").option("rowsPerSecond", "3").load()
    query = streams.start(rate, processingTime="1 hour")
    assert list(execution_of(streams.spark, query).source_options()) == [{"rowspersecond": "3"}]


@needs("watermarkTracker(): watermarkMap, operatorToWatermarkMap by the id of EventTimeWatermark")
def test_the_watermarks_of_inputs(streams: Streams) -> None:
    streams.write("left", 10)
    query = streams.start(streams.both(), processingTime="0 seconds")
    run = execution_of(streams.spark, query)
    query.processAllAvailable()
    assert run.has_watermarks
    nodes = list(inputs_in(run.plan))
    assert run.watermarks(nodes) == (1_767_225_608_000, None)
    with run.hold():
        run.set_watermarks(nodes, (17, 1_767_225_620_000))
        assert run.watermarks(nodes) == (1_767_225_608_000, 1_767_225_620_000), "only where there was none"
    streams.write("left", 30)
    query.processAllAvailable()
    streams.write("left", 31)
    query.processAllAvailable()
    batch = last_batch(streams.folder / "a place", "offsets")
    assert read_planned(streams.folder / "a place", batch).watermark_ms == 1_767_225_620_000


@needs("awaitProgressLock(), taken to plan a micro-batch and to commit one")
def test_a_run_that_is_held_plans_no_micro_batch(streams: Streams) -> None:
    streams.write("left", 10)
    query = streams.start(streams.both(), processingTime="0 seconds")
    query.processAllAvailable()
    run, checkpoint = execution_of(streams.spark, query), streams.folder / "a place"
    with run.hold():
        before = list_batches(checkpoint, "offsets")
        streams.write("left", 20)
        wait_until(lambda: run._execution.awaitProgressLock().hasQueuedThreads(), "the query to wait for the lock")
        assert list_batches(checkpoint, "offsets") == before
    query.processAllAvailable()
    assert last_batch(checkpoint, "commits") > max(before)


@needs("state() and TERMINATED, by which a run ends with its micro-batch")
def test_a_run_is_ended_with_its_micro_batch(streams: Streams) -> None:
    streams.write("left", 10)

    def end(batch: DataFrame, _: int) -> None:
        batch.collect()
        run: Execution | None = running_execution(batch)
        assert run is not None
        run.end()

    writer = streams.read("left").writeStream.foreachBatch(end).trigger(processingTime="0 seconds")
    query = writer.option("checkpointLocation", str(streams.folder / "ended")).start()
    assert query.awaitTermination(60)
    assert query.exception() is None
    assert list_batches(streams.folder / "ended", "commits") == [0], "the micro-batch it was at is committed"


@needs("UserDefinedFunction.returnType and _returnType, util.print_exec, PySparkLogger")
def test_pysparks_own_python() -> None:
    from pyspark import util
    from pyspark.sql.udf import UserDefinedFunction

    assert callable(util.print_exec)
    internals.hush_python()
    internals.allow_types_by_name()
    assert vars(UserDefinedFunction)["returnType"].fget.__module__ == internals.__name__
    assert UserDefinedFunction(len, "long")._returnType == "long"
    assert re.fullmatch(r"\d+\.\d+\.\d+", SEEN_ON)
