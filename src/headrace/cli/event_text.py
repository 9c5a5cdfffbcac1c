"""Stored events as text: a line for a person, an object for a program."""

import json
from typing import Any

from rich.highlighter import JSONHighlighter
from rich.text import Text

from headrace.cli.output import human_time, text
from headrace.errors import harmless
from headrace.eventsourcing.model import StoredEvent

_highlight = JSONHighlighter()


def event_as_line(event: StoredEvent, *, with_stream: bool = False, indent: str = "") -> Text:
    """One event: its number, time, type and what it holds, and then whence it comes."""
    where = f"{event.stream} {event.version}" if with_stream else f"{event.version:>4}"
    kind = event.type if event.schema == 1 else f"{event.type} v{event.schema}"
    line = Text.assemble(
        indent,
        (harmless(where), "cyan"),
        "  ",
        (human_time(event.time_ms), "dim"),
        "  ",
        (harmless(kind), "bold"),
        "  ",
    )
    held = Text(harmless(text(event.data) or ""))
    if held.plain[:1] in ("{", "["):
        _highlight.highlight(held)
    line.append_text(held)
    more = {
        "position": str(event.position),
        "id": event.id,
        "cause": event.causation_id,
        "correlation": event.correlation_id,
        "command": event.command_id,
        "tags": ",".join(event.tags),
        **event.headers,
    }
    return line.append(f"  {harmless(' '.join(f'{name}={value}' for name, value in more.items() if value))}", "dim")


def _refuse(word: str) -> float:
    raise ValueError(f"{word} is not JSON")


def event_as_json(event: StoredEvent) -> dict[str, Any]:
    """One event; what it holds is parsed if it is JSON, else it is a text."""
    try:
        data = json.loads(event.data, parse_constant=_refuse)
    except (ValueError, RecursionError):
        data = text(event.data)
    return {
        **event._asdict(),
        "data": data,
        "tags": list(event.tags),
        "headers": dict(event.headers),
    }
