"""What was taken out of a store leaves a trace: an event of ours in the very stream that it was taken out of.

There everybody learns of it who has to: whoever follows the stream, its category or its tags, and whoever decided by
what was there before, for the stream is at another version now. A trace is found by its tags, too.

What always holds: a trace is appended in the step that it tells of, and says whose digest is what was taken out.
"""

from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

from headrace.delivery.redaction import REDACTION
from headrace.eventsourcing.model import StoredEvent

ARCHIVAL: Final = "headrace:archival"
TRACE_TYPES: Final = frozenset({REDACTION, ARCHIVAL})
TRACE_TAG: Final = "headrace:trace"
ARCHIVED_SCHEMA: Final = -1  # of what is left of an archived event in a store: all but what it held


def trace_tag(stream: str) -> str:
    """By which the traces of one stream are found; a name may be too long for a tag."""
    return f"{TRACE_TAG}:{blake2b(stream.encode(), digest_size=16).hexdigest()}"


@dataclass(frozen=True, slots=True)
class Redacted:
    """What a redacted event is read as. A fold passes it by, unless the aggregate has a function for it."""

    type: str
    stream: str
    version: int
    position: int


@dataclass(frozen=True)
class RedactionTrace:
    """The data of one event was deleted."""

    stream: str
    version: int
    position: int
    type: str
    sha256: str  # of the data
    reason: str
    by: str


@dataclass(frozen=True)
class ArchivalTrace:
    """The events of a stream up to a version were taken out; `state` is what they led to, at a version of its own."""

    stream: str
    first: int
    last: int
    archive: str  # the name of the file, without its folder; empty if they were deleted
    digest: str  # of the digests of these events
    state: bytes | None
    state_version: int
    reason: str
    by: str


def is_archived(event: StoredEvent) -> bool:
    """Whether this is what is left of an archived event."""
    return event.schema == ARCHIVED_SCHEMA
