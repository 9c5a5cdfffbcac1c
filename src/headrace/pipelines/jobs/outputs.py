"""What a job writes: its options as the sink takes them, and the query that writes it."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.pipelines.jobs.declare import AVAILABLE_NOW, REAL_TIME, Output, TopicOutput
from headrace.pipelines.jobs.inputs import connector_options
from headrace.pipelines.sink.topic.options import SinkOptions, read_options
from headrace.pipelines.spark.draining import ONCE
from headrace.pipelines.spark.watermarks import keep_input_watermarks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

_UNITS = {"ms": "milliseconds", "s": "seconds", "min": "minutes", "h": "hours"}


def sink_options(output: TopicOutput, bootstrap: str) -> dict[str, str]:
    """The options of `format("headrace")` for a topic."""
    return {"bootstrap": output.bootstrap or bootstrap, "topic": output.name, **output.options}


def check_output(output: TopicOutput, bootstrap: str) -> SinkOptions:
    """The options, checked; raises `BadOption`."""
    return read_options(sink_options(output, bootstrap))


def start_query(
    frame: "DataFrame", name: str, output: Output, *, bootstrap: str, checkpoint: Path, trigger: str, mode: str
) -> "StreamingQuery":
    """Begin to write a DataFrame; `mode` is Spark's output mode where the output is not a topic."""
    keep_input_watermarks(frame)
    writer = frame.writeStream.queryName(name).option("checkpointLocation", str(checkpoint.absolute()))
    writer = writer.trigger(**_trigger(trigger))
    if not isinstance(output, TopicOutput):
        return writer.outputMode(mode).foreachBatch(output).start()
    if trigger == REAL_TIME:
        options = check_output(output, bootstrap)
        passed = connector_options(options.bootstrap, options.connection)
        codec = {"kafka.compression.type": options.codec.name.lower()}
        return writer.format("kafka").options(topic=output.name, **passed, **codec).outputMode("update").start()
    return writer.format("headrace").options(**sink_options(output, bootstrap)).outputMode(output.mode).start()


def _trigger(text: str) -> dict[str, Any]:
    """A trigger in the words that Spark knows."""
    if text == AVAILABLE_NOW:
        return {"availableNow": True}
    if text == ONCE:
        return {"once": True}
    if text == REAL_TIME:
        return {"realTime": "5 minutes"}
    number = re.match(r"\d+", text)
    assert number is not None
    unit = text[number.end() :].strip()
    return {"processingTime": f"{number[0]} {_UNITS.get(unit, unit)}"}
