"""A WebSocket at work: records go out as fast as the client takes them, and its own go in and are answered.

What always holds: what waits for one client has an upper bound, in both directions: a client that does not read is let
go after a while, and of one that produces faster than the broker takes, no more is read. A bad message is answered and
harms nothing; a client that sends many of them is let go.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from typing import Final

from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from headrace.errors import HeadraceError
from headrace.gateways.http.socket_messages import PROTOCOL, Credit, Produce, RefusedMessage, message, read_message

_SEND_WITHIN_S: Final = 15.0
_MOST_UNDER_WAY: Final = 16  # messages that produce
_MOST_BAD: Final = 100
_NOT_TEXT: Final = 1007
_POLICY: Final = 1008
_TOO_SLOW: Final = 4000  # of our own: the client may come back with its place
_GOING_AWAY: Final = 1001

Write = Callable[[Produce], Awaitable[Awaitable[str]]]
"""Takes in what a client produces; what it returns waits for the answer."""


class Outgoing:
    """An event as its message; only records cost credit."""

    __slots__ = ("costs", "is_last", "text")

    def __init__(self, text: str, *, costs: bool = False, is_last: bool = False) -> None:
        self.text = text
        self.costs = costs
        self.is_last = is_last


class SocketSession:
    """One connection."""

    def __init__(
        self,
        socket: WebSocket,
        events: AsyncGenerator[list[Outgoing], None],
        write: Write | None,
        *,
        credit: int | None,
        heartbeat_s: float,
        refused: Callable[[], None],
        sent: Callable[[int], None],
    ) -> None:
        """With `credit`, only as many records are sent as the client has said. `refused` counts bad messages."""
        self._socket = socket
        self._events = events
        self._write = write
        self._credit = credit
        self._has_credit = asyncio.Event()
        self._heartbeat_s = heartbeat_s
        self._refused = refused
        self._sent = sent
        self._sending = asyncio.Lock()
        self._taking_in = asyncio.Lock()
        self._answers: set[asyncio.Task[None]] = set()
        self._room = asyncio.Semaphore(_MOST_UNDER_WAY)

    async def run(self) -> None:
        """Until the client goes, is let go, or the server ends."""
        offered = self._socket.scope.get("subprotocols") or []
        await self._socket.accept(PROTOCOL if PROTOCOL in offered else None)
        tasks: list[asyncio.Task[int]] = [
            asyncio.create_task(self._send_events()),
            asyncio.create_task(self._receive()),
        ]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                if (error := task.exception()) and not isinstance(error, WebSocketDisconnect | TimeoutError):
                    raise error
            code = next((task.result() for task in done if task.exception() is None), _TOO_SLOW)
        finally:
            for each in (*tasks, *self._answers):
                each.cancel()
            await asyncio.gather(*tasks, *self._answers, return_exceptions=True)
            await self._events.aclose()
        if self._socket.application_state is WebSocketState.CONNECTED:
            with suppress(Exception):
                async with asyncio.timeout(1.0):
                    await self._socket.close(code)

    async def _send(self, text: str) -> None:
        if not text.isascii():  # half a character, which UTF-8 does not have, as JSON itself escapes it
            text = text.encode(errors="backslashreplace").decode()
        async with self._sending, asyncio.timeout(_SEND_WITHIN_S):
            await self._socket.send_text(text)

    async def _send_events(self) -> int:
        async for events in self._events:
            records = 0
            for each in events:
                if each.costs:
                    await self._spend()
                    records += 1
                await self._send(each.text)
                if each.is_last:
                    return _TOO_SLOW
            self._sent(records)
        return _GOING_AWAY

    async def _spend(self) -> None:
        """Wait until the client wants another record."""
        while self._credit == 0:
            self._has_credit.clear()
            try:
                async with asyncio.timeout(self._heartbeat_s):
                    await self._has_credit.wait()
            except TimeoutError:
                await self._send(message("heartbeat"))
        if self._credit is not None:
            self._credit -= 1

    async def _receive(self) -> int:
        bad = 0
        while True:
            text = await self._next_text()
            if text is None:
                self._refused()
                return _NOT_TEXT
            try:
                said = read_message(text)
                if isinstance(said, Credit):
                    self._take_credit(said)
                    continue
                if self._write is None:
                    raise RefusedMessage("this connection may not produce: a token of an admin is needed", said.id)
            except RefusedMessage as error:
                self._refused()
                bad += 1
                await self._send(message("refused", id=error.id, error=str(error)))
                if bad >= _MOST_BAD:
                    return _POLICY
                continue
            await self._room.acquire()
            answer = asyncio.create_task(self._answer(said, self._write))
            self._answers.add(answer)
            answer.add_done_callback(self._answered)

    async def _next_text(self) -> str | None:
        """The next message; None for one that is not UTF-8, which would be another with marks in its place."""
        received = await self._socket.receive()
        if received["type"] == "websocket.disconnect":
            raise WebSocketDisconnect(received.get("code", 1005))
        text: str | None = received.get("text")
        try:
            return text if text is not None else (received.get("bytes") or b"").decode()
        except UnicodeDecodeError:
            return None

    def _take_credit(self, said: Credit) -> None:
        if self._credit is None:
            raise RefusedMessage("this connection has no credit to add to: open it with ?credit=100")
        self._credit = min(self._credit + said.records, 2**31)
        self._has_credit.set()

    async def _answer(self, said: Produce, write: Write) -> None:
        try:
            async with self._taking_in:  # or one that has to ask for its topic first came behind the next ones
                answering = await write(said)
            answer = await answering
        except HeadraceError as error:
            answer = message("refused", id=said.id, error=str(error))
        await self._send(answer)

    def _answered(self, task: asyncio.Task[None]) -> None:
        self._answers.discard(task)
        self._room.release()
        if not task.cancelled():
            task.exception()
