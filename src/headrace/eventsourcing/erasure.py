"""One event redacted: its data is deleted, and a trace of that stays.

    redact(store, "account-7", 3, reason="a name was put in the note")

The event stays where it is, with its id, type, version, position and tags; in the place of its data stands a stand-in
with the data's digest (`delivery/redaction.py`), so that the hash chain holds. In the same step the trace is
appended to its stream, and the stream's snapshots are deleted: a state that was made with the data is not kept.

What is not data is not deleted: the stream's name, tags, headers. A digest tells nobody what was there, and lets
whoever can guess it see that he is right.
"""

import getpass
from typing import Any

from headrace.delivery.redaction import REDACTION, digest_of, make_stand_in, read_redaction, read_stand_in
from headrace.eventsourcing.errors import ErasureRefused
from headrace.eventsourcing.event_types import EVENT_TYPES, dump
from headrace.eventsourcing.model import Appended, NewEvent, StoredEvent, where
from headrace.eventsourcing.store import ErasableStore, EventStore
from headrace.eventsourcing.traces import (
    ARCHIVAL,
    TRACE_TAG,
    TRACE_TYPES,
    ArchivalTrace,
    RedactionTrace,
    trace_tag,
)

_MOST_TAGS = 98  # besides a trace's own


def redact(store: EventStore, stream: str, version: int, *, reason: str, by: str = "") -> Appended:
    """Delete the data of one event; what the trace's append did. `is_repeat` if it was redacted before.

    `by` is who wants it, else the user of this process.
    """
    erasable = require_erasable(store)
    event = _find_event(erasable, stream, version)
    if event.type in TRACE_TYPES:
        raise ErasureRefused(f"{event} is a trace of what was deleted, and stays")
    if read_stand_in(event.data) is not None:
        return _find_redaction(store, event)
    for found in store.read(where(types=[ARCHIVAL], tags=[trace_tag(stream)])):
        trace: ArchivalTrace = EVENT_TYPES.decode(found)
        if trace.state is not None and version <= trace.state_version:
            raise ErasureRefused(
                f"{event} is part of the state that {found} holds: archive the stream up to version "
                f"{trace.state_version} or further first, without that state"
            )
    made = RedactionTrace(stream, version, event.position, event.type, digest_of(event.data).hex(), reason, by or who())
    return erasable.redact(event, make_stand_in(digest_of(event.data)), make_trace(REDACTION, stream, made, event.tags))


def require_erasable(store: EventStore) -> ErasableStore:
    if not isinstance(store, ErasableStore):
        raise ErasureRefused(f"{store} has no way to delete what events hold: use one of Headrace's own stores")
    return store


def make_trace(kind: str, stream: str, trace: object, tags: tuple[str, ...] = ()) -> NewEvent:
    """A trace as an event; whoever asks by a tag of what was deleted meets it, too."""
    return NewEvent(kind, dump(trace), (TRACE_TAG, trace_tag(stream), *tags[:_MOST_TAGS]))


def who() -> str:
    """The user that this process runs as."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container's user may have no name
        return "unknown"


def _find_event(store: ErasableStore, stream: str, version: int) -> StoredEvent:
    for event in store.read_stream(stream, after=version - 1, to=version):
        return event
    first: Any = next(iter(store.read_stream(stream, limit=1)), None)
    if first is None:
        raise ErasureRefused(f"there is no stream {stream!r}")
    if 0 < version < first.version:
        raise ErasureRefused(f"event {version} of stream {stream!r} was archived: it is not in this store any more")
    raise ErasureRefused(f"stream {stream!r} has no event {version}")


def _find_redaction(store: EventStore, event: StoredEvent) -> Appended:
    """What an earlier redaction of an event did."""
    for found in store.read_stream(event.stream, after=event.version):
        if found.type == REDACTION and (read := read_redaction(found.data)) is not None and read[1] == event.version:
            return Appended(found.position, {event.stream: found.version}, is_repeat=True)
    raise ErasureRefused(f"{event} looks redacted, and there is no trace of it: verify the store")
