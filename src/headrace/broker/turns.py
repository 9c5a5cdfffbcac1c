"""Work in turns: no request holds the event loop for longer than a turn, however much it asks for.

Work that may be long is written as steps, a generator that yields wherever it may be interrupted. It is run at once as
far as a turn lasts, which is all the way for nearly every request; what is left waits in one queue, and each time the
loop comes round the first of the queue has a turn and goes to its end. So a hundred clients with long requests cost
everybody else one turn a round, not a hundred. Whoever is read from or written to counts what that took, and once a
round has lasted long enough the others have theirs in the next one.

What always holds: everything runs on the loop's thread, and nothing of ours runs between two steps that were not
separated by a `yield`.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Any, Generic, Protocol, TypeVar

T = TypeVar("T")


def _ignore(_: Exception) -> None:
    """What a failure does where nobody listens for one."""


class Deferred(Generic[T]):
    """A value that is set once, and one listener that is told: all that is needed, at a fraction of a future's cost.

    Whoever sets it may trust that nothing is raised: listeners keep their errors to themselves. Once it is set or
    abandoned it does not know any more who would have stopped working: those know it, and both would be a cycle.
    """

    __slots__ = ("_error", "_failed", "_forget", "_listener", "_value", "is_set")

    def __init__(self) -> None:
        self._listener: Callable[[T], None] | None = None
        self._failed: Callable[[Exception], None] = _ignore
        self._forget: Callable[[], None] | None = None
        self._value: T | None = None
        self._error: Exception | None = None
        self.is_set = False

    def set(self, value: T) -> None:
        """Give the value; a second one is left out."""
        if self.is_set:
            return
        self.is_set = True
        self._forget = None
        self._value = value
        if self._listener:
            self._listener(value)

    def fail(self, error: Exception) -> None:
        if self.is_set:
            return
        self.is_set = True
        self._forget = None
        self._error = error
        if self._listener:
            self._failed(error)

    def then(self, listener: Callable[[T], None], failed: Callable[[Exception], None] = _ignore) -> None:
        """Have `listener` called with the value, or `failed` with the error; at once if it is there."""
        self._listener, self._failed = listener, failed
        if self._error is not None:
            failed(self._error)
        elif self.is_set:
            listener(self._value)  # type: ignore[arg-type]  # set, so it is a T

    def after(self, change: Callable[[T], None]) -> "Deferred[T]":
        """The same value, once `change` has had a look at it."""
        changed: Deferred[T] = Deferred()
        changed.on_abandon(self.abandon)

        def pass_on(value: T) -> None:
            try:
                change(value)
            except Exception as error:  # noqa: BLE001 - belongs to whoever asked, not to whoever answers
                changed.fail(error)
            else:
                changed.set(value)

        self.then(pass_on, changed.fail)
        return changed

    def __await__(self) -> Generator[Any, None, T]:
        """For a coroutine that has nothing else to do until the value is there."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self.then(
            lambda value: None if future.done() else future.set_result(value),
            lambda error: None if future.done() else future.set_exception(error),
        )
        return future.__await__()

    def on_abandon(self, forget: Callable[[], None]) -> None:
        """Have `forget` called if nobody waits for the value any more."""
        self._forget = forget

    def abandon(self) -> None:
        """Nobody waits for it any more: what is done only to answer may stop."""
        forget, self._forget = self._forget, None
        if forget:
            forget()


Steps = Generator[None, None, T]

TURN_S = 0.0005  # how long a request may hold the loop before others have their turn
QUEUED_TURN_S = 0.00025  # and those after its first turn
ROUND_S = 0.0005  # how long all may hold it together before it looks who else has come
COUNTED_S = 0.0001  # a shorter turn is not worth it
FEW_LARGE = 2  # who send a megabyte each on the loop, in a fifth of a millisecond
LATELY_S = 0.05


class Sender(Protocol):
    """A connection, to those who have answers for many."""

    def send(self) -> None:
        """Send what is there to send; called once for all that came together."""
        ...


class Turns:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._queue: deque[Callable[[], None]] = deque()
        self._spent_s = 0.0  # since a round was begun, by turns that were worth counting
        self._is_round_due = False  # the loop will begin the next one when it comes round
        self.senders: dict[Sender, None] | None = None  # who has something to send, while answers are given together
        self.is_over = False  # this round has taken long enough: whoever can wait for the next one does
        self._large: set[int] = set()  # who has asked to send much lately
        self._large_before = 0  # and how many had in the time before

    def __len__(self) -> int:
        return len(self._queue)

    def spend(self, spent_s: float) -> None:
        """Count a turn that lasted so long, of the queue or of one of a hundred clients that come in one round."""
        if spent_s >= COUNTED_S:
            self._spent_s += spent_s
            if self._spent_s >= ROUND_S and not self.is_over:
                self.is_over = True
                self._have_round()

    def take_large(self, who: int) -> bool:
        """Whether who asks may send much on the loop: not where many have lately, for whom all others would wait."""
        if not self._large:
            self._loop.call_later(LATELY_S, self._end_large)
        self._large.add(who)
        return max(len(self._large), self._large_before) <= FEW_LARGE

    def _end_large(self) -> None:
        self._large_before = len(self._large)
        self._large.clear()

    def _have_round(self) -> None:
        if not self._is_round_due:
            self._is_round_due = True
            self._loop.call_soon(self._begin_round)

    def _begin_round(self) -> None:
        """Give the first of the queue its turn; those who come from elsewhere have what is left of the round."""
        self._is_round_due = False
        self._spent_s, self.is_over = 0.0, False
        if self._queue:
            began_s = monotonic()
            go_on = self._queue.popleft()
            if self._queue:
                self._have_round()
            go_on()
            self.spend(monotonic() - began_s)

    @contextmanager
    def sending_together(self) -> Iterator[None]:
        """Have a connection send all that is answered meanwhile with one system call."""
        if self.senders is not None:
            yield
            return
        self.senders = {}
        try:
            yield
        finally:
            senders, self.senders = self.senders, None
            for each in senders:
                each.send()

    def later(self, go_on: Callable[[], None]) -> None:
        """Have `go_on` called when its turn comes; it keeps to the length of a turn by itself."""
        self._queue.append(go_on)
        self._have_round()

    def run(self, steps: Steps[None], turn_s: float = TURN_S) -> None:
        """Run the steps for a turn now, and the rest of them in turns to come. They handle their errors themselves."""
        if not run_until(steps, monotonic() + turn_s):
            self.later(lambda: self.run(steps, QUEUED_TURN_S))

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
