"""Pipelines on Spark: a session that starts at once, topics as columns, and results exactly once.

    from headrace.pipelines import job, session, topic

Users keep the whole of PySpark: `spark.readStream.format("headrace")` is a DataFrame like any other.
"""

from headrace.pipelines.jobs.declare import Job, job, topic
from headrace.pipelines.session import session

__all__ = ["Job", "job", "session", "topic"]
