"""Where a stream goes: topics, tables and files exactly once, and side effects through an outbox.

The table sinks and the outbox are given to `foreachBatch`:

    from headrace.pipelines.sink import postgres

    totals.writeStream.outputMode("update").foreachBatch(
        postgres("postgresql://…", table="totals", keys=["user"])
    ).option("checkpointLocation", "…").start()
"""

from headrace.pipelines.sink.outbox import Refused, Webhook, outbox, webhook
from headrace.pipelines.sink.tables import delta, duckdb, parquet, postgres, read_parquet_sink, sqlite

__all__ = [
    "Refused",
    "Webhook",
    "delta",
    "duckdb",
    "outbox",
    "parquet",
    "postgres",
    "read_parquet_sink",
    "sqlite",
    "webhook",
]
