"""Which record of an endpoint is sent next, and how far all of them are. Pure: time comes in, requests are others'.

Records stand in lanes, one behind the other; in each lane one is under way at a time. With the order `all` there is one
lane, with `key` one for each key, with `none` one for each record.

What always holds: a lane's records are sent in the order in which they came; what is under way, what waits and what was
sent ahead of a record that was not taken are bounded together; and the place of a partition is behind every record that
is done, and behind no other.
"""

import heapq
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from headrace.gateways.webhook_sender.endpoint import Order
from headrace.retry import Backoff, spread

MOST_OPEN: Final = 1_000
MOST_BYTES: Final = 4 * 1024 * 1024
_MOST_TRIES_KEPT: Final = 100
_TOLD_PAUSE_S: Final = 24 * 3600.0  # longer than that no receiver's Retry-After is believed


class Try(NamedTuple):
    """What is known of a record that was not taken yet."""

    attempts: int
    first_ms: int


@dataclass(slots=True, eq=False)
class Item:
    """A record that is to be sent; `source` is empty for those of the topic as it goes on, else who wants it again."""

    source: str
    partition: int
    offset: int
    lane: bytes | None
    size: int
    content: Any
    attempts: int = 0
    first_ms: int = 0
    number: int = 0


class Place(NamedTuple):
    """How far a partition is: the next offset, what was sent ahead of it, and what was tried in vain."""

    offset: int
    ahead: tuple[int, ...] = ()
    tries: Mapping[int, Try] = {}


@dataclass(slots=True)
class Rate:
    """So many a second, and as many at once as a second has, at least one."""

    per_s: float
    _room: float = 0.0
    _at_ms: int = 0
    _is_new: bool = True

    def wait_ms(self, now_ms: int) -> int:
        """How long until the next one may be; 0 is now."""
        if not self.per_s:
            return 0
        most = max(self.per_s, 1.0)
        if self._is_new:
            self._room, self._is_new = most, False
        elif now_ms > self._at_ms:
            self._room = min(most, self._room + (now_ms - self._at_ms) / 1000 * self.per_s)
        self._at_ms = now_ms
        return 0 if self._room >= 1 else max(1, int((1 - self._room) / self.per_s * 1000) + 1)

    def take(self) -> None:
        if self.per_s:
            self._room -= 1


@dataclass(slots=True)
class _Tally:
    """What of one partition is open and what is done ahead."""

    reached: int
    open: dict[int, Item] = field(default_factory=dict)  # in the order of offsets
    ahead: set[int] = field(default_factory=set)

    @property
    def low(self) -> int:
        return next(iter(self.open), self.reached)

    def finish(self, offset: int) -> None:
        was_low = self.low
        del self.open[offset]
        if offset == was_low:
            low = self.low
            self.ahead = {each for each in self.ahead if each >= low} if self.ahead else self.ahead
        else:
            self.ahead.add(offset)


@dataclass(slots=True)
class Lanes:
    order: Order
    concurrency: int
    rate: Rate
    backoff: Backoff
    give_up_ms: int
    most_open: int = MOST_OPEN
    most_bytes: int = MOST_BYTES
    running: int = 0
    held_until_ms: int = 0
    _tallies: dict[tuple[str, int], _Tally] = field(default_factory=dict)
    _lanes: dict[object, deque[Item]] = field(default_factory=dict)
    _ready: deque[object] = field(default_factory=deque)
    _paused: list[tuple[int, int, object]] = field(default_factory=list)
    _open: int = 0
    _bytes: int = 0
    _numbers: int = 0
    _seen_ms: int = 0

    # --- records come

    def begin(self, source: str, partition: int, offset: int, ahead: Iterable[int] = ()) -> None:
        """A partition is read from here on; those ahead were sent already."""
        self._tallies[source, partition] = _Tally(offset, {}, {each for each in ahead if each >= offset})

    @property
    def has_room(self) -> bool:
        ahead = sum(len(tally.ahead) for tally in self._tallies.values())
        return self._open + ahead < self.most_open and self._bytes < self.most_bytes

    @property
    def open(self) -> int:
        return self._open

    def add(self, item: Item) -> None:
        """The next record of its partition that is to be sent."""
        tally = self._tallies[item.source, item.partition]
        tally.reached = item.offset + 1
        if item.offset in tally.ahead:
            return
        self._numbers += 1
        item.number = self._numbers
        tally.open[item.offset] = item
        self._open += 1
        self._bytes += item.size
        lane = self._lane_of(item)
        waiting = self._lanes.setdefault(lane, deque())
        waiting.append(item)
        if len(waiting) == 1:
            self._ready.append(lane)

    def skip(self, source: str, partition: int, next_offset: int) -> None:
        """Nothing that is to be sent stands before this offset, but for what was added."""
        tally = self._tallies[source, partition]
        tally.reached = max(tally.reached, next_offset)

    def _lane_of(self, item: Item) -> object:
        if self.order is Order.ALL:
            return ""
        if self.order is Order.KEY and item.lane is not None:
            return item.lane
        return item.number

    # --- and go

    def take(self, now_ms: int) -> Item | None:
        """The next one to be sent now, which is under way from here on; None if there is none just now."""
        back_ms, self._seen_ms = self._seen_ms - now_ms, now_ms
        if back_ms > 0:  # the clock was put back: whoever waits does not wait for so much longer
            self._paused = [(due_ms - back_ms, number, lane) for due_ms, number, lane in self._paused]
            self.held_until_ms -= back_ms
        while self._paused and self._paused[0][0] <= now_ms:
            self._ready.append(heapq.heappop(self._paused)[2])
        if not self._ready or self.running >= self.concurrency or now_ms < self.held_until_ms:
            return None
        if self.rate.wait_ms(now_ms):
            return None
        self.rate.take()
        self.running += 1
        item = self._lanes[self._ready.popleft()][0]
        if not item.attempts:
            item.first_ms = now_ms
        return item

    def wait_ms(self, now_ms: int) -> int | None:
        """How long until `take` may have something, if nothing comes and nothing ends; None: for ever."""
        if self.running >= self.concurrency:
            return None
        if self._ready:
            return max(self.held_until_ms - now_ms, self.rate.wait_ms(now_ms), 0)
        if self._paused:
            return max(self._paused[0][0], self.held_until_ms) - now_ms
        return None

    def done(self, item: Item) -> None:
        """It was taken, or nobody will send it again."""
        self.running -= 1
        self._leave(item)

    def failed(self, item: Item, now_ms: int, chance: float, told_pause_s: float = 0.0) -> bool:
        """It was not taken: whether it is sent again. If not, it is over, and whoever asks keeps it."""
        self.running -= 1
        item.attempts += 1
        pause_s = spread(self.backoff.pause_s(item.attempts), chance)
        if told_pause_s > 0:  # the receiver said when: to all that goes there
            pause_s = max(pause_s, min(told_pause_s, _TOLD_PAUSE_S))
            self.held_until_ms = max(self.held_until_ms, now_ms + int(pause_s * 1000))
        if now_ms - item.first_ms >= self.give_up_ms:
            self._leave(item)
            return False
        due_ms = min(now_ms + int(pause_s * 1000), item.first_ms + self.give_up_ms)
        heapq.heappush(self._paused, (max(due_ms, now_ms + 1), item.number, self._lane_of(item)))
        return True

    def _leave(self, item: Item) -> None:
        lane = self._lane_of(item)
        waiting = self._lanes[lane]
        waiting.popleft()
        if waiting:
            self._ready.append(lane)
        else:
            del self._lanes[lane]
        self._tallies[item.source, item.partition].finish(item.offset)
        self._open -= 1
        self._bytes -= item.size

    # --- how far

    def place(self, partition: int) -> Place:
        """Of the topic as it goes on."""
        tally = self._tallies["", partition]
        tries = {}
        for offset, item in tally.open.items():
            if item.attempts:
                tries[offset] = Try(item.attempts, item.first_ms)
                if len(tries) == _MOST_TRIES_KEPT:
                    break
        low = tally.low
        return Place(low, tuple(sorted(each for each in tally.ahead if each > low)), tries)

    def reached(self, partition: int, source: str = "") -> int | None:
        """What is to be read next; None of what was not begun."""
        tally = self._tallies.get((source, partition))
        return None if tally is None else tally.reached

    def partitions(self) -> list[int]:
        return [partition for source, partition in self._tallies if not source]

    def is_over(self, source: str) -> bool:
        """Whether nothing of it is open any more."""
        return not any(tally.open for (whose, _), tally in self._tallies.items() if whose == source)

    def end(self, source: str) -> None:
        for key in [key for key in self._tallies if key[0] == source]:
            del self._tallies[key]
