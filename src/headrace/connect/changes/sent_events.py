"""Server-sent events, read: pieces of an answer in, events out. Pure.

What always holds: an event is handed out when its blank line has come, an answer may be cut anywhere, and an event that
is larger than anybody sends is refused before it is held.
"""

import json
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

_MOST_BYTES: Final = 64 * 1024 * 1024


class Event(NamedTuple):
    kind: str
    id: str
    data: dict[str, Any]


def parse_events(chunks: Iterable[bytes], most_bytes: int = _MOST_BYTES) -> Iterator[Event]:
    """The events whose data is a JSON object; raises `ValueError` for others."""
    kind, event_id, size = "message", "", 0
    data: list[bytes] = []
    for line in _lines(chunks, most_bytes):
        if not line:
            if data:
                yield Event(kind, event_id, _object(b"\n".join(data)))
            kind, data, size = "message", [], 0
            continue
        size += len(line)
        if size > most_bytes:
            raise ValueError(f"an event of more than {most_bytes} bytes")
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"event":
            kind = value.decode(errors="replace")
        elif name == b"id":
            event_id = value.decode(errors="replace")
        elif name == b"data":
            data.append(value)


def _object(text: bytes) -> dict[str, Any]:
    try:
        read = json.loads(text)
    except RecursionError:
        raise ValueError("an event that is nested beyond reason") from None
    if not isinstance(read, dict):
        raise ValueError("an event whose data is no object")  # noqa: TRY004 - it is the server's data
    return read


def _lines(chunks: Iterable[bytes], most_bytes: int) -> Iterator[bytes]:
    """Lines without their ends, which are CR, LF or both."""
    held: list[bytes] = []
    size = 0
    ended_with_cr = False
    for chunk in chunks:
        piece = chunk[1:] if ended_with_cr and chunk[:1] == b"\n" else chunk
        ended_with_cr = (piece[-1:] or (b"\r" if ended_with_cr and not piece else b"")) == b"\r"
        parts = piece.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        for part in parts[:-1]:
            yield b"".join([*held, part])
            held, size = [], 0
        held.append(parts[-1])
        size += len(parts[-1])
        if size > most_bytes:
            raise ValueError(f"a line of more than {most_bytes} bytes")
