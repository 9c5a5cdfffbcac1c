"""Outbox routing: a message in the database's log that is an event for others, sent to the topic of its kind. Pure.

An application writes the event in the transaction that makes it true:

    SELECT pg_logical_emit_message(true, 'outbox', '{"id": "…", "aggregatetype": "order", "aggregateid": "42",
                                                     "type": "OrderPaid", "payload": {…}}')

It arrives in the topic `outbox.event.order` under the key `42`, with the payload as its value and the id in a header:
the same as Debezium's outbox router makes of a row in a table, without the table.
"""

import json
from typing import NamedTuple


class RoutedEvent(NamedTuple):
    """Where an event goes, and as what."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]


def route(content: bytes) -> RoutedEvent | None:
    """The event in a message; None if it is none, which is then treated as any other message."""
    try:
        told = json.loads(content)
        kind = str(told["aggregatetype"])
    except (ValueError, TypeError, KeyError):
        return None
    payload = told.get("payload")
    value = (
        None if payload is None else payload if isinstance(payload, str) else json.dumps(payload, ensure_ascii=False)
    )
    headers = tuple(
        (name, str(told[field]).encode()) for field, name in (("id", "id"), ("type", "eventType")) if told.get(field)
    )
    key = told.get("aggregateid")
    return RoutedEvent(
        f"outbox.event.{kind}",
        None if key is None else str(key).encode(),
        None if value is None else value.encode(),
        headers,
    )
