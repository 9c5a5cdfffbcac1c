"""What a Spark session is given, as a pure function of where it runs, and its logs; each line can be overridden.

On a local disk checkpoints are written without starting a process for every file. Hadoop's local file system sets a
file's permissions by running `chmod`; with Spark's default writer that takes longer than a small batch. The one chosen
here goes by the same steps (a temporary file, then a rename) with fewer processes, and the checksum files are left out.
Why that is safe against a kill, and what a power cut may take, stands in docs/decisions/0008.
"""

import hashlib
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from headrace.pipelines.errors import PipelineError
from headrace.pipelines.spark.java import cache_folder
from headrace.stores.folders import replace_text

_LOCAL: Final = re.compile(r"local(?:\[(?P<threads>\*|[1-9]\d*)(?:,\s*\d+)?\])?")
_CLUSTER: Final = re.compile(r"(?:spark|k8s|yarn|local-cluster).*")
JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
CONF_VARIABLE: Final = "HEADRACE_SPARK_CONF"
DAEMON: Final = "spark.python.daemon.module"
DAEMON_MODULE: Final = "headrace.pipelines.spark.daemon"
_STREAMING: Final = "org.apache.spark.sql.execution.streaming"
FILE_WRITER: Final = "spark.sql.streaming.checkpointFileManagerClass"

# How often a method is called before the JVM's second compiler takes it: ten times as often as by default. While a
# session starts and plans its first batches that compiler takes a core for itself, for code that hardly runs again.
# What runs for long comes that far within seconds, and a long loop as soon as ever.
_LATER_SECOND_COMPILER: Final = (
    "-XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=6000 -XX:Tier4CompileThreshold=150000"
)

LOCAL_CHECKPOINTS: Final[Mapping[str, str]] = MappingProxyType(
    {FILE_WRITER: f"{_STREAMING}.checkpointing.FileSystemBasedCheckpointFileManager"}
)

STATE_STORE: Final[Mapping[str, str]] = MappingProxyType(
    {
        "spark.sql.streaming.stateStore.providerClass": f"{_STREAMING}.state.RocksDBStateStoreProvider",
        # A batch uploads what it changed, not a snapshot of the whole store.
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    }
)
# Loggers that warn about what is as it should be on one machine.
_HUSHED: Final = (
    "org.apache.hadoop.util.NativeCodeLoader",
    "org.apache.hadoop.metrics2",
    "org.apache.spark.SparkConf",
    "org.apache.spark.scheduler.DAGScheduler",
    "org.apache.spark.scheduler.TaskSetManager",
    "org.apache.spark.sql.execution.datasources.DataSourceManager",
    "org.apache.spark.sql.execution.python.streaming.TransformWithStateInPySparkStateServer",
    "org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution",
    "org.apache.spark.sql.execution.streaming.runtime.ResolveWriteToStream",
    "org.apache.spark.sql.execution.streaming.runtime.ProcessingTimeExecutor",
    "org.apache.spark.sql.execution.streaming.state.StateStore",  # loading took a while; maintenance amid the end
    "org.apache.spark.sql.execution.streaming.state.StateStoreProvider",
    "org.apache.spark.sql.catalyst.util.SparkStringUtils",
    "org.apache.spark.sql.kafka010.KafkaDataConsumer",
    "org.apache.kafka.clients.admin.AdminClientConfig",
    "org.apache.kafka.clients.consumer.ConsumerConfig",
    "org.apache.kafka.clients.producer.ProducerConfig",
)

# Loggers that call it an error when a query is stopped amid a batch; when a batch fails, the query itself says so.
_SILENT: Final = (
    "org.apache.spark.util.Utils",
    "org.apache.spark.sql.execution.datasources.v2.WriteToDataSourceV2Exec",
    "org.apache.spark.sql.execution.datasources.v2.DataWritingSparkTask",
)


def is_local(master: str) -> bool:
    """Whether the session runs in one JVM on this machine; `PipelineError` if `master` is none that Spark knows."""
    if _LOCAL.fullmatch(master):
        return True
    if _CLUSTER.fullmatch(master):
        return False
    raise PipelineError(
        f"{master!r} is not a Spark master: write local[*], local[2], spark://host:7077 or k8s://https://…"
    )


def threads_of(master: str, cores: int) -> int:
    match = _LOCAL.fullmatch(master)
    threads = match["threads"] if match else None
    return cores if threads == "*" else int(threads or 1)


def settings_for(master: str, *, cores: int, python: str, log_file: Path, state_dir: Path | None) -> dict[str, str]:
    everywhere = {
        **STATE_STORE,
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        # With any other limit Spark adds up the size of all columns after each row that it hands to Python.
        "spark.sql.execution.arrow.maxBytesPerBatch": str(2**31 - 1),
        "spark.sql.execution.pyspark.udf.faulthandler.enabled": "false",
        "spark.python.worker.reuse": "true",
        "spark.ui.showConsoleProgress": "false",
        # By default Spark writes times to Parquet as INT96, which other readers take for times without a zone.
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        # Two copies of a task would take the exactly-once sink's transaction from each other, and the batch runs again.
        "spark.speculation": "false",
    }
    if state_dir is not None:
        everywhere["spark.sql.streaming.checkpointLocation"] = (state_dir / "checkpoints").as_uri()
    if not is_local(master):
        return everywhere
    local = {
        **LOCAL_CHECKPOINTS,
        # One machine: nothing of it is for others to reach.
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        # Every batch's plan is written out for its pages, which there are only for who asks for them.
        "spark.sql.ui.explainMode": "simple",
        # A task for each core; 200, the default for clusters, costs a batch some seconds here.
        "spark.sql.shuffle.partitions": str(threads_of(master, cores)),
        # A micro-batch is small: planning it again while it runs costs more than it can save. Batch queries keep it.
        "spark.sql.adaptive.streaming.stateless.enabled": "false",
        "spark.sql.catalogImplementation": "in-memory",
        # How long an idle query waits before it looks for new data again; 10 ms by default.
        "spark.sql.streaming.pollingDelay": "2ms",
        # Over TCP each task waits some 40 ms for an acknowledgement that the other side delays.
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.pyspark.python": python,
        "spark.pyspark.driver.python": python,
        DAEMON: DAEMON_MODULE,
        # Set for functions and not for state; where they differ, each has a daemon of its own.
        "spark.executorEnv.SPARK_SIMPLIFIED_TRACEBACK": "1",
        JAVA_OPTIONS: f"-Dlog4j2.configurationFile={log_file.as_uri()} {_LATER_SECOND_COMPILER}",
    }
    if state_dir is not None:
        local["spark.local.dir"] = str(state_dir / "scratch")
        local["spark.sql.warehouse.dir"] = (state_dir / "warehouse").as_uri()
    return everywhere | local


def merge_settings(defaults: Mapping[str, str], conf: Mapping[str, object]) -> dict[str, str]:
    """The defaults with the user's settings over them; of Java options both stand, the user's last, where they win."""
    chosen = {name: _text(value) for name, value in conf.items()}
    if wrong := sorted(name for name in chosen if not name.startswith("spark.")):
        raise PipelineError(f"{wrong[0]!r} in conf is not a Spark setting: their names begin with spark.")
    if JAVA_OPTIONS in defaults and JAVA_OPTIONS in chosen:
        chosen[JAVA_OPTIONS] = f"{defaults[JAVA_OPTIONS]} {chosen[JAVA_OPTIONS]}"
    return {**defaults, **chosen}


def conf_around(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Settings of Spark's from the environment, as a JSON object, where others cannot see them; errors show none."""
    text = environment.get(CONF_VARIABLE, "").strip()
    if not text:
        return {}
    try:
        found = json.loads(text)
        return {str(name): _text(value) for name, value in found.items()}
    except (ValueError, AttributeError):
        raise PipelineError(
            f'{CONF_VARIABLE} is not a JSON object: write for example {{"spark.driver.memory": "2g"}}'
        ) from None


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


# --- what Spark says on the terminal: warnings that matter and errors, on standard error, one line each


def log_settings() -> str:
    lines = [
        "rootLogger.level = warn",
        "rootLogger.appenderRef.terminal.ref = terminal",
        "appender.terminal.type = Console",
        "appender.terminal.name = terminal",
        "appender.terminal.target = SYSTEM_ERR",
        "appender.terminal.layout.type = PatternLayout",
        "appender.terminal.layout.pattern = %d{yyyy-MM-dd'T'HH:mm:ss'Z'}{UTC} %level{lowerCase=true} %c{1}: %m%n%ex",
    ]
    for level, names in (("error", _HUSHED), ("off", _SILENT)):
        for index, name in enumerate(names):
            lines += [f"logger.{level}{index}.name = {name}", f"logger.{level}{index}.level = {level}"]
    return "\n".join(lines) + "\n"


def log_settings_file(cache: Path | None = None) -> Path:
    """A file with the settings, named by its content, so that another version of us has another."""
    text = log_settings()
    file = (cache or cache_folder()) / f"log4j2-{hashlib.sha256(text.encode()).hexdigest()[:12]}.properties"
    if not file.exists():
        replace_text(file, text)
    return file
