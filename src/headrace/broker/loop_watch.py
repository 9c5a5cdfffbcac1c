"""Whether a broker's event loop stood still: a measure for tests, on if `HEADRACE_LOOP_WATCH` names a folder.

A beat comes every `BEAT_S`. What the loop's thread worked between two beats, beyond the beat itself, it worked without
coming round: nobody was served meanwhile. That is measured in the thread's own processor time, not by the clock on the
wall: on a busy machine a thread stands still because others run, and that is no fault of the broker's. Time that the
garbage collector took is not counted either: in a test's own process it walks the test's objects. Nor is waiting for a
disk, which is no processor time: a sync on the loop's thread is not seen here.

Each stall is a line of JSON in the folder, in a file of the process: `tests/conftest.py` reads them after every test.
"""

import asyncio
import gc
import json
import os
import threading
import time
from collections.abc import Callable
from typing import Any

LIMIT_S = 0.1
BEAT_S = 0.01
VARIABLE = "HEADRACE_LOOP_WATCH"


class LoopWatch:
    """Watches one loop, from its thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, folder: str) -> None:
        self._loop = loop
        self._path = f"{folder}/{os.getpid()}.stalls"
        self._thread = threading.get_ident()
        self._collecting_since = 0.0
        self._collected_s = 0.0
        gc.callbacks.append(self._on_collection)
        self._worked_s = time.thread_time()
        self._beat_at = time.monotonic()
        self._beat = loop.call_later(BEAT_S, self._on_beat)

    def _on_beat(self) -> None:
        worked_s, beat_at = time.thread_time(), time.monotonic()
        held_s = worked_s - self._worked_s - self._collected_s - BEAT_S
        if held_s > LIMIT_S:
            self._write({"held_ms": round(held_s * 1000), "wall_ms": round((beat_at - self._beat_at) * 1000)})
        self._collected_s = 0.0
        self._worked_s, self._beat_at = worked_s, beat_at
        self._beat = self._loop.call_later(BEAT_S, self._on_beat)

    def _on_collection(self, phase: str, _: dict[str, Any]) -> None:
        if threading.get_ident() != self._thread:
            return
        if phase == "start":
            self._collecting_since = time.thread_time()
        else:
            self._collected_s += time.thread_time() - self._collecting_since

    def _write(self, facts: dict[str, Any]) -> None:
        with open(self._path, "a") as file:
            file.write(json.dumps(facts | {"pid": os.getpid(), "thread": threading.current_thread().name}) + "\n")

    def close(self) -> None:
        """End."""
        self._beat.cancel()
        gc.callbacks.remove(self._on_collection)


def watch_loop(loop: asyncio.AbstractEventLoop) -> Callable[[], None]:
    """Watch the running loop if that is asked for; what ends it."""
    folder = os.environ.get(VARIABLE)
    return LoopWatch(loop, folder).close if folder else lambda: None
