"""What all clients together make the broker hold: bytes of requests that are not whole yet, and requests under way.

Each connection has a `Share` of the one `Load`. Small requests are served where they are received and need none of
this; it is for what is kept between two reads of a socket.

What always holds:
- the bytes that are held are at most `max_bytes`, one request of the largest size, and `FLOOR_BYTES` a connection;
- whoever may hold no more is not read from, and is woken when there is room. The one that has held longest may always
  go on, so somebody does; and if it does not, it is dropped as soon as others wait for it: half a request, and then
  silence, keeps nobody waiting for long;
- with more than `max_under_way` requests under way in all, each connection has one at a time, as with Kafka;
- requests that take longer than a few turns are few at a time, the smallest first: each may have become many objects.
"""

from collections.abc import Callable
from heapq import heappop, heappush
from time import monotonic
from typing import Final, Protocol

FLOOR_BYTES: Final = 16 * 1024  # what a connection may always hold
LARGE_AT_ONCE: Final = 4  # requests that take longer than a few turns
LARGE_TURNS: Final = 10  # so many
BEGUN_AT_ONCE: Final = 64  # that were begun, and took longer than their first turn
LARGE_BYTES: Final = 16 * 1024
_LOOK_S: Final = 0.25
_FREED_AT_ONCE_BYTES: Final = 1024 * 1024


class Owner(Protocol):
    """Whose share it is."""

    def rest(self) -> None:
        """Let go of what nothing is in."""

    def wake(self) -> None:
        """Try again to read."""

    def give_way(self, now_s: float, since_s: float) -> None:
        """Others wait for the memory that is held since then: give up, if that is the client's own doing."""


class _Nobody:
    """Whose share it is once its owner has left."""

    def rest(self) -> None: ...
    def wake(self) -> None: ...
    def give_way(self, now_s: float, since_s: float) -> None: ...


_NOBODY: Final = _Nobody()


class Load:
    """Of one broker, on its event loop's thread."""

    def __init__(
        self,
        max_bytes: int,
        max_under_way: int,
        call_later: Callable[[float, Callable[[], None]], object] = lambda _, __: None,
        now_s: Callable[[], float] = monotonic,
    ) -> None:
        """`call_later` has the ones that wait looked after; `max_bytes` below 0 is no limit, as in Kafka."""
        self.max_bytes = max_bytes
        self.max_under_way = max_under_way
        self.under_way = 0  # counted by the channels themselves: twice a request a call would cost more than it does
        self.held_bytes = 0
        self.is_tight = False  # more is held than ought to be; looked at by every read
        self.now_s = now_s
        self._call_later = call_later
        self._holders: dict[Share, None] = {}  # in the order in which they began to
        self._waiting: dict[Share, None] = {}
        self._is_watching = False
        self.begun: set[Owner] = set()  # whose request took longer than its first turn, and is not large yet
        self._large = 0
        self._parked: list[tuple[int, int, Callable[[], None]]] = []  # a heap: the smallest goes first
        self._parked_ever = 0

    # --- bytes

    def has_room(self, more: int) -> bool:
        return self.max_bytes < 0 or self.held_bytes + more <= self.max_bytes

    def may_hold(self, share: "Share", more: int) -> bool:
        if self.has_room(more):
            return True
        if not self._waiting:
            self._release_unused()
        return self.has_room(more) or next(iter(self._holders), share) is share

    def changed(self, share: "Share", more: int) -> None:
        """A share holds so much more than before, or less."""
        self.held_bytes += more
        self.is_tight = 0 <= self.max_bytes < self.held_bytes
        if share.total_bytes:
            self._holders.setdefault(share)
        else:
            self._holders.pop(share, None)
        if more < 0 and self._waiting:
            self._wake()
        elif self.is_tight:
            self._watch()

    def wait(self, share: "Share") -> None:
        self._waiting[share] = None
        self._watch()

    def leave(self, share: "Share") -> None:
        self._waiting.pop(share, None)
        share.hold(0)
        share.hold_unsent(0)

    def _release_unused(self) -> None:
        for share in tuple(self._holders):
            share.owner.rest()

    def _wake(self) -> None:
        """Have all try again, the first first; those who may still not hold more wait again."""
        waiting, self._waiting = self._waiting, {}
        for share in waiting:
            share.owner.wake()

    def _watch(self, after_s: float = _LOOK_S) -> None:
        if not self._is_watching:
            self._is_watching = True
            self._call_later(after_s, self._look_after)

    def _look_after(self) -> None:
        """While anybody waits: have those give way that have held longest, until there is room for large requests."""
        self._is_watching = False
        if not self._waiting and not self.is_tight:
            return
        now_s = self.now_s()
        for share in tuple(self._holders):
            before = self.held_bytes
            if before < self.max_bytes // 2:
                break
            share.owner.give_way(now_s, share.began_s)
            if before - self.held_bytes > _FREED_AT_ONCE_BYTES:  # that took a while
                self._watch(0)
                break
        self._wake()
        self._watch()

    # --- requests

    @property
    def is_crowded(self) -> bool:
        """Whether so many requests are under way in all that a connection has one at a time."""
        return self.under_way >= self.max_under_way

    def parks(self, size: int) -> bool:
        """Whether a request is not even to be begun: it is large, and others wait; or very many do."""
        is_crowded = len(self.begun) + len(self._parked) >= BEGUN_AT_ONCE
        return is_crowded or (size > LARGE_BYTES and bool(self._parked))

    def enter_large(self, size: int, go_on: Callable[[], None]) -> bool:
        """Whether a large request may go on now; else `go_on` is called when there is a place, and it has it."""
        if self._large < LARGE_AT_ONCE:
            self._large += 1
            return True
        self._parked_ever += 1
        heappush(self._parked, (size, self._parked_ever, go_on))
        return False

    def leave_large(self) -> None:
        if self._parked:
            heappop(self._parked)[2]()
        else:
            self._large -= 1


class Share:
    """What one connection holds of the load."""

    __slots__ = ("began_s", "held_bytes", "load", "owner", "unsent_bytes")

    def __init__(self, load: Load, owner: Owner) -> None:
        self.load = load
        self.owner: Owner = owner
        self.held_bytes = 0  # of requests
        self.unsent_bytes = 0  # of answers
        self.began_s = 0.0  # since when it holds what it does

    @property
    def total_bytes(self) -> int:
        return self.held_bytes + self.unsent_bytes

    def hold(self, size: int) -> bool:
        """Hold so many bytes instead of those before; whether it may. Else it is woken when it may try again."""
        more = size - self.held_bytes
        if more > 0 and size > FLOOR_BYTES and not self.load.may_hold(self, more):
            self.load.wait(self)
            return False
        self.hold_at_least(size)
        return True

    def hold_at_least(self, size: int) -> None:
        """Hold what has come already, whether there is room for it or not: it is little if there is none."""
        self._note_beginning()
        more, self.held_bytes = size - self.held_bytes, size
        self.load.changed(self, more)

    def hold_unsent(self, size: int) -> None:
        """Hold so many bytes of answers that the client does not take: they are there in any case."""
        self._note_beginning()
        more, self.unsent_bytes = size - self.unsent_bytes, size
        if more:
            self.load.changed(self, more)

    def _note_beginning(self) -> None:
        if not self.total_bytes:
            self.began_s = self.load.now_s()

    def begin_anew(self) -> None:
        """Another request begins in what is held."""
        self.began_s = self.load.now_s()

    def leave(self) -> None:
        """Hold nothing any more, nor the owner: the two would wait for the garbage collector together."""
        self.load.leave(self)
        self.owner = _NOBODY
