"""A new version of a job's output, built from the start of its input beside the old one, and the switch to it.

The old version may run on meanwhile. The new one is built by bounded runs until it has caught up; the switch wants the
old one stopped, so that nothing is written to both.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.pipelines.errors import PipelineError
from headrace.pipelines.jobs.build import prepare
from headrace.pipelines.jobs.declare import AVAILABLE_NOW, Job
from headrace.pipelines.jobs.place import Place, check, described, folder_of, locked, read_record, write_record
from headrace.pipelines.jobs.progress import Progress
from headrace.pipelines.jobs.run import Runner
from headrace.pipelines.jobs.versions import at_version, make_topics, rebuildable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def next_version(job: Job, state: Path) -> int:
    """The version that a rebuild makes."""
    record = read_record(folder_of(job, state))
    return (record.version if record else 1) + 1


def build_beside(
    job: Job,
    spark: "SparkSession",
    state: Path,
    bootstrap: str,
    *,
    watch: Callable[[list[Progress]], None],
    say: Callable[[str, str], None],
) -> int:
    """Build the next version up to the present end of the input; goes on where an earlier attempt was broken off."""
    version = next_version(job, state)
    place = Place(folder_of(job, state), version)
    beside = at_version(job, version, switched=False)
    make_topics(at_version(job, version - 1, switched=True), beside, bootstrap)
    with locked(place.root):
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
    with locked(folder):
        known = read_record(folder) or described(job)
        check(job, known, replace(known), folder)
        if known.version + 1 != version:
            raise PipelineError(f"job {job.name!r} is at version {known.version}, and {version} does not follow it")
        for output in job.outputs.values():
            if sink := rebuildable(output):
                sink.switch(version)
        write_record(folder, replace(described(job), version=version, started=True))
