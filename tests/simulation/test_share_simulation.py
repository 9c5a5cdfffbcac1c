"""A share group over power cuts, failed syncs and members that die, in virtual time.

Members acquire records, and accept, release, reject or renew them, or say nothing and let the locks lapse. What always
holds: a record that was accepted, and that acceptance acknowledged, is never delivered again, whatever happens to the
broker; while the broker lives, a record is held by one member at a time and delivered as often as the limit says at
most; and whatever was neither accepted nor rejected nor delivered that often is delivered in the end.
With odd seeds the topic of the state is cut off all the time: power and syncs fail before, between and after its
steps.
"""

import asyncio
import os
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pytest

from headrace.broker import shares
from headrace.coordinator.share.acknowledgement import AckType
from headrace.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from headrace.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from headrace.protocol.messages.share_acknowledge import ShareAcknowledgeRequest
from headrace.protocol.messages.share_fetch import AcknowledgementBatch, FetchPartition, FetchTopic, ShareFetchRequest
from headrace.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from headrace.protocol.schema import Uuid
from headrace.records import Record, build_batch, headers_in
from headrace.testing.clock import FakeClock
from tests.simulation.simulated_broker import SimulatedBroker, run_simulation

SEEDS = range(10)
TOPIC, GROUP = "work", "workers"
PARTITIONS = 2
LOCK_MS = 400
LIMIT = 4
SETTINGS = {
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "2",
    "group.share.record.lock.duration.ms": str(LOCK_MS),
    "group.share.delivery.count.limit": str(LIMIT),
    "group.share.partition.max.record.locks": "30",
}

Place = tuple[int, int]  # partition and offset


@dataclass
class Known:
    """What is known of a record from outside."""

    is_finished: bool | None = False  # None: an answer was lost
    holder: str = ""
    until_ms: int = 0
    deliveries: int = 0  # in this life of the broker


@dataclass
class Member:
    name: str
    epoch: int = 0  # of its session
    has: dict[Place, int] = field(default_factory=dict)  # and how often each was delivered


class World(SimulatedBroker):
    def __init__(self, chance: random.Random, clock: FakeClock) -> None:
        super().__init__(chance, clock, SETTINGS)
        self.records: dict[Place, Known] = {}
        self.topic_id: Uuid
        self.members = [Member(name) for name in ("ann", "bob", "cid")]
        self.is_draining = False

    async def begin(self) -> None:
        wanted = CreatableTopic(name=TOPIC, num_partitions=PARTITIONS, replication_factor=1)
        assert (await self.ask(CreateTopicsRequest(topics=[wanted]), 7)).topics[0].error_code == 0
        self.topic_id = Uuid(self.broker.topics.by_name[TOPIC].id)
        for member in self.members:
            await self.beat(member)
            await self.fetch(member)  # where the group begins is decided with the first fetch
        await asyncio.sleep(1)

    def crash(self) -> None:
        starts = [log.start_offset for log in self.broker.shares.log.partitions()]
        self.steps["cut off"] = max(self.steps["cut off"], *starts)
        super().crash()
        self.steps["crashed"] += 1
        for record in self.records.values():
            record.holder = ""
            record.deliveries = 0
        for member in self.members:
            member.epoch = 0
            member.has.clear()

    async def produce(self, partition: int, count: int) -> None:
        batch = build_batch([Record(number, self.clock.now_ms(), None, b"v") for number in range(count)])
        data = [TopicProduceData(name=TOPIC, partition_data=[PartitionProduceData(index=partition, records=batch)])]
        answer = await self.ask(ProduceRequest(acks=-1, timeout_ms=30000, topic_data=data), 12)
        (outcome,) = answer.responses[0].partition_responses
        if not outcome.error_code:
            for offset in range(outcome.base_offset, outcome.base_offset + count):
                self.records.setdefault((partition, offset), Known())
                self.steps["produced"] += 1

    async def beat(self, member: Member) -> None:
        asked = ShareGroupHeartbeatRequest(
            group_id=GROUP, member_id=member.name, member_epoch=0, subscribed_topic_names=[TOPIC]
        )
        assert (await self.ask(asked, 1)).error_code == 0

    # --- fetching

    async def fetch(self, member: Member) -> None:
        life, chance = self.broker, self.chance
        asked = ShareFetchRequest(
            group_id=GROUP,
            member_id=member.name,
            share_session_epoch=member.epoch,
            max_wait_ms=chance.choice([0, 50]),
            min_bytes=1,
            max_bytes=1 << 20,
            max_records=chance.randrange(1, 8),
            batch_size=100,
            share_acquire_mode=chance.randrange(2),
            topics=[
                FetchTopic(
                    topic_id=self.topic_id,
                    partitions=[FetchPartition(partition_index=index) for index in range(PARTITIONS)],
                )
            ],
        )
        answer = await self.ask(asked, 2)
        if life is not self.broker:
            return
        if answer.error_code:
            member.epoch = 0
            return
        member.epoch += 1
        for topic in answer.responses:
            for partition in topic.partitions:
                assert partition.error_code == 0, partition
                self.take(member, partition)

    def take(self, member: Member, partition: Any) -> None:
        there = {
            offset
            for _, header in headers_in(partition.records)
            for offset in range(header.base_offset, header.last_offset + 1)
        }
        for run in partition.acquired_records:
            assert run.delivery_count <= LIMIT
            for offset in range(run.first_offset, run.last_offset + 1):
                assert offset in there, "acquired, and not sent"
                place = (partition.partition_index, offset)
                # What was appended before a crash, and not acknowledged, may be there all the same.
                record = self.records.setdefault(place, Known())
                assert record.is_finished is not True, f"{place} is finished, and {member.name} has it again"
                now_ms = self.clock.now_ms()
                is_held = record.holder and record.until_ms > now_ms and record.holder != member.name
                assert not is_held, f"{place} is held by {record.holder}, and {member.name} has it too"
                record.deliveries += 1
                assert record.deliveries <= LIMIT
                # The answer has been on its way: the lock began before it came.
                record.holder, record.until_ms = member.name, now_ms + LOCK_MS - 100
                # The last delivery ends it, if the lock lapses.
                record.is_finished = None if run.delivery_count >= LIMIT else False
                member.has[place] = run.delivery_count
                self.steps["delivered"] += 1

    # --- acknowledging

    async def acknowledge(self, member: Member) -> None:
        """Say what became of some of what it has; what it does not say is unsaid until the lock lapses."""
        if not member.has:
            return
        chance, life = self.chance, self.broker
        places = sorted(chance.sample(sorted(member.has), chance.randrange(1, len(member.has) + 1)))
        kinds = [AckType.ACCEPT] * 3 + [AckType.RELEASE, AckType.REJECT, AckType.RENEW]
        said = {place: AckType.ACCEPT if self.is_draining else chance.choice(kinds) for place in places}
        partitions = [
            FetchPartition(
                partition_index=index,
                acknowledgement_batches=[
                    AcknowledgementBatch(first_offset=offset, last_offset=offset, acknowledge_types=[said[at, offset]])
                    for at, offset in places
                    if at == index
                ],
            )
            for index in sorted({index for index, _ in places})
        ]
        asked = ShareAcknowledgeRequest(
            group_id=GROUP,
            member_id=member.name,
            share_session_epoch=member.epoch,
            is_renew_ack=True,
            topics=[FetchTopic(topic_id=self.topic_id, partitions=partitions)],
        )
        delivered = {place: member.has.pop(place) for place in places}
        for place in places:
            record = self.records[place]
            if said[place] in (AckType.ACCEPT, AckType.REJECT) or delivered[place] >= LIMIT:
                record.is_finished = None  # until it is answered nobody knows
            if said[place] != AckType.RENEW:
                record.holder = ""
        answer = await self.ask(asked, 2)
        if life is not self.broker:
            return
        if answer.error_code:
            member.epoch = 0
            return
        member.epoch += 1
        for topic in answer.responses:
            for partition in topic.partitions:
                self.settle(partition.partition_index, partition.error_code, said, delivered)

    def settle(self, index: int, error: int, said: dict[Place, AckType], delivered: dict[Place, int]) -> None:
        for place, ack in said.items():
            if place[0] != index or error:  # lapsed meanwhile, most likely, and somebody else's by now
                self.steps["refused"] += place[0] == index
                continue
            self.steps[ack.name.lower()] += 1
            record = self.records[place]
            if ack in (AckType.ACCEPT, AckType.REJECT) or (ack is AckType.RELEASE and delivered[place] >= LIMIT):
                record.is_finished = True


async def work(world: World, member: Member) -> None:
    """Live as a member does, for ever; whoever is hung up on begins anew."""
    while True:
        try:
            await world.beat(member)
            for _ in range(world.chance.randrange(1, 10)):
                await world.fetch(member)
                if world.chance.random() < 0.8:
                    await world.acknowledge(member)
                if world.chance.random() < 0.1:
                    await asyncio.sleep(LOCK_MS * 1.5 / 1000)  # it dawdles, and its locks lapse
                    member.has.clear()
        except ConnectionError:
            member.epoch = 0
            member.has.clear()
            await asyncio.sleep(0.01)


async def live(world: World, crashes: int) -> Counter[str]:
    chance = world.chance
    await world.begin()
    workers = [asyncio.ensure_future(work(world, member)) for member in world.members]
    for _ in range(crashes):
        for _ in range(chance.randrange(2, 8)):
            if chance.random() < 0.2:
                world.disk.fail_sync("*__share_group_state-*.log", times=1)
                world.steps["failed syncs"] += 1
            try:
                await world.produce(chance.randrange(PARTITIONS), chance.randrange(1, 6))
            except ConnectionError:
                world.steps["hung up on"] += 1
            await asyncio.sleep(chance.randrange(200) / 1000)
            world.disk.heal()
        for worker in workers:
            assert not worker.done(), worker.exception()
        world.crash()
    for worker in workers:
        worker.cancel()
    await asyncio.gather(*workers, return_exceptions=True)
    await drain(world)
    world.close()
    return world.steps


async def drain(world: World) -> None:
    """One last member accepts all that is left: what it does not get was finished."""
    world.is_draining = True
    world.crash()  # and what the others had is free
    last = Member("zoe")
    await world.beat(last)
    before = world.steps["delivered"]
    idle = 0
    while idle < 30:
        await world.fetch(last)
        idle = 0 if last.has else idle + 1
        await world.acknowledge(last)
    world.steps["drained"] = world.steps["delivered"] - before
    for place, record in world.records.items():
        assert record.is_finished is not False, f"{place} was produced, and is lost"
    states = [world.broker.shares.coordinator.partition(key) for key in world.broker.shares.coordinator.all_keys()]
    assert states
    assert all(state is not None and state.start == state.end for state in states)


@pytest.mark.parametrize("seed", [int(os.environ["HEADRACE_SEED"])] if "HEADRACE_SEED" in os.environ else SEEDS)
def test_what_was_accepted_is_never_delivered_again_and_nothing_is_lost(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_cut = seed % 2 == 1
    if is_cut:
        monkeypatch.setattr(shares, "_CHECK_CUT_S", 0.04)
        monkeypatch.setattr(shares, "_RECORDS_BEFORE_CUT", 4)
        monkeypatch.setattr(shares, "_RECORDS_PER_KEY_BEFORE_CUT", 1)

    async def simulate(chance: random.Random, clock: FakeClock) -> Counter[str]:
        return await live(World(chance, clock), crashes=6)

    steps = run_simulation(seed, simulate)
    assert steps["crashed"] == 7
    assert steps["delivered"] > steps["produced"] // 2
    assert steps["accept"]
    assert (steps["cut off"] > 0) is is_cut
