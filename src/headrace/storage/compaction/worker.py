"""A cleaning job in a process of its own: the job as JSON on standard input, the result as JSON on standard output.

The process is given the log's folder as a descriptor, not as a path: a log that is deleted meanwhile may have a
successor at its path, and its files are not this job's.

Walking records is work for the processor, and in the broker's process every moment of it would be taken from the
threads that append and read. A small job is not worth a process and is done in place.
"""

import dataclasses
import json
import os
import subprocess
import sys
from typing import Any

from headrace.storage.compaction.job import CleanedGroup, CleaningJob, CleaningResult, run
from headrace.storage.compaction.retained import LastRecord
from headrace.storage.errors import StorageError
from headrace.storage.filesystem import File, OsFileSystem
from headrace.storage.transaction_index import AbortedTransaction


class CleaningFailed(StorageError):
    """The worker ended without a result; the log is as it was."""


def run_in_process(job: CleaningJob, folder: File) -> CleaningResult:
    """Do the job in a child process and wait for it, without holding up other threads."""
    descriptor = folder.fileno()
    child = subprocess.run(
        [sys.executable, "-m", "headrace.storage.compaction.worker", str(descriptor)],
        input=json.dumps(dataclasses.asdict(dataclasses.replace(job, directory="."))).encode(),
        capture_output=True,
        check=False,
        pass_fds=(descriptor,),
    )
    if child.returncode != 0:
        reason = child.stderr.decode(errors="replace").strip().splitlines()
        raise CleaningFailed(f"compaction of {job.directory} failed: {reason[-1] if reason else child.returncode}")
    return _decode_result(json.loads(child.stdout))


def _decode_job(data: dict[str, Any]) -> CleaningJob:
    return CleaningJob(
        **{
            **data,
            "segments": tuple(map(tuple, data["segments"])),
            "aborted": tuple(AbortedTransaction(*entry) for entry in data["aborted"]),
            "producers": {int(key): LastRecord(*value) for key, value in data["producers"].items()},
        }
    )


def _decode_result(data: dict[str, Any]) -> CleaningResult:
    groups = tuple(
        CleanedGroup(
            tuple(group["segments"]), tuple(AbortedTransaction(*entry) for entry in group["aborted"]), group["size"]
        )
        for group in data["groups"]
    )
    return CleaningResult(**{**data, "groups": groups})


def main() -> None:
    """The child's side."""
    os.nice(5)  # whoever waits for an answer from the broker comes first
    os.fchdir(int(sys.argv[1]))
    job = _decode_job(json.load(sys.stdin))
    json.dump(dataclasses.asdict(run(job, OsFileSystem())), sys.stdout)


if __name__ == "__main__":
    main()
