"""Sending what is pending: several at once, one at a time in a lane, with pauses after failures.

Only the calling thread touches the ledger; the others only send. Claims and results are written many at a time.
"""

import heapq
import json
import logging
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from time import monotonic

from headrace.pipelines.sink.effects.ledger import Ledger
from headrace.pipelines.sink.effects.record import DONE, FAILED, Pace, Pending, Refused, Result, Send

_log = logging.getLogger(__name__)
_PAGE = 1000
_LONGEST_ERROR = 2000


def deliver(ledger: Ledger, send: Send, pace: Pace, clock: Callable[[], float] = monotonic) -> None:
    """Until nothing is pending: each record is done, failed, or behind a failed one of its lane."""
    after = 0
    with ThreadPoolExecutor(pace.parallel, thread_name_prefix="headrace-outbox") as pool:
        while page := ledger.pending(after, _PAGE):
            _Page(ledger, send, pace, pool, clock).send_all(page)
            after = page[-1].seq


class _Page:
    """Some records, all of which come to an end here."""

    def __init__(
        self, ledger: Ledger, send: Send, pace: Pace, pool: ThreadPoolExecutor, clock: Callable[[], float]
    ) -> None:
        self._ledger, self._send, self._pace, self._pool, self._clock = ledger, send, pace, pool, clock
        self._ready: deque[deque[Pending]] = deque()
        self._paused: list[tuple[float, int, deque[Pending]]] = []
        self._running: dict[Future[Result], deque[Pending]] = {}

    def send_all(self, page: Iterable[Pending]) -> None:
        lanes: dict[str, deque[Pending]] = {}
        for pending in page:
            if pending.lane is None:
                self._ready.append(deque([pending]))
            elif pending.lane in lanes:
                lanes[pending.lane].append(pending)
            else:
                self._ready.append(lanes.setdefault(pending.lane, deque([pending])))
        while self._ready or self._paused or self._running:
            self._wake()
            self._start()
            self._collect()

    def _wake(self) -> None:
        while self._paused and self._paused[0][0] <= self._clock():
            self._ready.append(heapq.heappop(self._paused)[2])

    def _start(self) -> None:
        lanes = [self._ready.popleft() for _ in range(min(self._pace.parallel - len(self._running), len(self._ready)))]
        if lanes:
            self._ledger.claim([lane[0] for lane in lanes])
            for lane in lanes:
                self._running[self._pool.submit(_attempt, self._send, lane[0])] = lane

    def _collect(self) -> None:
        pause = max(0.0, self._paused[0][0] - self._clock()) if self._paused else None
        if not self._running and pause is not None:
            # Nothing runs: this is the pause. An empty wait returns at once, so a future that never ends stands in.
            wait([Future()], timeout=pause)
            return
        finished, _ = wait(self._running, timeout=pause, return_when=FIRST_COMPLETED)
        results = [(future.result(), self._running.pop(future)) for future in finished]
        if results:
            self._ledger.remember([result for result, _ in results], self._pace.attempts)
        for result, lane in results:
            self._go_on(result, lane)

    def _go_on(self, result: Result, lane: deque[Pending]) -> None:
        state = result.state(self._pace.attempts)
        if state == DONE:
            lane.popleft()
            if lane:
                self._ready.append(lane)
        elif state == FAILED:
            _log.error("outbox: the record %s was given up: %s", result.pending.key, result.error)
        else:
            tried = result.pending.attempts + 1
            old = lane[0]
            lane[0] = Pending(old.key, old.lane, old.seq, tried, old.payload)
            heapq.heappush(self._paused, (self._clock() + self._pace.backoff.pause_s(tried), old.seq, lane))


def _attempt(send: Send, pending: Pending) -> Result:
    try:
        send(json.loads(pending.payload), pending.key)
    except Refused as error:
        return Result(pending, str(error)[:_LONGEST_ERROR], final=True)
    except Exception as error:  # noqa: BLE001 - whatever a sender raises is this record's failure and is kept with it
        return Result(pending, f"{type(error).__name__}: {error}"[:_LONGEST_ERROR])
    return Result(pending)
