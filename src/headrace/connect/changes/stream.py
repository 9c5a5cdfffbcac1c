"""Changes as something to iterate over, in threads and in asyncio.

One thread of its own reads the source, a portion ahead of whoever iterates and no further, so a slow reader costs no
memory and the source waits. What a source may forget is told to it by that thread too, so nothing is used by two.

What always holds: a change is handed out once, in the order of the source; a portion counts as read when the first
change behind it is asked for; an error comes after the changes that stand before it.
"""

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from typing import Any, Final, NamedTuple, Protocol, Self, TypeVar

from headrace.connect.change import Position
from headrace.connect.changes.row_change import HEARTBEAT, Choice, Mark, Marks, RowChange
from headrace.connect.changes.token import Token
from headrace.connect.errors import InvalidConnectSetting, SourceUnavailable
from headrace.retry import Backoff
from headrace.telemetry.logs import get_logger

log = get_logger(__name__)
T = TypeVar("T")
_POLL_S: Final = 0.25
_AHEAD: Final = 1  # portions
_KEEP_ALIVE_S: Final = 5.0
_LET_GO_S: Final = 10.0
_RETRY: Final = Backoff(0.2, 5.0, retries=16)  # about a minute: a restart of the server


class Portion(NamedTuple):
    """Some changes in order, and the place behind all of them; without changes the place alone moved."""

    changes: list[RowChange]
    end: Mark
    is_last: bool = False  # nothing will ever come behind it


class Reader(Protocol):
    """Reads one source; one thread uses it."""

    marks: Marks
    can_reopen: bool  # whether it goes on where it was after the source was away

    def check(self, token: Token) -> None:
        """Refuse a token of something else, without asking anybody."""
        ...

    def open(self, token: Token | None) -> Mark:
        """Begin behind this token, or as the settings say; answers the place where it begins."""
        ...

    def reopen(self) -> None:
        """Go on behind the last portion, after the source was away."""
        ...

    def next(self, timeout_s: float) -> Portion | None:
        """What comes next; None if nothing did for that long."""
        ...

    def acknowledge(self, position: Position) -> None:
        """Nothing before this is asked for again."""
        ...

    def keep_alive(self) -> None:
        """Nobody takes what was read; show whoever sends it that we are there."""
        ...

    def close(self) -> None: ...


class Changes:
    """The changes of one source; iterate over it in `for` or `async for`, and close it or use it in `with`.

    It is iterated once, by one reader. Any thread may close it.
    """

    def __init__(
        self,
        reader: Reader,
        *,
        resume: Token | None = None,
        choice: Choice | None = None,
        heartbeat_s: float | None = None,
        acknowledge: bool = True,
    ) -> None:
        if heartbeat_s is not None and heartbeat_s <= 0:
            raise InvalidConnectSetting("heartbeat_s", heartbeat_s, "use more than 0 seconds, or None for no heartbeat")
        if resume is not None:
            reader.check(resume)
            reader.marks.asked = resume.base
        self._reader = reader
        self._resume = resume
        self._choice = choice or Choice()
        self._heartbeat_s = heartbeat_s
        self._is_acknowledging = acknowledge
        self._news = threading.Condition()
        self._waiting: deque[Portion] = deque()
        self._orders: deque[Position] = deque()
        self._wakers: list[Callable[[], None]] = []
        self._begun: Mark | None = None
        self._failed: BaseException | None = None
        self._ended = False
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        self._ready: deque[RowChange] = deque()
        self._current: Portion | None = None
        self._is_drained = False  # whether more was asked for behind the last portion
        self._place: Mark | None = None  # behind what was handed out
        self._heard_at = time.monotonic()

    # --- beginning and end

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(self, *_: object) -> None:
        self.close()

    def open(self) -> Self:
        """Begin now, and not when the first change is asked for: whatever happens from here on is told."""
        self._start()
        with self._news:
            self._news.wait_for(lambda: self._begun is not None or self._ended)
        self._check_begun()
        return self

    async def open_async(self) -> Self:
        """As `open`, in asyncio; no thread waits for it."""
        self._start()
        while self._begun is None and not self._is_over():
            await self._wait_async(None)
        self._check_begun()
        return self

    def _start(self) -> None:
        with self._news:
            if self._thread is None and not self._closing.is_set():
                self._thread = threading.Thread(target=self._run, name="headrace-changes", daemon=True)
                self._thread.start()

    def _check_begun(self) -> None:
        if self._begun is None and self._failed is not None:
            self.close()
            raise self._failed

    def close(self) -> None:
        """Let go of the source; whoever iterates comes to the end. Twice is as good as once."""
        self._closing.set()
        self._wake()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(_LET_GO_S)

    @property
    def is_let_go(self) -> bool:
        """Whether nothing of it is at work any more: what waits for a server goes on waiting after a close."""
        return self._thread is None or not self._thread.is_alive()

    @property
    def can_resume(self) -> bool:
        """Whether its positions are of use after it was closed: not if the database keeps nothing for it."""
        return self._reader.can_reopen

    @property
    def read_ahead(self) -> int:
        """How many changes were read and are not asked for yet."""
        return sum(len(portion.changes) for portion in list(self._waiting))

    @property
    def position(self) -> str:
        """The token for everything that was handed out or passed over so far; empty before it is open."""
        place = self._place or self._begun
        return "" if place is None else place.text

    def acknowledge(self, token: str | RowChange) -> None:
        """With `acknowledge=False`: everything up to here is stored elsewhere, and the source may forget it."""
        if isinstance(token, RowChange):
            if token.mark is not None:
                self._order(token.mark.base.position)
            return
        parsed = Token.parsed(token, self._reader.marks.secret)
        self._reader.check(parsed)
        self._order(parsed.base.position)

    # --- the thread that reads

    def _run(self) -> None:
        reader = self._reader
        try:
            begun = self._patiently(lambda: reader.open(self._resume), can_retry=False)
            with self._news:
                self._begun = begun
            self._wake()
            while not self._closing.is_set():
                self._obey()
                if not self._has_room():
                    continue
                portion = self._next()
                if portion is None:
                    continue
                with self._news:
                    self._waiting.append(portion)
                self._wake()
                if portion.is_last:
                    break
            self._linger()
        except BaseException as error:  # noqa: BLE001 - whoever iterates gets it
            with self._news:
                self._failed = error
        finally:
            try:
                reader.close()
            except Exception as error:  # noqa: BLE001 - it is over anyway
                log.warning("source not closed well", reason=str(error))
            with self._news:
                self._ended = True
            self._wake()

    def _next(self) -> Portion | None:
        return self._reopening(lambda: self._reader.next(_POLL_S))

    def _reopening(self, act: Callable[[], T]) -> T | None:
        """Read; if the source is away, go on once it is there again."""
        reader = self._reader
        try:
            return act()
        except SourceUnavailable as error:
            if not reader.can_reopen or self._closing.is_set():
                raise
            log.warning("source is away", reason=str(error))
            self._patiently(reader.reopen, can_retry=True)
            return None

    def _patiently(self, act: Callable[[], Any], *, can_retry: bool) -> Any:
        pauses = _RETRY.pauses()
        while True:
            try:
                return act()
            except SourceUnavailable:
                pause = next(pauses, None)
                if pause is None or not can_retry or self._closing.wait(pause):
                    raise

    def _has_room(self) -> bool:
        """Whether a portion may be read now; waits a while for it."""
        with self._news:
            if len(self._waiting) < _AHEAD:
                return True
            self._news.wait_for(
                lambda: len(self._waiting) < _AHEAD or self._orders or self._closing.is_set(), _KEEP_ALIVE_S
            )
            if len(self._waiting) < _AHEAD or self._orders:
                return False  # obey first
        self._reopening(self._reader.keep_alive)
        return False

    def _linger(self) -> None:
        """Of a source that has come to its end, wait until all is read, so that the end is acknowledged too."""
        with self._news:
            self._news.wait_for(lambda: self._closing.is_set() or self._is_drained)
        self._obey()

    def _obey(self) -> None:
        while self._orders:
            self._reader.acknowledge(self._orders.popleft())

    def _order(self, position: Position) -> None:
        with self._news:
            self._orders.append(position)
            self._news.notify_all()

    def _wake(self) -> None:
        with self._news:
            wakers, self._wakers = self._wakers, []
            self._news.notify_all()
        for wake in wakers:
            wake()

    # --- handing out

    def __iter__(self) -> Iterator[RowChange]:
        try:
            while (change := self.next()) is not None:
                yield change
        finally:
            self.close()

    def next(self, timeout_s: float | None = None) -> RowChange | None:
        """The next change; None if none came for that long, or when the stream is over."""
        self._start()
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            change = self._take()
            if change is not None or self._is_over():
                return change
            with self._news:
                has_news = self._news.wait_for(self._has_news, self._left_s(deadline))
            if not has_news:
                if self._is_heartbeat_due():
                    return self._heartbeat()
                if deadline is not None and time.monotonic() >= deadline:
                    return None

    async def __aiter__(self) -> AsyncIterator[RowChange]:
        try:
            while (change := await self.next_async()) is not None:
                yield change
        finally:
            self._closing.set()
            self._wake()
            with contextlib.suppress(RuntimeError):  # the loop itself is ending
                await asyncio.to_thread(self.close)

    async def next_async(self, timeout_s: float | None = None) -> RowChange | None:
        """As `next`, in asyncio; no thread waits for it."""
        self._start()
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            if not self._ready:  # who never waits would keep everybody else from running
                await asyncio.sleep(0)
            change = self._take()  # nothing is waited for behind this, so who is cancelled loses no change
            if change is not None or self._is_over():
                return change
            if not await self._wait_async(self._left_s(deadline)):
                if self._is_heartbeat_due():
                    return self._heartbeat()
                if deadline is not None and time.monotonic() >= deadline:
                    return None

    async def _wait_async(self, timeout_s: float | None) -> bool:
        loop, came = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            with contextlib.suppress(RuntimeError):  # the loop is gone, and with it who waited
                loop.call_soon_threadsafe(came.set)

        with self._news:
            if self._has_news():
                return True
            self._wakers.append(wake)
        try:
            async with asyncio.timeout(timeout_s):
                await came.wait()
        except TimeoutError:
            return False
        finally:
            with self._news, contextlib.suppress(ValueError):
                self._wakers.remove(wake)
        return True

    def _take(self) -> RowChange | None:
        """The next change that is here; None if there is none just now."""
        while not self._ready:
            self._finish()
            with self._news:
                if not self._waiting:
                    return None
                portion = self._waiting[0]
            wanted = self._choice.chosen(
                portion.changes
            )  # before it is taken: what the user's function raises loses none
            with self._news:
                self._current = self._waiting.popleft()
                self._news.notify_all()
            if wanted:  # behind the last wanted one there is nothing more that is wanted
                wanted[-1] = replace(wanted[-1], mark=portion.end)
            self._ready.extend(wanted)
        if self._closing.is_set():
            return None
        change = self._ready.popleft()
        self._place = change.mark
        self._heard_at = time.monotonic()
        return change

    def _finish(self) -> None:
        """All of a portion was handed out, and more is asked for."""
        portion, self._current = self._current, None
        if portion is None:
            return
        self._place = portion.end
        if self._is_acknowledging:
            asked = self._reader.marks.asked
            self._order(portion.end.base.position if asked is None else asked.position)
        if portion.is_last:
            with self._news:
                self._is_drained = True
                self._news.notify_all()

    @property
    def is_over(self) -> bool:
        """Whether it was closed, or has come to its end and all before that was handed out."""
        is_at_end = self._ended and not self._waiting and not self._ready
        return self._closing.is_set() or (is_at_end and self._failed is None)

    def _has_news(self) -> bool:
        return bool(self._waiting) or self._ended or self._closing.is_set()

    def _is_over(self) -> bool:
        """Whether nothing will come any more, of which there is nothing here; raises what went wrong."""
        if self._closing.is_set():
            return True
        with self._news:
            if not self._ended or self._waiting:
                return False
        if self._failed is not None:
            raise self._failed
        return True

    def _is_heartbeat_due(self) -> bool:
        return self._heartbeat_s is not None and time.monotonic() >= self._heard_at + self._heartbeat_s

    def _heartbeat(self) -> RowChange:
        self._heard_at = time.monotonic()
        place = self._place or self._begun
        return RowChange(HEARTBEAT, "", None, None, None, None, time.time_ns() // 1000, place)

    def _left_s(self, deadline: float | None) -> float | None:
        """How long to wait at most, None for as long as it takes."""
        ends = [] if deadline is None else [deadline]
        if self._heartbeat_s is not None:
            ends.append(self._heard_at + self._heartbeat_s)
        return max(0.0, min(ends) - time.monotonic()) if ends else None
