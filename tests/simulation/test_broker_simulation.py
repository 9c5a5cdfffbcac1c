"""Transactions over power cuts, in virtual time: the broker's own runtime, on a disk that forgets what was not synced.

Clients with a transactional id each turn their inputs, by number, into results, in transactions that also commit the
number of the next input. Clients vanish in the middle of it and come back, transactions time out, and the power fails
again and again. After every crash and every so often: nothing is committed twice, nothing that was aborted or never
ended is taken for committed, and what a client was told is committed stays so.
"""

import asyncio
import os
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from headrace.broker.coordinator_log import batches_of
from headrace.broker.runtime import Runtime
from headrace.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from headrace.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from headrace.protocol.messages.end_txn import EndTxnRequest
from headrace.protocol.messages.init_producer_id import InitProducerIdRequest
from headrace.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from headrace.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from headrace.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from headrace.protocol.schema import Message
from headrace.records import ControlType, Record, build_batch, control_type_of, header_at, records_of
from headrace.storage.log import Log
from headrace.testing.clock import FakeClock
from tests.simulation.simulated_broker import SimulatedBroker, run_simulation

CLIENTS = 6
PARTITIONS = 3
CRASHES = 12
SEEDS = range(8)


class Failed(Exception):
    """The request was refused: the client begins anew."""


class World(SimulatedBroker):
    """The broker, and what is known to be true."""

    def __init__(self, chance: random.Random, clock: FakeClock) -> None:
        super().__init__(chance, clock)
        self.promised = [0] * CLIENTS  # the next input, as committed when the client was told so
        self.broker.topics.create("out", PARTITIONS, {})
        self.broker.topics.create("in", 1, {})

    def crash(self) -> None:
        """The power fails, and comes back, and nothing is broken."""
        super().crash()
        self.check()

    def committed(self) -> Counter[bytes]:
        """What readers of committed records see, by the batches and markers in the logs."""
        seen: Counter[bytes] = Counter()
        for log in self.broker.topics.by_name["out"].partitions:
            waiting: dict[int, list[bytes]] = {}
            for batch in batches_of(log):
                header = header_at(batch)
                if not header.is_control:
                    values = [record.value or b"" for record in records_of(batch)]
                    waiting.setdefault(header.producer_id, []).extend(values)
                    continue
                ended = waiting.pop(header.producer_id, [])
                marker = control_type_of(batch)
                if marker and marker[0] is ControlType.COMMIT:
                    seen.update(ended)
        return seen

    def check(self) -> None:
        """What always holds."""
        seen = self.committed()
        assert not [value for value, count in seen.items() if count > 1 or value.startswith(b"aborted")]
        for client, following in enumerate(self.promised):
            for number in range(following):
                value = b"%d:%d" % (client, number)
                is_pending = any(is_under_way(self.broker, value, log) for log in self.logs()) if not seen[value] else 0
                assert seen[value] or is_pending, f"{value!r} was committed, and is gone"

    def logs(self) -> list[Log]:
        return self.broker.topics.by_name["out"].partitions


def is_under_way(broker: Runtime, value: bytes, log: Log) -> bool:
    """Whether a record's end is decided and its marker not yet written."""
    prepared = {
        found.producer_id for found in broker.transactions.coordinator.transactions.values() if found.is_prepared
    }
    return any(
        header_at(batch).producer_id in prepared and value in [record.value for record in records_of(batch)]
        for batch in batches_of(log)
        if not header_at(batch).is_control
    )


class Client:
    """One transactional id; an instance of it lives until it vanishes or is refused something."""

    def __init__(self, world: World, index: int) -> None:
        self._world, self._index, self._chance = world, index, world.chance
        self._is_new = index % 2 == 1  # of transaction version 2 (KIP-890)
        self._name = f"client-{index}"
        self._id = self._epoch = -1
        self._sequences: dict[int, int] = {}
        self._next = 0

    async def _ask(self, request: Message, version: int, error_of: Callable[[Any], int]) -> Any:
        """Ask until there is an answer that is no reason to ask again."""
        while True:
            try:
                answer = await self._world.ask(request, version)
            except ConnectionError:
                self._world.steps["asked again"] += 1
                continue
            error = error_of(answer)
            if error not in (51, 88):  # CONCURRENT_TRANSACTIONS, UNSTABLE_OFFSET_COMMIT
                if error:
                    self._world.steps[f"refused {type(request).__name__} {error}"] += 1
                    raise Failed
                return answer
            await asyncio.sleep(0.01)

    async def run(self, goal: int) -> None:
        """Live, and live again, until everything is done."""
        while self._next < goal or not self._id >= 0:
            try:
                await self._begin()
                while self._next < goal:
                    await self._transact(goal)
            except Failed:
                self._id = -1

    async def _begin(self) -> None:
        request = InitProducerIdRequest(transactional_id=self._name, transaction_timeout_ms=2000)
        answer = await self._ask(request, 4, lambda found: found.error_code)
        self._id, self._epoch = answer.producer_id, answer.producer_epoch
        self._sequences = {}
        topics = [OffsetFetchRequestTopics(name="in", partition_indexes=[0])]
        asked = OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id=self._name, topics=topics)], require_stable=True
        )
        found = await self._ask(asked, 8, lambda answer: answer.groups[0].topics[0].partitions[0].error_code)
        self._next = max(0, found.groups[0].topics[0].partitions[0].committed_offset)
        assert self._next >= self._world.promised[self._index], "a committed offset is gone"

    async def _transact(self, goal: int) -> None:
        count = min(self._chance.randrange(1, 5), goal - self._next)
        is_aborted = self._chance.random() < 0.15
        for place in range(count):
            value = b"%d:%d" % (self._index, self._next + place)
            await self._produce(b"aborted " + value if is_aborted else value, self._chance.randrange(PARTITIONS))
            if self._chance.random() < 0.04:
                self._world.steps["vanished"] += 1
                await asyncio.sleep(self._chance.choice([0.0, 0.05, 15.0]))  # at worst, past its time-out
                raise Failed
        await self._commit_offset(self._next + count)
        request = EndTxnRequest(
            transactional_id=self._name, producer_id=self._id, producer_epoch=self._epoch, committed=not is_aborted
        )
        answer = await self._ask(request, 5 if self._is_new else 4, lambda found: found.error_code)
        if self._is_new:
            self._id, self._epoch, self._sequences = answer.producer_id, answer.producer_epoch, {}
        self._world.steps["aborted" if is_aborted else "committed"] += 1
        if not is_aborted:
            self._next += count
            self._world.promised[self._index] = self._next
        self._world.check()

    async def _produce(self, value: bytes, partition: int) -> None:
        if not self._is_new:
            adding = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self._name,
                v3_and_below_producer_id=self._id,
                v3_and_below_producer_epoch=self._epoch,
                v3_and_below_topics=[AddPartitionsToTxnTopic(name="out", partitions=[partition])],
            )
            await self._ask(
                adding, 3, lambda a: a.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
            )
        sequence = self._sequences.get(partition, 0)
        batch = build_batch(
            [Record(0, self._world.broker.now_ms(), None, value)],
            producer_id=self._id,
            producer_epoch=self._epoch,
            base_sequence=sequence,
            transactional=True,
        )
        while True:  # a request is spent once it was sent: the broker writes into its bytes
            data = [PartitionProduceData(index=partition, records=bytearray(batch))]  # type: ignore[arg-type]
            request = ProduceRequest(
                transactional_id=self._name,
                acks=-1,
                timeout_ms=1000,
                topic_data=[TopicProduceData(name="out", partition_data=data)],
            )
            try:
                answer = await self._world.ask(request, 12 if self._is_new else 9)
            except ConnectionError:
                self._world.steps["sent again"] += 1
                continue
            error = answer.responses[0].partition_responses[0].error_code
            if error == 0:
                break
            if error != 51:
                self._world.steps[f"refused Produce {error}"] += 1
                raise Failed
            await asyncio.sleep(0.01)
        self._sequences[partition] = sequence + 1

    async def _commit_offset(self, offset: int) -> None:
        if not self._is_new:
            adding = AddOffsetsToTxnRequest(
                transactional_id=self._name, producer_id=self._id, producer_epoch=self._epoch, group_id=self._name
            )
            await self._ask(adding, 3, lambda found: found.error_code)
        partition = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
        request = TxnOffsetCommitRequest(
            transactional_id=self._name,
            group_id=self._name,
            producer_id=self._id,
            producer_epoch=self._epoch,
            topics=[TxnOffsetCommitRequestTopic(name="in", partitions=[partition])],
        )
        await self._ask(request, 5 if self._is_new else 3, lambda found: found.topics[0].partitions[0].error_code)


async def simulate(chance: random.Random, clock: FakeClock) -> Counter[str]:
    world = World(chance, clock)
    goal = 30
    clients = [asyncio.ensure_future(Client(world, index).run(goal)) for index in range(CLIENTS)]
    for _ in range(CRASHES):
        await asyncio.sleep(chance.randrange(1, 400) / 1000)
        world.crash()
        for client in clients:
            if client.done():
                client.result()
    _, unfinished = await asyncio.wait(clients, timeout=600)
    assert not unfinished, f"clients do not get on: {world.steps}"
    await asyncio.gather(*clients)
    await asyncio.sleep(30)  # for the markers of the last ones, and any time-out
    world.check()
    assert world.committed() == Counter(b"%d:%d" % (c, n) for c in range(CLIENTS) for n in range(goal))
    for topic in world.broker.topics.by_name.values():
        for log in topic.partitions:
            assert log.last_stable_offset == log.end_offset, f"a transaction is left open in {log.topic_partition}"
    world.close()
    return world.steps


@pytest.mark.long
@pytest.mark.parametrize("seed", range(len(SEEDS), 60))
def test_transactions_survive_many_power_cuts(seed: int) -> None:
    run_simulation(seed, simulate)


@pytest.mark.parametrize("seed", [int(os.environ["HEADRACE_SEED"])] if "HEADRACE_SEED" in os.environ else SEEDS)
def test_transactions_survive_power_cuts(seed: int) -> None:
    steps = run_simulation(seed, simulate)
    assert steps["committed"] >= CLIENTS
    assert steps["aborted"] > 0
    assert steps["asked again"] + steps["sent again"] > 0
