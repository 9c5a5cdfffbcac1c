"""Lines from sockets into a topic.

What always holds: an `OK` is sent once its records are durable, in the order in which they came; a client that reads no
answers is not read from; and a connection that its client has ended for sending is closed once what it sent is durable,
or cannot be.
"""

import asyncio
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import replace
from threading import Event
from typing import Final, NamedTuple

import uvloop

from headrace.connect.delivery import Entry
from headrace.errors import HeadraceError
from headrace.gateways.bad_input import BadInput
from headrace.gateways.framing import Frames
from headrace.gateways.gateway import Progress
from headrace.gateways.inlet import Inlet
from headrace.gateways.inward import Handing, close, durable, stopped
from headrace.gateways.lines.answers import PerBatch, PerLine, Wanted
from headrace.gateways.lines.settings import Acks, Keyed, LinesSettings
from headrace.gateways.streams import Connection, Streams, read_frames
from headrace.gateways.writing import Placed

_BATCH_BYTES: Final = 8 * 1024 * 1024
_MOST_UNANSWERED: Final = 4096  # lines of a connection: beyond that it is not read from
_TOGETHER: Final = 1024  # lines that are handed over, and answered, as one
_ENDING_S: Final = 0.3


class LinesGateway:
    """Listens for lines; takes its port when it is made."""

    def __init__(self, settings: LinesSettings, inlet: Inlet, stopping: Event) -> None:
        self.name = settings.name
        self.target = settings.topic
        self.progress: Progress = inlet.progress
        self._settings = settings
        self._inlet = inlet
        self._stopping = stopping
        self._bad_input = BadInput(settings.name, self.progress)
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
            if not self.progress.waiting:
                await self._streams.read_rest()
            self._streams.stop_reading()
            await close(self._inlet, self.progress)
            await self._streams.end(_ENDING_S)

    # --- a connection

    async def _serve(self, connection: Connection) -> None:
        settings = self._settings
        framer, handing = settings.framer(), Handing(self._inlet, settings.topic)
        key = connection.client.encode() if settings.key is Keyed.CLIENT else None
        headers = ((settings.header, connection.client.encode()),) if settings.header else ()

        def entries(frames: Sequence[bytes]) -> list[Entry]:
            now_ms = time.time_ns() // 1_000_000
            return [(key, frame, now_ms, headers) for frame in frames]

        async def take_silently(found: Frames, _: bool) -> None:
            await handing.hand_over_silently(entries(found.frames))

        if settings.acks is Acks.NONE:
            await read_frames(connection, framer, take_silently, self._bad_input, lambda: handing.is_settled)
            await handing.settled()
            return
        limit = settings.line_bytes
        answers = PerLine(limit) if settings.acks is Acks.LINE else PerBatch(limit, _BATCH_BYTES)
        unanswered = _Waiting()

        async def take(found: Frames, is_end: bool) -> None:
            for part, is_last in _in_parts(found):
                for wanted in answers.take(part, is_end=is_end and is_last):
                    await unanswered.put(await self._hand_over(handing, wanted, entries(wanted.records), connection))

        answering = asyncio.get_running_loop().create_task(_answer(connection, unanswered))
        try:
            await read_frames(connection, framer, take, self._bad_input, lambda: handing.is_settled)
            await unanswered.put(None)
            await answering
        finally:
            answering.cancel()

    async def _hand_over(
        self, handing: Handing, wanted: Wanted, entries: list[Entry], connection: Connection
    ) -> "_Unanswered":
        if wanted.refused:
            self._bad_input.refuse(next(filter(None, wanted.slots)), connection.client, wanted.refused)
        lines = len(wanted.slots) + len(entries)
        wanted = replace(wanted, records=[])  # they are the inlet's now, and nobody's once they are written
        if not entries:
            return _Unanswered(wanted, lines, None)
        try:
            return _Unanswered(wanted, lines, await handing.hand_over(entries))
        except HeadraceError as error:
            return _Unanswered(wanted, lines, None, str(error))


class _Unanswered(NamedTuple):
    wanted: Wanted
    lines: int
    future: Future[list[Placed]] | None
    problem: str = ""


class _Waiting:
    """What a client is to be answered, in its order: so many lines, and then it has to wait."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[_Unanswered | None] = asyncio.Queue()
        self._lines = 0
        self._room = asyncio.Event()

    async def put(self, one: _Unanswered | None) -> None:
        while self._lines >= _MOST_UNANSWERED:
            self._room.clear()
            await self._room.wait()
        self._lines += one.lines if one is not None else 0
        self._queue.put_nowait(one)

    async def get(self) -> _Unanswered | None:
        return await self._queue.get()

    def answered(self, one: _Unanswered) -> None:
        self._lines -= one.lines
        self._room.set()


def _in_parts(found: Frames) -> Iterator[tuple[Frames, bool]]:
    """So many frames at a time, and whether they are the last; the problem is behind all of them."""
    frames = found.frames
    for at in range(0, len(frames) - _TOGETHER, _TOGETHER):
        cut = [place - at for place in found.cut if at <= place < at + _TOGETHER]
        yield Frames(frames[at : at + _TOGETHER], cut), False
    at = max(0, (len(frames) - 1) // _TOGETHER * _TOGETHER)
    yield Frames(frames[at:], [place - at for place in found.cut if place >= at], found.problem), True


async def _answer(connection: Connection, unanswered: _Waiting) -> None:
    is_gone = False
    while (one := await unanswered.get()) is not None:
        try:
            placed = await durable(one.future) if one.future is not None else []
            said = one.wanted.failed(one.problem) if one.problem else one.wanted.said(placed)
        except HeadraceError as error:
            said = one.wanted.failed(str(error))
        if not is_gone:
            try:
                await connection.send(said)
            except (OSError, TimeoutError):
                is_gone = True
                connection.writer.transport.abort()
        unanswered.answered(one)
