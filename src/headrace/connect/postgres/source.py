"""PostgreSQL as a source: the snapshot, then the log, and chunks of tables between what the log says.

What always holds: nothing is confirmed to the server but positions that were acknowledged; a position holds all that is
needed to go on, in the log as in what is left of a snapshot.
"""

import contextlib
import time
from collections.abc import Sequence
from typing import Any

import psycopg

from headrace.connect.change import READ, Batch, Change, Event, Origin, Place, Position, TransactionEnd
from headrace.connect.errors import ConnectError, PositionLost, SchemaChangeBlocked
from headrace.connect.incremental import Incremental, Remaining, moved_ranges
from headrace.connect.postgres.captured import CapturedTables
from headrace.connect.postgres.catalog import quote
from headrace.connect.postgres.chunks import check_marks, mark_in
from headrace.connect.postgres.connection import check_server, connect, system_of, translated
from headrace.connect.postgres.decode import Decoder
from headrace.connect.postgres.publication import join_readers, leave_readers
from headrace.connect.postgres.relation import LogPosition
from headrace.connect.postgres.replication import ReplicationStream
from headrace.connect.postgres.reselect import complete
from headrace.connect.postgres.settings import PostgresSettings
from headrace.connect.postgres.slot import (
    Begin,
    CreatedSlot,
    SourceFacts,
    check_slot,
    create_slot,
    decide_start,
    drop_slot,
    look_after_slot,
    slot_state,
    when_free,
)
from headrace.connect.postgres.snapshot import InitialSnapshot, plan_ranges
from headrace.connect.rereading import Rereading
from headrace.connect.table import Row, Table, TableName
from headrace.connect.unseen import STORED, emptied
from headrace.telemetry.logs import get_logger

log = get_logger(__name__)
_REPLAYED_MESSAGES = 8192
_SETTLE_S = 0.2
_MISSED = "changes are missing behind the stored position"


class PostgresSource:
    """One database, through one slot."""

    most_bytes: int | None = None  # about so much in a batch of a snapshot, if that matters to who reads

    def __init__(self, settings: PostgresSettings) -> None:
        self._settings = settings
        self._side: psycopg.Connection[tuple[Any, ...]] | None = None
        self._stream: ReplicationStream | None = None
        self._decoder: Decoder | None = None
        self._snapshot: InitialSnapshot | None = None
        self._remaining = Remaining()  # until the log runs
        self._stopped: dict[str, str] = {}  # likewise: tables whose capture stopped, and why
        self._tables: CapturedTables | None = None
        self._failed: ConnectError | None = None
        self._position = LogPosition(0)
        self._ended = False
        self._beat_at = 0.0
        self._looked_at = 0.0  # at the slot
        self._is_new = False
        self._system = ""
        self._is_replaced = False  # whether topics hold rows of which nobody knows whether they are still there
        self._first: list[Event] = []  # told before a snapshot's rows
        self._found: list[Event] = []  # what happened to tables, where the log takes no marks
        self._is_cut = False  # whether the last batch ended inside a transaction
        self._facts = SourceFacts(settings.slot, settings.lag_cap_bytes or settings.lag_alarm_bytes)

    # --- beginning

    def open(self, position: Position | None) -> None:
        with translated("the database does not permit what a capture needs"):
            self._open(position)

    def _open(self, position: Position | None) -> None:
        settings = self._settings
        self._side = side = connect(settings.url)
        check_server(side)
        self.database = side.info.dbname
        position = self._of_this_system(position, system_of(side))
        stored = position or {}
        if settings.shared_publication:
            join_readers(side, settings.publication_name)
        self._tables = tables = CapturedTables(side, settings, stored)
        tables.publish()
        state = slot_state(side, settings.slot)
        start = decide_start(position, state, settings.snapshot, settings.slot)
        if state is not None:
            check_slot(state, self.database, may_be_lost=start.drop_slot)
        self._beat_at = time.monotonic() + settings.heartbeat_s
        self._remaining = Remaining.from_json(stored.get("snapshot", []))
        self._stopped = stored.get(STORED, {})
        if position is not None:
            self._beat_at = 0.0  # much may have happened to tables since
        self._ended = start.begin is Begin.ENDED
        if self._ended:
            return
        if start.drop_slot:
            when_free(lambda: drop_slot(side, settings.slot))
        if start.begin in (Begin.SNAPSHOT, Begin.NEW_SLOT):
            self._begin_anew(side, tables, snapshot=start.begin is Begin.SNAPSHOT)
            if start.begin is Begin.SNAPSHOT and (position is not None or self._is_replaced):
                # Changes were missed, and rows may have vanished with them.
                told = self._snapshot_origin("true")
                self._first = [event for table in tables.every for event in emptied(table, _MISSED, *told)]
        else:
            self._position = LogPosition.from_json(position) if position else LogPosition(start.lsn)
        if self._snapshot is None:
            self._start_stream()

    def _of_this_system(self, position: Position | None, system: str) -> Position | None:
        """The position, if it is one of this server: in another, as after a restore, places of the log mean nothing."""
        self._system = system
        before = (position or {}).get("system", "")
        if position is None or position.get("ended") or not before or not system or before == system:
            return position
        if self._settings.snapshot != "when-needed":
            raise PositionLost(
                f"the stored position is of another database (it was {before} and is {system}, by system identifier "
                "and number), as after a restore, so changes are missing and only a new snapshot brings them",
                "start with snapshot='when-needed'",
            )
        log.warning("the database is another one, a new snapshot begins", slot=self._settings.slot)
        self._is_replaced = True
        return None

    def _begin_anew(self, side: psycopg.Connection[tuple[Any, ...]], tables: CapturedTables, *, snapshot: bool) -> None:
        settings = self._settings
        stream = ReplicationStream(settings.url)
        tables.forget_past()  # before the slot is there: what happens from now on is found
        created: CreatedSlot = create_slot(
            stream.connection,
            settings.slot,
            temporary=settings.temporary,
            failover=settings.failover,
            server_version=side.info.server_version,
        )
        self._position = LogPosition(created.lsn)
        tables.learn({})  # once more: one may have been altered before the slot was there
        self._is_new = True
        self._remaining = Remaining()
        self._stopped = {}  # every row is read
        if snapshot:
            listed = tables.listed
            self._remaining = plan_ranges(side, listed, tables.queries, settings.snapshot_range_rows)
            self._facts.begin_snapshot(sum(max(table.rows, 0) for table in listed))
            self._snapshot = InitialSnapshot(
                settings.url,
                created.snapshot,
                self._remaining,
                tables.queries,
                workers=settings.snapshot_workers,
                chunk_rows=settings.chunk_rows,
                most_bytes=self.most_bytes,
            )
            log.info("snapshot begun", slot=settings.slot, tables=len(listed), ranges=len(self._remaining.ranges))
        if settings.temporary:
            self._stream = stream  # the slot lives as long as this connection does
        else:
            stream.close()

    def _start_stream(self) -> None:
        settings, tables = self._settings, self._tables
        assert tables is not None
        options = {"proto_version": "1", "publication_names": quote(settings.publication_name), "messages": "true"}
        if settings.streaming:
            options |= {"proto_version": "2", "streaming": "on"}

        def start() -> None:
            if self._stream is None:
                self._stream = ReplicationStream(settings.url)
            try:
                self._stream.start(settings.slot, options)
            except ConnectError:
                self._stream.close()
                self._stream = None
                raise

        when_free(start)
        self._decoder = decoder = Decoder(tables.resolve, self._position)
        self._rereading = Rereading(
            Incremental(self._remaining, tables.read_between, mark_in, decoder.went_by),
            reader=settings.slot,
            signal_table=settings.signal_table,
            table_of=tables.get,
            check=self._check_marks,
            origin=lambda: self._snapshot_origin("incremental"),
            unseen_changes=settings.unseen_changes,
            stopped=self._stopped,
        )

    # --- batches

    def next_batch(self, timeout_s: float) -> Batch | None:
        if self._ended:
            return Batch([], self.position(), is_last=True)
        with translated("the database does not permit what a capture needs"):
            if self._snapshot is not None:
                return self._next_of_snapshot(timeout_s)
            return self._next_of_log(timeout_s)

    def _next_of_snapshot(self, timeout_s: float) -> Batch | None:
        assert self._snapshot is not None
        assert self._tables is not None
        events: list[Event] = []
        if self._remaining:
            chunk = self._snapshot.next_chunk(timeout_s)
            if chunk is None:
                return None
            self._remaining = self._snapshot.remaining
            table = self._tables[chunk.range.table]
            origin, place = self._snapshot_origin("true")
            new = tuple.__new__  # a change without the detour through its keyword arguments
            events = [new(Change, (table, READ, None, row, origin, place)) for row in chunk.rows]
            self._facts.count_rows(len(events))
        events, self._first = [*self._first, *events], []
        if not self._remaining:
            self._snapshot.close()
            self._snapshot = None
            log.info("snapshot done", slot=self._settings.slot)
            if self._settings.snapshot == "initial-only":
                self._ended = True
                return Batch(events, self.position(), is_last=True)
            self._start_stream()
        return Batch(events, self.position())

    def _snapshot_origin(self, kind: str) -> tuple[Origin, Place]:
        lsn = self._decoder.position.lsn if self._decoder is not None else self._position.lsn
        shared = {"txId": None, "xmin": None}
        origin = Origin(None, time.time_ns() // 1000, kind, shared, ("sequence", "lsn"))
        return origin, lsn

    def _next_of_log(self, timeout_s: float) -> Batch | None:
        if self._failed is not None:
            raise self._failed
        decoder, stream, tables = self._decoder, self._stream, self._tables
        assert decoder is not None
        assert stream is not None
        assert tables is not None
        incremental = self._rereading.incremental
        if decoder.advance(_REPLAYED_MESSAGES):
            if incremental.is_active:
                incremental.begin()
                timeout_s = min(timeout_s, 0.5)
            self._receive(stream, decoder, timeout_s)
        events, decoder.events = decoder.events, []
        if decoder.has_marks or self._found:
            decoder.has_marks = False
            events, self._found = [*events, *self._found], []
            rereading = self._rereading
            events = [told for event in events for told in tables.act(event, rereading)]
        if self._settings.signal_table or self._rereading.concerns(events):
            events = list(self._rereading.through(events))
        is_reselecting = self._settings.unavailable == "reselect"
        if is_reselecting or decoder.has_short_moves:
            decoder.has_short_moves = False
            assert self._side is not None
            events = complete(self._side, events, tables.types_of, only_moved=not is_reselecting)
        now = time.monotonic()
        is_due = now >= self._beat_at or tables.is_due
        if is_due:
            self._beat(now)
        if not decoder.in_transaction and not decoder.is_replaying:
            decoder.move_on(stream.server_lsn)
        has_content = self._is_cut or any(not isinstance(event, TransactionEnd) for event in events)
        if not has_content and not is_due and not self._is_new:
            return None
        self._is_new = False
        self._is_cut = decoder.in_transaction
        self._position = decoder.position
        return Batch(events, self.position())

    def _receive(self, stream: ReplicationStream, decoder: Decoder, timeout_s: float) -> None:
        try:
            stream.receive(decoder.feed, self._settings.batch_messages, timeout_s, lambda: decoder.in_transaction)
        except SchemaChangeBlocked as blocked:
            if not decoder.events:
                raise
            self._failed = blocked  # after what stands before it

    def _check_marks(self) -> None:
        assert self._side is not None
        check_marks(self._side)

    # --- heartbeat

    def _beat(self, now: float) -> None:
        """Look after the slot, and let the position move even if nothing happens."""
        self._beat_at = now + self._settings.heartbeat_s
        self._look_after_slot(now)
        assert self._tables is not None
        self._found += self._tables.look()
        if self._tables.is_settling:
            self._beat_at = min(self._beat_at, now + _SETTLE_S)

    def _look_after_slot(self, now: float) -> None:
        self._looked_at = now
        assert self._side is not None
        assert self._stream is not None
        look_after_slot(self._side, self._settings, self._facts, let_go=self._stream.close)

    # --- the rest of the contract

    def position(self) -> Position:
        found: Position = self._position.as_json()
        remaining = self._remaining if self._decoder is None else self._rereading.incremental.remaining
        if remaining:
            found["snapshot"] = remaining.as_json()
        stopped = self._stopped if self._decoder is None else self._rereading.stopped.as_json()
        if stopped:
            found[STORED] = stopped
        assert self._tables is not None
        found["shapes"] = dict(self._tables.shapes.known)
        found["tables"] = {name: state.as_json() for name, state in self._tables.states.items()}
        found["horizon"] = self._tables.horizon
        if missed := self._tables.missed:
            found["missed"] = missed
        found["system"] = self._system
        if self._ended:
            found["ended"] = True
        return found

    def table_names(self) -> list[TableName]:
        return [] if self._tables is None else [table.as_name for table in self._tables.every]

    def facts(self) -> dict[str, Any]:
        """The slot, what the server keeps for it, and how far the snapshot is; any thread may ask."""
        tables = [] if self._tables is None else self._tables.every
        self._facts.tables = tuple(table.full_name for table in tables)
        refused = {} if self._tables is None else self._tables.refused
        if self._decoder is not None:
            self._facts.snapshot_left = tuple(self._rereading.incremental.remaining.tables)
            self._facts.stopped_tables = refused | self._rereading.stopped.as_json()
        else:
            self._facts.stopped_tables = dict(refused)
        return self._facts.as_json()

    def read_key(self, table: Table, row: Row) -> list[Any] | None:
        """The key of a row that was read, as positions hold it; None if its table has none."""
        assert self._tables is not None
        query = self._tables.queries.get(table.full_name)
        return list(query.key_of(row)) if query is not None and query.has_key else None

    def keep_alive(self) -> None:
        """Nobody takes what was read: the server is told that we are there, and what it keeps for us has its bound."""
        if self._stream is None or self._decoder is None:
            return
        self._stream.keep_alive()
        now = time.monotonic()
        if now >= self._looked_at + self._settings.heartbeat_s:
            with translated("the database does not permit what a capture needs"):
                self._look_after_slot(now)

    def acknowledge(self, position: Position) -> None:
        """The server may forget what is before this."""
        if self._stream is None or self._decoder is None:
            return
        lsn = LogPosition.from_json(position).lsn
        held = self._decoder.held_lsn
        self._stream.confirm(lsn if held is None else min(lsn, held))

    def close(self) -> None:
        """Let go; the slot stays."""
        if self._snapshot is not None:
            self._snapshot.close()
            self._snapshot = None
        if self._stream is not None:
            self._stream.close()
            self._stream = None
        if self._side is not None:
            with contextlib.suppress(psycopg.Error):
                if self._settings.shared_publication:
                    leave_readers(self._side, self._settings.publication_name)
            with contextlib.suppress(psycopg.Error):
                self._side.close()
            self._side = None
        self._decoder = None


def moved(position: Position, table: str, key: Sequence[Any]) -> Position:
    """A position, had a table been read up to a key."""
    return {**position, "snapshot": moved_ranges(position.get("snapshot", []), table, key)}
