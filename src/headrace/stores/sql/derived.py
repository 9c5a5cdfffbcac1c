"""A table kept in step: rows and the place in the log in one transaction.

The place stands in a table beside the target, `NAME__sync`, with the owner's token. Who opens the sink puts its own
token there, and every batch checks under a lock that it is still there: two instances cannot both write. A rebuild
fills `NAME__new` with its own `NAME__new__sync`, and the switch renames both at once; `NAME__old` is what was there
before.

A column that a row does not have keeps its value, so a table may have columns of its own beside those of the log.
Rights, views and foreign keys that somebody else put on the table are not carried over by a rebuild.
"""

import secrets
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

from headrace.stores.derived import ChangeBatch, Place, RowChange, StoredRow, Values, key_text
from headrace.stores.errors import RowRefused, SinkRefused, TakenOver, TargetReplaced
from headrace.stores.sql.database import ColumnType, TableDatabase
from headrace.stores.sql.growth import GrowingTable, TableOptions, read_made
from headrace.stores.sql.statements import quote
from headrace.stores.values import NATIVE, Misfit, canonicalize, reader_of

_NOBODY: Final = ""
_CHUNK_ROWS: Final = 5_000
_CHUNK_KEYS: Final = 200  # in one question


class SqlSink:
    """Keeps one table in step with one topic."""

    every_change = False

    def __init__(
        self,
        name: str,
        topic: str,
        make: Callable[[], TableDatabase],
        options: TableOptions,
        made: frozenset[str] = frozenset(),
    ) -> None:
        """`made` are columns of the target whose types nobody chose."""
        self._name, self._topic, self._make, self._options = name, topic, make, options
        self._table, self._state = options.table, options.table.state
        self._database = make()
        self._shape = GrowingTable(self._database, options, topic, made)
        self._owner = ""

    # --- keeping in step

    def open(self) -> Place | None:
        database = self._database
        with database.translate_errors():
            database.connect()
            self._ensure_state()
            self._owner = secrets.token_hex(16)
            with database.transaction():
                place = self._read_place(database, database.lock)
                database.run(f"UPDATE {self._state} SET owner = ? WHERE id = 1", (self._owner,))  # noqa: S608
            self._shape.read()
        return place

    def apply(self, batch: ChangeBatch) -> None:
        try:
            self._apply(batch)
        except RowRefused:
            if not self._widen(batch.changes):
                raise
            self._apply(batch)
        self.rest(is_idle=False)

    def _apply(self, batch: ChangeBatch) -> None:
        database, shape = self._database, self._shape
        restore = shape.saved()
        with database.translate_errors():
            if not database.is_ddl_transactional:
                shape.ensure(batch.changes, self._check_owner)
            try:
                with database.transaction():
                    self._check_owner()
                    if database.is_ddl_transactional:
                        shape.ensure(batch.changes, self._check_owner)
                    if batch.clears and shape.columns:
                        database.run(f"DELETE FROM {self._table}")  # noqa: S608
                    self._delete(batch.changes)
                    self._upsert(batch.changes)
                    place = batch.place.to_json()
                    database.run(f"UPDATE {self._state} SET place = ? WHERE id = 1", (place,))  # noqa: S608
            except BaseException:
                if database.is_ddl_transactional:
                    restore()  # what the transaction made is gone with it
                raise

    def _widen(self, changes: Sequence[RowChange]) -> bool:
        """Give the columns that we made the types that these rows need; whether there were any."""
        database, shape = self._database, self._shape
        with database.translate_errors():
            wider, keys = shape.find_wider(changes)
            if not wider:
                return False
            with database.defining():
                self._check_owner()
                database.retype(self._table, wider, keys=keys)
            shape.columns = database.columns(self._table)
        return True

    def rest(self, *, is_idle: bool = True) -> None:
        """Between batches: let others have what only one may hold."""
        with self._database.translate_errors():
            self._database.rest(is_idle=is_idle)

    def close(self) -> None:
        self._database.close()

    def _ensure_state(self) -> None:
        database = self._database
        if not database.columns(self._state):
            database.run(
                f"CREATE TABLE IF NOT EXISTS {self._state} "
                "(id INTEGER PRIMARY KEY, owner VARCHAR(64) NOT NULL, place TEXT)"
            )
        if not database.run(f"SELECT 1 FROM {self._state} WHERE id = 1"):  # noqa: S608
            database.run(f"INSERT INTO {self._state} (id, owner) VALUES (1, '')")  # noqa: S608

    def _read_place(self, database: TableDatabase, lock: str = "") -> Place | None:
        rows = database.run(f"SELECT place FROM {self._state} WHERE id = 1{lock}")  # noqa: S608
        return Place.from_json(rows[0][0]) if rows and rows[0][0] else None

    def _check_owner(self) -> None:
        rows = self._database.run(f"SELECT owner FROM {self._state} WHERE id = 1{self._database.lock}")  # noqa: S608
        owner = rows[0][0] if rows else _NOBODY
        if owner == _NOBODY:
            raise TargetReplaced(f"{self._shape.where} was replaced by a rebuilt one")
        if owner != self._owner:
            raise TakenOver(self._name)

    # --- rows

    def _values(self, change: RowChange, source: Values, columns: Mapping[str, ColumnType]) -> tuple[Any, ...]:
        bind = self._database.bind
        values = []
        for name, column in columns.items():
            value = source[name]
            # Most values are what the column holds already.
            if value is not None and value.__class__ is not NATIVE.get(column.family):
                try:
                    value = bind(reader_of(column.family)(value), column.family)
                except Misfit as misfit:
                    reason = f"column {name!r} of {self._shape.where}: {misfit}"
                    raise RowRefused(reason, partition=change.partition, offset=change.offset) from misfit
            values.append(value)
        return tuple(values)

    def _delete(self, changes: Sequence[RowChange]) -> None:
        gone = [change for change in changes if change.row is None]
        if not gone or not self._shape.columns:
            return
        columns = {name: self._shape.column(name) for name in gone[0].key}
        self._database.delete(self._table, columns, [self._values(change, change.key, columns) for change in gone])

    def _upsert(self, changes: Sequence[RowChange]) -> None:
        """Rows that have the same columns go together; a partial row has fewer."""
        by_columns: defaultdict[tuple[str, ...], list[RowChange]] = defaultdict(list)
        for change in changes:
            if change.row is not None:
                by_columns[tuple(change.row)].append(change)
        for names, alike in by_columns.items():
            columns = {name: self._shape.columns[name] for name in names if name in self._shape.columns}
            rows = [self._values(change, change.row or {}, columns) for change in alike]
            self._database.upsert(self._table, columns, list(alike[0].key), rows)

    # --- reading back

    def place(self) -> Place | None:
        with _reading(self._make()) as database:
            return self._read_place(database) if database.columns(self._state) else None

    def scan(self) -> Iterator[list[StoredRow]]:
        with _reading(self._make()) as database:
            columns = self._shape.columns = database.columns(self._table)
            keys = database.key_columns(self._table)
            if columns:
                query = f"SELECT {_select(database, columns)} FROM {self._table}"  # noqa: S608
                for chunk in database.stream(query, _CHUNK_ROWS):
                    yield [_stored(dict(zip(columns, row, strict=True)), columns, keys) for row in chunk]

    def look_up(self, keys: Sequence[Values]) -> list[StoredRow]:
        stored = []
        with _reading(self._make()) as database:
            columns = self._shape.columns = database.columns(self._table)
            names = list(keys[0]) if keys else []
            if not names or not columns.keys() >= set(names):
                return []
            same = " AND ".join(f"{quote(name)} = ?" for name in names)
            every = f"SELECT {_select(database, columns)} FROM {self._table} WHERE "  # noqa: S608
            families = {name: columns[name].family for name in names}
            for at in range(0, len(keys), _CHUNK_KEYS):
                part = keys[at : at + _CHUNK_KEYS]
                values = [
                    database.bind(reader_of(family)(key[name]), family)
                    for key in part
                    for name, family in families.items()
                ]
                one_of = f"{quote(names[0])} IN ({', '.join('?' * len(part))})"
                query = every + (one_of if len(names) == 1 else " OR ".join([f"({same})"] * len(part)))
                rows = database.run(query, values)
                stored += [_stored(dict(zip(columns, row, strict=True)), columns, names) for row in rows]
        return stored

    def comparable(self, key: Values, row: Values) -> StoredRow:
        shape = self._shape
        if not shape.columns:
            with _reading(self._make()) as database:
                shape.columns = database.columns(self._table)
        known = {name: value for name, value in row.items() if name in shape.columns}
        stored = _stored(known, shape.columns, [name for name in key if name in known])
        # A row of the log from before the table was made anew has a key of which the table has nothing.
        return stored if key.keys() <= known.keys() else stored._replace(key=key_text(key))

    # --- rebuilding

    def beside(self) -> "SqlSink":
        """The same sink for `NAME__new`, which is empty."""
        new = self._table.with_suffix("new")
        made = None
        with _reading(self._make()) as database:
            for table in (new, new.state):
                database.run(f"DROP TABLE IF EXISTS {table}")
            if database.columns(self._table):
                database.create_like(new, self._table)
            if database.columns(self._state):
                made = read_made(database, self._table)
        return SqlSink(self._name, self._topic, self._make, replace(self._options, table=new), made or frozenset())

    def switch(self) -> None:
        """`NAME` becomes `NAME__old`, `NAME__new` becomes `NAME`, each with its place."""
        new, old = self._table.with_suffix("new"), self._table.with_suffix("old")
        with _reading(self._make()) as database:
            if not database.columns(new.state):
                raise SinkRefused(f"{database.kind} table {new.plain} is not there: build it before switching to it")
            moves = [
                (table, goal)
                for before, after in ((self._table, old), (new, self._table))
                for table, goal in ((before, after), (before.state, after.state))
                if database.columns(table)
            ]
            with database.defining():
                for table in (old, old.state):
                    database.run(f"DROP TABLE IF EXISTS {table}")
                database.run(f"UPDATE {new.state} SET owner = ''")  # noqa: S608
                database.rename(moves)


@contextmanager
def _reading(database: TableDatabase) -> Iterator[TableDatabase]:
    """A connection for a question, with the driver's errors translated."""
    with database.translate_errors(), database.open():
        yield database


def _select(database: TableDatabase, columns: Mapping[str, ColumnType]) -> str:
    return ", ".join(database.readable(name, column) for name, column in columns.items())


def _stored(row: Values, columns: Mapping[str, ColumnType], keys: Sequence[str]) -> StoredRow:
    values = {name: canonicalize(value, columns[name].family) for name, value in row.items()}
    return StoredRow(key_text({name: values[name] for name in keys}), values)
