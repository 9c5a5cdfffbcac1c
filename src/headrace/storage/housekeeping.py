"""The work that nobody waits for, on a thread of its own: retention, compaction, syncing full segments, checkpoints.

A task that fails is logged and tried again at its next turn; it never takes the thread with it.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

from headrace.storage.compaction.cleaner import Cleaned
from headrace.storage.directory import LogDirectory
from headrace.telemetry.logs import get_logger

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Schedule:
    """How often each task runs, in seconds, and what it is told."""

    retention_s: float = 300.0
    compaction_s: float = 15.0
    checkpoint_s: float = 10.0
    producers_s: float = 600.0
    producer_expiration_ms: int = 86_400_000  # after how long a silent producer is forgotten


class Housekeeper:
    """Looks after a data directory until it is stopped."""

    def __init__(self, directory: LogDirectory, schedule: Schedule | None = None) -> None:
        self._schedule = schedule or Schedule()
        self._directory = directory
        self._tasks: list[tuple[Callable[[Schedule], float], Callable[[], None]]] = [
            (lambda schedule: schedule.checkpoint_s, self._checkpoint),
            (lambda schedule: schedule.retention_s, self._retain),
            (lambda schedule: schedule.compaction_s, self._compact),
            (lambda schedule: schedule.producers_s, self._expire_producers),
        ]
        self._is_stopped = False
        self._woken = threading.Event()
        self._thread = threading.Thread(target=self._run, name="headrace-housekeeping", daemon=True)

    def start(self) -> Self:
        self._thread.start()
        return self

    def stop(self) -> None:
        """Finish the task at hand, and end."""
        self._is_stopped = True
        self._woken.set()
        if self._thread.is_alive():
            self._thread.join()

    def reschedule(self, schedule: Schedule) -> None:
        """Work by another schedule from now on; what is due by it is done at once."""
        self._schedule = schedule
        self._woken.set()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _run(self) -> None:
        done = [time.monotonic()] * len(self._tasks)
        while True:
            schedule = self._schedule
            due = [at + every(schedule) for at, (every, _) in zip(done, self._tasks, strict=True)]
            self._woken.wait(max(0.0, min(due) - time.monotonic()))
            if self._is_stopped:
                return
            if self._woken.is_set():
                self._woken.clear()
                continue
            for index, (_, task) in enumerate(self._tasks):
                if due[index] <= time.monotonic() and not self._is_stopped:
                    try:
                        task()
                    except Exception as error:  # noqa: BLE001 - the other tasks, and the next turn, need the thread
                        _log.error("housekeeping failed", task=task.__name__.strip("_"), error=str(error))
                    done[index] = time.monotonic()

    def _checkpoint(self) -> None:
        self._directory.flush_rolled()
        self._directory.checkpoint()

    def _retain(self) -> None:
        for partition, count in self._directory.enforce_retention().items():
            _log.info("retention removed segments", log=str(partition), segments=count)

    def _expire_producers(self) -> None:
        for partition, count in self._directory.expire_producers(self._schedule.producer_expiration_ms).items():
            _log.info("forgot silent producers", log=str(partition), producers=count)

    def _compact(self) -> None:
        for partition, outcome in self._directory.compact().items():
            if isinstance(outcome, Cleaned):
                _log.info("compacted", log=str(partition), before=outcome.bytes_before, after=outcome.bytes_after)
            else:
                _log.error("compaction failed", log=str(partition), error=str(outcome))
