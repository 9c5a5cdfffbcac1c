"""Snapshots while the log runs on: chunks of a table, each between two marks in the log (the DBLog paper, section 4).

A chunk is read between a low and a high watermark, which are messages in the database's own log. What the log says
between the two is newer than the chunk, or in it already: rows of the chunk whose key occurs there are dropped, and the
others are handed out where the high watermark stands. So a key's changes stay in the order of commits.

One race is closed besides: a transaction whose commit stands in the log before the low watermark may, for an instant,
be invisible to the chunk all the same, because commits become visible after they are logged. The chunk's snapshot says
which transactions it saw as running; if one of them has already gone by in the log, the chunk is read again.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final
from uuid import uuid4

from headrace.connect.change import READ, TRUNCATE, Change, Event, Message, Origin, TransactionEnd
from headrace.connect.postgres.ranges import Key, Range, Remaining
from headrace.connect.table import Row, Table

WATERMARK: Final = "headrace.watermark"
_REMEMBERED: Final = 4096  # transactions that went by


@dataclass(frozen=True, slots=True)
class ReadChunk:
    """Rows read between two watermarks, and the transactions that its snapshot saw as running."""

    table: Table
    rows: list[Row]
    running: frozenset[str]
    last_key: Key | None  # None if there is no row left in the range
    is_last: bool


# Reads the next rows of a range between watermarks of this name; None if the table is not there any more.
ReadBetween = Callable[[Range, str], ReadChunk | None]


class Incremental:
    """The ranges that are left, and the chunk that is on its way."""

    def __init__(self, remaining: Remaining, read: ReadBetween) -> None:
        self.remaining = remaining
        self._read = read
        self._name: str | None = None
        self._range: Range | None = None
        self._chunk: ReadChunk | None = None
        self._is_open = False
        self._is_stale = False
        self._changed: set[Row] = set()
        self._recent: deque[str] = deque(maxlen=_REMEMBERED)

    @property
    def is_active(self) -> bool:
        """Whether there is something to read."""
        return bool(self.remaining)

    def begin(self) -> None:
        """Read a chunk, if none is on its way."""
        while self._chunk is None and self.remaining:
            name = uuid4().hex
            wanted = self.remaining.ranges[0]
            chunk = self._read(wanted, name)
            if chunk is None:
                self.remaining = self.remaining.done(wanted)
                continue
            self._name, self._range, self._chunk = name, wanted, chunk
            self._is_open = False
            self._is_stale = any(xid in chunk.running for xid in self._recent)
            self._changed.clear()

    def through(self, events: Iterable[Event], origin: Callable[[], tuple[Origin, str]]) -> Iterator[Event]:
        """The events, with the rows of a chunk where its high watermark stands."""
        for event in events:
            chunk = self._chunk
            if isinstance(event, Message) and event.prefix == WATERMARK:
                if chunk is not None:
                    yield from self._mark(event, chunk, origin)
                continue
            if isinstance(event, TransactionEnd):
                self._went_by(event, chunk)
            elif self._is_open and chunk is not None and isinstance(event, Change):
                self._note(event, chunk)
            yield event

    def _went_by(self, event: TransactionEnd, chunk: ReadChunk | None) -> None:
        xid = event.origin.transaction_id
        if xid is not None:
            self._recent.append(xid)
            if chunk is not None and not self._is_open and xid in chunk.running:
                self._is_stale = True

    def _note(self, change: Change, chunk: ReadChunk) -> None:
        if change.table.full_name != chunk.table.full_name:
            return
        if change.op == TRUNCATE:
            self._chunk = ReadChunk(chunk.table, [], chunk.running, chunk.last_key, chunk.is_last)
        for row in (change.before, change.after):
            if row is not None:
                self._changed.add(change.table.key_of(row))

    def _mark(self, event: Message, chunk: ReadChunk, origin: Callable[[], tuple[Origin, str]]) -> Iterator[Event]:
        name, _, which = event.content.decode().partition(":")
        if name != self._name:
            return  # of a chunk that was given up
        if which == "low":
            self._is_open = True
            return
        assert self._range is not None
        self._chunk, self._is_open = None, False
        if self._is_stale:
            return
        if self._range in self.remaining.ranges:  # and was not called off meanwhile
            if chunk.is_last or chunk.last_key is None:
                self.remaining = self.remaining.done(self._range)
            else:
                self.remaining, _ = self.remaining.moved(self._range, chunk.last_key)
            where, place = origin()
            key_of = chunk.table.key_of
            for row in chunk.rows:
                if not chunk.table.key or key_of(row) not in self._changed:
                    yield Change(chunk.table, READ, None, row, where, place)
