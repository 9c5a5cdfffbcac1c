"""From a declaration to running queries: inputs as DataFrames, the user's function, a query for each output.

Everything that can be wrong is found before the first query starts: topics that are not there, columns that are not
there, a sink that does not fit.
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from headrace.pipelines.errors import PipelineError
from headrace.pipelines.jobs.declare import (
    AVAILABLE_NOW,
    REAL_TIME,
    BadJob,
    FittingSink,
    Job,
    Output,
    TopicOutput,
    cluster_of,
)
from headrace.pipelines.jobs.endpoints import check_input, check_output, input_frame, start_query
from headrace.pipelines.jobs.failures import sentence_of
from headrace.pipelines.jobs.functions import explain, send
from headrace.pipelines.jobs.place import Place
from headrace.pipelines.jobs.status import job_lag
from headrace.pipelines.spark.checkpoint import read_done
from headrace.pipelines.spark.draining import ONCE, Stage, begin_ending, stage_of
from headrace.pipelines.spark.plan import has_watermark
from headrace.pipelines.spark.stateful_steps import check_steps

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


@dataclass(frozen=True)
class Prepared:
    job: Job
    place: Place
    bootstrap: str
    results: Mapping[str, "DataFrame"]
    trigger: str
    drain: bool = False


@contextmanager
def at_its_place(job: Job) -> Iterator[None]:
    """Whatever goes wrong inside becomes one sentence with the place where the job is declared."""
    try:
        yield
    except BadJob:
        raise
    except Exception as error:
        raise BadJob(f"{job.place}: job {job.name!r}: {explain(error) or sentence_of(error)}") from error


def check(job: Job, bootstrap: str, *, trigger: str | None = None) -> None:
    """Refuse what can be seen to be wrong without Spark: an option, or a topic that is not there.

    Nothing is created behind a user's back.
    """
    jvm = (trigger or job.trigger) == REAL_TIME
    with at_its_place(job):
        for given in job.inputs.values():
            for name in check_input(given, bootstrap, jvm=jvm).topics:
                cluster_of(given, bootstrap).topic(name, refresh=True)
        for output in job.outputs.values():
            if isinstance(output, TopicOutput):
                check_output(output, bootstrap)
                cluster_of(output, bootstrap).topic(output.name, refresh=True)


def check_over(job: Job, place: Place, bootstrap: str, trigger: str) -> None:
    """Refuse to go on with a drained job; a run that would read nothing has nothing to do, and may.

    An output whose final batch was begun and not done gets it first: what is in its windows was read in time.
    """
    stages = {word: stage_of(place.checkpoint(word)) for word in job.outputs}
    if Stage.ENDING in stages.values():
        return
    for word, stage in stages.items():
        if stage is not Stage.DRAINED:
            continue
        done = read_done(place.checkpoint(word))
        waiting = job_lag(job, done, bootstrap, 0).records if done.offsets else 0
        if waiting or trigger != AVAILABLE_NOW:
            raise BadJob(
                f"{job.place}: job {job.name!r} was drained: its windows are closed, and "
                f"{waiting or 'all'} new records would be late. Start anew with headrace pipeline reset, or build a "
                "new version with headrace pipeline rebuild"
            )


def prepare(
    job: Job,
    spark: "SparkSession",
    place: Place,
    *,
    bootstrap: str,
    trigger: str | None = None,
    drain: bool = False,
) -> Prepared:
    """Call the user's function; raises `BadJob` in one sentence with the place if that cannot be."""
    check(job, bootstrap, trigger=trigger)
    chosen = trigger or job.trigger
    with at_its_place(job):
        send(spark)
        frames = {
            word: input_frame(spark, word, given, place, bootstrap, job=job.name, jvm=chosen == REAL_TIME)
            for word, given in job.inputs.items()
        }
        found = job.function(**frames)
        results = found if isinstance(found, Mapping) else {"out": found}
        _check_results(job, results, bootstrap)
        fitted = {word: _fit(frame, job.outputs[word]) for word, frame in results.items()}
    job = replace(job, outputs={word: output for word, (_, output) in fitted.items()})
    return Prepared(job, place, bootstrap, {word: frame for word, (frame, _) in fitted.items()}, chosen, drain)


def _fit(frame: "DataFrame", output: Output) -> "tuple[DataFrame, Output]":
    return output.fit(frame) if isinstance(output, FittingSink) else (frame, output)


def _check_results(job: Job, results: Mapping[str, Any], bootstrap: str) -> None:
    from pyspark.sql import DataFrame

    from headrace.pipelines.sink.topic.options import check_columns

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
        output = job.outputs[word]
        if isinstance(output, TopicOutput):
            try:
                check_columns(frame.schema, check_output(output, bootstrap))
            except PipelineError as error:
                raise BadJob(f"{job.place}: job {job.name!r}: output {word!r}: {error}") from error


def start(prepared: Prepared) -> dict[str, "StreamingQuery"]:
    """Start a query for each output; raises `BadJob` for what Spark refuses to run."""
    started: dict[str, StreamingQuery] = {}
    try:
        for word, frame in prepared.results.items():
            stage = stage_of(prepared.place.checkpoint(word))
            if stage is Stage.DRAINED:
                check_over(prepared.job, prepared.place, prepared.bootstrap, prepared.trigger)
                continue
            check_steps(frame, prepared.place.checkpoint(word))
            output = prepared.job.outputs[word]
            started[word] = start_query(
                frame,
                f"{prepared.job.name}.{word}",
                output,
                bootstrap=prepared.bootstrap,
                checkpoint=prepared.place.checkpoint(word),
                trigger=ONCE if stage is Stage.ENDING else prepared.trigger,
                mode=output.output_mode if isinstance(output, FittingSink) else prepared.job.mode,
            )
    except Exception as error:
        for query in started.values():
            query.stop()
        if isinstance(error, BadJob):
            raise
        raise BadJob(f"{prepared.job.place}: job {prepared.job.name!r}: {sentence_of(error)}") from error
    return started


def is_over(prepared: Prepared) -> bool:
    """Whether a job reads no more, and at most its final batches are left to run."""
    return all(stage_of(prepared.place.checkpoint(word)) is not Stage.OPEN for word in prepared.results)


def start_ending(prepared: Prepared, *, was_over: bool) -> dict[str, "StreamingQuery"]:
    """After queries have ended by themselves: what is left to do, which is the final batch where a job is drained.

    A run that found a job over has read nothing, and is refused where there was something to read.
    """
    if was_over:
        check_over(prepared.job, prepared.place, prepared.bootstrap, prepared.trigger)
    if prepared.drain:
        now_ms = time.time_ns() // 1_000_000
        for word, frame in prepared.results.items():
            checkpoint = prepared.place.checkpoint(word)
            if has_watermark(frame) and stage_of(checkpoint) is Stage.OPEN:
                begin_ending(checkpoint, now_ms)
    elif prepared.trigger == AVAILABLE_NOW:
        return {}
    stages = [stage_of(prepared.place.checkpoint(word)) for word in prepared.results]
    # Only the final batch of a query ends by itself where the trigger is an interval, and then it cannot go on.
    return start(prepared) if Stage.ENDING in stages or prepared.trigger != AVAILABLE_NOW else {}
