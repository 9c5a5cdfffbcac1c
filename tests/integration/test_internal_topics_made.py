"""The broker's own topics are made off the event loop: whoever needs one waits until it is there, and nobody else."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from headrace.broker.config import BrokerConfig
from headrace.broker.server import BrokerServer
from headrace.protocol.messages.init_producer_id import InitProducerIdRequest
from headrace.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from headrace.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from headrace.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from headrace.storage.filesystem import OsFileSystem
from tests.conformance.clients.sharing import Sharer, set_group
from tests.conformance.clients.wire import Wire, batch_of

PATIENCE_S = 60.0
TOPIC, GROUP = "orders", "g"
OFFSETS, TRANSACTIONS, SHARES = "__consumer_offsets", "__transaction_state", "__share_group_state"


class StallingFileSystem(OsFileSystem):
    """A disk that takes its time over the second partition of a topic."""

    def __init__(self, topic: str) -> None:
        self._folder = f"/{topic}-1"
        self.is_reached, self.may_go_on = Event(), Event()

    def make_directory(self, path: str) -> None:
        if path.endswith(self._folder):
            self.is_reached.set()
            assert self.may_go_on.wait(2 * PATIENCE_S)
        super().make_directory(path)


def init_producer(wire: Wire) -> Any:
    answer = wire.ask(InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=60_000), 4)
    assert answer.error_code == 0
    return answer


def share(wire: Wire) -> Callable[[], None]:
    set_group(wire, GROUP, share_auto_offset_reset="earliest")
    sharer = Sharer(wire, GROUP, TOPIC)
    sharer.join()

    def fetch() -> None:
        answer = sharer.fetch_some(max_wait_ms=30_000)
        assert answer.responses[0].partitions[0].acquired_records[0].first_offset == 0

    return fetch


def commit(wire: Wire) -> Callable[[], None]:
    def request(offset: int) -> OffsetCommitRequest:
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
        return OffsetCommitRequest(
            group_id=GROUP, topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=[partition])]
        )

    def commit_twice() -> None:
        wire.send(request(5), 8)
        wire.send(request(9), 8)
        group = OffsetFetchRequestGroup(
            group_id=GROUP, topics=[OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[0])]
        )
        wire.send(OffsetFetchRequest(groups=[group]), 8)
        for _ in range(3):
            wire.receive()
        (answered,) = wire.ask(OffsetFetchRequest(groups=[group]), 8).groups
        assert answered.topics[0].partitions[0].committed_offset == 9, "a commit has overtaken the other"

    return commit_twice


def begin_transaction(wire: Wire) -> Callable[[], None]:
    return lambda: init_producer(wire)


def commit_in_transaction(wire: Wire) -> Callable[[], None]:
    producer = init_producer(wire)

    def commit() -> None:
        partition = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=5)
        asked = TxnOffsetCommitRequest(
            transactional_id="t",
            group_id=GROUP,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            topics=[TxnOffsetCommitRequestTopic(name=TOPIC, partitions=[partition])],
        )
        assert [each.error_code for topic in wire.ask(asked, 5).topics for each in topic.partitions] == [0]

    return commit


@pytest.mark.parametrize(
    ("topic", "prepare"),
    [(SHARES, share), (OFFSETS, commit), (TRANSACTIONS, begin_transaction), (OFFSETS, commit_in_transaction)],
)
def test_while_an_internal_topic_is_made_only_those_wait_who_need_it(
    tmp_path: Path, topic: str, prepare: Callable[[Wire], Callable[[], None]]
) -> None:
    disk = StallingFileSystem(topic)
    settings = {"offsets.topic.num.partitions": "2", "transaction.state.log.num.partitions": "2"}

    def talk(servers: str) -> None:
        with Wire(servers) as needs_it, Wire(servers) as other, ThreadPoolExecutor(1) as thread:
            other.create(TOPIC)
            try:
                using = thread.submit(prepare(needs_it))
                assert disk.is_reached.wait(PATIENCE_S)
                for offset in range(20):
                    answer = other.produce(TOPIC, batch_of(b"v"))
                    assert (answer.error_code, answer.base_offset) == (0, offset)
                assert not using.done()
            finally:
                disk.may_go_on.set()
            using.result(PATIENCE_S)

    async def run() -> None:
        server = BrokerServer(BrokerConfig(str(tmp_path), settings=settings), filesystem=disk)
        (address,) = server.start()
        try:
            await asyncio.to_thread(talk, str(address))
        finally:
            server.stop()

    asyncio.run(run())
