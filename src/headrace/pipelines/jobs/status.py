"""How jobs stand, told from their checkpoints and the broker alone: no Spark is started for it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.client.errors import ClientError
from headrace.dead_letters import NO_LETTERS, Letters, letters_in
from headrace.pipelines.errors import PipelineError
from headrace.pipelines.jobs.declare import Job, TopicOutput
from headrace.pipelines.jobs.inputs import letter_boxes
from headrace.pipelines.jobs.lag import Lag, lag_of
from headrace.pipelines.jobs.place import Place, folder_of, locked, read_record
from headrace.pipelines.jobs.progress import Written
from headrace.pipelines.jobs.versions import at_version
from headrace.pipelines.spark.checkpoint import Done, read_done


@dataclass(frozen=True)
class OutputStatus:
    """One output of a job."""

    name: str
    target: str
    standing: Done
    lag: Lag | None


@dataclass(frozen=True)
class JobStatus:
    """A job, its version, whether somebody runs it now, and its outputs."""

    name: str
    version: int
    is_running: bool
    outputs: tuple[OutputStatus, ...]
    letters: Letters = NO_LETTERS

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "job": self.name,
            "version": self.version,
            "running": self.is_running,
            "dead_letters": self.letters.total,
            "dead_letter_reasons": dict(self.letters.reasons),
            "outputs": [
                {
                    "output": output.name,
                    "target": output.target,
                    "batch": output.standing.batch,
                    "finished": output.standing.finished_s,
                    "offsets": {str(where): offset for where, offset in output.standing.offsets.items()},
                    "lag_records": output.lag.records if output.lag else None,
                    "lag_ms": output.lag.time_ms if output.lag else None,
                }
                for output in self.outputs
            ],
        }


def status_of(job: Job, state: Path, bootstrap: str, now_ms: int) -> JobStatus:
    """How a job stands; a lag is left out where the broker cannot be asked."""
    folder = folder_of(job, state)
    record = read_record(folder)
    version = record.version if record else 1
    place = Place(folder, version)
    shown = at_version(job, version, switched=True)
    outputs = []
    for word, output in shown.outputs.items():
        stands = read_done(place.checkpoint(word))
        outputs.append(OutputStatus(word, described(output), stands, _lag(job, stands, bootstrap, now_ms)))
    return JobStatus(job.name, version, _is_running(folder), tuple(outputs), _letters(job, bootstrap))


def described(output: object) -> str:
    """What an output is, in a few words; never with a password."""
    if isinstance(output, TopicOutput):
        return str(output)
    if type(output).__str__ is not object.__str__:
        return str(output)
    target = getattr(output, "target", None)
    return f"table {target.table}" if target else type(output).__name__


def written(output: object) -> Written:
    """What an output is, for who draws where a job's rows go."""
    if isinstance(output, TopicOutput):
        return Written("topic", output.name, described(output))
    kind = getattr(output, "kind", "store")
    return Written(kind, output.name if kind == "view" else described(output), described(output))  # type: ignore[attr-defined]


def _lag(job: Job, stands: Done, bootstrap: str, now_ms: int) -> Lag | None:
    if not stands.offsets:
        return None
    try:
        return lag_of(job.home(bootstrap), stands.offsets, now_ms, stands.ids)
    except ClientError:
        return None


def _letters(job: Job, bootstrap: str) -> Letters:
    try:
        return letters_in(letter_boxes(job, bootstrap), job.home(bootstrap))
    except ClientError:
        return NO_LETTERS


def _is_running(folder: Path) -> bool:
    if not folder.exists():
        return False
    try:
        with locked(folder):
            return False
    except PipelineError:
        return True
