"""A search as a stream of events: the reading in a thread, its finds handed over one by one.

What always holds: at most `MAX_READERS` read at a time; the thread ends soon after its client has gone; and between the
two there is never more than `_AHEAD` steps.
"""

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from headrace.client.cluster import Cluster
from headrace.client.reader import ReadRecord
from headrace.dashboard.search import Query, Step, scan
from headrace.dashboard.settings import Settings
from headrace.dashboard.stream import HEARTBEAT, Event
from headrace.errors import HeadraceError

MAX_READERS = 16
MAX_AT_ONCE = 300  # records in one event: more than a page shows anyway
_AHEAD = 8
_HEARTBEAT_S = 10.0

Rows = Callable[[Sequence[ReadRecord]], str]


class Readers:
    """Runs searches, each in a thread of its own with its own connections."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._running = 0
        self._threads = ThreadPoolExecutor(MAX_READERS, "headrace-dashboard-read")  # the loop's own are few

    @property
    def running(self) -> int:
        """How many read now."""
        return self._running

    def close(self) -> None:
        """Begin no more."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def events(self, query: Query, rows: Rows) -> AsyncGenerator[Event, None]:
        """`records` as rows of HTML, `progress`, and at the end `done` or `problem`."""
        if self._running >= MAX_READERS:
            yield Event("problem", f"{MAX_READERS} searches are running already: close one and try again")
            return
        queue: asyncio.Queue[Step | str | None] = asyncio.Queue(_AHEAD)
        stopped = threading.Event()
        self._running += 1
        reading = asyncio.get_running_loop().run_in_executor(
            self._threads, self._read, query, stopped, asyncio.get_running_loop(), queue
        )
        reading.add_done_callback(self._ended)
        try:
            while True:
                try:
                    async with asyncio.timeout(_HEARTBEAT_S):
                        step = await queue.get()
                except TimeoutError:
                    yield HEARTBEAT
                    continue
                if not isinstance(step, Step):
                    yield Event("done", None) if step is None else Event("problem", step)
                    return
                if step.records:
                    shown = step.records[-MAX_AT_ONCE:]
                    yield Event("records", {"html": rows(shown), "count": len(shown)})
                yield Event(
                    "progress",
                    {"read": step.progress.read, "total": step.progress.total, "found": step.progress.found},
                )
        finally:
            stopped.set()
            while not queue.empty():  # let go of a thread that waits for room
                queue.get_nowait()

    def _ended(self, _: object) -> None:
        self._running -= 1

    def _read(
        self,
        query: Query,
        stopped: threading.Event,
        loop: asyncio.AbstractEventLoop,
        queue: "asyncio.Queue[Step | str | None]",
    ) -> None:
        def hand_over(step: Step | str | None) -> None:
            handed = asyncio.run_coroutine_threadsafe(queue.put(step), loop)
            while not stopped.is_set():
                try:
                    handed.result(0.5)
                    return
                except TimeoutError:
                    continue
            handed.cancel()

        try:
            with Cluster(self._settings.bootstrap, self._settings.connection) as cluster:
                for step in scan(cluster, query, stopped.is_set):
                    if stopped.is_set():
                        return
                    hand_over(step)
            hand_over(None)
        except HeadraceError as error:
            hand_over(str(error))
        except RuntimeError:
            if not loop.is_closed():  # the dashboard ended while this was read
                raise
