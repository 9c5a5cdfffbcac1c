"""Event stores: their events become unreadable with the key; snapshots that are not sealed are deleted.

Views beside the events hold in plain what projections were told: those that were told something of the subject are
named, and stay in the report until they are rebuilt. In a file of SQLite, values are looked for in all of its bytes.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from headrace.connect.sections import shown_address
from headrace.eventsourcing.opening import open_store
from headrace.eventsourcing.postgres_store import PostgresEventStore
from headrace.eventsourcing.sql import SqlEventStore
from headrace.eventsourcing.sqlite_store import SqliteEventStore
from headrace.eventsourcing.store import ErasableStore, EventStore, SnapshotStore
from headrace.eventsourcing.views_sql import views_told
from headrace.forgetting.report import Finding, Hit, Outcome
from headrace.forgetting.sealed import key_ids_in
from headrace.forgetting.search import Needles
from headrace.stack.forgetting.files import parts_of
from headrace.stack.forgetting.place import Subject
from headrace.stores.sql.statements import TableName


class EventStorePlace:
    def __init__(self, name: str, url: str, folder: Path) -> None:
        parts = urlsplit(url)
        path = unquote(parts.path).removeprefix("/")
        self._url = url
        if parts.scheme == "sqlite" and not path.startswith("/"):
            query = f"?{parts.query}" if parts.query else ""
            self._url = f"sqlite:///{quote(str(folder / path))}{query}"
        self.name = f"event store {name} in {parts.scheme} {shown_address(url)}"

    @contextmanager
    def _opened(self) -> Iterator[EventStore]:
        store = open_store(self._url, create=False)
        try:
            yield store
        finally:
            store.close()

    def forget(self, subject: Subject, *, dry: bool) -> Iterator[Finding]:
        with self._opened() as store:
            events, streams = 0, set[str]()
            for event in store.read():
                if not subject.key_ids.isdisjoint(key_ids_in(event.data)):
                    events += 1
                    streams.add(event.stream)
            outcome = Outcome.UNREADABLE if events else Outcome.NOTHING
            yield Finding(self.name, "events", outcome, events, "the key is destroyed" if events else "")
            if isinstance(store, ErasableStore) and isinstance(store, SnapshotStore):
                held = [stream for stream in sorted(streams) if store.find_snapshot(stream) is not None]
                for stream in held if not dry else ():
                    store.delete_snapshots(stream)
                if held:
                    yield Finding(self.name, "snapshots", Outcome.ERASED, len(held), "of streams with such events")
            if isinstance(store, SqliteEventStore) and not dry:
                yield from self._clear_log(store)
            if isinstance(store, SqlEventStore):
                with store.pool.borrow() as db:
                    told = views_told(db, store.table.schema, subject.key_ids)
                for view in told:
                    why = "its rows may hold what was opened: rebuild it (ProjectionRunner.rebuild), and run this again"
                    yield Finding(self.name, f"view {view}", Outcome.FAILED, 0, why)

    def _clear_log(self, store: SqliteEventStore) -> Iterator[Finding]:
        """What was deleted, also rows of views, is in SQLite's log until that is written over."""
        with store.pool.borrow() as db:
            [(is_busy, *_)] = db.run("PRAGMA wal_checkpoint(TRUNCATE)")
        if is_busy:
            why = "what was deleted may be in it as long as somebody reads the file: run the command again then"
            yield Finding(self.name, "write-ahead log", Outcome.FOLLOWS, 0, why)

    def search(self, needles: Needles) -> Iterator[Hit]:
        with self._opened() as store:
            for event in store.read():
                parts = [event.data, event.stream.encode(), *(tag.encode() for tag in event.tags)]
                parts += [text.encode() for pair in event.headers.items() for text in pair]
                for number in sorted(needles.find(b"\0".join(parts))):
                    yield Hit(self.name, f"event {event.version} of stream {event.stream}", number)
            if isinstance(store, ErasableStore):
                for stream in store.list_streams():
                    snapshot = store.find_snapshot(stream.name)
                    for number in sorted(needles.find(snapshot.data)) if snapshot is not None else ():
                        yield Hit(self.name, f"the snapshot of stream {stream.name}", number)
            # Views, snapshots, outboxes and free pages, too.
            for path in store_files(store):
                for number in needles.find_in_parts(parts_of(path)):
                    yield Hit(self.name, f"file {path.name}", number)
            if isinstance(store, PostgresEventStore):
                yield from self._search_tables(store, needles)

    def _search_tables(self, store: PostgresEventStore, needles: Needles) -> Iterator[Hit]:
        schema = store.table.schema
        with store.pool.borrow() as db:
            named = (
                "SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = ? "
                "AND c.relkind = 'r' AND has_table_privilege(c.oid, 'SELECT') ORDER BY 1"
            )
            for (table,) in db.run(named, (schema,)):
                for number, value in enumerate(needles.values, 1):
                    [(is_there,)] = db.run(
                        f"SELECT EXISTS (SELECT 1 FROM {TableName(table, schema)} t "  # noqa: S608 - quoted
                        "WHERE strpos(lower(t::text), lower(?)) > 0)",
                        (value,),
                    )
                    if is_there:
                        yield Hit(self.name, f"table {table}", number)


def store_files(store: EventStore) -> list[Path]:
    """The files that a store has for itself, if it has such."""
    if not isinstance(store, SqliteEventStore):
        return []
    beside = [store.path, store.path.with_name(f"{store.path.name}-wal")]
    return [path for path in beside if path.is_file()]
