"""A topic as it goes on, for many who listen: one thread reads it, and each listener takes at its own pace.

What always holds: no listener holds up another or the thread; what is kept for those who are behind has an upper bound.
Who falls out of it goes on as it chose (`Slow`): further on, told how many records it missed; from the log, missing
none; or not at all. Who comes back with the place that it had reached gets what came since, each record once. A place
says of each partition the next offset, and of which topic: `0-17,1-5~ID`. One that was deleted and made again under its
name is another, and new from its first record on.
"""

import asyncio
import re
import threading
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Generic, NamedTuple, TypeVar

from headrace.client.address import Address
from headrace.client.cluster import Cluster
from headrace.client.connection import ConnectionSettings
from headrace.client.errors import ClientError, OffsetOutOfRange, TopicReplaced, UnknownPartition, UnknownTopic
from headrace.client.fetch import FetchOptions
from headrace.client.offsets import bounds
from headrace.client.reader import ReadRecord, read_records
from headrace.errors import HeadraceError
from headrace.model import TopicPartition
from headrace.serving.event_lines import HEARTBEAT, HEARTBEAT_S, encoded, encoded_text

T = TypeVar("T")

MOST_KEPT: Final = 10_000  # records, for those who are behind
MOST_KEPT_BYTES: Final = 64 * 1024 * 1024
_AGAIN_S: Final = 0.5
_END_WITHIN_S: Final = 5.0
_LOOK_EVERY: Final = 25  # waits without news, before new partitions are looked for
_OPTIONS: Final = FetchOptions(max_wait_ms=200, committed=True)
_AT_ONCE: Final = FetchOptions(max_wait_ms=0, max_bytes=1024 * 1024, partition_max_bytes=256 * 1024, committed=True)
_PLACE: Final = re.compile(r"(\d{1,9}-\d{1,18}(?:,\d{1,9}-\d{1,18})*)(?:~([\w-]{1,40}))?", re.ASCII)

# --- places

Offsets = dict[int, int]  # by partition the next one


class Place(NamedTuple):
    """How far somebody has come in a topic."""

    offsets: Mapping[int, int]
    topic_id: str = ""
    """Empty where the broker is too old for ids, or where who names the place does not know it."""


class InvalidPlace(HeadraceError):
    """A text that is no place, such as a `Last-Event-ID` that is none of ours."""


def read_place(text: str, what: str = "Last-Event-ID") -> Place:
    """The place that a text says; raises `InvalidPlace`."""
    found = _PLACE.fullmatch(text)
    if found is None:
        raise InvalidPlace(f"{what} {text[:40]!r} is not a place: send the id of an event, such as 0-17, or none")
    pairs = (each.split("-") for each in found[1].split(","))
    return Place({int(partition): int(offset) for partition, offset in pairs}, found[2] or "")


def place_text(place: Place) -> str:
    offsets = ",".join(f"{partition}-{offset}" for partition, offset in sorted(place.offsets.items()))
    return f"{offsets}~{place.topic_id}" if offsets and place.topic_id else offsets


# --- what is kept


class Kept(NamedTuple, Generic[T]):
    """What a record is to those who listen, and where it is; the id tells topics of one name apart."""

    partition: int
    offset: int
    item: T
    size_bytes: int
    topic_id: str


@dataclass
class RecordFeed(Generic[T]):
    """Follows a topic from the moment it is started. `read` makes of a record what listeners get, and how large that is
    in memory; None is left out."""

    bootstrap: Sequence[Address]
    topic: str
    read: Callable[[ReadRecord], tuple[T, int] | None]
    most: int = MOST_KEPT
    most_bytes: int = MOST_KEPT_BYTES
    is_ended: bool = field(default=False, init=False)
    problem: str = field(default="", init=False)
    _ring: deque[Kept[T]] = field(default_factory=deque, init=False)
    _bytes: int = field(default=0, init=False)
    _first: int = field(default=0, init=False)  # the number of the first record that is kept
    _begin: Offsets = field(default_factory=dict, init=False)  # those before it
    _offsets: Offsets = field(default_factory=dict, init=False)
    _topic_id: str | None = field(default=None, init=False)  # of the topic that they are in
    _is_ready: bool = field(default=False, init=False)
    # A signal may come while the main thread has it, and its handler ends the feed.
    _lock: threading.RLock = field(default_factory=threading.RLock, init=False)
    _listeners: dict[asyncio.Event, asyncio.AbstractEventLoop] = field(default_factory=dict, init=False)
    _stopping: threading.Event = field(default_factory=threading.Event, init=False)
    _thread: threading.Thread | None = field(default=None, init=False)

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name=f"headrace-feed-{self.topic}", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self.is_ended = True
        self._stopping.set()
        self._wake()

    def join(self) -> None:
        if self._thread is not None:
            self._thread.join(_END_WITHIN_S)

    @property
    def listeners(self) -> int:
        return len(self._listeners)

    # --- in the thread

    def _run(self) -> None:
        settings = ConnectionSettings(client_id="headrace-feed")
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
            is_same = self._topic_id == topic.id_text
            known = self._offsets if is_same else {}
            # What was made after we began to look is new from its first record on.
            begins = {
                where: min(max(known.get(where.partition, 0), bound.start), bound.end) if self._is_ready else bound.end
                for where, bound in held.items()
            }
            gone = sum(max(at - known.get(where.partition, at), 0) for where, at in begins.items())
            self._offsets = {where.partition: at for where, at in begins.items()}
            if not is_same or gone:
                # Another topic, or one that gave records up while we were away: whoever listens counts them as missed.
                self._topic_id = topic.id_text
                self._begin = dict(self._offsets)
                self._first += len(self._ring) + gone
                self._ring.clear()
                self._bytes = 0
            else:
                self._begin = {**self._offsets, **self._begin}
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
        found = [(read, self.read(read)) for read in records]
        assert self._topic_id is not None
        with self._lock:
            for read, made in found:
                partition, offset = read.partition.partition, read.record.offset
                self._offsets[partition] = offset + 1
                if made is not None:
                    self._ring.append(Kept(partition, offset, *made, self._topic_id))
                    self._bytes += made[1]
            while self._ring and (len(self._ring) > self.most or self._bytes > self.most_bytes):
                gone = self._ring.popleft()
                self._bytes -= gone.size_bytes
                self._begin[gone.partition] = gone.offset + 1
                self._first += 1
        self._wake()

    def _wake(self) -> None:
        with self._lock:
            loops = set(self._listeners.values())
        for loop in loops:
            with suppress(RuntimeError):  # it has ended
                loop.call_soon_threadsafe(self._wake_all, loop)

    def _wake_all(self, loop: asyncio.AbstractEventLoop) -> None:
        with self._lock:
            for event, its_loop in self._listeners.items():
                if its_loop is loop:
                    event.set()

    # --- for listeners

    def now(self) -> tuple[int, Place] | None:
        """The number that the next record will have, and the place before it; None before the topic was looked at."""
        with self._lock:
            place = Place(dict(self._offsets), self._topic_id or "")
            return (self._first + len(self._ring), place) if self._is_ready else None

    def kept_from(self) -> tuple[int, Offsets]:
        """The number of the first record that is kept, and the offsets before it."""
        with self._lock:
            return self._first, dict(self._begin)

    def since(self, number: int, most: int, most_bytes: int) -> tuple[int, list[Kept[T]]]:
        """Some of the records from a number on, at least one if there is one, and the number of the first of them: a
        later one if some are gone."""
        with self._lock:
            first = max(number, self._first)
            begin = first - self._first
            found: list[Kept[T]] = []
            size = 0
            for at in range(begin, min(begin + most, len(self._ring))):
                found.append(self._ring[at])
                size += found[-1].size_bytes
                if size >= most_bytes:
                    break
            return first, found

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


# --- a listener


class Slow(StrEnum):
    """What becomes of a listener who is so far behind that records are not kept for it any more."""

    SKIP = "skip"  # it goes on with what is kept
    DROP = "drop"  # it is let go
    REPLAY = "replay"  # it reads on from the log


class Found(NamedTuple, Generic[T]):
    """A record that a listener wants, and the place behind it."""

    kept: Kept[T]
    place: str


class Live(NamedTuple):
    """A listener is where the server is."""

    place: str


class Missed(NamedTuple):
    """So many records are gone, or were skipped."""

    records: int
    place: str


class Dropped(NamedTuple):
    """A listener is let go, so many records behind."""

    behind: int
    place: str


class Quiet(NamedTuple):
    """Nothing came for a while."""

    place: str


class Problem(NamedTuple):
    """Why nothing comes just now."""

    reason: str


Event = Found[T] | Live | Missed | Dropped | Quiet | Problem

_PAGE: Final = 200  # records that are taken at a time for one listener
_PAGE_BYTES: Final = 256 * 1024
_TURN_S: Final = 1.0  # of who reads a log again, while others wait to


class Replays:
    """The threads that read logs again for those who come back; not all of them at once."""

    def __init__(self, threads: int = 4, at_once: int = 16) -> None:
        self.pool = ThreadPoolExecutor(threads, "headrace-replay")
        self.turns = asyncio.Semaphore(at_once)
        self.waiting = 0

    def close(self) -> None:
        self.pool.shutdown(wait=False, cancel_futures=True)

    async def begin(self, timeout_s: float) -> bool:
        """Wait for a turn, or so long."""
        self.waiting += 1
        try:
            async with asyncio.timeout(timeout_s):
                await self.turns.acquire()
        except TimeoutError:
            return False
        finally:
            self.waiting -= 1
        return True


class _Turn(Generic[T]):
    """One who reads a log again. After a while the turn is another's, if one waits: also of somebody who has a page and
    does not take it, for that can last for ever."""

    def __init__(self, replays: Replays, pages: Generator[T, None, None]) -> None:
        """It was begun, and ends with `end`."""
        self._replays = replays
        self._pages = pages
        self._loop = asyncio.get_running_loop()
        self._is_reading = self._is_due = self.is_over = False
        self._timer = self._loop.call_later(_TURN_S, self._come_due)

    async def next(self) -> T | None:
        """A page; None behind the last one."""
        self._is_reading = True
        try:
            return await self._loop.run_in_executor(self._replays.pool, next, self._pages, None)
        finally:
            self._is_reading = False
            if self._is_due:
                self._give_way()

    def _come_due(self) -> None:
        self._is_due = True
        if not self._is_reading:
            self._give_way()

    def _give_way(self) -> None:
        if self._replays.waiting:
            self.end()
        elif not self.is_over:
            self._is_due = False
            self._timer = self._loop.call_later(_TURN_S, self._come_due)

    def end(self) -> None:
        if not self.is_over:
            self.is_over = True
            self._timer.cancel()
            self._replays.turns.release()
            with suppress(RuntimeError):  # the server has ended
                self._replays.pool.submit(self._pages.close)


def sent_event(event: Event[T], topic: str, kind: str, shown: Callable[[Kept[T]], str]) -> bytes:
    """An event as a server sends it to a browser; a record is of this kind, and shown as this text of JSON."""
    match event:
        case Found(kept, place):
            return encoded_text(kind, shown(kept), place)
        case Live(place):
            return encoded("live", {"topic": topic}, place)
        case Missed(records, place):
            return encoded("missed", {"missed": records}, place)
        case Dropped(behind, place):
            return encoded("dropped", {"behind": behind}, place)
        case Quiet(place):
            return (f"id: {place}\n".encode() if place else b"") + HEARTBEAT
        case Problem(reason):
            return encoded("problem", {"error": reason})


class Listener(Generic[T]):
    """One who listens to a feed: from a place on, or from now."""

    def __init__(
        self,
        feed: RecordFeed[T],
        replays: Replays,
        takes: Callable[[Kept[T]], bool],
        last: Place | None,
        *,
        slow: Slow = Slow.SKIP,
        most_replayed: int | None = None,
        heartbeat_s: float = HEARTBEAT_S,
    ) -> None:
        """`most_replayed` is how many offsets of a partition are read again at most."""
        self._feed = feed
        self._replays = replays
        self._takes = takes
        self._last = last
        self._slow = slow
        self._most_replayed = most_replayed
        self._heartbeat_s = heartbeat_s
        self._event = asyncio.Event()
        self._reached: Offsets = {}
        self._topic_id = ""
        self.is_live = False  # whether it was where the server is, once
        self._spoke_at = time.monotonic()

    async def events(self) -> AsyncGenerator[list[Event[T]], None]:
        """What there is to say, some of it at a time, until the feed ends or the listener is dropped."""
        self._feed.enter(self._event)
        try:
            async for events in self._events():
                self._spoke_at = time.monotonic()
                yield events
        finally:
            self._feed.leave(self._event)

    @property
    def place(self) -> str:
        """The place behind all that was handed out."""
        return place_text(Place(self._reached, self._topic_id))

    def _is_quiet(self) -> bool:
        return time.monotonic() - self._spoke_at >= self._heartbeat_s

    async def _events(self) -> AsyncGenerator[list[Event[T]], None]:
        feed = self._feed
        while (begun := feed.now()) is None:
            if not await feed.news(self._event, self._heartbeat_s):
                yield [Problem(feed.problem) if feed.problem else Quiet("")]
            if feed.is_ended:
                return
        number, (until, self._topic_id) = begun
        self._reached = dict(until)
        if self._last is not None:
            is_other = bool(self._last.topic_id) and self._last.topic_id != self._topic_id
            last = {} if is_other else self._last.offsets
            first, begin = feed.kept_from()
            if until and all(begin[part] <= last.get(part, -1) <= at for part, at in until.items()):
                number = first  # all that came since is kept
                self._reached = {part: last[part] for part in until}
            else:
                self._reached = dict(last)
                async for events in self._replayed(until, is_first=True):
                    yield events
        up_to = begun[0]
        while not feed.is_ended:
            if not self.is_live and number >= up_to:
                self.is_live = True
                yield [Live(self.place)]
            first, found = feed.since(number, _PAGE, _PAGE_BYTES)
            if first > number:
                count = first - number
                if self._slow is Slow.DROP:
                    yield [Dropped(count, self.place)]
                    return
                now = feed.now()
                if self._slow is Slow.REPLAY and now is not None and now[1].topic_id == self._topic_id:
                    number, (until, _) = now
                    async for events in self._replayed(until):
                        yield events
                    continue
                yield [Missed(count, self.place)]
            number = first + len(found)
            events = []
            for each in found:
                if each.topic_id != self._topic_id:  # made again under its name
                    self._topic_id, self._reached = each.topic_id, {}
                if each.offset < self._reached.get(each.partition, 0):
                    continue
                self._reached[each.partition] = each.offset + 1
                if self._takes(each):
                    events.append(Found(each, self.place))
            if events:
                yield events
            elif self._is_quiet() or (not found and not await feed.news(self._event, self._heartbeat_s)):
                # A place of its own: who comes back does not read what it did not want once more.
                yield [Quiet(self.place)]
            elif found:
                await asyncio.sleep(0)  # the others have their turn, however much of it this one does not want

    async def _replayed(
        self, until: Mapping[int, int], *, is_first: bool = False
    ) -> AsyncGenerator[list[Event[T]], None]:
        """What came between the place that is reached and another, from the topic itself, however long it is away."""
        while not self._feed.is_ended:
            while not await self._replays.begin(self._heartbeat_s):
                yield [Quiet(self.place)]
            most = self._most_replayed if is_first else None
            turn = _Turn(self._replays, _pages(self._feed, self._reached, until, self._topic_id, most))
            problem = ""
            try:
                while (page := await turn.next()) is not None:
                    events: list[Event[T]] = []
                    if isinstance(page, _Beginning):
                        self._reached = dict(page.offsets)
                        if page.missed:
                            events = [Missed(page.missed, self.place)]
                    else:
                        for each in page:
                            self._reached[each.partition] = each.offset + 1
                            if self._takes(each):
                                events.append(Found(each, self.place))
                    if events or self._is_quiet():
                        yield events or [Quiet(self.place)]
                    if turn.is_over:
                        break
                else:
                    for part, at in until.items():  # also behind what nobody sees
                        self._reached[part] = max(at, self._reached.get(part, 0))
                    return
            except (UnknownTopic, UnknownPartition, TopicReplaced):  # there is nothing to come back to
                self._reached = dict(until)
                return
            except ClientError as error:
                problem = str(error)
            finally:
                turn.end()
            if problem:
                yield [Problem(problem)]
                await asyncio.sleep(_AGAIN_S)


class _Beginning(NamedTuple):
    """Where a replay begins, and how many records before it are gone, or too many."""

    offsets: Mapping[int, int]
    missed: int


def _pages(
    feed: RecordFeed[T], last: Mapping[int, int], until: Mapping[int, int], topic_id: str, most: int | None
) -> Generator[_Beginning | list[Kept[T]], None, None]:
    """Of the topic with that id alone, where it is known: another one's records would be waited for up to this one's
    end."""
    with Cluster(feed.bootstrap, ConnectionSettings(client_id="headrace-feed")) as cluster:
        ends = {TopicPartition(feed.topic, part): at for part, at in until.items()}
        held = bounds(cluster, ends, committed=True) if ends else {}
        ends = {where: min(end, held[where].end) for where, end in ends.items()}
        offsets, missed = {}, 0
        for where, end in ends.items():
            asked = last.get(where.partition, held[where].start)
            if asked > held[where].end:  # of another topic, which had this name before
                asked = held[where].start
            offsets[where.partition] = max(asked, held[where].start, 0 if most is None else end - most)
            missed += offsets[where.partition] - asked
        yield _Beginning(offsets, missed)
        starts = {where: offsets[where.partition] for where, end in ends.items() if offsets[where.partition] < end}
        if starts:
            until_here = {where: ends[where] for where in starts}
            ids = {feed.topic: topic_id} if topic_id else None
            for records in read_records(cluster, starts, until=until_here, options=_AT_ONCE, ids=ids):
                yield [
                    Kept(read.partition.partition, read.record.offset, *made, topic_id)
                    for read in records
                    if (made := feed.read(read)) is not None
                ]
