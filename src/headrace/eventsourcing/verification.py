"""A store of events compared with its links: what was changed, removed, put in or moved, and what is not chained yet.

    found = verify(store)
    found.is_intact, found.findings

Each event has the digest that was chained; one that was redacted or archived has it still, and needs a trace besides.
The versions of a stream have no gaps, chained or not. Links themselves are a chain, whose last one may be compared with
one that was kept elsewhere (`against`): who can write to a store can write all of its links anew.

Memory is bounded: what is known of streams goes to a file that is gone thereafter if there are many of them.
"""

import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from headrace.delivery.redaction import REDACTION, read_redaction, read_stand_in
from headrace.eventsourcing.archives import InvalidArchive, digest_events, read_archive
from headrace.eventsourcing.errors import EventSourcingError
from headrace.eventsourcing.event_types import EVENT_TYPES
from headrace.eventsourcing.hash_chain import (
    LINKS,
    Entry,
    InvalidLink,
    Link,
    Mark,
    event_digest,
    hash_link,
    open_links,
    read_everything,
    read_link,
)
from headrace.eventsourcing.model import StoredEvent, where
from headrace.eventsourcing.store import EventStore
from headrace.eventsourcing.traces import ARCHIVAL, TRACE_TAG, ArchivalTrace, RedactionTrace, is_archived

MAX_FINDINGS: Final = 100  # that are named; all are counted
_STREAMS_IN_MEMORY: Final = 200_000
_REPORTED: Final = 5_000  # events
_NOTHING: Final = bytes(32)


class Finding(NamedTuple):
    """Something that is not as it was. `kind` is changed, removed, inserted, moved, untraced, gap, link or archive."""

    kind: str
    text: str
    stream: str = ""
    version: int = 0
    position: int = 0


@dataclass
class Verification:
    """What was found out about a store."""

    chained: int = 0  # events that are as they were chained
    unchained: int = 0
    links: int = 0
    newest: Mark | None = None
    redacted: list[RedactionTrace] = field(default_factory=list)
    archived: list[ArchivalTrace] = field(default_factory=list)
    archived_events: int = 0
    findings: list[Finding] = field(default_factory=list)
    found: int = 0  # findings, with those that are not named

    @property
    def is_intact(self) -> bool:
        return not self.found

    def add(self, finding: Finding) -> None:
        self.found += 1
        if len(self.findings) < MAX_FINDINGS:
            self.findings.append(finding)


def verify(
    store: EventStore,
    *,
    against: Mark | None = None,
    archives: Path | str | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> Verification:
    """Compare all events with their links, and archives in a folder with the traces that name them."""
    links = open_links(store, create=False)
    try:
        found = _Verifier(store, links, on_progress).run(against)
    finally:
        if links is not None:
            links.close()
    for trace in found.archived if archives is not None else ():
        if trace.archive:
            _check_archive(Path(archives or "") / trace.archive, trace, found)
    return found


def _check_archive(path: Path, trace: ArchivalTrace, result: Verification) -> None:
    reason = "holds other events than were archived"
    try:
        if digest_events(read_archive(path)) == trace.digest:
            return
    except InvalidArchive as error:
        reason = f"cannot be read: {error}"
    except OSError as error:
        reason = f"cannot be read: {(error.strerror or str(error)).lower()}"
    text = f"the archive {path} of events {trace.first} to {trace.last} of stream {trace.stream!r} {reason}"
    result.add(Finding("archive", text, trace.stream, trace.first))


class _Verifier:
    def __init__(
        self, store: EventStore, links: EventStore | None, on_progress: Callable[[int, int], None] | None
    ) -> None:
        self._store, self._links, self._on_progress = store, links, on_progress
        self._result = Verification()
        self._versions = _Versions()
        self._seen = 0
        self._total = 0
        self._redacted: dict[tuple[str, int], bytes] = {}
        self._archived: dict[str, int] = {}  # up to which version

    def run(self, against: Mark | None) -> Verification:
        # In this order: what is chained up to now was appended by then.
        last = self._newest_number()
        self._total = self._store.last_position()
        self._read_traces()
        rows = _Rows(read_everything(self._store, 0, self._total))
        previous: Mark | None = None
        for link in self._read_links(last):
            self._check_link(link, previous)
            if against is not None and link.number == against.number:
                self._check_against(link.mark, against)
            self._compare(link, rows)
            previous = link.mark
        self._result.newest = previous
        if against is not None and (previous is None or previous.number < against.number):
            self._result.add(Finding("link", f"link {against.number}, which was kept elsewhere, is not in the store"))
        for event in rows.up_to(None):
            self._look_at(event)
            self._result.unchained += 1
        self._versions.close()
        return self._result

    # --- links

    def _newest_number(self) -> int:
        for event in self._links.read_stream(LINKS, backward=True, limit=1) if self._links is not None else ():
            return event.version
        return 0

    def _read_links(self, last: int) -> Iterator[Link]:
        events = self._links.read_stream(LINKS, to=last) if self._links is not None else ()
        for number, event in enumerate(events, 1):
            try:
                if event.version != number:
                    raise InvalidLink(f"link {number} is missing")
                yield read_link(event.data)
            except InvalidLink as error:
                self._result.add(Finding("link", f"link {number} was tampered with: {error}"))
                return

    def _check_link(self, link: Link, previous: Mark | None) -> None:
        number, to, before = previous if previous is not None else Mark(0, 0, _NOTHING)
        right = hash_link(link.number, link.after, link.to, link.previous, link.linked_ms, link.entries)
        if link.hash != right:
            self._result.add(Finding("link", f"link {link.number} was changed: its hash is not that of what it holds"))
        if (link.number, link.after, link.previous) != (number + 1, to, before):
            self._result.add(Finding("link", f"link {link.number} does not go on from link {number}"))
        if link.to > self._total:
            text = f"link {link.number} covers events up to position {link.to}, and the store ends at {self._total}"
            self._result.add(Finding("removed", text, position=link.to))
        self._result.links += 1

    def _check_against(self, found: Mark, kept: Mark) -> None:
        if found != kept:
            self._result.add(Finding(
                "link", f"link {kept.number} is {found}, and {kept} was kept elsewhere: the links were written anew"
            ))  # fmt: skip

    # --- events

    def _compare(self, link: Link, rows: "_Rows") -> None:
        """Both are in the order of positions."""
        entries = iter(link.entries)
        entry = next(entries, None)
        for event in rows.up_to(link.to):
            while entry is not None and entry.position < event.position:
                self._miss(entry, link)
                entry = next(entries, None)
            self._look_at(event)
            if entry is None or entry.position > event.position:
                text = f"{event} was put in after link {link.number} was made"
                self._result.add(Finding("inserted", text, event.stream, event.version, event.position))
                continue
            self._match(event, entry, link)
            entry = next(entries, None)
        while entry is not None:
            self._miss(entry, link)
            entry = next(entries, None)

    def _match(self, event: StoredEvent, entry: Entry, link: Link) -> None:
        if event_digest(event) == entry.digest:
            self._result.chained += 1
        elif (event.stream, event.version) != (entry.stream, entry.version):
            text = f"{event} is where {entry} was when link {link.number} was made"
            self._result.add(Finding("moved", text, event.stream, event.version, event.position))
        else:
            text = f"{event} is not as it was when link {link.number} was made"
            self._result.add(Finding("changed", text, event.stream, event.version, event.position))

    def _miss(self, entry: Entry, link: Link) -> None:
        text = f"{entry} is not there any more, and was when link {link.number} was made"
        self._result.add(Finding("removed", text, entry.stream, entry.version, entry.position))

    def _look_at(self, event: StoredEvent) -> None:
        """What has to be so with a link and without."""
        self._seen += 1
        if self._on_progress is not None and self._seen % _REPORTED == 0:
            self._on_progress(self._seen, self._total)
        expected = self._versions.advance(event.stream, event.version)
        if expected != event.version:
            text = f"{event} should be event {expected} of its stream: a part of the stream is missing, or twice there"
            self._result.add(Finding("gap", text, event.stream, event.version, event.position))
        if is_archived(event):
            self._result.archived_events += 1
            if event.version > self._archived.get(event.stream, 0) and not self._read_traces_of(event):
                self._untraced(event, "archived")
        elif (digest := read_stand_in(event.data)) is not None:
            traced = self._redacted.get((event.stream, event.version))
            if traced is None and self._read_traces_of(event):
                traced = self._redacted.get((event.stream, event.version))
            if traced != digest:
                self._untraced(event, "redacted")

    def _untraced(self, event: StoredEvent, what: str) -> None:
        text = f"{event} was {what}, and there is no trace of who did that and why"
        self._result.add(Finding("untraced", text, event.stream, event.version, event.position))

    # --- traces

    def _read_traces(self) -> None:
        for event in self._store.read(where(tags=[TRACE_TAG])):
            self._note_trace(event)

    def _read_traces_of(self, event: StoredEvent) -> bool:
        """Look again, for what was redacted or archived since; whether there is a trace."""
        before = len(self._redacted), self._archived.get(event.stream, 0)
        for later in self._store.read_stream(event.stream, after=event.version):
            if (event.stream, event.version) not in self._redacted and later.position > self._total:
                self._note_trace(later)
        return before != (len(self._redacted), self._archived.get(event.stream, 0))

    def _note_trace(self, event: StoredEvent) -> None:
        try:
            if event.type == REDACTION and (read := read_redaction(event.data)) is not None:
                self._redacted[event.stream, read[1]] = read[2]
                self._result.redacted.append(EVENT_TYPES.decode(event))
            elif event.type == ARCHIVAL:
                trace: ArchivalTrace = EVENT_TYPES.decode(event)
                self._archived[event.stream] = max(trace.last, self._archived.get(event.stream, 0))
                self._result.archived.append(trace)
        except EventSourcingError:
            return  # what it should be a trace of has none


class _Rows:
    """Events, handed out up to one position after the other."""

    def __init__(self, events: Iterator[StoredEvent]) -> None:
        self._events = events
        self._next = next(events, None)

    def up_to(self, position: int | None) -> Iterator[StoredEvent]:
        while self._next is not None and (position is None or self._next.position <= position):
            yield self._next
            self._next = next(self._events, None)


class _Versions:
    """At which version each stream is, of however many streams."""

    def __init__(self) -> None:
        self._recent: dict[str, int] = {}
        self._others: sqlite3.Connection | None = None

    def advance(self, stream: str, version: int) -> int:
        """The version that should come next in a stream, where this one comes."""
        last = self._recent.get(stream)
        if last is None:
            last = self._look_up(stream)
            if len(self._recent) >= _STREAMS_IN_MEMORY:
                self._spill()
        self._recent[stream] = version
        return last + 1

    def _look_up(self, stream: str) -> int:
        if self._others is None:
            return 0
        found = self._others.execute("select version from streams where name = ?", (stream,)).fetchone()
        return found[0] if found else 0

    def _spill(self) -> None:
        if self._others is None:
            self._others = sqlite3.connect("", check_same_thread=False)  # a file of its own, gone when it is closed
            self._others.execute("create table streams (name text primary key, version integer) without rowid")
        with self._others:
            self._others.executemany("insert or replace into streams values (?, ?)", self._recent.items())
        self._recent.clear()

    def close(self) -> None:
        if self._others is not None:
            self._others.close()
