"""Which worker has which request, and what is done when a worker goes. Pure: requests are numbers, time is an argument.

What always holds: a request that was submitted ends exactly once, with a reply, at its deadline, or because nobody is
to have it twice; a reply ends the request that it names and no other one; a request is with one worker at a time, and
with none that is away; and a reply that comes late, or from a worker that was given up, changes nothing.
"""

import heapq
from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

W = TypeVar("W", bound=Hashable)


class Assignment(NamedTuple, Generic[W]):
    request: int
    worker: W


@dataclass(slots=True)
class _Open(Generic[W]):
    deadline: float
    worker: W | None = None


@dataclass(slots=True)
class Dispatch(Generic[W]):
    """Requests go to the worker that is there and has the fewest of them."""

    most_each: int = 100
    """How many requests a worker has at a time; the others wait."""
    is_repeated: bool = True
    """Whether a request goes to another worker when the one that had it went away; else it has failed."""
    workers: dict[W, dict[int, None]] = field(default_factory=dict)  # those that are there, each with its requests
    _open: dict[int, _Open[W]] = field(default_factory=dict)
    _waiting: deque[int] = field(default_factory=deque)
    _deadlines: list[tuple[float, int]] = field(default_factory=list)

    @property
    def open(self) -> int:
        return len(self._open)

    @property
    def waiting(self) -> int:
        """How many are with no worker."""
        return sum(1 for number in self._waiting if number in self._open)

    def submit(self, request: int, deadline: float) -> None:
        self._open[request] = _Open(deadline)
        self._waiting.append(request)
        heapq.heappush(self._deadlines, (deadline, request))

    def come(self, worker: W) -> None:
        self.workers.setdefault(worker, {})

    def go(self, worker: W) -> list[int]:
        """A worker is away; the requests that have failed by that."""
        held = self.workers.pop(worker, {})
        if not self.is_repeated:
            for request in held:
                self._open.pop(request, None)
            return list(held)
        for request in reversed(held):
            self._open[request].worker = None
            self._waiting.appendleft(request)  # they are the oldest
        return []

    def assign(self) -> list[Assignment[W]]:
        """Who is to be sent what now."""
        found: list[Assignment[W]] = []
        while self._waiting and self.workers:
            request = self._waiting[0]
            is_open = self._open.get(request)
            if is_open is None:
                self._waiting.popleft()
                continue
            worker = min(self.workers, key=lambda each: len(self.workers[each]))
            if len(self.workers[worker]) >= self.most_each:
                break
            self._waiting.popleft()
            is_open.worker = worker
            self.workers[worker][request] = None
            found.append(Assignment(request, worker))
        return found

    def take_back(self, request: int) -> None:
        """It could not be sent to its worker after all."""
        is_open = self._open.get(request)
        if is_open is not None and is_open.worker is not None:
            self.workers[is_open.worker].pop(request, None)
            is_open.worker = None
            self._waiting.appendleft(request)

    def finish(self, request: int) -> bool:
        """A reply came, or nobody wants one any more; whether the request was open."""
        is_open = self._open.pop(request, None)
        if is_open is None:
            return False
        if is_open.worker is not None:
            self.workers[is_open.worker].pop(request, None)
        if len(self._deadlines) > 2 * len(self._open) + 1000:
            self._deadlines = [each for each in self._deadlines if each[1] in self._open]
            heapq.heapify(self._deadlines)
        if len(self._waiting) > 2 * len(self._open) + 1000:
            self._waiting = deque(each for each in self._waiting if each in self._open)
        return True

    def expire(self, now: float) -> list[int]:
        """The requests whose deadline has passed."""
        found: list[int] = []
        while self._deadlines and self._deadlines[0][0] <= now:
            _, request = heapq.heappop(self._deadlines)
            if self.finish(request):
                found.append(request)
        return found

    def next_deadline(self) -> float | None:
        while self._deadlines and self._deadlines[0][1] not in self._open:
            heapq.heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None
