"""All partitions of all share groups: what follows from acknowledgements, lapsed locks and changed offsets.

`decide` answers everything that came in one turn at once, on drafts of the partitions, and changes nothing; its records
are one snapshot or one update for each partition that has changed. Once they are written, `install` puts the drafts in
their place. After a restart `apply` takes in the records instead, which comes to the same but for who holds what.

Acquiring is the one thing that is done to the partitions themselves: nothing of it is written.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from headrace.coordinator.decision import CoordinatorRecord, Decision
from headrace.coordinator.share.acknowledgement import Acknowledgement, InvalidAcknowledgement
from headrace.coordinator.share.partition import NOT_STARTED, Moment, Producer, Run, ShareLimits, SharePartition
from headrace.coordinator.share.records import (
    ShareKey,
    ShareSnapshotKey,
    ShareSnapshotValue,
    ShareUpdateKey,
    ShareUpdateValue,
    key_of,
    read_runs,
    write_runs,
)
from headrace.protocol.errors import ErrorCode

UPDATES_PER_SNAPSHOT = 500


# What can happen to a partition. Those that change what is not there are no errors: there is nothing to change.


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """A member says what became of records that it has; in a transaction it counts once that is committed."""

    key: ShareKey
    holder: str
    batches: Sequence[Acknowledgement]
    limits: ShareLimits
    producer: Producer | None = None


@dataclass(frozen=True, slots=True)
class TransactionEnded:
    """A producer's transactions up to this epoch have ended."""

    key: ShareKey
    producer: Producer
    limits: ShareLimits
    is_committed: bool


@dataclass(frozen=True, slots=True)
class MemberGone:
    """A member's session has ended: what it has is available again."""

    key: ShareKey
    holder: str
    limits: ShareLimits


@dataclass(frozen=True, slots=True)
class LocksLapsed:
    """Somebody's time may be up."""

    key: ShareKey
    limits: ShareLimits


@dataclass(frozen=True, slots=True)
class LimitsChanged:
    """Records may be delivered less often from now on, or in another order."""

    key: ShareKey
    limits: ShareLimits


@dataclass(frozen=True, slots=True)
class LettersWritten:
    """The dead letters of these runs are durable."""

    key: ShareKey
    runs: Sequence[Run]


@dataclass(frozen=True, slots=True)
class Started:
    """Where the group begins is known, unless it has begun already."""

    key: ShareKey
    offset: int


@dataclass(frozen=True, slots=True)
class Truncated:
    """The log has lost its end: what was known of the records there is not about those that will follow."""

    key: ShareKey
    offset: int


@dataclass(frozen=True, slots=True)
class Altered:
    """The group begins elsewhere; all else is forgotten, but for what waits for its dead letter before that."""

    key: ShareKey
    offset: int


@dataclass(frozen=True, slots=True)
class Deleted:
    """The partition, the group, or its offsets are gone."""

    key: ShareKey


@dataclass(frozen=True, slots=True)
class SnapshotWanted:
    """What was written of the partition so far is to become superfluous."""

    key: ShareKey


ShareEvent = (
    Acknowledged
    | TransactionEnded
    | MemberGone
    | LocksLapsed
    | LimitsChanged
    | LettersWritten
    | Started
    | Truncated
    | Altered
    | Deleted
    | SnapshotWanted
)


class Entry(NamedTuple):
    """A partition, and how far its records in the log have come."""

    partition: SharePartition
    state_epoch: int = 0
    snapshot_epoch: int = -1
    updates: int = 0  # since the last snapshot
    created_ms: int = 0


class Drafts(NamedTuple):
    """The key of a record that is not kept: the partitions as the decision leaves them; None for one that is gone."""


@dataclass(frozen=True, slots=True)
class ShareDecision(Decision):
    """What follows from the events of a turn."""

    refusals: tuple[InvalidAcknowledgement | None, ...] = ()  # for each event, why it was not carried out


class ShareCoordinator:
    def __init__(self, *, updates_per_snapshot: int = UPDATES_PER_SNAPSHOT, leader_epoch: int = 0) -> None:
        self._updates_per_snapshot = updates_per_snapshot
        self._leader_epoch = leader_epoch
        self._entries: dict[ShareKey, Entry] = {}
        self._of_group: dict[str, set[ShareKey]] = {}
        self._pending: set[ShareKey] = set()  # where something may be acknowledged in a transaction
        self.under_way = 0  # records of all partitions that count for their limits of locks

    def __len__(self) -> int:
        return len(self._entries)

    def all_keys(self) -> list[ShareKey]:
        return list(self._entries)

    def keys_of(self, group_id: str) -> list[ShareKey]:
        return list(self._of_group.get(group_id, ()))

    def partition(self, key: ShareKey) -> SharePartition | None:
        """The partition as it is; only `acquire` and `advance` may change it."""
        entry = self._entries.get(key)
        return entry.partition if entry else None

    def count(self, partition: SharePartition) -> None:
        """Take note of what was acquired in a partition, or left behind, in place."""
        self.under_way += partition.under_way - partition.counted
        partition.counted = partition.under_way

    def pending(self) -> list[tuple[ShareKey, Producer]]:
        """Where something is acknowledged in a transaction that has not ended, and whose that is."""
        return [(key, producer) for key in self._pending for producer in self._entries[key].partition.transactions()]

    def is_pending(self, keys: Iterable[ShareKey]) -> bool:
        """Whether something of these partitions is acknowledged in a transaction that has not ended."""
        return any(key in self._pending and self._entries[key].partition.transactions() for key in keys)

    def owes_letters(self, keys: Iterable[ShareKey]) -> bool:
        """Whether dead letters of these partitions are yet to be written."""
        partitions = (self._entries[key].partition for key in keys)
        return any(partition.wants_letters and partition.letters_due() for partition in partitions)

    # --- decisions

    def decide(self, events: Iterable[ShareEvent], now_ms: int, elapsed_ms: int) -> ShareDecision:
        """Decide what follows from events, in their order.

        `elapsed_ms` is the time that locks go by, as in `acquire`: a clock can be set, and would end them or keep them.
        """
        drafts: dict[ShareKey, Entry | None] = {}
        whole: set[ShareKey] = set()  # those of which a snapshot is written, whatever has changed
        refusals: list[InvalidAcknowledgement | None] = []
        for event in events:
            refusal = None
            try:
                self._carry_out(event, drafts, whole, Moment(elapsed_ms, now_ms))
            except InvalidAcknowledgement as error:
                refusal = error
            refusals.append(refusal)
        records = [record for key in drafts for record in self._write(key, drafts, key in whole, now_ms)]
        if drafts:
            records.append(CoordinatorRecord(Drafts(), drafts, is_kept=False))  # type: ignore[arg-type]
        return ShareDecision(records=tuple(records), refusals=tuple(refusals))

    def _carry_out(
        self,
        event: ShareEvent,
        drafts: dict[ShareKey, Entry | None],
        whole: set[ShareKey],
        now: Moment,
    ) -> None:
        key = event.key
        entry = drafts[key] if key in drafts else self._entries.get(key)
        if isinstance(event, Altered):
            epoch = entry.state_epoch + 1 if entry else 0
            before = entry or Entry(SharePartition(), created_ms=now.wall_ms)
            drafts[key] = before._replace(partition=before.partition.moved_to(event.offset), state_epoch=epoch)
            whole.add(key)
            return
        if entry is None:
            if isinstance(event, Acknowledged):
                raise InvalidAcknowledgement(ErrorCode.INVALID_RECORD_STATE, "the group has acquired nothing here")
            if isinstance(event, Started):
                drafts[key] = Entry(SharePartition(event.offset), created_ms=now.wall_ms)
                whole.add(key)
            return
        if isinstance(event, Deleted):
            drafts[key] = None
            return
        if key not in drafts:
            entry = drafts[key] = entry._replace(partition=entry.partition.draft())
        partition = entry.partition
        match event:
            case Acknowledged(holder=holder, batches=batches, limits=limits, producer=producer):
                partition.acknowledge(holder, batches, limits, now, producer)
            case TransactionEnded(producer=producer, limits=limits, is_committed=is_committed):
                partition.end_transaction(producer, limits, now, is_committed=is_committed)
            case MemberGone(holder=holder, limits=limits):
                partition.release_of(holder, limits, now)
            case LocksLapsed(limits=limits):
                partition.release_lapsed(limits, now)
            case LimitsChanged(limits=limits):
                partition.change_limits(limits, now)
            case LettersWritten(runs=runs):
                partition.archive_written(runs)
            case Started(offset=offset):
                if not partition.is_started:
                    partition.take_in(offset, ())
                    whole.add(key)
            case Truncated(offset=offset):
                partition.truncate(offset)
                whole.add(key)
            case SnapshotWanted():
                whole.add(key)

    def _write(
        self, key: ShareKey, drafts: dict[ShareKey, Entry | None], is_whole: bool, now_ms: int
    ) -> list[CoordinatorRecord]:
        """The record of what has changed; the draft goes on counting from it."""
        entry = drafts[key]
        if entry is None:
            return [CoordinatorRecord(ShareSnapshotKey(**key._asdict()), None)]
        partition = entry.partition
        changes, partition.changes = partition.changes, []
        if not changes and not is_whole:
            return []
        if is_whole or entry.snapshot_epoch < 0 or entry.updates >= self._updates_per_snapshot:
            drafts[key] = entry._replace(snapshot_epoch=entry.snapshot_epoch + 1, updates=0)
            return [self._snapshot(key, entry._replace(snapshot_epoch=entry.snapshot_epoch + 1), now_ms)]
        drafts[key] = entry._replace(updates=entry.updates + 1)
        update = ShareUpdateValue(
            snapshot_epoch=entry.snapshot_epoch,
            leader_epoch=self._leader_epoch,
            start_offset=partition.start,
            delivery_complete_count=partition.finished,
            state_batches=write_runs(run for run in changes if run.last >= partition.start),
        )
        return [CoordinatorRecord(ShareUpdateKey(**key._asdict()), update)]

    def _snapshot(self, key: ShareKey, entry: Entry, now_ms: int) -> CoordinatorRecord:
        value = ShareSnapshotValue(
            snapshot_epoch=entry.snapshot_epoch,
            state_epoch=entry.state_epoch,
            leader_epoch=self._leader_epoch,
            start_offset=entry.partition.start,
            delivery_complete_count=entry.partition.finished,
            create_timestamp=entry.created_ms,
            write_timestamp=now_ms,
            state_batches=write_runs(entry.partition.kept()),
        )
        return CoordinatorRecord(ShareSnapshotKey(**key._asdict()), value)

    # --- the only mutations, besides acquiring

    def install(self, drafts: dict[ShareKey, Entry | None]) -> None:
        """Put the drafts of a decision in their place, now that its records are written."""
        for key, entry in drafts.items():
            self._set(key, entry)
            if entry is not None:
                entry.partition.settle()

    def _set(self, key: ShareKey, entry: Entry | None) -> None:
        if known := self._entries.get(key):
            self.under_way -= known.partition.counted
            known.partition.counted = 0
        if entry is not None:
            entry.partition.counted = 0
            self.count(entry.partition)
            if key not in self._entries:
                self._of_group.setdefault(key.group_id, set()).add(key)
            self._entries[key] = entry
            if entry.partition.has_pending:
                self._pending.add(key)
            elif self._pending:
                self._pending.discard(key)
        elif self._entries.pop(key, None):
            self._pending.discard(key)
            keys = self._of_group[key.group_id]
            keys.discard(key)
            if not keys:
                del self._of_group[key.group_id]

    def apply(self, record: CoordinatorRecord) -> None:
        """Take over a record that was written before a restart."""
        key, value = key_of(record), record.value
        if value is None:
            self._set(key, None)
        elif isinstance(value, ShareSnapshotValue):
            partition = SharePartition()
            partition.take_in(value.start_offset, read_runs(value.state_batches))
            epochs = value.state_epoch, value.snapshot_epoch
            self._set(key, Entry(partition, *epochs, created_ms=value.create_timestamp))
        elif isinstance(value, ShareUpdateValue):
            entry = self._entries.get(key)
            # Without its snapshot, or from before the newest one, an update says nothing that can be relied on.
            if entry is not None and value.snapshot_epoch >= entry.snapshot_epoch:
                start = value.start_offset if value.start_offset >= 0 else NOT_STARTED
                entry.partition.take_in(start, read_runs(value.state_batches))
                self._set(key, entry._replace(updates=entry.updates + 1))
