"""Where a job keeps its checkpoint, and how it is known again.

`STATE/pipelines/JOB/` holds `job.json` (which version is in force, and of what job the checkpoint is) and `v1/`, `v2/`
and so on, a folder for each version with `checkpoint/`, the offsets' start, and the pinned schemas. A checkpoint of
another job is refused before anything is written: going on from it would mean to read from a stranger's offsets.
"""

import fcntl
import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from headrace.pipelines.errors import PipelineError
from headrace.pipelines.jobs.declare import Job
from headrace.stores.folders import replace_text

_FORMAT = 1


class ForeignCheckpoint(PipelineError):
    """A checkpoint that another job, or an earlier form of this one, has written."""


@dataclass(frozen=True)
class Record:
    """What is written down of a job besides Spark's own checkpoint."""

    name: str
    inputs: Mapping[str, str]  # each input's name in the function, and what it reads
    outputs: tuple[str, ...]
    version: int = 1
    started: bool = False
    format: int = _FORMAT


@dataclass(frozen=True)
class Place:
    folder: Path
    version: int

    @property
    def root(self) -> Path:
        return self.folder / f"v{self.version}"

    def checkpoint(self, output: str) -> Path:
        """Where Spark keeps a query; a job has one query per output."""
        return self.root / "checkpoint" / output

    def schema_file(self, given: str) -> Path:
        return self.root / "schemas" / f"{given}.json"

    @property
    def starts_file(self) -> Path:
        """Where to begin instead of what the job says, after a reset."""
        return self.root / "starts.json"


def describe_job(job: Job) -> Record:
    """What identifies a job: its name, and what it reads."""
    return Record(
        job.name, {word: given.name for word, given in sorted(job.inputs.items())}, tuple(sorted(job.outputs))
    )


def folder_of(job: Job, state: Path) -> Path:
    """The job's folder: its own choice, or under the state folder."""
    return Path(job.checkpoint) if job.checkpoint else state / "pipelines" / job.name


def read_record(folder: Path) -> Record | None:
    """What was written down; None if nothing was."""
    file = folder / "job.json"
    try:
        found = json.loads(file.read_text())
        return Record(**(found | {"outputs": tuple(found["outputs"])}))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError) as error:
        raise ForeignCheckpoint(f"{file} is not what a job writes there ({error}): name another checkpoint") from error


def write_record(folder: Path, record: Record) -> None:
    replace_text(folder / "job.json", json.dumps(asdict(record), indent=1))


def open_place(job: Job, state: Path) -> Place:
    """The job's place at the version in force; raises `ForeignCheckpoint` if it is not this job's."""
    folder = folder_of(job, state)
    known, mine = read_record(folder), describe_job(job)
    if known is None:
        if folder.exists() and any(not entry.name.startswith(("lock", ".job.json.")) for entry in folder.iterdir()):
            raise ForeignCheckpoint(
                f"{job.place}: {folder} holds something that is not a job's checkpoint: name an empty folder"
            )
        return Place(folder, 1)
    check(job, known, mine, folder)
    return Place(folder, known.version)


def check(job: Job, known: Record, mine: Record, folder: Path) -> None:
    if known.name != mine.name:
        raise ForeignCheckpoint(
            f"{job.place}: {folder} is the checkpoint of job {known.name!r}, not of {mine.name!r}: name another one"
        )
    if dict(known.inputs) != dict(mine.inputs):
        was, now = (", ".join(record.inputs.values()) for record in (known, mine))
        raise ForeignCheckpoint(
            f"{job.place}: job {job.name!r} has read {was} so far and is to read {now} now: its checkpoint cannot go "
            f"on with that. Rebuild it (headrace pipeline rebuild), or reset it (headrace pipeline reset)"
        )


def mark_started(job: Job, place: Place) -> None:
    """From now on the checkpoint is this job's."""
    write_record(place.folder, replace(describe_job(job), version=place.version, started=True))


def forget(place: Place) -> None:
    shutil.rmtree(place.root, ignore_errors=True)


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Hold a job's folder while it runs; two runs over one checkpoint would undo each other's work."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise PipelineError(
                f"a run holds {folder} already: stop it first (Ctrl-C there, or SIGTERM), then try again"
            ) from None
        yield
