"""Snapshots while the log runs on: chunks of a table, each between two marks in the log (the DBLog paper, section 4).

A chunk is read between a low and a high watermark, which its reader writes into the database's own log. What the log
says between the two is newer than the chunk, or in it already: rows of the chunk whose key occurs there are dropped,
and the others are handed out where the high watermark stands. So a key's changes stay in the order of commits. A change
that leaves out large values which it did not change does not drop its row: between the marks they were what the chunk
says, so the row is emitted as the log has it, completed from the chunk. If the table changed its shape between the two,
nobody knows in which of its shapes the chunk was read, and it is read again.

Rows of a table without a key cannot be told apart, so none of a chunk can be dropped. Such a table is read whole, and
where the high watermark stands it is emptied and told anew: its rows, and behind them the changes between the marks
that its reader did not see yet, which the chunk's transactions tell.

One race is closed besides, for databases that have it: a transaction whose commit stands in the log before the low
watermark may, for an instant, be invisible to the chunk all the same. Such a chunk says which transactions it saw as
running; if one of them has already gone by in the log, it is read again.

Pure but for the reader and the names of the marks.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Self, TypeAlias
from uuid import uuid4

from headrace.connect.change import (
    READ,
    TRUNCATE,
    Change,
    Event,
    Origin,
    Place,
    SchemaChange,
    TransactionEnd,
    UnseenChange,
)
from headrace.connect.table import UNCHANGED, Row, Table

Key: TypeAlias = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Range:
    """The rows of a table with keys above `after` and up to `upto`; None is the table's own end.

    `part` is the number of the only partition that is read, 0 if it is the whole table.
    """

    table: str
    after: Key | None = None
    upto: Key | None = None
    part: int = 0


@dataclass(frozen=True, slots=True)
class Remaining:
    """Every range that is not read to its end."""

    ranges: tuple[Range, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.ranges)

    def moved(self, before: Range, after: Key) -> tuple[Self, Range]:
        """One range has come so far."""
        now = replace(before, after=after)
        return replace(self, ranges=tuple(now if found == before else found for found in self.ranges)), now

    def done(self, finished: Range) -> Self:
        return replace(self, ranges=tuple(found for found in self.ranges if found != finished))

    def with_tables(self, tables: Sequence[str]) -> Self:
        """More tables, each from its beginning; one that is being read begins anew."""
        kept = tuple(found for found in self.ranges if found.table not in tables)
        return replace(self, ranges=(*kept, *(Range(table) for table in tables)))

    def with_part(self, table: str, part: int) -> Self:
        """One partition of a table, unless all of that is to be read anyway."""
        wanted = Range(table, part=part)
        is_there = wanted in self.ranges or Range(table) in self.ranges
        return self if is_there else replace(self, ranges=(*self.ranges, wanted))

    def without(self, tables: Sequence[str]) -> Self:
        """Some tables are not to be read on."""
        return replace(self, ranges=tuple(found for found in self.ranges if found.table not in tables))

    @property
    def tables(self) -> list[str]:
        return list(dict.fromkeys(found.table for found in self.ranges))

    def as_json(self) -> list[dict[str, Any]]:
        return [
            {
                "table": found.table,
                "after": list(found.after) if found.after is not None else None,
                "upto": list(found.upto) if found.upto is not None else None,
                **({"part": found.part} if found.part else {}),
            }
            for found in self.ranges
        ]

    @classmethod
    def from_json(cls, stored: list[dict[str, Any]]) -> Self:
        return cls(
            tuple(
                Range(
                    one["table"],
                    tuple(one["after"]) if one["after"] is not None else None,
                    tuple(one["upto"]) if one["upto"] is not None else None,
                    one.get("part", 0),
                )
                for one in stored
            )
        )


def moved_ranges(stored: Sequence[dict[str, Any]], table: str, key: Sequence[Any]) -> list[dict[str, Any]]:
    """What is left in a position, had the first range of a table been read up to a key."""
    found = [dict(one) for one in stored]
    for one in found:
        if one["table"] == table:
            one["after"] = list(key)
            break
    return found


LOW, HIGH = "low", "high"
_NOTHING: Final[frozenset[str]] = frozenset()


@dataclass(frozen=True, slots=True)
class ReadChunk:
    """Rows read between two watermarks, and the transactions that its snapshot saw as running."""

    table: Table
    rows: list[Row]
    last_key: Key | None  # None if there is no row left in the range
    is_last: bool
    running: frozenset[str] = _NOTHING
    has_seen: Callable[[str], bool] = lambda _transaction_id: True  # whether the rows are those after a transaction


# Reads the next rows of a range between watermarks of this name; None if the table is not there any more.
ReadBetween = Callable[[Range, str], ReadChunk | None]
# The watermark that an event is, None if it is something else.
MarkIn = Callable[[Event], str | None]


def mark_of(name: str, which: str) -> str:
    """What a watermark says."""
    return f"{name}:{which}"


class Incremental:
    """The ranges that are left, and the chunk that is on its way.

    `went_by` are the last transactions that the log has told; only who reads chunks with `running` in them needs it.
    """

    def __init__(self, remaining: Remaining, read: ReadBetween, mark_in: MarkIn, went_by: Collection[str] = ()) -> None:
        self.remaining = remaining
        self._read = read
        self._mark_in = mark_in
        self._went_by = went_by
        self._name: str | None = None
        self._range: Range | None = None
        self._chunk: ReadChunk | None = None
        self._is_open = False
        self._is_stale = False
        self._changed: dict[Row, Change | None] = {}  # by key: the newest row, if it lacks values that did not change
        self._later: list[Change] = []  # of a table without a key: what the chunk has not seen

    @property
    def is_active(self) -> bool:
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
            self._is_stale = any(xid in chunk.running for xid in self._went_by)
            self._changed.clear()
            self._later.clear()

    def through(self, events: Iterable[Event], origin: Callable[[], tuple[Origin, Place]]) -> Iterator[Event]:
        """The events without the watermarks, and with the rows of a chunk where its high watermark stands."""
        for event in events:
            chunk = self._chunk
            mark = self._mark_in(event)
            if mark is not None:
                if chunk is not None:
                    yield from self._mark(mark, chunk, origin)
                continue
            if chunk is not None:
                self._note(event, chunk)
            yield event

    def _note(self, event: Event, chunk: ReadChunk) -> None:
        if isinstance(event, TransactionEnd):
            if not self._is_open and event.origin.transaction_id in chunk.running:
                self._is_stale = True
        elif self._is_open and isinstance(event, Change):
            if not self._is_stale and event.table.full_name == chunk.table.full_name:
                self._note_change(event, chunk)
        elif isinstance(event, UnseenChange):
            # The mark of it may be younger than what it marks, so a chunk that is on its way counts for nothing.
            self._is_stale |= event.table.full_name == chunk.table.full_name
        elif self._is_open and isinstance(event, SchemaChange) and event.table.full_name == chunk.table.full_name:
            self._is_stale = True

    def _note_change(self, change: Change, chunk: ReadChunk) -> None:
        if not chunk.table.key:
            transaction_id = change.origin.transaction_id
            if transaction_id is not None and not chunk.has_seen(transaction_id):
                self._later.append(change)
            return
        if change.op == TRUNCATE:
            self._chunk = replace(chunk, rows=[])
        # A table that has no key of its own is read in the order of the one that was chosen for it.
        key_of = change.table.key_of if change.table.key else chunk.table.key_of
        if change.before is not None:
            self._changed[key_of(change.before)] = None
        if change.after is not None:
            self._changed[key_of(change.after)] = self._lacking(change, key_of(change.after))

    def _lacking(self, change: Change, key: Row) -> Change | None:
        """The change, with what an earlier one between the marks says; None if nothing is left to be completed."""
        assert change.after is not None
        if UNCHANGED not in change.after:
            return None
        if key not in self._changed:
            return change
        earlier = self._changed[key]
        return earlier and change._replace(after=_complete(change.after, earlier.after))

    def _mark(self, mark: str, chunk: ReadChunk, origin: Callable[[], tuple[Origin, Place]]) -> Iterator[Event]:
        name, _, which = mark.partition(":")
        if name != self._name:
            return  # of a chunk that was given up
        if which == LOW:
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
            if not chunk.table.key:
                yield Change(chunk.table, TRUNCATE, None, None, where, place)
            for row in chunk.rows:
                if not chunk.table.key or (key := key_of(row)) not in self._changed:
                    yield Change(chunk.table, READ, None, row, where, place)
                elif (newest := self._changed[key]) is not None:
                    # In another shape it was read after the table was altered, so after the change: the row has it.
                    is_same = newest.table.columns == chunk.table.columns
                    after = _complete(newest.after, row) if is_same else row
                    yield Change(chunk.table, READ, None, after, where, place)
            yield from self._later


def _complete(row: Row | None, earlier: Row | None) -> Row:
    """A row with what it leaves out because it did not change, as an earlier one has it."""
    assert row is not None
    assert earlier is not None
    return tuple(old if value is UNCHANGED else value for value, old in zip(row, earlier, strict=True))
