"""Event stores: their events become unreadable with the key; snapshots that are not sealed are deleted."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from headrace.connect.sections import shown_address
from headrace.eventsourcing.opening import open_store
from headrace.eventsourcing.store import ErasableStore, EventStore, SnapshotStore
from headrace.forgetting.report import Finding, Hit, Outcome
from headrace.forgetting.sealed import key_ids_in
from headrace.forgetting.search import Needles
from headrace.stack.forgetting.place import Subject


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
