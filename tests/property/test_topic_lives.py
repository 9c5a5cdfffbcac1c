"""Topics through all their lives: made, filled, compacted, cut, deleted, made again, on a disk that fails and forgets.

The model says which acknowledged records must be there. Whoever worked for a topic that is gone goes on working, in the
midst of whatever else happens: nothing of one life may ever show in, or be missing from, another.
"""

from contextlib import suppress
from dataclasses import dataclass, field
from random import Random

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headrace.broker.topics import TopicCatalog, read_topic_files
from headrace.model import TopicPartition
from headrace.records import Record, build_batch
from headrace.storage.atomic_file import make_folder
from headrace.storage.compaction import job
from headrace.storage.compaction.cleaner import clean
from headrace.storage.config import LogConfig
from headrace.storage.directory import LogDirectory
from headrace.storage.errors import LogDeleted, StorageError
from headrace.storage.filesystem import OPEN_FILES
from headrace.testing import FakeClock, MemoryFileSystem, SimulatedCrash
from tests.property.storage_model import examples, read_records

NAMES = ["orders", "n" * 249]
PRODUCER = 7
REMEMBERED = 5
RETENTION_MS = 5000

names = st.sampled_from([NAMES[0], NAMES[0], NAMES[0], NAMES[1]])
partitions = st.sampled_from([0, 0, 0, 1])
keys = st.sampled_from([b"a", b"b", b"c"])
many_keys = st.lists(st.lists(keys, min_size=1, max_size=3), min_size=1, max_size=4)
policies = st.sampled_from(["delete", "compact"])
modes = st.sampled_from(["lose_everything", "random", "keep_everything"])


def config_of(settings) -> LogConfig:
    return LogConfig(
        cleanup_policy=frozenset({settings.get("cleanup.policy", "delete")}),
        segment_bytes=400,
        index_interval_bytes=100,
        retention_ms=RETENTION_MS,
        min_cleanable_dirty_ratio=0.0,
    )


class _SmallTopics(TopicCatalog):
    """Topics of small segments, whose ids are known from the moment that a crash may leave them."""

    about_to_be_written = None

    def config_of(self, settings):
        return config_of(settings)

    def _write(self, name, file):
        if self.about_to_be_written:
            self.about_to_be_written(name, file)
        super()._write(name, file)


@dataclass
class Sent:
    """A batch that is in a log, or was lost before anybody was told that it is."""

    base_offset: int
    sequence: int
    records: list[Record]
    data: bytes
    is_acknowledged: bool = False

    @property
    def next_offset(self):
        return self.base_offset + len(self.records)


@dataclass
class Partition:
    batches: list[Sent] = field(default_factory=list)
    start: int = 0

    @property
    def next_sequence(self):
        return self.batches[-1].sequence + len(self.batches[-1].records) if self.batches else 0


@dataclass
class Life:
    """A topic from its making to its deletion."""

    policy: str
    partitions: list[Partition]


class TopicLives(RuleBasedStateMachine):
    @initialize(limit=st.sampled_from([2, 1000]), policy=policies)
    def begin(self, limit, policy):
        self.limit, OPEN_FILES.limit = OPEN_FILES.limit, limit
        self.clock = FakeClock()
        self.filesystem = MemoryFileSystem(clock=self.clock, page_bytes=256, sector_bytes=64)
        self.lives: dict[bytes, Life] = {}
        # What may be there under a name: the id of a life, or None. More than one where nobody was told the outcome.
        self.possible: dict[str, set[bytes | None]] = {name: {None} for name in NAMES}
        self.ghosts = []
        self.sent = 0
        self._open()
        self.create(NAMES[0], 1, policy)
        self.produce(NAMES[0], 0, [[b"a"], [b"b", b"c"], [b"a"]], True)

    def teardown(self):
        if hasattr(self, "limit"):
            OPEN_FILES.limit = self.limit

    # --- starting and stopping

    def _open(self):
        try:
            self._open_once()
        except SimulatedCrash:
            self.filesystem = self.filesystem.crash(mode="lose_everything")
            self._open_once()

    def _open_once(self):
        for holder in list(OPEN_FILES._holders):  # of another process, as it were
            OPEN_FILES.forget(holder)
        make_folder(self.filesystem, "data")
        files = read_topic_files(self.filesystem, "data")

        def config_for(partition):
            return config_of(files[partition.topic].settings if partition.topic in files else {})

        self.directory = LogDirectory.open("data", config_for=config_for, filesystem=self.filesystem, clock=self.clock)
        self.topics = _SmallTopics(self.directory, self.filesystem, {})
        self.topics.load(files)
        self.topics.about_to_be_written = self._note_life
        self._adopt()

    def _note_life(self, name, file):
        if not file.deleted:
            life = Life(file.settings["cleanup.policy"], [Partition() for _ in range(file.partitions)])
            self.lives.setdefault(file.id.bytes, life)
            self.possible[name].add(file.id.bytes)

    def _adopt(self):
        """Take what is there after a start for true, if the model allows it."""
        for name, possible in self.possible.items():
            topic = self.topics.by_name.get(name)
            found = topic.id if topic else None
            assert found in possible, f"{name!r} is {found}, and could be {possible}"
            self.possible[name] = {found}
            if topic:
                life = self.lives[topic.id]
                life.partitions += [Partition() for _ in topic.partitions[len(life.partitions) :]]
                for log, model in zip(topic.partitions, life.partitions, strict=True):
                    self._note_end(log, model)
                    self._note_durable(log, model)
                    self._send_again(log, model, life)

    @staticmethod
    def _note_end(log, model):
        """What is behind the end was lost; nobody may have been told that it is safe."""
        lost = [batch for batch in model.batches if batch.base_offset >= log.end_offset]
        assert not any(batch.is_acknowledged for batch in lost), f"{log}: acknowledged, and lost: {lost}"
        del model.batches[len(model.batches) - len(lost) :]

    @staticmethod
    def _note_durable(log, model):
        for batch in model.batches:
            batch.is_acknowledged |= batch.next_offset <= log.durable_offset

    def _restart(self, mode, seed=0):
        self.filesystem = self.filesystem.crash(Random(seed), mode=mode)
        self.ghosts.clear()  # the process that they belong to is dead
        self._open()

    @rule(mode=modes, seed=st.integers(0, 99))
    def crash(self, mode, seed):
        self._restart(mode, seed)

    @rule()
    def restart_cleanly(self):
        self.filesystem.heal()
        if self._do(self.directory.close):
            self.ghosts.clear()
            self._open()

    def _do(self, deed):
        """Whether a deed was done; it may fail, or the process may be stopped in the midst of it."""
        try:
            deed()
        except StorageError:
            return False
        except SimulatedCrash:
            self._restart("lose_everything" if self.sent % 2 else "keep_everything")
            return False
        return True

    @rule(
        kind=st.sampled_from(["sync", "sync_directory", "write", "replace", "remove", "open", "truncate"]),
        where=st.sampled_from(["*", "*.log", "data/topics*", "data/orders-0*"]),
        skip=st.integers(0, 6),
    )
    def order_a_fault(self, kind, where, skip):
        self.filesystem.fail(kind, where, skip=skip)

    @rule(name=names, batches=many_keys, is_killed=st.booleans())
    def produce_while_syncs_fail(self, name, batches, is_killed):
        fault = self.filesystem.fail_sync("*.log", times=None)
        self.produce(name, 0, batches, True)
        self.look_after()
        self.filesystem.heal(fault)
        if is_killed:
            self._restart("keep_everything")

    @rule()
    def heal(self):
        self.filesystem.heal()

    @rule(steps=st.integers(1, 60), halfway=st.booleans())
    def order_a_stop(self, steps, halfway):
        with suppress(SimulatedCrash):
            self.filesystem.crash_after(steps, halfway=halfway)

    @rule(milliseconds=st.sampled_from([1, 1000, 20_000]))
    def wait(self, milliseconds):
        self.clock.advance(milliseconds)

    # --- topics

    @rule(name=names, count=st.integers(1, 2), policy=policies)
    def create(self, name, count, policy):
        if name in self.topics.by_name:
            return
        filesystem = self.filesystem
        if self._do(lambda: self.topics.create(name, count, {"cleanup.policy": policy})):
            self.possible[name] = {self.topics.by_name[name].id}
        elif self.filesystem is filesystem:
            assert name not in self.topics.by_name

    @precondition(lambda self: self.topics.by_name)
    @rule(name=names)
    def grow(self, name):
        topic = self.topics.by_name.get(name)
        if topic and len(topic.partitions) == 1 and self._do(lambda: self.topics.add_partitions(name, 2)):
            self.lives[topic.id].partitions.append(Partition())

    @precondition(lambda self: self.topics.by_name)
    @rule(name=names)
    def delete(self, name):
        topic = self.topics.by_name.get(name)
        if topic is None:
            return
        self.possible[name] = {*self.possible[name], None}
        filesystem = self.filesystem
        self.ghosts += topic.partitions
        if self._do(lambda: self.topics.delete(name)):
            self.possible[name] = {None}
        if self.filesystem is filesystem and name in self.topics.by_name:
            self.ghosts = [log for log in self.ghosts if log not in topic.partitions]
            self.possible[name] = {topic.id}  # whoever produces to it now must find it again

    @rule(name=names, policy=policies, batches=many_keys)
    def replace(self, name, policy, batches):
        """A topic is made anew under the name of another, and what is written to it is acknowledged."""
        self.delete(name)
        self.create(name, 1, policy)
        self.produce(name, 0, batches, True)

    # --- records

    def _partition(self, name, partition):
        topic = self.topics.by_name.get(name)
        if topic is None or partition >= len(topic.partitions):
            return None, None, None
        life = self.lives[topic.id]
        return topic.partitions[partition], life.partitions[partition], life

    @rule(name=names, partition=partitions, batches=many_keys, flush=st.booleans())
    def produce(self, name, partition, batches, flush):
        for batch_keys in batches:
            self._produce(name, partition, batch_keys)
        if flush:
            self.flush(name, partition)

    def _produce(self, name, partition, batch_keys):
        log, model, _ = self._partition(name, partition)
        if log is None:
            return
        now = self.clock.now_ms()
        records = []
        for key in batch_keys:
            self.sent += 1
            records.append(Record(len(records), now, key, b"%d" % self.sent))
        sequence = model.next_sequence
        data = build_batch(records, producer_id=PRODUCER, producer_epoch=0, base_sequence=sequence)
        base = log.end_offset
        batch = Sent(base, sequence, [r._replace(offset=base + r.offset) for r in records], data)

        def append():
            info = log.append(data, now_ms=now)
            assert (info.is_duplicate, info.base_offset) == (False, base)
            model.batches.append(batch)

        self._do(append)

    @rule(name=names, partition=partitions)
    def flush(self, name, partition):
        log, model, _ = self._partition(name, partition)
        if log is not None:
            filesystem = self.filesystem
            self._do(log.flush)
            if self.filesystem is filesystem:
                self._note_end(log, model)
                self._note_durable(log, model)

    @rule(name=names, partition=partitions)
    def send_again(self, name, partition):
        log, model, life = self._partition(name, partition)
        if log is not None:
            self._send_again(log, model, life)

    def _send_again(self, log, model, life):
        """A producer that did not get its answers is told where its batches are, and nothing is stored twice."""
        for batch in model.batches[
            -1 if life.policy == "compact" else -REMEMBERED :
        ]:  # compaction keeps the last alone
            info = log.append(batch.data, now_ms=self.clock.now_ms())
            assert (info.is_duplicate, info.base_offset) == (True, batch.base_offset)

    @rule(name=names, partition=partitions, fraction=st.floats(0, 1))
    def delete_records(self, name, partition, fraction):
        log, model, _ = self._partition(name, partition)
        if log is None:
            return
        before = log.start_offset + int((log.end_offset - log.start_offset) * fraction)
        filesystem = self.filesystem
        self._do(lambda: self.directory.delete_records(log.topic_partition, before, log=log))
        model.start = max(model.start, before)  # told or not: nobody may rely on what is before it
        if self.filesystem is filesystem:
            self._note_end(log, model)

    # --- looking after them

    @rule()
    def retain(self):
        now = self.clock.now_ms()
        filesystem = self.filesystem
        for name, topic in self.topics.by_name.items():
            life = self.lives[topic.id]
            for model in life.partitions:
                for batch in model.batches:
                    if life.policy == "delete" and now - batch.records[0].timestamp > RETENTION_MS:
                        model.start = max(model.start, batch.next_offset)
            assert name in NAMES
        self._do(self.directory.enforce_retention)
        if self.filesystem is filesystem:
            self._note_all_ends()

    @rule()
    def look_after(self):
        filesystem = self.filesystem
        self._do(lambda: (self.directory.flush_rolled(), self.directory.checkpoint()))
        if self.filesystem is filesystem:
            self._note_all_ends()

    def _note_all_ends(self):
        for topic in self.topics.by_name.values():
            for log, model in zip(topic.partitions, self.lives[topic.id].partitions, strict=True):
                self._note_end(log, model)
                self._note_durable(log, model)

    @rule(
        name=names,
        partition=partitions,
        when=st.sampled_from(["before", "after", "at the swap"]),
        meanwhile=st.lists(
            st.sampled_from(["delete", "create", "produce", "flush", "delete_records", "look_after", "retain"]),
            max_size=5,
        ),
    )
    def compact(self, name, partition, when, meanwhile):
        """Other things happen in the midst of it, as on other threads."""
        log, model, life = self._partition(name, partition)
        if log is None or life.policy == "delete":
            return
        filesystem = self.filesystem

        def act(now):
            if now == when:
                for deed in meanwhile:
                    if self.filesystem is filesystem:
                        self._happen(deed, name, partition)
                if self.filesystem is not filesystem:
                    raise SimulatedCrash("the process was stopped in the midst of it")

        def run(work, files):
            act("before")
            done = job.run(work, files)
            act("after")
            return done

        try:
            clean(log, checkpoint=0, now_ms=self.clock.now_ms(), runner=run, before_swap=lambda: act("at the swap"))
        except StorageError:
            pass
        except SimulatedCrash:
            if self.filesystem is filesystem:
                self._restart("lose_everything")
            return
        if log not in self.ghosts:
            self._note_end(log, model)
            self._note_durable(log, model)

    def _happen(self, deed, name, partition):
        if deed == "create":
            self.create(name, 1, "compact")
        elif deed == "produce":
            self.produce(name, partition, [[b"a", b"b"], [b"c"], [b"a"]], True)
        elif deed == "delete_records":
            self.delete_records(name, partition, 0.5)
        elif deed in ("look_after", "retain"):
            getattr(self, deed)()
        elif deed == "flush":
            self.flush(name, partition)
        else:
            self.delete(name)

    @precondition(lambda self: self.ghosts)
    @rule(chosen=st.lists(st.sampled_from(["flush", "roll", "expire", "swap", "cut", "close", "append"]), min_size=1))
    def work_for_topics_that_are_gone(self, chosen):
        now, before = self.clock.now_ms(), self.filesystem.operations
        for log in self.ghosts:
            deeds = {
                "flush": log.flush,
                "roll": lambda log=log: log.roll(now),
                "expire": lambda log=log: (log.advance_start(log.end_offset), log.remove_dead_segments(now)),
                "swap": log.finish_swaps,
                "cut": lambda log=log: log.truncate_to(log.start_offset),
                "close": log.close,
                "append": lambda log=log: log.append(build_batch([Record(0, now, b"a", b"ghost")]), now_ms=now),
            }
            if log.filesystem.is_shut:  # if not, the disk did not let the folder go: it is the only one of its name
                for deed in chosen:
                    with suppress(LogDeleted):
                        deeds[deed]()
        assert self.filesystem.operations == before

    # --- what must hold

    @invariant()
    def everything_acknowledged_is_there_and_nothing_else(self):
        faults = self.filesystem._disk.faults
        pending, faults.pending = faults.pending, []  # whoever looks here is not part of the story
        try:
            for name, topic in self.topics.by_name.items():
                assert topic.id in self.possible[name]
                life = self.lives[topic.id]
                for log, model in zip(topic.partitions, life.partitions, strict=True):
                    self._check(log, model, life)
        except SimulatedCrash:
            self._restart("lose_everything")
        finally:
            faults.pending = pending

    def _check(self, log, model, life):
        sent = {record.offset: record for batch in model.batches for record in batch.records}
        there = {record.offset: record for record in read_records(log)}
        for offset, record in there.items():
            assert record.value == sent[offset].value, f"{log} has {record}, and {sent.get(offset)} was sent"
        assert log.start_offset <= max(model.start, log.start_offset if life.policy == "delete" else 0)
        must = [r for b in model.batches if b.is_acknowledged for r in b.records if r.offset >= model.start]
        if life.policy == "delete":
            assert all(record.offset in there for record in must), f"{log} has {sorted(there)} of {must}"
            return
        latest = {record.key: record.offset for record in must}
        for key, offset in latest.items():
            newer = [record.offset for record in there.values() if record.key == key]
            assert newer, f"{log} has nothing under {key!r}"
            assert max(newer) >= offset


TestTopicLives = TopicLives.TestCase
TestTopicLives.settings = examples(80, stateful_step_count=40)


def test_partition_names_are_of_kafkas_form():
    """What the machine works with is a folder that a Kafka broker would take for its own."""
    assert all(TopicPartition.from_folder(f"{name}-1") == TopicPartition(name, 1) for name in NAMES)
