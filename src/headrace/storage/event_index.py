"""Where the terms of a partition's events occur (`delivery/events.py`), beside its log: sorted runs in SQLite.

Entries come in the order of the log and are looked up by term. In one tree each of them would touch a page of its own;
so each portion that is written is a run, a table in order, and runs of about a size are merged into a larger one. An
entry is so rewritten a few times, in order, and a look-up asks every run: their number grows with the logarithm of what
is in them.

What always holds: everything before `place` is in here and nothing behind it, after a power cut as well: a portion and
its place are written in one transaction, and so is a merge. All of it is derived: a file that is damaged, or of another
format, is made anew from the log. One thread writes at a time, and others read meanwhile.
"""

import os
import re
import sqlite3
import threading
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from typing import Final, NamedTuple, TypeVar

from headrace.delivery.events import Entry, Event, Term, entries_of
from headrace.storage.filesystem import FileSystem

MEMORY: Final = ":memory:"
_FORMAT: Final = 1
_MERGED_RUNS: Final = 8  # as many of a level make one of the next
_PAGES_KIB: Final = 4096  # of memory for each connection, at most
_BUSY_S: Final = 30.0
_SCHEMA: Final = """
create table if not exists facts (format integer not null, owner text not null, place integer not null);
create table if not exists runs (id integer primary key, level integer not null);
"""
T = TypeVar("T")

IndexFailed = sqlite3.Error
"""What everything here raises, besides what files do."""


def is_damage(error: Exception) -> bool:
    """Whether a failure means that the file is of no use any more."""
    # Of the others one is about the disk, and one about a file that was closed.
    return isinstance(error, sqlite3.DatabaseError) and not isinstance(
        error, sqlite3.OperationalError | sqlite3.ProgrammingError
    )


class _Run(NamedTuple):
    id: int
    level: int


def _connect(path: str) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=_BUSY_S, check_same_thread=False)
    connection.execute("pragma journal_mode = wal")
    connection.execute("pragma synchronous = normal")  # a power cut may take the last portions, and never half of one
    connection.execute(f"pragma cache_size = -{_PAGES_KIB}")
    return connection


def remove_index(filesystem: FileSystem, path: str) -> None:
    for suffix in ("", "-wal", "-shm"):
        if filesystem.exists(path + suffix):
            filesystem.remove(path + suffix)


def is_foreign(path: str) -> bool:
    """Whether a file is there that is not an index: one that is damaged is removed, and this one must not be."""
    if path == MEMORY or not os.path.exists(path) or not os.path.getsize(path):
        return False
    try:
        connection = sqlite3.connect(path)
        try:
            names = {name for (name,) in connection.execute("select name from sqlite_master where type = 'table'")}
        finally:
            connection.close()
    except sqlite3.Error:
        return True
    return not {"facts", "runs"} <= names or any(not re.fullmatch(r"facts|runs|run_\d+", name) for name in names)


class EventIndex:
    """The index of one partition; `owner` says of which, so that no other's file is taken for it."""

    def __init__(self, filesystem: FileSystem, path: str, owner: str) -> None:
        self._filesystem = filesystem
        self._path = path
        self._owner = owner
        self.place = 0  # up to where the log is in here
        self.runs: tuple[_Run, ...] = ()  # oldest first
        self._connections: list[sqlite3.Connection] = []
        self._writing = threading.Lock()
        self._reading: list[threading.Lock] = []
        try:
            self._open()
        except sqlite3.DatabaseError:
            self.clear()

    def _open(self) -> None:
        self._writer = self._connect()
        self._writer.executescript(_SCHEMA)
        facts = self._writer.execute("select format, owner, place from facts").fetchone()
        if facts is None:
            facts = (_FORMAT, self._owner, 0)
            with self._writer:
                self._writer.execute("insert into facts values (?, ?, ?)", facts)
        if facts[:2] != (_FORMAT, self._owner):
            raise sqlite3.DatabaseError("it is of another format, or of another partition")
        self.place = facts[2]
        self.runs = _read_runs(self._writer)
        self.here, self.elsewhere = self._open_reader(), self._open_reader()  # for the thread that appends, and others

    def _connect(self) -> sqlite3.Connection:
        connection = _connect(self._path)
        self._connections.append(connection)
        return connection

    def _open_reader(self) -> "IndexReader":
        lock = self._writing if self._path == MEMORY else threading.Lock()
        if lock is not self._writing:
            self._reading.append(lock)
        return IndexReader(self, self._writer if self._path == MEMORY else self._connect(), lock)

    def clear(self) -> None:
        """Forget everything, to begin anew."""
        self.close()
        if self._path != MEMORY:
            remove_index(self._filesystem, self._path)
        self._open()

    def close(self) -> None:
        """Close it once nobody reads or writes: the driver would crash the process."""
        with ExitStack() as stack:
            for lock in (self._writing, *self._reading):
                stack.enter_context(lock)
            for connection in self._connections:
                with suppress(sqlite3.Error):
                    connection.close()
            self._connections.clear()
            self._reading.clear()

    # --- writing, in one thread at a time

    def write(self, entries: Iterable[Entry], place: int) -> None:
        """Take in what comes next of the log, up to `place`."""
        portion = sorted(entries)
        with self._writing:
            self._write(portion, place)

    def _write(self, portion: list[Entry], place: int) -> None:
        with self._writer as connection:
            connection.execute("begin")
            if portion:
                run = _add_run(connection, level=0)
                connection.executemany(f"insert or replace into run_{run} values (?, ?, ?)", portion)  # noqa: S608
            connection.execute("update facts set place = ?", (place,))
        self.runs = _read_runs(self._writer)
        self.place = place
        while self._merge():
            pass

    def _merge(self) -> bool:
        """Merge the newest runs into one, if there are enough of their level; whether there were."""
        level = self.runs[-1].level if self.runs else 0
        merged = [run.id for run in self.runs if run.level == level]
        if len(merged) < _MERGED_RUNS:
            return False
        with self._writer as connection:
            connection.execute("begin")
            run = _add_run(connection, level + 1)
            parts = " union all ".join(f"select term, at, offset from run_{each}" for each in merged)  # noqa: S608
            connection.execute(f"insert or replace into run_{run} {parts} order by 1, 2")
            for each in merged:
                connection.execute(f"drop table run_{each}")
                connection.execute("delete from runs where id = ?", (each,))
        self.runs = _read_runs(self._writer)
        return True


def _add_run(connection: sqlite3.Connection, level: int) -> int:
    run = connection.execute("insert into runs (level) values (?)", (level,)).lastrowid
    assert run is not None
    connection.execute(
        f"create table run_{run} (term blob, at integer, offset integer, primary key (term, at)) without rowid"
    )
    return run


def _read_runs(connection: sqlite3.Connection) -> tuple[_Run, ...]:
    return tuple(_Run(*row) for row in connection.execute("select id, level from runs order by id"))


class IndexReader:
    """Looks terms up, on a connection of its own."""

    def __init__(self, index: EventIndex, connection: sqlite3.Connection, lock: threading.Lock) -> None:
        self._index = index
        self._connection = connection
        self._lock = lock  # for as long as it reads

    def find(self, term: Term, at: int, limit: int) -> list[tuple[int, int]]:
        """Places of a term from `at` on, ascending, with their offsets; no more than so many."""

        def ask(runs: Sequence[_Run]) -> list[tuple[int, int]]:
            found: list[tuple[int, int]] = []
            for run in runs:
                found += self._connection.execute(
                    f"select at, offset from run_{run.id} where term = ? and at >= ? order by at limit ?",  # noqa: S608
                    (term, at, limit - len(found)),
                )
                if len(found) >= limit:
                    break
            return found

        return self._read(ask)

    def find_last(self, term: Term) -> tuple[int, int] | None:
        """The last place of a term, and its offset."""

        def ask(runs: Sequence[_Run]) -> tuple[int, int] | None:
            for run in reversed(runs):
                found: tuple[int, int] | None = self._connection.execute(
                    f"select at, offset from run_{run.id} where term = ? order by at desc limit 1",  # noqa: S608
                    (term,),
                ).fetchone()
                if found is not None:
                    return found
            return None

        return self._read(ask)

    def _read(self, ask: Callable[[Sequence[_Run]], T]) -> T:
        with self._lock:
            while True:
                runs = self._index.runs
                try:
                    return ask(runs)
                except sqlite3.OperationalError:
                    # A merge has removed a run meanwhile, and made one with all that was in it.
                    if _read_runs(self._connection) == runs:
                        raise
                    if self._index.runs is runs:
                        self._index.runs = _read_runs(self._connection)


PORTION: Final = 16 * 1024  # entries that are written at once


class _Portion:
    """Entries in memory, by term."""

    __slots__ = ("count", "places")

    def __init__(self) -> None:
        self.places: dict[Term, list[tuple[int, int]]] = {}
        self.count = 0

    def entries(self) -> Iterator[Entry]:
        return (Entry(term, *place) for term, places in self.places.items() for place in places)


class LiveIndex:
    """An index, and in memory what was appended since it was written last: all events up to `end`.

    `note`, `begin_portion` and `end_portion` are for one thread; look-ups may come from others at the same time.
    """

    def __init__(self, index: EventIndex) -> None:
        self.index = index
        self.end = index.place
        self.portions: tuple[_Portion, ...] = (_Portion(),)  # the last one grows, one before it is being written

    @property
    def count(self) -> int:
        """How many entries are in memory."""
        return sum(portion.count for portion in self.portions)

    @property
    def has_portion(self) -> bool:
        """Whether there is enough to be written."""
        return self.portions[-1].count >= PORTION

    def note(self, events: Iterable[tuple[int, Event]], end: int) -> None:
        """Take in the events of a batch, which ends before `end`."""
        portion = self.portions[-1]
        for term, at, offset in entries_of(events):
            portion.places.setdefault(term, []).append((at, offset))
            portion.count += 1
        self.end = end

    def begin_portion(self) -> Callable[[], None]:
        """What writes all that is in memory; meanwhile more may be noted."""
        portion, end = self.portions[-1], self.end
        self.portions = (portion, _Portion())
        return lambda: self.index.write(portion.entries(), end)

    def end_portion(self) -> None:
        """It was written."""
        self.portions = self.portions[1:]

    def reader(self, *, elsewhere: bool = False) -> "LiveReader":
        """What looks terms up, in the thread that appends or `elsewhere`."""
        return LiveReader(self, self.index.elsewhere if elsewhere else self.index.here)


class LiveReader:
    """Looks terms up in an index, and in what is in memory besides."""

    def __init__(self, live: LiveIndex, reader: IndexReader) -> None:
        self._live = live
        self._reader = reader

    @property
    def end(self) -> int:
        return self._live.end

    def find(self, term: Term, at: int, limit: int) -> list[tuple[int, int]]:
        """Places of a term from `at` on, ascending, with their offsets; no more than so many."""
        recent: list[tuple[int, int]] = []
        for portion in self._live.portions:  # first, since it may be in the index a moment later
            places = portion.places.get(term)
            if places:
                recent += places[bisect_left(places, (at, -1)) :][: limit - len(recent)]
        found = self._reader.find(term, at, limit)
        if recent:
            found = [place for place in found if place < recent[0]]
        return (found + recent)[:limit]

    def find_last(self, term: Term) -> int:
        """The last place of a term; 0 if there is none."""
        for portion in reversed(self._live.portions):
            if places := portion.places.get(term):
                return places[-1][0]
        last = self._reader.find_last(term)
        return last[0] if last else 0
