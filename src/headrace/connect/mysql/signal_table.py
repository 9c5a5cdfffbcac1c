"""The signal table: where operators ask for snapshots, and where the marks stand between which tables are read again.

Marks and our own signals are rows that are deleted in the transaction that wrote them: the log has them, and the table
stays empty. It is made when it is first needed, if the user may.
"""

import contextlib
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Final
from uuid import uuid4

import pymysql

from headrace.connect.change import CREATE, Change, Event
from headrace.connect.errors import SourceRefused
from headrace.connect.filters import check_captured
from headrace.connect.incremental import mark_of
from headrace.connect.mysql.catalog import Selection, literal, quote, read_tables
from headrace.connect.mysql.connection import Connection, Server, ask, connect, current_state, examine, translated
from headrace.connect.mysql.ddl import Name
from headrace.connect.mysql.settings import SIGNAL_TABLE, Address, MysqlSettings, parse_url
from headrace.connect.rereading import EXECUTE, STOP, signal_message

MARK: Final = "headrace-mark"
_COLUMNS: Final = "id VARCHAR(64) NOT NULL PRIMARY KEY, type VARCHAR(32) NOT NULL, data TEXT"  # as Debezium's
_DENIED: Final = (1142, 1143, 1044, 1227, 1370)
_READ_ONLY: Final = (1290, 1792, 1836, 1036)
_UNFIT: Final = (1054, 1364, 1406, 1265, 1366)  # no such column, one without a value, a value that does not fit
_OFF: Final = ("0", "OFF", "")


class SignalTable:
    """The table of one source; `name` is None where nobody said which it is."""

    def __init__(self, address: Address, name: Name | None) -> None:
        self._address = address
        self._name = name

    @property
    def full_name(self) -> str:
        """Database and table; empty if there is none."""
        return "" if self._name is None else ".".join(self._name)

    def mark_in(self, event: Event) -> str | None:
        """The mark that an event is."""
        if not isinstance(event, Change) or event.op != CREATE or event.table.full_name != self.full_name:
            return None
        row = event.table.python_row(event.after) or {}
        return str(row.get("id")) if row.get("type") == MARK else None

    def check(self, connection: Connection, server: Server) -> None:
        """Refuse what makes marks impossible; the table is there afterwards."""
        if self._name is None:
            raise SourceRefused(
                "tables are read again between marks in a table of ours, and neither the URL nor signal_table says in "
                "which database it may be",
                f'add signal_table = "DATABASE.{SIGNAL_TABLE}"',
            )
        with self._refused(connection):
            read_only = ask(connection, "SELECT @@global.read_only")[0][0]
            if str(read_only) not in _OFF:
                raise _read_only()
            is_ordered = server.is_mariadb or ask(connection, "SELECT @@global.binlog_order_commits")[0][0]
            if str(is_ordered) in _OFF:
                raise SourceRefused(
                    "transactions become visible in another order than the log has them (binlog_order_commits is OFF), "
                    "so a table cannot be read beside it",
                    "SET GLOBAL binlog_order_commits = ON",
                )
            self._ensure(connection, self._name)
            before = current_state(connection, server)
        self.mark(connection, mark_of(uuid4().hex, "check"))  # whether one can be written is seen at once
        with self._refused(connection):
            after = current_state(connection, server)
        if after == before:
            raise SourceRefused(
                f"what is written to {self.full_name} does not come into the binary log, as it must (binlog_do_db or "
                "binlog_ignore_db leave it out)",
                f'add signal_table = "DATABASE.{SIGNAL_TABLE}" with a database whose changes are logged',
            )

    def _ensure(self, connection: Connection, name: Name) -> None:
        database, table = map(literal, name)
        # CREATE TABLE IF NOT EXISTS is written to the log even if it does, and wants a privilege all the same.
        found = f"SELECT 1 FROM information_schema.tables WHERE table_schema = {database} AND table_name = {table}"  # noqa: S608
        if not ask(connection, found):
            ask(connection, self._creation(name))

    def _creation(self, name: Name) -> str:
        return f"CREATE TABLE IF NOT EXISTS {_quoted(name)} ({_COLUMNS}) ENGINE = InnoDB"

    def mark(self, connection: Connection, mark: str) -> None:
        """Write a mark into the log; it stands there when this returns."""
        self._pass_by(connection, mark, MARK, "")

    def send(self, connection: Connection, kind: str, tables: Sequence[str], reader: str) -> None:
        self._pass_by(connection, uuid4().hex, kind, signal_message(kind, tables, reader))

    def _pass_by(self, connection: Connection, row: str, kind: str, data: str) -> None:
        assert self._name is not None
        name = _quoted(self._name)
        with self._refused(connection):
            ask(connection, "START TRANSACTION")
            values = ", ".join(map(literal, (row, kind, data)))
            ask(connection, f"INSERT INTO {name} (id, type, data) VALUES ({values})")  # noqa: S608 - quoted
            ask(connection, f"DELETE FROM {name} WHERE id = {literal(row)}")  # noqa: S608 - quoted
            ask(connection, "COMMIT")

    @contextlib.contextmanager
    def _refused(self, connection: Connection) -> Iterator[None]:
        """What the server says to marks, in a sentence with the statement that mends it."""
        assert self._name is not None
        user, name = self._address.user, self.full_name
        try:
            with translated(self._address):
                yield
        except SourceRefused as refusal:
            with contextlib.suppress(pymysql.err.MySQLError, OSError):
                ask(connection, "ROLLBACK")
            cause = refusal.__cause__
            number = cause.args[0] if isinstance(cause, pymysql.err.MySQLError) and cause.args else 0
            said = refusal.args[0]
            if number in _DENIED:
                raise SourceRefused(
                    f"user {user} may not write to {name}, where the marks stand between which tables are read again",
                    f"{self._creation(self._name)}; GRANT SELECT, INSERT, DELETE ON {_quoted(self._name)} "
                    f"TO '{user}'@'%'",
                ) from cause
            if number in _READ_ONLY:
                raise _read_only() from cause
            if number in _UNFIT:
                raise SourceRefused(
                    f"the signal table {name} does not take a mark ({said})",
                    f"DROP TABLE {_quoted(self._name)}, it is made again; or {self._creation(self._name)} elsewhere",
                ) from cause
            raise


def _read_only() -> SourceRefused:
    return SourceRefused(
        "the server is read-only, and tables are read again between marks that are written to it",
        "capture the server that it replicates, or start another capture with a name of its own, which begins with a "
        "snapshot",
    )


def _quoted(name: Name) -> str:
    return f"{quote(name[0])}.{quote(name[1])}"


def request_snapshot(settings: MysqlSettings, tables: Sequence[str]) -> None:
    """Have every row of these tables (`database.table`) read again, while the log runs on."""
    _ask(settings, EXECUTE, tables)


def stop_snapshot(settings: MysqlSettings, tables: Sequence[str] = ()) -> None:
    """Have these tables not read on, or none at all if none is named; what was read stays."""
    _ask(settings, STOP, tables)


def _ask(settings: MysqlSettings, kind: str, tables: Sequence[str]) -> None:
    address = parse_url(settings.url)
    signals = SignalTable(address, settings.signal_name)
    with closing(connect(address)) as connection:
        with translated(address):
            server = examine(connection)
            every = read_tables(connection, is_mariadb=server.is_mariadb)
        captures = Selection(settings.filters, address.database, hidden=settings.signal_name)
        check_captured(tables, [".".join(name) for name in every if captures(name)], "database.table")
        signals.check(connection, server)
        signals.send(connection, kind, tables, settings.capture)
