"""The initial snapshot: every row as of the instant at which the slot begins, read by several threads at once.

Ranges of keys are handed to the threads; each reads its range by one COPY in the slot's own snapshot and puts rows on a
short queue, so that what cannot be written yet is not read. The snapshot ends with its connections: after a crash what
is left of the ranges is read by `incremental`, between watermarks in the log, and not from a snapshot that would be
newer than the log that follows it.
"""

import contextlib
import json
import queue
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg

from headrace.connect.change import Position
from headrace.connect.errors import ConnectError, SourceUnavailable
from headrace.connect.filters import unknown_table
from headrace.connect.incremental import Range, Remaining
from headrace.connect.postgres.captured import FOUND
from headrace.connect.postgres.catalog import Catalog, CatalogTable
from headrace.connect.postgres.chunks import is_standby
from headrace.connect.postgres.connection import connect
from headrace.connect.postgres.relation import LogPosition, parse_lsn
from headrace.connect.postgres.rows import RowQuery, read_rows
from headrace.connect.postgres.settings import PostgresSettings
from headrace.connect.postgres.shapes import Shapes
from headrace.connect.source import TableRows, chunked
from headrace.connect.table import Row, TableName
from headrace.connect.table_snapshot import size_of


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some rows of a range, and whether they are its last."""

    range: Range
    rows: list[Row]
    is_last: bool


def plan_ranges(
    connection: psycopg.Connection[tuple[Any, ...]],
    tables: Sequence[CatalogTable],
    queries: dict[str, RowQuery],
    range_rows: int,
) -> Remaining:
    """The ranges of every table: one, or several of a large one."""
    found: list[Range] = []
    for table in tables:
        query = queries[table.full_name]
        bounds: list[tuple[str, ...]] = []
        if table.key and table.rows > 2 * range_rows:
            sample = connection.execute(query.bounds_statement(table.rows, range_rows)).fetchall()
            parts = -(-table.rows // range_rows)
            step = max(1, len(sample) // parts)
            bounds = list(dict.fromkeys(sample[step:-1:step]))
        for after, upto in zip([None, *bounds], [*bounds, None], strict=True):
            found.append(Range(table.full_name, after, upto))
    return Remaining(tuple(found))


class InitialSnapshot:
    """Rows of every table as of one instant, read by threads; closed by whoever made it."""

    def __init__(
        self,
        url: str,
        snapshot: str,
        ranges: Remaining,
        queries: dict[str, RowQuery],
        *,
        workers: int,
        chunk_rows: int,
        most_bytes: int | None = None,
    ) -> None:
        """With `most_bytes` a chunk has about so much of rows."""
        self._url = url
        self._snapshot = snapshot
        self._queries = queries
        self._chunk_rows = chunk_rows
        self._most_bytes = most_bytes
        self.remaining = ranges
        self._moved = {one: one for one in ranges.ranges}  # each as far as it was handed out
        self._work: queue.SimpleQueue[Range] = queue.SimpleQueue()
        for one in ranges.ranges:
            self._work.put(one)
        self._chunks: queue.Queue[Chunk | ConnectError] = queue.Queue(maxsize=2 * workers)
        self._stop = threading.Event()
        # Every connection takes the snapshot up before this returns: it can be had only until the slot is read.
        self._connections = [self._begin() for _ in range(min(workers, len(ranges.ranges)))]
        self._threads = [
            threading.Thread(target=self._read, args=[connection], name="headrace-snapshot", daemon=True)
            for connection in self._connections
        ]
        for thread in self._threads:
            thread.start()

    def _begin(self) -> psycopg.Connection[tuple[Any, ...]]:
        connection = connect(self._url)
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        connection.execute(f"SET TRANSACTION SNAPSHOT '{self._snapshot}'")
        return connection

    def next_chunk(self, timeout_s: float) -> Chunk | None:
        """Some rows, which are then not among the remaining ones; None if there were none for that long."""
        try:
            found = self._chunks.get(timeout=timeout_s)
        except queue.Empty:
            if not any(thread.is_alive() for thread in self._threads) and self._chunks.empty():
                raise SourceUnavailable("the snapshot ended before it was complete") from None
            return None
        if isinstance(found, ConnectError):
            raise found
        current, query = self._moved[found.range], self._queries[found.range.table]
        if found.is_last:
            self.remaining = self.remaining.done(current)
        elif query.has_key:
            self.remaining, self._moved[found.range] = self.remaining.moved(current, query.key_of(found.rows[-1]))
        return found

    def _read(self, connection: psycopg.Connection[tuple[Any, ...]]) -> None:
        try:
            while not self._stop.is_set():
                try:
                    wanted = self._work.get_nowait()
                except queue.Empty:
                    connection.execute("COMMIT")  # its locks would keep others from altering the tables
                    return
                self._read_range(connection, wanted)
        except ConnectError as error:
            self._put(error)
        except psycopg.Error as error:
            self._put(SourceUnavailable(f"the snapshot was interrupted ({' '.join(str(error).split())})"))

    def _read_range(self, connection: psycopg.Connection[tuple[Any, ...]], wanted: Range) -> None:
        rows: list[Row] = []
        most_bytes, size = self._most_bytes, 0
        for row in read_rows(connection, self._queries[wanted.table].statement(wanted)):
            if len(rows) == self._chunk_rows or (most_bytes is not None and size >= most_bytes):
                if not self._put(Chunk(wanted, rows, is_last=False)):
                    return
                rows, size = [], 0
            rows.append(row)
            if most_bytes is not None:
                size += size_of(row)
        self._put(Chunk(wanted, rows, is_last=True))

    def _put(self, found: Chunk | ConnectError) -> bool:
        while not self._stop.is_set():
            with contextlib.suppress(queue.Full):
                self._chunks.put(found, timeout=0.2)
                return True
        return False

    def close(self) -> None:
        self._stop.set()
        for connection in self._connections:
            with contextlib.suppress(psycopg.Error):
                connection.cancel()  # a COPY that waits for nobody ends at once
        for thread in self._threads:
            thread.join(timeout=10)
        for connection in self._connections:
            connection.close()


class PostgresTables:
    def __init__(self, settings: PostgresSettings) -> None:
        self._settings = settings
        with connect(settings.url) as connection:
            self.database = connection.info.dbname

    def names(self) -> list[TableName]:
        settings = self._settings
        with connect(settings.url) as connection:
            every = Catalog(connection).capturable(settings.filters)
        return [
            TableName(table.schema, table.name, bool(table.key or settings.filters.key_of(table.full_name)))
            for table in every
            if table.full_name != settings.signal_table
        ]

    @contextlib.contextmanager
    def rows(self, name: str) -> Iterator[TableRows]:
        settings = self._settings
        with connect(settings.url) as connection:
            catalog = Catalog(connection)
            every = catalog.tables()
            found = next((table for table in every if table.full_name == name), None)
            if found is None:
                raise unknown_table(name, [table.full_name for table in every])

            def key_of(_: object) -> tuple[str, ...]:
                return found.key or settings.filters.key_of(name)

            table = Shapes("evolve", settings.types, catalog.type, key_of, {}).view(catalog.relation(found))
            query = RowQuery(found, table, catalog.types_of(found.id))
            standby = is_standby(connection)
            connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            # The instant comes before the place: what is visible stands before it in the log.
            place = "pg_last_wal_replay_lsn()" if standby else "pg_current_wal_insert_lsn()"
            row = connection.execute(f"select {place}::text, pg_current_snapshot()").fetchone()
            assert row is not None
            lsn = parse_lsn(row[0])
            if not standby:
                # Something behind that place, so that a quiet log comes to it too.
                with connect(settings.url) as other:
                    nothing = json.dumps({"reader": "", "tables": {}})
                    other.execute("select pg_logical_emit_message(true, %s, %s::text)", [FOUND, nothing])

            def is_reached(position: Position) -> bool:
                left = Remaining.from_json(position.get("snapshot", []))
                return LogPosition.from_json(position).lsn >= lsn and name not in left.tables

            yield TableRows(table, chunked(read_rows(connection, query.statement(Range(name)))), is_reached)
