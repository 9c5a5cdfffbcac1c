"""PostgreSQL as a source: the snapshot, then the log, and chunks of tables between what the log says.

What always holds: nothing is confirmed to the server but positions that were acknowledged; a position holds all that is
needed to go on, in the log as in what is left of a snapshot.
"""

import contextlib
import time
from typing import Any

import psycopg

from headrace.connect.change import READ, Batch, Change, Event, Message, Origin, Position, TransactionEnd
from headrace.connect.errors import ConnectError, SchemaChangeBlocked, SourceRefused, SourceUnavailable
from headrace.connect.postgres.catalog import Catalog, CatalogTable
from headrace.connect.postgres.checks import check_server
from headrace.connect.postgres.chunks import read_between
from headrace.connect.postgres.connection import connect
from headrace.connect.postgres.decode import Decoder
from headrace.connect.postgres.facts import SourceFacts
from headrace.connect.postgres.incremental import Incremental, ReadChunk
from headrace.connect.postgres.positions import LogPosition
from headrace.connect.postgres.publication import ensure_publication
from headrace.connect.postgres.ranges import Range, Remaining
from headrace.connect.postgres.relation import Relation
from headrace.connect.postgres.replication import ReplicationStream
from headrace.connect.postgres.reselect import complete
from headrace.connect.postgres.rows import RowQuery
from headrace.connect.postgres.settings import PostgresSettings
from headrace.connect.postgres.shapes import Shapes
from headrace.connect.postgres.signals import SIGNAL, signal_in
from headrace.connect.postgres.slot import (
    CreatedSlot,
    check_slot,
    create_slot,
    drop_slot,
    slot_lost,
    slot_over_cap,
    slot_state,
    when_free,
)
from headrace.connect.postgres.snapshot import SnapshotReader, plan_ranges
from headrace.connect.postgres.start import Begin, decide_start
from headrace.connect.table import Table
from headrace.telemetry.logs import get_logger

log = get_logger(__name__)
_REPLAYED_MESSAGES = 8192


class PostgresSource:
    """One database, through one slot."""

    def __init__(self, settings: PostgresSettings) -> None:
        self._settings = settings
        self._side: psycopg.Connection[tuple[Any, ...]] | None = None
        self._stream: ReplicationStream | None = None
        self._decoder: Decoder | None = None
        self._snapshot: SnapshotReader | None = None
        self._moved: dict[Range, Range] = {}
        self._remaining = Remaining()
        self._queries: dict[str, RowQuery] = {}
        self._tables: dict[str, Table] = {}
        self._refused: set[str] = set()
        self._failed: ConnectError | None = None
        self._position = LogPosition(0)
        self._ended = False
        self._beat_at = 0.0
        self._is_new = False
        self._is_cut = False  # whether the last batch ended inside a transaction
        self._facts = SourceFacts(settings.slot, settings.lag_cap_bytes or settings.lag_alarm_bytes)

    # --- beginning

    def open(self, position: Position | None) -> None:
        """Begin behind this position: with a snapshot, or in the log."""
        try:
            self._open(position)
        except psycopg.OperationalError as error:
            raise SourceUnavailable(f"the database is not there ({_line(error)})") from error

    def _open(self, position: Position | None) -> None:
        settings = self._settings
        self._side = side = connect(settings.url)
        check_server(side)
        self.database = side.info.dbname
        self._catalog = catalog = Catalog(side)
        self._captured = {table.full_name: table for table in self._all_tables(catalog)}
        stored = position or {}
        self._learn_tables(stored.get("shapes", {}))
        ensure_publication(
            side, settings.publication_name, list(self._captured.values()), managed=settings.managed_publication
        )
        state = slot_state(side, settings.slot)
        start = decide_start(position, state, settings.snapshot, settings.slot, goes_on=settings.goes_on)
        if state is not None and not start.drop_slot:
            check_slot(state, self.database)
        self._beat_at = time.monotonic() + settings.heartbeat_s
        self._remaining = Remaining.from_json(stored.get("snapshot", []))
        if position is not None and settings.snapshot in ("initial", "when-needed"):
            # Tables that came since the position was stored, or that the filters left out then.
            fresh = [name for name in self._captured if name not in stored.get("shapes", {})]
            self._remaining = self._remaining.with_tables([name for name in fresh if name != settings.signal_table])
        self._ended = start.begin is Begin.ENDED
        if self._ended:
            return
        if start.drop_slot:
            when_free(lambda: drop_slot(side, settings.slot))
        if start.begin in (Begin.SNAPSHOT, Begin.NEW_SLOT):
            self._begin_anew(snapshot=start.begin is Begin.SNAPSHOT)
        else:
            self._position = LogPosition.from_json(position) if position else LogPosition(start.lsn)
        if self._snapshot is None:
            self._start_stream()

    def _all_tables(self, catalog: Catalog) -> list[CatalogTable]:
        found = catalog.captured(self._settings.filters)
        name = self._settings.signal_table
        if name and all(table.full_name != name for table in found):
            found += [table for table in catalog.tables() if table.full_name == name]
        return found

    def _learn_tables(self, known: dict[str, str]) -> None:
        settings, catalog = self._settings, self._catalog
        self._shapes = Shapes(settings.schema_changes, settings.types, catalog.type, self._key_of, known)
        for table in self._captured.values():
            self._prepare(table)

    def _key_of(self, relation: Relation) -> tuple[str, ...]:
        """The key of a table whose whole row is its identity: its own, or else the chosen one."""
        return self._catalog.key_of(relation) or self._settings.filters.key_of(relation.full_name)

    def _prepare(self, table: CatalogTable) -> None:
        relation = self._catalog.relation(table)
        made = self._tables[table.full_name] = self._shapes.learn(relation)
        self._queries[table.full_name] = RowQuery(table, made, self._catalog.key_types(table))

    def _begin_anew(self, *, snapshot: bool) -> None:
        settings = self._settings
        assert self._side is not None
        stream = ReplicationStream(settings.url)
        created: CreatedSlot = create_slot(
            stream.connection,
            settings.slot,
            temporary=settings.temporary,
            failover=settings.failover,
            server_version=self._side.info.server_version,
        )
        self._position = LogPosition(created.lsn)
        self._learn_tables({})  # once more: one may have been altered before the slot was there
        self._is_new = True
        self._remaining = Remaining()
        if snapshot:
            tables = [table for name, table in self._captured.items() if name != settings.signal_table]
            self._remaining = plan_ranges(self._side, tables, self._queries, settings.snapshot_range_rows)
            self._moved = {one: one for one in self._remaining.ranges}
            self._facts.begin_snapshot(sum(max(table.rows, 0) for table in tables))
            self._snapshot = SnapshotReader(
                settings.url,
                created.snapshot,
                self._remaining,
                self._queries,
                workers=settings.snapshot_workers,
                chunk_rows=settings.chunk_rows,
            )
            log.info("snapshot begun", slot=settings.slot, tables=len(tables), ranges=len(self._remaining.ranges))
        if settings.temporary:
            self._stream = stream  # the slot lives as long as this connection does
        else:
            stream.close()

    def _start_stream(self) -> None:
        settings = self._settings
        options = {"proto_version": "1", "publication_names": settings.publication_name, "messages": "true"}
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
        self._decoder = Decoder(self._resolve, self._position)
        self._incremental = Incremental(self._remaining, self._read_between)

    def _resolve(
        self, relation: Relation, origin: Origin, place: str, is_known: bool
    ) -> tuple[Table | None, list[Event]]:
        name = relation.full_name
        if not self._settings.filters.captures(name) and name != self._settings.signal_table:
            return None, []
        if is_known:
            return self._shapes.recall(relation), []
        table, events = self._shapes.take(relation, origin, place)
        if table is not None:
            self._tables[name] = table
        return table, list(events)

    # --- batches

    def next_batch(self, timeout_s: float) -> Batch | None:
        """The next events."""
        if self._ended:
            return Batch([], self.position(), is_last=True)
        try:
            if self._snapshot is not None:
                return self._next_of_snapshot(timeout_s)
            return self._next_of_log(timeout_s)
        except psycopg.OperationalError as error:
            raise SourceUnavailable(f"the database is not there ({_line(error)})") from error

    def _next_of_snapshot(self, timeout_s: float) -> Batch | None:
        assert self._snapshot is not None
        events: list[Event] = []
        if self._remaining:
            chunk = self._snapshot.next_chunk(timeout_s)
            if chunk is None:
                return None
            table = self._tables[chunk.range.table]
            origin, place = self._snapshot_origin("true")
            new = tuple.__new__  # a change without the detour through its keyword arguments
            events = [new(Change, (table, READ, None, row, origin, place)) for row in chunk.rows]
            self._facts.count_rows(len(events))
            current = self._moved[chunk.range]
            if chunk.is_last:
                self._remaining = self._remaining.done(current)
            else:
                query = self._queries[chunk.range.table]
                if query.has_key:
                    self._remaining, moved = self._remaining.moved(current, query.key_of(chunk.rows[-1]))
                    self._moved[chunk.range] = moved
        if not self._remaining:
            self._snapshot.close()
            self._snapshot = None
            log.info("snapshot done", slot=self._settings.slot)
            if self._settings.snapshot == "initial-only":
                self._ended = True
                return Batch(events, self.position(), is_last=True)
            self._start_stream()
        return Batch(events, self.position())

    def _snapshot_origin(self, kind: str) -> tuple[Origin, str]:
        now_us = time.time_ns() // 1000
        members = (
            f'"ts_ms":{now_us // 1000},"ts_us":{now_us},"ts_ns":{now_us}000,"snapshot":"{kind}","txId":null,"xmin":null'
        )
        lsn = self._decoder.position.lsn if self._decoder is not None else self._position.lsn
        return Origin(None, now_us, members), f'"sequence":"[null,\\"{lsn}\\"]","lsn":{lsn}'

    def _next_of_log(self, timeout_s: float) -> Batch | None:
        if self._failed is not None:
            raise self._failed
        decoder, stream, incremental = self._decoder, self._stream, self._incremental
        assert decoder is not None
        assert stream is not None
        if decoder.advance(_REPLAYED_MESSAGES):
            if incremental.is_active:
                incremental.begin()
                timeout_s = min(timeout_s, 0.5)
            self._receive(stream, decoder, timeout_s)
        events, decoder.events = decoder.events, []
        if incremental.is_active or self._has_internal(events):
            events = self._looked_through(events)
        if self._settings.unavailable == "reselect":
            assert self._side is not None
            events = complete(self._side, events, lambda table: self._catalog.types_of(table.id))
        now = time.monotonic()
        is_due = now >= self._beat_at
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

    def _has_internal(self, events: list[Event]) -> bool:
        return any(isinstance(event, Message) for event in events) or bool(self._settings.signal_table)

    def _looked_through(self, events: list[Event]) -> list[Event]:
        found: list[Event] = []
        for event in self._incremental.through(events, lambda: self._snapshot_origin("incremental")):
            signal = signal_in(event, self._settings.signal_table)
            if signal is not None and signal.slot in ("", self._settings.slot):
                self._obey(signal.kind, list(signal.tables))
            is_signal = isinstance(event, Message) and event.prefix == SIGNAL
            is_signal |= isinstance(event, Change) and event.table.full_name == self._settings.signal_table
            if not is_signal:
                found.append(event)
        return found

    def _obey(self, kind: str, tables: list[str]) -> None:
        incremental = self._incremental
        if kind == "stop-snapshot":
            chosen = tables or [one.table for one in incremental.remaining.ranges]
            incremental.remaining = incremental.remaining.without(chosen)
        else:
            known = [name for name in tables if name in self._tables and name != self._settings.signal_table]
            for name in set(tables) - set(known):
                log.warning("snapshot of unknown table asked for", table=name, slot=self._settings.slot)
            incremental.remaining = incremental.remaining.with_tables(known)
        log.info("signal obeyed", signal=kind, tables=",".join(tables), slot=self._settings.slot)

    def _read_between(self, wanted: Range, name: str) -> ReadChunk | None:
        assert self._side is not None
        return read_between(self._side, self._catalog, self._shapes, wanted, name, self._settings.chunk_rows)

    # --- heartbeat

    def _beat(self, now: float) -> None:
        """Look after the slot, and let the position move even if nothing happens."""
        settings = self._settings
        self._beat_at = now + settings.heartbeat_s
        assert self._side is not None
        state = slot_state(self._side, settings.slot)
        if state is None:
            return
        self._facts.lag_bytes = state.lag_bytes
        if state.is_lost:
            raise slot_lost(settings.slot)
        if settings.lag_cap_bytes is not None and state.lag_bytes > settings.lag_cap_bytes:
            self._give_up(state.lag_bytes)
        self._take_new_tables()
        if state.lag_bytes > settings.lag_alarm_bytes:
            log.warning(
                "slot lags", slot=settings.slot, lag_bytes=state.lag_bytes, alarm_bytes=settings.lag_alarm_bytes
            )

    def _take_new_tables(self) -> None:
        """Tables that were made since the start: publish them, and read what they held before that."""
        assert self._side is not None
        settings = self._settings
        new = [
            table
            for table in self._catalog.capturable(settings.filters)
            if table.full_name not in self._captured and table.full_name not in self._refused
        ]
        if not new:
            return
        try:
            ensure_publication(
                self._side,
                settings.publication_name,
                [*self._captured.values(), *new],
                managed=settings.managed_publication,
            )
        except SourceRefused as refusal:  # no reason to stop what runs
            self._refused.update(table.full_name for table in new)
            log.warning("new tables not captured", reason=str(refusal), slot=settings.slot)
            return
        for table in new:
            self._prepare(table)
            self._captured[table.full_name] = table
        names = [table.full_name for table in new]
        log.info("new tables captured", tables=",".join(names), slot=self._settings.slot)
        if self._settings.snapshot != "never":
            self._incremental.remaining = self._incremental.remaining.with_tables(names)

    def _give_up(self, lag_bytes: int) -> None:
        assert self._stream is not None
        assert self._side is not None
        side, slot = self._side, self._settings.slot
        self._stream.close()
        when_free(lambda: drop_slot(side, slot))
        raise slot_over_cap(slot, lag_bytes, self._settings.lag_cap_bytes)

    # --- the rest of the contract

    def position(self) -> Position:
        """Behind the last batch."""
        found: Position = self._position.as_json()
        remaining = self._remaining if self._decoder is None else self._incremental.remaining
        if remaining:
            found["snapshot"] = remaining.as_json()
        found["shapes"] = dict(self._shapes.known)
        if self._ended:
            found["ended"] = True
        return found

    def facts(self) -> dict[str, Any]:
        """The slot, what the server keeps for it, and how far the snapshot is; any thread may ask."""
        self._facts.tables = tuple(self._tables)
        return self._facts.as_json()

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
                self._side.close()
            self._side = None
        self._decoder = None


def _line(error: Exception) -> str:
    return " ".join(str(error).split())
