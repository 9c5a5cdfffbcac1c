"""Which query a batch belongs to, as Spark tells it to the thread that runs `foreachBatch`."""

from pyspark.sql import DataFrame

OUTSIDE = "no-query"  # a sink called by hand, outside a streaming query


def query_id(df: DataFrame) -> str:
    """The id in the query's checkpoint: the same after a restart, another after the checkpoint was deleted."""
    found = df.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
    return found or OUTSIDE
