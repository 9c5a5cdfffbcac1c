"""Server-sent events as an answer: sent while the client reads them, and given up when it does not.

What always holds: one event is on its way at a time, the next one is made when it has gone; so a slow client costs no
memory. One that takes longer than `SEND_TIMEOUT_S` for an event is let go, and so is one that has left.
"""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import NamedTuple

from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

SEND_TIMEOUT_S = 15.0


class Event(NamedTuple):
    """A kind and something that can be written as JSON."""

    kind: str
    data: object

    def encoded(self) -> bytes:
        """As it goes over the wire; JSON has no line break of its own, which would end the event."""
        return f"event: {self.kind}\ndata: {json.dumps(self.data, ensure_ascii=False)}\n\n".encode()


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
        if is_ending:
            async with asyncio.timeout(1):
                await send(_LAST)

    async def _send(self, send: Send) -> None:
        async with aclosing(self._events) as events:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            async for event in events:
                async with asyncio.timeout(self._timeout_s):
                    await send({"type": "http.response.body", "body": event.encoded(), "more_body": True})
            await send(_LAST)


async def _ended(scope: Scope) -> None:
    """Returns when the dashboard is told to end; `app.state.ending` is set then."""
    app = scope.get("app")
    await (app.state.ending if app else asyncio.Event()).wait()


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
