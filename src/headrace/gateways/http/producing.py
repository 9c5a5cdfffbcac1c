"""Records of requests into topics, through the frame's inlets, and what became of them, as a status and a sentence.

What always holds: 200 is said of records that are durable, where each of them is; and of a failure whether they may
have been written all the same.
"""

import asyncio
import time
from collections.abc import Awaitable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Final

from headrace.client.errors import ClientError, LostConnection, Refused, UnknownPartition, UnknownTopic
from headrace.connect.delivery import Entry
from headrace.connect.errors import TakenOver
from headrace.errors import HeadraceError
from headrace.gateways.http.record_form import Given
from headrace.gateways.http.settings import HttpSettings
from headrace.gateways.http.topics import Topics
from headrace.gateways.inlet import Dropped, Inlet, Overloaded, Stopped, Uncertain
from headrace.gateways.writing import Lot, PartlyWritten, Placed
from headrace.model import InvalidTopicName, TopicPartition
from headrace.protocol.errors import ErrorCode

RETRY_AFTER_S: Final = 2
_TOO_LARGE: Final = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)
_DENIED: Final = (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
_BAD: Final = (
    ErrorCode.INVALID_RECORD, ErrorCode.INVALID_TIMESTAMP, ErrorCode.CORRUPT_MESSAGE, ErrorCode.POLICY_VIOLATION,
)  # fmt: skip

Outcome = Placed | HeadraceError


class Away(HeadraceError):
    """The broker is away: nothing was written."""


class Unanswered(HeadraceError):
    """The broker did not answer in time: records may be written, or will be."""


class NotAllowed(HeadraceError):
    """A topic that this gateway does not show."""


def status_of(error: Exception) -> int:
    """What a failure is over HTTP."""
    match error:
        case InvalidTopicName():
            return 400
        case NotAllowed():
            return 403
        case UnknownTopic() | UnknownPartition():
            return 404
        case Refused() if error.code in _TOO_LARGE:
            return 413
        case Refused() if error.code in _DENIED:
            return 403
        case Refused() if error.code in _BAD:
            return 400
        case Away() | Unanswered() | Overloaded() | Dropped() | Stopped() | Uncertain() | TakenOver() | ClientError():
            return 503
    return 500


def may_be_written(error: Exception) -> bool:
    """Whether records that failed so may be in the log all the same."""
    return isinstance(error, Unanswered | Uncertain) or (status_of(error) == 500)


@dataclass(slots=True)
class Producing:
    """For the event loop; an inlet belongs to the gateway, which starts and closes it."""

    settings: HttpSettings
    topics: Topics
    inlet: Inlet

    async def check(self, topic: str, given: Sequence[Given]) -> None:
        """Refuse what cannot be written, before any of it is."""
        if not self.settings.may_produce(topic):
            raise NotAllowed(f"topic {topic!r} cannot be written to here")
        try:
            count = len((await self.topics.topic(topic)).partitions)
        except LostConnection as error:
            raise Away(f"nothing was written: {error}") from None
        for each in given:
            if each.partition is not None and each.partition >= count:
                raise UnknownPartition(TopicPartition(topic, each.partition), count)

    async def write(self, topic: str, given: Sequence[Given]) -> list[Outcome]:
        """What became of each, in their order; records of one key keep theirs. They were checked before."""
        return await (await self.begin(topic, given))

    async def begin(self, topic: str, given: Sequence[Given]) -> Awaitable[list[Outcome]]:
        """Take records in, behind those that were taken in before; what is answered waits for what becomes of them."""
        until = asyncio.get_running_loop().time() + self.settings.timeout_s
        found: list[Outcome] = [Stopped("it was not offered")] * len(given)
        futures: list[tuple[Future[list[Placed]], Sequence[int]]] = []
        for lot, numbers in lots_of(topic, given, time.time_ns() // 1_000_000):
            try:
                futures.append((await self.offer(self.inlet, lot, until), numbers))
            except HeadraceError as error:
                for number in numbers:
                    found[number] = error

        async def outcomes() -> list[Outcome]:
            for future, numbers in futures:
                became = await self.outcome(self.inlet, future, len(numbers), until)
                for number, each in zip(numbers, became, strict=True):
                    found[number] = each
            return found

        return outcomes()

    async def offer(self, inlet: Inlet, lot: Lot, until: float) -> Future[list[Placed]]:
        """Take records in; raises what is in the way, and then none of them will be written."""
        loop = asyncio.get_running_loop()
        while True:
            if inlet.progress.waiting and inlet.bytes_waiting:  # else it is from a time when nobody wanted anything
                raise Away(f"nothing was written: {inlet.progress.problem}")
            found = inlet.offer(lot)
            if found is not None:
                return found
            try:
                async with asyncio.timeout_at(until):
                    await inlet.room()
            except TimeoutError:
                pass
            if loop.time() >= until:
                raise Overloaded("nothing was written: there was no room in time, try again later")

    async def outcome(self, inlet: Inlet, future: Future[list[Placed]], count: int, until: float) -> Sequence[Outcome]:
        """What became of records that were offered, or what is known of it by then."""
        wait = asyncio.wrap_future(future)
        try:
            async with asyncio.timeout_at(until):
                return await asyncio.shield(wait)  # whoever goes away does not take along what others wait behind
        except TimeoutError:
            wait.add_done_callback(lambda done: done.cancelled() or done.exception())
            why = f" ({inlet.progress.problem})" if inlet.progress.problem else ""
            return [
                Unanswered(
                    f"the broker did not answer within {self.settings.timeout_s:g} s{why}: the records may be written "
                    "yet, so send them again with the same Idempotency-Key, or be ready for doubles"
                )
            ] * count
        except PartlyWritten as error:
            return error.outcomes
        except HeadraceError as error:
            return [error] * count


def lots_of(topic: str, given: Sequence[Given], now_ms: int) -> list[tuple[Lot, list[int]]]:
    """The records of each partition that is named, and all of the others, with their numbers."""
    groups: dict[int | None, tuple[list[Entry], list[int]]] = {}
    for number, each in enumerate(given):
        entries, numbers = groups.setdefault(each.partition, ([], []))
        entries.append((each.key, each.value, now_ms if each.timestamp is None else each.timestamp, each.headers))
        numbers.append(number)
    return [(Lot(topic, entries, partition), numbers) for partition, (entries, numbers) in groups.items()]


def shown(outcomes: Sequence[Outcome], *, is_batch: bool) -> tuple[dict[str, Any], int]:
    """The answer to a request that produces, and its status."""
    records = [
        {"partition": each.partition, "offset": each.offset if each.offset >= 0 else None}
        if isinstance(each, Placed)
        else {"error": str(each)}
        for each in outcomes
    ]
    errors = [each for each in outcomes if isinstance(each, Exception)]
    if not errors:
        return ({"records": records} if is_batch else records[0]), 200
    is_written = len(errors) < len(outcomes) or any(map(may_be_written, errors))
    about: dict[str, Any] = {"error": str(errors[0]), "may_be_written": is_written}
    if is_batch:
        about["records"] = records
    return about, status_of(errors[0])


def retry_after(status: int) -> Mapping[str, str]:
    return {"retry-after": str(RETRY_AFTER_S)} if status == 503 else {}
