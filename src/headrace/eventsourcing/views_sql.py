"""Views in SQLite and PostgreSQL: tables, and beside them the place in `headrace_batches`, as batch sinks have it.

There a view is a sink, `projection:NAME`; the number of its last batch is the position, and the query that wrote it is
the projection's code. A view that is built anew is a version: tables `NAME__v2` of the sink `projection:NAME@v2`, until
the switch renames all of them at once. Rows by key have the columns `key` and `data`, a JSON object. Events that a view
was made without stand in `headrace_skipped_events`, the keys of those whose personal values it was told in
`headrace_view_keys`: who forgets them learns that it has to be rebuilt.
"""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from secrets import token_hex
from typing import Any, Final, Generic, TypeVar

from headrace.eventsourcing.errors import InvalidProjection, StoreUnavailable
from headrace.eventsourcing.pool import Pool
from headrace.eventsourcing.projection import KEYED, Projection, Table
from headrace.eventsourcing.views import Changes, Place, Skipped, Transaction
from headrace.stores.batch import Numbered, Step, Target
from headrace.stores.sql.database import Database
from headrace.stores.sql.statements import TableName, quote
from headrace.stores.sql.transaction import BATCHES, create_batches, record_batch, switch_tables, target_beside

_VERSION: Final = 2  # of what is built beside: there is never more than one
_SKIPPED: Final = "headrace_skipped_events"
_KEYS: Final = "headrace_view_keys"
_PAGE_ROWS: Final = 1000
_PASSING: Final = {"OperationalError", "InterfaceError"}  # as all drivers of Python call them (PEP 249)
D = TypeVar("D", bound=Database)


class SqlViews(Generic[D]):
    """Keeps views in one schema of a database."""

    def __init__(
        self, pool: Pool[D], engine: type[D], where: str, schema: str = "", *, owns_pool: bool = False
    ) -> None:
        self._pool, self._engine, self._where, self._schema = pool, engine, where, schema
        self._owns_pool = owns_pool
        self._is_postgres = engine.kind == "PostgreSQL"
        self._lock = " FOR UPDATE" if self._is_postgres else ""  # a transaction of SQLite has the file to itself

    def __str__(self) -> str:
        return self._where

    def close(self) -> None:
        if self._owns_pool:
            self._pool.close()

    @contextmanager
    def _reachable(self) -> Iterator[D]:
        with self.translate_errors(), self._pool.borrow() as db:
            yield db

    @contextmanager
    def translate_errors(self) -> Iterator[None]:
        """A connection that failed may be tried again; what the database does not take, or know, may not."""
        try:
            yield
        except self._engine.driver_error() as error:
            why = str(error).strip()
            if not {each.__name__ for each in type(error).__mro__} & _PASSING:
                raise InvalidProjection(f"views in {self} do not take it: {why}") from error
            raise StoreUnavailable(f"views in {self} cannot be used: {why}") from error

    # --- tables

    def _table(self, table: Table) -> TableName:
        return TableName(table.name, self._schema)

    def _target(self, projection: Projection, *, is_beside: bool) -> Target:
        target = Target(table=projection.tables[0].name, name=f"projection:{projection.name}")
        return target_beside(target, _VERSION) if is_beside else target

    def _name_of(self, table: Table, *, is_beside: bool) -> TableName:
        name = self._table(table)
        return name.with_suffix(f"v{_VERSION}") if is_beside else name

    def names(self, projection: Projection, *, is_beside: bool) -> dict[str, str]:
        """What the tables are called in SQL."""
        return {table.name: str(self._name_of(table, is_beside=is_beside)) for table in projection.tables}

    def prepare(self, projection: Projection, *, is_beside: bool = False) -> Place:
        with self._reachable() as db:
            if not is_beside and all(db.exists(self._any(each)) for each in (BATCHES, _SKIPPED, _KEYS)):
                try:
                    return self.read_place(db, projection)
                except InvalidProjection:
                    pass  # it is new
            with db.transaction():
                db.guard_definitions()
                create_batches(db, self._table(projection.tables[0]))
                db.run(
                    f"CREATE TABLE IF NOT EXISTS {self._any(_SKIPPED)} (sink VARCHAR(500) NOT NULL, position BIGINT "
                    "NOT NULL, reason TEXT NOT NULL, PRIMARY KEY (sink, position))"
                )
                db.run(
                    f"CREATE TABLE IF NOT EXISTS {self._any(_KEYS)} (sink VARCHAR(500) NOT NULL, key_id VARCHAR(100) "
                    "NOT NULL, PRIMARY KEY (sink, key_id))"
                )
                found = self._find_place(db, projection, is_beside=is_beside)
                return found or self._create(db, projection, is_beside=is_beside)

    def _create(self, db: D, projection: Projection, *, is_beside: bool) -> Place:
        for table in projection.tables:
            name = self._name_of(table, is_beside=is_beside)
            if db.exists(name):
                raise InvalidProjection(
                    f"table {name.plain!r} in {self} is there already and is not that of projection "
                    f"{projection.name!r}: rename one of them"
                )
            data = "jsonb" if self._is_postgres else "TEXT"
            key = 'text COLLATE "C"' if self._is_postgres else "TEXT"
            columns = table.columns or f"key {key} PRIMARY KEY, data {data} NOT NULL"
            db.run(f"CREATE TABLE {name} ({columns})")
            for index in table.indexes:
                # The name of an index stays when its table is renamed, and so must be no other's.
                db.run(f"CREATE INDEX {quote(f'{table.name}__{token_hex(4)}')} ON {name} ({index})")
        place = Place.new(projection)
        self._write_place(db, projection, place, is_beside=is_beside)
        return place

    def drop_beside(self, projection: Projection) -> None:
        with self._reachable() as db, db.transaction():
            db.guard_definitions()
            for table in projection.tables:
                db.run(f"DROP TABLE IF EXISTS {self._name_of(table, is_beside=True)}")
            self._forget(db, self._target(projection, is_beside=True).name)

    def _forget(self, db: D, sink: str) -> None:
        for table in (BATCHES, _SKIPPED, _KEYS):
            db.run(f"DELETE FROM {self._any(table)} WHERE sink = ?", (sink,))  # noqa: S608 - all names are quoted

    def _any(self, name: str) -> TableName:
        return TableName(name, self._schema)

    # --- the place

    def _find_place(self, db: D, projection: Projection, *, is_beside: bool, lock: str = "") -> Place | None:
        rows = db.run(
            f"SELECT batch_id, query_id FROM {self._any(BATCHES)} WHERE sink = ?{lock}",  # noqa: S608
            (self._target(projection, is_beside=is_beside).name,),
        )
        if not rows:
            return None
        position, written_by = rows[0]
        code, _, token = written_by.partition("/")
        return Place(position, code, token)

    def read_place(self, db: D, projection: Projection, *, is_beside: bool = False, lock: str = "") -> Place:
        # Who waits for a row that the switch renames finds none, and with its next look the one that replaced it.
        found = self._find_place(db, projection, is_beside=is_beside, lock=lock)
        found = found or self._find_place(db, projection, is_beside=is_beside, lock=lock)
        if found is None:
            raise InvalidProjection(f"there is no view of projection {projection.name!r} in {self}: run it first")
        return found

    def _write_place(self, db: D, projection: Projection, place: Place, *, is_beside: bool) -> None:
        target = self._target(projection, is_beside=is_beside)
        written_by = f"{place.code}/{place.token}"
        db.run(
            f"DELETE FROM {self._any(BATCHES)} WHERE sink = ? AND query_id <> ?",  # noqa: S608
            (target.name, written_by),
        )
        batch = Numbered(written_by, place.position)
        record_batch(db, self._table(projection.tables[0]), target, batch, Step.WRITE)

    # --- writing

    @contextmanager
    def writing(self, projection: Projection, *, is_beside: bool = False) -> Iterator[Transaction]:
        with self._reachable() as db, db.transaction():
            yield self.join(db, projection, is_beside=is_beside)

    def join(self, db: D, projection: Projection, *, is_beside: bool = False) -> Transaction:
        """Write a view in a transaction that somebody else ends."""
        place = self.read_place(db, projection, is_beside=is_beside, lock=self._lock)
        return _SqlTransaction(self, db, projection, place, is_beside=is_beside)

    @contextmanager
    def switching(self, projection: Projection) -> Iterator[tuple[Place, Transaction | None]]:
        with self._reachable() as db, db.transaction():
            live = self.read_place(db, projection, lock=self._lock)
            beside = self._find_place(db, projection, is_beside=True, lock=self._lock)
            if beside is None:
                yield live, None
                return
            yield live, _SqlTransaction(self, db, projection, beside, is_beside=True)
            name = self._target(projection, is_beside=False).name
            first, *others = [self._table(table) for table in projection.tables]
            switch_tables(db, first, name, _VERSION, *others)
            for table in (first, *others):
                db.run(f"DROP TABLE IF EXISTS {table.with_suffix(f'v{_VERSION - 1}')}")
            self._forget(db, target_beside(self._target(projection, is_beside=False), _VERSION - 1).name)
            for kept in (_SKIPPED, _KEYS):
                db.run(f"DELETE FROM {self._any(kept)} WHERE sink = ?", (name,))  # noqa: S608
                db.run(
                    f"UPDATE {self._any(kept)} SET sink = ? WHERE sink = ?",  # noqa: S608
                    (name, self._target(projection, is_beside=True).name),
                )

    def write_rows(self, db: D, table: TableName, changes: Changes) -> None:
        put = [(key, row.decode()) for key, row in changes.items() if row is not None]
        gone = [(key,) for key, row in changes.items() if row is None]
        if put:
            db.run_many(
                f"INSERT INTO {table} (key, data) VALUES (?, ?) "  # noqa: S608
                "ON CONFLICT (key) DO UPDATE SET data = excluded.data",
                put,
            )
        if gone:
            db.run_many(f"DELETE FROM {table} WHERE key = ?", gone)  # noqa: S608

    def move(
        self,
        db: D,
        projection: Projection,
        place: Place,
        skipped: Sequence[Skipped],
        opened: Collection[str],
        *,
        is_beside: bool,
    ) -> None:
        self._write_place(db, projection, place, is_beside=is_beside)
        sink = self._target(projection, is_beside=is_beside).name
        if opened:
            db.run_many(
                f"INSERT INTO {self._any(_KEYS)} (sink, key_id) VALUES (?, ?) ON CONFLICT DO NOTHING",  # noqa: S608
                [(sink, key_id) for key_id in sorted(opened)],
            )
        if skipped:
            db.run_many(
                f"INSERT INTO {self._any(_SKIPPED)} (sink, position, reason) VALUES (?, ?, ?)",  # noqa: S608
                [(sink, each.position, each.reason) for each in skipped],
            )

    # --- reading

    def place(self, projection: Projection) -> Place:
        with self._reachable() as db:
            return self.read_place(db, projection)

    def read_row(self, projection: Projection, table: Table, key: str) -> bytes | None:
        self._check_keyed(projection, table)
        with self._reachable() as db:
            return self.find_row(db, self._table(table), key)

    def find_row(self, db: D, table: TableName, key: str) -> bytes | None:
        data = "data::text" if self._is_postgres else "data"
        rows = db.run(f"SELECT {data} FROM {table} WHERE key = ?", (key,))  # noqa: S608
        return rows[0][0].encode() if rows else None

    def read_rows(self, projection: Projection, table: Table) -> Iterator[tuple[str, bytes]]:
        self._check_keyed(projection, table)
        data, after = ("data::text" if self._is_postgres else "data"), ""
        while True:
            with self._reachable() as db:
                rows = db.run(
                    f"SELECT key, {data} FROM {self._table(table)} WHERE key > ? ORDER BY key LIMIT {_PAGE_ROWS}",  # noqa: S608
                    (after,),
                )
            for key, row in rows:
                yield key, row.encode()
            if len(rows) < _PAGE_ROWS:
                return
            after = rows[-1][0]

    def _check_keyed(self, projection: Projection, table: Table) -> None:
        if table.columns != KEYED:
            raise InvalidProjection(
                f"table {table.name!r} of projection {projection.name!r} has columns of its own: read it in SQL"
            )

    def run(self, projection: Projection, statement: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        with self._reachable() as db:
            return db.run(projection.fill_names(statement, self.names(projection, is_beside=False)), values)

    def skipped(self, projection: Projection) -> list[Skipped]:
        with self._reachable() as db:
            rows = db.run(
                f"SELECT position, reason FROM {self._any(_SKIPPED)} WHERE sink = ? ORDER BY position",  # noqa: S608
                (self._target(projection, is_beside=False).name,),
            )
        return [Skipped(*row) for row in rows]


def views_told(db: Database, schema: str, key_ids: Collection[str]) -> list[str]:
    """The projections whose views in a schema may have rows with values that these keys have opened."""
    table = TableName(_KEYS, schema)
    if not key_ids or not db.exists(table):
        return []
    marks = ", ".join("?" * len(key_ids))
    rows = db.run(f"SELECT DISTINCT sink FROM {table} WHERE key_id IN ({marks})", sorted(key_ids))  # noqa: S608
    return sorted({sink.removeprefix("projection:").partition("@")[0] for (sink,) in rows})


class _SqlTransaction:
    """A view in a transaction of its database."""

    def __init__(self, views: SqlViews[Any], db: Any, projection: Projection, place: Place, *, is_beside: bool) -> None:
        self.place = place
        self._views, self._db, self._projection, self._is_beside = views, db, projection, is_beside
        self._names = views.names(projection, is_beside=is_beside)
        self._tables = {
            table.name: views._name_of(table, is_beside=is_beside)  # noqa: SLF001 - the same module
            for table in projection.tables
        }

    def read_row(self, table: Table, key: str) -> bytes | None:
        with self._views.translate_errors():
            return self._views.find_row(self._db, self._tables[table.name], key)

    def write_rows(self, table: Table, changes: Changes) -> None:
        with self._views.translate_errors():
            self._views.write_rows(self._db, self._tables[table.name], changes)

    def run(self, statement: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        with self._views.translate_errors():
            rows: list[tuple[Any, ...]] = self._db.run(self._projection.fill_names(statement, self._names), values)
            return rows

    def run_many(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        with self._views.translate_errors():
            self._db.run_many(self._projection.fill_names(statement, self._names), rows)

    def move(self, place: Place, skipped: Sequence[Skipped], opened: Collection[str] = ()) -> None:
        self._views.move(self._db, self._projection, place, skipped, opened, is_beside=self._is_beside)
