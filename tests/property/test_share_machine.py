"""The records of a share group under hypothesis: acquired, acknowledged, released, lapsed, forgotten in a crash.

The model knows every offset by itself. After every step: a record is held by one member at a time; a finished one is
never delivered again; none is delivered more often than the limit; none is lost, for whatever is not finished is either
held or available; and the records that were written so far, read again, give the same state but for who holds what.
A group may go by keys: then whatever is delivered is the first unfinished record of its key. Or it has a single active
member: then nobody else is given anything before that one is gone.
What is acknowledged in a transaction is held, over any restart, until that ends, and then finished or available again.
Where the group has a topic for dead letters, what is given up is finished by its letter and by nothing else.
"""

from dataclasses import dataclass

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headrace.coordinator.share.acknowledgement import Acknowledgement, AckType
from headrace.coordinator.share.coordinator import (
    Acknowledged,
    Altered,
    Deleted,
    Drafts,
    LettersWritten,
    LimitsChanged,
    LocksLapsed,
    MemberGone,
    ShareCoordinator,
    SnapshotWanted,
    Started,
    TransactionEnded,
    Truncated,
)
from headrace.coordinator.share.partition import Acquisition, Moment, Producer, RecordState, Run, ShareLimits, Span
from headrace.coordinator.share.records import ShareKey, decode, encode
from headrace.delivery.order import Order
from headrace.protocol.errors import ErrorCode
from tests.property.storage_model import examples

KEY = ShareKey("group", b"t" * 16, 0)
MEMBERS = st.sampled_from(["a", "b", "c"])
LONG_KEY = b"k" * 100
KEYS = st.sampled_from([b"x", b"x", b"y", LONG_KEY, None])
AVAILABLE, HELD, PENDING, GIVEN_UP, FINISHED = "available", "held", "pending", "given up", "finished"
PRODUCERS = st.builds(Producer, st.integers(0, 1), st.integers(0, 2))


@dataclass
class Record:
    is_deliverable: bool
    key: bytes | None = None
    state: str = AVAILABLE
    deliveries: int = 0
    holder: str = ""
    deadline_ms: int = 0
    kept_until_ms: int = 0
    reason: str = ""  # of the last failure, where there are letters
    producer: Producer | None = None  # in whose transaction it is acknowledged
    ack: AckType | None = None


class ShareMachine(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.coordinator = ShareCoordinator(updates_per_snapshot=3)
        self.limits = ShareLimits(lock_ms=100, delivery_count=3, record_locks=12)
        self.log = []  # spans
        self.records = []  # by offset
        self.written = []  # as bytes
        self.now_ms = 0
        self.log_start = 0
        self.active = ""
        self.is_retiring = False
        self.tell(Started(KEY, 0))

    # --- the shell

    def tell(self, *events, is_lost=False):
        decision = self.coordinator.decide(events, self.now_ms, self.now_ms)
        if is_lost:  # it could not be written: nothing has happened
            return None
        for record in decision.records:
            if isinstance(record.key, Drafts):
                self.coordinator.install(record.value)
            else:
                self.written.append(encode(record))
        return decision

    @property
    def partition(self):
        return self.coordinator.partition(KEY)

    @property
    def end(self):
        return len(self.records)

    # --- the log

    @rule(
        sizes=st.lists(st.tuples(st.integers(1, 5), st.sampled_from([True, True, True, False])), min_size=1, max_size=4)
    )
    def produce(self, sizes):
        for size, is_deliverable in sizes:
            self.log.append(Span(self.end, self.end + size - 1, is_deliverable))
            self.records += [Record(is_deliverable) for _ in range(size)]

    @rule(keys=st.lists(KEYS, min_size=1, max_size=6))
    def produce_with_keys(self, keys):
        for key in keys:
            self.log.append(Span(self.end, self.end, key=key))
            self.records.append(Record(True, key))

    @rule(amount=st.integers(1, 6))
    @precondition(lambda self: self.end > self.log_start)
    def lose_the_end_of_the_log(self, amount):
        end = max(self.end - amount, self.log_start)
        del self.records[end:]
        self.log = [span._replace(last=min(span.last, end - 1)) for span in self.log if span.first < end]
        if self.partition.end > end:
            self.tell(Truncated(KEY, end))
        self.let_go()

    @rule(amount=st.integers(1, 6))
    @precondition(lambda self: self.log_start < self.end)
    def delete_from_the_log(self, amount):
        self.log_start = min(self.log_start + amount, self.end)
        self.partition.advance(self.log_start)
        for record in self.records[: self.log_start]:
            record.state = FINISHED
        self.let_go()

    # --- members

    @rule(member=MEMBERS, count=st.integers(1, 6), is_exact=st.booleans())
    def acquire(self, member, count, is_exact):
        partition = self.partition
        if not partition.can_acquire(self.limits):
            assert not any(self.has_turn(o) for o in range(partition.start, partition.end))
            return
        offset = partition.next_offset()
        spans = [span for span in self.log if span.last >= offset]
        had_turn = [self.has_turn(o) for o in range(self.end)]
        if not partition.is_open_to(member, self.limits):
            assert self.limits.order is Order.SINGLE
            assert self.active not in ("", member)
            assert partition.acquire(Acquisition(member, count, is_exact), spans, self.limits, self.now_ms) == []
            return
        runs = partition.acquire(Acquisition(member, count, is_exact), spans, self.limits, self.now_ms)

        taken = [offset for run in runs for offset in range(run.first, run.last + 1)]
        assert len(taken) == len(set(taken))
        for run in runs:
            for offset in range(run.first, run.last + 1):
                record = self.records[offset]
                assert record.is_deliverable
                assert record.state == AVAILABLE
                assert record.kept_until_ms <= self.now_ms
                assert had_turn[offset], "another record of its key is before it"
                assert offset >= self.log_start
                record.deliveries += 1
                assert record.deliveries == run.deliveries <= self.limits.delivery_count
                record.state, record.holder = HELD, member
                record.deadline_ms = self.now_ms + self.limits.lock_ms
                if self.limits.order is Order.SINGLE:
                    self.active, self.is_retiring = member, False
        if is_exact:
            assert len(taken) <= count
        else:  # up to the end of the batch in which there is enough
            behind = [span.last for span in self.log if taken and span.first <= taken[-1]]
            assert len(taken) < count or taken[-1] <= behind[-1]
        for offset in range(partition.end):  # what is never delivered is passed over as soon as it is seen
            if not self.records[offset].is_deliverable and self.records[offset].state == AVAILABLE:
                run = next((run for run in partition.runs if run.first <= offset <= run.last), None)
                if run is None or run.is_finished:
                    self.records[offset].state = FINISHED
        if not taken:
            open_offsets = [o for o in range(offset, self.end) if self.can_have(o)]
            assert not open_offsets, "something could have been acquired"

    def can_have(self, offset):
        partition = self.partition
        under_way = sum(
            record.is_deliverable or record.state != FINISHED
            for record in self.records[partition.start : partition.end]
        )
        is_in_window = offset < partition.end or under_way < self.limits.record_locks
        return self.has_turn(offset) and is_in_window

    def has_turn(self, offset):
        """Whether a record could be delivered: if the group goes by keys, no other of its key is before it."""
        record = self.records[offset]
        return (
            record.is_deliverable
            and record.state == AVAILABLE
            and record.kept_until_ms <= self.now_ms
            and not (
                self.limits.order is Order.KEY
                and record.key is not None
                and any(
                    other.key == record.key and other.is_deliverable and other.state != FINISHED
                    for other in self.records[:offset]
                )
            )
        )

    @rule(member=MEMBERS, data=st.data(), is_lost=st.booleans())
    def acknowledge(self, member, data, is_lost):
        held = [
            offset for offset, record in enumerate(self.records) if record.state == HELD and record.holder == member
        ]
        if not held:
            return
        first = data.draw(st.sampled_from(held))
        last = first
        while last + 1 in held and data.draw(st.booleans()):
            last += 1
        kinds = st.sampled_from([AckType.ACCEPT, AckType.RELEASE, AckType.REJECT, AckType.RENEW, AckType.GAP])
        size = last - first + 1
        types = data.draw(st.lists(kinds, min_size=1, max_size=1) | st.lists(kinds, min_size=size, max_size=size))
        reason = data.draw(st.sampled_from(["", "no such customer"]))
        after_ms = data.draw(st.sampled_from([-1, -1, 0, 70]))
        is_unseen = data.draw(st.sampled_from([False, False, True]))
        said = Acknowledgement(first, last, types, after_ms, reason, is_unseen)
        event = Acknowledged(KEY, member, [said], self.limits)
        decision = self.tell(event, is_lost=is_lost)
        if is_lost:
            return
        assert decision.refusals == (None,)
        for offset in range(first, last + 1):
            record, ack = self.records[offset], types[0] if len(types) == 1 else types[offset - first]
            if ack == AckType.RENEW:
                record.deadline_ms = self.now_ms + self.limits.lock_ms
            elif ack == AckType.RELEASE and is_unseen:
                record.state, record.holder, record.kept_until_ms = AVAILABLE, "", self.now_ms
                record.deliveries -= 1
            elif ack == AckType.RELEASE:
                self.release(record, reason or "released", after_ms)
            elif ack == AckType.REJECT:
                self.give_up(record, reason or "rejected")
            else:
                record.state = FINISHED
        self.let_go()

    def let_go(self):
        if self.is_retiring and not any(r.state in (HELD, PENDING) and r.holder == self.active for r in self.records):
            self.active, self.is_retiring = "", False

    @rule(member=MEMBERS, producer=PRODUCERS, data=st.data(), is_lost=st.booleans())
    def acknowledge_in_a_transaction(self, member, producer, data, is_lost):
        held = [
            offset for offset, record in enumerate(self.records) if record.state == HELD and record.holder == member
        ]
        if not held:
            return
        offsets = data.draw(st.lists(st.sampled_from(held), min_size=1, max_size=3, unique=True))
        kinds = data.draw(
            st.lists(
                st.sampled_from([AckType.ACCEPT, AckType.GAP, AckType.REJECT]),
                min_size=len(offsets),
                max_size=len(offsets),
            )
        )
        batches = [
            Acknowledgement(offset, offset, [ack], reason="no such customer")
            for offset, ack in zip(offsets, kinds, strict=True)
        ]
        decision = self.tell(Acknowledged(KEY, member, batches, self.limits, producer), is_lost=is_lost)
        if is_lost:
            return
        assert decision.refusals == (None,)
        for offset, ack in zip(offsets, kinds, strict=True):
            record = self.records[offset]
            record.state, record.producer, record.ack = PENDING, producer, ack
            if ack is AckType.REJECT and self.limits.has_letters:
                record.reason = "no such customer"

    @rule(producer=PRODUCERS, is_committed=st.booleans(), is_lost=st.booleans())
    def end_transaction(self, producer, is_committed, is_lost):
        """Of a producer every transaction up to this epoch ends, once and for all: to say so again changes nothing."""
        event = TransactionEnded(KEY, producer, self.limits, is_committed)
        self.tell(event, is_lost=is_lost)
        if is_lost:
            return
        for record in self.records:
            of = record.producer
            if record.state != PENDING or of.id != producer.id or of.epoch > producer.epoch:
                continue
            record.producer = None
            if not is_committed:
                self.release(record, "aborted", -1)
            elif record.ack is AckType.REJECT:
                self.give_up(record, record.reason or "rejected")
            else:
                record.state = FINISHED
        self.let_go()
        before = list(self.partition.runs)
        self.tell(event)
        assert self.partition.runs == before

    @rule(member=MEMBERS)
    def stop_fetching(self, member):
        self.partition.retire(member)
        if self.active == member:
            self.is_retiring = True
            self.let_go()

    def release(self, record, reason, after_ms=0):
        record.holder = ""
        if record.deliveries >= self.limits.delivery_count:
            self.give_up(record, reason)
        else:
            record.state, record.reason = AVAILABLE, reason if self.limits.has_letters else ""
            if after_ms < 0:
                after_ms = min(self.limits.backoff_ms * 2 ** (record.deliveries - 1), self.limits.backoff_max_ms)
            record.kept_until_ms = self.now_ms + after_ms

    def give_up(self, record, reason):
        record.state = GIVEN_UP if self.limits.has_letters else FINISHED
        record.reason = reason

    @rule(count=st.integers(1, 3), is_lost=st.booleans())
    def write_letters(self, count, is_lost):
        due = self.partition.letters_due()
        assert bool(due) == any(record.state == GIVEN_UP for record in self.records)
        some = [run._replace(last=min(run.last, run.first + count - 1)) for run in due[:count]]
        self.tell(LettersWritten(KEY, some), is_lost=is_lost)
        for run in [] if is_lost else some:
            for offset in range(run.first, run.last + 1):
                assert self.records[offset].state == GIVEN_UP
                self.records[offset].state = FINISHED

    @rule()
    def write_letters_of_another_failure(self):
        """Letters that were read before the offsets were altered say nothing of what was given up since."""
        before = list(self.partition.runs)
        stale = [run._replace(failure=run.failure._replace(last_ms=-7)) for run in self.partition.letters_due()]
        self.tell(LettersWritten(KEY, stale))
        assert self.partition.runs == before

    @rule(has_letters=st.booleans())
    def change_whether_there_are_letters(self, has_letters):
        self.limits = self.limits._replace(has_letters=has_letters)
        self.tell(LimitsChanged(KEY, self.limits))
        for record in self.records:
            if record.state == GIVEN_UP and not has_letters:
                record.state = FINISHED

    @rule(
        member=MEMBERS,
        first=st.integers(0, 30),
        size=st.integers(1, 4),
        also=st.booleans(),
        producer=st.none() | PRODUCERS,
    )
    def acknowledge_what_is_not_held(self, member, first, size, also, producer):
        last = first + size - 1
        open_part = [self.records[o] for o in range(max(first, self.partition.start), min(last + 1, self.end))]
        is_mine = open_part and all(r.state == HELD and r.holder == member for r in open_part)
        if is_mine and last < self.partition.end and (producer is None or first >= self.partition.start):
            return
        batches = [Acknowledgement(first, last, [AckType.ACCEPT])]
        mine = [
            o for o, record in enumerate(self.records) if record.state == HELD and record.holder == member and o < first
        ]
        if also and mine:  # nothing of a request that is refused in part is carried out
            batches.insert(0, Acknowledgement(mine[0], mine[0], [AckType.ACCEPT]))
        before = list(self.partition.runs)
        is_past = producer is None and last < self.partition.start  # there is nothing left to say of it
        if is_past:
            batches = batches[-1:]
        (refusal,) = self.tell(Acknowledged(KEY, member, batches, self.limits, producer)).refusals
        if is_past:
            assert refusal is None
            assert self.partition.runs == before
            return
        assert refusal.code in (ErrorCode.INVALID_RECORD_STATE, ErrorCode.INVALID_REQUEST)
        assert self.partition.runs == before

    @rule(member=MEMBERS)
    def lose_member(self, member):
        self.tell(MemberGone(KEY, member, self.limits))
        for record in self.records:
            if record.state == HELD and record.holder == member:
                self.release(record, "left")
        if self.active == member:
            self.active, self.is_retiring = "", False

    @rule(by_ms=st.sampled_from([1, 60, 150]))
    def pass_time(self, by_ms):
        self.now_ms += by_ms
        self.tell(LocksLapsed(KEY, self.limits))
        for record in self.records:
            if record.state == HELD and record.deadline_ms <= self.now_ms:
                self.is_retiring = self.is_retiring or record.holder == self.active
                self.release(record, "lapsed", -1)
        self.let_go()

    # --- the group and the broker

    @rule(limit=st.integers(2, 4), order=st.sampled_from(Order), backoff_ms=st.sampled_from([0, 0, 40]))
    def change_the_limits(self, limit, order, backoff_ms):
        self.limits = self.limits._replace(
            delivery_count=limit, order=order, backoff_ms=backoff_ms, backoff_max_ms=3 * backoff_ms // 2
        )
        self.tell(LimitsChanged(KEY, self.limits))
        if order is not Order.SINGLE:
            self.active, self.is_retiring = "", False
        for record in self.records[: self.partition.end]:
            if record.state == AVAILABLE and record.is_deliverable and record.deliveries >= limit:
                self.give_up(record, record.reason or "lowered")

    @rule(offset=st.integers(0, 20))
    def alter_the_start(self, offset):
        offset = min(max(offset, self.log_start), self.end)
        self.tell(Altered(KEY, offset))
        for number, record in enumerate(self.records):
            if record.state == GIVEN_UP and number < offset:  # its letter was promised
                continue
            state = FINISHED if number < offset else AVAILABLE
            self.records[number] = Record(record.is_deliverable, record.key, state)
        self.active, self.is_retiring = "", False

    @rule(offset=st.integers(0, 20))
    def delete_the_state(self, offset):
        offset = min(max(offset, self.log_start), self.end)
        self.tell(Deleted(KEY))
        assert self.partition is None
        self.tell(Started(KEY, offset))
        for number, record in enumerate(self.records):
            state = FINISHED if number < offset else AVAILABLE
            self.records[number] = Record(record.is_deliverable, record.key, state)
        self.active, self.is_retiring = "", False

    @rule()
    def prune(self):
        self.tell(SnapshotWanted(KEY))
        self.written = self.written[-1:]

    @rule()
    def crash(self):
        self.coordinator = self.reloaded()
        self.partition.advance(self.log_start)
        for record in self.records:
            record.kept_until_ms = 0
            if record.state == PENDING:
                record.holder = "before a restart"
            elif record.state == HELD:
                record.state, record.holder = AVAILABLE, ""
                record.deliveries -= 1
            elif record.state == FINISHED and not record.is_deliverable and record.deliveries == 0:
                record.state = AVAILABLE  # it is passed over again
        for record in self.records[: self.partition.start]:
            record.state = FINISHED
        # Whoever has something in a transaction is the one active member, if there is to be one, and retires.
        is_one = self.limits.order is Order.SINGLE and any(record.state == PENDING for record in self.records)
        self.active, self.is_retiring = ("before a restart" if is_one else ""), is_one
        self.tell(LimitsChanged(KEY, self.limits))
        for record in self.records[: self.partition.end]:
            if record.state == AVAILABLE and record.deliveries >= self.limits.delivery_count:
                self.give_up(record, record.reason or "lowered")

    def reloaded(self):
        fresh = ShareCoordinator(updates_per_snapshot=3)
        for key, value in self.written:
            fresh.apply(decode(key, value))
        return fresh

    # --- what always holds

    @invariant()
    def runs_are_whole(self):
        partition = self.partition
        reached = partition.start
        for run in partition.runs:
            assert run.first == reached <= run.last
            reached = run.last + 1
        assert reached == partition.end
        for left, right in zip(partition.runs, partition.runs[1:], strict=False):
            assert left[2:] != right[2:], "equal neighbours are one run"
        assert partition.finished == sum(run.size for run in partition.runs if run.is_finished)
        if partition.runs:
            assert not partition.runs[0].is_finished
        assert partition.skipped == sum(run.size for run in partition.runs if run.is_skipped)
        assert partition.active == self.active

    @invariant()
    def every_record_is_as_in_the_model(self):
        partition = self.partition
        assert all(record.state == FINISHED for record in self.records[: partition.start] if record.is_deliverable)
        for run in partition.runs:
            for offset in range(run.first, run.last + 1):
                record = self.records[offset]
                if not record.is_deliverable:
                    assert run.state in (RecordState.AVAILABLE, RecordState.ARCHIVED)
                elif run.state is RecordState.ACQUIRED:
                    assert (record.state, record.holder) == (HELD, run.holder)
                    assert record.deadline_ms == run.deadline_ms > self.now_ms
                    assert record.deliveries == run.deliveries
                elif run.state is RecordState.PENDING:
                    assert (record.state, record.producer, record.ack) == (PENDING, *run.pending)
                    assert (record.deliveries, record.holder) == (run.deliveries, run.holder)
                elif run.state in (RecordState.AVAILABLE, RecordState.KEPT_BACK):
                    assert record.state == AVAILABLE
                    assert run.state is RecordState.AVAILABLE or not self.has_turn(offset), "nobody will be woken"
                    assert record.deliveries == run.deliveries
                elif run.state is RecordState.ARCHIVING:
                    assert record.state == GIVEN_UP
                    assert record.deliveries == run.deliveries
                    assert record.reason in run.failure.reason
                    assert 0 <= run.failure.first_ms <= run.failure.last_ms <= self.now_ms
                else:
                    assert record.state == FINISHED
        assert all(record.state == AVAILABLE for record in self.records[partition.end :] if record.is_deliverable)
        expected = {record.producer for record in self.records if record.state == PENDING}
        assert {producer for _, producer in self.coordinator.pending()} == expected

    @invariant()
    def what_is_written_gives_the_same_state(self):
        again, live = self.reloaded().partition(KEY), self.partition
        again.advance(self.log_start)
        for offset in range(min(again.start, live.start), max(again.end, live.end)):
            if self.records[offset].is_deliverable and offset >= self.log_start:
                assert kept_state(again, offset) == kept_state(live, offset), offset


def kept_state(partition, offset):
    if offset < partition.start:
        return FINISHED
    for run in partition.kept():
        if run.first <= offset <= run.last:
            return FINISHED if run.is_finished else (run.state, run.deliveries, run.failure, run.pending)
    return RecordState.AVAILABLE, 0, None, None


TestShareMachine = ShareMachine.TestCase
TestShareMachine.settings = examples(200, stateful_step_count=40)


def test_a_back_off_doubles_up_to_its_longest_and_is_spread_by_jitter():
    limits = ShareLimits(backoff_ms=100, backoff_max_ms=350)
    runs = [Run(0, 0, RecordState.ACQUIRED, deliveries) for deliveries in (1, 2, 3, 40)]
    assert [limits.backoff_of(run, Moment(0, 0)) for run in runs] == [100, 200, 350, 350]
    spread = {limits._replace(jitter=20).backoff_of(runs[0], Moment(now_ms, 0)) for now_ms in range(200)}
    assert min(spread) >= 80
    assert max(spread) <= 120
    assert len(spread) > 20
