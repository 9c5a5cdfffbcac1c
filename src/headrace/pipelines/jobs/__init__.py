"""Pipelines as files of plain functions: declared, checked, run, watched, reset and rebuilt. Only what is here does IO.

`declare` is what a user writes (`@job`, `topic`), `load` reads a file of it, `place` is where a job keeps its
checkpoint and knows it again, `build` makes the query, `run` keeps queries running, `progress` (pure) says how they
fare, `publish` tells others, `service` is a run from first check to last batch, `status` tells of a job without
starting Spark, and `rebuild` makes a new version beside the old.
"""

from headrace.pipelines.jobs.declare import Job, TopicInput, TopicOutput, job, topic

__all__ = ["Job", "TopicInput", "TopicOutput", "job", "topic"]
