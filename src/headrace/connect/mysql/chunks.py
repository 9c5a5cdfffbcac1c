"""A chunk of a table as it is now, read between two marks in the log.

Why nothing is missed: a transaction is in the log before others can see it, and both MariaDB and MySQL make
transactions visible in the order of the log. So what the chunk sees stands before the high mark, and what it does not
see stands behind the low one. The table is looked at behind the low mark too: a statement that changes its shape since
then stands between the two, and the chunk is read again.

A table without a key is read whole, in a transaction of its own: which changes between the marks its rows hold already
is told by the transactions that were in the log at its instant.
"""

from collections.abc import Container
from contextlib import closing
from dataclasses import dataclass, field, replace

import pymysql

from headrace.connect.errors import SourceRefused, SourceUnavailable
from headrace.connect.filters import TypeModes
from headrace.connect.incremental import HIGH, LOW, Range, ReadChunk, mark_of
from headrace.connect.mysql.catalog import CatalogTable, Selection, read_tables
from headrace.connect.mysql.connection import Server, translated
from headrace.connect.mysql.ddl import Name
from headrace.connect.mysql.history import DatabaseMemory
from headrace.connect.mysql.shape import Shape
from headrace.connect.mysql.signal_table import SignalTable
from headrace.connect.mysql.snapshot import RowQuery, Snapshot
from headrace.connect.table import Row, Table

_ALTERED = (1054, 1146, 1412)  # no such column, no such table, another definition since the instant


@dataclass(slots=True)
class ChunkReader:
    """Reads chunks over the connection for questions."""

    memory: DatabaseMemory
    server: Server
    signals: SignalTable
    captures: Selection
    left_out: Container[Name]  # tables that are captured no more, and may become more
    modes: TypeModes
    chunk_rows: int
    _made: dict[str, tuple[Shape, Table]] = field(default_factory=dict)

    def read_between(self, wanted: Range, name: str) -> ReadChunk | None:
        """The first rows of a range; None if the table is not there any more, or no reader's business."""
        side = self.memory.side()
        database, _, table = wanted.table.partition(".")
        if (database, table) in self.left_out:
            return None
        self.signals.mark(side, mark_of(name, LOW))
        with translated(self.memory.address):
            live = read_tables(side, is_mariadb=self.server.is_mariadb, only=(database, table))
            found = live.get((database, table))
            if found is None or not self.captures((database, table)):
                return None
            shape = self.captures.ordered(found.shape)
            if not shape.key:
                return self._read_bag(replace(found, shape=shape), name)
            query = RowQuery(shape)
            with side.cursor() as cursor:
                try:
                    cursor.execute(query.statement(wanted.after, self.chunk_rows))
                except pymysql.err.MySQLError as error:
                    if error.args and error.args[0] in _ALTERED:
                        raise SourceUnavailable(f"table {wanted.table} was altered while it was read") from error
                    raise
                rows = [query.row(row) for row in cursor.fetchall()]
        self.signals.mark(side, mark_of(name, HIGH))
        last_key = query.key_of(rows[-1]) if rows else None
        return ReadChunk(self._table(shape), rows, last_key, len(rows) < self.chunk_rows)

    def _read_bag(self, found: CatalogTable, name: str) -> ReadChunk:
        """Every row of a table without a key, of an instant whose transactions are known."""
        try:
            snapshot = Snapshot(self.memory.address, self.server, [found], None)
            with closing(snapshot):
                rows: list[Row] = [row for chunk in snapshot.chunks(self.chunk_rows) for row in chunk]
        except SourceRefused as refusal:
            cause = refusal.__cause__
            if isinstance(cause, pymysql.err.MySQLError) and cause.args and cause.args[0] in _ALTERED:
                raise SourceUnavailable(f"table {found.shape.full_name} was altered while it was read") from cause
            raise
        self.signals.mark(self.memory.side(), mark_of(name, HIGH))
        state, parse = snapshot.state, self.server.parse_state
        table = self._table(found.shape)
        return ReadChunk(table, rows, None, True, has_seen=lambda gtid: state.covers(parse(gtid)))

    def _table(self, shape: Shape) -> Table:
        """One table for each shape, however many chunks there are: whoever writes rows knows tables by identity."""
        known = self._made.get(shape.full_name)
        if known is None or known[0] != shape:
            known = self._made[shape.full_name] = (shape, shape.as_table(self.modes))
        return known[1]
