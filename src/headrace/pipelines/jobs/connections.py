"""Jobs told how to reach their cluster, where they do not say it themselves. Pure."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

from headrace.pipelines.jobs.declare import Job, TopicInput, TopicOutput

T = TypeVar("T", TopicInput, TopicOutput)


def connected(job: Job, settings: Mapping[str, str]) -> Job:
    """A job whose topics are reached by these settings, under Kafka's names.

    They go along as options, because a task on another machine has none of our environment. A topic that names a
    cluster or settings of its own keeps to them: what is meant for one cluster is not shown to another.
    """
    options = {f"kafka.{name}": value for name, value in settings.items()}
    if not options:
        return job
    outputs = {
        word: _reached(output, options) if isinstance(output, TopicOutput) else output
        for word, output in job.outputs.items()
    }
    return replace(job, inputs={word: _reached(given, options) for word, given in job.inputs.items()}, outputs=outputs)


def _reached(item: T, options: Mapping[str, str]) -> T:
    is_own = item.bootstrap or any(name.lower().startswith("kafka.") for name in item.options)
    return item if is_own else replace(item, options={**options, **item.options})
