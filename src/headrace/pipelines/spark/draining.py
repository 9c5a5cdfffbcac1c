"""Draining: everything that waits for the watermark comes out, because nothing more will be read.

A bounded run (`available-now`) reads what is there and ends; its last windows stay open, since rows that close them may
come in the next run. A user who knows that none will come drains the query: one micro-batch more, without new rows and
with the final watermark. Every window closes and every row that waits for a partner or a table's change is answered,
in Spark's own operators, in ours and in chains of them. It is what Flink and Beam call draining.

The final micro-batch is put into Spark's offset log as one that was planned and not run. Spark then runs it as it runs
a micro-batch after a crash, so a kill at any moment leaves either a query that is not drained yet, or one whose final
micro-batch is run (again) at the next start, with the same number: exactly-once sinks take it once.

A drained query is over. All rows that came later would be late, so it is refused to go on from its checkpoint; why, is
in docs/decisions/0023. The checkpoint itself says that it is drained: its last watermark is the final one.
"""

import time
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headrace.pipelines.errors import PipelineError
from headrace.pipelines.keyed.operator import FINAL_WATERMARK
from headrace.pipelines.spark.checkpoint import Planned, last_batch, list_batches, read_planned, write_planned

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

FINAL_WATERMARK_MS: Final = FINAL_WATERMARK // 1000
ONCE: Final = "once"
"""The trigger that runs the batch which is planned, and no other."""


class Drained(PipelineError):
    """A query that was drained is asked to go on."""


class Stage(Enum):
    OPEN = "open"
    ENDING = "ending"
    """The final batch is planned, and may have run in part."""
    DRAINED = "drained"


def stage_of(checkpoint: Path) -> Stage:
    """From a checkpoint alone: its last watermark is the final one, or not."""
    planned = last_batch(checkpoint, "offsets")
    if planned is None or read_planned(checkpoint, planned).watermark_ms < FINAL_WATERMARK_MS:
        return Stage.OPEN
    return Stage.DRAINED if planned in list_batches(checkpoint, "commits") else Stage.ENDING


def begin_ending(checkpoint: Path, now_ms: int) -> bool:
    """Plan the final batch behind the last one; False if nothing was ever read, so that nothing waits."""
    planned = last_batch(checkpoint, "offsets")
    if planned is None:
        return False
    if planned not in list_batches(checkpoint, "commits"):
        raise PipelineError(
            f"batch {planned} in {checkpoint} is not done, so the query cannot be drained: run it again"
        )
    last = read_planned(checkpoint, planned)
    final = last.about | {
        "batchWatermarkMs": FINAL_WATERMARK_MS,
        # Timers by the wall clock go by this one, and it never goes back.
        "batchTimestampMs": max(now_ms, last.about["batchTimestampMs"] + 1),
    }
    write_planned(checkpoint, planned + 1, Planned(final, last.sources))
    return True


def drain(writer: "DataStreamWriter", *, checkpoint: str | Path) -> "StreamingQuery | None":
    """Run a query over all there is, close what is open, and end; the query of its last batch, None if it had none.

    `writer` is what `df.writeStream.format(…)` or `.foreachBatch(…)` gives; trigger and checkpoint are set here.
    Raises `Drained` if the checkpoint was drained before.
    """
    folder = Path(checkpoint).absolute()
    writer = writer.option("checkpointLocation", str(folder))
    if stage_of(folder) is Stage.DRAINED:
        raise Drained(f"{folder} was drained: all its windows are closed, so begin with a new checkpoint")
    query = None
    if stage_of(folder) is Stage.OPEN:
        query = _run_to_end(writer.trigger(availableNow=True))
        begin_ending(folder, time.time_ns() // 1_000_000)
    if stage_of(folder) is Stage.ENDING:
        query = _run_to_end(writer.trigger(once=True))
    return query


def _run_to_end(writer: "DataStreamWriter") -> "StreamingQuery":
    query = writer.start()
    query.awaitTermination()
    return query
