"""The files of a query's checkpoint, read without Spark: the batches planned and done, offsets, watermark.

Spark writes a batch's offsets and watermark to `offsets/N` before it runs the batch, and `commits/N` when it is done.
Seen on Spark 4.2, whose offset log is of version 1: a line with it, one about the batch, and one for each source.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headrace.model import TopicPartition
from headrace.pipelines.errors import PipelineError
from headrace.pipelines.source.planning import ids_in, offsets_in
from headrace.stores.folders import replace_text


def list_batches(checkpoint: Path, log: str) -> list[int]:
    """The batches that a log of Spark's (`offsets` or `commits`) has entries of; none if there is no such folder."""
    folder = checkpoint / log
    return [int(file.name) for file in folder.iterdir() if file.name.isdecimal()] if folder.is_dir() else []


def last_batch(checkpoint: Path, log: str) -> int | None:
    return max(list_batches(checkpoint, log), default=None)


@dataclass(frozen=True)
class Planned:
    """An entry of the offset log: what Spark noted about the batch, and a line for each source."""

    about: dict[str, Any]
    sources: tuple[str, ...]

    @property
    def watermark_ms(self) -> int:
        """The watermark that the batch runs with; 0 where there is none yet."""
        return int(self.about["batchWatermarkMs"])

    @property
    def offsets(self) -> dict[TopicPartition, int]:
        return {where: offset for line in self.sources for where, offset in offsets_in(line).items()}

    @property
    def topic_ids(self) -> dict[str, str]:
        sources = [json.loads(line) for line in self.sources if line.startswith("{")]
        return {topic: id_ for source in sources for topic, id_ in ids_in(source).items()}


def read_planned(checkpoint: Path, batch: int) -> Planned:
    file = checkpoint / "offsets" / str(batch)
    try:
        version, about, *sources = file.read_text().splitlines()
        if version != "v1":
            raise PipelineError(f"{file} is an offset log of version {version}, and only v1 is supported")
        return Planned(json.loads(about), tuple(sources))
    except (OSError, ValueError) as error:
        raise PipelineError(f"{file} cannot be read as an offset log of Spark's: {error}") from error


def write_planned(checkpoint: Path, batch: int, planned: Planned) -> None:
    """Add a batch to the offset log, as Spark itself does before it runs one; durable when this returns."""
    text = "\n".join(["v1", json.dumps(planned.about), *planned.sources])
    replace_text(checkpoint / "offsets" / str(batch), text)


@dataclass(frozen=True)
class Done:
    """The last batch that is done, when, and the offsets behind it with their topics' ids; nothing before the first."""

    batch: int | None = None
    finished_s: float | None = None
    offsets: dict[TopicPartition, int] = field(default_factory=dict)
    ids: dict[str, str] = field(default_factory=dict)


def read_done(checkpoint: Path) -> Done:
    batch = last_batch(checkpoint, "commits")
    if batch is None:
        return Done()
    planned = read_planned(checkpoint, batch)
    finished_s = (checkpoint / "commits" / str(batch)).stat().st_mtime
    return Done(batch, finished_s, planned.offsets, planned.topic_ids)
