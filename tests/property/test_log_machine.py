"""A log against a plain list: whatever is done to it, in whatever order, it holds what the list holds.

Crashes are among the things that are done: of what was not flushed a prefix may be left, of what was flushed all.
"""

from random import Random

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headrace.model import TopicPartition
from headrace.records import Codec, ControlType, Header, Record, build_batch, build_marker, records_of
from headrace.storage.compaction import job
from headrace.storage.compaction.cleaner import clean, cleanable
from headrace.storage.config import LogConfig
from headrace.storage.directory import LogDirectory
from headrace.storage.reading import first_at_or_after, youngest
from headrace.testing import FakeClock, MemoryFileSystem, SimulatedCrash
from tests.property.storage_model import (
    Batch,
    compact,
    derive,
    examples,
    producer_facts,
    read_batches,
    read_committed,
    read_records,
    stable_offset,
)

PARTITION = TopicPartition("orders", 0)
KEYS = [b"a", b"b", b"c", b"a key that is longer than what the map keeps whole"]

payloads = st.lists(
    st.tuples(
        st.sampled_from(KEYS),
        st.one_of(st.none(), st.binary(max_size=60), st.just(b"x" * 300)),
        st.integers(-3000, 3000),
        st.booleans(),
    ),
    min_size=1,
    max_size=4,
)
codecs = st.sampled_from(list(Codec))
producers = st.integers(1, 3)
fractions = st.floats(0, 1)
seeds = st.integers(0, 2**32)
crash_modes = st.sampled_from(["random", "random", "random", "lose_everything", "keep_everything"])
configs = st.builds(
    LogConfig,
    cleanup_policy=st.sampled_from([frozenset({"delete"}), frozenset({"compact"}), frozenset({"compact", "delete"})]),
    segment_bytes=st.sampled_from([200, 500, 1200, 5000]),
    segment_ms=st.sampled_from([2000, 10**9]),
    segment_index_bytes=st.sampled_from([16, 10**6]),
    index_interval_bytes=st.sampled_from([0, 150, 4096]),
    retention_ms=st.sampled_from([-1, 3000]),
    retention_bytes=st.sampled_from([-1, 0, 900]),
    delete_retention_ms=st.sampled_from([0, 4000]),
    min_compaction_lag_ms=st.sampled_from([0, 0, 2500]),
    message_timestamp_type=st.sampled_from(["CreateTime", "CreateTime", "LogAppendTime"]),
)


class LogMachine(RuleBasedStateMachine):
    @initialize(config=configs)
    def begin(self, config):
        self.clock = FakeClock()
        self.filesystem = MemoryFileSystem(clock=self.clock, page_bytes=256, sector_bytes=64)
        self.config = config
        self.batches: list[Batch] = []
        self.start = self.end = self.durable = self.cleaned_to = self.uncut_before = 0
        self.leader_epoch = 0
        self.directory = self._open()
        self.log = self.directory.create(PARTITION, config)

    def _open(self):
        return LogDirectory.open("data", config_for=lambda _: self.config, filesystem=self.filesystem, clock=self.clock)

    # --- appending

    def _records(self, payload):
        now = self.clock.now_ms()
        return [
            Record(n, now + shift, key, value, (Header("h", value),) if with_header else ())
            for n, (key, value, shift, with_header) in enumerate(payload)
        ]

    def _append(self, data, *batches, from_client=True):
        info = self.log.append(
            data, now_ms=self.clock.now_ms(), leader_epoch=self.leader_epoch, from_client=from_client
        )
        assert not info.is_duplicate
        assert info.base_offset == self.end
        for batch in batches:
            batch.base = self.end
            stamp = self.config.message_timestamp_type == "LogAppendTime" and batch.marker is None
            batch.records = [
                record._replace(
                    offset=self.end + record.offset, timestamp=self.clock.now_ms() if stamp else record.timestamp
                )
                for record in batch.records
            ]
            batch.max_timestamp = max(record.timestamp for record in batch.records)
            self.batches.append(batch)
            self.end = batch.next
        assert info.last_offset == self.end - 1
        return info

    @rule(payload=st.lists(st.tuples(payloads, codecs), min_size=1, max_size=3))
    def append(self, payload):
        many = [(self._records(each), codec) for each, codec in payload]
        self._append(
            b"".join(build_batch(records, codec=codec) for records, codec in many),
            *(Batch(0, records) for records, _ in many),
        )

    def _next_sequence(self, producer_id, *, new_epoch):
        facts = derive(self.batches).producers.get(producer_id)
        if facts is None:
            return 0, 0
        if new_epoch and facts.transaction_start is None:
            return facts.epoch + 1, 0
        return facts.epoch, facts.last_sequence + 1

    def _append_as_producer(self, producer_id, payload, codec, *, transactional, new_epoch=False):
        epoch, sequence = self._next_sequence(producer_id, new_epoch=new_epoch)
        records = self._records(payload)
        data = build_batch(
            records,
            codec=codec,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=transactional,
        )
        batch = Batch(0, records, producer_id=producer_id, epoch=epoch, sequence=sequence, transactional=transactional)
        info = self._append(data, batch)
        again = self.log.append(data, now_ms=self.clock.now_ms(), leader_epoch=self.leader_epoch)
        assert (again.is_duplicate, again.base_offset, again.last_offset) == (True, info.base_offset, info.last_offset)

    @rule(producer_id=producers, payload=payloads, codec=codecs, new_epoch=st.booleans())
    def append_idempotently(self, producer_id, payload, codec, new_epoch):
        is_open = producer_id in self._open_transactions()
        self._append_as_producer(producer_id, payload, codec, transactional=is_open, new_epoch=new_epoch)

    @rule(producer_id=producers, payload=payloads, codec=codecs)
    def append_in_transaction(self, producer_id, payload, codec):
        self._append_as_producer(producer_id, payload, codec, transactional=True)

    def _open_transactions(self):
        found = derive(self.batches).producers
        return {producer: facts for producer, facts in found.items() if facts.transaction_start is not None}

    @rule(producer_id=producers, commit=st.booleans(), fence=st.booleans())
    def end_transaction(self, producer_id, commit, fence):
        facts = derive(self.batches).producers.get(producer_id)
        if facts is None or (facts.transaction_start is None and not fence):
            return
        kind = ControlType.COMMIT if commit and not fence else ControlType.ABORT
        epoch = facts.epoch + fence
        now = self.clock.now_ms()
        marker = build_marker(kind, producer_id=producer_id, producer_epoch=epoch, coordinator_epoch=1, timestamp=now)
        batch = Batch(0, records_of(marker), producer_id=producer_id, epoch=epoch, transactional=True, marker=kind)
        self._append(marker, batch, from_client=False)

    @rule()
    def begin_leader_epoch(self):
        self.leader_epoch += 1

    # --- looking after it

    @rule(ms=st.sampled_from([1, 1000, 5000]))
    def let_time_pass(self, ms):
        self.clock.advance(ms)

    @rule()
    def roll(self):
        self.log.roll(self.clock.now_ms())

    @rule()
    def flush(self):
        assert self.log.flush() == self.end
        self.durable = self.end

    @rule()
    def flush_rolled(self):
        self.directory.flush_rolled()
        self.durable = max(self.durable, self.log.segments[-1].base_offset)

    @rule()
    def checkpoint(self):
        self.directory.checkpoint()

    @rule(seed=seeds)
    def write_back(self, seed):
        self.filesystem.write_back(Random(seed))

    @rule()
    def retain(self):
        expected = max(self.start, self._retained_from())
        self.directory.enforce_retention()
        if not self.config.compacts:
            assert self.log.start_offset == expected
        assert self.log.start_offset >= self.start
        self._note_start()

    def _retained_from(self):
        """What retention ought to keep of a log that is not compacted, by the list."""
        bases = [segment.base_offset for segment in self.log.segments]
        if not self.config.deletes:
            return bases[0]
        held = [
            [batch for batch in self.batches if base <= batch.base < end]
            for base, end in zip(bases, [*bases[1:], self.end], strict=True)
        ]
        now, by_age, by_size = self.clock.now_ms(), 0, 0
        if self.config.retention_ms >= 0:
            while by_age < len(held) and held[by_age]:
                if now - max(batch.max_timestamp for batch in held[by_age]) <= self.config.retention_ms:
                    break
                by_age += 1
        if self.config.retention_bytes >= 0:
            sizes = [segment.size for segment in self.log.segments]
            while by_size < len(sizes) - 1 and sum(sizes[by_size + 1 :]) >= self.config.retention_bytes:
                by_size += 1
        return [*bases, self.end][max(by_age, by_size)]

    def _note_start(self):
        self.start = self.log.start_offset
        self.durable = max(self.durable, self.start)

    @rule(fraction=fractions)
    def delete_records(self, fraction):
        before = self.start + int((self.end - self.start) * fraction)
        assert self.directory.delete_records(PARTITION, before) == before
        self._note_start()

    @rule(fraction=fractions)
    def truncate(self, fraction):
        low = self._first_cut()
        offset = low + int((self.end - low) * fraction)
        self.log.truncate_to(offset)
        self._note_cut(offset)
        self.durable = min(self.durable, self.end)
        self.directory.checkpoint()

    def _first_cut(self):
        """The first offset between two batches that is neither before the start nor among what was compacted."""
        low = max(self.start, self.uncut_before)
        return min([self.end, *(batch.next for batch in self.batches if batch.next >= low)])

    def _note_cut(self, offset):
        """Batches go as a whole, and where compaction left a hole the log ends before it."""
        self.batches = [batch for batch in self.batches if batch.next <= offset]
        self.end = max([self.uncut_before, *(batch.next for batch in self.batches)]) if offset < self.end else self.end

    def _clean(self, *, from_start):
        return clean(
            self.log,
            checkpoint=0 if from_start else self.cleaned_to,
            now_ms=self.clock.now_ms(),
            runner=job.run,
            before_swap=self.directory.checkpoint,
        )

    @precondition(lambda self: self.config.compacts)
    @rule(from_start=st.booleans())
    def compact(self, from_start):
        found = cleanable(self.log, 0 if from_start else self.cleaned_to, self.clock.now_ms())
        upto = found.uncleanable_offset
        assert upto <= min(self.log.segments[-1].base_offset, max(self._stable(), self.log.segments[0].base_offset))
        youngest_to_clean = self.clock.now_ms() - self.config.min_compaction_lag_ms
        for segment in self.log.segments:
            if self.cleaned_to <= segment.base_offset < upto and self.config.min_compaction_lag_ms:
                assert segment.largest_timestamp <= youngest_to_clean
        before = self.log.size_bytes
        cleaned = self._clean(from_start=from_start)
        if cleaned:
            assert cleaned.end_offset == upto
            compact(self.batches, upto, self.clock.now_ms(), self.config.delete_retention_ms)
            self.cleaned_to = max(self.cleaned_to, upto)
            self.uncut_before = max(self.uncut_before, upto)
            self.durable = self.end
            once = self.log.size_bytes
            self._clean(from_start=from_start)
            compact(self.batches, upto, self.clock.now_ms(), self.config.delete_retention_ms)
            assert self.log.size_bytes <= max(once, before) + 61 * len(self.batches)

    # --- ends and beginnings

    @rule()
    def reopen(self):
        self.directory.close()
        self._reopened(self._open())
        assert all(recovery.is_clean for recovery in self.directory.recoveries)
        assert self.log.end_offset == self.end
        self.durable = self.end

    def _reopened(self, directory):
        self.directory = directory
        self.log = directory.log(PARTITION)

    @rule(mode=crash_modes, seed=seeds)
    def crash(self, mode, seed):
        self._crashed(mode, seed)
        assert self.log.start_offset == self.start

    def _crashed(self, mode, seed):
        self.filesystem = self.filesystem.crash(Random(seed), mode=mode)
        first = self._open()
        end = first.log(PARTITION).end_offset
        size = first.log(PARTITION).size_bytes
        self.filesystem = self.filesystem.crash(Random(seed), mode=mode)
        self._reopened(self._open())
        assert (self.log.end_offset, self.log.size_bytes) == (end, size), "opening twice gives the same"
        assert self.durable <= end <= self.end
        ends = {0, self.durable, *(batch.next for batch in self.batches)}
        assert end in ends or mode == "truncated", "a batch is there as a whole or not at all"
        self.batches = [batch for batch in self.batches if batch.next <= end]
        self.end = self.durable = end
        assert not any(recovery.damage for recovery in self.directory.recoveries)

    def _stop(self, operations, halfway, deed):
        """Do it, and die at one of its steps; whether it got to its end."""
        self.filesystem.crash_after(operations, halfway=halfway)
        try:
            deed()
        except SimulatedCrash:
            return False
        return True

    steps = st.integers(1, 40)

    @rule(steps=steps, halfway=st.booleans(), mode=crash_modes, seed=seeds, payload=payloads)
    def crash_in_append(self, steps, halfway, mode, seed, payload):
        had = self.end
        records = self._records(payload)
        data = build_batch(records)
        if not self._stop(steps % 4 + 1, halfway, lambda: self._append(data, Batch(0, records))):
            stamp = self.config.message_timestamp_type == "LogAppendTime"
            now = self.clock.now_ms()
            placed = [r._replace(offset=had + r.offset, timestamp=now if stamp else r.timestamp) for r in records]
            self.batches.append(Batch(had, placed, max_timestamp=max(r.timestamp for r in placed)))
            self.end = had + len(records)
        self._crashed(mode, seed)

    @rule(steps=steps, halfway=st.booleans(), mode=crash_modes, seed=seeds, which=st.integers(0, 4))
    def crash_in_care(self, steps, halfway, mode, seed, which):
        deeds = [
            self.log.flush,
            self.directory.checkpoint,
            lambda: self.log.roll(self.clock.now_ms()),
            self.directory.close,
            self.directory.flush_rolled,
        ]
        self._stop(steps, halfway, deeds[which])
        self._crashed(mode, seed)
        assert self.log.start_offset == self.start

    @rule(steps=steps, halfway=st.booleans(), mode=crash_modes, seed=seeds, fraction=fractions)
    def crash_in_delete_records(self, steps, halfway, mode, seed, fraction):
        before = self.start + int((self.end - self.start) * fraction)
        done = self._stop(steps, halfway, lambda: self.directory.delete_records(PARTITION, before))
        self.durable = max(self.durable, before) if done else self.durable
        self._crashed(mode, seed)
        assert self.log.start_offset in ({before} if done else {before, self.start})
        self._note_start()

    @rule(steps=steps, halfway=st.booleans(), mode=crash_modes, seed=seeds)
    def crash_in_retention(self, steps, halfway, mode, seed):
        self._stop(steps, halfway, self.directory.enforce_retention)
        self._crashed(mode, seed)
        assert self.log.start_offset >= self.start
        self._note_start()

    @rule(steps=steps, halfway=st.booleans(), mode=crash_modes, seed=seeds, fraction=fractions)
    def crash_in_truncate(self, steps, halfway, mode, seed, fraction):
        low = self._first_cut()
        offset = low + int((self.end - low) * fraction)
        done = self._stop(steps, halfway, lambda: self.log.truncate_to(offset))
        self.durable = min(self.durable, max([low, *(b.next for b in self.batches if b.next <= offset)]))
        if done:
            self._note_cut(offset)
        self._crashed(mode, seed)

    @precondition(lambda self: self.config.compacts)
    @rule(steps=steps, halfway=st.booleans(), mode=crash_modes, seed=seeds)
    def crash_in_compaction(self, steps, halfway, mode, seed):
        upto = cleanable(self.log, self.cleaned_to, self.clock.now_ms()).uncleanable_offset
        before = {record.offset for batch in self.batches for record in batch.records}
        self._stop(steps, halfway, lambda: self._clean(from_start=False))
        kept = [Batch(**{**vars(batch), "records": list(batch.records)}) for batch in self.batches]
        compact(kept, upto, self.clock.now_ms(), self.config.delete_retention_ms)
        after = {record.offset for batch in kept for record in batch.records if batch.is_data}
        self._crashed(mode, seed)
        # Each file is cleaned or not: what is left lies between the two, and becomes what is held against the log.
        there = {record.offset for record in read_records(self.log)}
        assert {offset for offset in after if self.start <= offset < self.end} <= there <= before
        horizons = {header.base_offset: header.delete_horizon_ms for header, _ in read_batches(self.log)}
        for batch in self.batches:
            if batch.is_data and batch.next > self.start:
                batch.records = [record for record in batch.records if record.offset in there]
                batch.horizon = horizons.get(batch.base)
        self.uncut_before = max(self.uncut_before, upto)

    # --- what holds after every step

    def _stable(self):
        return stable_offset(derive(self.batches), self.end)

    @invariant()
    def the_log_holds_what_the_list_holds(self):
        expected = [r for b in self.batches if b.is_data for r in b.records if r.offset >= self.start]
        assert read_records(self.log) == expected
        assert (self.log.start_offset, self.log.end_offset) == (self.start, self.end)
        assert self.log.durable_offset >= self.durable

    @invariant()
    def readers_of_committed_records_see_those(self):
        state = derive(self.batches)
        stable = max(stable_offset(state, self.end), self.start)
        assert self.log.last_stable_offset == stable
        expected = [
            record
            for batch in self.batches
            if batch.is_data and batch.base not in state.aborted
            for record in batch.records
            if self.start <= record.offset < stable
        ]
        assert read_committed(self.log) == expected

    @invariant()
    def producers_are_known(self):
        assert producer_facts(self.log) == derive(self.batches).producers

    @invariant()
    def files_are_accounted_for(self):
        folder = f"data/{PARTITION}"
        sizes = {name: self.filesystem.size(f"{folder}/{name}") for name in self.filesystem.list(folder)}
        assert self.log.size_bytes == sum(size for name, size in sizes.items() if name.endswith(".log"))
        assert not [name for name in sizes if name.endswith((".cleaned", ".swap", ".tmp"))]
        assert self.log.epochs.latest <= self.leader_epoch

    @rule(fraction=fractions, max_bytes=st.sampled_from([1, 200, 2000]))
    def read_from_anywhere(self, fraction, max_bytes):
        offset = self.start + int((self.end - self.start) * fraction)
        expected = [r for b in self.batches if b.is_data for r in b.records if r.offset >= offset]
        assert read_records(self.log, offset, max_bytes) == expected
        state = derive(self.batches)
        visible = {r.offset for b in self.batches if b.base not in state.aborted for r in b.records}
        stable = stable_offset(state, self.end)
        committed = [record for record in expected if record.offset in visible and record.offset < stable]
        assert read_committed(self.log, offset, max_bytes) == committed

    @rule(shift=st.integers(-4000, 4000))
    def look_up_by_time(self, shift):
        there = [r for _, batch in read_batches(self.log) for r in records_of(batch) if r.offset >= self.start]
        timestamp = self.clock.now_ms() + shift
        expected = next((record.offset for record in there if record.timestamp >= timestamp), None)
        found = first_at_or_after(self.log, timestamp)
        assert (found.offset if found else None) == expected
        largest = max((record.timestamp for record in there), default=None)
        best = youngest(self.log)
        assert (best.timestamp if best else None) == largest
        if best:
            assert best.offset == next(record.offset for record in there if record.timestamp == largest)


LogMachine.TestCase.settings = examples(250, stateful_step_count=50, report_multiple_bugs=False)
TestLogMachine = LogMachine.TestCase
