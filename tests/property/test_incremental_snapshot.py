"""Chunks between marks, against a database that goes on meanwhile: the copy is the table, whatever is cut off when.

The database leaves out large values that an update did not change, as PostgreSQL does; of a row that moved to another
key the source reads them again.
"""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headrace.connect.change import CREATE, DELETE, TRUNCATE, UPDATE, Change, Event, Message, Origin
from headrace.connect.incremental import HIGH, LOW, Incremental, Range, ReadChunk, Remaining, mark_of
from headrace.connect.postgres.chunks import WATERMARK, mark_in
from headrace.connect.postgres.types import TypeModes, codec_of
from headrace.connect.table import UNCHANGED, Column, Table

TABLE = Table(
    "s", "t", tuple(Column(n, *codec_of(25, -1, TypeModes(), lambda _: None)) for n in ("id", "v", "large")), (0,)
)
NOBODY = Origin(None, 0)
KEYS = st.integers(0, 5)
WRITES = st.lists(
    st.one_of(
        st.tuples(st.just("put"), KEYS),
        st.tuples(st.just("delete"), KEYS),
        st.tuples(st.just("move"), KEYS, KEYS),
        st.tuples(st.just("touch"), KEYS),
        st.tuples(st.just("truncate"), st.integers(0, 5)),  # now and then, or there is never anything to read
    ),
    min_size=1,
    max_size=3,
)


class Database:
    """Rows, and a log of what was done to them; every value is written once, so a stale one is noticed."""

    def __init__(self) -> None:
        self.rows: dict[int, tuple[int, int]] = {}
        self.log: list[Event] = []
        self._value = 0

    def _changed(self, op: str, before: Any, after: Any) -> None:
        self.log.append(Change(TABLE, op, before, after, NOBODY, ()))

    def write(self, statement: tuple[Any, ...]) -> None:
        kind, *keys = statement
        self._value += 1
        new = self._value
        if kind == "put":
            self._changed(UPDATE if keys[0] in self.rows else CREATE, None, (keys[0], new, new))
            self.rows[keys[0]] = (new, new)
        elif kind == "touch" and keys[0] in self.rows:
            self._changed(UPDATE, None, (keys[0], new, UNCHANGED))
            self.rows[keys[0]] = (new, self.rows[keys[0]][1])
        elif kind == "delete" and keys[0] in self.rows:
            self._changed(DELETE, (keys[0], *self.rows.pop(keys[0])), None)
        elif kind == "move" and keys[0] in self.rows and keys[1] not in self.rows:
            value, large = self.rows.pop(keys[0])
            self._changed(UPDATE, (keys[0], value, UNCHANGED), (keys[1], value, UNCHANGED))
            self.rows[keys[1]] = (value, large)
        elif kind == "truncate" and keys[0] == 5:
            self._changed(TRUNCATE, None, None)
            self.rows.clear()

    def complete(self, event: Event) -> Event:
        """A row that moved has its large value as it is now, if it is still there."""
        if not isinstance(event, Change) or event.before is None or event.after is None:
            return event
        row = self.rows.get(event.after[0])
        return event if row is None else event._replace(after=(*event.after[:2], row[1]))

    def mark(self, text: str) -> None:
        self.log.append(Message(WATERMARK, text.encode(), True, NOBODY, ()))


class Copy:
    """What a reader of the records holds, and what is stored with it."""

    def __init__(self) -> None:
        self.rows: dict[int, tuple[int, int | None]] = {}
        self.newest: dict[int, int] = {}  # of each value's key: values only grow
        self.place = 0
        self.remaining: list[dict[str, Any]] = []

    def take(self, event: Event) -> None:
        if not isinstance(event, Change):
            return
        if event.op == TRUNCATE:
            self.rows.clear()
        if event.before is not None:
            self.rows.pop(event.before[0], None)
        if event.after is not None:
            key, value, large = event.after
            assert event.op != "r" or value >= self.newest.get(key, 0), "a row that was read is older than a change"
            self.newest[key] = max(value, self.newest.get(key, 0))
            self.rows[key] = (value, self.rows.get(key, (0, None))[1] if large is UNCHANGED else large)


@given(st.data())
def test_the_copy_is_the_table_however_the_reader_is_cut_off(data: st.DataObject) -> None:
    database, copy = Database(), Copy()
    for key in data.draw(st.sets(KEYS, min_size=3)):
        database.write(("put", key))
    copy.place = len(database.log)  # the reader was not there
    copy.remaining = Remaining((Range("s.t"),)).as_json()
    limit = data.draw(st.integers(1, 4))

    def go_on() -> None:
        for statement in data.draw(WRITES):
            database.write(statement)

    def read(wanted: Range, name: str) -> ReadChunk:
        go_on()
        database.mark(mark_of(name, LOW))
        go_on()
        after = -1 if wanted.after is None else wanted.after[0]
        found = sorted((key, *row) for key, row in database.rows.items() if key > after)[:limit]
        go_on()
        database.mark(mark_of(name, HIGH))
        go_on()
        return ReadChunk(TABLE, [*found], (found[-1][0],) if found else None, len(found) < limit)

    def start() -> Incremental:
        return Incremental(Remaining.from_json(copy.remaining), read, mark_in)

    running = start()
    cuts = data.draw(st.integers(0, 4))
    while running.is_active or copy.place < len(database.log):
        running.begin()
        end = min(len(database.log), copy.place + data.draw(st.integers(1, 8)))
        events = list(running.through(database.log[copy.place : end], lambda: (NOBODY, ())))
        if cuts and data.draw(st.booleans()):  # before the batch was durable: nothing of it was seen
            cuts -= 1
            running = start()
            continue
        for event in events:
            copy.take(database.complete(event))
        copy.place, copy.remaining = end, running.remaining.as_json()
    assert copy.rows == database.rows
