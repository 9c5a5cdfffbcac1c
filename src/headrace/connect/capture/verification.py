"""Captured tables compared with their topics, row by row, while the capture runs on.

The rows of a table are written as the capture would write them and read back as its readers do, so masks, chosen keys
and formats need no second thought. The comparing itself is that of derived systems (`sync/verification.py`): here the
table is the target. It is ahead of its topic always, so what differs is looked at again once the capture has come to
the instant at which the table was read, until nothing moves any more or the difference stays.

Memory is bounded: the topic is built into a table on disk, and the captured table is read in chunks.
"""

import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Self

from headrace.client.cluster import Cluster
from headrace.client.offsets import bounds
from headrace.connect.capture.running import make_writer
from headrace.connect.capture.settings import CaptureSettings
from headrace.connect.change import READ, Change, Origin, Position
from headrace.connect.delivery import OFFSETS_TOPIC, read_position
from headrace.connect.envelope import AVRO
from headrace.connect.errors import SourceRefused, SourceUnavailable
from headrace.connect.filters import keyed
from headrace.connect.source import TableReader
from headrace.connect.sync.decoding import ENVELOPE, PLAIN, RecordFormat, read_key, read_value
from headrace.connect.sync.keyless import digest_of, key_of
from headrace.connect.sync.settings import SyncSettings
from headrace.connect.sync.verification import Report
from headrace.connect.sync.verification import verify as compare
from headrace.connect.table import Row, Table, TableName
from headrace.connect.unseen import STORED
from headrace.stores.derived import Place, StoredRow, Values, key_text

_POLL_S: Final = 0.2
_READ: Final = Origin(None, 0, "true")


@dataclass(frozen=True, slots=True)
class TableReport:
    """What a comparison of one table found; without a report it was not compared, and `note` says why."""

    table: str
    topic: str
    report: Report | None
    note: str = ""
    capture: str = ""

    @property
    def is_equal(self) -> bool:
        return self.report is not None and self.report.is_equal


class CapturedTable:
    """One table in the form of a target that can be read back; its place in the log is where the capture is."""

    is_whole = True
    keys_at_once = 100_000  # the whole table is read for them

    def __init__(
        self,
        settings: CaptureSettings,
        reader: TableReader,
        name: str,
        connect: Callable[[], Cluster],
        patience_s: float,
    ) -> None:
        self._settings = settings
        self._reader = reader
        self._name = name
        self._connect = connect
        self._patience_s = patience_s
        writing = {**settings.writing, "skipped_operations": frozenset(), "transaction_metadata": False}
        with reader.rows(name) as seen, connect() as cluster:
            self._writer = make_writer(replace(settings, writing=writing), reader.database, cluster)
            self.topic = self._writer.topic_of(seen.table)
            view = settings.filters.view(keyed(seen.table, settings.filters.key_of(name)))
        self._columns = {column.name for _, column in view}
        self.form = RecordFormat(
            value=PLAIN if settings.writing.get("unwrap") else ENVELOPE,
            format=settings.writing.get("format", "json"),
            registry=settings.registry if settings.writing.get("format") == AVRO else "",
        )
        self._form = self.form.opened(connect)

    def place(self) -> Place | None:
        """Where the topic ends."""
        with self._connect() as cluster:
            held = bounds(cluster, cluster.partitions(self.topic), committed=True)
        return Place(self.topic, {where.partition: bound.end for where, bound in held.items()})

    def scan(self) -> Iterator[Sequence[StoredRow]]:
        """Every row of the table, as a reader of its topic would have it; then the capture has come to this instant."""
        with self._reader.rows(self._name) as seen, Counting() as equals:
            for chunk in seen.chunks:
                yield self._as_read(seen.table, chunk, equals)
            self._wait(seen.is_reached)

    def _wait(self, is_reached: Callable[[Position], bool]) -> None:
        deadline = time.monotonic() + self._patience_s
        with self._connect() as cluster:
            while (position := read_position(cluster, self._settings.name)) is None or not is_reached(position):
                if time.monotonic() > deadline:
                    raise SourceUnavailable(
                        f"capture {self._settings.name!r} has not come within {self._patience_s:.0f} s to where "
                        f"{self._name} was read: does it run (headrace cdc status), or is it far behind (--timeout)?"
                    )
                time.sleep(_POLL_S)

    def look_up(self, keys: Sequence[Values]) -> list[StoredRow]:
        """The rows of these keys; the table is read for them, because a database finds rows by other texts."""
        wanted = {key_text(key) for key in keys}
        return [row for chunk in self.scan() for row in chunk if row.key in wanted]

    def _as_read(self, table: Table, rows: Sequence[Row], equals: "Counting") -> list[StoredRow]:
        events = [Change(table, READ, None, row, _READ, ()) for row in rows]
        found = []
        for record in self._writer.write(events, 1):
            values = read_value(record.value, self._form).after or {}
            if record.key is None:
                digest = digest_of(values)
                key = key_of(digest, equals.number_of(digest))
            else:
                key = read_key(record.key, self._form)
            found.append(self.comparable(key, {**key, **values}))
        return found

    def comparable(self, key: Values, row: Values) -> StoredRow:
        """A row of the topic, without columns that the table does not have any more."""
        return StoredRow(key_text(key), {name: value for name, value in row.items() if name in self._columns})


class Counting:
    """Which of its equals a row is, from 1: counted on disk, so that the table's size is no matter."""

    def __enter__(self) -> Self:
        self._db = sqlite3.connect("", isolation_level=None)  # a temporary file, gone with the connection
        self._db.execute("CREATE TABLE counts (digest TEXT PRIMARY KEY, n INTEGER) WITHOUT ROWID")
        return self

    def __exit__(self, *_: object) -> None:
        self._db.close()

    def number_of(self, digest: str) -> int:
        found = self._db.execute(
            "INSERT INTO counts VALUES (?, 1) ON CONFLICT (digest) DO UPDATE SET n = n + 1 RETURNING n", (digest,)
        ).fetchone()
        return int(found[0])


def table_behind(captures: Sequence[CaptureSettings], topic: str) -> tuple[CaptureSettings, TableName] | None:
    """The captured table whose changes are in a topic, asked of the databases; None if there is none."""
    for settings in captures:
        if settings.names.template.startswith("{prefix}") and not topic.startswith(settings.names.prefix):
            continue  # its database need not be asked
        reader = settings.kind.tables(settings.source)
        for table in reader.names():
            if settings.names.table(reader.database, table.schema, table.name) == topic:
                return settings, table
    return None


def verify_topic(
    captures: Sequence[CaptureSettings], topic: str, connect: Callable[[], Cluster], *, patience_s: float = 60.0
) -> TableReport:
    """Compare a topic with the table whose changes it holds, by the capture that writes it."""
    found = table_behind(captures, topic)
    if found is not None:
        settings, table = found
        name = f"{table.schema}.{table.name}" if table.schema else table.name
        return next(verify(settings, [name], connect, patience_s=patience_s))
    known = ", ".join(settings.name for settings in captures) or "none"
    raise SourceRefused(
        f"no capture of this file writes topic {topic} (captures: {known}), so there is no table to compare with",
        "compare with the log alone, without --source",
    )


def verify(
    settings: CaptureSettings, tables: Sequence[str], connect: Callable[[], Cluster], *, patience_s: float = 60.0
) -> Iterator[TableReport]:
    """Compare tables of a capture (all, if none is named) with their topics; the capture has to run."""
    with connect() as cluster:
        there = {topic.name for topic in cluster.topics()}
        position = read_position(cluster, settings.name) if OFFSETS_TOPIC in there else None
    if position is None:
        raise SourceRefused(f"capture {settings.name!r} has not run yet", f"headrace cdc start {settings.name}")
    reader = settings.kind.tables(settings.source)
    every = {f"{one.schema}.{one.name}" if one.schema else one.name: one for one in reader.names()}
    for name in tables:
        if name not in every:
            raise SourceRefused(
                f"table {name} is not captured by {settings.name!r} (captured are: {', '.join(every) or 'none'})",
                "correct the name, as schema.table",
            )
    stopped = position.get(STORED, {})
    for name in tables or every:
        note = str(stopped.get(name, ""))
        target = CapturedTable(settings, reader, name, connect, patience_s)
        if target.topic not in there:
            yield TableReport(
                name, target.topic, None, note or "there is no such topic yet: headrace cdc start", settings.name
            )
            continue
        follow = SyncSettings(f"verify-{settings.name}", target.topic, "table", form=target.form)
        yield TableReport(name, target.topic, compare(follow, target, connect), note, settings.name)
