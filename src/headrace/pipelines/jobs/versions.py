"""What an output is called in each version of a job, so that a new version is built beside the one in use.

Version 1 has the name that the user gave. A topic of version 2 is `name.v2`, and stays: a topic cannot be renamed, so
readers are told the new name. A table is built as `name__v2` and takes over the name when the version is switched.
"""

from dataclasses import replace
from typing import Protocol, runtime_checkable

from headrace.client.admin import describe_configs, ensure_topic
from headrace.client.cluster import Cluster
from headrace.pipelines.errors import PipelineError
from headrace.pipelines.jobs.declare import BatchSink, Job, Output, TopicOutput, cluster_of


@runtime_checkable
class Rebuildable(Protocol):
    """A sink that can write beside its target, and then take its place."""

    def beside(self, version: int) -> BatchSink:
        """The same sink for another version."""
        ...

    def switch(self, version: int) -> None:
        """Let what was written beside take the target's place."""
        ...


def rebuildable(output: object) -> Rebuildable | None:
    """The output, if it can be built beside what is there."""
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
    sink = rebuildable(output)
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
