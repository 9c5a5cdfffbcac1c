"""What Spark's checkpoint of a query says, read without Spark: the last batch that was done, and up to where."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headrace.model import TopicPartition
from headrace.pipelines.errors import PipelineError
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
    done = _numbers(checkpoint / "commits")
    if not done:
        return Standing(None, None, {})
    batch = max(done)
    sources = _sources(checkpoint / "offsets" / str(batch))
    offsets = {where: offset for source in sources for where, offset in offsets_in(source).items()}
    ids = {topic: id_ for source in sources for topic, id_ in ids_in(source).items()}
    return Standing(batch, (checkpoint / "commits" / str(batch)).stat().st_mtime, offsets, ids)


def _numbers(folder: Path) -> list[int]:
    return [int(file.name) for file in folder.iterdir() if file.name.isdecimal()] if folder.is_dir() else []


def _sources(file: Path) -> list[dict[str, Any]]:
    """The offset log has a version, a line about the batch, and a line for each source."""
    try:
        version, _, *sources = file.read_text().splitlines()
    except (OSError, ValueError) as error:
        raise PipelineError(f"{file} cannot be read as an offset log of Spark's: {error}") from error
    if version != "v1":
        raise PipelineError(f"{file} is an offset log of version {version}, and only v1 is known here")
    return [json.loads(line) for line in sources if line.startswith("{")]
