"""Making acknowledged writes durable, one sync for all that wait for it.

While a sync runs, more appends come in and wait; the next sync serves them all. So the rate of appends is not bound to
the rate of syncs, and an append waits for two of them at most.
"""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from time import monotonic
from typing import NamedTuple

from headrace.storage.errors import NotDurable, StorageError, SyncFailed
from headrace.storage.log import Log
from headrace.telemetry.logs import get_logger
from headrace.telemetry.metrics import Histogram

_log = get_logger(__name__)

Done = Callable[[StorageError | None], None]


class _Waiter(NamedTuple):
    """Who waits, for what, and how often the log had been cut when it was there."""

    offset: int
    cuts: int
    done: Done

    def loss(self, log: Log) -> NotDurable | None:
        """The error if what is durable now is not what was waited for, but what came in its place."""
        is_there = log.durable_offset >= self.offset and log.cuts == self.cuts
        return None if is_there else NotDurable(str(log.topic_partition), self.offset)


class GroupCommit:
    """Syncs logs in threads of its own; no log waits for more than one sync of another, however many wait for that."""

    def __init__(self, threads: int = 8) -> None:
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix="headrace-commit")
        self._lock = threading.Lock()
        # A log is here while a thread is at work for it, or about to be.
        self._waiting: dict[Log, list[_Waiter]] = {}
        self._queued = 0  # logs that no thread is at work for yet
        self._is_closing = False
        self.times = Histogram()  # of syncs; one thread at a time counts
        self.failures = 0

    def submit(self, log: Log, offset: int, done: Done) -> None:
        """Call `done` once everything before `offset` is on the disk, or with the error if that cannot be said.

        It is called in another thread, or at once if there is nothing to wait for. To be called by the thread that
        appended, before it appends anything else: an offset that is no longer there by then was cut off.
        """
        cuts = log.cuts
        if log.durable_offset >= offset:
            done(None)
            return
        if log.end_offset < offset:
            done(NotDurable(str(log.topic_partition), offset))
            return
        waiter = _Waiter(offset, cuts, done)
        with self._lock:
            waiting = self._waiting.get(log)
            if waiting is not None:
                waiting.append(waiter)
                return
            self._executor.submit(self._serve, log)
            self._queued += 1
            self._waiting[log] = [waiter]

    def wait(self, log: Log, offset: int) -> None:
        """Return once everything before `offset` is on the disk; raise if that cannot be said."""
        answered = threading.Event()
        errors: list[StorageError] = []

        def done(error: StorageError | None) -> None:
            if error:
                errors.append(error)
            answered.set()

        self.submit(log, offset, done)
        answered.wait()
        if errors:
            raise errors[0]

    def _serve(self, log: Log) -> None:
        """Sync a log for as long as somebody waits for it, and no other log has to be served before."""
        with self._lock:
            self._queued -= 1
        while True:
            with self._lock:
                waiting = self._waiting[log]
                if not waiting:
                    del self._waiting[log]
                    return
                self._waiting[log] = []
            began_s = monotonic()
            error = _flush(log)
            with self._lock:
                self.times.observe(monotonic() - began_s)
                self.failures += error is not None
            for waiter in waiting:
                try:
                    waiter.done(error or waiter.loss(log))
                except Exception as failed:  # noqa: BLE001 - the others are still waiting
                    _log.error("a waiter for durability failed", log=str(log.topic_partition), error=str(failed))
            with self._lock:
                if self._queued and self._waiting[log] and not self._is_closing:
                    self._executor.submit(self._serve, log)
                    self._queued += 1
                    return

    def close(self) -> None:
        """Serve whoever waits, then end the threads."""
        with self._lock:
            self._is_closing = True
        self._executor.shutdown(wait=True)


def _flush(log: Log) -> StorageError | None:
    try:
        log.flush()
    except StorageError as error:
        return error
    except Exception as error:  # noqa: BLE001 - whatever it was, nobody may be left waiting
        return SyncFailed(log.directory, error)
    return None
