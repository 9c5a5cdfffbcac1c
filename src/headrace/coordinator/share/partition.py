"""A partition of a topic as one share group sees it: what is available, what is acquired and by whom, what is finished.

Everything before `start` is finished; from `end` on nothing was ever acquired. In between every offset is in exactly
one run, a stretch of offsets in the same state, so that memory and time depend on how many runs are under way, which
the limit of record locks bounds, and not on how many records wait behind them.

What always holds: a record is held by one member at a time; a finished record is never available again; a record is
acquired at most as often as the delivery limit allows; `start` and `end` never go back, except where somebody alters
the group's offsets. Who holds what, and until when, is not kept: after a restart what was acquired is available, and
counted as often as it was when it was last released, as in Kafka.

What is acknowledged in a transaction is pending until that ends: nobody is given it, no lock of it lapses, and that is
kept over a restart. A commit carries the acknowledgement out, an abort releases the record.

What may not be acquired yet is kept back, and acquiring goes on behind it: until its time comes, if it has a deadline,
or until it is its key's turn (`delivery/order.py`). That is not kept over a restart either.
"""

from bisect import bisect_left
from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple
from zlib import crc32

from headrace.coordinator.share.acknowledgement import (
    AS_SET,
    Acknowledgement,
    AckType,
    InvalidAcknowledgement,
    check_form,
    not_acquired,
)
from headrace.delivery.order import KeyOrder, Order
from headrace.protocol.errors import ErrorCode

NOT_STARTED = -1  # where the group begins is not known yet: the offset reset strategy decides
_FEWEST_BEFORE_THROTTLING = 2


class RecordState(IntEnum):
    """The state of a record; the numbers are those of the log."""

    PENDING = -3  # acknowledged in a transaction that is open; in the log it is available, and says so besides
    ARCHIVING = -2  # archived once its dead letter is durable; in the log it is 3, as in Kafka from 4.4 on
    KEPT_BACK = -1  # available later; in the log it is available
    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVED = 4


PENDING, ARCHIVING, KEPT_BACK, AVAILABLE, ACQUIRED, ACKNOWLEDGED, ARCHIVED = RecordState
_UNKNOWN_HOLDER = "before a restart"  # had what is pending: who that was is not kept


_REJECTED = "rejected by its consumer"
_FINISHED_BY = {AckType.GAP: ARCHIVED, AckType.ACCEPT: ACKNOWLEDGED}


class Failure(NamedTuple):
    """What is known of the deliveries that failed, where a group has a topic for dead letters."""

    first_ms: int  # since the epoch, as everybody's clocks
    last_ms: int
    reason: str  # of the last


class Producer(NamedTuple):
    """In whose transaction something is acknowledged; of one producer id a higher epoch is a later one."""

    id: int
    epoch: int


class Pending(NamedTuple):
    """What becomes of a record when a transaction is committed."""

    producer: Producer
    ack: AckType


class Moment(NamedTuple):
    """Now: by the time that locks go by, and by the clock."""

    elapsed_ms: int
    wall_ms: int


class Run(NamedTuple):
    """The offsets from first to last, all in one state; `deliveries` is how often they were delivered."""

    first: int
    last: int
    state: RecordState
    deliveries: int
    holder: str = ""  # who has them: a member, for as long as it has a session
    deadline_ms: int = 0  # when its lock lapses, or it is not kept back any more
    failure: Failure | None = None
    pending: Pending | None = None

    @property
    def size(self) -> int:
        return self.last - self.first + 1

    @property
    def is_finished(self) -> bool:
        return self.state >= ACKNOWLEDGED

    @property
    def is_skipped(self) -> bool:
        """Whether it was finished without ever having been delivered."""
        return self.state is ARCHIVED and not self.deliveries


class Span(NamedTuple):
    """A stretch of the log that was read: a batch, a record, or what is never delivered, such as a marker or a gap."""

    first: int
    last: int
    is_deliverable: bool = True
    key: bytes | None = None  # of a single record, where the group goes by keys
    reason: str = ""  # why it is not delivered, if that is worth a dead letter


class ShareLimits(NamedTuple):
    """What a group's settings allow, and in which order."""

    lock_ms: int = 30_000
    delivery_count: int = 5
    record_locks: int = 2_000
    renews: bool = True
    order: Order = Order.NONE
    has_letters: bool = False  # what is given up becomes a dead letter
    backoff_ms: int = 0  # after the first delivery that failed; after each further one twice as long
    backoff_max_ms: int = 0
    jitter: int = 0  # by how many percent that is longer or shorter

    def backoff_of(self, run: "Run", now: Moment) -> int:
        """How long a run is kept back that was released, or whose lock has lapsed.

        What failed together comes again together, but at another time than others: that hangs on where and when it was.
        """
        if not self.backoff_ms:
            return 0
        longest = max(self.backoff_ms, self.backoff_max_ms)
        backoff_ms = min(self.backoff_ms << min(run.deliveries - 1, 32), longest)
        chance = crc32(b"%d/%d" % (run.first, now.elapsed_ms)) / 2**31 - 1  # from -1 to 1
        return int(backoff_ms * (1 + min(self.jitter, 100) / 100 * chance))


class Acquisition(NamedTuple):
    """How much a member wants: so many records, exactly or up to the end of a batch (KIP-1206)."""

    holder: str
    max_records: int
    is_exact: bool = False


class SharePartition:
    """One partition for one group. What is acquired changes it in place; the rest is done to a copy, a draft."""

    __slots__ = (
        "_ended",
        "_is_retiring",
        "_searched",
        "_turns",
        "active",
        "changes",
        "counted",
        "end",
        "finished",
        "has_pending",
        "kept_until_ms",
        "runs",
        "skipped",
        "start",
        "wants_letters",
    )

    def __init__(self, start: int = NOT_STARTED) -> None:
        self.start = start
        self.end = start
        self.runs: list[Run] = []
        self.finished = 0  # how many offsets from `start` on are
        self.skipped = 0  # how many of them were never delivered
        self.changes: list[Run] = []  # what has to be written of a draft
        self.counted = 0  # how many under way the coordinator has counted
        self.wants_letters = False  # something may be archiving
        self.has_pending = False  # something may be acknowledged in a transaction
        self.kept_until_ms = 0  # when the first that a draft keeps back may come again
        self.active = ""  # the one member that may acquire, where a group has a single one at a time
        self._is_retiring = False  # it acquires nothing more, and is active for as long as it holds something
        self._searched = start  # before this offset nothing is available
        self._turns: KeyOrder | None = None  # where the group goes by keys; drafts have the same one
        self._ended: list[Run] = []  # what a draft finishes, and the turns have yet to be told of

    def draft(self) -> "SharePartition":
        """A copy to be changed; it takes the place of this one once its changes are written."""
        copy = SharePartition(self.start)
        copy.end, copy.finished, copy.skipped, copy._searched = self.end, self.finished, self.skipped, self._searched
        copy.active, copy._is_retiring, copy._turns = self.active, self._is_retiring, self._turns
        copy.runs, copy.wants_letters, copy.has_pending = self.runs.copy(), self.wants_letters, self.has_pending
        return copy

    def settle(self) -> None:
        """A draft was written, and is the partition now: the records behind those that it finished have their turn."""
        ended, self._ended = self._ended, []
        for run in ended:
            self._pass_turns(run.first, run.last)

    @property
    def is_started(self) -> bool:
        return self.start != NOT_STARTED

    # --- acquiring

    def next_offset(self) -> int:
        """The first offset that could be acquired, if the log has a record there and `can_acquire` was asked."""
        for index in range(self._index_of(self._searched), len(self.runs)):
            run = self.runs[index]
            if run.state is AVAILABLE and run.last >= self._searched:
                self._searched = max(run.first, self._searched)
                break
        else:
            self._searched = self.end
        if self._turns is not None and self._turns.known < self._searched:  # records that it has yet to know
            return max(self._turns.known, self.start)
        return self._searched

    def can_acquire(self, limits: ShareLimits) -> bool:
        """Whether anything may be acquired: something is available again, or the limit of locks is not reached."""
        self._turns_for(limits)
        return self.next_offset() < self.end or self.under_way < limits.record_locks

    @property
    def under_way(self) -> int:
        """How many offsets count for the limit of locks: whatever was skipped between them takes no lock."""
        return self.end - self.start - self.skipped

    def is_open_to(self, holder: str, limits: ShareLimits) -> bool:
        """Whether a member may acquire at all: where there is a single active one, the others wait until it is gone."""
        return limits.order is not Order.SINGLE or self.active in ("", holder)

    def acquire(self, wanted: Acquisition, spans: Iterable[Span], limits: ShareLimits, now_ms: int) -> list[Run]:
        """Have a member hold what is available of the spans, which are in order; what it holds more than before.

        Records that failed often are delivered in ever smaller numbers, and for the last time alone, so that a bad one
        does not spend the deliveries of its neighbours.
        """
        held: list[Run] = []
        if not self.is_open_to(wanted.holder, limits):
            return held
        turns = self._turns_for(limits)
        left = wanted.max_records
        deadline_ms = now_ms + limits.lock_ms
        for span in spans:
            first = max(span.first, self.start)
            if first > span.last:
                continue
            if not span.is_deliverable:
                self._skip(first, span.last, span.reason if limits.has_letters else "")
                if turns is not None:
                    turns.known = max(turns.known, self.start, span.last + 1)
                continue
            if left <= 0:
                break
            self._extend(first - 1)  # nothing is missing in front of it
            last = min(span.last, self.end - 1 + max(0, limits.record_locks - self.under_way))
            is_full = last < span.last  # whatever comes behind it would be under way with what is in between
            if last >= self.end:
                self._extend(last)
            if turns is not None and first <= last:
                turns.known = max(turns.known, last + 1)
                if span.key is not None and not self._has_turn(turns, first, span.key):
                    continue
            for run in self._between(first, last):
                if run.state is not AVAILABLE:
                    continue
                allowed = run.size
                if wanted.is_exact:
                    allowed = min(allowed, left)
                throttled = throttle(run, limits.delivery_count)
                if throttled is not None and held:
                    return held
                allowed = allowed if throttled is None else min(allowed, throttled)
                if allowed <= 0:
                    break
                last_taken = run.first + allowed - 1
                taken = Run(
                    run.first, last_taken, ACQUIRED, run.deliveries + 1, wanted.holder, deadline_ms, run.failure
                )
                self._put(taken)
                held.append(taken)
                if limits.order is Order.SINGLE:
                    self.active, self._is_retiring = wanted.holder, False
                left -= allowed
                if throttled is not None:
                    return held
            if is_full:
                break
        self._trim()
        return held

    def _skip(self, first: int, last: int, reason: str) -> None:
        """Finish what is never delivered; nobody has to acknowledge it, and after a restart it is skipped again.

        With a reason it becomes a dead letter before.
        """
        if last >= self.end:
            self._extend(last)
        for run in self._between(first, last):
            if run.state is not AVAILABLE and run.state is not KEPT_BACK:
                continue
            if reason:
                self._put(Run(run.first, run.last, ARCHIVING, run.deliveries, failure=Failure(-1, -1, reason)))
            else:
                self._put(Run(run.first, run.last, ARCHIVED, run.deliveries))
                self._pass_turns(run.first, run.last)
        self._trim()

    def in_flight(self) -> int:
        """How many records somebody holds."""
        return sum(run.size for run in self.runs if run.state is ACQUIRED or run.state is PENDING)

    # --- whose turn it is

    def _turns_for(self, limits: ShareLimits) -> KeyOrder | None:
        """The turns of keys, if the group goes by them: they begin with what is unfinished, whoever holds it."""
        if limits.order is not Order.KEY:
            self._forget_turns()
        elif self._turns is None:
            self._turns = KeyOrder(self.start)
        return self._turns

    def _has_turn(self, turns: KeyOrder, offset: int, key: bytes) -> bool:
        """Whether it is the turn of a record; if it is not, it is kept back until it is."""
        (run,) = self._between(offset, offset)
        if run.is_finished:
            return False
        has_turn = turns.note(offset, key)
        if not has_turn and run.state is AVAILABLE:
            self._put(run._replace(state=KEPT_BACK))
        return has_turn

    def _pass_turns(self, first: int, last: int) -> None:
        for offset in self._turns.finish(first, last) if self._turns is not None else ():
            for run in self._between(offset, offset):
                self._offer(run)

    def _forget_turns(self) -> None:
        """Keep nothing back because of its key, until that is known anew."""
        if self._turns is None:
            return
        self._turns = None
        for run in [run for run in self.runs if run.state is KEPT_BACK]:
            self._offer(run)

    def _offer(self, run: Run) -> None:
        """Make available what is kept back, unless it has to wait for its time."""
        if run.state is KEPT_BACK and not run.deadline_ms:
            self._put(run._replace(state=AVAILABLE))
            self._searched = min(self._searched, run.first)

    def retire(self, holder: str) -> None:
        """The active member acquires nothing more: another one may be when it holds nothing any more."""
        if self.active == holder:
            self._is_retiring = True
            self._let_go()

    def _let_go(self) -> None:
        """Have no active member if that one retires, and nothing is left that it holds, not even in a transaction."""
        if self._is_retiring and not any(
            run.state in (ACQUIRED, PENDING) and run.holder == self.active for run in self.runs
        ):
            self.active, self._is_retiring = "", False

    def advance(self, log_start: int) -> None:
        """Leave behind what the log does not have any more, whoever holds it."""
        if self.is_started and self.start < log_start:
            self._extend(log_start - 1)
            self.start = log_start
            self._cut()
            self._forget_turns()
            self._let_go()

    # --- changed in a draft

    def acknowledge(
        self,
        holder: str,
        batches: Iterable[Acknowledgement],
        limits: ShareLimits,
        now: Moment,
        producer: Producer | None = None,
    ) -> None:
        """Carry out all of a member's acknowledgements, or none of them; or do so when a transaction is committed."""
        steps: list[tuple[Run, int, Acknowledgement]] = []
        reached = -1
        for batch in sorted(batches):
            check_form(batch)
            # Of what is finished there is nothing left to say; but whoever says it in a transaction has a result of it,
            # which would be the second one.
            if batch.first <= reached or (producer is not None and batch.first < self.start):
                raise not_acquired(batch.first, batch.last)
            steps += self._check(holder, batch, limits)
            reached = batch.last
        for run, ack, batch in steps:
            if producer is not None:
                self._suspend(run, Pending(producer, AckType(ack)), limits, now, batch.reason)
            elif ack == AckType.RENEW:
                self._put(run._replace(deadline_ms=now.elapsed_ms + limits.lock_ms))
            elif ack == AckType.RELEASE and batch.is_unseen:
                self._take_back(run)
            elif ack == AckType.RELEASE:
                after_ms = batch.retry_after_ms
                after_ms = limits.backoff_of(run, now) if after_ms == AS_SET else after_ms
                self._release(run, limits, now, batch.reason or "released by its consumer", after_ms)
            elif ack == AckType.REJECT:
                self._give_up(run, limits, now, batch.reason or _REJECTED)
            else:
                self._finish(run, _FINISHED_BY[AckType(ack)])
        self._trim()
        self._let_go()

    def _check(
        self, holder: str, batch: Acknowledgement, limits: ShareLimits
    ) -> list[tuple[Run, int, Acknowledgement]]:
        first, last = batch.first, batch.last
        if last < self.start:  # finished already, or gone from the log: there is nothing left to say of it
            return []
        if last >= self.end:
            if not self.runs:
                raise not_acquired(first, last)
            which = "first" if first >= self.end else "last"
            raise InvalidAcknowledgement(
                ErrorCode.INVALID_REQUEST, f"the {which} offset of {first} to {last} is past the acquired records"
            )
        steps = []
        for run in self._between(max(first, self.start), last):
            if run.state is not ACQUIRED or run.holder != holder:
                raise not_acquired(run.first, run.last)
            stretches = batch.stretches(run.first, run.last)
            steps += [(run._replace(first=at, last=to), ack, batch) for at, to, ack in stretches]
        if not limits.renews and any(ack == AckType.RENEW for _, ack, _ in steps):
            raise InvalidAcknowledgement(ErrorCode.INVALID_RECORD_STATE, "locks cannot be renewed in this group")
        return steps

    def _suspend(self, run: Run, pending: Pending, limits: ShareLimits, now: Moment, reason: str) -> None:
        """Leave open what becomes of a record until a transaction ends, which it does in its time: no lock lapses."""
        failure = run.failure
        if pending.ack is AckType.REJECT and limits.has_letters:
            failure = _failed(run, now, reason or _REJECTED)
        suspended = Run(run.first, run.last, PENDING, run.deliveries, run.holder, 0, failure, pending)
        self._put(suspended)
        _append(self.changes, suspended)
        self.has_pending = True

    def transactions(self) -> set[Producer]:
        """Those in which something is acknowledged, and which have not ended."""
        found = {run.pending.producer for run in self.runs if run.pending} if self.has_pending else set()
        self.has_pending = bool(found)
        return found

    def end_transaction(self, producer: Producer, limits: ShareLimits, now: Moment, *, is_committed: bool) -> None:
        """Carry out what was acknowledged in a producer's transactions up to this epoch, or release it."""
        for run in [run for run in self.runs if run.pending]:
            pending = run.pending
            assert pending is not None
            if pending.producer.id != producer.id or pending.producer.epoch > producer.epoch:
                continue
            if not is_committed:
                self._release(run, limits, now, "its transaction was aborted", limits.backoff_of(run, now))
            elif pending.ack is AckType.REJECT:
                self._give_up(run, limits, now, run.failure.reason if run.failure else _REJECTED)
            else:
                self._finish(run, _FINISHED_BY[pending.ack])
        self.transactions()
        self._trim()
        self._let_go()

    def release_of(self, holder: str, limits: ShareLimits, now: Moment) -> None:
        """Take back everything that a member holds."""
        for run in [run for run in self.runs if run.state is ACQUIRED and run.holder == holder]:
            self._release(run, limits, now, "its consumer left without having acknowledged it")
        self._trim()
        self.retire(holder)

    def release_lapsed(self, limits: ShareLimits, now: Moment) -> None:
        """Take back everything whose lock has lapsed, and offer what was kept back until now.

        An active member that let a lock lapse retires: it may hang, and others wait.
        """
        for run in [run for run in self.runs if run.deadline_ms and run.deadline_ms <= now.elapsed_ms]:
            if run.state is KEPT_BACK:
                self._offer(run._replace(deadline_ms=0))
            else:
                reason = "its lock lapsed before its consumer had acknowledged it"
                self._release(run, limits, now, reason, limits.backoff_of(run, now))
                self.retire(run.holder)
        self._trim()

    def change_limits(self, limits: ShareLimits, now: Moment) -> None:
        """Give up what was delivered as often as a limit allows that is lower than before; order may be another.

        What waits for its dead letter is finished without one if the group has no topic for them any more.
        """
        for run in [run for run in self.runs if run.state in (AVAILABLE, KEPT_BACK)]:
            if run.deliveries >= limits.delivery_count:
                self._give_up(run, limits, now, run.failure.reason if run.failure else "the delivery limit was lowered")
        for run in [] if limits.has_letters else self.letters_due():
            self._finish(run, ARCHIVED)
        self._trim()
        if limits.order is not Order.KEY:
            self._forget_turns()
        if limits.order is not Order.SINGLE:
            self.active, self._is_retiring = "", False

    def letters_due(self) -> list[Run]:
        """What is to be archived once its dead letters are durable."""
        due = [run for run in self.runs if run.state is ARCHIVING]
        self.wants_letters = bool(due)
        return due

    def archive_written(self, written: Iterable[Run]) -> None:
        """Finish what has its dead letter: unless it is about another failure than that of the letter."""
        for letters in written:
            for run in self._between(letters.first, letters.last):
                if run.state is ARCHIVING and run.failure == letters.failure:
                    self._finish(run, ARCHIVED)
        self._trim()

    def truncate(self, log_end: int) -> None:
        """Forget what is behind the log's end, whoever holds it."""
        while self.runs and self.runs[-1].last >= log_end:
            run = self.runs.pop()
            self._count(run, max(run.first, log_end) - run.last - 1)
            if run.first < log_end:
                self.runs.append(run._replace(last=log_end - 1))
                break
        self.end = min(self.end, log_end)
        self.start = min(self.start, log_end)
        self._searched = min(self._searched, log_end)
        self._forget_turns()
        self._let_go()

    def moved_to(self, offset: int) -> "SharePartition":
        """The partition as it is if the group begins elsewhere: of what is before that, nothing but letters are due."""
        due = [run._replace(last=min(run.last, offset - 1)) for run in self.letters_due() if run.first < offset]
        moved = SharePartition(due[0].first if due else offset)
        if due:
            moved._extend(offset - 1)
            moved._put(Run(moved.start, offset - 1, ARCHIVED, 0))
        for run in due:
            moved._put(run)
        return moved

    def next_deadline_ms(self) -> int | None:
        return min((run.deadline_ms for run in self.runs if run.deadline_ms), default=None)

    def _release(self, run: Run, limits: ShareLimits, now: Moment, reason: str, after_ms: int = 0) -> None:
        """Make it available again, at once or after a while; that it is kept back is not written."""
        if run.deliveries >= limits.delivery_count:
            self._give_up(run, limits, now, reason)
            return
        failure = _failed(run, now, reason) if limits.has_letters else None
        released = Run(run.first, run.last, AVAILABLE, run.deliveries, failure=failure)
        _append(self.changes, released)
        if after_ms > 0:
            until_ms = now.elapsed_ms + after_ms
            self._put(released._replace(state=KEPT_BACK, deadline_ms=until_ms))
            self.kept_until_ms = min(self.kept_until_ms or until_ms, until_ms)
        else:
            self._put(released)
            self._searched = min(self._searched, run.first)

    def _take_back(self, run: Run) -> None:
        """Make it available again, as if it had not been acquired."""
        released = Run(run.first, run.last, AVAILABLE, run.deliveries - 1, failure=run.failure)
        _append(self.changes, released)
        self._put(released)
        self._searched = min(self._searched, run.first)

    def _give_up(self, run: Run, limits: ShareLimits, now: Moment, reason: str) -> None:
        """Archive it, and if the group has a topic for dead letters not before its letter is durable."""
        if not limits.has_letters:
            self._finish(run, ARCHIVED)
            return
        given_up = Run(run.first, run.last, ARCHIVING, run.deliveries, failure=_failed(run, now, reason))
        self._put(given_up)
        _append(self.changes, given_up)

    def _finish(self, run: Run, state: RecordState) -> None:
        finished = Run(run.first, run.last, state, run.deliveries)
        self._put(finished)
        _append(self.changes, finished)
        if self._turns is not None:
            self._ended.append(finished)

    # --- kept and read again

    def kept(self) -> list[Run]:
        """The runs as they are written: what is acquired as it was before that, and what is new not at all."""
        written: list[Run] = []
        for run in self.runs:
            if run.state is ACQUIRED:
                run = Run(run.first, run.last, AVAILABLE, run.deliveries - 1, failure=run.failure)
            elif run.state is KEPT_BACK:
                run = Run(run.first, run.last, AVAILABLE, run.deliveries, failure=run.failure)
            if run.state is AVAILABLE and not run.deliveries:
                continue
            _append(written, run)
        return written

    def take_in(self, start: int, batches: Iterable[Run]) -> None:
        """Take over what was written: the start, if it is not NOT_STARTED, and runs that replace what is there."""
        if start != NOT_STARTED and not self.is_started:
            self.start = self.end = self._searched = start
        for run in batches:
            if run.last >= self.start:
                run = run._replace(first=max(run.first, self.start))
                if run.pending is not None:  # and where there is one active member, that one is it
                    run = run._replace(holder=_UNKNOWN_HOLDER)
                    self.active, self._is_retiring, self.has_pending = _UNKNOWN_HOLDER, True, True
                self._extend(run.last)
                self._put(run)
        if start > self.start:
            self._extend(start - 1)
            self.start = start
            self._cut()
        self._trim()
        self._searched = self.start
        self._forget_turns()
        self._let_go()

    # --- runs

    def _index_of(self, offset: int) -> int:
        """The index of the run with this offset; of the first one, if it is before all of them."""
        return max(bisect_left(self.runs, (offset + 1,)) - 1, 0)

    def _between(self, first: int, last: int) -> list[Run]:
        """The runs from first to last, the outer ones cut to that."""
        runs = self.runs
        index = self._index_of(first)
        found = []
        while index < len(runs) and (run := runs[index]).first <= last:
            if run.last >= first:
                if run.first < first or run.last > last:
                    run = run._replace(first=max(run.first, first), last=min(run.last, last))
                found.append(run)
            index += 1
        return found

    def _extend(self, last: int) -> None:
        """Have runs up to this offset: what was never acquired is available."""
        if last >= self.end:
            _append(self.runs, Run(self.end, last, AVAILABLE, 0))
            self.end = last + 1

    def _put(self, new: Run) -> None:
        """Replace what is from the run's first offset to its last; equal neighbours become one run."""
        runs = self.runs
        low = self._index_of(new.first)
        high = low
        parts: list[Run] = []
        tail: Run | None = None
        while high < len(runs) and (run := runs[high]).first <= new.last:
            if run.state >= ACKNOWLEDGED:
                self._count(run, max(run.first, new.first) - min(run.last, new.last) - 1)
            if run.first < new.first:
                parts.append(run._replace(last=new.first - 1))
            if run.last > new.last:
                tail = run._replace(first=new.last + 1)
            high += 1
        if new.state >= ACKNOWLEDGED:
            self._count(new, new.size)
        elif new.state is ARCHIVING:
            self.wants_letters = True
        if low > 0 and not parts:
            low -= 1
            parts.append(runs[low])
        _append(parts, new)
        if tail is None and high < len(runs):
            tail = runs[high]
            high += 1
        if tail is not None:
            _append(parts, tail)
        runs[low:high] = parts

    def _count(self, run: Run, amount: int) -> None:
        """Count offsets of a run, or, with a negative amount, count them no more."""
        if run.state >= ACKNOWLEDGED:
            self.finished += amount
            if run.is_skipped:
                self.skipped += amount

    def _trim(self) -> None:
        """Go forward over what is finished."""
        done = 0
        for run in self.runs:
            if not run.is_finished:
                break
            done += 1
            self._count(run, -run.size)
            self.start = run.last + 1
        if done:
            del self.runs[:done]
            self._searched = max(self._searched, self.start)

    def _cut(self) -> None:
        """Drop the runs before the start."""
        while self.runs and self.runs[0].first < self.start:
            run = self.runs[0]
            self._count(run, run.first - min(run.last, self.start - 1) - 1)
            if run.last >= self.start:
                self.runs[0] = run._replace(first=self.start)
                break
            del self.runs[0]
        self._searched = max(self._searched, self.start)
        self._trim()


def throttle(run: Run, delivery_limit: int) -> int | None:
    """How many of a run to deliver at a time if they were delivered often already; None as long as they were not."""
    often = max(_FEWEST_BEFORE_THROTTLING, -(-delivery_limit // 2))
    if run.deliveries < often:
        return None
    if run.deliveries >= delivery_limit - 1 and delivery_limit > _FEWEST_BEFORE_THROTTLING:
        return 1
    return max(1, run.size >> (run.deliveries - often + 1))


def _failed(run: Run, now: Moment, reason: str) -> Failure:
    """What is known of a run's failures with one more."""
    return Failure(run.failure.first_ms if run.failure else now.wall_ms, now.wall_ms, reason)


def _append(runs: list[Run], run: Run) -> None:
    """Add a run at the end, as a part of the last one if that is like it."""
    if runs and runs[-1].last + 1 == run.first and runs[-1][2:] == run[2:]:
        runs[-1] = runs[-1]._replace(last=run.last)
    else:
        runs.append(run)
