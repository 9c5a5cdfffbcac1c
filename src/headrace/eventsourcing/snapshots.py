"""Snapshots: when one is written, where it is kept, and whether one that was found is of use.

A store in a database keeps them beside its events. A topic is no place for them: to find one among all, a process
would have to hold all of them. So a repository takes another store for them (`snapshot_store`), a file of its own or a
database that all processes share: what is lost, or old, costs time and nothing else.

What always holds: a snapshot is used only by the very fold that made it, and one that is kept apart from the events
only if the event that it ends with is still there. Another topic of that name, or a store that was set back to a
backup, makes it void, and so does an event that was redacted since.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Generic, TypeVar

from headrace.delivery.redaction import REDACTION
from headrace.errors import HeadraceError
from headrace.eventsourcing.aggregate import Aggregate
from headrace.eventsourcing.errors import ForgottenState, InvalidCommand, UndecodableEvent
from headrace.eventsourcing.model import Snapshot, where
from headrace.eventsourcing.store import EventStore, SnapshotStore
from headrace.eventsourcing.traces import trace_tag
from headrace.telemetry.logs import get_logger

_log = get_logger(__name__)
S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class Snapshots:
    """When a snapshot is written: after so many events since the last, or if loading took so long; 0 is never."""

    every: int = 0
    cost_ms: float = 0.0

    def is_due(self, events: int, took_s: float) -> bool:
        by_count = 0 < self.every <= events
        return by_count or (0 < self.cost_ms <= took_s * 1000 and events > 0)


@dataclass(frozen=True, slots=True)
class Restored(Generic[S]):
    """A state from a snapshot."""

    state: S
    version: int
    opened: frozenset[str]  # the keys of all whose personal values are in it


class SnapshotKeeper:
    """Reads and writes the snapshots of one repository."""

    def __init__(self, store: EventStore, policy: Snapshots, beside: SnapshotStore | None) -> None:
        self._events, self.policy, self._is_beside = store, policy, beside is not None
        self._kept: SnapshotStore | None = None
        if policy == Snapshots():
            if beside is not None:
                raise InvalidCommand(
                    "a snapshot_store is of no use without a policy: give snapshots=Snapshots(every=…)"
                )
        elif beside is not None:
            self._kept = beside
        elif isinstance(store, SnapshotStore):
            self._kept = store
        else:
            raise InvalidCommand(
                f"a {type(store).__name__} keeps no snapshots: give the repository a snapshot_store, such as "
                "sqlite('snapshots.db'), or leave `snapshots` out"
            )

    def read(self, aggregate: Aggregate[S], stream: str, to: int | None) -> Restored[S] | None:
        """The state of the stream's snapshot, if there is one of this fold that is not beyond a version."""
        if self._kept is None:
            return None
        found = self._kept.read_snapshot(stream, aggregate.fingerprint)
        if found is None or (to is not None and found.version > to):
            return None
        data = found.data
        if self._is_beside:
            ident, _, data = data.partition(b"\n")
            if not self._is_of(stream, found.version, ident):
                self._kept.delete_snapshots(stream)  # it would also keep newer ones out
                return None
        opened = set[str]()
        try:
            return Restored(aggregate.load_state(data, opened), found.version, frozenset(opened))
        except ForgottenState:
            self._kept.delete_snapshots(stream)
            return None
        except UndecodableEvent as error:
            _log.warning("a snapshot cannot be read, and all events are", stream=stream, error=str(error))
            return None

    def _is_of(self, stream: str, version: int, event_id: bytes) -> bool:
        """Whether a snapshot from elsewhere is of this stream as it is: nothing of it has been redacted since."""
        last = next(iter(self._events.read_stream(stream, after=version - 1, limit=1)), None)
        if last is None or last.version != version or last.id.encode() != event_id:
            _log.warning("a snapshot is of another history, and all events are read", stream=stream)
            return False
        redactions = where(types=[REDACTION], tags=[trace_tag(stream)])
        return next(iter(self._events.read(redactions, after=last.position, limit=1)), None) is None

    def write(
        self, aggregate: Aggregate[S], stream: str, state: S, version: int, event_id: str, opened: Collection[str] = ()
    ) -> None:
        """Keep a state as of the event with this id, sealed with the keys of all whose personal values are in it.

        One that fails is written another time: the events are stored, and that is what was asked for.
        """
        if self._kept is None:
            return
        try:
            data = aggregate.dump_state(state, opened)
            if self._is_beside:
                data = b"%b\n%b" % (event_id.encode(), data)
            self._kept.write_snapshot(stream, Snapshot(version, aggregate.fingerprint, data))
        except HeadraceError as error:
            _log.warning("a snapshot cannot be written", stream=stream, error=str(error))
