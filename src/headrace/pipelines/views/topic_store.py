"""Views in a compacted topic: the key as JSON, the row as JSON, a record without a value for a row that is gone.

Rows are written by the two-phase sink (`headrace.pipelines.sink.topic.phases`), exactly once; any Kafka client reads
them. A topic cannot be renamed, so a new version is another topic, `NAME.v2`, and the switch is a record that names it.

What is known of views stands in the compacted topic `__headrace_views`, a record for each. It names the topic that
holds the rows and, for each of its partitions, the offset before which the last whole batch lies. It is written when
the batch is committed; readers go as far as it says, and so see whole batches only.
"""

import json
import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.client.address import parse_bootstrap
from headrace.client.admin import describe_configs, ensure_topic
from headrace.client.cluster import Cluster
from headrace.client.errors import ClientError
from headrace.client.fetch import FetchOptions
from headrace.client.offsets import EARLIEST, LATEST, list_offsets
from headrace.client.reader import read_records
from headrace.client.security import settings_from
from headrace.model import TopicPartition
from headrace.pipelines.clusters import cluster_at
from headrace.pipelines.sink.topic.options import SinkOptions
from headrace.pipelines.sink.topic.phases import Attempt, commit_batch, is_done, settle, write_task
from headrace.records import Record
from headrace.stores.batch import Recorded, Step, decide_step
from headrace.stores.compacted_topic import CompactedTopic
from headrace.stores.errors import BadView, StoreAway
from headrace.stores.views.question import Question
from headrace.stores.views.replica import Replica
from headrace.stores.views.shape import Shape, check_same
from headrace.stores.views.store import (
    Answer,
    Changes,
    Freshness,
    Kept,
    Label,
    Tally,
    ViewBatch,
    never_written,
    next_kept,
    not_built,
    take_over,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_COMPACTED = {"cleanup.policy": "compact"}
_SLICE_S = 0.5
VIEWS_TOPIC = "__headrace_views"
_REACHED: dict[str, str] = {}  # where this process wrote a topic: a switch comes after, and is not noticed


@dataclass(frozen=True)
class Entry:
    kept: Kept
    topic: str
    ends: Mapping[int, int]
    recorded: tuple[Recorded, ...] = field(default=())

    def encoded(self) -> bytes:
        return json.dumps(
            {
                "topic": self.topic,
                "ends": self.ends,
                "shape": json.loads(self.kept.shape.to_json()),
                "freshness": json.loads(self.kept.freshness.to_json()),
                "batches": [asdict(one) for one in self.recorded],
            }
        ).encode()

    @classmethod
    def decoded(cls, value: bytes) -> "Entry":
        found = json.loads(value)
        freshness = Freshness.from_json(json.dumps(found["freshness"]))
        kept = Kept(Shape.from_json(json.dumps(found["shape"])), freshness, freshness.revision)
        ends = {int(partition): offset for partition, offset in found["ends"].items()}
        return cls(kept, found["topic"], ends, tuple(Recorded(**one) for one in found["batches"]))


class TopicBooks:
    """Reads and writes the topic; remembers where it is."""

    def __init__(self, cluster: Cluster) -> None:
        self.entries: dict[str, Entry] = {}
        self._topic = CompactedTopic(cluster, VIEWS_TOPIC, forget=self.entries.clear)

    def write(self, label: str, entry: Entry | None) -> None:
        """Write down what is known of a view, or that it is no more; durable when this returns."""
        self._topic.write(label, None if entry is None else entry.encoded())

    def read(self) -> None:
        """Take in all that is there by now."""
        for record in self._topic.read_news():
            self._take(record)

    def wait(self, timeout_s: float) -> None:
        """Until there is anything new, or the time is over."""
        for record in self._topic.wait_for_news(timeout_s):
            self._take(record)

    def _take(self, record: Record) -> None:
        name = (record.key or b"").decode()
        if record.value is None:
            self.entries.pop(name, None)
        else:
            self.entries[name] = Entry.decoded(record.value)


@dataclass
class _Writing:
    """What a process remembers of a view that it writes; forgotten when a batch fails."""

    books: TopicBooks
    query: str | None = None  # the query that wrote last: only its first batch here can be one that was decided before


_WRITING: dict[tuple[str, str], _Writing] = {}


@dataclass(frozen=True)
class TopicStore:
    """A view in one topic; without `bootstrap` it is on the cluster that the view reads from."""

    name: str
    bootstrap: str | None = None
    partitions: int = 1
    connection: Mapping[str, str] = field(default_factory=dict, repr=False)  # it may hold passwords
    kind = "topic"

    def __str__(self) -> str:
        return f"topic {self.name}"

    def prepare(self, found: "DataFrame") -> "DataFrame":
        from headrace.stores.frames import with_row_json

        return with_row_json(found)

    def write(self, batch: ViewBatch) -> Freshness | None:
        """Write a batch, then how fresh it is; None if it is there already."""
        bootstrap = self.bootstrap or batch.origin.bootstrap
        if bootstrap is None:
            raise BadView(f"view {str(batch.label)!r} is kept in {self}: say on which cluster, topic(…, bootstrap=…)")
        # A connection of its own: views are written by several threads of one process.
        connection = {**(self.connection or batch.origin.connection), "client.id": f"headrace-view-{batch.label}"}
        options = SinkOptions(bootstrap, connection=connection)
        cluster = cluster_at(bootstrap, connection)
        _REACHED[self.name] = bootstrap
        place = (bootstrap, str(batch.label))
        writing = _WRITING.pop(place, None) or _Writing(TopicBooks(cluster))
        freshness = self._write(batch, options, cluster, writing)
        _WRITING[place] = writing
        return freshness

    def _write(self, batch: ViewBatch, options: SinkOptions, cluster: Cluster, writing: _Writing) -> Freshness | None:
        books = writing.books
        books.read()
        entry = books.entries.get(str(batch.label))
        recorded = entry.recorded if entry else ()
        sink = f"view:{batch.label}"
        step = decide_step(sink, recorded, batch.query_id, batch.batch_id, batch.on_new_query)
        if step is Step.SKIP:
            return None
        if step is not Step.WRITE:
            raise BadView(f"view {str(batch.label)!r} in {self} cannot begin anew in its place: rebuild it instead")
        if entry:
            check_same(str(batch.label), entry.kept.shape, batch.shape)
        topic = entry.topic if entry else self._first_topic(cluster, batch.label)
        _write_rows(batch, replace(options, topic=topic), is_first=writing.query != batch.query_id)
        writing.query = batch.query_id
        kept = next_kept(entry.kept if entry else None, batch, _tally(batch), logged=False, fresh_start=False)
        ends = list_offsets(cluster, dict.fromkeys(cluster.partitions(topic), LATEST))
        written = Recorded(batch.query_id, batch.batch_id)
        books.write(
            str(batch.label),
            Entry(kept, topic, {where.partition: end.offset for where, end in ends.items()}, (written,)),
        )
        return kept.freshness

    def _first_topic(self, cluster: Cluster, label: Label) -> str:
        topic = self.name if label.version is None else f"{self.name}.v{label.version}"
        ensure_topic(cluster, topic, partitions=self.partitions, configs=_COMPACTED)
        policy = next((one.value for one in describe_configs(cluster, topic) if one.name == "cleanup.policy"), None)
        if "compact" not in (policy or ""):
            raise BadView(
                f"view {str(label)!r} is kept in topic {topic!r}, which is not compacted and would lose rows: set "
                f"cleanup.policy=compact (headrace topic alter), or name another topic"
            )
        return topic

    def switch(self, view: str, version: int) -> None:
        """Name the topic of a version as the view's; once more changes nothing."""
        bootstrap = self.bootstrap or _REACHED.get(self.name) or os.environ.get("HEADRACE_BOOTSTRAP")
        with self._cluster(bootstrap) as cluster:
            books = TopicBooks(cluster)
            books.read()
            new, live = str(Label(view, version)), str(Label(view))
            built, before = books.entries.get(new), books.entries.get(live)
            if built is None:
                if before is None:
                    raise not_built(view, version)
                return
            books.write(live, replace(built, kept=take_over(built.kept, before.kept if before else None)))
            books.write(new, None)

    @contextmanager
    def _cluster(self, bootstrap: str | None) -> Iterator[Cluster]:
        with self.connect(bootstrap) as cluster:
            try:
                yield cluster
            except ClientError as error:
                raise StoreAway(f"{self} cannot be reached: {error}") from error

    def connect(self, bootstrap: str | None) -> Cluster:
        address = self.bootstrap or bootstrap
        if address is None:
            raise BadView(f"say on which cluster {self} is: topic(…, bootstrap=…)")
        return Cluster(parse_bootstrap(address), settings_from(self.connection))

    def reader(self, view: str, bootstrap: str | None = None) -> "TopicReader":
        return TopicReader(self, view, bootstrap)


def _write_rows(batch: ViewBatch, options: SinkOptions, *, is_first: bool) -> None:
    """Decided, then committed; a batch that was decided before is committed to its end and not written again."""
    if is_first and is_done(batch.query_id, batch.batch_id, options):
        return
    try:
        transaction = write_task(_records(batch), Attempt(batch.query_id, batch.batch_id, 0), options)
        commit_batch(batch.query_id, batch.batch_id, [transaction] if transaction else [], options)
    except BaseException:
        settle(batch.query_id, batch.batch_id, options)
        raise


def _records(batch: ViewBatch) -> Iterator[pa.RecordBatch]:
    for part in batch.spool.batches():
        columns = [part.column("headrace_key"), part.column("headrace_row")]
        yield pa.RecordBatch.from_arrays(columns, names=["key", "value"])


def _tally(batch: ViewBatch) -> Tally:
    """From the batch alone: the topic cannot be asked for a key; what was taken back was there."""
    changed = added = removed = 0
    for part in batch.spool.batches():
        known, deleted = part.column("headrace_known"), part.column("headrace_deleted")
        changed += part.num_rows
        added += pc.sum(pc.and_not(pc.invert(deleted), known)).as_py() or 0
        removed += pc.sum(pc.and_(deleted, known)).as_py() or 0
    return Tally(changed, added, removed, None, None)


class TopicReader:
    """Follows the topic into memory, a whole batch at a time."""

    def __init__(self, store: TopicStore, view: str, bootstrap: str | None) -> None:
        self._view = view
        self._cluster, self._waiting = store.connect(bootstrap), store.connect(bootstrap)
        self._books, self._news = TopicBooks(self._cluster), TopicBooks(self._waiting)
        self._replica = Replica()
        self._topic: tuple[str, str] | None = None  # name and id: one that is made again is another
        self._places: dict[TopicPartition, int] = {}
        self._turn, self._waiters = threading.Lock(), threading.Lock()
        self._closed = False

    def kept(self) -> Kept:
        self._follow()
        assert self._replica.kept is not None
        return self._replica.kept

    def row(self, values: Sequence[Any]) -> Answer:
        self._follow()
        return self._replica.row(values)

    def page(self, question: Question) -> Answer:
        self._follow()
        return self._replica.page(question)

    def changes(self, since: int) -> Changes:
        self._follow()
        return self._replica.changes(since)

    def wait(self, revision: int, timeout_s: float) -> None:
        """Until a batch of this view is announced, by a long poll at the broker."""
        until = time.monotonic() + timeout_s
        try:
            with self._waiters:
                self._news.read()
                while not self._closed and (left := until - time.monotonic()) > 0:
                    entry = self._news.entries.get(self._view)
                    if entry and entry.kept.freshness.revision > revision:
                        return
                    self._news.wait(min(left, _SLICE_S))
        except ClientError as error:
            raise StoreAway(f"the topics of view {self._view!r} cannot be read: {error}") from error

    def close(self) -> None:
        self._closed = True
        with self._turn:
            self._cluster.close()
        with self._waiters:
            self._waiting.close()

    def _follow(self) -> None:
        """Read on to the end of the last whole batch."""
        try:
            with self._turn:
                self._books.read()
                entry = self._books.entries.get(self._view)
                if entry is None:
                    raise never_written(self._view)
                known = self._replica.kept
                if known and known.freshness.revision == entry.kept.freshness.revision:
                    return
                topic = (entry.topic, self._cluster.topic(entry.topic, refresh=True).id_text)
                is_new = known is None or topic != self._topic
                changed = self._read(entry, from_start=is_new)
                if is_new:
                    self._replica.reset(entry.kept, {key: row for key, row in changed.items() if row is not None})
                    self._topic = topic
                else:
                    self._replica.apply(entry.kept, changed)
        except ClientError as error:
            raise StoreAway(f"the topics of view {self._view!r} cannot be read: {error}") from error

    def _read(self, entry: Entry, *, from_start: bool) -> dict[str, bytes | None]:
        ends = {TopicPartition(entry.topic, index): end for index, end in entry.ends.items()}
        places = {} if from_start else self._places
        unknown = [where for where in ends if where not in places]
        starts = {
            where: found.offset
            for where, found in list_offsets(self._cluster, dict.fromkeys(unknown, EARLIEST)).items()
        }
        starts |= {where: place for where, place in places.items() if where in ends}
        changed: dict[str, bytes | None] = {}
        for records in read_records(self._cluster, starts, until=ends, options=FetchOptions(committed=True)):
            for _, record in records:
                changed[(record.key or b"").decode()] = record.value
        self._places = ends
        return changed
