"""From a declaration to running queries: inputs as DataFrames, the user's function, a query for each output.

Everything that can be wrong is found before the first query starts: topics that are not there, columns that are not
there, a sink that does not fit.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.client.errors import ClientError
from headrace.errors import HeadraceError
from headrace.pipelines.errors import PipelineError
from headrace.pipelines.jobs.declare import (
    AVAILABLE_NOW,
    REAL_TIME,
    BadJob,
    Job,
    Output,
    TopicInput,
    TopicOutput,
    cluster_of,
)
from headrace.pipelines.jobs.place import Place

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_OURS = re.compile(r"^headrace\.[\w.]+: (.+)$", re.MULTILINE)


@dataclass(frozen=True)
class Prepared:
    """A job, checked, with a DataFrame for each output."""

    job: Job
    place: Place
    bootstrap: str
    results: Mapping[str, "DataFrame"]
    trigger: str


def check_topics(job: Job, bootstrap: str) -> None:
    """Refuse a job whose topics are not there; nothing is created behind a user's back."""
    wanted: list[TopicInput | TopicOutput] = list(job.inputs.values())
    wanted += [output for output in job.outputs.values() if isinstance(output, TopicOutput)]
    for item in wanted:
        if isinstance(item, TopicInput) and item.options.get("subscribePattern"):
            continue
        try:
            cluster_of(item, bootstrap).topic(item.name, refresh=True)
        except ClientError as error:
            raise BadJob(f"{job.place}: job {job.name!r}: {error}") from error


def prepare(job: Job, spark: "SparkSession", place: Place, *, bootstrap: str, trigger: str | None = None) -> Prepared:
    """Call the user's function; raises `BadJob` in one sentence with the place if that cannot be."""
    check_topics(job, bootstrap)
    chosen = trigger or job.trigger
    try:
        frames = {
            word: _input(spark, word, given, place, bootstrap, jvm=chosen == REAL_TIME)
            for word, given in job.inputs.items()
        }
        found = job.function(**frames)
        results = found if isinstance(found, Mapping) else {"out": found}
        _check_results(job, results)
    except HeadraceError:
        raise
    except Exception as error:
        raise BadJob(f"{job.place}: job {job.name!r}: {sentence_of(error)}") from error
    return Prepared(job, place, bootstrap, dict(results), chosen)


def _check_results(job: Job, results: Mapping[str, Any]) -> None:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from headrace.pipelines.sink.topic.columns import check
    from headrace.pipelines.sink.topic.options import SinkOptions

    if sorted(results) != sorted(job.outputs):
        raise BadJob(
            f"{job.place}: job {job.name!r} returns {', '.join(results)} and outputs names {', '.join(job.outputs)}: "
            "return a DataFrame for each output, or a dictionary of them"
        )
    for word, frame in results.items():
        if not isinstance(frame, DataFrame):
            raise BadJob(f"{job.place}: job {job.name!r} returns {type(frame).__name__} for {word!r}, not a DataFrame")
        if not frame.isStreaming:
            raise BadJob(f"{job.place}: job {job.name!r} returns for {word!r} a DataFrame that does not stream")
        output, schema = job.outputs[word], frame.schema
        assert isinstance(schema, StructType)
        if isinstance(output, TopicOutput):
            try:
                check(schema, SinkOptions("", topic=output.name))
            except PipelineError as error:
                raise BadJob(f"{job.place}: job {job.name!r}: output {word!r}: {error}") from error


def _input(
    spark: "SparkSession", word: str, given: TopicInput, place: Place, bootstrap: str, *, jvm: bool
) -> "DataFrame":
    server = given.bootstrap or bootstrap
    starts = _starts(place, given.name)
    if jvm:
        return _jvm_input(spark, given, server, starts)
    reader = spark.readStream.format("headrace").option("bootstrap", server)
    options = dict(given.options)
    if "subscribePattern" not in options and "assign" not in options:
        options["subscribe"] = given.name
    if not any(name.startswith("starting") for name in options):
        options["startingOffsets"] = "earliest"  # a pipeline wants all of its input; a reader of live data says latest
    if starts:
        options = {name: value for name, value in options.items() if not name.startswith("starting")}
        options["startingOffsets"] = starts
    if given.schema is None and options.get("format", "raw") != "raw":
        options.setdefault("schemaFile", str(place.schema_file(word)))
    reader = reader.options(**options)
    frame = (reader.schema(given.schema) if given.schema else reader).load()
    return frame.withWatermark(*given.watermark) if given.watermark else frame


def _jvm_input(spark: "SparkSession", given: TopicInput, server: str, starts: str | None) -> "DataFrame":
    """Real-time mode wants the connector in the JVM; values are decoded by Spark's own functions."""
    from pyspark.sql.functions import col, from_json

    frame = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", server)
        .option("subscribe", given.name)
        .option("startingOffsets", starts or given.options.get("startingOffsets", "earliest"))
        .load()
    )
    if given.options.get("format", "raw") == "raw":
        return frame
    if given.options["format"] != "json" or not given.schema:
        raise PipelineError(
            f"topic {given.name!r}: real-time mode reads raw values, or JSON with a schema; choose another trigger"
        )
    return frame.select(from_json(col("value").cast("string"), given.schema).alias("v")).select("v.*")


def _starts(place: Place, topic: str) -> str | None:
    """Where a reset has put an input; only as long as there is no checkpoint yet, which goes before."""
    if not place.starts_file.exists():
        return None
    starts = json.loads(place.starts_file.read_text())
    return json.dumps({topic: starts[topic]}) if topic in starts else None


def start(prepared: Prepared) -> dict[str, "StreamingQuery"]:
    """Start a query for each output; raises `BadJob` for what Spark refuses to run."""
    started: dict[str, StreamingQuery] = {}
    try:
        for word, frame in prepared.results.items():
            started[word] = _start(prepared, word, frame, prepared.job.outputs[word])
    except Exception as error:
        for query in started.values():
            query.stop()
        raise BadJob(f"{prepared.job.place}: job {prepared.job.name!r}: {sentence_of(error)}") from error
    return started


def _start(prepared: Prepared, word: str, frame: "DataFrame", output: Output) -> "StreamingQuery":
    job = prepared.job
    writer = frame.writeStream.queryName(f"{job.name}.{word}").option(
        "checkpointLocation", str(prepared.place.checkpoint(word).absolute())
    )
    if prepared.trigger == AVAILABLE_NOW:
        writer = writer.trigger(availableNow=True)
    elif prepared.trigger == REAL_TIME:
        writer = writer.trigger(realTime="5 minutes")  # type: ignore[call-overload]  # not in its stubs
    else:
        writer = writer.trigger(processingTime=_interval(prepared.trigger))
    if isinstance(output, TopicOutput):
        server = output.bootstrap or prepared.bootstrap
        if prepared.trigger == REAL_TIME:
            return (
                writer.format("kafka").option("kafka.bootstrap.servers", server).option("topic", output.name)
                .outputMode("update").start()
            )  # fmt: skip
        return (
            writer.format("headrace").option("bootstrap", server).option("topic", output.name).options(**output.options)
            .outputMode(output.mode).start()
        )  # fmt: skip
    return writer.outputMode(job.mode).foreachBatch(output).start()


def _interval(text: str) -> str:
    """An interval in the words that Spark knows."""
    number = re.match(r"\d+", text)
    assert number is not None
    unit = text[number.end() :].strip()
    full = {"ms": "milliseconds", "s": "seconds", "min": "minutes", "h": "hours"}.get(unit, unit)
    return f"{number[0]} {full}"


def sentence_of(error: BaseException) -> str:
    """What an error says, in one line: our own words where there are some, else the first that Spark says."""
    text = str(error)
    ours = _OURS.findall(text)
    if ours:
        return str(ours[-1])
    first = next((line.strip() for line in text.splitlines() if line.strip()), type(error).__name__)
    return first.split(" SQLSTATE:")[0]
