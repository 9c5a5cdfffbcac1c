"""Changes of a database, from the source that captures have: PostgreSQL, MariaDB and MySQL, SQLite.

A source's position stands behind a batch, and a reader may stop at any change in it. So a token is the position before
the batch, and what of it was seen: how many changes of the log, how many other events since, and of a table that is
being read the key of its last row. The log is the same whenever it is read, so behind that position as many changes
are left out; a table is read on from that key.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

from headrace.connect.change import TRUNCATE, Batch, Event, Message, Position, SchemaChange
from headrace.connect.change import Change as RawChange
from headrace.connect.changes.row_change import Mark, Marks, RowChange
from headrace.connect.changes.stream import Portion
from headrace.connect.changes.token import Base, Token
from headrace.connect.errors import BadToken, PositionLost
from headrace.connect.filters import keyed
from headrace.connect.source import Source
from headrace.connect.table import Row, Table
from headrace.connect.unseen import stopped_sentences

_ANEW: Final = "begin anew without resume, and with snapshot=True for the rows as they are now"


class ReadingSource(Source, Protocol):
    """A source that tells of a row that it read where in its table that is."""

    def read_key(self, table: Table, row: Row) -> list[Any] | None:
        """The key of a row that was read, as positions hold it; None if its table has none."""
        ...


@dataclass(frozen=True, slots=True)
class Kind:
    """What readers of one kind of database do their own way."""

    of: Mapping[str, Any]  # what their tokens are of
    make: Callable[[Position | None], ReadingSource]  # with the stored position: some need it before they are open
    moved: Callable[[Position, str, Sequence[Any]], Position]  # a position, had a table been read up to a key
    stored: Callable[[Source, Position], Position] = lambda _source, position: position  # what a token keeps of it
    verify: Callable[[Source, Position], None] = lambda _source, _position: None  # once it is open
    key_of: Callable[[str], Sequence[str]] = lambda _table: ()
    why_not: str = ""  # why no token is of use, as nothing is kept for it
    remembered: Callable[[], Position | None] = lambda: None  # where a slot stands that `open` does not look at itself
    release: Callable[[], None] = lambda: None  # once it is closed


@dataclass(slots=True)
class _Seen:
    """How much was handed out behind a base."""

    logged: int = 0
    others: int = 0  # since the last that is in the log
    last: str = ""  # the transaction of the last one in the log
    read: list[Any] | None = None  # table and key of the last row that was read

    @property
    def tail(self) -> list[Any]:
        return [self.logged, self.others, self.last, self.read]

    def count(self, event: Event) -> None:
        if _is_logged(event):
            self.logged += 1
            self.others = 0
            self.last = _transaction_of(event)
        else:
            self.others += 1


class DatabaseReader:
    def __init__(self, kind: Kind, marks: Marks) -> None:
        self.marks = marks
        self.can_reopen = not kind.why_not
        self._kind = kind
        self._source: ReadingSource | None = None
        self._base: Base | None = None
        self._done = _Seen()  # handed out behind the base
        self._skip = _Seen()  # of that, what comes again
        self._stopped = ""
        self._failed: PositionLost | None = None

    def check(self, token: Token) -> None:
        if self._kind.why_not:
            raise BadToken(self._kind.why_not, "name a slot from the beginning, or begin anew without resume")
        token.check(self._kind.of)

    def open(self, token: Token | None) -> Mark:
        if token is None:
            self._open(self._kind.remembered())
            self._base = self._new_base()
        else:
            self._base, self._done = token.base, _seen_of(token)
            try:
                with _as_readers_begin_anew():
                    self._resume()
            except (
                KeyError,
                TypeError,
                ValueError,
                IndexError,
                AttributeError,
                ArithmeticError,
                AssertionError,
            ) as error:
                raise BadToken("what is in it makes no sense", "pass it as it was given") from error
        return Mark(self.marks, self._base, self._done.tail)

    def reopen(self) -> None:
        if self._source is not None:
            self._source.close()
        with _as_readers_begin_anew():
            self._resume()

    def _resume(self) -> None:
        """Go on behind what was handed out."""
        assert self._base is not None
        position, read = self._base.position, self._done.read
        self._skip = replace(self._done)
        self._open(position if read is None else self._kind.moved(position, str(read[0]), list(read[1])))

    def _open(self, position: Position | None) -> None:
        self._source = source = self._kind.make(position)
        source.open(position)
        if position is not None:
            self._kind.verify(source, position)

    def _new_base(self) -> Base:
        assert self._source is not None
        return Base(self._kind.of, self._kind.stored(self._source, self._source.position()))

    def next(self, timeout_s: float) -> Portion | None:
        source = self._source
        assert source is not None
        if self._failed is not None:
            raise self._failed
        with _as_readers_begin_anew():
            batch = source.next_batch(timeout_s)
        self._look_for_stopped(source)
        if batch is None:
            return None
        changes = list(self._changes(list(self._unseen(batch))))
        if not self._skip.logged:
            self._base, self._done = self._new_base(), _Seen()
        elif not changes:
            return None  # all of it was handed out before
        assert self._base is not None
        return Portion(changes, Mark(self.marks, self._base, self._done.tail), batch.is_last)

    def _look_for_stopped(self, source: Source) -> None:
        """A table that cannot be followed any more must not look like one in which nothing happens."""
        facts: Callable[[], Mapping[str, Any]] | None = getattr(source, "facts", None)
        why = stopped_sentences(facts()) if facts is not None else ""
        if why and why != self._stopped:
            self._stopped = why
            self._failed = PositionLost(why.partition(": headrace cdc")[0], _ANEW)  # after what stands before it

    def _unseen(self, batch: Batch) -> Iterator[Event]:
        """The events of a batch that were not handed out before."""
        skip = self._skip
        for event in batch.events:
            if not isinstance(event, RawChange | Message | SchemaChange):
                continue
            if _is_logged(event):
                if skip.logged:
                    skip.logged -= 1
                    if not skip.logged and skip.last != _transaction_of(event):
                        raise PositionLost(
                            "the database's log does not hold what it held when the token was made", _ANEW
                        )
                    continue
                skip.others = 0
            elif not _is_beside(event):
                if skip.logged:
                    continue
                if skip.others:
                    skip.others -= 1
                    continue
            yield event

    def _changes(self, events: list[Event]) -> Iterator[RowChange]:
        assert self._base is not None
        assert self._source is not None
        seen, base, kind = self._done, self._base, self._kind
        for event in events:
            if not _is_beside(event):
                seen.count(event)
            elif isinstance(event, RawChange) and event.after is not None:
                key = self._source.read_key(event.table, event.after)
                seen.read = seen.read if key is None else [event.table.full_name, key]
            yield shown(event, kind.key_of, Mark(self.marks, base, seen.tail))

    def acknowledge(self, position: Position) -> None:
        if self._source is not None:
            self._source.acknowledge(position)

    def keep_alive(self) -> None:
        alive: Callable[[], None] | None = getattr(self._source, "keep_alive", None)
        if alive is not None:
            alive()

    def close(self) -> None:
        source, self._source = self._source, None
        try:
            if source is not None:
                source.close()
        finally:
            self._kind.release()


@contextmanager
def _as_readers_begin_anew() -> Iterator[None]:
    """What is missing is missing; how to begin anew, a source says to those who have a capture."""
    try:
        yield
    except PositionLost as lost:
        raise PositionLost(lost.text, _ANEW) from lost


def _seen_of(token: Token) -> _Seen:
    try:
        logged, others, last, read = token.tail
        return _Seen(int(logged), int(others), str(last), None if read is None else [str(read[0]), list(read[1])])
    except (TypeError, ValueError, LookupError, OverflowError) as error:
        raise BadToken("what is in it makes no sense", "pass it as it was given") from error


def _is_logged(event: Event) -> bool:
    """Whether an event is a change of a row that stands in the log for good."""
    if isinstance(event, RawChange):
        return event.op != TRUNCATE and event.origin.snapshot == "false"
    return isinstance(event, Message)


def _is_beside(event: Event) -> bool:
    """Whether an event is of a table that is read beside the log: a row, or the truncate with which that begins.

    If the table is read again, both come again."""
    return isinstance(event, RawChange) and event.origin.snapshot != "false"


def _transaction_of(event: Event) -> str:
    """What tells one transaction of the log from others; where there is none, one change."""
    assert isinstance(event, RawChange | Message)
    return event.origin.transaction_id or str(event.place)


def shown(event: Event, key_of: Callable[[str], Sequence[str]], mark: Mark | None = None) -> RowChange:
    """An event as a reader sees it; `key_of` tells a table's chosen key."""
    origin = event.origin
    if isinstance(event, RawChange):
        table = keyed(event.table, key_of(event.table.full_name))
        old, new = table.python_row(event.before), table.python_row(event.after)
        row = new if new is not None else old
        key = {column.name: row[column.name] for column in table.key_columns} if row and table.key else None
        return RowChange(event.op, table.full_name, key, old, new, origin.transaction_id, origin.ts_us, mark)
    if isinstance(event, Message):
        message = {"prefix": event.prefix, "content": event.content}
        return RowChange("m", "", None, None, message, origin.transaction_id, origin.ts_us, mark)
    assert isinstance(event, SchemaChange)
    columns = {column.name: column.type_name for column in event.table.columns}
    name, what = event.table.full_name, {"change": event.what}
    return RowChange("s", name, None, what, columns, origin.transaction_id, origin.ts_us, mark)
