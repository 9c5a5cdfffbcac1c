"""What Spark's checkpoint of a query says, read without Spark: the last batch that was done, and up to where."""

import json
from dataclasses import dataclass, field
from pathlib import Path

from headrace.model import TopicPartition
from headrace.pipelines.checkpoints import logged_batches, read_offset_log
from headrace.pipelines.jobs.progress import offsets_in
from headrace.pipelines.source.planning import ids_in


@dataclass(frozen=True)
class Standing:
    """The last batch that is done, when, and the offsets behind it with their topics' ids; nothing before the first."""

    batch: int | None
    finished_s: float | None
    offsets: dict[TopicPartition, int]
    ids: dict[str, str] = field(default_factory=dict)


def standing(checkpoint: Path) -> Standing:
    """Where a query stands."""
    done = logged_batches(checkpoint / "commits")
    if not done:
        return Standing(None, None, {})
    batch = max(done)
    _, _, *logged = read_offset_log(checkpoint / "offsets" / str(batch))
    sources = [json.loads(line) for line in logged if line.startswith("{")]
    offsets = {where: offset for source in sources for where, offset in offsets_in(source).items()}
    ids = {topic: id_ for source in sources for topic, id_ in ids_in(source).items()}
    return Standing(batch, (checkpoint / "commits" / str(batch)).stat().st_mtime, offsets, ids)
