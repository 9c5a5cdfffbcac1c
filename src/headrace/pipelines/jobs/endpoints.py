"""What a job reads and writes, as source and sink take it: the options, an input's DataFrame, an output's query."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.dead_letters import LetterBox, topic_for
from headrace.pipelines.errors import BadOption
from headrace.pipelines.jobs.declare import AVAILABLE_NOW, REAL_TIME, Job, Output, TopicInput, TopicOutput
from headrace.pipelines.jobs.place import Place
from headrace.pipelines.sink.topic.options import SinkOptions
from headrace.pipelines.sink.topic.options import read_options as read_sink_options
from headrace.pipelines.source.options import SourceOptions, read_options
from headrace.pipelines.spark.draining import ONCE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_WAYS = ("subscribe", "subscribepattern", "assign")
_UNITS = {"ms": "milliseconds", "s": "seconds", "min": "minutes", "h": "hours"}


def source_options(given: TopicInput, bootstrap: str, starts: str | None = None) -> dict[str, str]:
    """The options of `format("headrace")`; `starts` are offsets that go before what the job says about its begin."""
    options = {"bootstrap": given.bootstrap or bootstrap, **given.options}
    named = {name.lower() for name in options}
    if named.isdisjoint(_WAYS):
        options["subscribe"] = given.name
    if starts:
        options = {name: value for name, value in options.items() if not name.lower().startswith("starting")}
        options["startingOffsets"] = starts
    elif not any(name.startswith("starting") for name in named):
        options["startingOffsets"] = "earliest"  # a pipeline wants all of its input; a reader of live data says latest
    return options


def check_input(given: TopicInput, bootstrap: str, *, jvm: bool) -> SourceOptions:
    """The options, checked as far as that goes without Spark; raises `BadOption`."""
    options = read_options(source_options(given, bootstrap))
    if jvm and not (options.format == "raw" or (options.format == "json" and given.schema)):
        raise BadOption(
            f"topic {given.name!r}: real-time mode reads raw values, or JSON with a schema; choose another trigger"
        )
    return options


def letter_boxes(job: Job, bootstrap: str) -> list[LetterBox]:
    """The dead letters of a job, for each topic that it names."""
    read = [read_options(source_options(given, bootstrap)) for given in job.inputs.values()]
    return [
        LetterBox(topic_for(topic, options.dead_letter_topic), topic, options.job or job.name)
        for options in read
        for topic in (*options.topics, *options.assigned)
        if not options.fail_on_bad_record
    ]


def dead_letter_topics(job: Job, bootstrap: str) -> tuple[str, ...]:
    """The topics that take records which its inputs cannot decode."""
    read = [(given.name, read_options(source_options(given, bootstrap))) for given in job.inputs.values()]
    return tuple(
        sorted({topic_for(name, options.dead_letter_topic) for name, options in read if not options.fail_on_bad_record})
    )


def input_frame(
    spark: "SparkSession", word: str, given: TopicInput, place: Place, bootstrap: str, *, job: str, jvm: bool
) -> "DataFrame":
    """The DataFrame of an input; raises what the source says to columns that its format cannot give."""
    from headrace.pipelines.source.columns import layout_of

    options = source_options(given, bootstrap, _starts(place, given.name))
    checked = check_input(given, bootstrap, jvm=jvm)
    if jvm:
        frame = _jvm_frame(spark, given, checked, options)
    else:
        if given.schema is None and checked.format != "raw":
            options.setdefault("schemaFile", str(place.schema_file(word)))
        options.setdefault("job", job)
        reader = spark.readStream.format("headrace").options(**options)
        frame = (reader.schema(given.schema) if given.schema else reader).load()
        # Spark looks into a source only when a query starts, and takes what it finds there for a failure to try again.
        layout_of(frame.schema, checked).decoder(checked)
    return frame.withWatermark(*given.watermark) if given.watermark else frame


def _jvm_frame(
    spark: "SparkSession", given: TopicInput, checked: SourceOptions, options: Mapping[str, str]
) -> "DataFrame":
    """Real-time mode wants the connector in the JVM; values are decoded by Spark's own functions."""
    from pyspark.sql.functions import col, from_json

    passed = {
        name: value
        for name, value in options.items()
        if name.lower() in (*_WAYS, "startingoffsets", "failondataloss", "includeheaders", "minpartitions")
    }
    frame = (
        spark.readStream.format("kafka")
        .options(**passed, **connector_options(checked.bootstrap, checked.connection))
        .load()
    )
    if checked.format == "raw":
        return frame
    assert given.schema is not None
    return frame.select(from_json(col("value").cast("string"), given.schema).alias("v")).select("v.*")


def connector_options(bootstrap: str, connection: Mapping[str, str]) -> dict[str, str]:
    """How Spark's own connector reaches a cluster."""
    return {"kafka.bootstrap.servers": bootstrap} | {f"kafka.{name}": value for name, value in connection.items()}


def _starts(place: Place, topic: str) -> str | None:
    """Where a reset has put an input; only as long as there is no checkpoint yet, which goes before."""
    if not place.starts_file.exists():
        return None
    starts = json.loads(place.starts_file.read_text())
    return json.dumps({topic: starts[topic]}) if topic in starts else None


# --- outputs


def sink_options(output: TopicOutput, bootstrap: str) -> dict[str, str]:
    return {"bootstrap": output.bootstrap or bootstrap, "topic": output.name, **output.options}


def check_output(output: TopicOutput, bootstrap: str) -> SinkOptions:
    return read_sink_options(sink_options(output, bootstrap))


def start_query(
    frame: "DataFrame", name: str, output: Output, *, bootstrap: str, checkpoint: Path, trigger: str, mode: str
) -> "StreamingQuery":
    """Begin to write a DataFrame; `mode` is Spark's output mode where the output is not a topic."""
    from headrace.pipelines.spark.watermarks import keep_input_watermarks

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
