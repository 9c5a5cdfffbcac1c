"""How an inlet writes: plain idempotent batches, or records and what is remembered of them in one transaction.

What always holds: a `write` that ended with a `ClientError` is repeated with the same lots, and then goes on where it
was, so that nothing is written twice.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from headrace.client.admin import ensure_topic
from headrace.client.cluster import Cluster
from headrace.client.errors import ClientError, Refused, UnknownPartition, UnknownTopic
from headrace.client.writer import Partitioner, Producer, init_producer, send
from headrace.connect.delivery import BatchLimits, Entry, Sender, build, end_of_batch, read_committed
from headrace.connect.errors import DeliveryExpired
from headrace.connect.keep_running import may_pass
from headrace.errors import HeadraceError
from headrace.model import TopicPartition
from headrace.protocol.errors import ErrorCode
from headrace.records import Codec
from headrace.stores.compacted_topic import SMALL

_SEQUENCE_MASK: Final = 2**31 - 1
# What a killed gateway leaves open holds up readers of its topics, and others that share the memory, for as long.
_TRANSACTION_MS: Final = 10_000
_UNKNOWN_FOR_S: Final = 2.0  # a topic that is not there is not asked for again and again: others would wait
_MOST_UNKNOWN: Final = 1_000
_TOO_LARGE: Final = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})
# What a batch is refused for because of one of its records.
_OF_A_RECORD: Final = _TOO_LARGE | {ErrorCode.INVALID_RECORD, ErrorCode.INVALID_TIMESTAMP, ErrorCode.CORRUPT_MESSAGE}
# The broker does not know the producer any more, or takes it for another: it begins as a new one.
_OF_THE_PRODUCER: Final = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
    }
)
UNKNOWN_OFFSET: Final = -1


class Lot(NamedTuple):
    """The records of one caller; without a partition keys decide. `kept` is remembered with them, or not at all."""

    topic: str
    entries: Sequence[Entry]
    partition: int | None = None
    kept: Sequence[Entry] = ()


class Placed(NamedTuple):
    partition: int
    offset: int


class Uncertain(HeadraceError):
    """Records of which nobody knows whether they were written."""


class PartlyWritten(Refused):
    """Some records of a lot were refused, and others of it are written: `outcomes` says which, in their order."""

    def __init__(self, outcomes: Sequence[Placed | HeadraceError], refusal: HeadraceError) -> None:
        HeadraceError.__init__(self, f"{refusal} (others of these records are written)")
        self.outcomes = outcomes
        self.refusal = refusal
        self.code = refusal.code if isinstance(refusal, Refused) else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    @property
    def refused(self) -> int:
        return sum(isinstance(each, HeadraceError) for each in self.outcomes)


Outcome = list[Placed] | HeadraceError


class Writing(Protocol):
    def reconnect(self, cluster: Cluster) -> None:
        """Go on over this cluster."""
        ...

    def write(self, lots: Sequence[Lot]) -> list[Outcome]:
        """Write all lots; of each, where its records are, or why they were refused. Raises what may pass."""
        ...


@dataclass(slots=True)
class _Line:
    """What goes to one partition, in order; `end` stands while a batch is under way, and the batch stays as it is."""

    entries: list[Entry] = field(default_factory=list)
    owners: list[tuple[int, int]] = field(default_factory=list)  # lot, and the record's number in it
    start: int = 0
    end: int = 0


class _Addressing:
    """Which partition each record goes to."""

    def __init__(self) -> None:
        self._partitioners: dict[tuple[str, int], Partitioner] = {}
        self._unknown: dict[str, tuple[float, UnknownTopic]] = {}

    def lines(self, cluster: Cluster, lots: Sequence[Lot]) -> tuple[dict[TopicPartition, _Line], list[Outcome]]:
        """The records by partitions, and of each lot its empty places, or that it cannot go anywhere."""
        lines: dict[TopicPartition, _Line] = {}
        outcomes: list[Outcome] = []
        for number, lot in enumerate(lots):
            try:
                count = self._partitions_of(cluster, lot.topic)
                if lot.partition is not None and not 0 <= lot.partition < count:
                    raise UnknownPartition(TopicPartition(lot.topic, lot.partition), count)
            except (UnknownTopic, UnknownPartition) as error:
                outcomes.append(error)
                continue
            except Refused as error:
                if error.code.retriable:
                    raise
                outcomes.append(error)
                continue
            outcomes.append([Placed(0, UNKNOWN_OFFSET)] * len(lot.entries))
            chooser = self._partitioners.get((lot.topic, count))
            if chooser is None:
                chooser = self._partitioners[lot.topic, count] = Partitioner(count)
            for place, entry in enumerate(lot.entries):
                partition = lot.partition
                if partition is None:
                    partition = (
                        chooser.choose(entry[0], len(entry[0] or b"") + len(entry[1] or b"")) if count > 1 else 0
                    )
                line = lines.setdefault(TopicPartition(lot.topic, partition), _Line())
                line.entries.append(entry)
                line.owners.append((number, place))
        return lines, outcomes

    def _partitions_of(self, cluster: Cluster, topic: str) -> int:
        known = self._unknown.get(topic)
        if known is not None and time.monotonic() - known[0] < _UNKNOWN_FOR_S:
            raise known[1]
        try:
            return len(cluster.topic(topic).partitions)
        except UnknownTopic as error:
            if len(self._unknown) >= _MOST_UNKNOWN:
                self._unknown.clear()
            self._unknown[topic] = (time.monotonic(), error)
            raise


class Appending:
    """Idempotent batches, without transactions."""

    def __init__(self, codec: Codec = Codec.NONE) -> None:
        self._codec = codec
        self._addressing = _Addressing()
        self._limits = BatchLimits()
        self._producer: Producer | None = None
        self._sequences: dict[TopicPartition, int] = {}
        self._lines: dict[TopicPartition, _Line] = {}
        self._outcomes: list[Outcome] | None = None  # of a write that is under way
        self._refusals: dict[int, dict[int, HeadraceError]] = {}  # of its records, by lots

    def reconnect(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def write(self, lots: Sequence[Lot]) -> list[Outcome]:
        if self._outcomes is None:
            self._lines, self._outcomes = self._addressing.lines(self._cluster, lots)
        while self._lines:
            for where, line in self._lines.items():
                if not line.end:
                    line.end = end_of_batch(line.entries, line.start, self._limits.of(self._cluster, where.topic))
            try:
                written = send(self._cluster, {where: self._batch(where) for where in self._lines})
            except (Refused, UnknownTopic, UnknownPartition):
                self._write_one_by_one()
            else:
                for where, found in written.items():
                    self._advance(where, found.base_offset)
        outcomes, self._outcomes = self._outcomes, None
        refusals, self._refusals = self._refusals, {}
        for lot, refused in refusals.items():
            outcomes[lot] = _refused_of(outcomes[lot], refused)
        return outcomes

    def _write_one_by_one(self) -> None:
        """Find out which partitions are refused: a batch that is there already is known again, and answered as such."""
        unknown: list[TopicPartition] = []
        for where in list(self._lines):
            try:
                self._advance(where, send(self._cluster, {where: self._batch(where)})[where].base_offset)
            except (UnknownTopic, UnknownPartition) as gone:  # since these lots were given their places
                self._refuse(where, gone)
            except Refused as refusal:
                if refusal.code in _OF_THE_PRODUCER:
                    unknown.append(where)
                elif refusal.code.retriable:
                    raise
                else:
                    self._refuse(where, refusal)
        if unknown:
            self._producer = None
            self._sequences.clear()
        for where in unknown:
            try:
                self._advance(where, send(self._cluster, {where: self._batch(where)})[where].base_offset)
            except Refused as refusal:
                if refusal.code.retriable:
                    raise
                self._refuse(where, refusal)

    def _batch(self, where: TopicPartition) -> bytes:
        if self._producer is None:
            self._producer = init_producer(self._cluster)
        line = self._lines[where]
        return build(
            line.entries[line.start : line.end],
            producer_id=self._producer.id,
            producer_epoch=self._producer.epoch,
            base_sequence=self._sequences.get(where, 0),
            codec=self._codec,
            is_transactional=False,
        )

    def _advance(self, where: TopicPartition, base_offset: int) -> None:
        line = self._lines[where]
        _place(self._outcomes or [], line, line.start, line.end, where.partition, base_offset)
        count = line.end - line.start
        self._sequences[where] = self._sequences.get(where, 0) + count & _SEQUENCE_MASK
        self._go_on(where)

    def _go_on(self, where: TopicPartition) -> None:
        line = self._lines[where]
        line.start, line.end = line.end, 0
        if line.start == len(line.entries):
            del self._lines[where]

    def _refuse(self, where: TopicPartition, refusal: Refused | UnknownTopic | UnknownPartition) -> None:
        """Nothing of the batch was written: half of it may be taken, or else whose it is learns why not."""
        line = self._lines[where]
        count = line.end - line.start
        refused = line.owners[line.start : line.end]
        owners = {lot for lot, _ in refused}
        code = refusal.code if isinstance(refusal, Refused) else None
        if count > 1 and (code in _TOO_LARGE or (code in _OF_A_RECORD and len(owners) > 1)):
            line.end = line.start + count // 2
            return
        for lot, place in refused:
            self._refusals.setdefault(lot, {})[place] = refusal
        self._go_on(where)


class Remembering:
    """Records and what is kept of them, in a compacted topic, in one transaction; fenced by its name."""

    def __init__(self, name: str, memory: str, codec: Codec = Codec.NONE) -> None:
        self._name = name
        self._memory = TopicPartition(memory, 0)
        self._codec = codec
        self._addressing = _Addressing()
        self._sender: Sender | None = None
        self._settled: dict[int, Outcome] = {}  # of a write that is under way
        self._doubtful: tuple[int, ...] = ()  # lots whose transaction may have been committed

    def reconnect(self, cluster: Cluster) -> None:
        """Take over from whoever wrote under this name before."""
        self._cluster = cluster
        # It is read whole at each start.
        ensure_topic(cluster, self._memory.topic, partitions=1, configs={"cleanup.policy": "compact", **SMALL})
        owner = f"headrace-gateway-{self._name}"
        self._sender = Sender(cluster, owner, self._name, codec=self._codec, timeout_ms=_TRANSACTION_MS)
        self._sender.begin()

    def write(self, lots: Sequence[Lot]) -> list[Outcome]:
        if self._doubtful:
            self._settle_doubtful(lots)
        left = [number for number in range(len(lots)) if number not in self._settled]
        try:
            if left:
                self._commit(lots, left)
        except Refused as refusal:
            if may_pass(refusal):
                raise
            # Refused is what one of them asks for: each by itself, so that it harms no other.
            for number in left:
                self._begin()
                try:
                    self._commit(lots, [number])
                except Refused as own:
                    if may_pass(own):
                        raise
                    self._settled[number] = own
            self._begin()
        settled, self._settled = self._settled, {}
        return [settled[number] for number in range(len(lots))]

    def _begin(self) -> None:
        assert self._sender is not None
        self._sender.begin()

    def _commit(self, lots: Sequence[Lot], chosen: Sequence[int]) -> None:
        assert self._sender is not None
        lines, outcomes = self._addressing.lines(self._cluster, [lots[number] for number in chosen])
        good = [number for number, outcome in zip(chosen, outcomes, strict=True) if isinstance(outcome, list)]
        gathered = {where: line.entries for where, line in lines.items()}
        if kept := [entry for number in good for entry in lots[number].kept]:
            gathered[self._memory] = kept
        if gathered:
            try:
                written = self._sender.commit(gathered)
            except (ClientError, DeliveryExpired) as error:
                if not isinstance(error, Refused):
                    self._doubtful = tuple(good)
                raise
            for where, line in lines.items():
                at = 0
                for base_offset, count in written[where]:
                    _place(outcomes, line, at, at + count, where.partition, base_offset)
                    at += count
        self._settled.update(zip(chosen, outcomes, strict=True))

    def _settle_doubtful(self, lots: Sequence[Lot]) -> None:
        """See what the transaction before has written after all; it is decided now, since this one has begun."""
        kept = {number: lots[number].kept for number in self._doubtful if lots[number].kept}
        keys = {entry[0] for entries in kept.values() for entry in entries}
        found = read_committed(self._cluster, self._memory.topic, keys.__contains__) if keys else {}
        for number, entries in kept.items():
            # What is forgotten on the way may have been remembered anew by another lot, and decides nothing.
            if all(key is not None and found.get(key) == value for key, value, _, _ in entries if value is not None):
                self._settled[number] = [Placed(0, UNKNOWN_OFFSET)] * len(lots[number].entries)
        self._doubtful = ()


def _place(outcomes: list[Outcome], line: _Line, start: int, end: int, partition: int, base_offset: int) -> None:
    for index in range(start, end):
        lot, place = line.owners[index]
        placed = outcomes[lot]
        if isinstance(placed, list):
            placed[place] = Placed(partition, base_offset + index - start)


def _refused_of(outcome: Outcome, refused: Mapping[int, HeadraceError]) -> Outcome:
    """What became of a lot of which these records were refused."""
    first = next(iter(refused.values()))
    if not isinstance(outcome, list) or len(refused) == len(outcome):
        return first
    return PartlyWritten([refused.get(place, each) for place, each in enumerate(outcome)], first)


OpenWriting = Callable[[Cluster], Writing]
