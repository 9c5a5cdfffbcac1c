"""A coordinator's internal topic: what it wrote, read back at the start, and what it writes now.

The topic is made when it is first needed. A key's hash says which partition its records are in, as in Kafka; here one
coordinator serves all partitions, since there is one broker.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from headrace.broker.topics import Topic, TopicCatalog
from headrace.coordinator.decision import CoordinatorRecord
from headrace.coordinator.transaction.records import partition_for
from headrace.errors import HeadraceError
from headrace.records import BatchHeader, Buffer, CorruptBatch, Record, build_batch, header_at, records_of
from headrace.storage.log import Log
from headrace.storage.scan import find_batch, scan
from headrace.storage.segment import Segment
from headrace.telemetry.logs import get_logger

# A compacted topic holds the latest of everything and little more.
COMPACTED = {"cleanup.policy": "compact", "segment.bytes": "104857600"}
_REPORTED = 10  # one by one, of each partition; the rest is counted
_log = get_logger(__name__)

Decode = Callable[[bytes, bytes | None], CoordinatorRecord | None]
Encode = Callable[[CoordinatorRecord], tuple[bytes, bytes | None]]


class Producer(NamedTuple):
    """In whose transaction records are written."""

    id: int
    epoch: int


class CoordinatorLog:
    def __init__(
        self,
        topics: TopicCatalog,
        name: str,
        *,
        partitions: int,
        encode: Encode,
        owner_of: Callable[[CoordinatorRecord], str],
        settings: Mapping[str, str] = COMPACTED,
    ) -> None:
        self._topics = topics
        self._name = name
        self._partitions = partitions
        self._encode = encode
        self._owner_of = owner_of
        self._settings = settings
        self._cuts: dict[Log, int] = {}  # how often each partition had been cut off when it was read
        self._topic_id: bytes | None = None  # of the topic that was read, or written to first

    @property
    def is_made(self) -> bool:
        return self._topics.owned(self._name) is not None

    def make(self) -> Topic:
        """The topic, made if need be."""
        topic = self._topics.owned(self._name)
        if topic is None:
            topic = self._topics.create(self._name, self._partitions, self._settings, by_broker=True)
        self._topic_id = self._topic_id or topic.id
        return topic

    @property
    def partition_count(self) -> int:
        """How many partitions the topic has, or will have once it is made."""
        topic = self._topics.owned(self._name)
        return len(topic.partitions) if topic else self._partitions

    def partition_of(self, owner: str) -> int:
        return partition_for(owner, self.partition_count)

    def append(
        self, records: list[CoordinatorRecord], *, now_ms: int, leader_epoch: int, producer: Producer | None
    ) -> list[Log]:
        """Write the records, a batch per partition; the logs that they went to."""
        topic = self.make()
        by_partition: dict[int, list[CoordinatorRecord]] = {}
        for record in records:
            partition = partition_for(self._owner_of(record), len(topic.partitions))
            by_partition.setdefault(partition, []).append(record)
        logs = []
        for partition, entries in by_partition.items():
            log = topic.partitions[partition]
            encoded = [Record(place, now_ms, *self._encode(entry)) for place, entry in enumerate(entries)]
            batch = build_batch(
                encoded,
                producer_id=producer.id if producer else -1,
                producer_epoch=producer.epoch if producer else -1,
                transactional=producer is not None,
            )
            cuts = self._cuts.setdefault(log, log.cuts)
            log.append(batch, now_ms=now_ms, leader_epoch=leader_epoch, from_client=False, cuts=cuts)
            logs.append(log)
        return logs

    def partitions(self) -> list[Log]:
        """The topic's logs; none before it is made."""
        topic = self._topics.owned(self._name)
        return list(topic.partitions) if topic else []

    def note_cuts(self) -> None:
        topic = self._topics.owned(self._name)
        self._cuts = {log: log.cuts for log in topic.partitions} if topic else {}
        self._topic_id = topic.id if topic else None

    @property
    def was_cut(self) -> bool:
        """Whether something that was read, or written since, is gone.

        A failed sync has lost the end of a partition, or somebody has deleted the topic.
        """
        if self._topic_id is not None:
            topic = self._topics.owned(self._name)
            if topic is None or topic.id != self._topic_id:
                return True
        for log, cuts in self._cuts.items():  # noqa: SIM110 - a generator costs more than this, and it is every request
            if log.cuts != cuts:
                return True
        return False


def replay(log: Log, decode: Decode, apply: Callable[[CoordinatorRecord, BatchHeader], None]) -> None:
    """Have every record of a partition applied, each with the header of its batch.

    What cannot be read, or makes no sense, is reported and stays where it is. It keeps neither the rest from being
    applied nor the broker from starting: the other groups and transactions have nothing to do with it.
    """
    unusable = 0
    for batch in batches_of(log):
        header = header_at(batch)
        try:
            records = [] if header.is_control else records_of(batch)
        except HeadraceError as error:
            records = []
            unusable += header.record_count
            report_unusable(log, header.base_offset, error, unusable)
        for record in records:
            try:
                decoded = decode(record.key or b"", record.value)
                if decoded:
                    apply(decoded, header)
            except Exception as error:  # noqa: BLE001 - bytes of anybody's making: there is no telling what it breaks
                unusable += 1
                report_unusable(log, record.offset, error, unusable)
    if unusable > _REPORTED:
        _log.error("and more records of an internal topic cannot be used", log=str(log.topic_partition), count=unusable)


def report_unusable(log: Log, offset: int, error: Exception, count: int) -> None:
    """Log a record that cannot be used, the `count`-th of its partition, unless there were many already."""
    if count <= _REPORTED:
        reason = f"{type(error).__name__}: {error}"
        _log.error(
            "a record of an internal topic cannot be used", log=str(log.topic_partition), offset=offset, reason=reason
        )


def batches_of(log: Log, *, reports: bool = True) -> Iterator[bytes]:
    """Everything that is in a log, in order; bytes that are no batch are reported, and reading goes on behind them."""
    for segment in log.segments:
        for damage in segment.damage if reports else ():
            _report_damage(log, segment, damage.position, damage.size)
        for start, end in segment.readable():
            for batch in _batches_between(log, segment, start, end, reports=reports):
                if header_at(batch).next_offset > log.start_offset:
                    yield bytes(batch)


def _batches_between(log: Log, segment: Segment, start: int, end: int, *, reports: bool) -> Iterator[Buffer]:
    while start < end:
        try:
            for scanned in scan(segment.file, start, end):
                yield scanned.batch
                start = scanned.position + scanned.header.size
        except CorruptBatch:
            found = find_batch(segment.file, start + 1, end, segment.base_offset, log.end_offset)
            behind = found.position if found else end
            if reports:
                _report_damage(log, segment, start, behind - start)
            start = behind


def _report_damage(log: Log, segment: Segment, position: int, size: int) -> None:
    _log.error(
        "a part of an internal topic is damaged, and what it said is not known any more",
        log=str(log.topic_partition),
        file=segment.path,
        position=position,
        bytes=size,
    )
