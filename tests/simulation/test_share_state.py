"""What a share group knows of its records, where two things happen at once: in virtual time, on a disk that is slow."""

import asyncio
import random
from collections import Counter
from typing import Any

import pytest

from headrace.broker import shares as shares_at_work
from headrace.broker.share_sessions import ShareSession
from headrace.coordinator.share.records import ShareKey
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from headrace.protocol.messages.delete_groups import DeleteGroupsRequest
from headrace.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from headrace.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from headrace.protocol.messages.share_acknowledge import ShareAcknowledgeRequest
from headrace.protocol.messages.share_fetch import AcknowledgementBatch, FetchPartition, FetchTopic, ShareFetchRequest
from headrace.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from headrace.protocol.schema import Uuid
from headrace.records import Record, build_batch
from headrace.testing.clock import FakeClock
from tests.simulation.simulated_broker import SimulatedBroker, run_simulation

TOPIC, GROUP = "work", "workers"
ACCEPT = 1
LOCK_MS = 1_000
MANY = 500  # partitions: what is done to all of them is done in portions, with the disk in between
SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "2",
    "group.share.record.lock.duration.ms": str(LOCK_MS),
}


class World(SimulatedBroker):
    topic_id: Uuid

    def __init__(self, chance: random.Random, clock: FakeClock, **settings: str) -> None:
        super().__init__(chance, clock, SETTINGS | settings)
        self.epochs: Counter[str] = Counter()

    async def create(self, partitions: int) -> None:
        wanted = CreatableTopic(name=TOPIC, num_partitions=partitions, replication_factor=1)
        assert (await self.ask(CreateTopicsRequest(topics=[wanted]), 7)).topics[0].error_code == 0
        self.topic_id = Uuid(self.broker.topics.by_name[TOPIC].id)
        from_the_start = AlterableConfig(name="share.auto.offset.reset", config_operation=0, value="earliest")
        group = AlterConfigsResource(resource_type=32, resource_name=GROUP, configs=[from_the_start])
        assert not (await self.ask(IncrementalAlterConfigsRequest(resources=[group]), 1)).responses[0].error_code

    async def produce(self, *partitions: int) -> None:
        """A record for each partition."""
        batch = build_batch([Record(0, self.broker.clock.now_ms(), None, b"v")])
        data = [PartitionProduceData(index=index, records=batch) for index in partitions]
        topics = [TopicProduceData(name=TOPIC, partition_data=data)]
        answer = await self.ask(ProduceRequest(acks=-1, timeout_ms=30000, topic_data=topics), 12)
        assert not any(outcome.error_code for outcome in answer.responses[0].partition_responses)

    async def join(self, member: str, epoch: int = 0) -> None:
        topics = [TOPIC] if epoch == 0 else None
        asked = ShareGroupHeartbeatRequest(
            group_id=GROUP, member_id=member, member_epoch=epoch, subscribed_topic_names=topics
        )
        assert (await self.ask(asked, 1)).error_code == 0

    async def fetch(self, member: str, *partitions: int, max_wait_ms: int = 0) -> Any:
        asked = ShareFetchRequest(
            group_id=GROUP,
            member_id=member,
            share_session_epoch=self.epochs[member],
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=1 << 20,
            max_records=MANY,
            batch_size=100,
            topics=[self.topic(partitions)],
        )
        answer = await self.ask(asked, 2)
        self.epochs[member] += not answer.error_code
        return answer

    async def take(self, member: str, *partitions: int, max_wait_ms: int = 1_000) -> set[tuple[int, int]]:
        """Partition and offset of all that there is for a member within some time."""
        answer = await self.fetch(member, *partitions, max_wait_ms=max_wait_ms)
        assert not answer.error_code, answer
        return {
            (partition.partition_index, offset)
            for topic in answer.responses
            for partition in topic.partitions
            for run in partition.acquired_records
            for offset in range(run.first_offset, run.last_offset + 1)
        }

    async def accept(self, member: str, *taken: tuple[int, int]) -> set[int]:
        """The error codes of each partition."""
        topic = self.topic([index for index, _ in taken])
        for partition, (_, offset) in zip(topic.partitions, taken, strict=True):
            batch = AcknowledgementBatch(first_offset=offset, last_offset=offset, acknowledge_types=[ACCEPT])
            partition.acknowledgement_batches = [batch]
        asked = ShareAcknowledgeRequest(
            group_id=GROUP, member_id=member, share_session_epoch=self.epochs[member], topics=[topic]
        )
        answer = await self.ask(asked, 2)
        assert not answer.error_code, answer
        self.epochs[member] += 1
        return {partition.error_code for partition in answer.responses[0].partitions}

    def topic(self, partitions: Any) -> FetchTopic:
        return FetchTopic(
            topic_id=self.topic_id, partitions=[FetchPartition(partition_index=index) for index in partitions]
        )

    def lose_what_is_not_synced(self) -> None:
        self.broker.is_up = False
        self.close()
        self.disk = self.disk.crash(mode="lose_everything")
        self.epochs.clear()
        self._start()

    def drop_connection(self, member: str) -> None:
        session = self.broker.shares.sessions.find(GROUP, member)
        assert isinstance(session, ShareSession)
        self.broker.shares.end_session(session)  # as the connection does when it is closed
        self.epochs[member] = 0


def simulate(run: Any, **settings: str) -> None:
    async def live(chance: random.Random, clock: FakeClock) -> Counter[str]:
        world = World(chance, clock, **settings)
        await run(world)
        world.close()
        return world.steps

    run_simulation(1, live)


def test_whoever_never_joined_gets_nothing_since_what_it_accepts_would_be_forgotten() -> None:
    async def run(world: World) -> None:
        await world.create(1)
        await world.produce(0)
        answer = await world.fetch("stranger", 0, max_wait_ms=100)
        codes = {answer.error_code, *(each.error_code for topic in answer.responses for each in topic.partitions)}
        assert codes - {ErrorCode.NONE} == {ErrorCode.GROUP_ID_NOT_FOUND}
        assert not world.broker.shares.coordinator.all_keys()
        assert not len(world.broker.shares.sessions)
        await world.join("ann")
        assert await world.take("ann", 0) == {(0, 0)}
        assert await world.accept("ann", (0, 0)) == {0}
        world.crash()
        world.epochs.clear()
        assert await world.take("bob", 0) == set()

    simulate(run)


def test_locks_lapse_in_their_time_whatever_becomes_of_the_clock() -> None:
    async def run(world: World) -> None:
        await world.create(1)
        wall = world.broker.clock = FakeClock()
        await world.join("ann")
        await world.join("bob")
        for offset, jump_ms in enumerate((-3_600_000, 0, 3_600_000)):
            await world.produce(0)
            assert await world.take("ann", 0) == {(0, offset)}
            wall.advance(jump_ms)
            assert await world.take("bob", 0, max_wait_ms=LOCK_MS // 2) == set(), "ann has it"
            assert await world.take("bob", 0, max_wait_ms=LOCK_MS) == {(0, offset)}
            assert await world.accept("bob", (0, offset)) == {0}

    simulate(run)


def test_a_lock_is_not_ended_by_the_lock_of_another_and_a_clock_that_jumps() -> None:
    async def run(world: World) -> None:
        await world.create(1)
        await world.produce(0)
        wall = world.broker.clock = FakeClock()
        await world.join("ann")
        await world.join("bob")
        assert await world.take("ann", 0) == {(0, 0)}
        await asyncio.sleep(LOCK_MS * 0.8 / 1000)
        await world.produce(0)
        assert await world.take("ann", 0) == {(0, 1)}
        wall.advance(3_600_000)
        assert await world.take("bob", 0, max_wait_ms=LOCK_MS // 2) == {(0, 0)}
        assert await world.take("bob", 0, max_wait_ms=LOCK_MS // 10) == set(), "ann has the other one"

    simulate(run)


def test_what_a_new_connection_gets_is_not_taken_back_with_what_the_last_one_had() -> None:
    async def run(world: World) -> None:
        everything = range(MANY)
        await world.create(MANY)
        await world.produce(*everything)
        await world.join("ann")
        await world.join("bob")
        taken: set[tuple[int, int]] = set()
        while len(taken) < MANY:
            taken |= await world.take("ann", *everything)
        assert await world.accept("ann", *sorted(taken)) == {0}
        await world.produce(*everything)
        world.drop_connection("ann")
        taken = await world.take("ann", *everything)
        assert taken
        await asyncio.sleep(LOCK_MS / 2000)
        assert not taken & await world.take("bob", *everything, max_wait_ms=1), "held by two"
        assert await world.accept("ann", *sorted(taken)) == {0}

    simulate(run)


def test_a_group_of_the_same_name_has_nothing_of_the_one_before() -> None:
    async def run(world: World) -> None:
        everything = range(MANY)
        await world.create(MANY)
        await world.produce(*everything)
        await world.join("ann")
        taken: set[tuple[int, int]] = set()
        while len(taken) < MANY:
            taken |= await world.take("ann", *everything)
        assert await world.accept("ann", *sorted(taken)) == {0}
        world.drop_connection("ann")
        await world.join("ann", -1)
        await asyncio.sleep(1)
        world.disk.fail_write("*__share_group_state*")  # which is tried again
        answer = await world.ask(DeleteGroupsRequest(groups_names=[GROUP]), 2)
        assert [each.error_code for each in answer.results] == [0]
        await world.join("bob")
        again: set[tuple[int, int]] = set()
        for _ in range(20):
            again |= await world.take("bob", *everything)
        assert again == taken

    simulate(run)


def test_what_could_be_written_in_part_only_has_not_happened() -> None:
    """The states of two partitions are in two logs; the second cannot be written to, the first says it is accepted."""

    async def run(world: World) -> None:
        shares = world.broker.shares
        await world.create(8)
        places: dict[int, int] = {}  # a partition of each log
        for index in range(8):
            places.setdefault(shares.log.partition_of(ShareKey(GROUP, world.topic_id, index).text), index)
        await world.produce(*places.values())
        await world.join("ann")
        taken: set[tuple[int, int]] = set()
        while len(taken) < 2:
            taken |= await world.take("ann", *places.values())
        fault = world.disk.fail_write("*__share_group_state-1/*")
        ordered = [(places[0], 0), (places[1], 0)]
        assert await world.accept("ann", *ordered) == {ErrorCode.KAFKA_STORAGE_ERROR}
        world.disk.heal(fault)
        await asyncio.sleep(LOCK_MS * 2 / 1000)  # so it goes to somebody else, and the state is written again
        await asyncio.sleep(1)
        world.crash()
        world.epochs.clear()
        taken = set()
        for _ in range(5):
            taken |= await world.take("bob", *places.values())
        assert taken == set(ordered), "nobody was told that it was accepted"

    simulate(run)


def test_records_in_the_place_of_those_that_a_power_cut_took_are_delivered() -> None:
    """Where nothing is synced the log may lose its end, and the group's state not."""

    async def run(world: World) -> None:
        await world.create(1)
        world.broker.topics.by_name[TOPIC].partitions[0].flush()
        await world.produce(0)
        await world.produce(0)
        await world.join("ann")
        taken: set[tuple[int, int]] = set()
        while len(taken) < 2:
            taken |= await world.take("ann", 0)
        assert await world.accept("ann", (0, 0)) == {0}
        assert await world.accept("ann", (0, 1)) == {0}
        for log in (*world.broker.shares.log.partitions(), *world.broker.groups.log.partitions()):
            log.flush()
        world.lose_what_is_not_synced()
        assert world.broker.topics.by_name[TOPIC].partitions[0].end_offset == 0
        await world.produce(0)
        await world.produce(0)
        assert await world.take("ann", 0) == {(0, 0), (0, 1)}

    simulate(run, durability="os")


def test_the_state_topic_is_cut_off_while_the_group_works(monkeypatch: pytest.MonkeyPatch) -> None:
    """In portions, with the disk in between: what is begun and accepted meanwhile is not cut off."""
    monkeypatch.setattr(shares_at_work, "_RECORDS_BEFORE_CUT", 1)
    monkeypatch.setattr(shares_at_work, "_RECORDS_PER_KEY_BEFORE_CUT", 0)

    async def run(world: World) -> None:
        everything = range(MANY)
        await world.create(MANY)
        await world.produce(*everything)
        await world.join("ann")
        first, rest = everything[: MANY // 2], everything[MANY // 2 :]
        taken: set[tuple[int, int]] = set()
        while len(taken) < len(first):
            taken |= await world.take("ann", *first)
        assert await world.accept("ann", *sorted(taken)) == {0}
        world.broker.shares._cut_logs()
        assert world.broker.shares._tasks
        while len(taken) < MANY:
            new = await world.take("ann", *rest)
            assert not new & taken
            assert not new or await world.accept("ann", *sorted(new)) == {0}
            taken |= new
        await asyncio.gather(*world.broker.shares._tasks)
        assert all(log.start_offset for log in world.broker.shares.log.partitions())
        world.crash()
        world.epochs.clear()
        for _ in range(5):
            assert await world.take("bob", *everything, max_wait_ms=50) == set(), "all were accepted"

    simulate(run)


def test_a_refusal_is_told_though_the_partition_is_named_again_with_what_is_right() -> None:
    async def run(world: World) -> None:
        await world.create(1)
        await world.produce(0)
        await world.join("ann")
        assert await world.take("ann", 0) == {(0, 0)}
        assert await world.accept("ann", (0, 7), (0, 0)) == {ErrorCode.INVALID_REQUEST}

    simulate(run)
