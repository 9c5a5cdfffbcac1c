"""Events as records of a topic, for every Kafka client to read: the key is the stream, the value what the event holds.

All else stands in headers: those that the broker looks into (`delivery/events.py`), those of ours that it does not, and
the event's own under their names. A position is an offset and one more, so that it begins at 1; a copy of an event that
is stored elsewhere has its position in a header.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final
from uuid import uuid4

from headrace.delivery import events as wire
from headrace.delivery.headers import CORRELATION_ID
from headrace.eventsourcing.model import Condition, NewEvent, Query, StoredEvent, StreamAppend
from headrace.records import Buffer, Header, Record, headers_in
from headrace.records.record import body_of, decode

ID: Final = "headrace-event-id"
SCHEMA: Final = "headrace-event-schema"
CAUSATION_ID: Final = "headrace-causation-id"
POSITION: Final = "headrace-event-position"  # of a copy, in the store that it is a copy from
_OURS: Final = "headrace-"
_ESCAPED: Final = "headrace-header:"  # of an event's own header, whose name begins as ours do
_UNNAMED: Final = "\t"  # begins the command id of an append that was given none, and so is sent twice without harm


def position_of(offset: int) -> int:
    return offset + 1


def offset_after(position: int) -> int:
    """The offset at which what comes after a position begins."""
    return max(position, 0)


def query_on_wire(query: Query) -> wire.Query:
    return tuple(wire.Criterion(each.types, each.tags, each.category) for each in query.criteria)


def condition_on_wire(condition: Condition) -> wire.Condition:
    return wire.Condition(query_on_wire(condition.query), offset_after(condition.after))


def make_command_id(command_id: str) -> str:
    """The command id that records get: the append's own, or one of which nobody knows."""
    return command_id or f"{_UNNAMED}{uuid4().hex}"


def records_of_append(
    appends: Sequence[StreamAppend], versions: Mapping[str, int], command: str, condition: Condition | None
) -> list[Record]:
    """The records of an append to streams that are at these versions."""
    records: list[Record] = []
    for each in appends:
        for version, event in enumerate(each.events, versions[each.stream] + 1):
            headers = list(map(Header._make, _headers_of(event, version, command)))
            if condition is not None and not records:
                headers.append(Header(wire.CONDITION, condition_on_wire(condition).to_text().encode()))
            records.append(Record(len(records), event.time_ms, each.stream.encode(), event.data, tuple(headers)))
    return records


def _headers_of(event: NewEvent | StoredEvent, version: int, command: str) -> list[tuple[str, bytes]]:
    headers = [
        (wire.VERSION, b"%d" % version),
        (wire.TYPE, event.type.encode()),
        (ID, event.id.encode()),
    ]
    if command:
        headers.append((wire.COMMAND, command.encode()))
    if event.tags:
        headers += [(wire.TAG, tag.encode()) for tag in event.tags]
    if event.schema != 1:
        headers.append((SCHEMA, b"%d" % event.schema))
    if event.causation_id:
        headers.append((CAUSATION_ID, event.causation_id.encode()))
    if event.correlation_id:
        headers.append((CORRELATION_ID, event.correlation_id.encode()))
    for name, value in event.headers.items():
        headers.append((f"{_ESCAPED}{name}" if name.startswith(_OURS) else name, value.encode()))
    return headers


def headers_of_copy(event: StoredEvent) -> tuple[tuple[str, bytes], ...]:
    """The headers of a stored event's copy in another topic."""
    return (*_headers_of(event, event.version, event.command_id), (POSITION, b"%d" % event.position))


def read_events(batches: Buffer) -> Iterator[StoredEvent]:
    """The events in record batches; a record that is not an event, as others may have written it, is passed by."""
    data = memoryview(batches)
    for position, header in headers_in(data):
        if not header.is_control:
            for record in decode(header, body_of(data[position : position + header.size], header)):
                event = read_stored(record)
                if event is not None:
                    yield event


def read_stored(record: Record) -> StoredEvent | None:
    """An event as it was appended; None for a record that is none."""
    version = schema = 1
    kind = ident = causation = correlation = command = ""
    tags = []
    own: dict[str, str] = {}
    is_event = False
    for key, raw in record.headers:
        value = (raw or b"").decode(errors="replace")
        if not key.startswith(_OURS):
            own[key] = value
        elif key == wire.VERSION:
            is_event = value.isdecimal()
            version = int(value) if is_event else 0
        elif key == wire.TYPE:
            kind = value
        elif key == wire.TAG:
            tags.append(value)
        elif key == wire.COMMAND:
            command = "" if value.startswith(_UNNAMED) else value
        elif key == ID:
            ident = value
        elif key == SCHEMA:
            schema = int(value) if value.isdecimal() else 1
        elif key == CAUSATION_ID:
            causation = value
        elif key == CORRELATION_ID:
            correlation = value
        elif key.startswith(_ESCAPED):
            own[key.removeprefix(_ESCAPED)] = value
    if not is_event or not kind or record.key is None:
        return None
    return StoredEvent(
        position_of(record.offset), record.key.decode(errors="replace"), version, kind, schema, record.value or b"",
        ident, record.timestamp, tuple(tags), causation, correlation, command, own,
    )  # fmt: skip


def read_copy(record: Record) -> StoredEvent | None:
    """An event as it stands in the store that it was copied from; None for a record that is no copy of one."""
    event = read_stored(record)
    positions = [value for key, value in record.headers if key == POSITION and value is not None and value.isdigit()]
    return event._replace(position=int(positions[-1])) if event is not None and positions else None
