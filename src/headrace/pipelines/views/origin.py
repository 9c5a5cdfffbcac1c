"""What the query behind a batch knows and `foreachBatch` does not tell: where it reads, and up to where this batch did.

Spark writes a batch's offsets and watermark to the query's checkpoint before it runs the batch; they are read there.
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.pipelines.jobs.progress import offsets_in
from headrace.stores.views.freshness import Origin, Standing

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def origin_of(df: "DataFrame", batch_id: int) -> Origin:
    """Of the query that the calling thread runs a batch of; empty outside of one, in a test by hand."""
    session = df.sparkSession
    query = session.sparkContext.getLocalProperty("sql.streaming.queryId")
    jvm: Any = session._jvm  # noqa: SLF001 - PySpark shows neither the running query nor its checkpoint otherwise
    if query is None or jvm is None:
        return Origin()
    running = session._jsparkSession.sharedState().activeStreamingQueries()  # noqa: SLF001
    execution = running.get(jvm.java.util.UUID.fromString(query))
    if execution is None:
        return Origin()
    scheme, _, path = str(execution.resolvedCheckpointRoot()).partition(":")
    # A checkpoint on another file system is not looked into: the view then tells its batch and time alone.
    entry = Path(path) / "offsets" / str(batch_id)
    standing = read_standing(entry.read_text()) if scheme == "file" else Standing()
    return Origin(standing, *_reached(execution), is_running=lambda: _is_active(execution))


def _is_active(execution: Any) -> bool:
    try:
        return bool(execution.isActive())
    except Exception:  # noqa: BLE001 - whatever py4j says when the JVM is gone
        return False


def _reached(execution: Any) -> tuple[str | None, dict[str, str]]:
    """How the first input that is a topic is reached."""
    leaves = execution.analyzedPlan().collectLeaves()
    for index in range(leaves.size()):
        leaf = leaves.apply(index)
        if not leaf.getClass().getSimpleName().startswith("StreamingRelationV2"):
            continue
        options = dict(leaf.extraOptions().asCaseSensitiveMap())
        lower = {name.lower(): str(value) for name, value in options.items()}
        bootstrap = lower.get("bootstrap") or lower.get("kafka.bootstrap.servers")
        if bootstrap:
            connection = {name: value for name, value in lower.items() if name.startswith("kafka.")}
            connection.pop("kafka.bootstrap.servers", None)
            return bootstrap, {name.removeprefix("kafka."): value for name, value in connection.items()}
    return None, {}


def read_standing(text: str) -> Standing:
    """What an entry of Spark's offset log says: a version, a line about the batch, and a line for each source."""
    _, batch, *sources = text.splitlines()
    offsets: dict[str, int] = {}
    for line in sources:
        offsets |= {str(where): offset for where, offset in offsets_in(line).items()}
    watermark = json.loads(batch).get("batchWatermarkMs") or None  # it begins at 0, which means that there is none
    return Standing(offsets, watermark)
