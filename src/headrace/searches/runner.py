"""A search at work: queries and documents in, hits and places out, one transaction after another.

What always holds: in what one fetch brought, queries come before documents; a hit is committed with the place behind
its document, or not at all; whoever begins under the same name fences the one before, then reads the places; and after
any error everything since the last commit is forgotten and read again.
"""

import contextlib
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from threading import Event
from typing import Final

from headrace.client.address import Address
from headrace.client.admin import describe_configs, ensure_topic
from headrace.client.cluster import Cluster
from headrace.client.connection import ConnectionSettings
from headrace.client.errors import ClientError, Refused, TopicGrown, VersionNotSpoken
from headrace.client.fetch import FetchOptions
from headrace.client.offsets import Start, StartKind, bounds, find_stretch
from headrace.client.reader import ReadRecord, read_records
from headrace.connect.delivery import Entry, Sender, read_committed
from headrace.connect.envelope import Headers
from headrace.connect.keep_running import KeepRunning
from headrace.dead_letters import topic_for, write_letters
from headrace.delivery.letters import Letter
from headrace.model import TopicPartition
from headrace.percolation.catalog import Catalog, Effect
from headrace.percolation.documents import Document, parse_document
from headrace.percolation.errors import InvalidDocument
from headrace.percolation.percolator import Hit, Percolator, warm_up
from headrace.percolation.snippets import snippets
from headrace.percolation.stored import StoredQuery
from headrace.records import Record
from headrace.records.partitioning import partition_of_key
from headrace.retry import Backoff
from headrace.searches.hits import Piece, SearchHit, write_hit
from headrace.searches.places import Backfill, Places, changes, is_of, read_places
from headrace.searches.settings import SearchError, SearchSettings
from headrace.stores.compacted_topic import SMALL, check_partitions
from headrace.telemetry.logs import get_logger

PLACES: Final = "__headrace_search_places"
_OPTIONS: Final = FetchOptions(max_wait_ms=200, committed=True)
_AT_ONCE: Final = FetchOptions(max_wait_ms=0, committed=True)
_TOGETHER: Final = 512  # documents that are held against the queries in one go
_MOST_HITS: Final = 5_000  # in a transaction, about
_COMMIT_EVERY_S: Final = 1.0  # where there are no hits
_SLICE_S: Final = 0.4  # for older documents, in a turn: live ones wait no longer
_LOOK_EVERY_S: Final = 5.0  # for partitions that were added
_MOST_PIECES: Final = 32
_MOST_BYTES: Final = 16 * 1024 * 1024  # of hits in a transaction, about
_MOST_COPIES_BYTES: Final = 256 * 1024 * 1024  # of one document, in all its hits
_MOST_OPEN: Final = 8  # queries for which older documents are being read
_USUAL_ROOM_BYTES: Final = 1_048_588  # where a topic does not tell
_AROUND_BYTES: Final = 1_024  # of a batch, around its one record
_ROOM_BYTES: Final = 16 * 1024 * 1024  # for a hit that carries its document, in a topic that we make
_log = get_logger(__name__)


@dataclass(slots=True)
class SearchProgress:
    """How far it has come, for whoever watches."""

    documents: int = 0
    hits: int = 0
    letters: int = 0
    queries: int = 0
    refused: Mapping[str, str] = field(default_factory=dict)
    unselective: int = 0
    backfills: Mapping[str, int] = field(default_factory=dict)
    """Queries that are being held against older documents, and how many offsets are left."""
    by_query: Counter[str] = field(default_factory=Counter)
    lag: int = 0
    queries_offset: int = 0
    waiting: str = ""
    problem: str = ""


@dataclass(slots=True)
class SearchRunner:
    settings: SearchSettings
    bootstrap: Sequence[Address]
    client: ConnectionSettings = field(default_factory=ConnectionSettings)
    backoff: Backoff = field(default_factory=Backoff)
    progress: SearchProgress = field(default_factory=SearchProgress)
    stopping: Event = field(default_factory=Event)

    def run(self, *, until_idle: bool = False) -> None:
        """Go on until it is told to stop, or until there is nothing more; raises what waiting does not mend."""
        name = self.settings.name

        def refused(refusal: Refused) -> SearchError:
            return SearchError(f"the broker refuses what search {name} asks or writes ({refusal})")

        self.progress.waiting = "for its loops to be compiled"  # once an installation; documents would wait for it
        warm_up()
        keep = KeepRunning(
            name, self.progress, self.stopping, lambda: self.progress.documents, refused, backoff=self.backoff
        )
        keep.run(lambda: self._run_once(until_idle))

    def _run_once(self, until_idle: bool) -> None:
        settings = self.settings
        with Cluster(self.bootstrap, replace(self.client, client_id=f"headrace-search-{settings.name}")) as cluster:
            cluster.topic(settings.documents, refresh=True)
            ensure_topic(cluster, PLACES, partitions=1, configs={"cleanup.policy": "compact"})
            ensure_topic(cluster, settings.queries, partitions=1, configs={"cleanup.policy": "compact", **SMALL})
            ensure_topic(cluster, settings.hits, configs={"max.message.bytes": str(_ROOM_BYTES)})
            sender = Sender(cluster, f"headrace-search-{settings.name}", settings.name)
            sender.begin()
            try:
                stored = read_committed(cluster, PLACES, lambda key: is_of(settings.name, key))
                work = _Work(settings, cluster, sender, self.progress)
                work.resume(read_places(stored))
                for is_idle in work.turns():
                    self.progress.waiting = self.progress.problem = ""
                    if self.stopping.is_set() or (is_idle and until_idle):
                        work.commit()
                        return
            except Exception:
                # What is left open would hold up every reader of the topic until it runs out of time.
                with contextlib.suppress(ClientError):
                    sender.abort()
                raise


@dataclass(slots=True)
class _Older:
    """The older documents of one query, as they are read; some of a fetch may be left for the next turn."""

    percolator: Percolator
    reading: Iterator[list[ReadRecord]]
    records: Sequence[ReadRecord] = ()
    at: int = 0


class _Work:
    """One run of a search, between taking over and the first error."""

    def __init__(self, settings: SearchSettings, cluster: Cluster, sender: Sender, progress: SearchProgress) -> None:
        self._settings = settings
        self._cluster = cluster
        self._sender = sender
        self._progress = progress
        self._catalog = Catalog()
        self._queries = TopicPartition(settings.queries, 0)
        self._committed = Places()
        self._places = Places()
        self._documents: dict[int, int] = {}
        self._backfills: dict[str, Backfill] = {}
        self._older: dict[str, _Older] = {}
        self._entries: dict[TopicPartition, list[Entry]] = {}
        self._hits = self._bytes = 0
        self._uncommitted: Counter[str] = Counter()
        self._read = self._letters = 0
        self._committed_at = self._looked_at = time.monotonic()
        self._partitions = len(cluster.topic(settings.hits).partitions)
        self._room = _room_of(cluster, settings.hits)

    # --- beginning

    def resume(self, stored: Places) -> None:
        """Go on from what was committed; in a topic that was made again, from its start."""
        settings = self._settings
        check_partitions(self._cluster.topic(settings.queries))
        if stored.documents_topic not in ("", settings.documents):
            # The places would go, and with a return to that topic each hit of it be written again.
            raise SearchError(
                f"search {settings.name} is at work on topic {stored.documents_topic}: give [search.NAME] another name "
                f"for the documents of {settings.documents}"
            )
        self._committed = stored
        documents, queries = self._cluster.topic(settings.documents), self._cluster.topic(settings.queries)
        held = bounds(self._cluster, self._cluster.partitions(settings.documents), committed=True)
        is_same = stored.documents_id == documents.id_text
        from_start = settings.from_start or not stored.is_new  # a new partition, or a new topic, is read from its start
        for where, bound in held.items():
            place = stored.documents.get(where.partition) if is_same else None
            begin = bound.start if from_start else bound.end
            self._documents[where.partition] = begin if place is None else min(max(place, bound.start), bound.end)
        if is_same:
            self._backfills = dict(stored.backfills)
        known = stored.queries if stored.queries_id == queries.id_text else 0
        self._places = Places(known, queries.id_text, {}, documents.id_text, settings.documents)
        end = bounds(self._cluster, [self._queries], committed=True)[self._queries]
        until = {self._queries: end.end}
        if end.end > end.start:
            for records in read_records(self._cluster, {self._queries: end.start}, until=until, options=_OPTIONS):
                for read in records:
                    self._apply(read.record, is_new=read.record.offset >= known)
        self._catalog.offset = max(self._catalog.offset, end.end)
        for query in [each for each in self._backfills if not self._stands(self._backfills[each])]:
            del self._backfills[query]
        self._report()

    def _stands(self, backfill: Backfill) -> bool:
        percolator = self._catalog.percolator
        if backfill.query not in percolator:
            return False
        stored = percolator.get(backfill.query)
        return not stored.paused and stored.version == backfill.version

    # --- turns

    def turns(self) -> Iterator[bool]:
        """One turn after another; whether there was nothing to do."""
        starts = {TopicPartition(self._settings.documents, part): at for part, at in self._documents.items()}
        starts[self._queries] = self._catalog.offset
        ids = {
            self._settings.documents: self._places.documents_id,
            self._settings.queries: self._places.queries_id,
        }
        reached: dict[TopicPartition, int] = {}
        for records in read_records(self._cluster, starts, options=_OPTIONS, ids=ids, reached=reached):
            for read in records:
                if read.partition == self._queries:
                    self._apply(read.record, is_new=True)
            documents = [read for read in records if read.partition != self._queries]
            for first in range(0, len(documents), _TOGETHER):
                self._match(documents[first : first + _TOGETHER])
            # Behind the last document there may be what is none: markers of transactions, and what was aborted.
            self._documents.update({part.partition: at for part, at in reached.items() if part != self._queries})
            self._match_older()
            if time.monotonic() - self._committed_at >= _COMMIT_EVERY_S or self._entries:
                self.commit()
            self._report()
            if time.monotonic() - self._looked_at >= _LOOK_EVERY_S and self._has_new_partitions():
                self.commit()
                raise TopicGrown(self._settings.documents)
            yield not records and not self._backfills

    def _has_new_partitions(self) -> bool:
        self._looked_at = time.monotonic()
        topic = self._cluster.topic(self._settings.documents, refresh=True)
        check_partitions(self._cluster.topic(self._settings.queries, refresh=True))
        held = bounds(self._cluster, self._cluster.partitions(self._settings.documents), committed=True)
        self._progress.lag = sum(
            max(bound.end - self._documents.get(where.partition, 0), 0) for where, bound in held.items()
        )
        return len(topic.partitions) > len(self._documents)

    # --- queries

    def _apply(self, record: Record, *, is_new: bool) -> None:
        for change in self._catalog.apply(record.offset, record.key, record.value):
            stored = change.stored
            if change.effect in (Effect.REMOVED, Effect.REFUSED):
                self._drop_backfill(change.id)
                self._progress.by_query.pop(change.id, None)
            elif change.effect in (Effect.ADDED, Effect.CHANGED) and stored is not None and is_new:
                self._drop_backfill(stored.id)
                if stored.also_match_last_us is not None and not stored.paused and not change.has_stood:
                    self._begin_backfill(stored, record)

    def _begin_backfill(self, stored: StoredQuery, record: Record) -> None:
        if stored.mapping != self._settings.mapping:
            return
        assert stored.also_match_last_us is not None
        # A record's time is what its writer said.
        now_ms = min(record.timestamp, time.time_ns() // 1_000_000) if record.timestamp >= 0 else 0
        since = Start(StartKind.TIME, max(now_ms - stored.also_match_last_us // 1000, 0))
        partitions = [TopicPartition(self._settings.documents, part) for part in self._documents]
        found = find_stretch(self._cluster, partitions, since, committed=True)
        parts = {
            where.partition: (start, self._documents[where.partition])
            for where, start in found.starts.items()
            if start < self._documents[where.partition]
        }
        if parts:
            self._backfills[stored.id] = Backfill(stored.id, stored.version, record.offset + 1, parts)

    def _drop_backfill(self, query: str) -> None:
        self._backfills.pop(query, None)
        self._older.pop(query, None)

    # --- documents

    def _match(self, records: Sequence[ReadRecord]) -> None:
        for read in self._hold(self._catalog.percolator, records, self._catalog.offset, is_backfill=False):
            self._documents[read.partition.partition] = read.record.offset + 1
            self._read += 1
            if self._is_full:
                self.commit()

    @property
    def _is_full(self) -> bool:
        return self._hits >= _MOST_HITS or self._bytes >= _MOST_BYTES

    def _match_older(self) -> None:
        """Some older documents for the queries that ask for them."""
        end = time.monotonic() + _SLICE_S
        while self._backfills and time.monotonic() < end:
            query = next(iter(self._older if len(self._older) >= _MOST_OPEN else self._backfills))
            backfill = self._backfills[query]
            older = self._older.get(query) or self._open_older(backfill)
            parts = dict(backfill.parts)
            if older.at >= len(older.records):
                records = next(older.reading, None)
                if records is None:
                    self._drop_backfill(query)
                    return
                older.records, older.at = records, 0
            some = older.records[older.at : older.at + _TOGETHER]
            older.at += len(some)
            for read in self._hold(older.percolator, some, backfill.queries_offset, is_backfill=True):
                parts[read.partition.partition] = (read.record.offset + 1, parts[read.partition.partition][1])
                if self._is_full:
                    self._backfills[query] = replace(backfill, parts=dict(parts))
                    self.commit()
            self._backfills[query] = replace(backfill, parts=dict(parts))
            # The next query has its turn, too; of many, those under way go first, since each holds what it has read.
            self._older[query] = self._older.pop(query)
            self._backfills[query] = self._backfills.pop(query)

    def _open_older(self, backfill: Backfill) -> "_Older":
        known = self._catalog.percolator
        percolator = Percolator({self._settings.mapping: known.mappings[self._settings.mapping]})
        percolator.put(known.get(backfill.query))
        spans = {
            TopicPartition(self._settings.documents, part): span
            for part, span in backfill.parts.items()
            if span[0] < span[1]
        }
        held = bounds(self._cluster, spans) if spans else {}
        starts = {where: max(span[0], held[where].start) for where, span in spans.items()}
        until = {where: span[1] for where, span in spans.items()}
        starts = {where: start for where, start in starts.items() if start < until[where]}
        reading = iter(read_records(self._cluster, starts, until=until, options=_AT_ONCE)) if starts else iter(())
        self._older[backfill.query] = _Older(percolator, reading)
        return self._older[backfill.query]

    def _hold(
        self, percolator: Percolator, records: Sequence[ReadRecord], queries_offset: int, *, is_backfill: bool
    ) -> Iterator[ReadRecord]:
        """Each record once what it matches is among what is to be written."""
        mapping = percolator.mappings.get(self._settings.mapping)
        if mapping is None:
            yield from records  # no query of this mapping stands yet
            return
        documents, letters = dict[int, Document](), list[Letter]()
        for number, read in enumerate(records):
            try:
                documents[number] = parse_document(read.record.value or b"", mapping)
            except InvalidDocument as error:
                letters.append(self._letter(read, str(error)))
        if not is_backfill:
            self._send_letters(letters)
        found = percolator.percolate_each(list(documents.values()), self._settings.mapping, with_highlights=False)
        now_ms = time.time_ns() // 1_000_000
        for number, read in enumerate(records):
            if number in documents:
                hits = next(found)
                self._keep(read, documents[number], hits, percolator, queries_offset, now_ms, is_backfill=is_backfill)
            yield read

    def _keep(
        self,
        read: ReadRecord,
        document: Document,
        hits: Sequence[Hit],
        percolator: Percolator,
        queries_offset: int,
        now_ms: int,
        *,
        is_backfill: bool,
    ) -> None:
        """Keep what a document matches until it is written: all of it, or none and a letter."""
        copies = len(read.record.value or b"") * len(hits) if self._settings.with_document else 0
        written = list[tuple[bytes, bytes, Headers]]()
        for hit in hits if copies <= _MOST_COPIES_BYTES else ():
            # The words of one hit at a time: of a long text they are many, and so are the hits of some documents.
            if self._settings.with_highlights:
                hit = percolator.with_highlights(hit, document)
            key, value, headers = self._write(read, document, hit, queries_offset, is_backfill=is_backfill)
            if len(key) + len(value) > self._room:
                reason = f"a hit of it is {len(value):,} bytes, more than topic {self._settings.hits} takes"
                self._send_letters([self._letter(read, reason)])
                return
            written.append((key, value, headers))
        if copies > _MOST_COPIES_BYTES:
            reason = f"its {len(hits):,} hits would carry it {copies:,} bytes in all, more than a transaction can hold"
            self._send_letters([self._letter(read, reason)])
            return
        for key, value, headers in written:
            where = TopicPartition(self._settings.hits, partition_of_key(key, self._partitions))
            self._entries.setdefault(where, []).append((key, value, now_ms, headers))
            self._bytes += len(key) + len(value)
        self._hits += len(hits)
        self._uncommitted.update(hit.id for hit in hits)

    def _send_letters(self, letters: Sequence[Letter]) -> None:
        if letters:
            write_letters(self._cluster, topic_for(self._settings.documents, None), letters)
            self._letters += len(letters)

    def _write(
        self, read: ReadRecord, document: Document, hit: Hit, queries_offset: int, *, is_backfill: bool
    ) -> tuple[bytes, bytes, Headers]:
        record = read.record
        pieces = tuple(
            Piece(each.field, each.text, each.marks) for each in snippets(document, hit.highlights)[:_MOST_PIECES]
        )
        return write_hit(
            SearchHit(
                hit.id, hit.version, hit.owner, hit.tags, hit.score, pieces, read.partition.topic,
                read.partition.partition, record.offset, record.timestamp,
                None if record.key is None else record.key.decode(errors="replace"),
                queries_offset, is_backfill, document.value if self._settings.with_document else None,
            )
        )  # fmt: skip

    def _letter(self, read: ReadRecord, reason: str) -> Letter:
        record = read.record
        return Letter(
            read.partition.topic, read.partition.partition, record.offset, record.timestamp, record.key, record.value,
            reason, "json", self._settings.name, record.headers, topic_id=self._places.documents_id,
        )  # fmt: skip

    # --- committing

    def commit(self) -> None:
        """Hits and places, in one transaction; nothing if nothing has moved."""
        backfills = {query: each for query, each in self._backfills.items() if not each.is_over}
        now = replace(self._places, queries=self._catalog.offset, documents=dict(self._documents), backfills=backfills)
        self._committed_at = time.monotonic()
        records = changes(self._settings.name, self._committed, now)
        if not records and not self._entries:
            return
        now_ms = time.time_ns() // 1_000_000
        entries: list[Entry] = [(key, value, now_ms, ()) for key, value in records]
        gathered = dict(self._entries)
        if entries:
            gathered[TopicPartition(PLACES, 0)] = entries
        self._sender.commit(gathered)
        self._committed = now
        self._progress.documents += self._read
        self._progress.hits += self._hits
        self._progress.letters += self._letters
        self._progress.by_query.update(self._uncommitted)
        self._entries, self._hits, self._bytes, self._read, self._letters = {}, 0, 0, 0, 0
        self._uncommitted.clear()

    def _report(self) -> None:
        percolator = self._catalog.percolator
        self._progress.queries = len(percolator)
        self._progress.refused = {name: change.reason for name, change in self._catalog.refused.items()}
        self._progress.unselective = percolator.unselective
        self._progress.backfills = {query: backfill.left for query, backfill in self._backfills.items()}
        self._progress.queries_offset = self._catalog.offset


def _room_of(cluster: Cluster, topic: str) -> int:
    """How large a record of a topic may be."""
    with contextlib.suppress(Refused, VersionNotSpoken):  # it may be kept secret
        told = {config.name: config.value for config in describe_configs(cluster, topic)}
        return int(told.get("max.message.bytes") or _USUAL_ROOM_BYTES) - _AROUND_BYTES
    return _USUAL_ROOM_BYTES - _AROUND_BYTES
