"""A table kept in step: rows and the place in the log in one transaction.

The place stands in a table beside the target, `NAME__sync`, with the owner's token. Who opens the sink puts its own
token there, and every batch checks under a lock that it is still there: two instances cannot both write. A rebuild
fills `NAME__new` with its own `NAME__new__sync`, and the switch renames both at once; `NAME__old` is what was there
before.

A column that a row does not have keeps its value, so a table may have columns of its own beside those of the log.

A table that is not there is made from the first rows, and a column that is new in the rows is added; or, by
`new_columns`, the sink refuses or leaves it out. A column that the sink made has the type of its first values, and a
wider one as soon as a later value needs it; `NAME__sync` names the columns that it made. A table that the sink made is
made anew when it is empty and its rows get a key, or have none any more. A type that somebody chose, in
`types` or with a table of his own, stays: a value that does not fit is then the row's fault.

Rights, views and foreign keys that somebody else put on the table are not carried over by a rebuild.
"""

import json
import secrets
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from headrace.stores.derived import ROW_COLUMN, ChangeBatch, Place, RowChange, StoredRow, Values, key_text, other_key
from headrace.stores.errors import InvalidConnectSetting, RowRefused, SinkRefused, TakenOver, TargetReplaced
from headrace.stores.sql.database import ColumnType, Database, TableName, full_name, listed
from headrace.stores.values import NATIVE, Family, Misfit, canonical, family_of_value, reader_of, widened

_MADE: Final = 2  # the row of the state that names the columns which the sink made
_NUMBERS: Final = (Family.INTEGER, Family.FLOAT, Family.DECIMAL)
_NOBODY: Final = ""
_CHUNK_ROWS: Final = 5_000
_CHUNK_KEYS: Final = 200  # in one question
ADD, REFUSE, IGNORE = "add", "refuse", "ignore"


@dataclass(frozen=True, slots=True)
class TableOptions:
    """What a user says about a table."""

    table: TableName
    types: Mapping[str, str] = field(default_factory=dict)  # of columns that the sink makes
    new_columns: str = ADD

    def __post_init__(self) -> None:
        if self.new_columns not in (ADD, REFUSE, IGNORE):
            raise InvalidConnectSetting("new_columns", self.new_columns, "choose 'add', 'refuse' or 'ignore'")


class SqlSink:
    """Keeps one table in step with one topic."""

    every_change = False

    def __init__(
        self,
        name: str,
        topic: str,
        make: Callable[[], Database],
        options: TableOptions,
        made: frozenset[str] = frozenset(),
    ) -> None:
        """`made` are columns of the target whose types nobody chose."""
        self._name = name
        self._topic = topic
        self._make = make
        self._database = make()
        self._options = options
        self._table = options.table
        self._owner = ""
        self._columns: dict[str, ColumnType] = {}
        self._made = made

    # --- keeping in step

    def open(self) -> Place | None:
        """Become the owner."""
        database = self._database
        with database.translated():
            database.connect()
            self._ensure_state()
            self._owner = secrets.token_hex(16)
            with database.transaction():
                found = database.run(f"SELECT place FROM {self._state} WHERE id = 1{database.lock}")  # noqa: S608
                database.run(f"UPDATE {self._state} SET owner = ? WHERE id = 1", (self._owner,))  # noqa: S608
            self._columns = database.columns(self._table)
            names = database.run(f"SELECT place FROM {self._state} WHERE id = {_MADE}")  # noqa: S608
            if names:
                self._made = frozenset(json.loads(names[0][0]))
            elif self._made:
                self._keep_made(self._made)
        return Place.from_json(found[0][0]) if found and found[0][0] else None

    def apply(self, batch: ChangeBatch) -> None:
        """Rows and place, in one transaction."""
        try:
            self._apply(batch)
        except RowRefused:
            if not self._widen(batch.changes):
                raise
            self._apply(batch)
        self.rest(is_idle=False)

    def _apply(self, batch: ChangeBatch) -> None:
        database, columns, made = self._database, self._columns, self._made
        with database.translated():
            if not database.is_ddl_transactional:
                self._ensure_shape(batch.changes)
            try:
                with database.transaction():
                    self._check_owner()
                    if database.is_ddl_transactional:
                        self._ensure_shape(batch.changes)
                    if batch.clears and self._columns:
                        database.run(f"DELETE FROM {self._target}")  # noqa: S608
                    self._delete(batch.changes)
                    self._upsert(batch.changes)
                    database.run(
                        f"UPDATE {self._state} SET place = ? WHERE id = 1",  # noqa: S608
                        (batch.place.to_json(),),
                    )
            except BaseException:
                if database.is_ddl_transactional:
                    self._columns, self._made = columns, made  # what the transaction made is gone with it
                raise

    def rest(self, *, is_idle: bool = True) -> None:
        """Between batches: let others have what only one may hold."""
        with self._database.translated():
            self._database.rest(is_idle=is_idle)

    def close(self) -> None:
        """Disconnect."""
        self._database.close()

    def _check_owner(self) -> None:
        found = self._database.run(f"SELECT owner FROM {self._state} WHERE id = 1{self._database.lock}")  # noqa: S608
        owner = found[0][0] if found else _NOBODY
        if owner == _NOBODY:
            raise TargetReplaced(f"{self._where} was replaced by a rebuilt one")
        if owner != self._owner:
            raise TakenOver(self._name)

    # --- shape

    @property
    def _target(self) -> str:
        return full_name(self._database, self._table)

    @property
    def _state(self) -> str:
        return full_name(self._database, self._table.state)

    @property
    def _where(self) -> str:
        return f"{self._database.kind} table {self._table}"

    def _ensure_state(self) -> None:
        database = self._database
        if not database.columns(self._table.state):
            database.run(
                f"CREATE TABLE IF NOT EXISTS {self._state} "
                "(id INTEGER PRIMARY KEY, owner VARCHAR(64) NOT NULL, place TEXT)"
            )
        if not database.run(f"SELECT 1 FROM {self._state} WHERE id = 1"):  # noqa: S608
            database.run(f"INSERT INTO {self._state} (id, owner) VALUES (1, '')")  # noqa: S608

    def _ensure_shape(self, changes: Sequence[RowChange]) -> None:
        """Have a table that can hold these rows."""
        database, columns = self._database, self._columns
        others = _keyed_otherwise(changes, columns)
        # The source's table got a key or lost it. For that its topic is emptied, perhaps a few records later.
        if (
            others
            and columns
            and self._made >= set(database.key_columns(self._table))
            and not database.run(f"SELECT 1 FROM {self._target} LIMIT 1")  # noqa: S608
        ):
            self._check_owner()
            database.run(f"DROP TABLE {self._target}")
            self._columns = {}
            others = _keyed_otherwise(changes, {})
        if others:
            key = database.key_columns(self._table) if self._columns else [ROW_COLUMN]
            raise other_key(self._where, key, others[0])
        self._ensure_columns(changes)

    def _ensure_columns(self, changes: Sequence[RowChange]) -> None:
        """Make the table, or the columns that it lacks."""
        missing: dict[str, Family] = {}
        key: Sequence[str] = ()
        for change in changes:
            if change.row is None:
                continue
            key = list(change.key)
            for name, value in change.row.items():
                if name in self._columns:
                    continue
                family = missing.get(name) or family_of_value(value)
                if family is not None:
                    missing[name] = self._wider(family, value)
        if not missing:
            return
        for change in changes:  # what came before a column was widened must fit, too
            for name in missing:
                missing[name] = self._wider(missing[name], (change.row or {}).get(name))
        database = self._database
        chosen = self._options.types
        if not self._columns or self._options.new_columns == ADD:
            self._keep_made(self._made | {name for name in missing if name not in chosen})
        spelled = {
            name: self._options.types.get(name) or database.type_for(family, is_key=name in key)
            for name, family in missing.items()
        }
        if not self._columns:
            parts = [f"{database.quoted(name)} {spelling}" for name, spelling in spelled.items()]
            parts.append(f"PRIMARY KEY ({listed(database.quoted, key)})")
            database.run(f"CREATE TABLE {self._target} ({', '.join(parts)})")
        elif self._options.new_columns == REFUSE:
            raise SinkRefused(
                f"{self._where} has no column {', '.join(map(repr, missing))}, which rows of {self._topic} have: add "
                "it, or set new_columns to 'add' or 'ignore'"
            )
        elif self._options.new_columns == ADD:
            for name, spelling in spelled.items():
                database.run(f"ALTER TABLE {self._target} ADD COLUMN {database.quoted(name)} {spelling}")
        self._columns = database.columns(self._table)

    def _keep_made(self, names: frozenset[str]) -> None:
        """Before the columns are there: one that is named and was not made harms nobody."""
        if names == self._made and names:
            return
        self._database.run(f"DELETE FROM {self._state} WHERE id = {_MADE}")  # noqa: S608
        self._database.run(
            f"INSERT INTO {self._state} (id, owner, place) VALUES ({_MADE}, '', ?)",  # noqa: S608
            (json.dumps(sorted(names)),),
        )
        self._made = names

    def _widen(self, changes: Sequence[RowChange]) -> bool:
        """Give the columns that the sink made the types that these rows need; whether there were any."""
        database = self._database
        families = {name: column.family for name, column in self._columns.items() if name in self._made}
        keys: Sequence[str] = ()
        for change in changes:
            keys = list(change.key)
            for name, value in (change.row or {}).items():
                if name in families:
                    families[name] = self._wider(families[name], value)
        for name, family in families.items():
            if family is Family.FLOAT and self._columns[name].family is Family.INTEGER and self._has_many_digits(name):
                families[name] = Family.TEXT
        wider = {
            name: ColumnType(database.type_for(family, is_key=name in keys), family)
            for name, family in families.items()
            if family is not self._columns[name].family
        }
        if not wider:
            return False
        with database.translated():
            if database.is_ddl_transactional:
                with database.transaction():
                    self._check_owner()
                    database.retype(self._table, wider, keys=keys)
            else:
                self._check_owner()
                database.retype(self._table, wider, keys=keys)
            self._columns = database.columns(self._table)
        return True

    def _has_many_digits(self, name: str) -> bool:
        column, most = self._database.quoted(name), 2**53
        query = f"SELECT 1 FROM {self._target} WHERE {column} > {most} OR {column} < -{most} LIMIT 1"  # noqa: S608
        with self._database.translated():
            return bool(self._database.run(query))

    def _wider(self, family: Family, value: Any) -> Family:
        found = widened(family, value)
        if found is family and found in _NUMBERS and value is not None:
            try:
                self._database.bind(reader_of(found)(value), found)
            except Misfit:  # a number that this database has not
                return Family.TEXT
        return found

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
                    raise RowRefused(
                        f"column {name!r} of {self._where}: {misfit}", partition=change.partition, offset=change.offset
                    ) from misfit
            values.append(value)
        return tuple(values)

    def _delete(self, changes: Sequence[RowChange]) -> None:
        gone = [change for change in changes if change.row is None]
        if not gone or not self._columns:
            return
        columns = {name: self._column(name) for name in gone[0].key}
        self._database.delete(self._table, columns, [self._values(change, change.key, columns) for change in gone])

    def _upsert(self, changes: Sequence[RowChange]) -> None:
        """Rows that have the same columns go together; a partial row has fewer."""
        by_columns: defaultdict[tuple[str, ...], list[RowChange]] = defaultdict(list)
        for change in changes:
            if change.row is not None:
                by_columns[tuple(change.row)].append(change)
        for names, alike in by_columns.items():
            columns = {name: self._columns[name] for name in names if name in self._columns}
            rows = [self._values(change, change.row or {}, columns) for change in alike]
            self._database.upsert(self._table, columns, list(alike[0].key), rows)

    def _column(self, name: str) -> ColumnType:
        if name not in self._columns:
            raise SinkRefused(f"{self._where} has no column {name!r}, by which rows are known: add it as its key")
        return self._columns[name]

    # --- reading back

    def place(self) -> Place | None:
        """Where the table is now."""
        with _reading(self._make()) as database:
            if not database.columns(self._table.state):
                return None
            found = database.run(f"SELECT place FROM {self._state} WHERE id = 1")  # noqa: S608
        return Place.from_json(found[0][0]) if found and found[0][0] else None

    def scan(self) -> Iterator[list[StoredRow]]:
        """Every row."""
        with _reading(self._make()) as database:
            columns = self._columns = database.columns(self._table)
            keys = database.key_columns(self._table)
            names = _selected(database, columns)
            if columns:
                for chunk in database.stream(f"SELECT {names} FROM {self._target}", _CHUNK_ROWS):  # noqa: S608
                    yield [_stored(dict(zip(columns, row, strict=True)), columns, keys) for row in chunk]

    def look_up(self, keys: Sequence[Values]) -> list[StoredRow]:
        """The rows of these keys."""
        found = []
        with _reading(self._make()) as database:
            columns = self._columns = database.columns(self._table)
            names = list(keys[0]) if keys else []
            if not names or not columns.keys() >= set(names):
                return []
            same = " AND ".join(f"{database.quoted(name)} = ?" for name in names)
            every = f"SELECT {_selected(database, columns)} FROM {self._target} WHERE "  # noqa: S608
            for at in range(0, len(keys), _CHUNK_KEYS):
                part = keys[at : at + _CHUNK_KEYS]
                values = [
                    database.bind(reader_of(self._column(name).family)(key[name]), self._column(name).family)
                    for key in part
                    for name in names
                ]
                one_of = f"{database.quoted(names[0])} IN ({', '.join('?' * len(part))})"
                query = every + (one_of if len(names) == 1 else " OR ".join([f"({same})"] * len(part)))
                found += [
                    _stored(dict(zip(columns, row, strict=True)), columns, names) for row in database.run(query, values)
                ]
        return found

    def comparable(self, key: Values, row: Values) -> StoredRow:
        """A row of the log as the table would hold it."""
        if not self._columns:
            with _reading(self._make()) as database:
                self._columns = database.columns(self._table)
        known = {name: value for name, value in row.items() if name in self._columns}
        found = _stored(known, self._columns, [name for name in key if name in known])
        # A row of the log from before the table was made anew has a key of which the table has nothing.
        return found if key.keys() <= known.keys() else found._replace(key=key_text(key))

    # --- rebuilding

    def beside(self) -> "SqlSink":
        """The same sink for `NAME__new`, which is empty."""
        new = self._table.with_suffix("new")
        with _reading(self._make()) as database:
            for table in (new, new.state):
                database.run(f"DROP TABLE IF EXISTS {full_name(database, table)}")
            if database.columns(self._table):
                database.create_like(new, self._table)
            made = frozenset[str]()
            if database.columns(self._table.state):
                names = database.run(f"SELECT place FROM {self._state} WHERE id = {_MADE}")  # noqa: S608
                made = frozenset(json.loads(names[0][0])) if names else made
        options = TableOptions(new, self._options.types, self._options.new_columns)
        return SqlSink(self._name, self._topic, self._make, options, made)

    def switch(self) -> None:
        """`NAME` becomes `NAME__old`, `NAME__new` becomes `NAME`, each with its place."""
        new, old = self._table.with_suffix("new"), self._table.with_suffix("old")
        with _reading(self._make()) as database:
            if not database.columns(new.state):
                raise SinkRefused(f"{database.kind} table {new} is not there: build it before switching to it")
            moves = [
                (table, goal)
                for before, after in ((self._table, old), (new, self._table))
                for table, goal in ((before, after), (before.state, after.state))
                if database.columns(table)
            ]
            if not database.is_ddl_transactional:
                self._drop(database, old)
                database.run(f"UPDATE {full_name(database, new.state)} SET owner = ''")  # noqa: S608
                database.rename(moves)
                return
            with database.transaction():
                self._drop(database, old)
                database.run(f"UPDATE {full_name(database, new.state)} SET owner = ''")  # noqa: S608
                database.rename(moves)

    @staticmethod
    def _drop(database: Database, table: TableName) -> None:
        for each in (table, table.state):
            database.run(f"DROP TABLE IF EXISTS {full_name(database, each)}")


@contextmanager
def _reading(database: Database) -> Iterator[Database]:
    """A connection for a question, with the driver's errors translated."""
    with database.translated():
        database.connect()
        try:
            yield database
        finally:
            database.close()


def _keyed_otherwise(changes: Sequence[RowChange], columns: Mapping[str, ColumnType]) -> list[RowChange]:
    """Changes of rows with a key in a table of rows without one, or the other way; a new table begins without."""
    is_counted = ROW_COLUMN in columns if columns else any(ROW_COLUMN in change.key for change in changes)
    return [change for change in changes if (ROW_COLUMN in change.key) != is_counted]


def _selected(database: Database, columns: Mapping[str, ColumnType]) -> str:
    return ", ".join(database.readable(name, column) for name, column in columns.items())


def _stored(row: Values, columns: Mapping[str, ColumnType], keys: Sequence[str]) -> StoredRow:
    values = {name: canonical(value, columns[name].family) for name, value in row.items()}
    return StoredRow(key_text({name: values[name] for name in keys}), values)
