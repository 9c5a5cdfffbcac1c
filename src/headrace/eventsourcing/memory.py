"""Events in memory: for tests, and the measure of what a store does."""

import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice

from headrace.eventsourcing.errors import BoundaryConflict, Conflict, ErasureRefused
from headrace.eventsourcing.model import (
    ALL,
    ANY,
    Appended,
    Condition,
    NewEvent,
    Query,
    Snapshot,
    StoredEvent,
    StreamAppend,
    StreamInfo,
    category_of,
    check_append,
)
from headrace.eventsourcing.store import OnProgress
from headrace.eventsourcing.traces import ARCHIVED_SCHEMA, is_archived


class MemoryStore:
    """Keeps all events as long as the process lives. A position is an index into one list, and one more."""

    def __init__(self) -> None:
        self._events: list[StoredEvent] = []
        self._streams: dict[str, list[StoredEvent]] = {}
        self._commands: dict[str, Appended] = {}
        self._snapshots: dict[str, Snapshot] = {}
        self._beside: dict[str, MemoryStore] = {}
        self._has_archived = False
        self._changed = threading.Condition()
        self._is_closed = False

    def __str__(self) -> str:
        return "memory"

    def append(
        self, appends: Sequence[StreamAppend], *, condition: Condition | None = None, command_id: str = ""
    ) -> Appended:
        check_append(appends, condition, command_id)
        with self._changed:
            if (done := self.find_command(command_id)) is not None:
                return done
            if condition is not None:
                for found in self._find(condition.query, condition.after, len(self._events)):
                    raise BoundaryConflict(condition.query, condition.after, found.position)
            for each in appends:
                actual = len(self._streams.get(each.stream, ()))
                if each.expected not in (ANY, actual):
                    raise Conflict(each.stream, each.expected, actual)
            for each in appends:
                self._add(each, command_id)
            versions = {each.stream: len(self._streams[each.stream]) for each in appends}
            appended = Appended(len(self._events), versions)
            if command_id:
                self._commands[command_id] = replace(appended, is_repeat=True)
            self._changed.notify_all()
            return appended

    def find_command(self, command_id: str) -> Appended | None:
        return self._commands.get(command_id)

    def _add(self, append: StreamAppend, command_id: str) -> None:
        stream = self._streams.setdefault(append.stream, [])
        for new in append.events:
            stored = StoredEvent(
                len(self._events) + 1, append.stream, len(stream) + 1, new.type, new.schema, new.data, new.id,
                new.time_ms, tuple(new.tags), new.causation_id, new.correlation_id, command_id, new.headers,
            )  # fmt: skip
            stream.append(stored)
            self._events.append(stored)

    def read_stream(
        self, stream: str, *, after: int = 0, to: int | None = None, limit: int | None = None, backward: bool = False
    ) -> Iterator[StoredEvent]:
        kept = self._streams.get(stream, [])[max(after, 0) : to]
        found = [each for each in kept if not is_archived(each)]
        return islice(reversed(found) if backward else iter(found), limit)

    def read(
        self,
        query: Query = ALL,
        *,
        after: int = 0,
        to: int | None = None,
        limit: int | None = None,
        backward: bool = False,
    ) -> Iterator[StoredEvent]:
        last = len(self._events)
        found = self._find(query, after, last if to is None else min(to, last), backward=backward)
        return islice((each for each in found if not is_archived(each)), limit)

    def _find(self, query: Query, after: int, to: int, *, backward: bool = False) -> Iterator[StoredEvent]:
        indexes = range(max(after, 0), to)
        for index in reversed(indexes) if backward else indexes:
            event = self._events[index]
            if query.matches(event.stream, event):
                yield event

    def list_streams(
        self,
        category: str = "",
        *,
        after: str = "",
        on_progress: OnProgress | None = None,  # noqa: ARG002 - it takes no time
    ) -> Iterator[StreamInfo]:
        for name in sorted(self._streams):
            if name > after and category in ("", category_of(name)):
                yield StreamInfo(name, len(self._streams[name]))

    def last_position(self) -> int:
        return len(self._events)

    def wait(self, after: int, timeout_s: float) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: len(self._events) > after or self._is_closed, timeout_s)
            return len(self._events) > after

    def close(self) -> None:
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def read_snapshot(self, stream: str, fold: str) -> Snapshot | None:
        kept = self._snapshots.get(stream)
        return kept if kept is not None and kept.fold == fold else None

    def write_snapshot(self, stream: str, snapshot: Snapshot) -> None:
        with self._changed:
            kept = self._snapshots.get(stream)
            is_other = kept is not None and kept.fold not in (snapshot.fold, "")
            if kept is None or is_other or kept.version < snapshot.version:
                self._snapshots[stream] = snapshot

    def delete_snapshots(self, stream: str) -> None:
        self._snapshots.pop(stream, None)

    # --- erasure

    def redact(self, event: StoredEvent, stand_in: bytes, trace: NewEvent) -> Appended:
        with self._changed:
            if self._events[event.position - 1] != event:
                raise ErasureRefused(f"{event} was changed meanwhile: look at it again")
            self._replace(event._replace(data=stand_in))
            appended = self.append([StreamAppend(event.stream, [trace])])
            # No snapshot from before this: who folded the data writes none any more, unless of a later version.
            self._snapshots[event.stream] = Snapshot(appended.versions[event.stream], "", b"")
            return appended

    def archive(self, stream: str, contents: Iterable[tuple[int, bytes]], trace: NewEvent, expected: int) -> Appended:
        with self._changed:
            events = self._streams.get(stream, [])
            appended = self.append([StreamAppend(stream, [trace], expected)])
            self._has_archived = True
            for version, content in contents:
                event = events[version - 1]
                self._replace(
                    event._replace(schema=ARCHIVED_SCHEMA, data=content, causation_id="", correlation_id="", headers={})
                )
            return appended

    def _replace(self, event: StoredEvent) -> None:
        self._events[event.position - 1] = self._streams[event.stream][event.version - 1] = event

    def read_everything(self, after: int, to: int) -> Iterator[StoredEvent]:
        return self._find(ALL, after, min(to, len(self._events)))

    def find_archived(self, query: Query) -> int | None:
        end = len(self._events) if self._has_archived else 0
        return next((each.position for each in self._find(query, 0, end) if is_archived(each)), None)

    def find_snapshot(self, stream: str) -> Snapshot | None:
        kept = self._snapshots.get(stream)
        return kept if kept is not None and kept.fold else None

    def beside(self, name: str, *, create: bool) -> "MemoryStore | None":
        return self._beside.setdefault(name, MemoryStore()) if create else self._beside.get(name)
