"""Lines from sockets into a topic.

What always holds: an `OK` is sent once its records are durable, in the order in which they came; a client that reads no
answers is not read from; and a connection that its client has ended for sending is closed once what it sent is durable,
or cannot be.
"""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from threading import Event
from typing import Final, NamedTuple

import uvloop

from headrace.connect.delivery import Entry
from headrace.errors import HeadraceError
from headrace.gateways.framing import Frames
from headrace.gateways.gateway import Progress
from headrace.gateways.inlet import Dropped, Inlet, Overloaded
from headrace.gateways.inward import accepted, close, durable, stopped
from headrace.gateways.lines.answers import PerBatch, PerLine, Wanted
from headrace.gateways.lines.settings import Acks, Keyed, LinesSettings
from headrace.gateways.streams import Connection, Streams
from headrace.gateways.writing import Lot, Placed
from headrace.telemetry.logs import get_logger

_BATCH_BYTES: Final = 8 * 1024 * 1024
_MOST_UNANSWERED: Final = 64  # pieces of a connection
_ENDING_S: Final = 0.3
_log = get_logger(__name__)


class LinesGateway:
    """Listens for lines; takes its port when it is made."""

    def __init__(self, settings: LinesSettings, inlet: Inlet, stopping: Event) -> None:
        self.name = settings.name
        self.target = settings.topic
        self.progress: Progress = inlet.progress
        self._settings = settings
        self._inlet = inlet
        self._stopping = stopping
        self._streams = Streams(settings.streams, self._serve, self.progress)

    @property
    def source(self) -> str:
        return ", ".join(self._streams.sources)

    @property
    def port(self) -> int | None:
        """The one that was taken."""
        return self._streams.port

    def run(self) -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(self._run())

    async def _run(self) -> None:
        self._inlet.start()
        try:
            await self._streams.open()
            await stopped(self._stopping)
        finally:
            self._streams.stop_reading()
            await close(self._inlet, self.progress)
            await self._streams.end(_ENDING_S)

    # --- a connection

    async def _serve(self, connection: Connection) -> None:
        settings = self._settings
        work = _Taking(self._inlet, settings, connection.client)
        if settings.acks is Acks.NONE:
            await self._read(connection, work, work.take_silently)
            await work.settled()
            return
        limit = settings.line_bytes
        answers = PerLine(limit) if settings.acks is Acks.LINE else PerBatch(limit, _BATCH_BYTES)
        unanswered: asyncio.Queue[_Unanswered | None] = asyncio.Queue(_MOST_UNANSWERED)

        async def take(found: Frames, is_end: bool) -> None:
            for wanted in answers.take(found, is_end=is_end):
                await unanswered.put(await work.take(wanted))

        answering = asyncio.get_running_loop().create_task(_answer(connection, unanswered))
        try:
            await self._read(connection, work, take)
            await unanswered.put(None)
            await answering
        finally:
            answering.cancel()

    async def _read(
        self, connection: Connection, work: "_Taking", take: Callable[[Frames, bool], Awaitable[None]]
    ) -> None:
        framer = self._settings.framer()
        while True:
            try:
                data = await connection.read()
            except TimeoutError:
                if work.is_settled:
                    raise
                continue  # it waits for us
            if not data and connection.is_cut:  # by us: a line that is not whole is none
                return
            found = framer.feed(data) if data else framer.finish()
            self.progress.received += len(found.frames)
            if found.cut:
                more = self.progress.more
                more["cut"] = more.get("cut", 0) + len(found.cut)
            if found.problem:
                self.progress.refused += 1
                _log.warning("framing lost", gateway=self.name, client=connection.client, reason=found.problem)
            await take(found, not data)
            if not data or found.problem:
                return


_Future = Future[list[Placed]]


class _Unanswered(NamedTuple):
    wanted: Wanted
    future: _Future | None
    problem: str = ""


class _Taking:
    """What one client sends, on its way into the topic."""

    def __init__(self, inlet: Inlet, settings: LinesSettings, client: str) -> None:
        self._inlet = inlet
        self._topic = settings.topic
        self._key = client.encode() if settings.key is Keyed.CLIENT else None
        self._headers = ((settings.header, client.encode()),) if settings.header else ()
        self._last: _Future | None = None

    @property
    def is_settled(self) -> bool:
        """Whether all that was taken is written, or failed."""
        return self._last is None or self._last.done()

    async def settled(self) -> None:
        if self._last is not None:
            with contextlib.suppress(HeadraceError):
                await durable(self._last)

    async def take_silently(self, found: Frames, _: bool) -> None:
        count = len(found.frames)
        if not count:
            return
        try:
            future = await self._hand_over(found.frames)
        except Overloaded:
            self._inlet.progress.dropped += count
            return
        future.add_done_callback(lambda done: self._note(done, count))

    async def take(self, wanted: Wanted) -> _Unanswered:
        progress = self._inlet.progress
        progress.refused += sum(map(bool, wanted.slots))
        if not wanted.records:
            return _Unanswered(wanted, None)
        try:
            return _Unanswered(wanted, await self._hand_over(wanted.records))
        except HeadraceError as error:
            progress.dropped += len(wanted.records) if isinstance(error, Overloaded) else 0
            return _Unanswered(wanted, None, str(error))

    async def _hand_over(self, records: Sequence[bytes]) -> _Future:
        now_ms = time.time_ns() // 1_000_000
        entries: list[Entry] = [(self._key, record, now_ms, self._headers) for record in records]
        self._last = await accepted(self._inlet, Lot(self._topic, entries))
        return self._last

    def _note(self, done: _Future, count: int) -> None:
        """Nobody is told of lines that were not written, so they are counted."""
        error = done.exception()
        if error is not None and not isinstance(error, Dropped):
            more = self._inlet.progress.more
            more["not_written"] = more.get("not_written", 0) + count


async def _answer(connection: Connection, unanswered: "asyncio.Queue[_Unanswered | None]") -> None:
    is_gone = False
    while (one := await unanswered.get()) is not None:
        try:
            placed = await durable(one.future) if one.future is not None else []
            said = one.wanted.failed(one.problem) if one.problem else one.wanted.said(placed)
        except HeadraceError as error:
            said = one.wanted.failed(str(error))
        if is_gone:
            continue
        try:
            await connection.send(said)
        except (OSError, TimeoutError):
            is_gone = True
            connection.writer.transport.abort()
