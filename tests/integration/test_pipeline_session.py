"""A real session: what is in force, what a killed one leaves behind, and Spark's own Kafka connector on our broker."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from confluent_kafka import Producer

from headrace.pipelines import session
from headrace.pipelines.errors import PipelineError
from headrace.pipelines.spark.session import settle_sources

pytestmark = pytest.mark.java

COUNTING = Path(__file__).with_name("pipeline_counting.py")
KILLS = int(os.environ.get("HEADRACE_KILLS", "2"))


def test_the_settings_are_in_force(spark, spark_state):
    conf = spark.conf
    assert conf.get("spark.sql.session.timeZone") == "UTC"
    assert conf.get("spark.sql.shuffle.partitions") == "2"
    assert conf.get("spark.sql.streaming.stateStore.providerClass").endswith("RocksDBStateStoreProvider")
    assert conf.get("spark.sql.streaming.checkpointFileManagerClass").endswith("FileSystemBasedCheckpointFileManager")
    assert conf.get("spark.sql.streaming.checkpointLocation") == f"{Path(spark_state).as_uri()}/checkpoints"
    assert conf.get("spark.driver.host") == "127.0.0.1"
    assert spark.sparkContext.uiWebUrl is None


def test_the_same_session_again_is_the_same_and_another_is_refused(spark, spark_state):
    again = session(
        "test", master="local[2]", state_dir=spark_state, jvm_kafka=True, conf={"spark.driver.memory": "1g"}
    )
    assert again.sparkContext is spark.sparkContext
    with pytest.raises(PipelineError, match="a Spark session 'test' with other settings runs in this process"):
        session("other", master="local[2]")


def test_workers_come_from_our_daemon_with_everything_loaded(spark):
    from pyspark.sql.functions import udf

    def look(_):
        import sys
        from pathlib import Path

        server = Path(f"/proc/{os.getppid()}/cmdline").read_text().split("\0")
        is_loaded = "pandas" in sys.modules and "pyarrow" in sys.modules and "numba" in sys.modules
        return f"{server[2]} {sys.modules['__main__'].__spec__.name} {is_loaded}"

    (row,) = spark.range(1).select(udf(look, "string")("id").alias("seen")).collect()
    assert row["seen"] == "headrace.pipelines.spark.forkserver headrace.pipelines.spark.daemon True"


def test_headrace_is_a_format_without_registering(spark, headrace_broker):
    produce(headrace_broker, "seen", 3)
    frame = spark.read.format("headrace").option("kafka.bootstrap.servers", headrace_broker.bootstrap_servers)
    assert frame.option("subscribe", "seen").load().count() == 3


def test_queries_that_start_together_find_their_environment_complete(spark, headrace_broker, tmp_path):
    """Spark shares one unguarded map among all queries of a format: two that put an entry at once break it for good."""
    produce(headrace_broker, "together", 3)
    settle_sources(spark)
    shared = spark._jsparkSession.sessionState().dataSourceManager().lookupDataSource("headrace")
    environment = shared.dataSourceCls().envVars()
    before = set(environment.keySet())
    frame = spark.readStream.format("headrace").option("kafka.bootstrap.servers", headrace_broker.bootstrap_servers)
    frame = frame.options(subscribe="together", startingOffsets="earliest").load()
    query = frame.writeStream.format("memory").queryName("together").option("checkpointLocation", str(tmp_path / "c"))
    query.trigger(availableNow=True).start().awaitTermination()
    assert spark.table("together").count() == 3
    assert set(environment.keySet()) == before  # Spark 4.2: a query sets values and adds no entries


def test_state_is_kept_and_no_checksum_files_are_written(spark, tmp_path):
    numbers = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
    counted = numbers.selectExpr("value % 3 AS key").groupBy("key").count()
    query = counted.writeStream.outputMode("complete").format("memory").queryName("counted")
    running = query.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        while (running.lastProgress or {"batchId": 0})["batchId"] < 3:
            assert running.exception() is None
            time.sleep(0.05)
        operator = running.lastProgress["stateOperators"][0]
    finally:
        running.stop()
    assert operator["numRowsTotal"] == 3
    assert "rocksdbCommitChangeLogWriterCommitLatencyMs" in operator["customMetrics"] or any(
        name.startswith("rocksdb") for name in operator["customMetrics"]
    )
    assert not list((tmp_path / "checkpoint" / "offsets").glob(".*.crc"))
    assert list((tmp_path / "checkpoint" / "state").rglob("*.changelog"))


def produce(broker, topic, count):
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    for number in range(count):
        producer.produce(topic, key=str(number % 7), value=str(number))
    assert producer.flush(30) == 0


def test_sparks_own_connector_reads_and_writes_our_broker(spark, headrace_broker, tmp_path):
    servers = headrace_broker.bootstrap_servers
    produce(headrace_broker, "numbers", 100)
    source = {"kafka.bootstrap.servers": servers, "subscribe": "numbers", "startingOffsets": "earliest"}
    assert spark.read.format("kafka").options(**source).load().count() == 100
    streamed = spark.readStream.format("kafka").options(**source).load().select("key", "value")
    sink = streamed.writeStream.format("kafka").option("kafka.bootstrap.servers", servers).option("topic", "copies")
    query = sink.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    assert query.awaitTermination(60)
    copies = spark.read.format("kafka").options(**source | {"subscribe": "copies"}).load()
    values = sorted(int(row["value"]) for row in copies.select("value").collect())
    assert values == list(range(100))


def batches_of(folder):
    return sorted(int(file.name) for file in (folder / "batches").glob("[0-9]*"))


def counting(folder, *arguments):
    return subprocess.Popen([sys.executable, str(COUNTING), str(folder), *arguments], start_new_session=True)


def jvms_of(group):
    """The processes of the group that the program leads, as the kill must meet Python and Java in one instant."""
    return [int(path.name) for path in Path("/proc").glob("[0-9]*") if _group(path) == group]


def _group(path):
    try:
        return int((path / "stat").read_text().rpartition(")")[2].split()[2])
    except OSError:
        return None


@pytest.mark.long
def test_a_killed_driver_goes_on_where_it_was(tmp_path):
    """kill -9 at random instants amid small batches: the checkpoint is readable, and no count is lost or doubled."""
    seed = int(os.environ.get("HEADRACE_SEED", str(random.randrange(1 << 30))))
    print(f"HEADRACE_SEED={seed}")
    chance = random.Random(seed)
    for _ in range(KILLS):
        before = batches_of(tmp_path)
        program = counting(tmp_path)
        deadline = time.monotonic() + 240
        while len(batches_of(tmp_path)) < len(before) + 5:
            assert program.poll() is None, "it did not go on after a kill"
            assert time.monotonic() < deadline
            time.sleep(0.02)
        time.sleep(chance.random() * 0.5)
        os.killpg(program.pid, signal.SIGKILL)
        program.wait()
        while jvms_of(program.pid):
            time.sleep(0.01)
    last = batches_of(tmp_path)[-1]
    assert counting(tmp_path, str(last + 3)).wait(timeout=240) == 0
    found = batches_of(tmp_path)
    assert found == list(range(found[-1] + 1))
    for batch in found:
        assert (tmp_path / "batches" / str(batch)).read_text() == str(10 * (batch + 1))
