"""What Spark says on the terminal: warnings that matter and errors, on standard error, one line each."""

import hashlib
import logging
import os
import warnings
from pathlib import Path
from typing import Final

from headrace.pipelines.folders import cache_folder

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

# Loggers that call it an error when a query is stopped amid a batch; when a batch fails, the query itself tells.
_SILENT: Final = (
    "org.apache.spark.util.Utils",
    "org.apache.spark.sql.execution.datasources.v2.WriteToDataSourceV2Exec",
    "org.apache.spark.sql.execution.datasources.v2.DataWritingSparkTask",
)


# Loggers of PySpark's own, which write a query's mistake with a stack of both languages before it is raised.
_TWICE_SAID: Final = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")


def hush_python() -> None:
    """Let PySpark say a mistake once, in the error that it raises, and nothing about type hints that are not for it."""
    from pyspark import util
    from pyspark.logger import PySparkLogger

    util.print_exec = lambda stream: None  # noqa: ARG005 - what could not be pickled, before it raises the same
    warnings.filterwarnings("ignore", "Cannot infer the eval type from type hints", UserWarning)
    for name in _TWICE_SAID:
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)


def log_settings() -> str:
    """The settings as Log4j reads them."""
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
        file.parent.mkdir(parents=True, exist_ok=True)
        partial = file.with_suffix(f".{os.getpid()}")
        partial.write_text(text)
        partial.replace(file)
    return file
