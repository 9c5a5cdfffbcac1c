"""Triggers put in place, on tables as they come, and taken away again; up to where what they wrote is complete."""

import contextlib
import json
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import psycopg

from headrace.connect.change import Position
from headrace.connect.errors import SourceRefused, SourceUnavailable
from headrace.connect.filters import Filters, check_captured, check_key_columns, unknown_table
from headrace.connect.incremental import Range
from headrace.connect.postgres.catalog import Catalog, CatalogTable, quote
from headrace.connect.postgres.connection import connect, in_one_line, system_of
from headrace.connect.postgres.rows import read_rows
from headrace.connect.postgres.table_states import TableState, look, new_parts, unseen_between
from headrace.connect.source import TableRows, chunked
from headrace.connect.table import TableName
from headrace.connect.triggers.settings import TriggerSettings
from headrace.connect.triggers.shapes import Shapes
from headrace.connect.triggers.statements import every_row, install, note, trigger_names, triggers
from headrace.connect.unseen import STOP
from headrace.telemetry.logs import get_logger

log = get_logger(__name__)
Connection = psycopg.Connection[tuple[Any, ...]]
_REPLACED = "it was replaced by another table of its name, or its triggers were taken away"
_AWAKE = """
select tgrelid::bigint, left(md5(string_agg(concat_ws(':', oid, xmin, tgenabled), ',' order by oid)), 12)
from pg_trigger where tgname = any(%s) and tgrelid = any(%s::oid[]) group by 1
"""
_TRUNCATED = """
select distinct on (s.root) s.root::bigint, (c.xid::text::numeric % 4294967296)::text
from {0}.changes c join {0}.shapes s on s.id = c.shape where c.op = 't' order by s.root, c.position desc
"""
# Shapes in which rows were written since a look, and which are not those of now: another name or key, another column.
_PASSING = """
select distinct s.root::bigint from {0}.shapes s join {0}.shapes n on n.id = {0}.shape_of(s.root, s.root)
where s.root = s.relation and s.id > %s and s.root = any(%s::oid[]) and s.id <> n.id
    and ((s.schema, s.name, s.key) is distinct from (n.schema, n.name, n.key) or exists (
        select from jsonb_array_elements(s.columns) c where not exists (
            select from jsonb_array_elements(n.columns) d where d->>0 = c->>0)))
"""
_PASSED = "it had another name, key or column for a while"
_BAG = ":bag"  # in what is kept of a table without a key
REKEYED = "its rows have a key since then, or none any more"
_LOCK_TIMEOUT = "set local lock_timeout = '10s'"


class Capture:
    """What capture keeps in one database."""

    def __init__(self, connection: Connection, settings: TriggerSettings) -> None:
        self._connection = connection
        self._execute: Any = connection.execute  # statements are put together here, of names that were checked
        self._settings = settings
        self._name = settings.capture

    def install(self) -> None:
        """Make what is missing, for every captured table; rows of a table that was not captured before are not read."""
        row = self._execute("select to_regclass(%s) is not null", [f"{self._name}.changes"]).fetchone()
        is_there = bool(row and row[0])
        try:
            if is_there and not self._is_of_this_system():
                # Restored into another database, where numbers of tables in the triggers mean other tables or none,
                # and transactions are counted anew: what was captured there cannot be told apart from what comes.
                log.warning("capture came here with a copy of the database, and is installed anew", capture=self._name)
                with self._connection.transaction():
                    take_away(self._connection, self._name)
                is_there = False
            if not is_there:
                with self._connection.transaction():
                    for statement in install(self._name):
                        self._execute(statement)
                    self._is_of_this_system()
            self._bring_up_to_date(self.captured(), is_new=not is_there)
        except psycopg.errors.InsufficientPrivilege as error:
            raise SourceRefused(
                f"this user may not put triggers on the captured tables ({in_one_line(error)})",
                "ALTER TABLE … OWNER TO this user, and GRANT CREATE ON DATABASE … TO it",
            ) from error

    def _is_of_this_system(self) -> bool:
        """Whether it was installed in this very database; one that did not know yet is marked as such."""
        system, state = system_of(self._connection), f"{self._name}.state"
        for column in ("system text", "tables jsonb", "horizon text", "shapes int"):  # of before they were kept
            self._execute(f"alter table {state} add column if not exists {column}")
        (before,) = self._execute(f"select system from {state}").fetchone()  # noqa: S608
        if system and not before:
            self._execute(f"update {state} set system = %s", [system])  # noqa: S608
        return not system or before in (None, system)

    def refresh(self) -> None:
        """Take new tables in, with the rows that they have already."""
        found = [table for table in self._every() if self._settings.filters.captures(table.full_name)]
        self._bring_up_to_date(found, is_new=False)

    def captured(self) -> list[CatalogTable]:
        """The tables that the filters let through."""
        every = self._every()
        filters = self._settings.filters
        for pattern in filters.include_tables:
            one = Filters(include_tables=[pattern])
            if not any(one.captures(table.full_name) for table in every):
                raise unknown_table(pattern, [table.full_name for table in every])
        found = [table for table in every if filters.captures(table.full_name)]
        catalog = Catalog(self._connection)
        check_key_columns(filters.key_columns, {table.full_name: catalog.nullable(table) for table in found})
        return found

    def names(self) -> list[TableName]:
        """The same, each with whether its records have a key."""
        return [TableName(table.schema, table.name, self.has_key(table)) for table in self.captured()]

    def _every(self) -> list[CatalogTable]:
        """Every table but this capture's own and another's."""
        tables = Catalog(self._connection).tables()
        by_schema: dict[str, set[str]] = {}
        for table in tables:
            by_schema.setdefault(table.schema, set()).add(table.name)
        return [table for table in tables if not by_schema[table.schema] >= {"state", "shapes", "changes"}]

    def has_key(self, table: CatalogTable) -> bool:
        """Whether rows of a table are known by columns of theirs."""
        if table.key or self._settings.filters.key_of(table.full_name):
            return True
        row = self._execute(
            "select exists (select from pg_index x where x.indrelid = %s and x.indisunique and x.indpred is null "
            "and x.indimmediate and 0 <> all(x.indkey) and not exists (select from pg_attribute n "
            "where n.attrelid = x.indrelid and n.attnum = any(x.indkey) and not n.attnotnull))",
            [table.id],
        ).fetchone()
        return bool(row and row[0])

    def installed(self) -> tuple[str, int]:
        """Which installation this is, and the last position that was given."""
        sequence = f"pg_get_serial_sequence('{self._name}.changes', 'position')"
        installed, last = self._execute(
            f"select installed, coalesce(pg_sequence_last_value({sequence}), 0) from {self._name}.state"  # noqa: S608
        ).fetchone()
        return installed, last

    def _bring_up_to_date(self, tables: list[CatalogTable], *, is_new: bool) -> None:
        names = trigger_names(self._name)
        have = dict(
            self._execute(
                "select tgrelid::bigint, count(*) from pg_trigger where tgname = any(%s) group by 1", [list(names)]
            )
        )
        shapes = f"{self._name}.shapes"
        known = dict(self._execute(f"select root::bigint, max(id) from {shapes} where not gone group by 1"))  # noqa: S608
        names_before = {name for (name,) in self._execute(f"select schema || '.' || name from {shapes}")}  # noqa: S608
        taken: set[str] = set()
        # First what is gone: another table may have its name, and its rows come behind this truncate.
        for root in known.keys() - {table.id for table in tables}:
            with self._connection.transaction():
                self._execute(note(self._name, str(known[root]), "t"))
                self._execute(f"update {self._name}.shapes set gone = true where root = {root}")  # noqa: S608
                log.info("table is gone", root=root)
        for table in tables:
            if have.get(table.id) == len(names):
                continue
            # Each table by itself: whoever locks several at once comes to stand crosswise with writers.
            with self._connection.transaction():
                self._execute(_LOCK_TIMEOUT)
                for statement in triggers(self._name, table.quoted, table.id):
                    self._execute(statement)
                self._execute(f"select {self._name}.shape_of({table.id}, {table.id})")
                if not is_new:
                    # It is new, or somebody took its triggers away; either way only what it holds now is known.
                    self._read_again(table, _REPLACED if table.full_name in names_before else "")
                    log.info("table taken in", table=table.full_name)
            taken.add(table.full_name)
        self._look(tables, taken)

    def _read_again(self, table: CatalogTable, why: str) -> None:
        """Write every row among the changes, after a truncate; or, if somebody wants it so, only that it is needed.

        Without `why` the table is new, and nobody has rows of it.
        """
        shape = f"{self._name}.shape_of({table.id}, {table.id})"
        if why and self._settings.unseen_changes == STOP:
            self._execute(note(self._name, shape, "h", why))
            return
        self._execute(note(self._name, shape, "t"))
        self._execute(every_row(self._name, table.quoted, table.id))
        if why:
            log.warning("table is read again", table=table.full_name, reason=why)

    def _look(self, tables: list[CatalogTable], taken: set[str]) -> None:
        """Look for what triggers do not see: values that DDL wrote, partitions with rows, triggers put to sleep."""
        state = f"{self._name}.state"
        stored, horizon, last, now_last = self._execute(
            f"select tables, horizon, shapes, (select max(id) from {self._name}.shapes) from {state}"  # noqa: S608
        ).fetchone()
        ids = [table.id for table in tables]
        passed = (
            {id_ for (id_,) in self._execute(_PASSING.format(self._name), [last, ids])} if last is not None else set()
        )
        seen = look(self._connection, tables, self._settings.filters.key_of, "", horizon or "")
        awake = dict(self._execute(_AWAKE, [list(trigger_names(self._name)), ids]))
        truncated = dict(self._execute(_TRUNCATED.format(self._name)))
        bags = {table.full_name for table in tables if not self.has_key(table)}
        states = {
            name: replace(now, entry=awake.get(now.id, "") + (_BAG if name in bags else ""))
            for name, now in seen.states.items()
        }
        for table in tables:
            name = table.full_name
            old = (stored or {}).get(name)
            if name not in states or name in taken:
                continue
            if old is None:
                if stored is not None:  # it has triggers, and had another name when they were put there
                    with self._locked(table):
                        self._read_again(table, "")
                continue
            before, now = TableState.from_json(old).after_truncate(truncated.get(table.id, "")), states[name]
            why = unseen_between(before, now, seen.changed.get(name, ())) or (_PASSED if table.id in passed else "")
            if (_BAG in before.entry) != (_BAG in now.entry):
                why = REKEYED
            parts = [] if why else new_parts(before, now)
            if why or parts:
                with self._locked(table):
                    if why:
                        self._read_again(table, why)
                    for part in parts:
                        if rows := Catalog(self._connection).partition(table, part):
                            self._execute(every_row(self._name, rows, table.id))
        self._empty_renamed((stored or {}).keys() - states.keys())
        kept = json.dumps({name: now.as_json() for name, now in states.items()})
        values = [kept, seen.horizon, now_last]
        self._execute(f"update {state} set tables = %s::jsonb, horizon = %s, shapes = %s", values)  # noqa: S608

    @contextlib.contextmanager
    def _locked(self, table: CatalogTable) -> Iterator[None]:
        """A transaction in which nobody else writes to a table."""
        with self._connection.transaction():
            self._execute(_LOCK_TIMEOUT)
            self._execute(f"lock table {table.quoted} in share mode")
            yield

    def _empty_renamed(self, names: Collection[str]) -> None:
        """Truncates for tables that have other names now; those that were dropped have theirs already."""
        query = (
            f"select max(id) from {self._name}.shapes where root = relation and not gone "  # noqa: S608
            "and schema || '.' || name = any(%s) group by root, schema, name"
        )
        for (shape,) in self._execute(query, [list(names)]).fetchall() if names else ():
            self._execute(note(self._name, str(shape), "t"))

    def prune(self, through: int, visible: str | None) -> None:
        """Forget transactions that were passed on."""
        condition = "xid in (select xid from {0}.changes group by xid having max(position) <= %s)"
        values: list[Any] = [through]
        if visible is not None:
            condition += " or pg_visible_in_snapshot(xid, %s::pg_snapshot)"
            values.append(visible)
        # Truncates are kept for a while: what they did to files is found in the catalog, and they explain it.
        recent = "(op <> 't' or at < clock_timestamp() - interval '1 day')"
        statement = f"delete from {self._name}.changes where {recent} and ({condition.format(self._name)})"  # noqa: S608
        self._execute(statement, values)


def read_anew(settings: TriggerSettings, tables: Sequence[str]) -> None:
    """Have a running source read every row of these tables (`schema.table`) again, while changes go on.

    The rows are written among the changes by one transaction for each table, which keeps writers of that table waiting:
    so nothing newer than a row can come before it.
    """
    with connect(settings.url) as connection:
        capture = Capture(connection, settings)
        captured = {table.full_name: table for table in capture.captured()}
        check_captured(tables, captured, "schema.table")
        execute: Any = connection.execute
        for name in tables:
            try:
                with connection.transaction():
                    execute(_LOCK_TIMEOUT)
                    execute(f"lock table {captured[name].quoted} in share mode")
                    shape = f"{settings.capture}.shape_of({captured[name].id}, {captured[name].id})"
                    execute(note(settings.capture, shape, "e"))
                    if not capture.has_key(captured[name]):
                        execute(note(settings.capture, shape, "t"))
                    execute(every_row(settings.capture, captured[name].quoted, captured[name].id))
            except psycopg.errors.LockNotAvailable as error:
                raise SourceUnavailable(
                    f"table {name} was not read again, because a transaction has written to it for longer than 10 s: "
                    "ask again when that has ended"
                ) from error


def uninstall(url: str, capture: str = "headrace") -> None:
    """Take away every trigger and table of a capture; the user's own stay as they are."""
    with connect(url) as connection, connection.transaction():
        take_away(connection, capture)


def take_away(connection: Connection, capture: str) -> None:
    """The same, in a transaction of the caller's."""
    execute: Any = connection.execute
    rows = execute(
        "select n.nspname, c.relname, t.tgname from pg_trigger t join pg_class c on c.oid = t.tgrelid "
        "join pg_namespace n on n.oid = c.relnamespace where t.tgname = any(%s) and t.tgparentid = 0",
        [list(trigger_names(capture))],
    ).fetchall()
    for schema, table, name in rows:
        execute(f"drop trigger {name} on {quote(schema)}.{quote(table)}")
    execute(f"drop schema if exists {quote(capture)} cascade")


@dataclass(frozen=True, slots=True)
class Fence:
    """Whoever holds a position up to `position` has a transaction id below `xid`."""

    position: int
    xid: int


@dataclass(slots=True)
class Fences:
    """Takes fences, and says how far one can read.

    `new_xid` gives an id to a transaction of our own, after the last position was asked: whoever has a position up to
    there had an id before. (`pg_snapshot_xmax` would be no such bound: it is the id behind the last that has *ended*,
    and transactions with higher ids may run.) It costs an id only when there is something new.
    """

    last_position: Callable[[], int]
    new_xid: Callable[[], int]
    oldest_running: Callable[[], int]
    passed: int = 0
    waiting: Fence | None = None

    def advance(self) -> int:
        """The position up to which everything is there."""
        if self.waiting is None:
            position = self.last_position()
            if position > self.passed:
                self.waiting = Fence(position, self.new_xid())
        if self.waiting is not None and self.oldest_running() >= self.waiting.xid:
            self.passed = self.waiting.position
            self.waiting = None
        return self.passed


class TriggerTables:
    def __init__(self, settings: TriggerSettings) -> None:
        self._settings = settings
        with connect(settings.url) as connection:
            self.database = connection.info.dbname

    def names(self) -> list[TableName]:
        with connect(self._settings.url) as connection:
            return Capture(connection, self._settings).names()

    @contextlib.contextmanager
    def rows(self, name: str) -> Iterator[TableRows]:
        settings = self._settings
        with connect(settings.url) as side, connect(settings.url) as reader:
            shapes = Shapes(side, settings, {}, set(), is_new=True)
            found = next((one for one in Capture(side, settings).captured() if one.full_name == name), None)
            if found is None or name not in shapes.known:
                raise SourceRefused(f"table {name} is not captured yet", "headrace cdc start")
            table, query = shapes.current(found, Catalog(side))
            reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            execute: Any = reader.execute
            changes = f"{settings.capture}.changes"
            (last,) = execute(f"select coalesce(max(position), 0) from {changes}").fetchone()  # noqa: S608 - checked

            def is_reached(position: Position) -> bool:
                if "next" in position or "snapshot" in position or "inside" in position:
                    return False
                query: Any = (
                    f"select count(*) from {changes} where position <= %s and position > %s "  # noqa: S608 - checked
                    "and (%s::pg_snapshot is null or not pg_visible_in_snapshot(xid, %s::pg_snapshot))"
                )
                seen = position["visible"]
                return side.execute(query, [last, position["through"], seen, seen]).fetchone() == (0,)

            yield TableRows(table, chunked(read_rows(reader, query.statement(Range(name)))), is_reached)
