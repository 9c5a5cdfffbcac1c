"""Pipelines as files of plain functions: declared, checked, run, watched, reset and rebuilt. Only what is here does IO.

`declare` is what a user writes (`@job`, `topic`), `load` reads a file of it, `place` is where a job keeps its
checkpoint and knows it again, `endpoints` are its inputs and outputs as source and sink take them, `build` makes the
query, `run` keeps queries running, `progress` (pure) reads Spark's reports, `publish` hands them on, `service` is a run
from first check to last batch, `status` is a job seen without Spark, and `versions` resets and rebuilds it.
"""

from headrace.pipelines.jobs.declare import Job, TopicInput, TopicOutput, job, topic

__all__ = ["Job", "TopicInput", "TopicOutput", "job", "topic"]
