"""What is there already: every row in one consistent read, and the transactions that it holds.

MariaDB says itself which place in the log a consistent read belongs to. MySQL does not, so writers wait there for the
moment in which the read begins (`FLUSH TABLES WITH READ LOCK`). While rows of a table are read, a statement that
changes its shape waits, and no other does; if it is one that is still to be read, the snapshot begins again there.
"""

from collections.abc import Iterator
from typing import Any

import pymysql.cursors

from headrace.connect.errors import SourceRefused
from headrace.connect.mysql.catalog import CatalogTable
from headrace.connect.mysql.connection import ask, connect, translated
from headrace.connect.mysql.flavor import Server, current_state
from headrace.connect.mysql.gtid import GtidState
from headrace.connect.mysql.queries import RowQuery
from headrace.connect.mysql.settings import Address
from headrace.connect.mysql.shape import Shape
from headrace.connect.table import Row

_TRANSACTIONAL = ("innodb", "rocksdb", "tokudb", "ndbcluster")
_SAVEPOINT = "SAVEPOINT headrace"


class Snapshot:
    """The rows of some tables as of one instant, on from a place."""

    def __init__(
        self, address: Address, server: Server, tables: list[CatalogTable], place: dict[str, Any] | None
    ) -> None:
        for table in tables:
            if table.engine.lower() not in _TRANSACTIONAL:
                raise SourceRefused(
                    f"table {table.shape.full_name} has the engine {table.engine}, of which no consistent snapshot can "
                    "be taken",
                    f"ALTER TABLE {table.shape.full_name} ENGINE = InnoDB, or start with snapshot='never'",
                )
        self._address = address
        shapes = sorted((table.shape for table in tables), key=lambda shape: shape.full_name)
        self._after: list[Any] | None = None
        if place is not None:
            shapes = [shape for shape in shapes if shape.full_name >= place["table"]]
            if shapes and shapes[0].full_name == place["table"]:
                self._after = place["after"]
        self._shapes = shapes
        self._rows: Iterator[Row] | None = None
        self._connection = connect(address)
        with translated(address):
            self.state = self._begin(server)
            ask(self._connection, _SAVEPOINT)

    def _begin(self, server: Server) -> GtidState:
        connection = self._connection
        ask(connection, "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        if server.is_mariadb:
            ask(connection, "START TRANSACTION WITH CONSISTENT SNAPSHOT")
            found = {name.lower(): value for name, value in ask(connection, "SHOW STATUS LIKE 'binlog_snapshot_%'")}
            where = f"'{found['binlog_snapshot_file']}', {found['binlog_snapshot_position']}"
            return server.parse_state(ask(connection, f"SELECT BINLOG_GTID_POS({where})")[0][0] or "")
        guard = connect(self._address)
        try:
            ask(guard, "FLUSH TABLES WITH READ LOCK")
            ask(connection, "START TRANSACTION WITH CONSISTENT SNAPSHOT")
            return current_state(guard, server)
        finally:
            guard.close()  # and with it the lock goes

    @property
    def is_done(self) -> bool:
        """Whether every row was read."""
        return not self._shapes

    @property
    def begins_bag(self) -> bool:
        """Whether a table without a key comes next, from its first row: what was told of it counts no more."""
        return self._rows is None and not self.is_done and not self._shapes[0].key

    @property
    def place(self) -> dict[str, Any]:
        """Behind the last row that was read; a table without a key begins anew."""
        return {"table": self._shapes[0].full_name, "after": self._after}

    def read(self, count: int) -> tuple[Shape, list[Row]]:
        """Some rows of the first table that has any left."""
        shape = self._shapes[0]
        with translated(self._address):
            if self._rows is None:
                self._rows = self._select(shape)
            rows = [row for _, row in zip(range(count), self._rows, strict=False)]
        if len(rows) < count:
            with translated(self._address):
                ask(self._connection, f"ROLLBACK TO {_SAVEPOINT}")  # lets go of the table, and keeps the instant
            self._rows = None
            self._after = None
            self._shapes = self._shapes[1:]
        elif shape.key:
            self._after = list(RowQuery(shape).key_of(rows[-1]))
        return shape, rows

    def _select(self, shape: Shape) -> Iterator[Row]:
        query = RowQuery(shape)
        cursor = pymysql.cursors.SSCursor(self._connection)
        cursor.execute(query.statement(self._after))
        while rows := cursor.fetchmany(1000):
            yield from map(query.row, rows)
        cursor.close()

    def close(self) -> None:
        """Let go of the instant."""
        unread: Any = self._connection._result  # type: ignore[attr-defined]  # noqa: SLF001
        if unread is not None:
            unread.unbuffered_active = False  # the driver would read on when it is thrown away
        force: Any = self._connection._force_close  # type: ignore[attr-defined]  # noqa: SLF001 - the rest need not come
        force()
