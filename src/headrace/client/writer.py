"""Records, gathered into batches and written: what a person or a small program needs to produce.

Batches are idempotent, so a retry writes nothing twice. `flush` writes everything gathered, of all partitions, and
`add` flushes when a batch is full; so at any time what has been written is a prefix of what was added.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from headrace.client.cluster import Cluster
from headrace.client.errors import ClientError, Refused, UnknownPartition
from headrace.client.leaders import Question, ask_leaders, by_leader, by_topic, refused
from headrace.model import TopicPartition
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from headrace.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from headrace.protocol.schema import Buffer, Uuid
from headrace.records import Codec, Header, Record, build_batch, headers_in
from headrace.records.partitioning import partition_of_key

# Produce: batches that are ready, written as they are.
#
# A batch of an idempotent producer carries a producer id and a sequence, so the broker knows it again and it may be
# sent twice without harm. One without may be sent again only if the broker said that it was not written; if the answer
# was lost, that is an error, because nobody knows.

ACKS_NONE, ACKS_LEADER, ACKS_ALL = 0, 1, -1
_LAST_VERSION_BY_NAME = 12
_LAST_VERSION_WITHOUT_ADDING = 11  # from 12 on the broker adds partitions by itself, and the epoch moves (KIP-890)


class Written(NamedTuple):
    """Where a partition's first record now is; the time is the broker's, -1 where records keep their own."""

    base_offset: int
    append_time_ms: int


class Producer(NamedTuple):
    id: int
    epoch: int


def init_producer(cluster: Cluster) -> Producer:
    """A producer id of our own, for idempotent batches."""

    def ask() -> Producer:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=2**31 - 1)
        response = cluster.any_broker().request(request, InitProducerIdResponse)
        if response.error_code:
            raise Refused("a producer id", ErrorCode.of(response.error_code))
        return Producer(response.producer_id, response.producer_epoch)

    return cluster.run_with_retries(ask)


def send(
    cluster: Cluster,
    batches: Mapping[TopicPartition, Buffer],
    *,
    acks: int = ACKS_ALL,
    timeout_ms: int = 30_000,
    transactional_id: str | None = None,
) -> dict[TopicPartition, Written]:
    """Write each partition's batches; nothing is known of where they are with `ACKS_NONE`.

    With a transactional id the batches are part of its open transaction, to which their partitions were added.
    Raises the first error that stays. Other partitions may have been written then.
    """
    names = by_topic(batches)
    highest = None if all(cluster.topic(name).has_id for name in names) else _LAST_VERSION_BY_NAME
    if transactional_id is not None:
        highest = _LAST_VERSION_WITHOUT_ADDING

    def ask(partitions: list[TopicPartition]) -> ProduceRequest:
        return ProduceRequest(
            transactional_id=transactional_id,
            acks=acks,
            timeout_ms=timeout_ms,
            topic_data=[
                TopicProduceData(
                    name=name,
                    topic_id=cluster.topic(name).id,
                    partition_data=[
                        PartitionProduceData(index=index, records=batches[TopicPartition(name, index)])
                        for index in indexes
                    ],
                )
                for name, indexes in by_topic(partitions).items()
            ],
        )

    if acks == ACKS_NONE:
        for leader, partitions in by_leader(cluster, batches).items():
            cluster.broker(leader).send_unanswered(ask(partitions), highest=highest)
        return {}
    question = Question(
        ProduceResponse,
        ask,
        lambda response: _read(response, {cluster.topic(name).id: name for name in names}),
        highest=highest,
        timeout_s=timeout_ms / 1000 + 5,
        may_repeat=all(header.producer_id >= 0 for data in batches.values() for _, header in headers_in(data)),
    )
    return ask_leaders(cluster, batches, question)


def _read(
    response: ProduceResponse, names: Mapping[Uuid, str]
) -> Iterator[tuple[TopicPartition, Written | ClientError]]:
    for topic in response.responses:
        name = topic.name or names.get(topic.topic_id, "")
        for answer in topic.partition_responses:
            where = TopicPartition(name, answer.index)
            if answer.error_code:
                yield where, refused(where, answer.error_code, answer.error_message)
            else:
                yield where, Written(answer.base_offset, answer.log_append_time_ms)


# Which partition a record goes to, exactly as Kafka's Java client decides it.
#
# A key always goes to the same partition, whatever client wrote it (`records/partitioning.py`). Records without a key
# stick to one partition for as many bytes as the Java client's batch has, then to another (KIP-480, KIP-794): fewer,
# fuller batches than with a partition for each.

STICKY_BYTES = 16 * 1024  # the Java client's batch.size


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
