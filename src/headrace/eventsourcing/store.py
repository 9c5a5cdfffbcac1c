"""The contract of a store of events; `testing/contracts/events.py` holds every store to it.

What always holds:

- An append is whole or not at all, over all of its streams, and durable when `append` returns.
- Check and append are one step: of two writers that expect the same version, or whose conditions exclude each other,
  one gets a `Conflict`.
- The events of a stream have the versions 1, 2, 3 … in the order of their positions.
- A reader that goes on after the last position it has read misses nothing: no event ever appears before one that
  `read` has returned, or at or before what `last_position` has returned.
- A store may be used by several threads at once.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Optional, Protocol, runtime_checkable

from headrace.eventsourcing.model import (
    ALL,
    Appended,
    Condition,
    NewEvent,
    Query,
    Snapshot,
    StoredEvent,
    StreamAppend,
    StreamInfo,
)

OnProgress = Callable[[int, int], None]
"""Called with how many events were looked at, and how many there are, about."""


class EventStore(Protocol):
    """Appends events and reads them, by stream and by position."""

    def append(
        self, appends: Sequence[StreamAppend], *, condition: Condition | None = None, command_id: str = ""
    ) -> Appended:
        """Append to several streams, all or nothing.

        First the command id: if an append with it was stored before, that one's result is returned, and nothing is
        written or checked. Then the condition, then the streams' versions in the order given: `Conflict` (or its kind
        `BoundaryConflict`) names what was expected and what is there.
        """
        ...

    def find_command(self, command_id: str) -> Appended | None:
        """What the append with this command id did (`is_repeat` is true), or None if there is none.

        For a command that is sent again and refused, because of what it did the first time.
        """
        ...

    def read_stream(
        self, stream: str, *, after: int = 0, to: int | None = None, limit: int | None = None, backward: bool = False
    ) -> Iterator[StoredEvent]:
        """A stream's events with versions above `after` up to `to`; none for a stream that does not exist."""
        ...

    def read(
        self,
        query: Query = ALL,
        *,
        after: int = 0,
        to: int | None = None,
        limit: int | None = None,
        backward: bool = False,
    ) -> Iterator[StoredEvent]:
        """Events of all streams with positions above `after` up to `to`, in the order of positions.

        Never beyond what `last_position` answers: what was appended may be seen a moment later, if an append that began
        before has not ended. By stream it is seen at once.
        """
        ...

    def list_streams(
        self, category: str = "", *, after: str = "", on_progress: OnProgress | None = None
    ) -> Iterator[StreamInfo]:
        """The streams whose names come after a name, of one category or all, in the order of their names.

        However many there are, they are not all in memory. A store without a list of them reads its events for it.
        """
        ...

    def last_position(self) -> int:
        """Up to where all is settled: what is appended from now on has a higher position. 0 for an empty store."""
        ...

    def wait(self, after: int, timeout_s: float) -> bool:
        """Wait until `last_position` is above `after`; False if it is not within the time."""
        ...

    def close(self) -> None:
        """Let go of connections; those who wait return."""
        ...


@runtime_checkable
class SnapshotStore(Protocol):
    """Keeps the newest snapshot of each stream. One that is lost costs time, and nothing else."""

    def read_snapshot(self, stream: str, fold: str) -> Snapshot | None:
        """The stream's snapshot, if the fold of this fingerprint made it."""
        ...

    def write_snapshot(self, stream: str, snapshot: Snapshot) -> None:
        """Replace the stream's snapshot, unless it is a newer one of the same fold."""
        ...

    def delete_snapshots(self, stream: str) -> None:
        """Leave no snapshot of the stream."""
        ...


@runtime_checkable
class ErasableStore(EventStore, Protocol):
    """Lets events be redacted and archived (`erasure.py`, `archives.py`), and has stores beside it.

    Of an archived event a store keeps what names it: stream, version, position, type, tags, id, time and command id. So
    versions, conditions and command ids are what they were, and `read` and `read_stream` pass it by.
    """

    def redact(self, event: StoredEvent, stand_in: bytes, trace: NewEvent) -> Appended:
        """In one step: replace the data of an event, delete its stream's snapshots, and append the trace.

        `ErasureRefused` if the event is not as it was given: another was first.
        """
        ...

    def archive(self, stream: str, contents: Iterable[tuple[int, bytes]], trace: NewEvent, expected: int) -> Appended:
        """In one step: of events, given by version and content digest, keep what names them; and append the trace.

        `Conflict` if the stream is not at the expected version.
        """
        ...

    def read_everything(self, after: int, to: int) -> Iterator[StoredEvent]:
        """As `read`, with what is left of archived events: of schema -1, with the content digest as data."""
        ...

    def find_archived(self, query: Query) -> int | None:
        """The position of an archived event that a query matches."""
        ...

    def find_snapshot(self, stream: str) -> Snapshot | None:
        """The newest snapshot of a stream, whatever fold made it."""
        ...

    def beside(self, name: str, *, create: bool) -> Optional["EventStore"]:
        """A store of its own where this one is, for what is known about it; None if there is none, unless to create."""
        ...
