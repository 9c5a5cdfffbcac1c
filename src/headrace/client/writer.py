"""Records, gathered into batches and written: what a person or a small program needs to produce.

Batches are idempotent, so a retry writes nothing twice. `flush` writes everything gathered, of all partitions, and
`add` flushes when a batch is full; so at any time what has been written is a prefix of what was added.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from headrace.client.cluster import Cluster
from headrace.client.errors import Refused, UnknownPartition
from headrace.client.produce import Producer, init_producer, send
from headrace.model import TopicPartition
from headrace.protocol.errors import ErrorCode
from headrace.records import Codec, Header, Record, build_batch

# Which partition a record goes to, exactly as Kafka's Java client decides it.
#
# A key always goes to the same partition, whatever client wrote it: murmur2 of its bytes, the sign bit dropped, modulo
# the number of partitions. Records without a key stick to one partition for as many bytes as the Java client's batch
# has, then to another (KIP-480, KIP-794): fewer, fuller batches than with a partition for each.

_SEED = 0x9747B28C
_MULTIPLIER = 0x5BD1E995
_MASK = 0xFFFFFFFF
STICKY_BYTES = 16 * 1024  # the Java client's batch.size


def murmur2(data: bytes) -> int:
    """Kafka's hash of a key, as an unsigned number of 32 bits; Java shows the same bits signed."""
    length = len(data)
    h = _SEED ^ length
    whole = length & ~3
    for start in range(0, whole, 4):
        k = int.from_bytes(data[start : start + 4], "little") * _MULTIPLIER & _MASK
        h = (h * _MULTIPLIER ^ (k ^ k >> 24) * _MULTIPLIER) & _MASK
    if length > whole:
        h = (h ^ int.from_bytes(data[whole:], "little")) * _MULTIPLIER & _MASK
    h = (h ^ h >> 13) * _MULTIPLIER & _MASK
    return h ^ h >> 15


def partition_of_key(key: bytes, partitions: int) -> int:
    return (murmur2(key) & 0x7FFFFFFF) % partitions


class Partitioner:
    """Chooses for each record; keeps the partition that records without a key stick to."""

    def __init__(self, partitions: int, random: Random | None = None) -> None:
        self._partitions = partitions
        self._random = random or Random()  # noqa: S311 - spreads load, guards nothing
        self._sticky = self._random.randrange(partitions)
        self._sticky_bytes = 0

    def choose(self, key: bytes | None, size_bytes: int) -> int:
        if key is not None:
            return partition_of_key(key, self._partitions)
        if self._sticky_bytes >= STICKY_BYTES and self._partitions > 1:
            other = self._random.randrange(self._partitions - 1)
            self._sticky = other + (other >= self._sticky)
            self._sticky_bytes = 0
        self._sticky_bytes += size_bytes
        return self._sticky


BATCH_BYTES = 512 * 1024  # before compression; half of what a topic takes by default
_RECORD_OVERHEAD_BYTES = 24
_SEQUENCE_MASK = 2**31 - 1


@dataclass(frozen=True, slots=True)
class NewRecord:
    """A record to be written; without a partition the key decides, and without a key the writer."""

    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Sequence[Header] = ()
    partition: int | None = None

    @property
    def size_bytes(self) -> int:
        headers = sum(len(header.key) + len(header.value or b"") + 4 for header in self.headers)
        return len(self.key or b"") + len(self.value or b"") + headers + _RECORD_OVERHEAD_BYTES


@dataclass(slots=True)
class PartitionTotal:
    """What was written to one partition; others may have written in between."""

    records: int
    first_offset: int
    last_offset: int


class Writer:
    """Writes to one topic; whatever is not flushed is not written."""

    def __init__(
        self,
        cluster: Cluster,
        topic: str,
        *,
        codec: Codec = Codec.NONE,
        batch_bytes: int = BATCH_BYTES,
        random: Random | None = None,
    ) -> None:
        self._cluster = cluster
        self._topic = topic
        self._codec = codec
        self._batch_bytes = batch_bytes
        self._partitions = len(cluster.topic(topic).partitions)
        self._partitioner = Partitioner(self._partitions, random)
        self._producer: Producer | None = None
        self._sequences: dict[int, int] = {}
        self._gathered: dict[int, list[NewRecord]] = {}
        self._gathered_bytes: dict[int, int] = {}
        self._totals: dict[int, PartitionTotal] = {}

    @property
    def totals(self) -> dict[int, PartitionTotal]:
        return dict(sorted(self._totals.items()))

    @property
    def written(self) -> int:
        return sum(total.records for total in self._totals.values())

    def add(self, record: NewRecord) -> None:
        """Take a record, and write what was gathered before if its batch is full."""
        size = record.size_bytes
        partition = self._partitioner.choose(record.key, size) if record.partition is None else record.partition
        if not 0 <= partition < self._partitions:
            raise UnknownPartition(TopicPartition(self._topic, partition), self._partitions)
        if self._gathered_bytes.get(partition, 0) + size > self._batch_bytes:
            self.flush()
        self._gathered.setdefault(partition, []).append(record)
        self._gathered_bytes[partition] = self._gathered_bytes.get(partition, 0) + size

    def flush(self) -> None:
        """Write everything gathered; returns once the broker has acknowledged it all."""
        gathered, self._gathered, self._gathered_bytes = self._gathered, {}, {}
        if not gathered:
            return
        try:
            self._write(gathered)
        except Refused as refusal:
            if refusal.code is not ErrorCode.MESSAGE_TOO_LARGE:
                raise
            # The topic takes less than a batch of ours. Which partitions were written in spite of it need not be known:
            # the broker knows those batches again, and tells where they are.
            for partition, records in gathered.items():
                self._write_halved(partition, records)

    def _write_halved(self, partition: int, records: list[NewRecord]) -> None:
        try:
            self._write({partition: records})
        except Refused as refusal:
            if refusal.code is not ErrorCode.MESSAGE_TOO_LARGE or len(records) == 1:
                raise
            middle = len(records) // 2
            self._batch_bytes = min(self._batch_bytes, sum(record.size_bytes for record in records[:middle]))
            self._write_halved(partition, records[:middle])
            self._write_halved(partition, records[middle:])

    def _write(self, gathered: dict[int, list[NewRecord]]) -> None:
        if self._producer is None:
            self._producer = init_producer(self._cluster)
        batches = {
            TopicPartition(self._topic, partition): self._batch(partition, records, self._producer)
            for partition, records in gathered.items()
        }
        for where, written in send(self._cluster, batches).items():
            count = len(gathered[where.partition])
            self._sequences[where.partition] = self._sequences.get(where.partition, 0) + count & _SEQUENCE_MASK
            last = written.base_offset + count - 1
            total = self._totals.setdefault(where.partition, PartitionTotal(0, written.base_offset, last))
            total.records += count
            total.last_offset = last

    def _batch(self, partition: int, records: list[NewRecord], producer: Producer) -> bytes:
        return build_batch(
            [
                Record(index, record.timestamp, record.key, record.value, tuple(record.headers))
                for index, record in enumerate(records)
            ],
            codec=self._codec,
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            base_sequence=self._sequences.get(partition, 0),
        )
