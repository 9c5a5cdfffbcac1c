"""What stores of events in SQL databases share: tables, reading by pages, connections, snapshots.

Beside the table of events, NAME, stand `NAME__tags` (tag and position, so that a query by tags looks at nothing else),
`NAME__snapshots` and `NAME__format`. How an append is done in one step is the databases' own.

A read asks for one page after another and holds nothing in between: what a reader does with an event may take its time.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, ClassVar, Final, Generic, TypeVar

from headrace.eventsourcing.errors import ErasureRefused, InvalidStore, StoreUnavailable, UnsupportedFormat
from headrace.eventsourcing.model import (
    ALL,
    Appended,
    Criterion,
    NewEvent,
    Query,
    Snapshot,
    StoredEvent,
    StreamAppend,
    StreamInfo,
)
from headrace.eventsourcing.pool import Pool
from headrace.eventsourcing.store import OnProgress
from headrace.eventsourcing.traces import ARCHIVED_SCHEMA
from headrace.stores.sql.database import Database
from headrace.stores.sql.statements import TableName, quote

FORMAT: Final = 1
COLUMNS: Final = ", ".join(map(quote, StoredEvent._fields))
TAG_SEPARATOR: Final = "\n"  # names are printable
_FIRST_PAGE, _LARGEST_PAGE = 32, 10_000  # events; of the first page nobody knows how large they are
_PAGE_BYTES: Final = 4 << 20
_STREAMS_AT_ONCE: Final = 500
_ALL_ROWS: Final = 2**62
D = TypeVar("D", bound=Database)
_HELD: Final = f"schema <> {ARCHIVED_SCHEMA}"  # of events that are not archived
Where = tuple[str, list[Any]]


class SqlEventStore(ABC, Generic[D]):
    """Reads events and keeps snapshots, in tables that the first who opens the store creates."""

    engine: ClassVar[type[Database]]
    text: ClassVar[str]  # the type of a text that is ordered by its code points
    binary: ClassVar[str]

    def __init__(self, table: TableName, connect: Callable[[], D], *, create: bool = True) -> None:
        self.table = table
        self.tags = table.with_suffix("tags")
        self.snapshots = table.with_suffix("snapshots")
        self.format = table.with_suffix("format")
        self.pool = Pool(connect)
        self.inline: list[Callable[[D, int], None]] = []  # what an append does besides, up to its last position
        with self._reachable() as db:
            if create:
                self._prepare(db)
            elif not self._is_ready(db):
                raise InvalidStore(f"there is no event store {table.plain!r} in {self}: check its address")

    @abstractmethod
    def create_tables(self, db: D) -> None:
        """The table of events and its tags, in a transaction, where nobody else creates any."""

    @abstractmethod
    def last_position(self) -> int: ...

    @contextmanager
    def _reachable(self) -> Iterator[D]:
        try:
            with self.pool.borrow() as db:
                yield db
        except self.engine.driver_error() as error:
            raise StoreUnavailable(f"the event store in {self} cannot be used: {str(error).strip()}") from error

    def _prepare(self, db: D) -> None:
        if not self._is_ready(db):
            with db.transaction():
                db.guard_definitions()
                if not self._is_ready(db):
                    self.create_tables(db)
                    archived = quote(self.table.with_suffix("archived").name)
                    db.run(f"CREATE INDEX {archived} ON {self.table} (position) WHERE schema = {ARCHIVED_SCHEMA}")
                    db.run(
                        f"CREATE TABLE {self.snapshots} (stream {self.text} PRIMARY KEY, version bigint NOT NULL, "
                        f"fold {self.text} NOT NULL, data {self.binary} NOT NULL)"
                    )
                    db.run(f"CREATE TABLE {self.format} (format integer NOT NULL)")
                    db.run(f"INSERT INTO {self.format} VALUES ({FORMAT})")  # noqa: S608 - all names are quoted

    def _is_ready(self, db: D) -> bool:
        if not db.exists(self.format):
            return False
        [(found,)] = db.run(f"SELECT max(format) FROM {self.format}")  # noqa: S608
        if found != FORMAT:
            raise UnsupportedFormat(f"event store {self.table.plain!r}", found, FORMAT)
        return True

    # --- reading

    def find_command(self, command_id: str) -> Appended | None:
        with self._reachable() as db:
            return self._find_command(db, command_id)

    def _find_command(self, db: D, command_id: str) -> Appended | None:
        rows = self.rows(
            db,
            f"SELECT stream, max(version), max(position) FROM {self.table} "  # noqa: S608
            "WHERE command_id = ? AND command_id <> '' GROUP BY stream",  # in the words of the index
            (command_id,),
        )
        if not rows:
            return None
        return Appended(max(row[2] for row in rows), {row[0]: row[1] for row in rows}, is_repeat=True)

    def rows(self, db: D, statement: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        """A query's rows, in the driver's quickest way."""
        return db.run(statement, values)

    def read_stream(
        self, stream: str, *, after: int = 0, to: int | None = None, limit: int | None = None, backward: bool = False
    ) -> Iterator[StoredEvent]:
        return self._pages((f"stream = ? AND {_HELD}", [stream]), "version", after, to, limit, backward=backward)

    def read(
        self,
        query: Query = ALL,
        *,
        after: int = 0,
        to: int | None = None,
        limit: int | None = None,
        backward: bool = False,
    ) -> Iterator[StoredEvent]:
        settled = self.last_position()
        to = settled if to is None else min(to, settled)
        return self._pages(query, "position", after, to, limit, backward=backward)

    def _pages(
        self,
        what: Where | Query,
        number: str,
        after: int,
        to: int | None,
        limit: int | None,
        *,
        backward: bool,
        stored: Callable[[list[tuple[Any, ...]]], list[StoredEvent]] | None = None,
    ) -> Iterator[StoredEvent]:
        order, index = ("DESC" if backward else "ASC"), StoredEvent._fields.index(number)
        size = _FIRST_PAGE
        while limit is None or limit > 0:
            bounds, numbers = [f"{number} > ?"], [max(after, 0)]
            if to is not None:
                bounds.append(f"{number} <= ?")
                numbers.append(to)
            count = size if limit is None else min(size, limit)
            selected, values = self._select(what, " AND ".join(bounds), numbers, order, count)
            with self._reachable() as db:
                rows = self.rows(db, f"{selected} ORDER BY {number} {order} LIMIT {count}", values)
            yield from (stored or _stored)(rows)
            if len(rows) < count:
                return
            limit = None if limit is None else limit - len(rows)
            after, to = (after, rows[-1][index] - 1) if backward else (rows[-1][index], to)
            average = 1 + sum(len(row[5]) for row in rows) // len(rows)
            size = min(max(_PAGE_BYTES // average, 1), _LARGEST_PAGE)

    def read_within(self, db: D, query: Query, *, after: int) -> list[StoredEvent]:
        """Events after a position as a transaction sees them, in which nobody else appends."""
        selected, values = self._select(query, "position > ?", [after], "ASC", _ALL_ROWS)
        return _stored(self.rows(db, f"{selected} ORDER BY position", values))

    def _project_inline(self, db: D, last: int) -> None:
        for project in self.inline:
            project(db, last)

    def _select(self, what: Where | Query, bounds: str, numbers: list[int], order: str, count: int) -> Where:
        chosen = f"SELECT {COLUMNS} FROM {self.table} WHERE"  # noqa: S608
        if not isinstance(what, Query):
            return f"{chosen} {what[0]} AND {bounds}", [*what[1], *numbers]
        if what.is_everything:
            return f"{chosen} {bounds} AND {_HELD}", list(numbers)
        if any(not each.tags for each in what.criteria):
            where, values = self._matching(what)
            return f"{chosen} {bounds} AND {_HELD} AND ({where})", [*numbers, *values]
        positions, values = self.positions(what, bounds, numbers, order, count, which=_HELD)
        return f"{chosen} position IN ({positions})", values

    def positions(
        self, query: Query, bounds: str, numbers: list[int], order: str, count: int, *, which: str = ""
    ) -> Where:
        """The first so many positions of events that a query matches; of all events, or `which` of them."""
        cut = f"ORDER BY position {order} LIMIT {count}"
        if any(not each.tags for each in query.criteria):
            where, values = self._matching(query)
            bounds = f"{bounds} AND {which}" if which else bounds
            return f"SELECT position FROM {self.table} WHERE {bounds} AND ({where}) {cut}", [*numbers, *values]  # noqa: S608
        # By the index of tags. Each part is put in order and cut by itself: a page costs what a page holds.
        parts, values = [], []
        for each in query.criteria:
            part, more = self._tagged(each, bounds, numbers, which)
            parts.append(f"SELECT * FROM ({part} {cut}) AS part")  # noqa: S608
            values += more
        return " UNION ".join(parts), values

    def _tagged(self, criterion: Criterion, bounds: str, numbers: list[int], which: str) -> Where:
        """Positions of events with the criterion's tags."""
        first, *others = sorted(criterion.tags)
        where, values = [f"tag = ? AND {bounds}"], [first, *numbers]
        for other in others:
            where.append(f"EXISTS (SELECT 1 FROM {self.tags} o WHERE o.tag = ? AND o.position = t.position)")  # noqa: S608
            values.append(other)
        rest, more = _of_event(criterion)
        if which:
            rest.append(which)
        if rest:
            where.append(
                f"EXISTS (SELECT 1 FROM {self.table} e WHERE e.position = t.position AND {' AND '.join(rest)})"  # noqa: S608
            )
        return f"SELECT position FROM {self.tags} t WHERE {' AND '.join(where)}", values + more  # noqa: S608

    def _matching(self, query: Query) -> Where:
        """What is true for rows of events that the query matches."""
        parts, values = [], list[Any]()
        for each in query.criteria:
            where, more = _of_event(each)
            for tag in sorted(each.tags):
                where.append(
                    f"EXISTS (SELECT 1 FROM {self.tags} t WHERE t.tag = ? AND t.position = {self.table}.position)"  # noqa: S608
                )
                more.append(tag)
            parts.append(" AND ".join(where) or "1 = 1")
            values += more
        return " OR ".join(f"({part})" for part in parts), values

    def list_streams(
        self, category: str = "", *, after: str = "", on_progress: OnProgress | None = None
    ) -> Iterator[StreamInfo]:
        where, values = "stream > ?", list[Any]()
        if category:  # by the index: what is before the dot begins with the category, or nearly so
            where += " AND stream >= ? AND stream < ? AND (stream = ? OR stream >= ?)"
            values = [category, f"{category}.", category, f"{category}-"]
        events, total = 0, self.last_position() if on_progress is not None else 0
        while True:
            with self._reachable() as db:
                rows = self.rows(
                    db,
                    f"SELECT stream, max(version) FROM {self.table} WHERE {where} "  # noqa: S608
                    f"GROUP BY stream ORDER BY stream LIMIT {_STREAMS_AT_ONCE}",
                    (after, *values),
                )
            yield from (StreamInfo(*row) for row in rows)
            events += sum(row[1] for row in rows)
            if on_progress is not None and rows:
                on_progress(events, total)
            if len(rows) < _STREAMS_AT_ONCE:
                return
            after = rows[-1][0]

    def close(self) -> None:
        self.pool.close()

    # --- snapshots

    def read_snapshot(self, stream: str, fold: str) -> Snapshot | None:
        with self._reachable() as db:
            rows = self.rows(
                db,
                f"SELECT version, fold, data FROM {self.snapshots} WHERE stream = ? AND fold = ?",  # noqa: S608
                (stream, fold),
            )
        return Snapshot(*rows[0]) if rows else None

    def write_snapshot(self, stream: str, snapshot: Snapshot) -> None:
        with self._reachable() as db:
            db.run(
                f"INSERT INTO {self.snapshots} AS kept (stream, version, fold, data) VALUES (?, ?, ?, ?) "  # noqa: S608
                "ON CONFLICT (stream) DO UPDATE SET version = excluded.version, fold = excluded.fold, "
                "data = excluded.data WHERE kept.fold NOT IN (excluded.fold, '') OR kept.version < excluded.version",
                (stream, snapshot.version, snapshot.fold, snapshot.data),
            )

    def delete_snapshots(self, stream: str) -> None:
        with self._reachable() as db:
            db.run(f"DELETE FROM {self.snapshots} WHERE stream = ?", (stream,))  # noqa: S608

    def find_snapshot(self, stream: str) -> Snapshot | None:
        with self._reachable() as db:
            rows = self.rows(
                db,
                f"SELECT version, fold, data FROM {self.snapshots} WHERE stream = ? AND fold <> ''",  # noqa: S608
                (stream,),
            )
        return Snapshot(*rows[0]) if rows else None

    # --- erasure

    @abstractmethod
    def writing(self) -> AbstractContextManager[D]:
        """A transaction that appends."""

    @abstractmethod
    def append_in(self, db: D, appends: Sequence[StreamAppend]) -> Appended:
        """As `append`, in a transaction."""

    def redact(self, event: StoredEvent, stand_in: bytes, trace: NewEvent) -> Appended:
        with self.writing() as db:
            changed = db.run(
                f"UPDATE {self.table} SET data = ? WHERE position = ? AND stream = ? AND version = ? AND data = ? "  # noqa: S608
                f"AND {_HELD} RETURNING position",
                (stand_in, event.position, event.stream, event.version, event.data),
            )
            if not changed:
                raise ErasureRefused(f"{event} was changed meanwhile: look at it again")
            appended = self.append_in(db, [StreamAppend(event.stream, [trace])])
            # No snapshot from before this: who folded the data writes none any more, unless of a later version.
            db.run(f"DELETE FROM {self.snapshots} WHERE stream = ?", (event.stream,))  # noqa: S608
            db.run(
                f"INSERT INTO {self.snapshots} (stream, version, fold, data) VALUES (?, ?, ?, ?)",  # noqa: S608
                (event.stream, appended.versions[event.stream], "", b""),
            )
        self.purge()
        return appended

    def archive(self, stream: str, contents: Iterable[tuple[int, bytes]], trace: NewEvent, expected: int) -> Appended:
        with self.writing() as db:
            db.run_many(
                f"UPDATE {self.table} SET schema = {ARCHIVED_SCHEMA}, data = ?, causation_id = '', "  # noqa: S608
                "correlation_id = '', headers = '' WHERE stream = ? AND version = ?",
                ((content, stream, version) for version, content in contents),
            )
            # Last: in PostgreSQL readers wait for what has begun to append.
            appended = self.append_in(db, [StreamAppend(stream, [trace], expected)])
        self.purge()
        return appended

    def purge(self) -> None:
        """Leave no old bytes in files that can be emptied."""

    def read_everything(self, after: int, to: int) -> Iterator[StoredEvent]:
        return self._pages(("1 = 1", []), "position", after, to, None, backward=False, stored=_stored_anyhow)

    def find_archived(self, query: Query) -> int | None:
        archived = f"schema = {ARCHIVED_SCHEMA}"
        with self._reachable() as db:
            if not db.run(f"SELECT 1 FROM {self.table} WHERE {archived} LIMIT 1"):  # noqa: S608
                return None
            positions, values = self.positions(query, "position > ?", [0], "ASC", 1, which=archived)
            [(found,)] = db.run(f"SELECT min(position) FROM ({positions}) AS found", values)  # noqa: S608
        return None if found is None else int(found)


def _of_event(criterion: Criterion) -> tuple[list[str], list[Any]]:
    """The part of a criterion that an event's own row answers."""
    where, values = list[str](), list[Any]()
    if criterion.types:
        where.append(f"type IN ({', '.join('?' * len(criterion.types))})")
        values += sorted(criterion.types)
    if criterion.category:
        where.append("(stream = ? OR stream >= ? AND stream < ?)")
        values += [criterion.category, f"{criterion.category}-", f"{criterion.category}."]  # '.' follows '-'
    return where, values


def _stored(rows: list[tuple[Any, ...]]) -> list[StoredEvent]:
    """As tuples are made quickest: a fold reads very many."""
    new = tuple.__new__
    return [
        new(StoredEvent, (
            position, stream, version, kind, schema, data, ident, time_ms,
            tuple(tags.split(TAG_SEPARATOR)) if tags else (),
            causation, correlation, command, json.loads(headers) if headers else {},
        ))
        for position, stream, version, kind, schema, data, ident, time_ms, tags, causation, correlation, command,
            headers in rows
    ]  # fmt: skip


def _stored_anyhow(rows: list[tuple[Any, ...]]) -> list[StoredEvent]:
    """Rows that somebody else may have changed: what no store has written is read as something that differs."""
    try:
        events = _stored(rows)
        if all(map(_is_well_typed, events)):
            return events
    except (ValueError, TypeError, AttributeError):
        pass
    return [event for row in rows for event in _stored([_mended(row)])]


def _is_well_typed(event: StoredEvent) -> bool:
    return type(event.version) is type(event.schema) is type(event.time_ms) is int and type(event.data) is bytes


def _mended(row: tuple[Any, ...]) -> tuple[Any, ...]:
    cells: list[Any] = []
    for name, cell in zip(StoredEvent._fields, row, strict=True):
        if name in ("position", "version", "schema", "time_ms"):
            cells.append(cell if type(cell) is int else 0)
        elif name == "data":
            cells.append(cell if type(cell) is bytes else repr(cell).encode())
        else:
            cells.append(cell if type(cell) is str else repr(cell))
    try:
        is_object = not cells[-1] or type(json.loads(cells[-1])) is dict
    except ValueError:
        is_object = False
    return (*cells[:-1], cells[-1] if is_object else json.dumps({"": cells[-1]}))


def cells_of(event: NewEvent) -> tuple[Any, ...]:
    """An event's own columns: type, schema, data, id, time, tags, causation, correlation, headers."""
    headers = json.dumps(dict(event.headers), ensure_ascii=False) if event.headers else ""
    return (
        event.type, event.schema, event.data, event.id, event.time_ms, TAG_SEPARATOR.join(event.tags),
        event.causation_id, event.correlation_id, headers,
    )  # fmt: skip
