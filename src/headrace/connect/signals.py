"""Signals: what an operator asks of a running source, through a table or a message in the database's log.

A row of the signal table, or a message with the prefix `headrace.signal`, says what: Debezium's `execute-snapshot` and
`stop-snapshot`, with the tables under `data-collections`.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from headrace.connect.change import CREATE, Change, Event, Message, SchemaChange

SIGNAL: Final = "headrace.signal"
EXECUTE, STOP = "execute-snapshot", "stop-snapshot"


@dataclass(frozen=True, slots=True)
class Signal:
    """Read these tables anew, or stop reading them."""

    kind: str
    tables: tuple[str, ...]
    reader: str = ""  # the source that is meant; all that read this database if it is empty


def signal_in(event: Event, signal_table: str) -> Signal | None:
    """The signal that an event is, if it is one that can be understood."""
    if isinstance(event, Message) and event.prefix == SIGNAL:
        return _signal(event.content.decode(errors="replace"), None)
    if isinstance(event, Change) and event.op == CREATE and event.table.full_name == signal_table:
        row = event.table.python_row(event.after) or {}
        return _signal(row.get("data"), row.get("type"))
    return None


def is_internal(event: Event, signal_table: str) -> bool:
    """Whether an event is about signals alone, and no reader's business."""
    if isinstance(event, Message):
        return event.prefix == SIGNAL
    return isinstance(event, Change | SchemaChange) and event.table.full_name == signal_table


def _signal(data: Any, kind: Any) -> Signal | None:
    try:
        told = json.loads(data) if isinstance(data, str) else data or {}
        tables = told.get("data-collections") or ()
        names = tuple(str(table) for table in tables)
        found = Signal(str(kind or told.get("type")), names, str(told.get("reader") or ""))
    except (ValueError, AttributeError, TypeError):
        return None
    return found if found.kind in (EXECUTE, STOP) else None


def signal_message(kind: str, tables: Sequence[str], reader: str = "") -> str:
    """The content of a message that asks for it."""
    return json.dumps({"type": kind, "data-collections": list(tables), "reader": reader})
