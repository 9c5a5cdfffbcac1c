"""Server-sent events: as an answer, for the live parts of a page, and for a search in records.

What always holds: one event is on its way at a time, the next one is made when it has gone; so a slow client costs no
memory. One that takes longer than `SEND_TIMEOUT_S` for an event is let go, and so is one that has left. At most
`MAX_READERS` searches read at a time, each in a thread that ends soon after its client has gone and that is never more
than `_AHEAD` steps before it.
"""

import asyncio
import hashlib
import json
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from typing import NamedTuple

from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from headrace.client.cluster import Cluster
from headrace.client.reader import ReadRecord
from headrace.dashboard.search import Query, Step, scan
from headrace.dashboard.settings import Settings
from headrace.dashboard.watch import Watch
from headrace.errors import HeadraceError

SEND_TIMEOUT_S = 15.0


class Event(NamedTuple):
    """A kind and something that can be written as JSON."""

    kind: str
    data: object

    def encode(self) -> bytes:
        """As it goes over the wire; JSON has no line break of its own, which would end the event."""
        text = f"event: {self.kind}\ndata: {json.dumps(self.data, ensure_ascii=False)}\n\n"
        return text.encode(errors="backslashreplace")  # half a character, as JSON itself escapes it


_LAST: Message = {"type": "http.response.body", "body": b"", "more_body": False}
HEARTBEAT = Event("heartbeat", None)  # tells a proxy, and us, that the other side is there


class EventStream(Response):
    """Sends events until there are no more or nobody reads them."""

    media_type = "text/event-stream"

    def __init__(self, events: AsyncGenerator[Event, None], *, timeout_s: float = SEND_TIMEOUT_S) -> None:
        super().__init__(headers={"cache-control": "no-store", "x-accel-buffering": "no"})
        del self.headers["content-length"]
        self._events = events
        self._timeout_s = timeout_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until one of the two sides ends it, or the dashboard ends."""
        sending = asyncio.ensure_future(self._send(send))
        leaving = asyncio.ensure_future(_left(receive))
        ending = asyncio.ensure_future(_ended(scope))
        try:
            await asyncio.wait((sending, leaving, ending), return_when=asyncio.FIRST_COMPLETED)
        finally:
            is_ending = ending.done()
            for task in (sending, leaving, ending):
                task.cancel()
            results = await asyncio.gather(sending, leaving, ending, return_exceptions=True)
        if isinstance(results[0], Exception) and not isinstance(results[0], TimeoutError | OSError):
            raise results[0]
        if is_ending and results[0] is not None:  # it did not end by itself
            async with asyncio.timeout(1):
                await send(_LAST)

    async def _send(self, send: Send) -> None:
        async with aclosing(self._events) as events:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            async for event in events:
                async with asyncio.timeout(self._timeout_s):
                    await send({"type": "http.response.body", "body": event.encode(), "more_body": True})
            await send(_LAST)


async def _ended(scope: Scope) -> None:
    """Returns when the dashboard is told to end; `app.state.ending` is set then."""
    app = scope.get("app")
    await (app.state.ending if app else asyncio.Event()).wait()


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


MAX_CLIENTS = 64
_HEARTBEAT_S = 10.0

Parts = Callable[[], Awaitable[dict[str, str] | None]]  # None: the page is another one now, and has to be loaded


class LivePages:
    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._clients = 0

    @property
    def clients(self) -> int:
        return self._clients

    async def events(self, parts: Parts) -> AsyncGenerator[Event, None]:
        """An event for each part of a page whenever it changes."""
        if self._clients >= MAX_CLIENTS:
            yield Event("full", f"{MAX_CLIENTS} pages are open already: close one and reload this one")
            return
        self._clients += 1
        sent: dict[str, bytes] = {}
        version = -1
        try:
            while True:
                state = await self._watch.newer_than(version, _HEARTBEAT_S)
                if state.version == version:
                    yield HEARTBEAT
                    continue
                version = state.version
                found = await parts()
                if found is None:
                    yield Event("reload", None)
                    return
                for name, html in found.items():
                    # A part is kept as what it hashes to: 64 clients with a large table each would be much to hold.
                    digest = hashlib.blake2b(html.encode(), digest_size=16).digest()
                    if sent.get(name) != digest:
                        sent[name] = digest
                        yield Event("part", {"name": name, "html": html})
                yield Event("seen", {"version": version})
        finally:
            self._clients -= 1


MAX_READERS = 16
MAX_AT_ONCE = 300  # records in one event: more than a page shows anyway
_AHEAD = 8

Rows = Callable[[Sequence[ReadRecord]], str]


class Readers:
    """Runs searches, each in a thread of its own with its own connections."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._running = 0
        self._threads = ThreadPoolExecutor(MAX_READERS, "headrace-dashboard-read")  # the loop's own are few

    @property
    def running(self) -> int:
        return self._running

    def close(self) -> None:
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
