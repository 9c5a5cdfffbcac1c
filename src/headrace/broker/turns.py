"""Work in turns: no request holds the event loop for longer than a turn, however much it asks for.

Work that may be long is written as steps, a generator that yields wherever it may be interrupted. It is run at once as
far as a turn lasts, which is all the way for nearly every request; what is left waits in one queue, and each time the
loop comes round the first of the queue has a turn and goes to its end. So a hundred clients with long requests cost
everybody else one turn a round, not a hundred.

What always holds: everything runs on the loop's thread, and nothing of ours runs between two steps that were not
separated by a `yield`.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Generator
from time import monotonic
from typing import TypeVar

from headrace.broker.deferred import Deferred

T = TypeVar("T")
Steps = Generator[None, None, T]

TURN_S = 0.005  # how long a request may hold the loop before others have their turn


class Turns:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._queue: deque[Callable[[], None]] = deque()

    def __len__(self) -> int:
        return len(self._queue)

    def later(self, go_on: Callable[[], None]) -> None:
        """Have `go_on` called when its turn comes; it keeps to the length of a turn by itself."""
        self._queue.append(go_on)
        if len(self._queue) == 1:
            self._loop.call_soon(self._next)

    def run(self, steps: Steps[None]) -> None:
        """Run the steps for a turn now, and the rest of them in turns to come. They handle their errors themselves."""
        if not run_until(steps, monotonic() + TURN_S):
            self.later(lambda: self.run(steps))

    def deferred(self, steps: Steps[T] | Steps[Deferred[T]] | Steps[T | Deferred[T]]) -> Deferred[T]:
        """Run the steps in turns; what comes of them, now or later."""
        answer: Deferred[T] = Deferred()

        def work() -> Steps[None]:
            try:
                result = yield from steps
            except Exception as error:  # noqa: BLE001 - for whoever waits for the answer
                answer.fail(error)
                return
            if isinstance(result, Deferred):
                answer.on_abandon(result.abandon)
                result.then(answer.set, answer.fail)
            else:
                answer.set(result)

        self.run(work())
        return answer

    def _next(self) -> None:
        go_on = self._queue.popleft()
        if self._queue:
            self._loop.call_soon(self._next)
        go_on()


def run_until(steps: Steps[None], end: float) -> bool:
    """Run steps until a time; whether they are through."""
    for _ in steps:  # noqa: SIM110 - a generator more would cost a microsecond for each request
        if monotonic() >= end:
            return False
    return True


def run_through(steps: Steps[T]) -> T:
    """The result of steps that are run without a break, where nobody else waits."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
