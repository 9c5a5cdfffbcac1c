"""Hits as they come, for many who listen: one thread reads their topic, and each listener takes at its own pace.

What always holds: no listener holds up another or the thread; what is kept for the slowest has an upper bound, and who
falls behind it is told how many it missed; who comes back with the place that it had reached gets what came since, each
hit once. A place says of each partition the next offset: `0-17,1-5`.
"""

import asyncio
import json
import re
import threading
from collections import deque
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from headrace.client.address import Address
from headrace.client.cluster import Cluster
from headrace.client.connection import ConnectionSettings
from headrace.client.errors import ClientError, OffsetOutOfRange, TopicReplaced, UnknownTopic
from headrace.client.fetch import FetchOptions
from headrace.client.offsets import bounds
from headrace.client.reader import ReadRecord, read_records
from headrace.errors import HeadraceError
from headrace.model import TopicPartition
from headrace.searches.hits import SearchHit, read_hit
from headrace.serving.sent_events import HEARTBEAT, HEARTBEAT_S, encoded

MOST_KEPT: Final = 10_000  # hits, for those who are behind
MOST_KEPT_BYTES: Final = 64 * 1024 * 1024
_MOST_REPLAYED: Final = 100_000  # offsets of a partition, for who comes back
_AGAIN_S: Final = 0.5
_END_WITHIN_S: Final = 5.0
_LOOK_EVERY: Final = 25  # waits without news, before new partitions are looked for
_OPTIONS: Final = FetchOptions(max_wait_ms=200, committed=True)
_AT_ONCE: Final = FetchOptions(max_wait_ms=0, committed=True)
_PLACE: Final = re.compile(r"\d{1,9}-\d{1,18}(,\d{1,9}-\d{1,18})*")

Place = dict[int, int]


class InvalidPlace(HeadraceError):
    """A `Last-Event-ID` that is none of ours."""


def read_place(text: str) -> Place:
    """The place that an id says; raises `InvalidPlace`."""
    if not _PLACE.fullmatch(text):
        raise InvalidPlace(
            f"Last-Event-ID {text[:40]!r} is not a place: send the id of an event, such as 0-17, or none"
        )
    return {int(partition): int(offset) for partition, offset in (each.split("-") for each in text.split(","))}


def place_text(place: Mapping[int, int]) -> str:
    return ",".join(f"{partition}-{offset}" for partition, offset in sorted(place.items()))


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which hits a listener wants; None is any."""

    owner: str | None = None
    tag: str | None = None
    query: str | None = None

    def takes(self, hit: SearchHit) -> bool:
        return (
            (self.owner is None or hit.owner == self.owner)
            and (self.tag is None or self.tag in hit.tags)
            and (self.query is None or hit.query == self.query)
        )


class Kept(NamedTuple):
    """A hit, where it is in its topic, and its value as it was written."""

    partition: int
    offset: int
    hit: SearchHit
    value: bytes


def _kept(read: ReadRecord) -> Kept | None:
    value = bytes(read.record.value or b"")
    hit = read_hit(None, value)
    return None if hit is None else Kept(read.partition.partition, read.record.offset, hit, value)


@dataclass
class HitFeed:
    """Follows the topic of hits from the moment it is started."""

    bootstrap: Sequence[Address]
    topic: str
    most: int = MOST_KEPT
    most_bytes: int = MOST_KEPT_BYTES
    is_ended: bool = field(default=False, init=False)
    problem: str = field(default="", init=False)
    _ring: deque[Kept] = field(default_factory=deque, init=False)
    _bytes: int = field(default=0, init=False)
    _first: int = field(default=0, init=False)  # the number of the first hit that is kept
    _place: Place = field(default_factory=dict, init=False)
    _life: str = field(default="", init=False)  # the id of the topic that the place is in
    _is_ready: bool = field(default=False, init=False)
    # A signal may come while the main thread has it, and its handler ends the feed.
    _lock: threading.RLock = field(default_factory=threading.RLock, init=False)
    _listeners: dict[asyncio.Event, asyncio.AbstractEventLoop] = field(default_factory=dict, init=False)
    _stopping: threading.Event = field(default_factory=threading.Event, init=False)
    _thread: threading.Thread | None = field(default=None, init=False)

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="headrace-hits", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self.is_ended = True
        self._stopping.set()
        self._wake()

    def join(self) -> None:
        if self._thread is not None:
            self._thread.join(_END_WITHIN_S)

    # --- in the thread

    def _run(self) -> None:
        settings = ConnectionSettings(client_id="headrace-hits")
        while not self._stopping.is_set():
            try:
                with Cluster(self.bootstrap, settings) as cluster:
                    self._follow(cluster)
            except (UnknownTopic, TopicReplaced, OffsetOutOfRange):  # not there yet, or made again
                with self._lock:
                    self._is_ready = True
                self._wake()
            except ClientError as error:
                self.problem = str(error)
            self._stopping.wait(_AGAIN_S)

    def _follow(self, cluster: Cluster) -> None:
        topic = cluster.topic(self.topic, refresh=True)
        held = bounds(cluster, cluster.partitions(self.topic), committed=True)
        with self._lock:
            known = self._place if self._life == topic.id_text else {}
            # What was made after we began to look is new from its first record on.
            begins = {
                where: min(max(known.get(where.partition, 0), bound.start), bound.end) if self._is_ready else bound.end
                for where, bound in held.items()
            }
            self._life = topic.id_text
            self._place = {where.partition: at for where, at in begins.items()}
            self._is_ready = True
        self.problem = ""
        self._wake()
        quiet = 0
        for records in read_records(cluster, begins, options=_OPTIONS, ids={self.topic: topic.id_text}):
            if self._stopping.is_set():
                return
            quiet = 0 if records else quiet + 1
            if records:
                self._take(records)
            elif quiet % _LOOK_EVERY == 0 and len(cluster.topic(self.topic, refresh=True).partitions) > len(begins):
                return

    def _take(self, records: Sequence[ReadRecord]) -> None:
        with self._lock:
            for read in records:
                self._place[read.partition.partition] = read.record.offset + 1
                kept = _kept(read)
                if kept is not None:
                    self._ring.append(kept)
                    self._bytes += len(kept.value)
            while self._ring and (len(self._ring) > self.most or self._bytes > self.most_bytes):
                self._bytes -= len(self._ring.popleft().value)
                self._first += 1
        self._wake()

    def _wake(self) -> None:
        with self._lock:
            for event, loop in self._listeners.items():
                with suppress(RuntimeError):  # its loop has ended
                    loop.call_soon_threadsafe(event.set)

    # --- for listeners

    def now(self) -> tuple[int, Place] | None:
        """The number that the next hit will have, and the place before it; None before the topic was looked at."""
        with self._lock:
            return (self._first + len(self._ring), dict(self._place)) if self._is_ready else None

    def since(self, number: int, most: int) -> tuple[int, list[Kept]]:
        """Some of the hits from a number on, and the number of the first of them: a later one if some are gone."""
        with self._lock:
            first = max(number, self._first)
            begin = first - self._first
            return first, [self._ring[at] for at in range(begin, min(begin + most, len(self._ring)))]

    async def news(self, event: asyncio.Event, timeout_s: float) -> bool:
        try:
            async with asyncio.timeout(timeout_s):
                await event.wait()
        except TimeoutError:
            return False
        event.clear()
        return True

    def enter(self, event: asyncio.Event) -> None:
        with self._lock:
            self._listeners[event] = asyncio.get_running_loop()

    def leave(self, event: asyncio.Event) -> None:
        with self._lock:
            self._listeners.pop(event, None)


_PAGE: Final = 200  # hits that are taken at a time for one listener


async def hit_events(
    feed: HitFeed, pool: ThreadPoolExecutor, wanted: Wanted, last: Place | None
) -> AsyncGenerator[bytes, None]:
    """The events for one listener: `live` once it is up to date, a `hit` each, `missed` where some are gone."""
    event = asyncio.Event()
    feed.enter(event)
    try:
        while (begun := feed.now()) is None:
            if not await feed.news(event, HEARTBEAT_S):
                yield HEARTBEAT
            if feed.is_ended:
                return
        number, place = begun
        reached = dict(place)
        if last is not None:
            async for sent, at in _replayed(feed, pool, wanted, last, place):
                reached.update({part: offset for part, offset in at.items() if offset > place.get(part, 0)})
                if sent:
                    yield sent
        yield encoded("live", {"topic": feed.topic}, place_text(reached))
        while not feed.is_ended:
            first, found = feed.since(number, _PAGE)
            if first > number:
                yield encoded("missed", {"missed": first - number})
            number = first + len(found)
            for each in found:
                if each.offset < reached.get(each.partition, 0):
                    continue
                reached[each.partition] = each.offset + 1
                if wanted.takes(each.hit):
                    yield encoded("hit", json.loads(each.value), place_text(reached))
            if not found and not await feed.news(event, HEARTBEAT_S):
                # An id of its own: who comes back does not read what it did not want once more.
                yield f"id: {place_text(reached)}\n".encode() + HEARTBEAT
    finally:
        feed.leave(event)


async def _replayed(
    feed: HitFeed, pool: ThreadPoolExecutor, wanted: Wanted, last: Place, until: Place
) -> AsyncGenerator[tuple[bytes, Place], None]:
    """What came between a place and another, from the topic itself: events, each with the place behind it."""
    loop = asyncio.get_running_loop()
    pages = _pages(feed, last, until)
    reached: Place = {}
    try:
        while (page := await loop.run_in_executor(pool, next, pages, None)) is not None:
            if isinstance(page, _Beginning):
                reached = dict(page.place)
                yield encoded("missed", {"missed": page.missed}) if page.missed else b"", reached
                continue
            for each in page:
                reached[each.partition] = each.offset + 1
                if wanted.takes(each.hit):
                    yield encoded("hit", json.loads(each.value), place_text({**until, **reached})), reached
    except ClientError as error:
        yield encoded("problem", {"error": str(error)}), reached
    finally:
        with suppress(RuntimeError):  # the server has ended
            pool.submit(pages.close)


class _Beginning(NamedTuple):
    """Where a replay begins, and how many hits before it are gone, or too many."""

    place: Place
    missed: int


def _pages(feed: HitFeed, last: Place, until: Place) -> Generator[_Beginning | list[Kept], None, None]:
    with Cluster(feed.bootstrap, ConnectionSettings(client_id="headrace-hits")) as cluster:
        ends = {TopicPartition(feed.topic, part): at for part, at in until.items()}
        held = bounds(cluster, ends, committed=True) if ends else {}
        place, missed = {}, 0
        for where, end in ends.items():
            asked = last.get(where.partition, held[where].start)
            if asked > held[where].end:  # of another topic, which had this name before
                asked = held[where].start
            place[where.partition] = max(asked, held[where].start, end - _MOST_REPLAYED)
            missed += place[where.partition] - asked
        yield _Beginning(place, missed)
        starts = {where: place[where.partition] for where, end in ends.items() if place[where.partition] < end}
        if starts:
            until_here = {where: ends[where] for where in starts}
            for records in read_records(cluster, starts, until=until_here, options=_AT_ONCE):
                yield [kept for read in records if (kept := _kept(read)) is not None]
