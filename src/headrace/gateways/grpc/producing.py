"""Records of calls into topics.

What always holds: a call is answered without an error only once all its records are durable; a call that comes while
the broker is known to be away is refused before anything is taken; and a deadline is never waited beyond.
"""

import asyncio
import time
from typing import Any, Final

from headrace.connect.delivery import Entry
from headrace.gateways.grpc.errors import CallFailed, Code
from headrace.gateways.grpc.settings import GrpcSettings, check_topic
from headrace.gateways.grpc.watch import Watch
from headrace.gateways.inlet import Inlet, Overloaded
from headrace.gateways.inward import accepted
from headrace.gateways.writing import Lot, Placed

_LOOK_EVERY_S: Final = 0.2
_PATIENCE_S: Final = 2.0  # of a call that was under way when the broker went


class Producing:
    def __init__(self, inlet: Inlet, settings: GrpcSettings, watch: Watch) -> None:
        self._inlet = inlet
        self._settings = settings
        self._watch = watch

    def lot(self, request: Any) -> Lot:
        """The records of a request; raises `CallFailed` for one that makes no sense."""
        check_topic(request.topic, self._settings.produce, "written to")
        if not request.records:
            raise CallFailed(Code.INVALID_ARGUMENT, "there are no records: send at least one")
        partition = request.partition if request.HasField("partition") else None
        if partition is not None and partition < 0:
            raise CallFailed(Code.INVALID_ARGUMENT, f"partition is {partition}: the first is 0")
        now_ms = time.time_ns() // 1_000_000
        return Lot(request.topic, [_entry(record, now_ms) for record in request.records], partition)

    async def begin(self, lot: Lot, within_s: float | None) -> "asyncio.Future[list[Placed]]":
        """Hand records over; what is answered is done when they are durable. Raises `CallFailed` and `Overloaded`."""
        within_s = self._within(within_s)
        if self._watch.problem:
            raise CallFailed(Code.UNAVAILABLE, f"nothing is written: {self._watch.problem}")
        self._inlet.progress.received += len(lot.entries)
        try:
            async with asyncio.timeout(within_s):
                future = asyncio.wrap_future(await accepted(self._inlet, lot))
                future.add_done_callback(_look_at)
                return future
        except TimeoutError:
            raise CallFailed(Code.DEADLINE_EXCEEDED, "no room before the deadline: nothing is written") from None
        except Overloaded:
            self._inlet.progress.dropped += len(lot.entries)
            raise

    async def end(self, future: "asyncio.Future[list[Placed]]", within_s: float | None) -> list[Placed]:
        """Wait until records are durable; raises what came in between."""
        ends = time.monotonic() + self._within(within_s)
        while True:
            # Whoever waits may be cancelled; what was handed over is not.
            done, _ = await asyncio.wait({future}, timeout=max(0.0, min(_LOOK_EVERY_S, ends - time.monotonic())))
            if done:
                return future.result()
            if self._watch.away_s > _PATIENCE_S:
                raise CallFailed(Code.UNAVAILABLE, f"not known to be written, and may be later: {self._watch.problem}")
            if time.monotonic() >= ends:
                raise CallFailed(Code.DEADLINE_EXCEEDED, "not durable before the deadline: they may be written later")

    def _within(self, within_s: float | None) -> float:
        return self._settings.timeout_s if within_s is None else max(0.0, within_s)


def _look_at(future: "asyncio.Future[list[Placed]]") -> None:
    """Nobody may be left to hear of it: then it is no error that nobody looked at."""
    if not future.cancelled():
        future.exception()


def _entry(record: Any, now_ms: int) -> Entry:
    if record.timestamp_ms < 0:
        raise CallFailed(
            Code.INVALID_ARGUMENT, f"timestamp_ms is {record.timestamp_ms}: give milliseconds since 1970, or 0 for now"
        )
    headers = tuple((header.key, header.value) for header in record.headers)
    key = record.key if record.HasField("key") else None
    value = record.value if record.HasField("value") else None
    return key, value, record.timestamp_ms or now_ms, headers
