"""Lines from sockets into a topic.

What always holds: an `OK` is sent once its records are durable, in the order in which they came; a client that reads no
answers is not read from; and a connection that its client has ended for sending is closed once what it sent is durable,
or cannot be.
"""

import asyncio
import time
from collections.abc import Sequence
from concurrent.futures import Future
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
_MOST_UNANSWERED: Final = 64  # pieces of a connection
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
        unanswered: asyncio.Queue[_Unanswered | None] = asyncio.Queue(_MOST_UNANSWERED)

        async def take(found: Frames, is_end: bool) -> None:
            for wanted in answers.take(found, is_end=is_end):
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
        if not entries:
            return _Unanswered(wanted, None)
        try:
            return _Unanswered(wanted, await handing.hand_over(entries))
        except HeadraceError as error:
            return _Unanswered(wanted, None, str(error))


class _Unanswered(NamedTuple):
    wanted: Wanted
    future: Future[list[Placed]] | None
    problem: str = ""


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
