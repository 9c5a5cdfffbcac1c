"""The decoder's view of the world outside: the database as it is now, and the history of its tables' shapes."""

import contextlib
from collections.abc import Collection

import pymysql

from headrace.connect.change import Position
from headrace.connect.mysql.catalog import CatalogTable, database_charset, read_tables
from headrace.connect.mysql.connection import Connection, connect, translated
from headrace.connect.mysql.ddl import Name
from headrace.connect.mysql.flavor import Server, current_state, examine
from headrace.connect.mysql.foreign_keys import ForeignKey, any_trigger, read_foreign_keys
from headrace.connect.mysql.gtid import GtidState
from headrace.connect.mysql.history import HistoryRecord, SchemaHistory
from headrace.connect.mysql.settings import Address, MysqlSettings, parse_url
from headrace.connect.mysql.shape import Shape

_SHAPES_A_RECORD = 200


class DatabaseMemory:
    """Asks the database over a connection of its own, and writes the history."""

    def __init__(self, address: Address, server: Server, side: Connection, history: SchemaHistory, number: int) -> None:
        self.address = address
        self._server = server
        self._connection = side
        self._history = history
        self.number = number

    def side(self) -> Connection:
        """The connection for questions; the server may have ended it for being silent."""
        try:
            self._connection.ping(reconnect=False)
        except (pymysql.err.MySQLError, OSError):
            self._connection = connect(self.address)
        return self._connection

    def charset_of(self, database: str) -> str:
        """What a database gives new tables."""
        side = self.side()
        with translated(self.address):
            return database_charset(side)(database)

    def live_tables(self) -> dict[Name, CatalogTable]:
        """Every table as it is now."""
        side = self.side()
        with translated(self.address):
            return read_tables(side, is_mariadb=self._server.is_mariadb)

    def current_state(self) -> GtidState:
        """The transactions that the log holds now."""
        side = self.side()
        with translated(self.address):
            return current_state(side, self._server)

    def close(self) -> None:
        """Ask no more."""
        with contextlib.suppress(pymysql.err.MySQLError, OSError):
            self._connection.close()

    def live_shapes(self) -> dict[Name, Shape]:
        """The shape of every table as it is now."""
        return {name: table.shape for name, table in self.live_tables().items()}

    def foreign_keys(self) -> list[ForeignKey]:
        """The foreign keys by which a change of one table changes another, as they are now."""
        side = self.side()
        with translated(self.address):
            return read_foreign_keys(side)

    def has_triggers(self, tables: Collection[Name]) -> bool:
        """Whether a change of these tables may change others."""
        side = self.side()
        with translated(self.address):
            return any_trigger(side, tables)

    def remember(self, gtid: str, statement: str, shapes: dict[Name, Shape | None]) -> None:
        """Keep a change of shapes."""
        self.number += 1
        named = {f"{database}.{table}": shape for (database, table), shape in shapes.items()}
        self._history.append(HistoryRecord(self.number, gtid, statement, named))

    def begin(self, gtid: str, shapes: dict[Name, Shape]) -> None:
        """Begin the history anew with every table."""
        old = [record.number for record in self._history.load()]
        names = list(shapes)
        self.number = max([self.number, *old])
        for first in range(0, max(len(names), 1), _SHAPES_A_RECORD):
            self.number += 1
            some = {f"{n[0]}.{n[1]}": shapes[n] for n in names[first : first + _SHAPES_A_RECORD]}
            self._history.append(HistoryRecord(self.number, gtid, "(as the database has it)", dict(some), first == 0))
        self._history.forget(old)


def rebuild_history(settings: MysqlSettings, history: SchemaHistory, position: Position) -> Position:
    """Begin the history anew with the tables as they are now; answers the position to store.

    It is right if no table changed its shape behind the position; what does not fit is refused when its rows come.
    """
    address = parse_url(settings.url)
    with translated(address):
        side = connect(address)
        try:
            memory = DatabaseMemory(address, examine(side), side, history, int(position["history"]))
            shapes = memory.live_shapes()
        finally:
            side.close()
    memory.begin(position["gtid"], shapes)
    return {**position, "history": memory.number}
