"""What a transactional producer says, request by request, for tests that have to say it at the wrong moment."""

from headrace.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from headrace.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from headrace.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from headrace.protocol.messages.fetch import FetchResponse
from headrace.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from headrace.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from headrace.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from headrace.protocol.messages.produce import ProduceResponse
from headrace.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from headrace.records import Record, build_batch, headers_in, records_of
from tests.integration.waiting import wait_until
from tests.integration.wire import Wire

CONCURRENT_TRANSACTIONS = 51
OLD, NEW = 1, 2  # the transaction versions (KIP-890)


def batch_of(*values: bytes, producer: int = -1, epoch: int = -1, sequence: int = -1, is_open: bool = False) -> bytes:
    """A batch of these values."""
    return build_batch(
        [Record(place, 1_700_000_000_000, None, value) for place, value in enumerate(values)],
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=is_open,
    )


class WireProducer:
    """A producer with a transactional id, on a connection of its own."""

    def __init__(self, wire: Wire, name: str, *, version: int = OLD, timeout_ms: int = 60_000) -> None:
        self.wire, self.name, self.version = wire, name, version
        self.id = self.epoch = -1
        self.sequences: dict[tuple[str, int], int] = {}

        def initialised() -> bool:
            request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=timeout_ms)
            answer = wire.ask(request, InitProducerIdResponse, 4)
            assert answer.error_code in (0, CONCURRENT_TRANSACTIONS), answer
            self.id, self.epoch = answer.producer_id, answer.producer_epoch
            return answer.error_code == 0

        wait_until(initialised, "the producer was not initialised")

    def add(self, topic: str, partition: int = 0) -> int:
        """AddPartitionsToTxn, as clients say it."""
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self.id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=[partition])],
        )
        answer = self.wire.ask(request, AddPartitionsToTxnResponse, 3)
        return answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code

    def send(self, topic: str, *values: bytes, partition: int = 0) -> int:
        """Produce in the transaction, after adding the partition if this version has to; the error code."""
        if self.version == OLD:
            error = [0]

            def added() -> bool:
                error[0] = self.add(topic, partition)
                return error[0] != CONCURRENT_TRANSACTIONS

            wait_until(added, "the partition was not added")
            if error[0]:
                return error[0]
        sequence = self.sequences.get((topic, partition), 0)
        outcome = (CONCURRENT_TRANSACTIONS, -1)

        def sent() -> bool:
            nonlocal outcome
            outcome = self.produce(topic, sequence, *values, partition=partition)
            return outcome[0] != CONCURRENT_TRANSACTIONS

        wait_until(sent, "the batch was not taken")
        if outcome[0] == 0:
            self.sequences[topic, partition] = sequence + len(values)
        return outcome[0]

    def produce(self, topic: str, sequence: int, *values: bytes, partition: int = 0) -> tuple[int, int]:
        """Produce with this sequence number, and no more; the error code and the offset."""
        batch = batch_of(*values, producer=self.id, epoch=self.epoch, sequence=sequence, is_open=True)
        request = self.wire.produce_request(topic, batch, partition=partition)
        request.transactional_id = self.name
        version = 12 if self.version == NEW else 9
        (answer,) = self.wire.ask(request, ProduceResponse, version).responses[0].partition_responses
        return answer.error_code, answer.base_offset

    def end_request(self, *, committed: bool) -> EndTxnRequest:
        return EndTxnRequest(
            transactional_id=self.name, producer_id=self.id, producer_epoch=self.epoch, committed=committed
        )

    def end(self, *, committed: bool) -> int:
        """EndTxn; the error code."""
        version = 5 if self.version == NEW else 4
        answer = self.wire.ask(self.end_request(committed=committed), EndTxnResponse, version)
        if answer.error_code == 0 and self.version == NEW:
            self.id, self.epoch = answer.producer_id, answer.producer_epoch
            self.sequences.clear()
        return answer.error_code

    def commit_offset(self, group: str, topic: str, offset: int) -> int:
        """AddOffsetsToTxn and TxnOffsetCommit, for partition 0; the error code."""
        if self.version == OLD:
            adding = AddOffsetsToTxnRequest(
                transactional_id=self.name, producer_id=self.id, producer_epoch=self.epoch, group_id=group
            )
            error = self.wire.ask(adding, AddOffsetsToTxnResponse, 3).error_code
            if error:
                return error
        partition = TxnOffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_metadata="kept"
        )
        request = TxnOffsetCommitRequest(
            transactional_id=self.name,
            group_id=group,
            producer_id=self.id,
            producer_epoch=self.epoch,
            topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=[partition])],
        )
        answer = self.wire.ask(request, TxnOffsetCommitResponse, 5 if self.version == NEW else 3)
        return answer.topics[0].partitions[0].error_code


def fetch_committed(wire: Wire, topic: str, partition: int = 0) -> tuple[list[bytes], int]:
    """What a reader of committed records is shown, Fetch by Fetch, as clients do it; and the last stable offset."""
    values: list[bytes] = []
    offset = 0
    while True:
        request = wire.fetch_request(topic, offset, partition=partition)
        request.isolation_level = 1
        data = wire.ask(request, FetchResponse, 12).responses[0].partitions[0]
        assert data.error_code == 0, data
        aborted = sorted((found.first_offset, found.producer_id) for found in data.aborted_transactions or ())
        content = bytes(data.records or b"")
        if not content:
            return values, data.last_stable_offset
        in_aborted: set[int] = set()
        for position, header in headers_in(content):
            offset = header.next_offset
            while aborted and aborted[0][0] <= header.base_offset:
                in_aborted.add(aborted.pop(0)[1])
            if header.is_control:
                in_aborted.discard(header.producer_id)
            elif header.producer_id not in in_aborted or not header.is_transactional:
                values += [record.value or b"" for record in records_of(content[position : position + header.size])]


def end_offset(wire: Wire, topic: str, *, committed: bool, partition: int = 0) -> int:
    """The last stable offset, or the end."""
    asked = [ListOffsetsPartition(partition_index=partition, timestamp=-1)]
    request = ListOffsetsRequest(
        replica_id=-1, isolation_level=int(committed), topics=[ListOffsetsTopic(name=topic, partitions=asked)]
    )
    (answer,) = wire.ask(request, ListOffsetsResponse, 7).topics[0].partitions
    assert answer.error_code == 0, answer
    return answer.offset


def is_stable(wire: Wire, topic: str, partition: int = 0) -> bool:
    """Whether no transaction is open in the partition."""
    ends = [end_offset(wire, topic, committed=committed, partition=partition) for committed in (True, False)]
    return ends[0] == ends[1]


def committed_offset(wire: Wire, group: str, topic: str, *, stable: bool = False) -> tuple[int, int]:
    """A group's offset in partition 0, and the error code."""
    topics = [OffsetFetchRequestTopics(name=topic, partition_indexes=[0])]
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=topics)], require_stable=stable)
    (found,) = wire.ask(request, OffsetFetchResponse, 8).groups
    assert found.error_code == 0, found
    return found.topics[0].partitions[0].committed_offset, found.topics[0].partitions[0].error_code
