"""Quotas at work: what a request uses is counted while it is handled, and whoever used too much has to wait.

A request is given a `Meter` if any quotas are set; if none are, nothing of this is called. Its answer names the time to
wait and is sent at once, and its connection is not read from until that time is over (KIP-219): a client that does not
wait by itself sends into a socket that nobody empties.

What always holds: the work of a request is counted for whoever sent it, in the loop's own processor time, however many
steps it is done in; what others do between two steps is not.
"""

from collections.abc import Callable, Coroutine, Generator
from time import monotonic, thread_time
from types import GeneratorType, coroutine
from typing import Any

from headrace.broker.errors import BrokerError
from headrace.broker.turns import Deferred, Steps
from headrace.protocol.api import ApiKey
from headrace.protocol.errors import ErrorCode
from headrace.protocol.schema import Message
from headrace.security.quotas import PRODUCE_RATE, REQUEST_PERCENTAGE, Ledger

_EXEMPT = frozenset({ApiKey.WRITE_TXN_MARKERS})  # of the quota on time: what brokers ask of each other


def now_ms() -> int:
    """The time by which rates are measured; nobody sets this clock back."""
    return int(monotonic() * 1000)


class Meter:
    """What one request uses, and how long its client has to wait for that."""

    __slots__ = ("_api_key", "_client_id", "_ledger", "_mute", "_size_bytes", "_spent_s", "_throttle_ms", "_user")

    def __init__(
        self,
        ledger: Ledger,
        api_key: ApiKey,
        user: str,
        client_id: str | None,
        size_bytes: int,
        mute: Callable[[int], None],
    ) -> None:
        """`size_bytes` is that of the request; `mute` has its connection not read from for so many milliseconds."""
        self._ledger = ledger
        self._api_key = api_key
        self._user = user
        self._client_id = client_id or ""
        self._size_bytes = size_bytes
        self._mute = mute
        self._spent_s = 0.0
        self._throttle_ms = 0

    # --- what handlers ask

    @property
    def fetch_limit(self) -> float:
        """More bytes than this are more than the quota allows, whatever was fetched before."""
        return self._ledger.fetch_limit(self._user, self._client_id)

    def charge_fetch(self, size_bytes: int, *, must_send: bool = False) -> bool:
        """Whether so much may be sent; else the answer is to be empty, unless it must be sent, and is owed then."""
        may_send, throttle_ms = self._ledger.charge_fetch(
            self._user, self._client_id, size_bytes, now_ms(), must_send=must_send
        )
        self._wait_for(throttle_ms)
        return may_send

    def charge_mutations(self, count: int, *, strict: bool) -> None:
        """Count partitions that are made or deleted; raises if the quota is used up and is strict."""
        may_go_on, throttle_ms = self._ledger.charge_mutations(
            self._user, self._client_id, count, now_ms(), strict=strict
        )
        self._wait_for(throttle_ms)
        if not may_go_on:
            raise BrokerError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "The throttling quota has been exceeded.")

    # --- around handlers

    def handle(self, run: Callable[[Any, Any], Any], ctx: Any, request: Any) -> Any:
        """Run a handler, count what it uses, and mute its client if that is too much."""
        began_s = thread_time()
        answer = run(ctx, request)
        self._spent_s += thread_time() - began_s
        return self._finish_in_steps(answer) if isinstance(answer, GeneratorType) else self._take_answer(answer)

    @coroutine
    def timed(self, steps: Generator[Any, Any, Any] | Coroutine[Any, Any, Any]) -> Generator[Any, Any, Any]:
        """The same steps, or the same coroutine, with the time counted that each of its parts takes."""
        go_on: Callable[[Any], Any] = steps.send
        given: Any = None
        while True:
            began_s = thread_time()
            try:
                step = go_on(given)
            except StopIteration as end:
                return end.value
            finally:
                self._spent_s += thread_time() - began_s
            try:
                given = yield step
                go_on = steps.send
            except BaseException as error:  # noqa: BLE001 - whatever it is, it is for the steps
                given, go_on = error, steps.throw

    def _finish_in_steps(self, steps: Steps[Any]) -> Steps[Any]:
        return self._take_answer((yield from self.timed(steps)))

    async def _finish_later(self, answer: Coroutine[Any, Any, Message | None]) -> Message | None:
        message: Message | None = await self.timed(answer)
        self._finish(message)
        return message

    def _take_answer(self, answer: Any) -> Any:
        if self._api_key == ApiKey.PRODUCE:
            # Before the answer: producers send many requests at a time, and an answer may have to wait for the disk.
            self._charge(PRODUCE_RATE, self._size_bytes)
            if self._throttle_ms:
                self._mute(self._throttle_ms)
        if isinstance(answer, Deferred):
            return answer.after(self._finish)
        if answer is None or isinstance(answer, Message):
            self._finish(answer)
            return answer
        return self._finish_later(answer)

    def _finish(self, message: Message | None) -> None:
        """Count what is known now that there is an answer, write into it how long to wait, and see to it."""
        if message is not None and self._api_key not in _EXEMPT:  # what is produced with acks=0 is exempt as well
            self._charge(REQUEST_PERCENTAGE, self._spent_s * 100)
        if not self._throttle_ms:
            return
        if message is not None and hasattr(message, "throttle_time_ms"):
            message.throttle_time_ms = max(message.throttle_time_ms, self._throttle_ms)
        self._mute(self._throttle_ms)

    def _charge(self, key: str, amount: float) -> None:
        self._wait_for(self._ledger.charge(key, self._user, self._client_id, amount, now_ms()))

    def _wait_for(self, throttle_ms: int) -> None:
        self._throttle_ms = max(self._throttle_ms, throttle_ms)
