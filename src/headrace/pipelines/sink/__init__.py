"""Where a stream goes: topics, tables and files exactly once, and side effects through an outbox.

The table sinks and the outbox are given to `foreachBatch`:

    from headrace.pipelines.sink import postgres

    totals.writeStream.outputMode("update").foreachBatch(
        postgres("postgresql://…", table="totals", keys=["user"])
    ).option("checkpointLocation", "…").start()

Each is imported when it is first asked for: a process that only plans a query has no use for them.
"""

from typing import TYPE_CHECKING

from headrace.extras import export_lazily

if TYPE_CHECKING:
    from headrace.pipelines.sink.effects import Email, Refused, Webhook, email, outbox, webhook
    from headrace.pipelines.sink.tables import delta, duckdb, parquet, postgres, read_parquet_sink, sqlite

_HOMES = {
    **dict.fromkeys(("Email", "Refused", "Webhook", "email", "outbox", "webhook"), "headrace.pipelines.sink.effects"),
    **dict.fromkeys(
        ("delta", "duckdb", "parquet", "postgres", "read_parquet_sink", "sqlite"), "headrace.pipelines.sink.tables"
    ),
}

__all__ = [
    "Email",
    "Refused",
    "Webhook",
    "delta",
    "duckdb",
    "email",
    "outbox",
    "parquet",
    "postgres",
    "read_parquet_sink",
    "sqlite",
    "webhook",
]

__getattr__, __dir__ = export_lazily(__name__, _HOMES)
