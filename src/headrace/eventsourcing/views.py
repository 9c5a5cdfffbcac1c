"""Where views are kept: what is asked of such a place, what a transaction of one looks like to functions, and memory.

A view's rows and its position in the log are written in one transaction, so that both are there or neither; `place` is
where a view is: the position up to which its rows are made, and the code that made them. A second view of the same
projection may be built beside the first, and takes its place (`switching`).

What always holds: a transaction begins with the place locked, and whoever finds another place there than the one it
went on from has to begin from that one: of two that apply the same events, one does.
"""

import json
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from secrets import token_hex
from typing import Any, Final, NoReturn, Protocol

from headrace.eventsourcing.errors import InvalidProjection
from headrace.eventsourcing.event_types import dump
from headrace.eventsourcing.projection import KEYED, Projection, Rows, Table

_MOST_CACHED: Final = 50_000  # rows
Changes = Mapping[str, bytes | None]  # by key; None is a row that is gone


@dataclass(frozen=True, slots=True)
class Place:
    """How far a view is; `token` tells one that was built anew from the one before."""

    position: int
    code: str
    token: str

    @classmethod
    def new(cls, projection: Projection) -> "Place":
        return cls(0, projection.fingerprint, token_hex(8))


@dataclass(frozen=True, slots=True)
class Skipped:
    """An event that a view was made without, and why."""

    position: int
    reason: str


class Transaction(Protocol):
    """A view while it is written, with its place locked; committed if the block ends well."""

    place: Place

    def read_row(self, table: Table, key: str) -> bytes | None:
        """The row under a key, as JSON."""
        ...

    def write_rows(self, table: Table, changes: Changes) -> None:
        """Put and delete rows."""
        ...

    def run(self, statement: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        """A statement in SQL."""
        ...

    def run_many(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        """The statement once for each row."""
        ...

    def move(self, place: Place, skipped: Sequence[Skipped], opened: Collection[str] = ()) -> None:
        """The view is there now; `opened` are keys of those whose personal values may be in its rows."""
        ...


class Views(Protocol):
    """Keeps views: in a database, or in memory."""

    def prepare(self, projection: Projection, *, is_beside: bool = False) -> Place:
        """Make what is missing of a view, beside the one that is read or in its place; where it is."""
        ...

    def drop_beside(self, projection: Projection) -> None:
        """Remove what was built beside a view."""
        ...

    def writing(self, projection: Projection, *, is_beside: bool = False) -> AbstractContextManager[Transaction]:
        """A transaction."""
        ...

    def switching(self, projection: Projection) -> AbstractContextManager[tuple[Place, Transaction | None]]:
        """A transaction of the view beside, at whose end it takes the place of the one that is read, whose place it
        has first; None if there is none beside it any more."""
        ...

    def place(self, projection: Projection) -> Place:
        """Where the view is that is read."""
        ...

    def read_row(self, projection: Projection, table: Table, key: str) -> bytes | None:
        """A row of the view that is read."""
        ...

    def read_rows(self, projection: Projection, table: Table) -> Iterator[tuple[str, bytes]]:
        """All of its rows, by key."""
        ...

    def run(self, projection: Projection, statement: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        """A question in SQL to the view that is read."""
        ...

    def skipped(self, projection: Projection) -> list[Skipped]:
        """The events that it was made without."""
        ...

    def close(self) -> None: ...


class RowCache:
    """Rows as they were last read or written, by table and key; right as long as nobody else writes the view."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[str, bytes | None]] = {}

    def of(self, table: str) -> dict[str, bytes | None]:
        return self.rows.setdefault(table, {})

    def trim(self) -> None:
        if sum(map(len, self.rows.values())) > _MOST_CACHED:
            self.rows.clear()


class BufferedRows:
    """A table of keyed rows in a transaction: each row is read once, and all are written at the end."""

    def __init__(self, transaction: Transaction, table: Table, cache: RowCache) -> None:
        self._transaction, self._table = transaction, table
        self._known = cache.of(table.name)
        self._changed: dict[str, bytes | None] = {}

    def get(self, key: str, default: Any = None) -> Any:
        try:
            found = self._known[key]
        except KeyError:
            found = self._known[key] = self._transaction.read_row(self._table, key)
        return default if found is None else json.loads(found)

    def put(self, key: str, row: Any) -> None:
        self._changed[key] = self._known[key] = dump(row)

    def delete(self, key: str) -> None:
        self._changed[key] = self._known[key] = None

    def flush(self) -> None:
        if self._changed:
            self._transaction.write_rows(self._table, self._changed)
            self._changed.clear()

    def forget(self) -> None:
        """Whatever is known may have been changed."""
        self._known.clear()


class BufferedView:
    """What the functions of a projection write to (`projection.View`)."""

    get: Callable[..., Any]
    put: Callable[[str, Any], None]
    delete: Callable[[str], None]

    def __init__(self, projection: Projection, transaction: Transaction, cache: RowCache) -> None:
        self._projection, self._transaction, self._cache = projection, transaction, cache
        self._tables: dict[str, BufferedRows] = {}
        self._statement, self._written = "", list[Sequence[Any]]()
        self.get = self.put = self.delete = self._refuse
        first = projection.tables[0]
        if first.columns == KEYED:
            rows = self._rows_of(first)
            self.get, self.put, self.delete = rows.get, rows.put, rows.delete

    def table(self, name: str) -> Rows:
        return self._tables.get(name) or self._rows_of(self._projection.table_named(name))

    def _rows_of(self, table: Table) -> BufferedRows:
        if table.columns != KEYED:
            raise InvalidProjection(
                f"table {table.name!r} of projection {self._projection.name!r} has columns of its own: write it with "
                "view.run"
            )
        rows = self._tables[table.name] = BufferedRows(self._transaction, table, self._cache)
        return rows

    def run(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        self.flush()
        for rows in self._tables.values():
            rows.forget()
        return self._transaction.run(statement, values)

    def write(self, statement: str, values: Sequence[Any]) -> None:
        if statement != self._statement:
            self._flush_written()
            self._statement = statement
        self._written.append(values)

    def flush(self) -> None:
        """Write what is only in the buffers."""
        for rows in self._tables.values():
            rows.flush()
        self._flush_written()

    def _flush_written(self) -> None:
        if self._written:
            written, self._written = self._written, []
            self._transaction.run_many(self._statement, written)

    def _refuse(self, *_: Any) -> Any:
        raise InvalidProjection(
            f"the first table of projection {self._projection.name!r} has columns of its own: write it with view.run, "
            "or name another table with view.table"
        )


# --- in memory


@dataclass(slots=True)
class _Kept:
    place: Place
    tables: dict[str, dict[str, bytes]]
    skipped: list[Skipped] = field(default_factory=list)


class _MemoryTransaction:
    def __init__(self, kept: _Kept, name: str) -> None:
        self.place = kept.place
        self._kept, self._name = kept, name
        self._changes: list[tuple[Table, Changes]] = []
        self._moved: tuple[Place, Sequence[Skipped]] | None = None

    def read_row(self, table: Table, key: str) -> bytes | None:
        return self._kept.tables[table.name].get(key)

    def write_rows(self, table: Table, changes: Changes) -> None:
        self._changes.append((table, dict(changes)))

    def run(self, statement: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:  # noqa: ARG002
        _refuse_sql(self._name)

    def run_many(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:  # noqa: ARG002
        _refuse_sql(self._name)

    def move(self, place: Place, skipped: Sequence[Skipped], opened: Collection[str] = ()) -> None:  # noqa: ARG002
        self._moved = place, skipped

    def commit(self) -> None:
        for table, changes in self._changes:
            rows = self._kept.tables[table.name]
            for key, row in changes.items():
                if row is None:
                    rows.pop(key, None)
                else:
                    rows[key] = row
        if self._moved is not None:
            self._kept.place = self._moved[0]
            self._kept.skipped += self._moved[1]


def _refuse_sql(name: str) -> NoReturn:
    raise InvalidProjection(
        f"projection {name!r} is kept in memory, which has no SQL: keep its view in SQLite or PostgreSQL"
    )


class MemoryViews:
    """Keeps views as long as the process lives."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._kept: dict[tuple[str, bool], _Kept] = {}

    def __str__(self) -> str:
        return "memory"

    def prepare(self, projection: Projection, *, is_beside: bool = False) -> Place:
        if any(table.columns != KEYED for table in projection.tables):
            _refuse_sql(projection.name)
        with self._lock:
            new = _Kept(Place.new(projection), {table.name: {} for table in projection.tables})
            kept = self._kept.setdefault((projection.name, is_beside), new)
            return kept.place

    def drop_beside(self, projection: Projection) -> None:
        with self._lock:
            self._kept.pop((projection.name, True), None)

    @contextmanager
    def writing(self, projection: Projection, *, is_beside: bool = False) -> Iterator[Transaction]:
        with self._lock:
            kept = self._kept.get((projection.name, is_beside))
            if kept is None:
                raise InvalidProjection(f"there is no view of projection {projection.name!r} in {self}: run it first")
            transaction = _MemoryTransaction(kept, projection.name)
            yield transaction
            transaction.commit()

    @contextmanager
    def switching(self, projection: Projection) -> Iterator[tuple[Place, Transaction | None]]:
        with self._lock:
            live = self._kept[projection.name, False].place
            beside = self._kept.get((projection.name, True))
            if beside is None:
                yield live, None
                return
            transaction = _MemoryTransaction(beside, projection.name)
            yield live, transaction
            transaction.commit()
            self._kept[projection.name, False] = self._kept.pop((projection.name, True))

    def place(self, projection: Projection) -> Place:
        return self._kept[projection.name, False].place

    def read_row(self, projection: Projection, table: Table, key: str) -> bytes | None:
        with self._lock:
            return self._kept[projection.name, False].tables[table.name].get(key)

    def read_rows(self, projection: Projection, table: Table) -> Iterator[tuple[str, bytes]]:
        with self._lock:
            return iter(sorted(self._kept[projection.name, False].tables[table.name].items()))

    def run(self, projection: Projection, statement: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:  # noqa: ARG002
        _refuse_sql(projection.name)

    def skipped(self, projection: Projection) -> list[Skipped]:
        return list(self._kept[projection.name, False].skipped)

    def close(self) -> None:
        """Nothing is open."""


def moved(place: Place, position: int) -> Place:
    return replace(place, position=position)
