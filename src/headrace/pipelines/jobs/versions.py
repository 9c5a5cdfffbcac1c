"""Beginning anew: a job that is reset, and a new version of its output, built beside the one in use.

Version 1 has the name that the user gave. A topic of version 2 is `name.v2`, and stays: a topic cannot be renamed, so
readers have to be given the new name. A table is built as `name__v2` and takes over the name when the version is
switched.

The old version may run on meanwhile. The new one is built by bounded runs from the start of the input until it has
caught up; the switch wants the old one stopped, so that nothing is written to both.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from headrace.client.admin import describe_configs, ensure_topic
from headrace.client.cluster import Cluster
from headrace.pipelines.errors import PipelineError
from headrace.pipelines.jobs.declare import AVAILABLE_NOW, BatchSink, Job, Output, TopicOutput, cluster_of
from headrace.pipelines.jobs.place import (
    Place,
    check,
    describe_job,
    folder_of,
    forget,
    lock_folder,
    read_record,
    write_record,
)
from headrace.pipelines.source.offsets import find_offsets
from headrace.pipelines.source.options import OffsetSpec
from headrace.pipelines.source.planning import to_json

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.pipelines.jobs.progress import Progress


@runtime_checkable
class Rebuildable(Protocol):
    """A sink that can write beside its target, and then take its place."""

    def beside(self, version: int) -> BatchSink:
        """The same sink for another version."""
        ...

    def switch(self, version: int) -> None:
        """Let what was written beside take the target's place."""
        ...


def _as_rebuildable(output: object) -> Rebuildable | None:
    return output if isinstance(output, Rebuildable) else None


def at_version(job: Job, version: int, *, switched: bool) -> Job:
    """The job as it writes in a version; once switched, a table has its own name again and only topics keep theirs."""
    if version == 1:
        return job
    return replace(
        job,
        outputs={word: _output(job, word, output, version, switched=switched) for word, output in job.outputs.items()},
    )


def _output(job: Job, word: str, output: Output, version: int, *, switched: bool) -> Output:
    if isinstance(output, TopicOutput):
        return replace(output, name=f"{output.name}.v{version}")
    sink = _as_rebuildable(output)
    if sink is None:
        raise PipelineError(
            f"{job.place}: output {word!r} of job {job.name!r} cannot be rebuilt beside what is there "
            f"({type(output).__name__}): reset the job instead, and clear its target yourself"
        )
    return output if switched else sink.beside(version)


def make_topics(before: Job, after: Job, bootstrap: str) -> None:
    """Create the topics of a new version like those of the version before, where they are not there yet."""
    for word, output in after.outputs.items():
        like = before.outputs[word]
        if isinstance(output, TopicOutput) and isinstance(like, TopicOutput):
            _make_like(cluster_of(output, bootstrap), like.name, output.name)


def _make_like(cluster: Cluster, like: str, name: str) -> None:
    own = {config.name: config.value for config in describe_configs(cluster, like) if config.is_own and config.value}
    ensure_topic(cluster, name, partitions=len(cluster.topic(like).partitions), configs=own)


def reset(job: Job, state: Path, bootstrap: str, to: OffsetSpec) -> dict[str, dict[str, int]]:
    """Forget a job's checkpoint and state; the offsets at which its next run begins."""
    folder = folder_of(job, state)
    with lock_folder(folder):
        record = read_record(folder)
        place = Place(folder, record.version if record else 1)
        starts: dict[str, dict[str, int]] = {}
        for given in job.inputs.values():
            cluster = cluster_of(given, bootstrap)
            starts |= to_json(find_offsets(cluster, cluster.partitions(given.name), to, committed=True))
        forget(place)
        place.root.mkdir(parents=True)
        place.starts_file.write_text(json.dumps(starts))
        write_record(folder, replace(describe_job(job), version=place.version))
        return starts


def next_version(job: Job, state: Path) -> int:
    record = read_record(folder_of(job, state))
    return (record.version if record else 1) + 1


def build_beside(
    job: Job,
    spark: "SparkSession",
    state: Path,
    bootstrap: str,
    *,
    watch: "Callable[[list[Progress]], None]",
    say: Callable[[str, str], None],
) -> int:
    """Build the next version up to the present end of the input; goes on where an earlier attempt was broken off."""
    from headrace.pipelines.jobs.build import prepare
    from headrace.pipelines.jobs.run import Runner

    version = next_version(job, state)
    place = Place(folder_of(job, state), version)
    beside = at_version(job, version, switched=False)
    make_topics(at_version(job, version - 1, switched=True), beside, bootstrap)
    with lock_folder(place.root):
        runner = Runner(
            [prepare(beside, spark, place, bootstrap=bootstrap, trigger=AVAILABLE_NOW)], restarts=0, say=say
        )
        runner.begin()
        while runner.tend():
            watch(runner.news())
            runner.wait(0.2)
        watch(runner.news())
    return version


def switch(job: Job, state: Path, version: int) -> None:
    """Make a version that was built the one in force; from now on `run` goes on with it."""
    folder = folder_of(job, state)
    with lock_folder(folder):
        known = read_record(folder) or describe_job(job)
        check(job, known, replace(known), folder)
        if known.version + 1 != version:
            raise PipelineError(f"job {job.name!r} is at version {known.version}, and {version} does not follow it")
        for output in job.outputs.values():
            if sink := _as_rebuildable(output):
                sink.switch(version)
        write_record(folder, replace(describe_job(job), version=version, started=True))
