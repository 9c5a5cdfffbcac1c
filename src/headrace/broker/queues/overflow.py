"""Partitions that are full: what `headrace.overflow` says is done to a batch that comes, before it is appended.

A partition holds what share groups have yet to finish, or all of its log if no group shares the topic; one in memory
holds the bytes that it takes there, whatever is finished, and what its followers still need. `delivery/overflow.py`
decides; here is the log to measure, the clock, and those that wait. Markers, and messages whose time has come, need no
room; copies for bindings do.

What always holds: a batch that waits is appended once and in its order, or not at all, and is then refused; it is
nowhere but in the line until then. Every record that is dropped, and every batch that is refused or has to wait, is
counted.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakKeyDictionary

from headrace.broker.errors import BrokerError
from headrace.broker.limits import MOST_BLOCKED_BYTES
from headrace.broker.topics import Topic
from headrace.delivery.overflow import Gate, Limit, Numbered, Policy, Size, Verdict
from headrace.errors import HeadraceError
from headrace.protocol.errors import ErrorCode
from headrace.records import BatchHeader, Buffer, header_at
from headrace.storage.errors import OutOfOrderSequence
from headrace.storage.log import Log
from headrace.storage.reading import offset_behind, size_from

if TYPE_CHECKING:
    from headrace.broker.runtime import Runtime

_LOOK_AGAIN_S = 0.5  # while somebody waits: retention, DeleteRecords and deleted groups make room and tell nobody
_APPENDED_AT_ONCE = 16
_PATIENCE = 0.9  # of the request's own time-out: its client still has to receive the answer
_LONGEST_MS = 300_000  # whatever the time-out is: of a client whose machine is gone nobody hears


class Action(StrEnum):
    """What was done because a partition was full; dropped records are counted each, the rest by the batch."""

    BLOCKED = "blocked"
    TIMED_OUT = "timed_out"
    REJECTED = "rejected"
    TOO_LARGE = "too_large"
    DROPPED_OLDEST = "dropped_oldest"
    DROPPED_NEWEST = "dropped_newest"


class Incoming(NamedTuple):
    """What counts of a batch that comes."""

    header: BatchHeader
    size: Size
    number: Numbered | None

    @classmethod
    def of(cls, batch: Buffer) -> "Incoming":
        header = header_at(batch)
        is_numbered = header.producer_id >= 0 and header.base_sequence >= 0
        number = Numbered(header.producer_id, header.producer_epoch, header.base_sequence) if is_numbered else None
        return cls(header, Size(header.last_offset_delta + 1, len(batch)), number)


class Blocked:
    """A batch that waits for room; `append` and `fail` raise nothing."""

    __slots__ = ("append", "batch", "fail", "log", "timer")

    def __init__(
        self,
        log: Log,
        batch: bytes,
        append: Callable[[bytes, Verdict], None],
        fail: Callable[[HeadraceError], None],
    ) -> None:
        self.log = log
        self.batch = batch
        self.append = append
        self.fail = fail
        self.timer: asyncio.TimerHandle | None = None


class Overflow:
    def __init__(self, runtime: "Runtime") -> None:
        self._runtime = runtime
        self.counts: Counter[tuple[str, Action]] = Counter()  # by topic
        self._gates: WeakKeyDictionary[Log, Gate[Blocked]] = WeakKeyDictionary()
        self._blocked: dict[Log, Gate[Blocked]] = {}  # where somebody waits
        self._blocked_bytes = 0
        self._look: asyncio.TimerHandle | None = None
        self._is_over = False

    @property
    def blocked(self) -> int:
        """How many batches wait."""
        return sum(len(gate) for gate in self._blocked.values())

    def judge(self, log: Log, batch: Buffer) -> Verdict:
        """What is to become of a batch: TAKE, for which there is room now, WAIT or DROP; an error if it is refused."""
        incoming = Incoming.of(batch)
        limit = _limit_of(log)
        gate = self._gates.get(log)
        if gate is None:
            gate = self._gates[log] = Gate()
        if incoming.number is not None:
            recognised = _recognise(log, incoming.header, limit)
            if recognised is not None:
                return recognised
            if _is_next(log, incoming.number):  # whatever was refused before it has come while nobody was asked
                gate.took(incoming.number)
        held = self._measure(log, limit, incoming.size)
        verdict = gate.judge(limit, held, incoming.size, incoming.number)
        if verdict is Verdict.WAIT and (self._blocked_bytes + len(batch) > MOST_BLOCKED_BYTES or self._is_over):
            verdict = Verdict.REFUSE
        return self._settle(log, limit, held, incoming, verdict)

    def _settle(self, log: Log, limit: Limit, held: Size, incoming: Incoming, verdict: Verdict) -> Verdict:
        """Do what follows from a verdict besides appending: count, remember, make room; or raise."""
        size, number = incoming.size, incoming.number
        match verdict:
            case Verdict.REFUSE:
                raise self._refuse(log, number)
            case Verdict.TOO_LARGE:
                self._count(log, Action.TOO_LARGE)
                raise BrokerError(
                    ErrorCode.MESSAGE_TOO_LARGE,
                    f"a batch of {size.records} records and {size.bytes} bytes never fits into {log.topic_partition}, "
                    f"which holds {_name(limit)}: send smaller batches",
                )
            case Verdict.DROP:
                self._count(log, Action.DROPPED_NEWEST, size.records)
                return verdict
            case Verdict.WAIT:
                return verdict
            case Verdict.MAKE_ROOM:
                self._make_room(log, limit.excess(held, size))
        if number is not None:
            self._gates[log].took(number)
        return Verdict.TAKE

    def _refuse(self, log: Log, number: Numbered | None, action: Action = Action.REJECTED) -> BrokerError:
        """The error for a batch that its client is to send again.

        NOT_ENOUGH_REPLICAS is Kafka's way to say that nothing was appended: every client tries again, after a pause.
        """
        if number is not None:
            self._gates[log].refused(number)
        self._count(log, action)
        if action is Action.TIMED_OUT:
            return BrokerError(
                ErrorCode.REQUEST_TIMED_OUT,
                f"{log.topic_partition} stayed full, with {_name(_limit_of(log))}: nothing was appended",
            )
        return BrokerError(
            ErrorCode.NOT_ENOUGH_REPLICAS,
            f"{log.topic_partition} is full, with {_name(_limit_of(log))}: send it again when consumers have caught up",
        )

    # --- how full it is

    def _topic(self, log: Log) -> Topic | None:
        """Whose log it is; None if it was deleted, whatever topic has the name now."""
        name, partition = log.topic_partition
        topic = self._runtime.topics.by_name.get(name)
        return topic if topic and topic.partitions[partition : partition + 1] == (log,) else None

    def _first_held(self, log: Log) -> int:
        topic, finished = self._topic(log), self._runtime.finished
        look_up = finished.first_needed if log.config.is_in_memory else finished.first_unfinished
        first = look_up(topic, log.topic_partition.partition) if topic else None
        return log.start_offset if first is None else first

    def _measure(self, log: Log, limit: Limit, batch: Size) -> Size:
        first = self._first_held(log)
        size = log.size_bytes
        if limit.bytes >= 0 and size + batch.bytes > limit.bytes:
            if log.config.is_in_memory:
                self._runtime.finished.free_memory(log, first)
                size = log.size_bytes
            else:
                size = size_from(log, first)
        return Size(log.end_offset - first, size)

    def _make_room(self, log: Log, excess: Size) -> None:
        """Drop the oldest records that are held, and no more of them than readers may see."""
        first = self._first_held(log)
        start = first + excess.records
        if excess.bytes:
            start = max(start, offset_behind(log, first, excess.bytes, by_segment=log.config.is_in_memory))
        start = min(start, self._runtime.high_watermark(log))
        if start <= first:
            return
        self._count(log, Action.DROPPED_OLDEST, start - first)
        if log.config.is_in_memory:
            self._runtime.finished.free_memory(log, start)
        else:
            log.advance_start(start)
            topic = self._topic(log)
            if topic is not None:
                self._runtime.finished.free_soon(topic, log.topic_partition.partition)

    def _count(self, log: Log, action: Action, count: int = 1) -> None:
        self.counts[log.topic_partition.topic, action] += count

    # --- those that wait

    def wait(self, blocked: Blocked, timeout_ms: int) -> None:
        """Have a batch appended when there is room, or refused when its time is up."""
        loop = asyncio.get_running_loop()
        incoming = Incoming.of(blocked.batch)
        gate = self._blocked.setdefault(blocked.log, self._gates[blocked.log])
        gate.wait(blocked, incoming.size, incoming.number)
        self._blocked_bytes += len(blocked.batch)
        self._count(blocked.log, Action.BLOCKED)
        blocked.timer = loop.call_later(min(max(0, timeout_ms), _LONGEST_MS) / 1000 * _PATIENCE, self._give_up, blocked)
        if self._look is None:
            self._look = loop.call_later(_LOOK_AGAIN_S, self._look_at_all)

    def leave(self, blocked: Blocked) -> bool:
        """Wait no more; whether it did."""
        if not self._gates[blocked.log].leave(blocked):
            return False
        self._left(blocked)
        return True

    def _left(self, blocked: Blocked) -> None:
        self._blocked_bytes -= len(blocked.batch)
        if blocked.timer:
            blocked.timer.cancel()
        if not self._gates[blocked.log]:
            self._blocked.pop(blocked.log, None)

    def _give_up(self, blocked: Blocked, action: Action = Action.TIMED_OUT) -> None:
        if self.leave(blocked):
            blocked.fail(self._refuse(blocked.log, Incoming.of(blocked.batch).number, action))
            self._look_at(blocked.log)  # those behind it may be smaller

    def look_soon(self, log: Log) -> None:
        """There may be room in a log again."""
        if log in self._blocked:
            asyncio.get_running_loop().call_soon(self._look_at, log)  # not within what has made the room

    def _look_at(self, log: Log) -> None:
        """Append what waits for room in a log, as far as there is some; in a turn of its own, a few at a time."""
        gate = self._blocked.get(log)
        if gate is None:
            return
        for _ in range(_APPENDED_AT_ONCE):
            limit, held = _limit_of(log), Size(0, 0)
            with suppress(HeadraceError):
                if self._topic(log) is not None:  # else the append says that it was deleted
                    held = self._measure(log, limit, gate.first_size())
            found = gate.next(limit, held)
            if found is None:
                return
            blocked, verdict = found
            self._left(blocked)
            try:
                verdict = self._settle(log, limit, held, Incoming.of(blocked.batch), verdict)
            except HeadraceError as error:
                blocked.fail(error)
            else:
                blocked.append(blocked.batch, verdict)
        self.look_soon(log)

    def _look_at_all(self) -> None:
        self._look = None
        for log in tuple(self._blocked):
            self.look_soon(log)
        if self._blocked:
            self._look = asyncio.get_running_loop().call_later(_LOOK_AGAIN_S, self._look_at_all)

    def end(self) -> None:
        """Have everybody answered now, and nobody wait from now on: the broker ends."""
        self._is_over = True
        if self._look:
            self._look.cancel()
        for gate in tuple(self._blocked.values()):
            for blocked in gate.everybody():
                self._give_up(blocked, Action.REJECTED)


def _limit_of(log: Log) -> Limit:
    config = log.config
    return Limit(Policy(config.headrace_overflow), config.headrace_overflow_records, config.headrace_overflow_bytes)


def _recognise(log: Log, header: BatchHeader, limit: Limit) -> Verdict | None:
    """What a producer's numbers say of a batch, however full its partition is; None if it is a new one."""
    try:
        return None if log.producers.check(header, allow_gaps=True) is None else Verdict.TAKE  # it is there already
    except OutOfOrderSequence:
        # It was dropped, and its answer lost; those behind it have come.
        return Verdict.DROP if limit.policy is Policy.DROP_NEWEST else Verdict.TAKE
    except HeadraceError:
        return Verdict.TAKE  # the log refuses it, and says why


def _is_next(log: Log, number: Numbered) -> bool:
    """Whether nothing is missing between what the log has of a producer and a batch."""
    producer = log.producers.producers.get(number.producer_id)
    return producer is not None and producer.epoch == number.epoch and producer.last_sequence + 1 == number.sequence


def _name(limit: Limit) -> str:
    parts = [f"{limit.records} records"] if limit.records >= 0 else []
    return " or ".join([*parts, f"{limit.bytes} bytes"] if limit.bytes >= 0 else parts)
