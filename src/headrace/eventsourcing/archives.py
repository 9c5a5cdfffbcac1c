"""Events taken out of a store: to a file, from which they can be read and proven, or for good.

    archive(store, "account-7", below=1000, to=folder, aggregate=account)
    retain(store, Retention("account", keep=1000), to=folder, aggregate=account)

An archive is lines of JSON: a head, then an event a line with its digest. It is on the disk, and has been read back
and found right, before anything leaves the store. Then, in one step, the events are removed and a trace is appended to
their stream. It says where they are, and holds the state that they led to: by that the stream is loaded if there is no
snapshot, for snapshots come and go with the code. So it must be there: from the aggregate, or from a snapshot.

Of a removed event a store keeps what names it (`store.ErasableStore`): versions, positions, conditions and command ids
are what they were, and nothing that was appended once can be appended again.
"""

import json
import os
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from headrace.eventsourcing.aggregate import Aggregate
from headrace.eventsourcing.erasure import make_trace, require_erasable, who
from headrace.eventsourcing.errors import ArchivedEvents, Conflict, ErasureRefused, EventSourcingError
from headrace.eventsourcing.hash_chain import content_digest, event_digest
from headrace.eventsourcing.loading import load_stream
from headrace.eventsourcing.model import StoredEvent
from headrace.eventsourcing.store import ErasableStore, EventStore
from headrace.eventsourcing.traces import ARCHIVAL, TRACE_TYPES, ArchivalTrace

_FORMAT: Final = 1
_LONGEST_NAME: Final = 150  # of a stream in the name of a file


class InvalidArchive(EventSourcingError):
    """A file that is not an archive, or not as it was written."""


@dataclass(frozen=True, slots=True)
class Archived:
    """What was taken out of a stream."""

    stream: str
    first: int
    last: int
    path: Path | None
    trace_version: int

    @property
    def events(self) -> int:
        return self.last - self.first + 1


# --- the file


def _line_of(event: StoredEvent) -> str:
    fields: dict[str, Any] = {**event._asdict(), "headers": dict(event.headers)}
    try:
        fields["data"] = event.data.decode()
    except UnicodeDecodeError:
        fields["data"] = {"base64": b64encode(event.data).decode()}
    return json.dumps({**fields, "sha256": event_digest(event).hex()}, ensure_ascii=False, separators=(",", ":"))


def _event_of(line: str) -> tuple[StoredEvent, bytes]:
    fields = json.loads(line)
    digest = bytes.fromhex(fields.pop("sha256"))
    data = fields["data"]
    fields["data"] = data.encode() if isinstance(data, str) else b64decode(data["base64"])
    fields["tags"] = tuple(fields["tags"])
    return StoredEvent(**fields), digest


def write_archive(path: Path, events: Iterator[StoredEvent]) -> None:
    """Write events to a new file, durably; one that is there is not replaced."""
    temporary = path.with_name(path.name + ".tmp")
    try:
        with temporary.open("w", encoding="utf-8", newline="\n") as file:
            file.write(json.dumps({"headrace-archive": _FORMAT}) + "\n")
            for event in events:
                file.write(_line_of(event) + "\n")
            file.flush()
            os.fsync(file.fileno())
        os.link(temporary, path)  # unlike a rename it fails if there is one
    finally:
        temporary.unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def read_archive(path: Path) -> Iterator[StoredEvent]:
    """The events in an archive, each of which has the digest that it was written with."""
    with path.open(encoding="utf-8", newline="\n") as file:
        number = 1
        try:
            if json.loads(file.readline())["headrace-archive"] != _FORMAT:
                raise InvalidArchive(f"{path} has a format that this Headrace does not know: install a newer one")
            for number, line in enumerate(file, 2):
                event, digest = _event_of(line)
                if event_digest(event) != digest:
                    raise InvalidArchive(f"{event}, in line {number} of {path}, is not as it was archived")
                yield event
        except (ValueError, KeyError, TypeError) as error:
            raise InvalidArchive(f"{path} is not an archive of events, see line {number}: {error}") from None


def digest_events(events: Iterable[StoredEvent]) -> str:
    """Of all events that were archived, as their trace has it."""
    total = sha256()
    for event in events:
        total.update(event_digest(event))
    return total.hexdigest()


# --- archiving


def archive(
    store: EventStore,
    stream: str,
    *,
    below: int,
    to: Path | str | None,
    aggregate: Aggregate[Any] | None = None,
    needs_state: bool = True,
    reason: str = "",
    by: str = "",
) -> Archived:
    """Take the events with versions below one out of a stream, to a file in a folder; `to=None` deletes them.

    The state that they led to comes from the `aggregate`, or else from the stream's snapshot. `needs_state=False` is
    for streams that nobody folds.
    """
    erasable = require_erasable(store)
    first, version = _span(erasable, stream)
    if not first < below <= version + 1:
        raise ErasureRefused(
            f"stream {stream!r} has events {first} to {version} in the store: archive below a version "
            f"from {first + 1} to {version + 1}"
        )
    state, state_version = _state_of(erasable, stream, below, aggregate) if needs_state else (None, 0)
    path = None if to is None else _path_in(Path(to), stream, first, below - 1)
    text = (
        digest_events(store.read_stream(stream, to=below - 1)) if path is None else _write(store, stream, below, path)
    )
    made = ArchivalTrace(
        stream, first, below - 1, path.name if path else "", text, state, state_version, reason, by or who()
    )
    removed = store.read_stream(stream, to=below - 1) if path is None else read_archive(path)
    contents = ((event.version, content_digest(event)) for event in removed)
    try:
        appended = erasable.archive(stream, contents, make_trace(ARCHIVAL, stream, made), version)
    except Conflict:
        if path is not None:
            path.unlink()  # nothing was removed; after any other failure that is not sure
        raise
    return Archived(stream, first, below - 1, path, appended.versions[stream])


def _span(store: ErasableStore, stream: str) -> tuple[int, int]:
    """The first event that is in the store, and the version that the stream is at."""
    last = next(iter(store.read_stream(stream, backward=True, limit=1)), None)
    if last is None:
        raise ErasureRefused(f"there is no stream {stream!r}")
    return next(iter(store.read_stream(stream, limit=1))).version, last.version


def _state_of(store: ErasableStore, stream: str, below: int, aggregate: Aggregate[Any] | None) -> tuple[bytes, int]:
    """A state that covers everything below a version, and its own version."""
    if aggregate is not None:
        loaded = load_stream(store, aggregate, stream, None, below - 1)
        return aggregate.dump_state(loaded.state, loaded.passed_by.opened), below - 1
    snapshot = store.find_snapshot(stream)
    if snapshot is None or snapshot.version < below - 1:
        known = "no snapshot" if snapshot is None else f"a snapshot of version {snapshot.version}"
        raise ErasureRefused(
            f"stream {stream!r} has {known}, and events below {below} could not be loaded any more: give the "
            "aggregate, have its repository write snapshots, or say that nobody folds this stream"
        )
    return snapshot.data, snapshot.version


def _path_in(folder: Path, stream: str, first: int, last: int) -> Path:
    if not folder.is_dir():
        raise ErasureRefused(f"there is no folder {folder} to archive to: make it first")
    name = quote(stream, safe="")
    if len(name) > _LONGEST_NAME:
        name = f"{name[:_LONGEST_NAME]}~{sha256(stream.encode()).hexdigest()[:16]}"
    return folder / f"{name}.{first}-{last}.jsonl"


def _write(store: EventStore, stream: str, below: int, path: Path) -> str:
    """Have the events in a file; the digest of them, as they were read back."""
    try:
        if not path.exists():
            write_archive(path, store.read_stream(stream, to=below - 1))
        written = digest_events(read_archive(path))
    except OSError as error:
        raise ErasureRefused(f"{path} cannot be written: {error.strerror}") from error
    # It may be there from an attempt that ended before the events were removed.
    if written != digest_events(store.read_stream(stream, to=below - 1)):
        raise ErasureRefused(f"there is a file {path} with other events: archive to another folder")
    return written


# --- retention


@dataclass(frozen=True, slots=True)
class Retention:
    """Of each stream of a category, or of one stream, the last `keep` events stay, and those of the last `age_ms`."""

    category: str = ""
    stream: str = ""
    keep: int = 0
    age_ms: int = 0

    def __post_init__(self) -> None:
        if bool(self.category) == bool(self.stream):
            raise ErasureRefused("retention is for one stream or for one category: name one of both")
        if self.keep < 0 or self.age_ms < 0 or not (self.keep or self.age_ms):
            raise ErasureRefused("retention keeps a number of events, or those of some time: give one of both, or both")


def retain(
    store: EventStore,
    retention: Retention,
    *,
    to: Path | str | None,
    now_ms: int,
    aggregate: Aggregate[Any] | None = None,
    needs_state: bool = True,
    by: str = "",
) -> Iterator[Archived | ErasureRefused]:
    """Archive what is beyond the retention; of a stream that cannot be archived, why."""
    erasable = require_erasable(store)
    streams = [retention.stream] if retention.stream else _list_streams(store, retention.category)
    for stream in streams:
        try:
            below = _first_retained(erasable, stream, retention, now_ms)
            if aggregate is None and needs_state and below:
                snapshot = erasable.find_snapshot(stream)
                below = min(below, snapshot.version + 1) if snapshot is not None else below
            if below:
                yield archive(
                    store, stream, below=below, to=to, aggregate=aggregate, needs_state=needs_state,
                    reason="retention", by=by,
                )  # fmt: skip
        except (ErasureRefused, ArchivedEvents) as refusal:
            yield refusal if isinstance(refusal, ErasureRefused) else ErasureRefused(str(refusal))


def _list_streams(store: EventStore, category: str) -> list[str]:
    return [each.name for each in store.list_streams(category)]


def _first_retained(store: ErasableStore, stream: str, retention: Retention, now_ms: int) -> int:
    """The version below which events are beyond the retention; 0 if there are none."""
    kept, below = 0, 0
    for event in store.read_stream(stream, backward=True):
        if event.type in TRACE_TYPES:  # it was appended by archiving, which it is no reason for
            continue
        if kept < retention.keep or (retention.age_ms and event.time_ms > now_ms - retention.age_ms):
            kept, below = kept + 1, event.version
            continue
        return below or event.version + 1
    return 0
