"""What waits for a program that is slower than its group. Pure.

A receiver cannot make publishers wait, so at the bound messages are dropped: the oldest that wait, or those that come.
What always holds: what was dropped is told as lost, once, at its place between the messages of its session; and what
waits has a bound, in bytes.
"""

from collections import OrderedDict, deque
from typing import Final

from headrace.gateways.gateway import Overload
from headrace.gateways.multicast.events import Event, Lost, Why
from headrace.gateways.multicast.message import Message
from headrace.gateways.multicast.wire import Session

_EVENT_BYTES: Final = 300
_HEADER_BYTES: Final = 150
_MOST_SESSIONS: Final = 1_024


def size_of(event: Event) -> int:
    if not isinstance(event, Message):
        return _EVENT_BYTES
    size = _EVENT_BYTES + len(event.value or b"") + len(event.key or b"")
    return size + sum(_HEADER_BYTES + len(name) + len(value or b"") for name, value in event.headers)


class Inbox:
    def __init__(self, limit_bytes: int, overload: Overload = Overload.DROP_OLDEST) -> None:
        assert overload is not Overload.BLOCK
        self.dropped = 0  # messages
        self.is_failed = False  # there was no room, and the policy is to fail
        self.bytes = 0
        self._limit_bytes = limit_bytes
        self._overload = overload
        self._events: deque[tuple[Event, int]] = deque()
        self._before: OrderedDict[Session, Lost] = OrderedDict()  # what was dropped in front of all that waits
        self._behind: OrderedDict[Session, Lost] = OrderedDict()  # and behind it

    def __len__(self) -> int:
        return len(self._before) + len(self._events) + len(self._behind)

    def put(self, event: Event) -> None:
        size = size_of(event)
        if self.bytes + size > self._limit_bytes and self._events:
            if self._overload is Overload.DROP_OLDEST:
                while self._events and self.bytes + size > self._limit_bytes:
                    oldest, freed = self._events.popleft()
                    self.bytes -= freed
                    self._drop(oldest, self._before)
            else:
                self.is_failed = self.is_failed or self._overload is Overload.FAIL
                self._drop(event, self._behind)
                return
        if self._behind:
            if event.session in self._behind:  # what was dropped of this session has its place before this
                lost = self._behind.pop(event.session)
                self._append(lost, _EVENT_BYTES)
            if self.is_failed:
                self._drop(event, self._behind)
                return
        self._append(event, size)

    def _append(self, event: Event, size: int) -> None:
        self._events.append((event, size))
        self.bytes += size

    def _drop(self, event: Event, where: OrderedDict[Session, Lost]) -> None:
        if isinstance(event, Message):
            self.dropped += 1
            event = Lost(event.session, event.number, event.number, 1, Why.OVERLOAD)
        elif not isinstance(event, Lost):
            return
        before = where.get(event.session)
        if before is not None:
            why = event.why if event.why is before.why else Why.OVERLOAD
            event = Lost(
                event.session,
                min(before.first, event.first),
                max(before.last, event.last),
                before.count + event.count,
                why,
            )
        elif len(where) >= _MOST_SESSIONS:
            where.popitem(last=False)
        where[event.session] = event

    def take(self, most: int) -> list[Event]:
        """The next events, in their order."""
        taken: list[Event] = []
        while self._before and len(taken) < most:
            taken.append(self._before.popitem(last=False)[1])
        while self._events and len(taken) < most:
            event, size = self._events.popleft()
            self.bytes -= size
            taken.append(event)
        while self._behind and not self._events and len(taken) < most:
            taken.append(self._behind.popitem(last=False)[1])
        return taken
