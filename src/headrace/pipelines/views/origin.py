"""What the query behind a batch knows and `foreachBatch` does not tell: where it reads, and up to where this batch did.

Spark writes a batch's offsets and watermark to the query's checkpoint before it runs the batch; they are read there.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from headrace.pipelines.spark.checkpoint import Planned, read_planned
from headrace.pipelines.spark.internals import running_execution
from headrace.stores.views.freshness import Origin, Standing

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def origin_of(df: "DataFrame", batch_id: int) -> Origin:
    """Of the query that the calling thread runs a batch of; empty outside of one, in a test by hand."""
    execution = running_execution(df)
    if execution is None:
        return Origin()
    # A checkpoint on another file system is not looked into: the view then reports its batch and time alone.
    checkpoint = execution.checkpoint
    standing = Standing() if checkpoint is None else standing_at(read_planned(checkpoint, batch_id))
    return Origin(standing, *_reached(execution.source_options()), is_running=lambda: execution.is_active)


def _reached(sources: Iterable[Mapping[str, str]]) -> tuple[str | None, dict[str, str]]:
    """How the first input that is a topic is reached."""
    for options in sources:
        bootstrap = options.get("bootstrap") or options.get("kafka.bootstrap.servers")
        if bootstrap:
            connection = {
                name.removeprefix("kafka."): value
                for name, value in options.items()
                if name.startswith("kafka.") and name != "kafka.bootstrap.servers"
            }
            return bootstrap, connection
    return None, {}


def standing_at(planned: Planned) -> Standing:
    """Up to where a batch reads, and the watermark in force; that begins at 0, which means that there is none."""
    return Standing({str(where): offset for where, offset in planned.offsets.items()}, planned.watermark_ms or None)
