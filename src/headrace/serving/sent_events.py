"""Server-sent events as an answer: what a server tells a browser that listens, one event after another.

What always holds: one event is on its way at a time, and a client that does not take one in time is let go, so a slow
one costs no memory.
"""

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import Any, Final

from starlette.responses import StreamingResponse
from starlette.types import Send

HEARTBEAT_S: Final = 15.0
HEARTBEAT: Final = b": still here\n\n"
_SEND_WITHIN_S: Final = 15.0


def encoded(kind: str, data: object, event_id: int | str | None = None) -> bytes:
    """An event as it goes over the wire; JSON has no line break of its own, which would end the event."""
    return encoded_text(kind, json.dumps(data, ensure_ascii=False), event_id)


def encoded_text(kind: str, line: str, event_id: int | str | None = None) -> bytes:
    """An event whose data are one line."""
    name = "" if event_id is None else f"id: {event_id}\n"
    text = f"{name}event: {kind}\ndata: {line}\n\n"
    return text.encode(errors="backslashreplace")  # half a character, as JSON itself escapes it


class EventStream(StreamingResponse):
    """Sends events; a client that does not take one in time is let go."""

    media_type = "text/event-stream"

    def __init__(self, events: AsyncGenerator[bytes, None]) -> None:
        super().__init__(events, headers={"cache-control": "no-store", "x-accel-buffering": "no"})

    async def stream_response(self, send: Send) -> None:
        async def within(message: Any) -> None:
            async with asyncio.timeout(_SEND_WITHIN_S):
                await send(message)

        try:
            await super().stream_response(within)
        except TimeoutError:
            return
