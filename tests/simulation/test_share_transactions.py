"""Records acknowledged in the transaction that has their results: both count, or neither, whatever fails in between.

In virtual time, on a disk that is slow, fails, and forgets what was not synced. Results are read as a `read_committed`
consumer reads them, once every transaction has ended.
"""

import asyncio
import os
import random
from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest

from headrace.broker import shares as shares_at_work
from headrace.broker.coordinator_log import batches_of
from headrace.coordinator.share.partition import Producer
from headrace.coordinator.share.records import ShareKey
from headrace.delivery.order import Order
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from headrace.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from headrace.protocol.messages.end_txn import EndTxnRequest
from headrace.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from headrace.protocol.messages.init_producer_id import InitProducerIdRequest
from headrace.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from headrace.protocol.messages.share_acknowledge import ShareAcknowledgeRequest
from headrace.protocol.messages.share_fetch import AcknowledgementBatch
from headrace.records import ControlType, Record, build_batch, control_type_of, header_at, records_of
from headrace.storage.log import Log
from headrace.testing.clock import FakeClock
from tests.simulation.simulated_broker import run_simulation
from tests.simulation.test_share_state import GROUP, LOCK_MS, TOPIC, World

RESULTS = "results"
ACCEPT, RELEASE, REJECT = 1, 2, 3
TIMEOUT_MS = 3_000
SEEDS = range(8)
OVER_MS = TIMEOUT_MS + 10_000  # that one's time is over is looked at every ten seconds
OLD, NEW = 4, 5  # of EndTxn: with the new one every transaction moves the epoch on (KIP-890)

Place = tuple[int, int]  # partition and offset


@dataclass
class Transactor:
    """A producer with a transactional id, and how far it is."""

    name: str
    version: int = OLD
    id: int = -1
    epoch: int = -1
    sequence: int = 0


class Factory(World):
    """Members that take records and write results."""

    async def begin(self, partitions: int, **group: str) -> None:
        await self.create(partitions)
        wanted = CreatableTopic(name=RESULTS, num_partitions=1, replication_factor=1)
        assert (await self.ask(CreateTopicsRequest(topics=[wanted]), 7)).topics[0].error_code == 0
        await self.set_group(GROUP, **group)

    async def set_group(self, name: str, **settings: str) -> None:
        configs = [
            AlterableConfig(name=setting.replace("_", "."), config_operation=0, value=value)
            for setting, value in settings.items()
        ]
        resource = AlterConfigsResource(resource_type=32, resource_name=name, configs=configs)
        assert not (await self.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1)).responses[0].error_code

    async def transactor(self, name: str, version: int = OLD, timeout_ms: int = TIMEOUT_MS) -> Transactor:
        """Whoever had the name before is fenced, and what it left open is aborted."""
        asked = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=timeout_ms)
        while True:
            answer = await self.ask(asked, 4)
            if not answer.error_code:
                return Transactor(name, version, answer.producer_id, answer.producer_epoch)
            assert answer.error_code == ErrorCode.CONCURRENT_TRANSACTIONS, answer
            await asyncio.sleep(0.01)

    async def send(self, producer: Transactor, *values: bytes) -> int:
        """Results, in the transaction."""
        if producer.version == OLD:
            adding = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=producer.name,
                v3_and_below_producer_id=producer.id,
                v3_and_below_producer_epoch=producer.epoch,
                v3_and_below_topics=[AddPartitionsToTxnTopic(name=RESULTS, partitions=[0])],
            )
            answer = await self.ask(adding, 3)
            error = answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
            if error:
                return int(error)
        batch = build_batch(
            [Record(number, 0, None, value) for number, value in enumerate(values)],
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            base_sequence=producer.sequence,
            transactional=True,
        )
        data = [TopicProduceData(name=RESULTS, partition_data=[PartitionProduceData(index=0, records=batch)])]
        asked = ProduceRequest(transactional_id=producer.name, acks=-1, timeout_ms=30_000, topic_data=data)
        answer = await self.ask(asked, 12 if producer.version == NEW else 9)
        producer.sequence += len(values)
        return int(answer.responses[0].partition_responses[0].error_code)

    async def acknowledge(self, producer: Transactor, member: str, *taken: Place, kind: int = ACCEPT) -> set[int]:
        """The error codes of each partition."""
        topic = self.topic(sorted({index for index, _ in taken}))
        for partition in topic.partitions:
            partition.acknowledgement_batches = [
                AcknowledgementBatch(first_offset=offset, last_offset=offset, acknowledge_types=[kind], reason="no use")
                for index, offset in sorted(taken)
                if index == partition.partition_index
            ]
        asked = ShareAcknowledgeRequest(
            group_id=GROUP,
            member_id=member,
            share_session_epoch=self.epochs[member],
            topics=[topic],
            transactional_id=producer.name,
            producer_id=producer.id,
            producer_epoch=producer.epoch,
        )
        answer = await self.ask(asked, 2)
        if answer.error_code:
            self.epochs[member] = 0
            return {answer.error_code}
        self.epochs[member] += 1
        return {partition.error_code for each in answer.responses for partition in each.partitions}

    async def end(self, producer: Transactor, *, committed: bool) -> int:
        asked = EndTxnRequest(
            transactional_id=producer.name,
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            committed=committed,
        )
        answer = await self.ask(asked, producer.version)
        if not answer.error_code and producer.version == NEW:
            producer.id, producer.epoch, producer.sequence = answer.producer_id, answer.producer_epoch, 0
        return int(answer.error_code)

    async def all_ended(self) -> None:
        """Wait until no transaction is open, or about to end."""
        known = self.broker.transactions.coordinator
        while any(not each.is_at_rest for each in known.transactions.values()):  # noqa: ASYNC110 - in virtual time
            await asyncio.sleep(0.01)
        assert self.broker.shares.pending() == set()

    def results(self) -> list[bytes]:
        return read_committed(self.broker.topics.by_name[RESULTS].partitions[0])

    def unfinished(self) -> int:
        found = [self.broker.shares.coordinator.partition(key) for key in self.broker.shares.coordinator.all_keys()]
        return sum(partition.end - partition.start - partition.finished for partition in found if partition)


def read_committed(log: Log) -> list[bytes]:
    """The values of committed transactions."""
    open_: dict[int, list[bytes]] = {}
    committed: list[bytes] = []
    for batch in batches_of(log):
        header = header_at(batch)
        if header.is_control:
            values, marker = open_.pop(header.producer_id, []), control_type_of(batch)
            committed += values if marker and marker[0] is ControlType.COMMIT else []
        else:
            open_.setdefault(header.producer_id, []).extend(record.value or b"" for record in records_of(batch))
    assert not open_, "a transaction has not ended"
    return committed


def result_of(place: Place) -> bytes:
    return b"%d/%d" % place


def simulate(run: Any, seed: int = 1, **settings: str) -> Counter[str]:
    async def live(chance: random.Random, clock: FakeClock) -> Counter[str]:
        world = Factory(chance, clock, **settings)
        await run(world)
        world.close()
        return world.steps

    return run_simulation(seed, live)


versions = pytest.mark.parametrize("version", [OLD, NEW])


@versions
def test_a_commit_accepts_what_was_taken_and_an_abort_releases_it(version: int) -> None:
    async def run(world: Factory) -> None:
        await world.begin(2)
        await world.produce(0, 1)
        await world.join("ann")
        await world.join("bob")
        producer = await world.transactor("t", version)
        for committed in (False, True):
            taken: set[Place] = set()
            while len(taken) < 2:
                taken |= await world.take("ann", 0, 1)
            assert await world.send(producer, *map(result_of, sorted(taken))) == 0
            assert await world.acknowledge(producer, "ann", *taken) == {0}
            assert await world.take("bob", 0, 1, max_wait_ms=2 * LOCK_MS) == set(), "its lock has lapsed"
            assert await world.end(producer, committed=committed) == 0
            await world.all_ended()
            world.epochs["ann"] = 0
        assert await world.take("bob", 0, 1) == set()
        assert world.results() == [b"0/0", b"1/0"]
        assert world.unfinished() == 0

    simulate(run)


@versions
def test_a_transaction_whose_time_is_over_gives_back_what_it_had_and_its_producer_is_fenced(version: int) -> None:
    async def run(world: Factory) -> None:
        await world.begin(1)
        await world.produce(0)
        await world.produce(0)
        await world.join("ann")
        await world.join("bob")
        producer = await world.transactor("t", version)
        assert await world.take("ann", 0) == {(0, 0), (0, 1)}
        assert await world.send(producer, b"0/0") == 0
        assert await world.acknowledge(producer, "ann", (0, 0)) == {0}
        world.drop_connection("ann")
        assert await world.take("bob", 0, max_wait_ms=LOCK_MS) == {(0, 1)}, "what it had outside of it is free"
        assert await world.accept("bob", (0, 1)) == {0}
        assert await world.take("bob", 0, max_wait_ms=2 * OVER_MS) == {(0, 0)}
        await world.join("ann")
        ended = {OLD: ErrorCode.PRODUCER_FENCED, NEW: ErrorCode.INVALID_TXN_STATE}
        assert await world.end(producer, committed=True) == ended[version]
        assert await world.acknowledge(producer, "bob", (0, 0)) == {ErrorCode.INVALID_PRODUCER_EPOCH}
        successor = await world.transactor("t", version)
        assert await world.send(successor, b"0/0") == 0
        assert await world.acknowledge(successor, "bob", (0, 0)) == {0}
        assert await world.end(successor, committed=True) == 0
        await world.all_ended()
        assert world.results() == [b"0/0"]

    simulate(run)


def test_what_a_member_does_not_have_is_refused_and_a_transaction_accepts_or_rejects() -> None:
    async def run(world: Factory) -> None:
        await world.begin(1)
        await world.produce(0)
        await world.join("ann")
        await world.join("bob")
        producer = await world.transactor("t")
        assert await world.take("ann", 0) == {(0, 0)}
        assert await world.acknowledge(producer, "ann", (0, 0), kind=RELEASE) == {ErrorCode.INVALID_REQUEST}
        assert await world.take("bob", 0, max_wait_ms=2 * LOCK_MS) == {(0, 0)}, "ann's lock has lapsed"
        assert await world.acknowledge(producer, "ann", (0, 0)) == {ErrorCode.INVALID_RECORD_STATE}
        assert await world.acknowledge(Transactor("stranger", id=77, epoch=0), "bob", (0, 0)) == {
            ErrorCode.INVALID_PRODUCER_ID_MAPPING
        }
        assert await world.acknowledge(producer, "bob", (0, 0)) == {0}
        assert await world.acknowledge(producer, "bob", (0, 0)) == {ErrorCode.INVALID_RECORD_STATE}
        assert await world.accept("bob", (0, 0)) == {ErrorCode.INVALID_RECORD_STATE}
        assert await world.end(producer, committed=True) == 0
        await world.all_ended()
        assert world.unfinished() == 0
        assert await world.send(producer, b"late") == 0
        assert await world.acknowledge(producer, "ann", (0, 0)) == {ErrorCode.INVALID_RECORD_STATE}, "it has a result"

    simulate(run)


@versions
@pytest.mark.parametrize("committed", [True, False])
def test_a_transaction_over_restarts_is_ended_as_it_was_decided(version: int, committed: bool) -> None:
    async def run(world: Factory) -> None:
        await world.begin(2)
        await world.produce(0, 1)
        await world.join("ann")
        producer = await world.transactor("t", version, timeout_ms=60_000)
        taken: set[Place] = set()
        while len(taken) < 2:
            taken |= await world.take("ann", 0, 1)
        assert await world.send(producer, *map(result_of, sorted(taken))) == 0
        assert await world.acknowledge(producer, "ann", *taken) == {0}
        for _ in range(2):
            world.crash()
            world.epochs.clear()
            assert await world.take("bob", 0, 1, max_wait_ms=2 * LOCK_MS) == set(), "the transaction is open"
            assert world.broker.shares.pending()
        fault = world.disk.fail_sync("*__share_group_state-*.log", times=2)
        assert await world.end(producer, committed=committed) == 0
        await asyncio.sleep(0.5)
        world.disk.heal(fault)
        world.crash()
        await world.all_ended()
        world.epochs.clear()
        again: set[Place] = set()
        for _ in range(3):
            again |= await world.take("bob", 0, 1)
        assert again == (set() if committed else taken)
        assert world.results() == ([b"0/0", b"1/0"] if committed else [])

    simulate(run)


def test_what_no_transaction_knows_of_is_released_at_the_start() -> None:
    """A power cut may take the end of the one topic, and leave that of the other."""

    async def run(world: Factory) -> None:
        await world.begin(1)
        await world.produce(0)
        await world.join("ann")
        producer = await world.transactor("t", timeout_ms=60_000)
        assert await world.take("ann", 0) == {(0, 0)}
        for logs in (world.broker.transactions.log, world.broker.shares.log, world.broker.groups.log):
            for log in logs.partitions():
                log.flush()
        for log in world.broker.topics.by_name[TOPIC].partitions:
            log.flush()
        assert await world.acknowledge(producer, "ann", (0, 0)) == {0}
        for log in world.broker.shares.log.partitions():
            log.flush()
        world.lose_what_is_not_synced()
        assert world.broker.shares.pending() == set()
        assert await world.take("bob", 0) == {(0, 0)}
        world.epochs.clear()
        world.crash()
        assert await world.take("bob", 0) == {(0, 0)}, "it was released for good"

    simulate(run, durability="os")


def test_a_record_of_a_key_waits_for_the_transaction_of_the_one_before_it() -> None:
    async def run(world: Factory) -> None:
        await world.begin(1, headrace_order=Order.KEY.value)
        batch = build_batch([Record(number, 0, b"k", b"v") for number in range(2)])
        data = [TopicProduceData(name=TOPIC, partition_data=[PartitionProduceData(index=0, records=batch)])]
        await world.ask(ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=data), 12)
        await world.join("ann")
        await world.join("bob")
        producer = await world.transactor("t", timeout_ms=60_000)
        for committed in (False, True):
            assert await world.take("ann", 0) == {(0, 0)}
            assert await world.acknowledge(producer, "ann", (0, 0)) == {0}
            assert await world.take("bob", 0, max_wait_ms=2 * LOCK_MS) == set()
            assert await world.end(producer, committed=committed) == 0
            await world.all_ended()
        assert await world.take("bob", 0) == {(0, 1)}

    simulate(run)


def test_nobody_else_is_the_active_member_before_the_transaction_of_the_last_one_has_ended() -> None:
    async def run(world: Factory) -> None:
        await world.begin(1, headrace_order=Order.SINGLE.value)
        await world.produce(0)
        await world.produce(0)
        await world.join("ann")
        await world.join("bob")
        producer = await world.transactor("t", timeout_ms=60_000)
        assert await world.take("ann", 0) == {(0, 0), (0, 1)}
        assert await world.acknowledge(producer, "ann", (0, 0)) == {0}
        world.drop_connection("ann")
        assert await world.take("bob", 0, max_wait_ms=2 * LOCK_MS) == set()
        world.crash()
        world.epochs.clear()
        assert await world.take("bob", 0, max_wait_ms=2 * LOCK_MS) == set()
        taking = asyncio.ensure_future(world.take("bob", 0, max_wait_ms=60_000))
        assert await world.end(producer, committed=False) == 0
        assert await taking == {(0, 0), (0, 1)}

    simulate(run)


def test_what_is_rejected_in_a_transaction_is_a_dead_letter_once_that_is_committed() -> None:
    async def run(world: Factory) -> None:
        await world.begin(1, errors_deadletterqueue_topic_name="dlq.work")
        await world.produce(0)
        await world.join("ann")
        producer = await world.transactor("t")
        for committed in (False, True):
            assert await world.take("ann", 0, max_wait_ms=2 * LOCK_MS) == {(0, 0)}
            assert await world.acknowledge(producer, "ann", (0, 0), kind=REJECT) == {0}
            assert "dlq.work" not in world.broker.topics.by_name
            assert await world.end(producer, committed=committed) == 0
            await world.all_ended()
        while world.unfinished():  # noqa: ASYNC110 - in virtual time
            await asyncio.sleep(0.05)
        letters = world.broker.topics.by_name["dlq.work"].partitions[0]
        (letter,) = (record for batch in batches_of(letters) for record in records_of(batch))
        assert b"no use" in [value for _, value in letter.headers]

    simulate(run)


def test_what_is_aborted_too_often_is_given_up() -> None:
    async def run(world: Factory) -> None:
        await world.begin(1, share_delivery_count_limit="2")
        await world.produce(0)
        await world.join("ann")
        producer = await world.transactor("t")
        for _ in range(2):
            assert await world.take("ann", 0) == {(0, 0)}
            assert await world.acknowledge(producer, "ann", (0, 0)) == {0}
            assert await world.end(producer, committed=False) == 0
            await world.all_ended()
        assert await world.take("ann", 0) == set()
        assert world.unfinished() == 0

    simulate(run)


def test_the_offsets_of_a_group_are_altered_whatever_was_acknowledged_in_a_transaction() -> None:
    """What a transaction that is committed then says is about records of which nothing is known any more."""

    async def run(world: Factory) -> None:
        await world.begin(1)
        await world.produce(0)
        await world.join("ann")
        producer = await world.transactor("t")
        assert await world.take("ann", 0) == {(0, 0)}
        assert await world.acknowledge(producer, "ann", (0, 0)) == {0}
        key = ShareKey(GROUP, world.topic_id, 0)
        assert world.broker.shares.pending() == {
            (world.broker.shares.log.partition_of(key.text), Producer(producer.id, producer.epoch))
        }
        assert await world.broker.shares.delete([key])
        assert await world.end(producer, committed=True) == 0
        await world.all_ended()
        assert await world.take("ann", 0) == {(0, 0)}, "the group begins anew"

    simulate(run)


# --- everything at once


async def work(world: Factory, name: str, version: int) -> None:
    """Take, write results, acknowledge, commit; at times do so wrongly, too late, or not at all, for ever."""
    chance = world.chance
    while True:
        try:
            await world.join(name)
            world.epochs[name] = 0
            producer = await world.transactor(name, version)
            for _ in range(chance.randrange(1, 8)):
                try:
                    taken = await world.take(name, 0, 1, max_wait_ms=chance.choice([0, 50]))
                except AssertionError:  # it was away for so long that it is not a member any more
                    break
                for place in sorted(taken):
                    if await process(world, producer, name, place):
                        continue
                    await world.end(producer, committed=False)
                    producer = await world.transactor(name, version)
                if chance.random() < 0.1:
                    await asyncio.sleep(LOCK_MS * 1.2 / 1000)
        except ConnectionError:
            await asyncio.sleep(0.01)


async def process(world: Factory, producer: Transactor, name: str, place: Place) -> bool:
    """Whether the transaction is over, and the producer may begin the next."""
    chance = world.chance
    if await world.send(producer, result_of(place)):
        return False
    if chance.random() < 0.06:
        await asyncio.sleep(chance.choice([LOCK_MS, OVER_MS]) * 1.2 / 1000)
    kind = chance.choice([ACCEPT, ACCEPT, REJECT])
    if await world.acknowledge(producer, name, place, kind=kind) != {0}:
        world.steps["refused"] += 1
        return False
    if chance.random() < 0.03:
        await asyncio.sleep(OVER_MS * 1.2 / 1000)
    committed = chance.random() < 0.7
    error = await world.end(producer, committed=committed)
    world.steps["committed" if committed else "aborted"] += not error
    return not error


@pytest.mark.parametrize("seed", [int(os.environ["HEADRACE_SEED"])] if "HEADRACE_SEED" in os.environ else SEEDS)
def test_each_record_has_one_result_over_power_cuts_and_failed_syncs(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if seed % 2:
        monkeypatch.setattr(shares_at_work, "_CHECK_CUT_S", 0.04)
        monkeypatch.setattr(shares_at_work, "_RECORDS_BEFORE_CUT", 4)
        monkeypatch.setattr(shares_at_work, "_RECORDS_PER_KEY_BEFORE_CUT", 1)

    async def run(world: Factory) -> None:
        chance = world.chance
        await world.begin(2)
        produced = 0
        versions = {"ann": OLD, "bob": NEW, "cid": OLD}
        workers = [asyncio.ensure_future(work(world, name, version)) for name, version in versions.items()]
        for _ in range(5):
            for _ in range(chance.randrange(3, 8)):
                topics = ["__share_group_state", "__transaction_state", RESULTS]
                if chance.random() < 0.3:
                    world.disk.fail_sync(f"*{chance.choice(topics)}-*.log", times=1)
                    world.steps["failed syncs"] += 1
                try:
                    await world.produce(0, 1)
                    produced += 2
                except (ConnectionError, AssertionError):
                    world.steps["hung up on"] += 1
                await asyncio.sleep(chance.randrange(400) / 1000)
                world.disk.heal()
            for worker in workers:
                assert not worker.done(), worker.exception()
            world.crash()
            world.epochs.clear()
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
        world.crash()
        await world.all_ended()
        world.epochs.clear()
        await world.join("zoe")
        last = await world.transactor("zoe")
        idle = 0
        while idle < 20:
            taken = await world.take("zoe", 0, 1, max_wait_ms=LOCK_MS)
            idle = 0 if taken else idle + 1
            if taken:
                assert await world.send(last, *map(result_of, sorted(taken))) == 0
                assert await world.acknowledge(last, "zoe", *taken) == {0}
                assert await world.end(last, committed=True) == 0
        await world.all_ended()
        assert world.unfinished() == 0
        ends = [log.end_offset for log in world.broker.topics.by_name[TOPIC].partitions]
        assert sum(ends) >= produced
        expected = Counter(result_of((index, offset)) for index, end in enumerate(ends) for offset in range(end))
        assert Counter(world.results()) == expected

    limits = {"group.share.delivery.count.limit": "10", "group.share.max.delivery.count.limit": "10"}
    steps = simulate(run, seed, **limits)
    assert steps["committed"]
