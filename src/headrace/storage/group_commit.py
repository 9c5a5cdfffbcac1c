"""Making acknowledged writes durable, one sync for all that wait for it.

While a sync runs, more appends come in and wait; the next sync serves them all. So the rate of appends is not bound to
the rate of syncs, and an append waits for two of them at most.
"""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from headrace.storage.errors import StorageError
from headrace.storage.log import Log

Done = Callable[[StorageError | None], None]


class GroupCommit:
    """Syncs logs in threads of its own; logs do not wait for each other."""

    def __init__(self, threads: int = 4) -> None:
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix="headrace-commit")
        self._lock = threading.Lock()
        self._waiting: dict[Log, list[Done]] = {}  # a log is here while a thread is at work for it

    def submit(self, log: Log, offset: int, done: Done) -> None:
        """Call `done` once everything before `offset` is on the disk, or with the error if that cannot be said.

        It is called in another thread, or at once if there is nothing to wait for.
        """
        if log.durable_offset >= offset:
            done(None)
            return
        with self._lock:
            waiting = self._waiting.get(log)
            if waiting is not None:
                waiting.append(done)
                return
            self._waiting[log] = [done]
        self._executor.submit(self._serve, log)

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
        while True:
            with self._lock:
                waiting = self._waiting[log]
                if not waiting:
                    del self._waiting[log]
                    return
                self._waiting[log] = []
            error: StorageError | None = None
            try:
                log.flush()
            except StorageError as failed:
                error = failed
            for done in waiting:
                done(error)

    def close(self) -> None:
        """Serve whoever waits, then end the threads."""
        self._executor.shutdown(wait=True)
