"""A hash chain over the events of a store, kept beside it, that shows what was tampered with.

A link covers the events after one position up to another. It holds the digest of each, and its own hash is over these
and over the hash of the link before: nothing that is chained can be changed, removed, put in or moved without a hash
that differs. Links are written whenever somebody asks for it (`chain`), not by appends, which cost nothing for it.
They are events of a store beside (`store.beside("links")`), one stream, one link a version: two that chain at once are
two writers, and one gets the conflict.

Whoever can write to the store can write all links anew, so the newest one (`Link.mark`) is worth keeping elsewhere.

A digest is H(what names the event, H(what else is known of it, H(data))). So it can be told from what is left of a
redacted event, whose H(data) stays, and of an archived one, whose inner hash stays.
"""

import json
import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from itertools import islice
from typing import Any, Final, NamedTuple

from headrace.delivery.redaction import digest_of
from headrace.eventsourcing.errors import Conflict, EventSourcingError
from headrace.eventsourcing.model import NewEvent, StoredEvent, StreamAppend, now_ms
from headrace.eventsourcing.store import ErasableStore, EventStore
from headrace.eventsourcing.traces import is_archived

LINKS: Final = "links"  # the store beside, and the stream in it
LINK_EVENTS: Final = 5_000  # in one link, at most
_TYPE: Final = "headrace:link"
_FORMAT: Final = 1
_DIGEST_BYTES: Final = 32
_START: Final = bytes(_DIGEST_BYTES)  # what the first link goes on from
_MARK: Final = re.compile(r"([1-9][0-9]{0,17}):([0-9]{1,18}):([0-9a-f]{64})")
_encode: Final = json.JSONEncoder(separators=(",", ":"), default=repr).encode  # what was tampered with may be anything
OnChained = Callable[["Link"], None]


class InvalidLink(EventSourcingError):
    """What was to be a link, or its mark, is none."""


# --- digests


def content_digest(event: StoredEvent) -> bytes:
    """Of what an archived event has no more: H(what else is known of it, H(data))."""
    if is_archived(event) and not (event.causation_id or event.correlation_id or event.headers):
        return event.data
    more = [event.schema, event.causation_id, event.correlation_id, sorted(event.headers.items())]
    return sha256(_encode(more).encode() + digest_of(event.data)).digest()


def event_digest(event: StoredEvent) -> bytes:
    """Of an event; the same after it was redacted or archived."""
    named = [
        event.position, event.stream, event.version, event.type, event.id, event.time_ms, event.tags, event.command_id
    ]  # fmt: skip
    return sha256(_encode(named).encode() + content_digest(event)).digest()


# --- links


class Entry(NamedTuple):
    """An event as it was chained."""

    position: int
    stream: str
    version: int
    digest: bytes

    def __str__(self) -> str:
        return f"event {self.version} of stream {self.stream!r} (position {self.position})"


class Mark(NamedTuple):
    """A link in a line, to be kept elsewhere."""

    number: int
    to: int
    hash: bytes

    def __str__(self) -> str:
        return f"{self.number}:{self.to}:{self.hash.hex()}"

    @classmethod
    def parse(cls, text: str) -> "Mark":
        found = _MARK.fullmatch(text.strip())
        if found is None:
            raise InvalidLink(f"{text[:100]!r} is not a link: give it as it was printed, NUMBER:POSITION:HASH")
        return cls(int(found[1]), int(found[2]), bytes.fromhex(found[3]))


@dataclass(frozen=True, slots=True)
class Link:
    """The digests of all events after one position up to another."""

    number: int  # from 1 on
    after: int
    to: int
    previous: bytes
    hash: bytes
    linked_ms: int
    entries: tuple[Entry, ...]

    @property
    def mark(self) -> Mark:
        return Mark(self.number, self.to, self.hash)


def make_link(previous: Mark | None, to: int, events: list[StoredEvent], linked_ms: int) -> Link:
    """The next link; `events` are all that there are after the one before it, up to `to`."""
    number, after, before = (previous.number + 1, previous.to, previous.hash) if previous else (1, 0, _START)
    entries = tuple(Entry(each.position, each.stream, each.version, event_digest(each)) for each in events)
    return Link(number, after, to, before, hash_link(number, after, to, before, linked_ms, entries), linked_ms, entries)


def hash_link(number: int, after: int, to: int, previous: bytes, linked_ms: int, entries: tuple[Entry, ...]) -> bytes:
    """What a link with all of this has as its hash."""
    total = sha256(_encode([_FORMAT, number, after, to, previous.hex(), linked_ms]).encode())
    for each in entries:
        total.update(_encode(each[:3]).encode())
        total.update(each.digest)
    return total.digest()


def write_link(link: Link) -> bytes:
    """A link as data of an event: a line of JSON, the names of its events, their digests."""
    names = zlib.compress(_encode([each[:3] for each in link.entries]).encode(), 1)
    line = {
        "format": _FORMAT, "number": link.number, "after": link.after, "to": link.to, "events": len(link.entries),
        "previous": link.previous.hex(), "hash": link.hash.hex(), "linked_ms": link.linked_ms, "names": len(names),
    }  # fmt: skip
    return b"".join([_encode(line).encode(), b"\n", names, *(each.digest for each in link.entries)])


def read_link(data: bytes) -> Link:
    """A link from its data; whether its hash is right is for others to see."""
    try:
        line, _, rest = data.partition(b"\n")
        head: dict[str, Any] = json.loads(line)
        if head["format"] != _FORMAT:
            raise InvalidLink(f"a link has format {head['format']}: install a newer Headrace")
        names = json.loads(zlib.decompress(rest[: head["names"]]))
        digests = rest[head["names"] :]
        if len(digests) != len(names) * _DIGEST_BYTES or len(names) != head["events"]:
            raise ValueError("it has another length")
        parts = (digests[at : at + _DIGEST_BYTES] for at in range(0, len(digests), _DIGEST_BYTES))
        named = zip(names, parts, strict=True)
        entries = tuple(Entry(position, stream, version, digest) for (position, stream, version), digest in named)
        hashes = bytes.fromhex(head["previous"]), bytes.fromhex(head["hash"])
        return Link(head["number"], head["after"], head["to"], *hashes, head["linked_ms"], entries)
    except (ValueError, KeyError, TypeError, zlib.error) as error:
        raise InvalidLink(f"a link cannot be read ({error})") from None


# --- chaining


def read_everything(store: EventStore, after: int, to: int) -> Iterator[StoredEvent]:
    """All events, with what is left of those that were archived."""
    if isinstance(store, ErasableStore):
        return store.read_everything(after, to)
    return store.read(after=after, to=to)


def read_links(links: EventStore | None, after: int = 0) -> Iterator[Link]:
    """The links behind a number."""
    if links is not None:
        for event in links.read_stream(LINKS, after=after):
            yield read_link(event.data)


def newest_link(links: EventStore | None) -> Link | None:
    """The last one, if there is any."""
    for event in links.read_stream(LINKS, backward=True, limit=1) if links is not None else ():
        return read_link(event.data)
    return None


def open_links(store: EventStore, *, create: bool) -> EventStore | None:
    """The store of a store's links; None if there is none."""
    if not isinstance(store, ErasableStore):
        raise InvalidLink(f"{store} has no place for links beside it: use one of Headrace's own stores")
    return store.beside(LINKS, create=create)


def chain(store: EventStore, *, on_chained: OnChained | None = None) -> Mark | None:
    """Chain what is not chained yet; the newest link, None for a store in which nothing was ever appended."""
    links = open_links(store, create=True)
    assert links is not None
    try:
        while True:
            try:
                return _chain(store, links, on_chained)
            except Conflict:
                continue  # another has chained some of it meanwhile
    finally:
        links.close()


def _chain(store: EventStore, links: EventStore, on_chained: OnChained | None) -> Mark | None:
    last = newest_link(links)
    mark = last.mark if last is not None else None
    end = store.last_position()
    events = read_everything(store, mark.to if mark else 0, end)
    while (mark.to if mark else 0) < end:
        portion = list(islice(events, LINK_EVENTS))
        to = portion[-1].position if len(portion) == LINK_EVENTS else end
        made = make_link(mark, to, portion, now_ms())
        event = NewEvent(_TYPE, write_link(made))
        links.append([StreamAppend(LINKS, [event], made.number - 1)])
        mark = made.mark
        if on_chained is not None:
            on_chained(made)
    return mark
