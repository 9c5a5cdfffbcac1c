"""Emptying a queue: its messages are left behind (purge), or sent to another topic (move).

Both are for a share group without members, and without messages whose fate an open transaction decides; they set where
it begins: so they are plain Kafka.

A move copies what the group has yet to finish, in transactions, and in each of them commits how far it is as the
offsets of a group of its own; then it has the share group begin behind all that. What always holds: nothing is left
behind that was not copied; a move that is killed is run again, and goes on where it was without copying anything twice;
two moves of the same messages cannot run at a time, the second one fences the first.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Final, NamedTuple
from uuid import uuid4

from headrace.client.cluster import Cluster
from headrace.client.coordinators import Coordinators
from headrace.client.errors import GroupHasMembers, Refused, UnknownGroup
from headrace.client.fetch import FetchOptions
from headrace.client.groups import SHARE, Committed, committed_offsets, delete_groups, describe_group
from headrace.client.offsets import bounds
from headrace.client.reader import ReadRecord, read_records
from headrace.client.share_groups import ARCHIVING, PENDING, ShareOffset, alter_share_offsets, share_offsets
from headrace.client.transactions import Transaction, Transactions
from headrace.client.writer import BATCH_BYTES, Partitioner, send
from headrace.delivery.headers import DEDUP_ID, MAX_ID_BYTES
from headrace.errors import HeadraceError
from headrace.model import TopicPartition
from headrace.protocol.errors import ErrorCode
from headrace.queues.message import QueueError
from headrace.records import Codec, Header, Record, build_batch

TRANSACTION_MS: Final = 60_000
_PRODUCE_MS: Final = TRANSACTION_MS // 8  # some tries are over before the transaction is: a full topic is told of then
_MOST_BYTES: Final = 4 * 1024 * 1024  # of a transaction
_OPTIONS: Final = FetchOptions(max_wait_ms=100, committed=True)
_FENCED: Final = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED)
_TOO_LARGE: Final = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)
UNSENDABLE: Final = (*_TOO_LARGE, ErrorCode.INVALID_RECORD, ErrorCode.INVALID_TIMESTAMP)  # whatever else is sent


class Emptied(NamedTuple):
    """What became of a group's messages: how many offsets it had yet to finish, and where it begins now."""

    group: str
    messages: int
    begins: Mapping[TopicPartition, int]


# --- leaving behind


def plan_purge(coordinators: Coordinators, topic: str, group: str) -> Emptied:
    """What a purge would do; refuses a group that has members or does not share records."""
    _check_idle(coordinators, group)
    partitions = coordinators.cluster.partitions(topic)
    held = bounds(coordinators.cluster, partitions)
    known = share_offsets(coordinators, group, with_runs=True)
    _check_ended(group, known)
    unfinished = sum(_unfinished(known[where], held[where].end) for where in partitions if where in known)
    return Emptied(group, unfinished, {where: held[where].end for where in partitions})


def purge(coordinators: Coordinators, planned: Emptied) -> None:
    """Do what was planned; what has come since then stays in the queue."""
    alter_share_offsets(coordinators, planned.group, planned.begins)


def _unfinished(known: ShareOffset, end: int) -> int:
    return max(end - known.offset, 0) if known.unfinished is None else known.unfinished


def _check_idle(coordinators: Coordinators, group: str) -> None:
    described = describe_group(coordinators, group)
    if described.kind != SHARE:
        raise QueueError(
            f"group {group!r} is a {described.kind} group, which reads a log: name a share group "
            "(headrace queue list), or move this one with headrace group reset"
        )
    described.check_empty()


def _check_ended(group: str, known: Mapping[TopicPartition, ShareOffset]) -> None:
    """Refuse to touch what a transaction has yet to decide of: it would be forgotten, or there twice."""
    pending = sum(run.last - run.first + 1 for found in known.values() for run in found.runs if run.state == PENDING)
    if pending:
        raise QueueError(
            f"{pending} messages of group {group!r} are acknowledged in a transaction that is open, perhaps of a "
            f"worker that was killed: run this again when it has ended, in {TRANSACTION_MS // 1000} s at most"
        )


# --- sending elsewhere


class Mover:
    """One move: what a share group has yet to finish of a topic goes to another topic."""

    def __init__(self, coordinators: Coordinators, topic: str, group: str, target: str) -> None:
        """Look at what there is to move; refuses what cannot be moved."""
        cluster = coordinators.cluster
        if topic == target:
            raise QueueError(f"{topic!r} cannot be moved to itself: name another topic")
        partitions = cluster.partitions(topic)
        self._partitioner = Partitioner(len(cluster.topic(target, refresh=True).partitions))
        _check_idle(coordinators, group)
        self._coordinators = coordinators
        self._cluster: Cluster = cluster
        self._topic, self._group, self._target = topic, group, target
        self._number = b"~" + uuid4().hex[:12].encode()
        self._name = f"headrace-move.{group}.{topic}"  # of the transactions, and of the group with its offsets
        known = share_offsets(coordinators, group, with_runs=True)
        _check_ended(group, known)
        self._known = {where: known[where] for where in partitions if where in known}
        ends = {where: bound.end for where, bound in bounds(cluster, self._known, committed=True).items()}
        self._ends = {where: max(end, self._known[where].offset) for where, end in ends.items()}
        self._check_tellable()
        self.expected = sum(_unfinished(found, self._ends[where]) for where, found in self._known.items())

    def _check_tellable(self) -> None:
        """A Kafka does not tell which records behind the first unfinished one are finished: there must be none."""
        for where, found in self._known.items():
            if found.in_flight is None and found.unfinished != self._ends[where] - found.offset:
                raise QueueError(
                    f"this broker does not tell which messages of {where} group {self._group!r} has finished, and some "
                    "are: move them with a consumer of the group"
                )

    def run(self, on_progress: Callable[[int], None] = lambda _: None) -> Emptied:
        """Copy everything, then have the group begin behind it; `on_progress` is told how many are copied."""
        fenced = QueueError(
            f"another move of the same messages has begun, or a transaction took longer than {TRANSACTION_MS // 1000} "
            "s: what was committed is copied, run it again for the rest"
        )
        sender = Sender(self._cluster, self._name, fenced)  # from now on nobody else commits how far it is
        done = committed_offsets(self._coordinators, self._name)
        starts = {where: _later(found.offset, done.get(where)) for where, found in self._known.items()}
        moved = 0
        for portion, reached in self._portions(starts):
            sender.send(self._place(portion), reached)
            moved += len(portion)
            on_progress(moved)
        try:
            alter_share_offsets(self._coordinators, self._group, self._ends)
        except GroupHasMembers:
            raise QueueError(
                f"the messages are copied to {self._target!r}, but group {self._group!r} has got members meanwhile and "
                "still has them too: stop its consumers and run this again, which copies nothing twice"
            ) from None
        sender.settle()
        with suppress(UnknownGroup):  # there was nothing to move
            delete_groups(self._coordinators, [self._name])
        return Emptied(self._group, moved, self._ends)

    def _portions(
        self, begin: Mapping[TopicPartition, int]
    ) -> Iterator[tuple[list[ReadRecord], dict[TopicPartition, int]]]:
        """The messages in order, as many as a transaction takes, and how far each portion reaches."""
        finished = {where: _Finished(found) for where, found in self._known.items()}
        portion: list[ReadRecord] = []
        reached: dict[TopicPartition, int] = {}
        size = 0
        starts = {where: start for where, start in begin.items() if start < self._ends[where]}
        ends = {where: self._ends[where] for where in starts}
        for records in read_records(self._cluster, starts, until=ends, options=_OPTIONS) if starts else ():
            for read in records:
                reached[read.partition] = read.record.offset + 1
                if read.record.offset in finished[read.partition]:
                    continue
                portion.append(read)
                size += len(read.record.value or b"") + len(read.record.key or b"")
                if size >= _MOST_BYTES:
                    yield portion, reached
                    portion, reached, size = [], {}, 0
        if portion:
            yield portion, reached

    def _place(self, portion: Iterable[ReadRecord]) -> dict[TopicPartition, list[Record]]:
        placed: dict[TopicPartition, list[Record]] = {}
        for _, record in portion:
            index = self._partitioner.choose(record.key, len(record.value or b""))
            headers = tuple(header for each in record.headers if (header := self._renamed(each)) is not None)
            placed.setdefault(TopicPartition(self._target, index), []).append(record._replace(headers=headers))
        return placed

    def _renamed(self, header: Header) -> Header | None:
        """A header of a copy. Ids are ids of this move: what is moved here and back is not a duplicate of itself."""
        if header.key != DEDUP_ID or header.value is None:
            return header
        renamed = header.value + self._number
        return Header(DEDUP_ID, renamed) if len(renamed) <= MAX_ID_BYTES else None


def _later(begins: int, done: Committed | None) -> int:
    """Where to go on: where the group begins, or behind what a move that was killed has copied."""
    return begins if done is None else max(begins, done.offset)


class _Finished:
    """Which offsets of a partition are finished, or become dead letters; asked in order."""

    def __init__(self, known: ShareOffset) -> None:
        self._runs = iter([run for run in known.runs if run.is_finished or run.state == ARCHIVING])
        self._run = next(self._runs, None)

    def __contains__(self, offset: int) -> bool:
        while self._run is not None and self._run.last < offset:
            self._run = next(self._runs, None)
        return self._run is not None and self._run.first <= offset


class Sender:
    """Writes records in transactions of one producer; another one of the same name fences it."""

    def __init__(self, cluster: Cluster, name: str, fenced: HeadraceError) -> None:
        """Whatever an earlier one has left open is aborted, and all its markers are written when this returns."""
        self._cluster = cluster
        self.name = name
        self._fenced = fenced
        self._transactions = Transactions(cluster)
        self._transaction: Transaction = self._transactions.begin(name, TRANSACTION_MS)
        self._sequences: dict[TopicPartition, int] = {}

    def send(
        self,
        records: Mapping[TopicPartition, list[Record]],
        reached: Mapping[TopicPartition, int] | None = None,
        acknowledge: Callable[[Transaction], None] = lambda _: None,
    ) -> None:
        """Write records, and with them how far that is, as offsets of a group with this one's name.

        `acknowledge` is called last before the commit, for what else is part of the transaction; if it fails, nothing
        is committed.
        """
        transaction = self._transaction
        try:
            if records:
                self._transactions.add(transaction, records)
            left = {where: _batches_of(some) for where, some in records.items()}
            while batches := {where: batch for where, some in left.items() if (batch := next(some, None))}:
                self._write(batches)
            if reached is not None:
                self._transactions.add_offsets(transaction, self.name, reached)
            acknowledge(transaction)
            is_committed = self._transactions.commit(transaction)
        except HeadraceError as error:
            if isinstance(error, Refused) and error.code in _FENCED:
                raise self._fenced from error
            self._transactions.abort(transaction)
            raise
        except BaseException:  # as the program is interrupted: what is open keeps messages and readers waiting
            with suppress(HeadraceError):
                self._transactions.abort(transaction)
            raise
        if not is_committed:
            raise self._fenced

    def settle(self) -> None:
        """Wait until all that was committed, offsets too, has come into effect: before that none begins."""
        self._transactions.begin(self.name, TRANSACTION_MS)

    def _write(self, batches: Mapping[TopicPartition, list[Record]], codec: Codec = Codec.NONE) -> None:
        """Write a batch for each partition; one that is too large for its topic goes in halves, or compressed."""
        built = {where: self._build(where, batch, codec) for where, batch in batches.items()}
        try:
            written = send(self._cluster, built, timeout_ms=_PRODUCE_MS, transactional_id=self.name)
        except Refused as error:
            if error.code not in UNSENDABLE:
                raise
            is_one = len(batches) == 1 and all(len(batch) == 1 for batch in batches.values())
            if is_one and codec is Codec.NONE and error.code in _TOO_LARGE:  # as it may have come into its own topic
                self._write(batches, Codec.GZIP)
            else:
                self._write_singly(batches, error)
            return
        for where, batch in batches.items():
            self._sequences[where] = (self._sequences.get(where, 0) + len(batch)) & 0x7FFFFFFF
        dropped = next((where for where, at in written.items() if at.base_offset < 0), None)
        if dropped is not None:
            raise QueueError(
                f"{dropped} is full and drops what comes (headrace.overflow=drop-newest): wait until its consumers "
                "have caught up, or give it another limit"
            )

    def _write_singly(self, batches: Mapping[TopicPartition, list[Record]], error: Refused) -> None:
        """Write all that can be written of batches one of which was refused.

        What was written the first time is known by its sequence numbers. In the end it is certain how many were used.
        """
        failure: Refused | None = None
        for where, batch in batches.items():
            half = len(batch) if len(batches) > 1 else len(batch) // 2
            if not half or (len(batches) == 1 and error.code not in _TOO_LARGE):
                raise error
            try:
                for some in filter(None, (batch[:half], batch[half:])):
                    self._write({where: some})
            except Refused as refused:
                failure = failure or refused
        if failure is not None:
            raise failure

    def _build(self, where: TopicPartition, records: list[Record], codec: Codec) -> bytes:
        return build_batch(
            [record._replace(offset=number) for number, record in enumerate(records)],
            codec=codec,
            producer_id=self._transaction.producer_id,
            producer_epoch=self._transaction.epoch,
            base_sequence=self._sequences.get(where, 0),
            transactional=True,
        )


def _batches_of(records: list[Record]) -> Iterator[list[Record]]:
    batch: list[Record] = []
    size = 0
    for record in records:
        length = len(record.value or b"") + len(record.key or b"")
        if batch and size + length > BATCH_BYTES:
            yield batch
            batch, size = [], 0
        batch.append(record)
        size += length
    if batch:
        yield batch
