"""Server-sent events as they go over the wire. Pure."""

import json
from typing import Final

HEARTBEAT_S: Final = 15.0
HEARTBEAT: Final = b": still here\n\n"


def encoded(kind: str, data: object, event_id: int | str | None = None) -> bytes:
    """An event as it goes over the wire; JSON has no line break of its own, which would end the event."""
    return encoded_text(kind, json.dumps(data, ensure_ascii=False), event_id)


def encoded_text(kind: str, line: str, event_id: int | str | None = None) -> bytes:
    """An event whose data are one line."""
    name = "" if event_id is None else f"id: {event_id}\n"
    text = f"{name}event: {kind}\ndata: {line}\n\n"
    return text.encode(errors="backslashreplace")  # half a character, as JSON itself escapes it
