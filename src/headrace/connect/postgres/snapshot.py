"""The initial snapshot: every row as of the instant at which the slot begins, read by several threads at once.

Ranges of keys are handed to the threads; each reads its range by one COPY in the slot's own snapshot and puts rows on a
short queue, so that what cannot be written yet is not read. The snapshot ends with its connections: after a crash what
is left of the ranges is read by `incremental`, between watermarks in the log, and not from a snapshot that would be
newer than the log that follows it.
"""

import contextlib
import queue
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import psycopg

from headrace.connect.errors import ConnectError, SourceUnavailable
from headrace.connect.postgres.catalog import CatalogTable
from headrace.connect.postgres.connection import connect
from headrace.connect.postgres.rows import RowQuery, read_rows
from headrace.connect.ranges import Range, Remaining
from headrace.connect.table import Row


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


class SnapshotReader:
    """Threads that read ranges in one snapshot of the database."""

    def __init__(
        self, url: str, snapshot: str, ranges: Remaining, queries: dict[str, RowQuery], *, workers: int, chunk_rows: int
    ) -> None:
        self._url = url
        self._snapshot = snapshot
        self._queries = queries
        self._chunk_rows = chunk_rows
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
        """Some rows; None if there were none for that long."""
        try:
            found = self._chunks.get(timeout=timeout_s)
        except queue.Empty:
            if not any(thread.is_alive() for thread in self._threads) and self._chunks.empty():
                raise SourceUnavailable("the snapshot ended before it was complete") from None
            return None
        if isinstance(found, ConnectError):
            raise found
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
        for row in read_rows(connection, self._queries[wanted.table].statement(wanted)):
            if len(rows) == self._chunk_rows:
                if not self._put(Chunk(wanted, rows, is_last=False)):
                    return
                rows = []
            rows.append(row)
        self._put(Chunk(wanted, rows, is_last=True))

    def _put(self, found: Chunk | ConnectError) -> bool:
        while not self._stop.is_set():
            with contextlib.suppress(queue.Full):
                self._chunks.put(found, timeout=0.2)
                return True
        return False

    def close(self) -> None:
        """Stop reading."""
        self._stop.set()
        for connection in self._connections:
            with contextlib.suppress(psycopg.Error):
                connection.cancel()  # a COPY that waits for nobody ends at once
        for thread in self._threads:
            thread.join(timeout=10)
        for connection in self._connections:
            connection.close()
