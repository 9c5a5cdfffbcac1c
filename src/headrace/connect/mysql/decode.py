"""From the events of the binary log to changes: transactions, tables and their shapes, statements that change them.

Nothing here touches a socket. What has to be asked of the database or kept in the history is asked through `Memory`.
"""

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Final, Protocol

from headrace.connect.change import (
    CREATE,
    DELETE,
    TRUNCATE,
    UPDATE,
    Change,
    Event,
    Member,
    Origin,
    Place,
    SchemaChange,
    TransactionEnd,
    UnseenChange,
)
from headrace.connect.errors import SchemaChangeBlocked, SourceRefused
from headrace.connect.filters import TypeModes
from headrace.connect.mysql import events as logged
from headrace.connect.mysql.catalog import SYSTEM
from headrace.connect.mysql.columns import NotUnderstood
from headrace.connect.mysql.ddl import Effect, Name, RowsAsText, apply_statement, names_in
from headrace.connect.mysql.events import Begin, Header, Kind
from headrace.connect.mysql.foreign_keys import Cascades, ForeignKey
from headrace.connect.mysql.gtid import GtidState
from headrace.connect.mysql.rows import Parse, PartsOfRows, read_rows, row_parser, rows_table_id
from headrace.connect.mysql.shape import Shape, difference, values_altered
from headrace.connect.mysql.table_maps import TableMap, read_table_map
from headrace.connect.table import Table
from headrace.telemetry.logs import get_logger

log = get_logger(__name__)
_ROWS: Final = {
    Kind.WRITE, Kind.UPDATE, Kind.DELETE, Kind.WRITE_V1, Kind.UPDATE_V1, Kind.DELETE_V1, Kind.WRITE_COMPRESSED,
    Kind.UPDATE_COMPRESSED, Kind.DELETE_COMPRESSED, Kind.WRITE_COMPRESSED_V1, Kind.UPDATE_COMPRESSED_V1,
    Kind.DELETE_COMPRESSED_V1,
}  # fmt: skip
_REFUSED: Final[dict[int, tuple[str, str]]] = {  # what is wrong, and what mends it
    Kind.PARTIAL_UPDATE: (
        "the binary log holds only what changed inside JSON documents",
        "SET GLOBAL binlog_row_value_options = ''",
    ),
    Kind.PAYLOAD: (
        "the binary log is compressed by whole transactions",
        "SET GLOBAL binlog_transaction_compression = OFF",
    ),
    Kind.TAGGED_GTID: ("a transaction has a GTID with a tag, which is not read here", "SET gtid_next = AUTOMATIC"),
    Kind.ANONYMOUS_GTID: ("a transaction has no GTID", "SET GLOBAL gtid_mode = ON"),
    Kind.INCIDENT: (
        "the server says that changes are missing from its log (an incident event)",
        "start with snapshot='when-needed' and without a position",
    ),
}
_KEY_WORDS: Final = re.compile("FOREIGN|REFERENCES", re.IGNORECASE)
_NO_TABLE: Final = 0xFFFFFF  # the number in an event that only ends a statement
_PARTS: Final = "the log holds only parts of its rows, because a session has another binlog_row_image"
OWN: Final = ("file", "pos", "row")
_NOBODY: Final = Origin(None, 0, own=OWN)


class Memory(Protocol):
    """What a decoder asks of the world."""

    def charset_of(self, database: str) -> str:
        """What a database gives new tables."""
        ...

    def live_shapes(self) -> dict[Name, Shape]:
        """Every table as it is now."""
        ...

    def foreign_keys(self) -> list[ForeignKey]:
        """The foreign keys by which a change of one table changes another."""
        ...

    def has_triggers(self, tables: Collection[Name]) -> bool:
        """Whether a change of these tables may change others."""
        ...

    def remember(self, gtid: str, statement: str, shapes: dict[Name, Shape | None]) -> None:
        """Keep a change of shapes."""
        ...


@dataclass(slots=True)
class Progress:
    """How far the log was read: transactions behind us, and events of the one that we are in."""

    state: GtidState
    gtid: str = ""  # of the transaction that we are in
    row_events: int = 0
    file: str = ""
    end: int = 0


class Decoder:
    """Reads the log; `events` are what it found."""

    def __init__(
        self,
        progress: Progress,
        shapes: dict[Name, Shape],
        captures: Callable[[Name], bool],
        memory: Memory,
        *,
        has_checksum: bool,
        policy: str,
        modes: TypeModes,
        left_out: set[Name],
        is_keyed: Callable[[Shape], bool] = lambda shape: bool(shape.key),
        internal: Name | None = None,
        lower_case_table_names: int = 0,
    ) -> None:
        """Of the table that is `internal` rows are told, whatever else is captured, and nothing of its shape.

        With `lower_case_table_names`, as the server has it, names in statements are the same in any case.
        """
        self.progress = progress
        self.has_internal = False  # whether there were any so far; whoever looks takes it back
        self._internal = internal
        self.events: list[Event] = []
        self.changes = 0
        self.left_out = left_out
        self._resume_at = (progress.gtid, progress.row_events)
        self._shapes = shapes
        self._captures = captures
        self._is_keyed = is_keyed
        self._memory = memory
        self._has_checksum = has_checksum
        self._policy = policy
        self._modes = modes
        self._tables: dict[Name, Table] = {}
        self._mapped: dict[int, tuple[Table, Parse] | None] = {}
        self._announced: dict[int, TableMap] = {}  # of tables on which others depend
        self._cascades = Cascades(memory.foreign_keys())
        self._unseen: set[Name] = set()  # of this transaction
        self._case = lower_case_table_names
        self._origin = _NOBODY
        self._is_open = False  # a transaction that a commit will end
        self._is_prepared = False
        self._has_rows = False
        self._skipped = 0
        progress.gtid, progress.row_events = "", 0
        self._handlers = {
            Kind.ROTATE: self._rotate,
            Kind.FORMAT: self._format,
            Kind.MARIADB_GTID: lambda header, body: self._begin(header, logged.read_mariadb_gtid(header, body)),
            Kind.MYSQL_GTID: lambda header, body: self._begin(header, logged.read_mysql_gtid(header, body)),
            Kind.QUERY: lambda header, body: self._query(header, body, is_compressed=False),
            Kind.QUERY_COMPRESSED: lambda header, body: self._query(header, body, is_compressed=True),
            Kind.EXECUTE_LOAD: self._load,
            Kind.TABLE_MAP: self._table_map,
            Kind.XID: self._commit,
            Kind.XA_PREPARE: self._xa,
        }
        self._handlers.update(dict.fromkeys(_ROWS, self._rows))

    @property
    def in_transaction(self) -> bool:
        return bool(self.progress.gtid)

    def feed(self, data: bytes) -> None:
        header = logged.read_header(data)
        if header.kind in _REFUSED:
            logged.checked_body(data, has_checksum=self._has_checksum)
            raise SourceRefused(*_REFUSED[header.kind])
        handler = self._handlers.get(header.kind)  # type: ignore[call-overload]
        if handler is not None:
            handler(header, logged.checked_body(data, has_checksum=self._has_checksum))
        elif header.kind not in logged.SILENT and not header.flags & logged.MAY_BE_IGNORED:
            self._suspect([], f"the log holds an event of type {header.kind}, which is not read here")
        if header.end:
            self.progress.end = header.end

    @property
    def captured(self) -> list[Shape]:
        """The captured tables in their shapes at this place."""
        return [shape for name, shape in self._shapes.items() if self._captures(name) and name not in self.left_out]

    def table_of(self, shape: Shape) -> Table:
        name = (shape.database, shape.table)
        table = self._tables.get(name)
        if table is None:
            table = self._tables[name] = shape.as_table(self._modes)
        return table

    # --- files

    def _rotate(self, _header: Header, body: bytes) -> None:
        self.progress.file, self.progress.end = logged.read_rotate(body)

    def _format(self, _header: Header, _body: bytes) -> None:
        self._mapped.clear()  # numbers of tables are given anew
        self._announced.clear()

    # --- transactions

    def _begin(self, header: Header, begin: Begin) -> None:
        if self.progress.gtid:
            self._end()  # the statement before was all of it
        self.progress.gtid = begin.gtid
        self.progress.row_events = 0
        self._skipped = self._resume_at[1] if begin.gtid == self._resume_at[0] else 0
        self._is_open = header.kind == Kind.MARIADB_GTID and not begin.is_standalone
        self._is_prepared = begin.is_prepared
        self._has_rows = False
        self._unseen.clear()
        shared: dict[str, Member] = {"server_id": header.server_id, "gtid": begin.gtid}
        self._origin = Origin(begin.gtid, begin.ts_us, "false", shared, OWN)

    def _commit(self, _header: Header, _body: bytes) -> None:
        self._end()

    def _end(self) -> None:
        progress = self.progress
        if not progress.gtid:
            return
        if self._has_rows:
            self.events.append(TransactionEnd(self._origin))
        progress.state = progress.state.with_gtid(progress.gtid)
        progress.gtid, progress.row_events = "", 0
        self._origin = _NOBODY
        self._is_open = False

    def _place(self) -> Place:
        return self.progress.file, self.progress.end, 0

    # --- rows

    def _table_map(self, _header: Header, body: bytes) -> None:
        announced = read_table_map(body)
        name = (announced.database, announced.table)
        if self._cascades.of(name):
            self._announced[announced.id] = announced
        is_internal = name == self._internal
        if not is_internal and (not self._captures(name) or name in self.left_out):
            self._mapped[announced.id] = None
            return
        shape = self._shapes.get(name)
        why = "it was never seen" if shape is None else shape.misfit(announced)
        if shape is None or why is not None:
            shape = self._ask_shape(name, announced, why)
        self._mapped[announced.id] = (self.table_of(shape), row_parser(announced, shape))

    def _ask_shape(self, name: Name, announced: TableMap, why: str | None) -> Shape:
        """The statements in the log did not tell the shape; the database may, if the table is still the same."""
        shape = self._memory.live_shapes().get(name)
        if shape is None or shape.misfit(announced) is not None:
            raise SourceRefused(
                f"the shape that table {name[0]}.{name[1]} had at this place in the log is not known ({why})",
                "start with snapshot='when-needed' and without a stored position; the log says more after "
                "SET GLOBAL binlog_row_metadata = FULL",
            )
        log.warning("shape taken from the database", table=shape.full_name, reason=why)
        self._take(Effect({name: shape}), "(as the database has it)")
        return shape

    def _rows(self, header: Header, body: bytes) -> None:
        progress = self.progress
        progress.row_events += 1
        number = rows_table_id(body)
        if number not in self._mapped and number != _NO_TABLE:
            raise logged.CorruptLog(f"rows of table {number}, which was not announced")
        mapped = self._mapped.get(number)
        if progress.row_events <= self._skipped:
            return
        if number in self._announced:
            self._follow(header, body, self._announced[number])
        if mapped is None:
            return
        if self._is_prepared:
            self._xa(header, body)
        table, parse = mapped
        self._has_rows = True
        if (table.schema, table.name) == self._internal:
            self.has_internal = True
        origin, out = self._origin, self.events
        file, end = progress.file, header.end
        try:
            rows = read_rows(header.kind, body, len(table.columns), parse)
        except PartsOfRows:
            self._suspect([(table.schema, table.name)], f"{_PARTS}: SET GLOBAL binlog_row_image = FULL mends it")
            return
        self.changes += len(rows)
        for number, (before, after) in enumerate(rows):
            op = CREATE if before is None else DELETE if after is None else UPDATE
            out.append(Change(table, op, before, after, origin, (file, end, number)))

    def _follow(self, header: Header, body: bytes, announced: TableMap) -> None:
        """Rows of a table changed on which others depend: theirs may have gone or changed with them."""
        parent = (announced.database, announced.table)
        for key in self._cascades.met(header, body, announced, self._shapes.get(parent)):
            self._suspect(self._cascades.reached(key.child), key.describe(header))

    # --- statements

    def _query(self, _header: Header, body: bytes, *, is_compressed: bool) -> None:
        statement = logged.read_query(body, is_compressed=is_compressed)
        first = statement.text.lstrip()[:24].upper()
        if first.startswith("BEGIN"):
            self._is_open = True
        elif first.startswith("COMMIT"):
            self._end()
        elif first.startswith("ROLLBACK"):
            if self._has_rows:
                raise SourceRefused(
                    "a transaction that was rolled back is in the log, because it changed a table without transactions",
                    "ALTER TABLE … ENGINE = InnoDB, then start with snapshot='when-needed' and without a position",
                )
            if "TO" not in first.split():
                self._end()
        elif first.startswith("XA"):
            self._is_open = first.startswith("XA START")
            if not self._is_open:
                self._end()
        else:
            self._obey(statement)
            if not self._is_open:
                self._end()

    def _load(self, _header: Header, body: bytes) -> None:
        self._obey(logged.read_query(body, is_load=True))

    def _obey(self, statement: logged.Statement) -> None:
        """A statement that stands in the log as text: a definition, or a change of rows by a session of its own ways.

        Of what is not understood no table that it may concern is passed over.
        """
        shown = " ".join(statement.text.split())[:80]
        try:
            effect = apply_statement(statement, self._shapes, self._memory.charset_of, self._folded)
        except RowsAsText:
            what = f"a change is in the log as a statement ({shown}): SET GLOBAL binlog_format = ROW mends it"
            self._suspect(self._concerned(statement), what)
            return
        except NotUnderstood as error:
            live = self._memory.live_shapes()
            named = names_in(statement, self._folded) & {*live, *self._shapes}
            shapes = {name: live.get(name) for name in named if live.get(name) != self._shapes.get(name)}
            what = f"a statement in the log is not understood ({shown})"
            effect = Effect(shapes, unseen=tuple((name, what) for name in named if name in live))
            log.warning("statement not understood, shapes taken from the database", reason=str(error))
        if effect.indexed:
            effect = self._with_keys(effect)
        if effect.moved or effect.unseen or _KEY_WORDS.search(statement.text):
            self._cascades = Cascades(self._memory.foreign_keys())
        if effect.shapes or effect.emptied or effect.unseen:
            self._take(effect, statement.text)

    def _with_keys(self, effect: Effect) -> Effect:
        """The effect of another index: the key that the database makes of those that there are now."""
        shapes, unseen = dict(effect.shapes), list(effect.unseen)
        for name in effect.indexed:
            shape = effect.shapes.get(name) or self._shapes.get(name)
            if shape is None or not self._captures(name) or (live := self._memory.live_shapes().get(name)) is None:
                continue
            if live.key != shape.key and set(live.key) <= set(shape.names):
                shapes[name] = replace(shape, key=live.key)
                if self._is_keyed(shape):
                    unseen.append((name, f"its key became {', '.join(live.key) or 'none'}"))
        return replace(effect, shapes=shapes, unseen=tuple(unseen))

    def _folded(self, name: Name) -> Name:
        """A name as the server takes it."""
        if not self._case:
            return name
        lower = (name[0].lower(), name[1].lower())
        if self._case == 1:
            return lower
        same = (known for known in self._shapes if (known[0].lower(), known[1].lower()) == lower)
        return next(same, name)

    def _concerned(self, statement: logged.Statement) -> list[Name]:
        """The tables that a change may have reached: those it names, and what triggers and foreign keys do with them.

        None stands for every table: a view, a function or a trigger may write to any.
        """
        named = names_in(statement, self._folded) & self._shapes.keys()
        if not named or self._memory.has_triggers(named):
            return []
        return [reached for name in named for reached in self._cascades.reached(name)]

    def _suspect(self, names: Collection[Name], what: str) -> None:
        """Rows of these tables, or of any if none is named, may have changed, and the log does not tell which."""
        chosen = names or [(shape.database, shape.table) for shape in self.captured]
        place = self._place()
        for name in chosen:
            shape = self._shapes.get(name)
            if shape is None or not self._captures(name) or name in self.left_out or name in self._unseen:
                continue
            self._unseen.add(name)
            self.events.append(UnseenChange(self.table_of(shape), what, self._origin, place))
            self.changes += 1

    def _take(self, effect: Effect, text: str) -> None:
        events: list[Event] = []
        place = self._place()
        came_from = {new: old for old, new in effect.moved}
        for name, shape in effect.shapes.items():
            if not self._captures(name) or name in self.left_out:
                continue
            old = self._shapes.get(name)
            if shape is None:
                if old is not None:
                    table = self.table_of(old)
                    events.append(SchemaChange(table, table, "the table was dropped or renamed", self._origin, place))
                    events.append(Change(table, TRUNCATE, None, None, self._origin, place))
                continue
            before = old or self._shapes.get(came_from.get(name, name))
            what = difference(before, shape) if before is not None else "the table was made"
            if self._policy == "block" and before is not None:
                raise SchemaChangeBlocked(shape.full_name, what)
            if self._policy == "skip" and old is not None:
                self.left_out.add(name)
                what += "; changes of this table are left out from here on (schema_changes is 'skip')"
            table_before = None if old is None else self.table_of(old)
            events.append(SchemaChange(shape.as_table(self._modes), table_before, what, self._origin, place))
        for name in effect.emptied:
            shape = self._shapes.get(name)
            if shape is not None and self._captures(name) and name not in self.left_out:
                events.append(Change(self.table_of(shape), TRUNCATE, None, None, self._origin, place))
        changed = {name: shape for name, shape in effect.shapes.items() if name[0] not in SYSTEM}
        rekeyed = [(name, why) for name, shape in changed.items() if (why := self._describe_rekeying(name, shape))]
        if changed:
            self._memory.remember(self.progress.gtid, text, changed)
        for name, shape in changed.items():
            self._tables.pop(name, None)
            if shape is None:
                self._shapes.pop(name, None)
            else:
                self._shapes[name] = shape
        # Of other tables rows may follow in the same statement.
        self._mapped = {
            number: mapped
            for number, mapped in self._mapped.items()
            if mapped is None or (mapped[0].schema, mapped[0].name) not in changed
        }
        self.events += events
        self.changes += len(events)
        for name, what in (*effect.unseen, *rekeyed):
            self._suspect([name], what)

    def _describe_rekeying(self, name: Name, shape: Shape | None) -> str:
        """Why rows of a table are known by something else than before, as a clause; empty if they are not."""
        old = self._shapes.get(name)
        if old is None or shape is None or self._is_keyed(old):
            return ""
        if self._is_keyed(shape):
            return f"its key became {', '.join(shape.key)}"
        column = values_altered(old, shape)
        return f"column {column} was altered, and its rows are known by their values alone" if column else ""

    # --- what is refused

    def _xa(self, _header: Header, _body: bytes) -> None:
        if self._has_rows or self._is_prepared:
            raise SourceRefused(
                "an XA transaction changed a captured table, and the log does not say yet whether it will be committed",
                "write to captured tables in transactions without XA, and start with snapshot='when-needed' and "
                "without a position",
            )
