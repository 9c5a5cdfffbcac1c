"""Pipelines on Spark: a session that starts at once, topics as columns, and results exactly once.

    from headrace.pipelines import job, session, topic

Users keep the whole of PySpark: `spark.readStream.format("headrace")` is a DataFrame like any other.
"""

from typing import TYPE_CHECKING

from headrace.extras import export_lazily

if TYPE_CHECKING:
    from headrace.pipelines.jobs.declare import Job, job, topic
    from headrace.pipelines.live_query import live
    from headrace.pipelines.spark.draining import drain
    from headrace.pipelines.spark.session import session

# Loaded when first asked for: Spark's Python processes import this package, and want none of it.
_HOMES = {
    **dict.fromkeys(("Job", "job", "topic"), "headrace.pipelines.jobs.declare"),
    "drain": "headrace.pipelines.spark.draining",
    "live": "headrace.pipelines.live_query",
    "session": "headrace.pipelines.spark.session",
}

__all__ = ["Job", "drain", "job", "live", "session", "topic"]

__getattr__, __dir__ = export_lazily(__name__, _HOMES)
