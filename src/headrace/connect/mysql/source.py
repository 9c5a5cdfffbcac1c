"""MariaDB and MySQL as a source: the snapshot, then the binary log.

A position is `{"gtid": …, "history": n}`: the transactions that were seen, and which record of the schema history is
the last that counts. Inside a large transaction it also has `"transaction"` and how many of its events were seen; while
the snapshot goes on, the table and the key up to which it was read. A snapshot that was interrupted goes on at a later
instant, after the changes up to that instant; so no row is ever older than one that came before. What is left of tables
that are read anew beside the log stands under `"incremental"`.
"""

import time
from collections.abc import Sequence
from typing import Any

from headrace.connect.change import READ, TRUNCATE, Batch, Change, Event, Origin, Place, Position, with_values
from headrace.connect.errors import PositionLost, SchemaChangeBlocked, SourceRefused
from headrace.connect.incremental import Incremental, Remaining, moved_ranges
from headrace.connect.mysql.catalog import CatalogTable, Selection
from headrace.connect.mysql.chunks import ChunkReader
from headrace.connect.mysql.connection import connect, examine, installed_at, translated
from headrace.connect.mysql.ddl import Name
from headrace.connect.mysql.decode import OWN, Decoder, Progress
from headrace.connect.mysql.gtid import GtidState
from headrace.connect.mysql.history import DatabaseMemory, SchemaHistory, shapes_at
from headrace.connect.mysql.settings import MysqlSettings, parse_url
from headrace.connect.mysql.shape import Shape
from headrace.connect.mysql.signal_table import SignalTable
from headrace.connect.mysql.snapshot import RowQuery, Snapshot
from headrace.connect.mysql.stream import BinlogStream
from headrace.connect.rereading import Rereading
from headrace.connect.table import Row, Table, TableName
from headrace.connect.unseen import STORED
from headrace.telemetry.logs import get_logger

log = get_logger(__name__)
_FIRST_EVENT_S = 15.0
_LEFT_OUT = "table {} was left out because it had no key: headrace cdc snapshot reads it and goes on with it"
_UNCAPTURED = "table {} was not captured for a while: headrace cdc snapshot reads it and goes on with it"


class MysqlSource:
    most_bytes: int | None = None  # about so much in a batch, if that matters to who reads

    def __init__(self, settings: MysqlSettings, history: SchemaHistory) -> None:
        self._settings = settings
        self._address = parse_url(settings.url)
        self._history = history
        self.database = self._address.database or self._address.host
        self._signals = SignalTable(self._address, settings.signal_name)
        self._captures = Selection(settings.filters, self._address.database, hidden=settings.signal_name)
        self._memory: DatabaseMemory | None = None
        self._stream: BinlogStream | None = None
        self._snapshot: Snapshot | None = None
        self._catch_up_to: GtidState | None = None
        self._resumed: dict[str, Any] | None = None
        self._failed: SchemaChangeBlocked | None = None
        self._ended = False
        self._first: bytes | None = None
        self._handed: Position = {}
        self._beat_at = 0.0
        self._identity: str | None = None
        self._read_by: tuple[Table, RowQuery] | None = None

    # --- beginning

    def open(self, position: Position | None) -> None:
        side = connect(self._address)
        with translated(self._address):
            self._server = server = examine(side)
        self._memory = memory = DatabaseMemory(self._address, server, side, self._history, 0)
        self._failed = None
        self._beat_at = time.monotonic() + self._settings.heartbeat_s
        self._ended = bool(position and position.get("ended"))
        if self._ended:
            assert position is not None
            self._handed = position
            return
        if position is None:
            self._begin_anew(memory, snapshot=self._settings.snapshot != "never")
            return
        if position["flavor"] != server.flavor:
            raise SourceRefused(
                f"the stored position is one of {position['flavor']}, and the server is {server.version}",
                "give the connector a new name, so that it begins with a snapshot",
            )
        try:
            self._go_on(memory, position)
        except PositionLost:
            if self._settings.snapshot != "when-needed":
                raise
            log.warning("position is lost, a new snapshot begins", server=self._address.where)
            self._stop_stream()
            memory.number = position["history"]
            self._begin_anew(memory, snapshot=True)

    def _begin_anew(self, memory: DatabaseMemory, *, snapshot: bool) -> None:
        if snapshot:
            every = self._begin_snapshot(memory, None)
            assert self._snapshot is not None
            state = self._snapshot.state
        else:
            every = memory.live_tables()
            self._captures.check(every)
            state = memory.current_state()
        shapes = {name: table.shape for name, table in every.items()}
        memory.begin(str(state), shapes)
        self._make_decoder(memory, Progress(state), shapes, set(), Remaining())
        self._catch_up_to = state if snapshot else None
        self._resumed = None
        if not snapshot:
            self._start_stream()

    def _begin_snapshot(self, memory: DatabaseMemory, place: dict[str, Any] | None) -> dict[Name, CatalogTable]:
        """Begin to read at an instant; answers the tables as they were then."""
        every = memory.live_tables()
        while True:
            self._snapshot = Snapshot(self._address, self._server, self._captures.check(every), place)
            again = memory.live_tables()
            if again == every:
                return every
            self._snapshot.close()  # somebody changed a table in between
            every = again

    def _go_on(self, memory: DatabaseMemory, position: Position) -> None:
        number = position["history"]
        records = self._history.load()
        shapes = shapes_at(records, number)
        if shapes is None:
            raise PositionLost(
                f"record {number} of the schema history is missing, so the log cannot be read with the shapes of its "
                "time",
                "headrace cdc rebuild-history NAME, if no table changed its shape since, or begin anew with a snapshot",
            )
        self._history.forget([record.number for record in records if record.number > number])
        memory.number = number
        by_name = {(shape.database, shape.table): shape for shape in shapes.values()}
        progress = Progress(
            self._server.parse_state(position["gtid"]),
            position.get("transaction", ""),
            position.get("events", 0),
            position.get("file", ""),
            position.get("pos", 0),
        )
        left_out = {_name(text) for text in position.get("left_out", ())}
        remaining = Remaining.from_json(position.get("incremental", []))
        stopped = dict(position.get(STORED, {}))
        bags = {name for name in left_out if name in by_name and not self._captures.is_keyed(by_name[name])}
        if self._settings.schema_changes != "skip":  # of a time when tables without a key were left out
            left_out -= bags
            stopped |= {".".join(name): _LEFT_OUT.format(".".join(name)) for name in bags}
        if self._settings.snapshot != "never":
            then = self._captures.at(position.get("captures"))
            uncaptured = {name for name in by_name if self._captures(name) and not then(name)} - left_out
            stopped |= {".".join(name): _UNCAPTURED.format(".".join(name)) for name in uncaptured}
        self._make_decoder(memory, progress, by_name, left_out, remaining, stopped)
        self._handed = position
        if "snapshot" in position:
            self._resumed = position["snapshot"]
            self._begin_snapshot(memory, self._resumed)
            assert self._snapshot is not None
            self._catch_up_to = self._snapshot.state
        if self._snapshot is None or progress.state != self._catch_up_to:
            self._start_stream()

    def _make_decoder(
        self,
        memory: DatabaseMemory,
        progress: Progress,
        shapes: dict[Name, Shape],
        left_out: set[Name],
        remaining: Remaining,
        stopped: dict[str, str] | None = None,
    ) -> None:
        settings, signals = self._settings, self._signals
        self._decoder = decoder = Decoder(
            progress,
            shapes,
            self._captures,
            memory,
            has_checksum=self._server.has_checksum,
            policy=settings.schema_changes,
            modes=settings.types,
            left_out=left_out,
            is_keyed=self._captures.is_keyed,
            internal=settings.signal_name,
            lower_case_table_names=self._server.lower_case_table_names,
        )
        chunks = ChunkReader(
            memory, self._server, signals, self._captures, left_out, settings.types, settings.batch_rows
        )
        self._rereading = Rereading(
            Incremental(remaining, chunks.read_between, signals.mark_in),
            reader=settings.capture,
            signal_table=signals.full_name,
            table_of=lambda name: next(
                (decoder.table_of(shape) for shape in decoder.captured if shape.full_name == name), None
            ),
            check=lambda: signals.check(memory.side(), self._server),
            origin=self._incremental_origin,
            unseen_changes=settings.unseen_changes,
            stopped=stopped,
        )

    def _start_stream(self) -> None:
        settings = self._settings
        self._stream = BinlogStream(self._address, self._server, settings.server_id, settings.heartbeat_s)
        self._stream.start(self._decoder.progress.state)
        # The server says at once whether it has the log; waiting for its first word makes `open` fail and not a batch.
        self._first = self._stream.next_event(_FIRST_EVENT_S)
        self._beat_at = time.monotonic() + settings.heartbeat_s

    def _stop_stream(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None
        self._first = None

    # --- batches

    def next_batch(self, timeout_s: float) -> Batch | None:
        if self._ended:
            return Batch([], self._handed, is_last=True)
        if self._failed is not None:
            raise self._failed
        if self._snapshot is not None and self._is_caught_up():
            return self._next_of_snapshot()
        return self._next_of_log(timeout_s)

    def _is_caught_up(self) -> bool:
        progress = self._decoder.progress
        return self._catch_up_to is None or (progress.state == self._catch_up_to and not progress.gtid)

    def _next_of_snapshot(self) -> Batch:
        snapshot = self._snapshot
        assert snapshot is not None
        self._stop_stream()
        events: list[Event] = []
        if not snapshot.is_done:
            begins_table = snapshot.begins_table
            shape, rows = snapshot.read(self._settings.batch_rows, self.most_bytes)
            table = self._decoder.table_of(shape)
            origin = _read_origin("true", snapshot.state, ("row",))
            events = [Change(table, READ, None, row, origin, number) for number, row in enumerate(rows)]
            if begins_table and not shape.key:  # what was told of a table without a key counts no more
                events.insert(0, Change(table, TRUNCATE, None, None, origin, 0))
        self._resumed = None
        if snapshot.is_done:
            snapshot.close()
            self._snapshot = None
            self._catch_up_to = None
            if self._settings.snapshot == "initial-only":
                self._ended = True
            else:
                self._start_stream()
        return self._batch(events)

    def _next_of_log(self, timeout_s: float) -> Batch | None:
        decoder, stream = self._decoder, self._stream
        assert stream is not None
        incremental = self._rereading.incremental
        if incremental.is_active and self._snapshot is None:
            incremental.begin()
        deadline = time.monotonic() + timeout_s
        decoder.changes = size = 0
        try:
            while decoder.changes < self._settings.batch_rows and (not self.most_bytes or size < self.most_bytes):
                data = self._first
                self._first = None
                if data is None:
                    data = stream.next_event(0.0 if decoder.events else max(0.0, deadline - time.monotonic()))
                if data is None:
                    break
                size += len(data)
                decoder.feed(data)
                if self._snapshot is not None and self._is_caught_up():
                    break
                if not decoder.events and time.monotonic() >= min(deadline, self._beat_at):
                    break
        except SchemaChangeBlocked as blocked:
            if not decoder.events:
                raise
            self._failed = blocked  # after what stands before it
        events, decoder.events = decoder.events, []
        if decoder.has_internal or self._rereading.concerns(events):
            decoder.has_internal = False
            events = list(self._rereading.through(events))
        now = time.monotonic()
        is_caught_up = self._snapshot is not None and self._is_caught_up()
        if not events and not is_caught_up:
            if now < self._beat_at or self.position() == self._handed:
                return None
            self._beat_at = now + self._settings.heartbeat_s
        return self._batch(events)

    def _incremental_origin(self) -> tuple[Origin, Place]:
        progress = self._decoder.progress
        return _read_origin("incremental", progress.state, OWN), (progress.file, progress.end, 0)

    def _batch(self, events: list[Event]) -> Batch:
        self._handed = self.position()
        return Batch(events, self._handed, is_last=self._ended)

    # --- the rest of the contract

    def position(self) -> Position:
        if self._ended and self._handed.get("ended"):
            return self._handed
        assert self._memory is not None
        progress = self._decoder.progress
        found: Position = {
            "flavor": self._server.flavor,
            "gtid": str(progress.state),
            "history": self._memory.number,
            "file": progress.file,
            "pos": progress.end,
            "captures": self._captures.as_json(),
        }
        if progress.gtid and progress.row_events:
            found |= {"transaction": progress.gtid, "events": progress.row_events}
        if self._snapshot is not None and not self._snapshot.is_done:
            found["snapshot"] = self._snapshot.place if self._is_caught_up() else self._resumed
        return found | with_values(
            incremental=self._rereading.incremental.remaining.as_json(),
            **self._rereading.stopped.stored,
            left_out=sorted(f"{database}.{table}" for database, table in self._decoder.left_out),
            ended=self._ended,
        )

    def table_names(self) -> list[TableName]:
        return (
            []
            if self._ended
            else [TableName(shape.database, shape.table, bool(shape.key)) for shape in self._decoder.captured]
        )

    def facts(self) -> dict[str, Any]:
        """Which tables are read again beside the log, and which stopped; any thread may ask."""
        if self._ended:
            return {}
        left = self._rereading.incremental.remaining.tables
        return with_values(snapshot_left=left, **self._rereading.stopped.facts)

    @property
    def captures(self) -> Selection:
        """Which tables are captured."""
        return self._captures

    def identity(self) -> str:
        """Which MariaDB this is, as far as it tells; MySQL's transactions say it themselves."""
        if not self._server.is_mariadb:
            return ""
        if self._identity is None:
            assert self._memory is not None
            with translated(self._address):
                self._identity = installed_at(self._memory.side())
        return self._identity

    def holds(self, position: Position) -> bool:
        """Whether the server has come as far as a position."""
        assert self._memory is not None
        return self._memory.current_state().covers(self._server.parse_state(position["gtid"]))

    def read_key(self, table: Table, row: Row) -> list[Any] | None:
        """The key of a row that was read, as positions hold it; None if its table has none."""
        if self._read_by is None or self._read_by[0] is not table:
            found = (one for one in self._decoder.captured if one.full_name == table.full_name)
            self._read_by = table, RowQuery(self._captures.ordered(next(found)))
        return list(self._read_by[1].key_of(row)) or None

    def acknowledge(self, position: Position) -> None:
        """The server keeps its log by its own rules; there is nothing to tell it."""

    def close(self) -> None:
        self._stop_stream()
        if self._snapshot is not None:
            self._snapshot.close()
            self._snapshot = None
        if self._memory is not None:
            self._memory.close()
            self._memory = None


def moved(position: Position, table: str, key: Sequence[Any]) -> Position:
    """A position, had a table been read up to a key."""
    if "snapshot" in position:
        return {**position, "snapshot": {"table": table, "after": list(key)}}
    return {**position, "incremental": moved_ranges(position.get("incremental", []), table, key)}


def _name(full_name: str) -> Name:
    database, _, table = full_name.partition(".")
    return database, table


def _read_origin(kind: str, state: GtidState, own: tuple[str, ...]) -> Origin:
    """Of rows that were read and not logged."""
    return Origin(None, time.time_ns() // 1000, kind, {"server_id": 0, "gtid": str(state)}, own)
