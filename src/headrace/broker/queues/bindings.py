"""What a partition is followed for whose topic has bindings: copies of its records go to other topics.

Each copy says of which record it was made. How far a partition was followed is written with where the partitions ended
then that copies go to: what was copied since is behind these ends, and is looked for after a crash, so that no record
is copied twice. A partition is copied to only when that is on the disk.

If a topic is missing that a record has to go to, or is full, the partition waits for it, and the broker's log says so;
other partitions, and the topic's own consumers, do not wait.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from headrace.broker.errors import BrokerError
from headrace.broker.queues.followers import (
    PORTION_BYTES,
    Follower,
    Reader,
    ScheduleLog,
    copies_between,
    size_of,
    when_durable,
)
from headrace.broker.topics import Topic
from headrace.broker.turns import Steps
from headrace.delivery.bindings import Binding, choose_targets, parse_bindings
from headrace.delivery.headers import Origin, headers_of_copy, parse_origin
from headrace.delivery.overflow import Policy, Verdict
from headrace.delivery.schedule import PartitionId, Place, write_place
from headrace.errors import HeadraceError
from headrace.protocol.errors import ErrorCode
from headrace.records import COPY_SEQUENCE, Record, build_batch
from headrace.records.partitioning import partition_of_key
from headrace.storage.errors import LogDeleted, StorageError
from headrace.storage.log import Log
from headrace.telemetry.logs import get_logger

if TYPE_CHECKING:
    from headrace.broker.runtime import Runtime

MISSING, FULL = "missing", "full"
_RECORDS_A_PORTION: Final = 200
_log = get_logger(__name__)


class UnusableTarget(StorageError):
    """A topic that copies should go to and cannot, because it is missing or full."""

    def __init__(self, trouble: str, text: str) -> None:
        super().__init__(text)
        self.trouble = trouble


class BindingFollower(Follower):
    """Follows a partition for the topics that get copies of its records."""

    def __init__(
        self,
        runtime: "Runtime",
        schedule: ScheduleLog,
        topic: Topic,
        partition: int,
        *,
        place: Place,
        is_copied: Callable[[Log, Record], bool],
        end_of: Callable[[Log], int],
    ) -> None:
        """`is_copied` says whether a record is to be copied at all, of those before the end that `end_of` says."""
        super().__init__(runtime, schedule, topic, partition, place)
        self._place = place
        self._is_copied, self._end_of = is_copied, end_of
        self._reader = Reader(self.log, self._place.offset)
        self._portion: list[Record] = []  # that were read, and are not copied everywhere yet
        self._copied: dict[PartitionId, set[int]] = {}  # of what is still to be followed, or of the portion
        self._is_resumed = False
        self._read_text = ""
        self._bindings: Sequence[Binding] = ()

    @property
    def bindings(self) -> Sequence[Binding]:
        text = self.log.config.headrace_bindings
        if text != self._read_text:
            self._read_text = text
            try:
                self._bindings = parse_bindings(text)
            except HeadraceError as error:  # another version wrote it
                self._bindings = ()
                _log.error("bindings of a topic cannot be read", topic=self.name, reason=str(error))
        return self._bindings

    # --- beginning

    async def begin(self) -> None:
        """Find out what was copied already, and write where the targets end now."""
        if not self._is_resumed:
            targets = {at: log for at in self._place.ends if (log := self._log_of(at)) is not None}
            if self._place.offset < self.log.end_offset:
                for at, log in targets.items():
                    end = log.end_offset
                    await when_durable(self.runtime, log, end)  # a copy that may yet be lost was not made
                    scan = partial(self._scan, log, min(self._place.ends[at], end), end)
                    self._copied[at] = await self.runtime.look_up(scan)
            # A power cut may have taken the end of one: what comes in its place is to be looked through, too.
            ends = {at: min(self._place.ends[at], log.end_offset) for at, log in targets.items()}
            self._place = self._place._replace(ends=ends)
            self._is_resumed = True
        self._write_place()
        await self.schedule.when_durable()
        self.begun.set()

    def _log_of(self, at: PartitionId) -> Log | None:
        topic = self.runtime.topics.by_id.get(at.topic_id)
        return topic.partitions[at.partition] if topic and at.partition < len(topic.partitions) else None

    def _scan(self, log: Log, start: int, end: int) -> set[int]:
        """In a thread: the offsets of this partition's records that were copied to a log between two offsets."""
        origins = (parse_origin(text) for _, text in copies_between(log, start, end))
        own = (self.name, self.at.partition)
        return {each.offset for each in origins if each and each[:2] == own and each.number is None}

    # --- at work

    async def work(self) -> bool:
        if not self._portion:
            before = min(self.runtime.last_stable_offset(self.log), self._end_of(self.log))
            if self._reader.offset >= before:
                return False
            self._portion = await self.runtime.turns.deferred(self._reader.read(_RECORDS_A_PORTION, before))
        is_copying = await self._copy_portion()
        self._portion = []
        self._copied = {
            at: left
            for at, offsets in self._copied.items()
            if (left := {each for each in offsets if each >= self._reader.offset})
        }
        if is_copying or self.is_place_due(self._reader.offset):
            ends = {at: log.end_offset for at in self._place.ends if (log := self._log_of(at)) is not None}
            self._place = self._place._replace(offset=self._reader.offset, ends=ends)
            self._write_place()
        return True

    def _write_place(self) -> None:
        self.schedule.append([write_place(self.at, self._place, is_bound=True)])
        self.place_written(self._place)

    def needed_of(self, target: PartitionId) -> int | None:
        """From where on a target would be looked through for copies after a crash; None while there is no need to."""
        is_copying = self._portion or self._copied or not self._is_resumed
        return self._written.ends.get(target) if is_copying else None

    def _choose(self) -> Steps[tuple[dict[PartitionId, list[Record]], dict[PartitionId, Log]]]:
        """Which records of the portion are to be copied where, and are not yet."""
        wanted: dict[PartitionId, list[Record]] = {}
        logs: dict[PartitionId, Log] = {}
        for record in self._portion:
            yield
            if record.offset < self._place.since or not self._is_copied(self.log, record):
                continue
            for name in (yield from choose_targets(self.bindings, record)):
                topic = self._find_target(name)
                partition = self._choose_partition(record, len(topic.partitions))
                at = PartitionId(topic.id, partition)
                if record.offset in self._copied.get(at, ()):
                    continue
                if topic.partitions[partition].config.compacts and record.key is None:
                    _log.error(
                        "a record without a key is not copied: the topic it should go to is compacted",
                        log=str(self.log.topic_partition),
                        offset=record.offset,
                        target=name,
                    )
                    continue
                logs[at] = topic.partitions[partition]
                wanted.setdefault(at, []).append(record)
        return wanted, logs

    async def _copy_portion(self) -> bool:
        """Append copies of the portion wherever they are to go and are not yet; whether there were any."""
        wanted, logs = await self.runtime.turns.deferred(self._choose())
        if not wanted:
            return False
        # A target is new, or a failed sync took its end: copies would come before what is looked through after a crash.
        while new := {
            at: end for at, log in logs.items() if (end := log.end_offset) < self._place.ends.get(at, end + 1)
        }:
            self._place = self._place._replace(ends={**self._place.ends, **new})
            self._write_place()
            await self.schedule.when_durable()
        for at, records in wanted.items():
            is_limited = logs[at].config.headrace_overflow != Policy.BUFFER
            for some in [[each] for each in records] if is_limited else _split(records):
                await self._append(at, logs[at], some)
        return True

    async def _append(self, at: PartitionId, log: Log, records: list[Record]) -> None:
        copies = [self._copy(place, record) for place, record in enumerate(records)]
        batch = build_batch(copies, base_sequence=COPY_SEQUENCE)
        end = log.end_offset
        try:
            if self._has_room(log, batch):
                now_ms, epoch = self.runtime.now_ms(), self.runtime.leader_epoch
                end = log.append(batch, now_ms=now_ms, leader_epoch=epoch, from_client=False).last_offset + 1
        except LogDeleted as error:
            raise UnusableTarget(MISSING, f"{log.topic_partition.topic} was deleted") from error
        self._copied.setdefault(at, set()).update(record.offset for record in records)
        await when_durable(self.runtime, log, end)

    def _has_room(self, log: Log, batch: bytes) -> bool:
        """Whether a copy is appended, or dropped; a full target that drops nothing has it wait."""
        if log.config.headrace_overflow == Policy.BUFFER:
            return True
        try:
            verdict = self.runtime.overflow.judge(log, batch)
        except BrokerError as error:
            if error.code != ErrorCode.MESSAGE_TOO_LARGE:
                raise UnusableTarget(FULL, str(error)) from error
            _log.error(
                "a record is not copied, which no partition has room for",
                target=str(log.topic_partition),
                reason=str(error),
            )
            return False
        if verdict is Verdict.WAIT:
            raise UnusableTarget(FULL, f"{log.topic_partition} is full: copies wait until consumers have caught up")
        return verdict is Verdict.TAKE

    def _copy(self, place: int, record: Record) -> Record:
        origin = Origin(self.name, self.at.partition, record.offset)
        return record._replace(offset=place, headers=headers_of_copy(record, origin, without=()))

    def _choose_partition(self, record: Record, partitions: int) -> int:
        if record.key is None:
            return self.at.partition % partitions
        return partition_of_key(record.key, partitions)

    def _find_target(self, name: str) -> Topic:
        topic = self.runtime.topics.by_name.get(name)
        if topic is None:
            raise UnusableTarget(
                MISSING,
                f"the bindings of {self.name} lead to {name}, and there is no such topic: "
                "create it, or alter headrace.bindings",
            )
        return topic


def _split(records: Iterable[Record]) -> Iterator[list[Record]]:
    """Parts of records, each for one batch."""
    some: list[Record] = []
    size = 0
    for record in records:
        added = size_of(record)
        if some and size + added > PORTION_BYTES:
            yield some
            some, size = [], 0
        some.append(record)
        size += added
    if some:
        yield some
