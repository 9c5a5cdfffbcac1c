"""What a coordinator has decided, and a failing disk did not let it write: who asked is hung up on, and the rest is
tried again until it is done. In virtual time, with the broker's own handlers, on a disk that fails when told to."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from errno import ENOSPC
from random import Random
from typing import Any

import pytest

from headrace.broker.coordinator_log import batches_of
from headrace.broker.coordinator_shell import RETRY_S
from headrace.broker.transactions import PATIENCE_S
from headrace.coordinator.transaction.machine import LAST_USABLE_EPOCH
from headrace.model import TopicPartition
from headrace.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from headrace.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from headrace.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from headrace.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from headrace.protocol.messages.end_txn import EndTxnRequest
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
from headrace.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from headrace.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from headrace.records import ControlType, Record, build_batch, control_type_of, header_at
from headrace.storage.errors import StorageError
from headrace.storage.log import Log
from headrace.testing.clock import FakeClock
from tests.simulation.simulated_broker import SETTINGS, SimulatedBroker, run_simulation

OFFSETS, STATES, OUT = "*__consumer_offsets-*.log", "*__transaction_state-*.log", "*/out-0/*.log"
SESSION_S, TIMEOUT_S = 3.0, 2.0
TIMED_OUT_S = 13.0  # time-outs are looked at every ten seconds
CONCURRENT_TRANSACTIONS, INVALID_PRODUCER_ID_MAPPING, INVALID_REQUEST = 51, 49, 42
LONG_ENOUGH_S = 2 * RETRY_S


def run(story: Callable[[SimulatedBroker], Awaitable[None]]) -> None:
    """Have it happen, in no time."""

    async def simulate(chance: Random, clock: FakeClock) -> Counter[str]:
        settings = {**SETTINGS, "group.consumer.session.timeout.ms": str(int(SESSION_S * 1000))}
        world = SimulatedBroker(chance, clock, settings)
        world.broker.topics.create("out", 2, {})
        await story(world)
        world.close()
        return world.steps

    run_simulation(1, simulate)


# --- groups


async def beat(world: SimulatedBroker, member: str, epoch: int) -> Any:
    everything = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": ["out"], "topic_partitions": []}
    return await world.ask(
        ConsumerGroupHeartbeatRequest(group_id="g", member_id=member, member_epoch=epoch, **everything), 1
    )


def members(world: SimulatedBroker) -> set[str]:
    consumer = world.broker.groups.coordinator._consumer
    assert consumer is not None
    return set(consumer.group("g").members) if consumer.holds("g") else set()


async def commit(world: SimulatedBroker, offset: int, topic: str = "out") -> int:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
    topics = [OffsetCommitRequestTopic(name=topic, partitions=[partition])]
    answer = await world.ask(OffsetCommitRequest(group_id="self-assigned", topics=topics), 9)
    return answer.topics[0].partitions[0].error_code


def committed(world: SimulatedBroker, topic: str = "out", group: str = "self-assigned") -> int | None:
    found = world.broker.groups.coordinator._offsets.committed(group).get(TopicPartition(topic, 0))
    return found.offset if found else None


@pytest.mark.parametrize("fails", ["write", "sync"])
def test_whoever_commits_is_hung_up_on_and_may_ask_again(fails):
    async def story(world: SimulatedBroker) -> None:
        assert await commit(world, 1) == 0
        world.disk.fail_write(OFFSETS, error=ENOSPC) if fails == "write" else world.disk.fail_sync(OFFSETS)
        with pytest.raises(ConnectionError):
            await commit(world, 2)
        if fails == "write":
            assert committed(world) == 1, "what could not be written has not happened"
        assert await commit(world, 2) == 0
        world.crash()
        assert committed(world) == 2

    run(story)


def test_a_member_whose_removal_cannot_be_written_stays_until_it_can_be():
    async def story(world: SimulatedBroker) -> None:
        assert (await beat(world, "silent", 0)).error_code == 0
        fault = world.disk.fail_write(OFFSETS, times=None)
        await asyncio.sleep(SESSION_S + 3 * RETRY_S)
        assert fault.hits >= 3, "the session's end was not tried again"
        assert members(world) == {"silent"}
        with pytest.raises(ConnectionError):
            await beat(world, "newcomer", 0)
        world.disk.heal()
        await asyncio.sleep(LONG_ENOUGH_S)
        assert members(world) == set()
        answer = await beat(world, "newcomer", 0)
        assert answer.error_code == 0
        assert [each.partitions for each in answer.assignment.topic_partitions] == [[0, 1]]
        world.crash()
        assert members(world) == {"newcomer"}

    run(story)


def test_a_member_that_is_back_before_its_removal_can_be_written_stays():
    async def story(world: SimulatedBroker) -> None:
        epoch = (await beat(world, "late", 0)).member_epoch
        world.disk.fail_write(OFFSETS, times=None)
        await asyncio.sleep(SESSION_S + RETRY_S / 2)
        world.disk.heal()
        assert (await beat(world, "late", epoch)).error_code == 0
        for _ in range(4):
            await asyncio.sleep(SESSION_S / 2)
            assert (await beat(world, "late", epoch)).error_code == 0
        assert members(world) == {"late"}

    run(story)


def test_offsets_of_a_deleted_topic_go_even_if_the_disk_fails_just_then():
    async def story(world: SimulatedBroker) -> None:
        world.broker.topics.create("short-lived", 1, {})
        assert await commit(world, 5, "short-lived") == 0
        world.disk.fail_write(OFFSETS, times=None)
        world.broker.topics.delete("short-lived")
        await asyncio.sleep(LONG_ENOUGH_S)
        assert committed(world, "short-lived") == 5
        world.broker.topics.create("short-lived", 1, {})
        with pytest.raises(ConnectionError):
            await commit(world, 1, "short-lived")
        world.disk.heal()
        await asyncio.sleep(LONG_ENOUGH_S)
        assert committed(world, "short-lived") is None, "the new topic would be read from where the old one was left"

    run(story)


def test_nobody_commits_for_a_topic_before_the_offsets_of_its_namesake_are_gone():
    async def story(world: SimulatedBroker) -> None:
        world.broker.topics.create("short-lived", 1, {})
        assert await commit(world, 5, "short-lived") == 0
        world.disk.fail_write(OFFSETS)
        world.broker.topics.delete("short-lived")
        await asyncio.sleep(0)
        world.broker.topics.create("short-lived", 1, {})
        assert await commit(world, 1, "short-lived") == 0
        await asyncio.sleep(LONG_ENOUGH_S)
        assert committed(world, "short-lived") == 1, "it was acknowledged, and forgotten with the old topic's"

    run(story)


def test_a_topic_with_many_offsets_is_forgotten_in_portions_that_keep_nobody_waiting():
    async def story(world: SimulatedBroker) -> None:
        world.broker.topics.create("wide", 50, {})
        partitions = [
            OffsetCommitRequestPartition(partition_index=index, committed_offset=7, committed_metadata="")
            for index in range(50)
        ]
        groups = [f"a-group-with-a-name-of-ordinary-length-{number}" for number in range(600)]
        for group in groups:
            topics = [OffsetCommitRequestTopic(name="wide", partitions=list(partitions))]
            await world.ask(OffsetCommitRequest(group_id=group, topics=topics), 9)
        ends = [log.end_offset for log in offset_logs(world)]
        deleting = asyncio.ensure_future(delete(world, "wide"))
        assert await commit(world, 3) == 0
        assert await deleting == 0
        batches = [
            header_at(batch)
            for log, end in zip(offset_logs(world), ends, strict=True)
            for batch in batches_of(log)
            if header_at(batch).base_offset >= end
        ]
        assert sum(header.record_count for header in batches) == len(groups) * len(partitions) + 1
        assert max(header.size for header in batches) < 256 * 1024
        world.crash()
        assert committed(world, "out") == 3
        store = world.broker.groups.coordinator._offsets
        assert not any(store.committed(group) for group in groups)

    run(story)


def test_a_decision_is_written_however_large_it_is():
    """A group with very many members, or a commit of very many partitions: refused, it would be asked for again for
    ever."""

    async def story(world: SimulatedBroker) -> None:
        world.broker.topics.create("wide", 500, {})
        partitions = [
            OffsetCommitRequestPartition(partition_index=index, committed_offset=7, committed_metadata="m" * 4096)
            for index in range(500)
        ]
        topics = [OffsetCommitRequestTopic(name="wide", partitions=partitions)]
        answer = await world.ask(OffsetCommitRequest(group_id="self-assigned", topics=topics), 9)
        assert {partition.error_code for partition in answer.topics[0].partitions} == {0}
        world.crash()
        assert committed(world, "wide") == 7

    run(story)


def offset_logs(world: SimulatedBroker) -> tuple[Log, ...]:
    return world.broker.topics.by_name["__consumer_offsets"].partitions


async def delete(world: SimulatedBroker, topic: str) -> int:
    answer = await world.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name=topic)], timeout_ms=1000), 6)
    return answer.responses[0].error_code


# --- transactions


class Producer:
    """A producer of transaction version 2 (KIP-890)."""

    def __init__(self, world: SimulatedBroker) -> None:
        self._world = world
        self.id = self.epoch = -1

    async def begin(self) -> int:
        """InitProducerId; the error code."""
        request = InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=int(TIMEOUT_S * 1000))
        answer = await self._world.ask(request, 4)
        self.id, self.epoch = answer.producer_id, answer.producer_epoch
        return answer.error_code

    async def send(self, partition: int) -> int:
        batch = build_batch(
            [Record(0, self._world.broker.now_ms(), None, b"value")],
            producer_id=self.id,
            producer_epoch=self.epoch,
            base_sequence=0,
            transactional=True,
        )
        data = [PartitionProduceData(index=partition, records=bytearray(batch))]
        topics = [TopicProduceData(name="out", partition_data=data)]
        request = ProduceRequest(transactional_id="t", acks=-1, timeout_ms=1000, topic_data=topics)
        return (await self._world.ask(request, 12)).responses[0].partition_responses[0].error_code

    async def commit_offset(self, offset: int) -> int:
        partition = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
        request = TxnOffsetCommitRequest(
            transactional_id="t",
            group_id="in-transaction",
            producer_id=self.id,
            producer_epoch=self.epoch,
            topics=[TxnOffsetCommitRequestTopic(name="out", partitions=[partition])],
        )
        return (await self._world.ask(request, 5)).topics[0].partitions[0].error_code

    async def end(self, *, committed: bool = True) -> int:
        """EndTxn; the error code."""
        request = EndTxnRequest(
            transactional_id="t", producer_id=self.id, producer_epoch=self.epoch, committed=committed
        )
        answer = await self._world.ask(request, 5)
        if answer.error_code == 0:
            self.id, self.epoch = answer.producer_id, answer.producer_epoch
        return answer.error_code


async def open_transaction(world: SimulatedBroker) -> Producer:
    """A producer that has written to both partitions, and committed an offset."""
    producer = Producer(world)
    assert await producer.begin() == 0
    assert [await producer.send(partition) for partition in (0, 1)] == [0, 0]
    assert await producer.commit_offset(7) == 0
    return producer


def state(world: SimulatedBroker) -> str:
    return world.broker.transactions.coordinator.transactions["t"].state.label


def out(world: SimulatedBroker, partition: int) -> Log:
    return world.broker.topics.by_name["out"].partitions[partition]


def markers(log: Log) -> list[ControlType]:
    found = [control_type_of(batch) for batch in batches_of(log) if header_at(batch).is_control]
    return [marker[0] for marker in found if marker]


def assert_ended(world: SimulatedBroker, outcome: ControlType) -> None:
    """It has ended in the same way everywhere, and nothing is left open."""
    is_commit = outcome is ControlType.COMMIT
    assert state(world) == ("CompleteCommit" if is_commit else "CompleteAbort")
    for partition in (0, 1):
        log = out(world, partition)
        assert set(markers(log)) == {outcome}
        assert log.last_stable_offset == log.end_offset
    assert committed(world, group="in-transaction") == (7 if is_commit else None)


@pytest.mark.parametrize("path", [OUT, OFFSETS])
def test_a_marker_that_cannot_be_written_is_written_later(path):
    async def story(world: SimulatedBroker) -> None:
        producer = await open_transaction(world)
        fault = world.disk.fail_write(path, times=None, error=ENOSPC)
        assert await producer.end() == 0, "the end is decided, and on the disk"
        await asyncio.sleep(3 * RETRY_S)
        assert fault.hits >= 3
        assert state(world) == "PrepareCommit"
        assert markers(out(world, 1)) == [ControlType.COMMIT], "the others do not wait, and are not written again"
        assert await Producer(world).begin() == CONCURRENT_TRANSACTIONS
        if path == OUT:
            assert out(world, 0).last_stable_offset == 0, "what is not ended yet is not shown"
        else:
            assert committed(world, group="in-transaction") is None
        world.disk.heal()
        await asyncio.sleep(LONG_ENOUGH_S)
        assert_ended(world, ControlType.COMMIT)
        assert await Producer(world).begin() == 0
        world.crash()
        assert committed(world, group="in-transaction") == 7

    run(story)


@pytest.mark.parametrize("path", [OUT, OFFSETS])
def test_a_marker_that_cannot_be_synced_is_not_taken_for_written(path):
    async def story(world: SimulatedBroker) -> None:
        producer = await open_transaction(world)
        fault = world.disk.fail_sync(path, times=None)
        assert await producer.end() == 0
        await asyncio.sleep(2 * RETRY_S)
        assert fault.hits >= 2
        assert state(world) == "PrepareCommit"
        world.disk.heal()
        await asyncio.sleep(LONG_ENOUGH_S)
        assert_ended(world, ControlType.COMMIT)
        world.crash()
        await asyncio.sleep(0.1)
        assert_ended(world, ControlType.COMMIT)

    run(story)


def test_a_crash_while_a_marker_is_tried_again_loses_nothing():
    async def story(world: SimulatedBroker) -> None:
        producer = await open_transaction(world)
        world.disk.fail_write(OUT, times=None)
        assert await producer.end() == 0
        await asyncio.sleep(RETRY_S / 2)
        world.crash()
        await asyncio.sleep(0.1)
        assert_ended(world, ControlType.COMMIT)

    run(story)


def test_a_partition_that_goes_while_its_marker_is_tried_again_holds_nobody_up():
    async def story(world: SimulatedBroker) -> None:
        producer = await open_transaction(world)
        world.disk.fail_write(OUT, times=None)
        assert await producer.end() == 0
        await asyncio.sleep(LONG_ENOUGH_S)
        assert state(world) == "PrepareCommit"
        world.broker.topics.delete("out")
        await asyncio.sleep(LONG_ENOUGH_S)
        assert state(world) == "CompleteCommit"
        assert await Producer(world).begin() == 0

    run(story)


def test_an_end_that_is_decided_and_not_durable_is_carried_out_once_it_is():
    async def story(world: SimulatedBroker) -> None:
        producer = await open_transaction(world)
        world.disk.fail_sync(STATES, times=None)
        with pytest.raises(ConnectionError):
            await producer.end()
        await asyncio.sleep(LONG_ENOUGH_S)
        assert [markers(out(world, partition)) for partition in (0, 1)] == [[], []], "nobody may see it before it is"
        world.disk.heal()
        await asyncio.sleep(LONG_ENOUGH_S)
        assert_ended(world, ControlType.COMMIT)
        assert await producer.end() == 0, "asked again, it is told that it is done"

    run(story)


async def lose_the_end(world: SimulatedBroker, topic: str) -> None:
    """Have what the last sync could not make durable be lost for good: it is not what was written any more."""
    for log in world.broker.topics.by_name[topic].partitions:
        if log.durable_offset < log.end_offset:
            segment = log.segments[-1]
            world.disk.corrupt(segment.path, segment.size - 1, b"?")
            cuts = log.cuts
            with pytest.raises(StorageError):
                log.flush()
            assert log.cuts > cuts


def test_an_end_that_was_decided_and_lost_has_not_happened():
    """Were its markers written all the same, a crash would find the transaction open, and abort what they committed."""

    async def story(world: SimulatedBroker) -> None:
        producer = await open_transaction(world)
        world.disk.fail_sync(STATES)
        with pytest.raises(ConnectionError):
            await producer.end()
        await lose_the_end(world, "__transaction_state")
        await asyncio.sleep(LONG_ENOUGH_S)
        assert [markers(out(world, partition)) for partition in (0, 1)] == [[], []]
        assert state(world) == "Ongoing"
        assert await producer.end(committed=False) == 0, "it may as well be aborted now"
        await asyncio.sleep(LONG_ENOUGH_S)
        assert_ended(world, ControlType.ABORT)
        world.crash()
        await asyncio.sleep(0.1)
        assert_ended(world, ControlType.ABORT)

    run(story)


def test_a_transaction_that_was_open_and_lost_times_out_all_the_same():
    async def story(world: SimulatedBroker) -> None:
        producer = await open_transaction(world)
        world.disk.fail_sync(STATES)
        with pytest.raises(ConnectionError):
            await producer.end()
        await lose_the_end(world, "__transaction_state")
        await asyncio.sleep(LONG_ENOUGH_S + TIMED_OUT_S)
        assert_ended(world, ControlType.ABORT)

    run(story)


def test_an_offset_that_was_lost_is_told_to_nobody():
    async def story(world: SimulatedBroker) -> None:
        assert await commit(world, 5) == 0
        world.disk.fail_sync(OFFSETS)
        with pytest.raises(ConnectionError):
            await commit(world, 6)
        await lose_the_end(world, "__consumer_offsets")
        assert await fetch(world) == 5, "it would be less again after a crash"
        assert await commit(world, 7) == 0
        world.crash()
        assert await fetch(world) == 7

    run(story)


def test_members_go_on_after_the_end_of_their_groups_log_was_lost():
    async def story(world: SimulatedBroker) -> None:
        epoch = (await beat(world, "m", 0)).member_epoch
        world.disk.fail_sync(OFFSETS)
        with pytest.raises(ConnectionError):
            await commit(world, 6)
        await lose_the_end(world, "__consumer_offsets")
        assert (await beat(world, "m", epoch)).error_code == 0
        await asyncio.sleep(SESSION_S * 2)
        assert members(world) == set(), "its session is watched again"

    run(story)


def test_who_deletes_the_offsets_topic_deletes_the_offsets_now_and_not_at_the_next_start():
    async def story(world: SimulatedBroker) -> None:
        assert await commit(world, 5) == 0
        assert await delete(world, "__consumer_offsets") == 0
        assert await fetch(world) == -1
        assert await commit(world, 6) == 0
        world.crash()
        assert await fetch(world) == 6

    run(story)


def test_an_internal_topic_keeps_its_partitions():
    """A group's records would be in two of them, and the older ones may be read last."""

    async def story(world: SimulatedBroker) -> None:
        assert await commit(world, 5) == 0
        asked = CreatePartitionsTopic(name="__consumer_offsets", count=4, assignments=None)
        answer = await world.ask(CreatePartitionsRequest(topics=[asked], timeout_ms=1000), 3)
        assert answer.results[0].error_code == INVALID_REQUEST
        assert len(offset_logs(world)) == 3

    run(story)


def test_who_deletes_the_transactions_topic_leaves_none_open():
    async def story(world: SimulatedBroker) -> None:
        producer = await open_transaction(world)
        assert await delete(world, "__transaction_state") == 0
        assert await producer.end() == INVALID_PRODUCER_ID_MAPPING
        for partition in (0, 1):
            assert markers(out(world, partition)) == [ControlType.ABORT]
        assert await producer.begin() == 0

    run(story)


async def fetch(world: SimulatedBroker) -> int:
    topics = [OffsetFetchRequestTopics(name="out", partition_indexes=[0])]
    asked = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="self-assigned", topics=topics)])
    return (await world.ask(asked, 8)).groups[0].topics[0].partitions[0].committed_offset


def test_an_end_that_cannot_be_written_has_not_happened():
    async def story(world: SimulatedBroker) -> None:
        producer = await open_transaction(world)
        world.disk.fail_write(STATES)
        with pytest.raises(ConnectionError):
            await producer.end()
        assert state(world) == "Ongoing"
        assert await producer.end() == 0
        await asyncio.sleep(0.1)
        assert_ended(world, ControlType.COMMIT)

    run(story)


def test_a_completion_that_cannot_be_written_is_written_later():
    async def story(world: SimulatedBroker) -> None:
        producer = await open_transaction(world)
        fault = world.disk.fail_write(STATES, skip=1, times=3)  # the decision passes, and what follows it does not
        assert await producer.end() == 0
        await asyncio.sleep(RETRY_S / 2)
        assert state(world) == "PrepareCommit"
        assert await Producer(world).begin() == CONCURRENT_TRANSACTIONS
        await asyncio.sleep(4 * RETRY_S)
        assert fault.hits == 3
        assert_ended(world, ControlType.COMMIT)
        assert [len(markers(out(world, partition))) for partition in (0, 1)] == [1, 1]

    run(story)


def test_a_time_out_that_cannot_be_written_is_written_later():
    async def story(world: SimulatedBroker) -> None:
        producer = await open_transaction(world)
        fault = world.disk.fail_write(STATES, times=None)
        await asyncio.sleep(TIMED_OUT_S + 3 * RETRY_S)
        assert fault.hits >= 3
        assert state(world) == "Ongoing"
        world.disk.heal()
        await asyncio.sleep(LONG_ENOUGH_S)
        assert_ended(world, ControlType.ABORT)
        assert await producer.end() != 0, "it was fenced"

    run(story)


# --- what is asked while an end is under way


def is_waiting(world: SimulatedBroker) -> bool:
    return bool(world.broker.transactions._held)


async def ended(world: SimulatedBroker) -> Producer:
    """A producer whose transaction has ended just now, so that its markers are not on the disk yet."""
    producer = Producer(world)
    assert await producer.begin() == 0
    assert [await producer.send(partition) for partition in (0, 1)] == [0, 0]
    assert await producer.end() == 0
    assert state(world) == "PrepareCommit"
    return producer


def test_the_next_transaction_begins_once_the_one_before_has_ended_without_being_sent_back():
    async def story(world: SimulatedBroker) -> None:
        for _ in range(20):
            producer = await ended(world)
            answers = await asyncio.gather(producer.send(0), producer.send(1), producer.commit_offset(7))
            assert answers == [0, 0, 0]
            assert await producer.end() == 0
        await asyncio.sleep(0.1)
        assert not is_waiting(world)
        for log in (out(world, 0), out(world, 1)):
            kinds = [header_at(batch).is_control for batch in batches_of(log)]
            assert kinds == [False, True] * 40, "each transaction is ended before the next one writes"

    run(story)


@pytest.mark.parametrize("what", ["begin", "end", "add"])
def test_whatever_else_is_asked_meanwhile_waits_too(what):
    async def story(world: SimulatedBroker) -> None:
        producer = await ended(world)
        if what == "begin":
            assert await producer.begin() == 0
        elif what == "end":
            producer.epoch -= 1  # the same request again: its answer was lost
            assert await producer.end() == 0
        else:
            named = [AddPartitionsToTxnTopic(name="out", partitions=[0])]
            request = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id="t",
                v3_and_below_producer_id=producer.id,
                v3_and_below_producer_epoch=producer.epoch,
                v3_and_below_topics=named,
            )
            answer = await world.ask(request, 3)
            assert answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code == 0
        assert not is_waiting(world)

    run(story)


def test_a_disk_that_does_not_take_the_markers_holds_nobody_for_long():
    async def story(world: SimulatedBroker) -> None:
        world.disk.fail_sync(OUT, times=None, skip=1)
        producer = Producer(world)
        assert await producer.begin() == 0
        assert await producer.send(0) == 0
        assert await producer.end() == 0
        began_ms = world.broker.now_ms()
        assert await producer.send(1) == CONCURRENT_TRANSACTIONS
        assert PATIENCE_S * 1000 <= world.broker.now_ms() - began_ms < PATIENCE_S * 1000 + 20
        assert not is_waiting(world)
        world.disk.heal()
        await asyncio.sleep(LONG_ENOUGH_S)
        assert await producer.send(1) == 0

    run(story)


def test_what_waits_takes_no_more_memory_than_is_allowed(monkeypatch):
    async def story(world: SimulatedBroker) -> None:
        producer = await ended(world)
        transactions = world.broker.transactions
        monkeypatch.setattr("headrace.broker.transactions.MOST_HELD_BYTES", 100)
        answers = await asyncio.gather(producer.send(0), producer.send(1))
        assert sorted(answers) == [0, CONCURRENT_TRANSACTIONS], "one fits, and the other is asked at once"
        assert transactions._held_bytes == 0
        assert not is_waiting(world)

    run(story)


def test_what_fails_while_it_waits_is_hung_up_on_and_holds_up_nobody(monkeypatch):
    async def story(world: SimulatedBroker) -> None:
        producer = await ended(world)

        def fails(*_):
            raise ValueError("a mistake of ours")

        monkeypatch.setattr("headrace.broker.handlers.produce._append_all", fails)
        sent = asyncio.ensure_future(producer.send(0))
        begun = asyncio.ensure_future(producer.begin())
        with pytest.raises(ConnectionError):
            await sent
        assert await begun == 0

    run(story)


def test_a_broker_that_stops_leaves_nobody_to_go_on():
    async def story(world: SimulatedBroker) -> None:
        producer = await ended(world)
        sent = asyncio.ensure_future(producer.send(0))
        await asyncio.sleep(0.004)
        before = out(world, 0).end_offset
        world.crash()
        with pytest.raises(ConnectionError):
            await sent
        await asyncio.sleep(2 * PATIENCE_S)
        assert out(world, 0).end_offset <= before + 1, "of the two there may be a marker, and nothing else"

    run(story)


def test_a_time_out_for_which_no_producer_id_can_be_had_comes_again():
    """The last epoch of a producer id is used up, and the file that says which ids are taken cannot be written."""

    async def story(world: SimulatedBroker) -> None:
        await open_transaction(world)
        transactions = world.broker.transactions.coordinator._transactions
        transactions["t"] = transactions["t"]._replace(producer_epoch=LAST_USABLE_EPOCH)
        identity = world.broker.identity
        identity._next_producer_id = identity._reserved_to
        fault = world.disk.fail("replace", "*broker.json*", times=None)
        await asyncio.sleep(TIMED_OUT_S + 2 * RETRY_S)
        assert fault.hits >= 2
        assert state(world) == "Ongoing"
        world.disk.heal()
        await asyncio.sleep(LONG_ENOUGH_S)
        assert_ended(world, ControlType.ABORT)

    run(story)


def test_a_producer_id_that_could_not_be_reserved_is_not_given_out():
    async def story(world: SimulatedBroker) -> None:
        identity = world.broker.identity
        given = {identity.next_producer_id()}
        identity._next_producer_id = identity._reserved_to
        world.disk.fail("replace", "*broker.json*", times=2)
        with pytest.raises(StorageError, match=r"broker\.json"):
            identity.next_producer_id()
        with pytest.raises(StorageError, match=r"broker\.json"):  # at which its connection is closed
            await Producer(world).begin()
        given |= {identity.next_producer_id() for _ in range(3)}
        world.crash()
        assert world.broker.identity.next_producer_id() > max(given)

    run(story)
