"""A partition of a topic as one share group sees it: what is available, what is acquired and by whom, what is finished.

Everything before `start` is finished; from `end` on nothing was ever acquired. In between every offset is in exactly
one run, a stretch of offsets in the same state, so that memory and time depend on how many runs are under way, which
the limit of record locks bounds, and not on how many records wait behind them.

What always holds: a record is held by one member at a time; a finished record is never available again; a record is
acquired at most as often as the delivery limit allows; `start` and `end` never go back, except where somebody alters
the group's offsets. Who holds what, and until when, is not kept: after a restart what was acquired is available, and
counted as often as it was when it was last released, as in Kafka.
"""

from bisect import bisect_left
from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple

from headrace.coordinator.share.acknowledgement import (
    Acknowledgement,
    AckType,
    InvalidAcknowledgement,
    check_form,
    not_acquired,
)
from headrace.protocol.errors import ErrorCode

NOT_STARTED = -1  # where the group begins is not known yet: the offset reset strategy decides
_FEWEST_BEFORE_THROTTLING = 2


class RecordState(IntEnum):
    """The state of a record; the numbers are those of the log."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVED = 4


AVAILABLE, ACQUIRED, ACKNOWLEDGED, ARCHIVED = RecordState


_FINISHED_BY = {AckType.GAP: ARCHIVED, AckType.ACCEPT: ACKNOWLEDGED, AckType.REJECT: ARCHIVED}


class Run(NamedTuple):
    """The offsets from first to last, all in one state; `deliveries` is how often they were delivered."""

    first: int
    last: int
    state: RecordState
    deliveries: int
    holder: str = ""  # who has them: a member, for as long as it has a session
    deadline_ms: int = 0  # when its lock lapses

    @property
    def size(self) -> int:
        return self.last - self.first + 1

    @property
    def is_finished(self) -> bool:
        return self.state >= ACKNOWLEDGED


class Span(NamedTuple):
    """A stretch of the log that was read: a batch, or what is not to be delivered, such as a marker or a gap."""

    first: int
    last: int
    is_deliverable: bool = True


class ShareLimits(NamedTuple):
    """What a group's settings allow, and whether its members may renew locks."""

    lock_ms: int = 30_000
    delivery_count: int = 5
    record_locks: int = 2_000
    renews: bool = True


class Acquisition(NamedTuple):
    """How much a member wants: so many records, exactly or up to the end of a batch (KIP-1206)."""

    holder: str
    max_records: int
    is_exact: bool = False


class SharePartition:
    """One partition for one group. What is acquired changes it in place; the rest is done to a copy, a draft."""

    __slots__ = ("_searched", "changes", "end", "finished", "runs", "start")

    def __init__(self, start: int = NOT_STARTED) -> None:
        self.start = start
        self.end = start
        self.runs: list[Run] = []
        self.finished = 0  # how many offsets from `start` on are
        self.changes: list[Run] = []  # what has to be written of a draft
        self._searched = start  # before this offset nothing is available

    def draft(self) -> "SharePartition":
        """A copy to be changed; it takes the place of this one once its changes are written."""
        copy = SharePartition(self.start)
        copy.end, copy.finished, copy._searched = self.end, self.finished, self._searched
        copy.runs = self.runs.copy()
        return copy

    @property
    def is_started(self) -> bool:
        return self.start != NOT_STARTED

    # --- acquiring

    def next_offset(self) -> int:
        """The first offset that could be acquired, if the log has a record there."""
        for index in range(self._index_of(self._searched), len(self.runs)):
            run = self.runs[index]
            if run.state is AVAILABLE and run.last >= self._searched:
                self._searched = max(run.first, self._searched)
                return self._searched
        self._searched = self.end
        return self.end

    def can_acquire(self, limits: ShareLimits) -> bool:
        """Whether anything may be acquired: something is available again, or the limit of locks is not reached."""
        return self.next_offset() < self.end or self.end - self.start < limits.record_locks

    def acquire(self, wanted: Acquisition, spans: Iterable[Span], limits: ShareLimits, now_ms: int) -> list[Run]:
        """Have a member hold what is available of the spans, which are in order; what it holds more than before.

        Records that failed often are delivered in ever smaller numbers, and for the last time alone, so that a bad one
        does not spend the deliveries of its neighbours.
        """
        held: list[Run] = []
        left = wanted.max_records
        deadline_ms = now_ms + limits.lock_ms
        for span in spans:
            first = max(span.first, self.start)
            if first > span.last:
                continue
            if not span.is_deliverable:
                self._skip(first, span.last)
                continue
            if left <= 0:
                break
            self._extend(first - 1)  # nothing is missing in front of it
            in_flight = self.end - self.start
            last = min(span.last, self.end - 1 + max(0, limits.record_locks - in_flight))
            if last >= self.end:
                self._extend(last)
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
                taken = Run(
                    run.first, run.first + allowed - 1, ACQUIRED, run.deliveries + 1, wanted.holder, deadline_ms
                )
                self._put(taken)
                held.append(taken)
                left -= allowed
                if throttled is not None:
                    return held
        self._trim()
        return held

    def _skip(self, first: int, last: int) -> None:
        """Finish what is never delivered; nobody has to acknowledge it, and after a restart it is skipped again."""
        if last >= self.end:
            self._extend(last)
        for run in self._between(first, last):
            if run.state is AVAILABLE:
                self._put(run._replace(state=ARCHIVED))
        self._trim()

    def in_flight(self) -> int:
        """How many records somebody holds."""
        return sum(run.size for run in self.runs if run.state is ACQUIRED)

    def advance(self, log_start: int) -> None:
        """Leave behind what the log does not have any more, whoever holds it."""
        if self.is_started and self.start < log_start:
            self._extend(log_start - 1)
            self.start = log_start
            self._cut()

    # --- changed in a draft

    def acknowledge(self, holder: str, batches: Iterable[Acknowledgement], limits: ShareLimits, now_ms: int) -> None:
        """Carry out all of a member's acknowledgements, or none of them."""
        steps: list[tuple[Run, int]] = []
        reached = -1
        for batch in sorted(batches):
            check_form(batch)
            if batch.first <= reached:
                raise not_acquired(batch.first, batch.last)
            steps += self._check(holder, batch, limits)
            reached = batch.last
        for run, ack in steps:
            if ack == AckType.RENEW:
                self._put(run._replace(deadline_ms=now_ms + limits.lock_ms))
            elif ack == AckType.RELEASE:
                self._release(run, limits.delivery_count)
            else:
                self._finish(run, _FINISHED_BY[AckType(ack)])
        self._trim()

    def _check(self, holder: str, batch: Acknowledgement, limits: ShareLimits) -> list[tuple[Run, int]]:
        first, last, _ = batch
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
            steps += [(run._replace(first=at, last=to), ack) for at, to, ack in batch.stretches(run.first, run.last)]
        if not limits.renews and any(ack == AckType.RENEW for _, ack in steps):
            raise InvalidAcknowledgement(ErrorCode.INVALID_RECORD_STATE, "locks cannot be renewed in this group")
        return steps

    def release_of(self, holder: str, limits: ShareLimits) -> None:
        """Take back everything that a member holds."""
        for run in [run for run in self.runs if run.state is ACQUIRED and run.holder == holder]:
            self._release(run, limits.delivery_count)
        self._trim()

    def release_lapsed(self, limits: ShareLimits, now_ms: int) -> None:
        """Take back everything whose lock has lapsed."""
        for run in [run for run in self.runs if run.state is ACQUIRED and run.deadline_ms <= now_ms]:
            self._release(run, limits.delivery_count)
        self._trim()

    def archive_spent(self, delivery_limit: int) -> None:
        """Finish what was delivered as often as a limit allows that is lower than before."""
        for run in [run for run in self.runs if run.state is AVAILABLE and run.deliveries >= delivery_limit]:
            self._finish(run, ARCHIVED)
        self._trim()

    def truncate(self, log_end: int) -> None:
        """Forget what is behind the log's end, whoever holds it."""
        while self.runs and self.runs[-1].last >= log_end:
            run = self.runs.pop()
            if run.is_finished:
                self.finished -= run.last - max(run.first, log_end) + 1
            if run.first < log_end:
                self.runs.append(run._replace(last=log_end - 1))
                break
        self.end = min(self.end, log_end)
        self.start = min(self.start, log_end)
        self._searched = min(self._searched, log_end)

    def next_deadline_ms(self) -> int | None:
        return min((run.deadline_ms for run in self.runs if run.state is ACQUIRED), default=None)

    def _release(self, run: Run, delivery_limit: int) -> None:
        if run.deliveries >= delivery_limit:
            self._finish(run, ARCHIVED)
            return
        released = Run(run.first, run.last, AVAILABLE, run.deliveries)
        self._put(released)
        _append(self.changes, released)
        self._searched = min(self._searched, run.first)

    def _finish(self, run: Run, state: RecordState) -> None:
        finished = Run(run.first, run.last, state, run.deliveries)
        self._put(finished)
        _append(self.changes, finished)

    # --- kept and read again

    def kept(self) -> list[Run]:
        """The runs as they are written: what is acquired as it was before that, and what is new not at all."""
        written: list[Run] = []
        for run in self.runs:
            if run.state is ACQUIRED:
                run = Run(run.first, run.last, AVAILABLE, run.deliveries - 1)
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
                self._extend(run.last)
                self._put(run)
        if start > self.start:
            self._extend(start - 1)
            self.start = start
            self._cut()
        self._trim()
        self._searched = self.start

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
            if run.is_finished:
                self.finished -= min(run.last, new.last) - max(run.first, new.first) + 1
            if run.first < new.first:
                parts.append(run._replace(last=new.first - 1))
            if run.last > new.last:
                tail = run._replace(first=new.last + 1)
            high += 1
        if new.is_finished:
            self.finished += new.size
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

    def _trim(self) -> None:
        """Go forward over what is finished."""
        done = 0
        for run in self.runs:
            if not run.is_finished:
                break
            done += 1
            self.finished -= run.size
            self.start = run.last + 1
        if done:
            del self.runs[:done]
            self._searched = max(self._searched, self.start)

    def _cut(self) -> None:
        """Drop the runs before the start."""
        while self.runs and self.runs[0].first < self.start:
            run = self.runs[0]
            if run.is_finished:
                self.finished -= min(run.last, self.start - 1) - run.first + 1
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


def _append(runs: list[Run], run: Run) -> None:
    """Add a run at the end, as a part of the last one if that is like it."""
    if runs and runs[-1].last + 1 == run.first and runs[-1][2:] == run[2:]:
        runs[-1] = runs[-1]._replace(last=run.last)
    else:
        runs.append(run)
