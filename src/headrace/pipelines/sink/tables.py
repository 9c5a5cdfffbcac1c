"""Exactly-once sinks for `foreachBatch`, one for each store: a batch's rows and its number in one transaction.

What always holds:

- A batch that Spark runs again changes nothing: the target remembers, per sink name and query, the last batch it has,
  and that memory is written by the very transaction that writes the rows (`headrace_batches` in a database, the
  transaction marker in a Delta log, the directory's own name for Parquet).
- A batch that fails leaves nothing: no rows, no table.
- What does not fit is refused before anything is written, in one sentence.

**When a pipeline is reset** (its checkpoint deleted, or started with another one), Spark begins to count at batch 0,
and the target still holds what the old query wrote. By default a sink then refuses. `on_new_query="replace"` empties
the target in the transaction of the new query's first batch: what one wants when the input is read again from the
start. `on_new_query="continue"` keeps the rows: right for an upsert that reads everything again (each key ends in its
last state), and for appending where the new query starts after what the old one wrote. Once another query has taken
over, the old one is refused for good. One name is one stream of batches: two pipelines that write to one table need
two names.

Where the promise ends: Spark does not sync its checkpoint to the disk, so a machine that loses power may come back
with a checkpoint older than the target; the sink sees this when whole batches are missing, and refuses.
"""

from headrace.stores.delta.batch import delta
from headrace.stores.parquet.batch import parquet, read_parquet_sink
from headrace.stores.postgres.batch import postgres
from headrace.stores.sql.batch import duckdb, sqlite

__all__ = ["delta", "duckdb", "parquet", "postgres", "read_parquet_sink", "sqlite"]
