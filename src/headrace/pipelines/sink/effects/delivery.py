"""Sending what is pending: several at once, one at a time in a lane, with pauses after failures.

Only the calling thread touches the ledger; the others only send. Claims and results are written many at a time. A
webhook is one sender; any function is another.
"""

import hashlib
import heapq
import json
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Self

from headrace.http_client import InvalidServer
from headrace.pipelines.errors import PipelineError
from headrace.pipelines.sink.effects.ledger import DONE, FAILED, Ledger, Pending, Result
from headrace.retry import Backoff
from headrace.stores.errors import SinkMisconfigured
from headrace.stores.webhook.sender import Sender, WebhookRefused, own_reach

_log = logging.getLogger(__name__)
_PAGE = 1000
_LONGEST_ERROR = 2000

# Takes the record (its columns as JSON knows them) and its idempotence key; whatever it raises is a failed attempt.
Send = Callable[[Mapping[str, Any], str], None]


class Refused(PipelineError):
    """Raised by a sender: the receiver will never take this record, so it is not tried again."""


@dataclass(frozen=True)
class Pace:
    """How often a record is tried, how long the pauses are, and how many are sent at once."""

    attempts: int = 5
    first_pause_s: float = 0.5
    longest_pause_s: float = 60.0
    parallel: int = 4

    @property
    def backoff(self) -> Backoff:
        """The pauses after failures."""
        return Backoff(self.first_pause_s, self.longest_pause_s)


def deliver(ledger: Ledger, send: Send, pace: Pace, clock: Callable[[], float] = monotonic) -> None:
    """Until nothing is pending: each record is done, failed, or behind a failed one of its lane."""
    with Deliveries(ledger, send, pace, clock) as deliveries:
        deliveries.load()
        while not deliveries.is_idle:
            deliveries.turn()
            deliveries.load()


class Deliveries:
    """What is pending, on its way, for as long as a `with` block lasts; for one thread.

    A page of records is held at a time. One that is tried again later holds up its lane, and nothing else.
    """

    def __init__(self, ledger: Ledger, send: Send, pace: Pace, clock: Callable[[], float] = monotonic) -> None:
        self._ledger, self._send, self._pace, self._clock = ledger, send, pace, clock
        self._pool = ThreadPoolExecutor(pace.parallel, thread_name_prefix="headrace-outbox")
        self._after = 0
        self._keys: set[str] = set()  # of what is held
        self._lanes: dict[str, deque[Pending]] = {}
        self._ready: deque[deque[Pending]] = deque()
        self._paused: list[tuple[float, int, deque[Pending]]] = []
        self._running: dict[Future[Result], deque[Pending]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Wait for what is under way, and remember how it ended: it would be sent again."""
        self._pool.shutdown()
        ended = [future.result() for future in self._running if future.exception() is None]
        try:
            if ended:
                self._ledger.remember(ended, self._pace.attempts)
        except Exception as error:
            if kind is None:
                raise
            _log.error("outbox: of %d records it is not remembered how they ended: %s", len(ended), error)

    @property
    def is_idle(self) -> bool:
        return not (self._ready or self._paused or self._running)

    def load(self, *, is_anew: bool = False) -> None:
        """Hold more of what is pending, as far as there is room; `is_anew` finds what was given up and waits again."""
        if is_anew:
            self._after = 0
        while len(self._keys) <= _PAGE // 2 and (page := self._ledger.pending(self._after, _PAGE // 2)):
            for pending in page:
                if pending.key not in self._keys:
                    self._hold(pending)
            self._after = page[-1].seq

    def _hold(self, pending: Pending) -> None:
        self._keys.add(pending.key)
        if pending.lane is None:
            self._ready.append(deque([pending]))
        elif pending.lane in self._lanes:
            self._lanes[pending.lane].append(pending)
        else:
            self._lanes[pending.lane] = deque([pending])
            self._ready.append(self._lanes[pending.lane])

    def turn(self, longest_s: float | None = None) -> None:
        """Send what can be sent, and wait for a result or the end of a pause; not longer than that."""
        while self._paused and self._paused[0][0] <= self._clock():
            self._ready.append(heapq.heappop(self._paused)[2])
        self._start()
        self._collect(longest_s)

    def _start(self) -> None:
        lanes = [self._ready.popleft() for _ in range(min(self._pace.parallel - len(self._running), len(self._ready)))]
        if lanes:
            self._ledger.claim([lane[0] for lane in lanes])
            for lane in lanes:
                self._running[self._pool.submit(_attempt, self._send, lane[0])] = lane

    def _collect(self, longest_s: float | None) -> None:
        pauses = [max(0.0, self._paused[0][0] - self._clock())] if self._paused else []
        pause = min([*pauses, *([] if longest_s is None else [longest_s])], default=None)
        if not self._running:
            # Nothing runs: this is the pause. An empty wait returns at once, so a future that never ends stands in.
            wait([Future()], timeout=pause or 0.0)
            return
        finished, _ = wait(self._running, timeout=pause, return_when=FIRST_COMPLETED)
        results = [(future.result(), self._running[future]) for future in finished]
        if results:
            self._ledger.remember([result for result, _ in results], self._pace.attempts)
        for future in finished:  # until then the end would remember them
            del self._running[future]
        for result, lane in results:
            self._go_on(result, lane)

    def _go_on(self, result: Result, lane: deque[Pending]) -> None:
        state = result.state(self._pace.attempts)
        if state == DONE:
            self._let_go(lane.popleft())
            if lane:
                self._ready.append(lane)
            elif result.pending.lane is not None:
                del self._lanes[result.pending.lane]
        elif state == FAILED:
            _log.error("outbox: the record %s was given up: %s", result.pending.key, result.error)
            for each in lane:
                self._let_go(each)
            if result.pending.lane is not None:
                del self._lanes[result.pending.lane]
        else:
            tried = result.pending.attempts + 1
            old = lane[0]
            lane[0] = Pending(old.key, old.lane, old.seq, tried, old.payload)
            heapq.heappush(self._paused, (self._clock() + self._pace.backoff.pause_s(tried), old.seq, lane))

    def _let_go(self, pending: Pending) -> None:
        self._keys.discard(pending.key)


def _attempt(send: Send, pending: Pending) -> Result:
    try:
        send(json.loads(pending.payload), pending.key)
    except Refused as error:
        return Result(pending, str(error)[:_LONGEST_ERROR], final=True)
    except Exception as error:  # noqa: BLE001 - whatever a sender raises is this record's failure and is kept with it
        return Result(pending, f"{type(error).__name__}: {error}"[:_LONGEST_ERROR])
    return Result(pending)


# --- a sender


@dataclass(frozen=True)
class Webhook:
    """POSTs to `url`. With a secret, `X-Headrace-Signature: sha256=…` is the HMAC of the body.

    A 2xx answer is success, a 4xx that will not change is `Refused`, everything else is tried again. Errors name the
    host only: a path or a query may hold a token. A name that leads to a private address is refused, unless
    `allow_private` has its network.
    """

    url: str = field(repr=False)
    secret: str | None = field(default=None, repr=False)
    timeout_s: float = 30.0
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    allow_private: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self._sender()

    def __call__(self, record: Mapping[str, Any], key: str) -> None:
        """Post one record."""
        sender = self._sender()
        try:
            sender.post(record, _header(key))
        except WebhookRefused as error:
            raise Refused(str(error)) from error
        finally:
            sender.close()

    def _sender(self) -> Sender:
        try:
            reach = own_reach(self.url, self.allow_private)
            return Sender(self.url, self.secret, reach=reach, timeout_s=self.timeout_s, headers=self.headers)
        except InvalidServer as error:
            raise SinkMisconfigured(f"a webhook's URL {error}") from None


def _header(key: str) -> str:
    """The key as it is if a header can carry it, else its hash: the same for the same key either way."""
    if key.isascii() and key.isprintable() and len(key) <= 255:
        return key
    return hashlib.sha256(key.encode()).hexdigest()


def webhook(
    url: str,
    secret: str | None = None,
    *,
    timeout_s: float = 30.0,
    headers: Mapping[str, str] | None = None,
    allow_private: Sequence[str] = (),
) -> Webhook:
    """A sender for `outbox(send=…)`."""
    return Webhook(url, secret, timeout_s, dict(headers or {}), tuple(allow_private))
