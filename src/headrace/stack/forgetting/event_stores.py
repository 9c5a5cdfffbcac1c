"""Event stores: their events become unreadable with the key; snapshots that are not sealed are deleted."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from headrace.connect.sections import shown_address
from headrace.eventsourcing.opening import open_store
from headrace.eventsourcing.store import EventStore, SnapshotStore
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
            if streams and isinstance(store, SnapshotStore):
                if not dry:
                    for stream in sorted(streams):
                        store.delete_snapshots(stream)
                yield Finding(self.name, "snapshots", Outcome.ERASED, len(streams), "of streams with such events")

    def search(self, needles: Needles) -> Iterator[Hit]:
        with self._opened() as store:
            for event in store.read():
                parts = [event.data, event.stream.encode(), *(tag.encode() for tag in event.tags)]
                parts += [text.encode() for pair in event.headers.items() for text in pair]
                for number in sorted(needles.find(b"\0".join(parts))):
                    yield Hit(self.name, f"event {event.version} of stream {event.stream}", number)
