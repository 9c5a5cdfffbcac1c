"""Server-sent events as an answer: what a server tells a browser that listens, one event after another.

What always holds: one event is on its way at a time, and a client that does not take one in time is let go, so a slow
one costs no memory.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

_SEND_WITHIN_S: Final = 15.0


class EventStream(StreamingResponse):
    """Sends events; a client that does not take one in time is let go."""

    media_type = "text/event-stream"

    def __init__(self, events: AsyncGenerator[bytes, None], held: AbstractContextManager[object] | None = None) -> None:
        """`held` is what they need, and is had before the answer begins: a refusal could not be said any more."""
        super().__init__(events, headers={"cache-control": "no-store", "x-accel-buffering": "no"})
        self._held = nullcontext() if held is None else held

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._held:
            await super().__call__(scope, receive, send)

    async def stream_response(self, send: Send) -> None:
        async def within(message: Any) -> None:
            async with asyncio.timeout(_SEND_WITHIN_S):
                await send(message)

        try:
            await super().stream_response(within)
        except TimeoutError:
            return
