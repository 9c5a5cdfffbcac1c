"""A share group over power cuts, failed syncs and members that die, in virtual time.

Members acquire records, and accept, release, reject or renew them, or say nothing and let the locks lapse. What always
holds: a record that was accepted, and that acceptance acknowledged, is never delivered again, whatever happens to the
broker; while the broker lives, a record is held by one member at a time and delivered as often as the limit says at
most; and whatever was neither accepted nor rejected nor delivered that often is delivered in the end.
With odd seeds the topic of the state is cut off all the time: power and syncs fail before, between and after its
steps. What topics and groups can ask for besides is in `test_queue_simulation.py`.
"""

import asyncio
import os
import random
from collections import Counter
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pytest

from headrace.broker import shares
from headrace.coordinator.share.acknowledgement import AckType
from headrace.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
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
from headrace.records import Record, build_batch, headers_in, records_of
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


class Place(NamedTuple):
    """A record as a group sees it."""

    group: str
    partition: int
    offset: int


@dataclass
class Known:
    """What is known of a record from outside."""

    is_finished: bool | None = False  # None: an answer was lost
    holder: str = ""
    until_ms: int = 0
    deliveries: int = 0  # in this life of the broker
    is_accepted: bool | None = False  # None: somebody has said so, and has not been answered


@dataclass
class Member:
    name: str
    group: str = GROUP
    epoch: int = 0  # of its session
    has: dict[Place, int] = field(default_factory=dict)  # and how often each was delivered


class World(SimulatedBroker):
    groups: tuple[str, ...] = (GROUP,)
    topic_settings: Mapping[str, str] = {}
    group_settings: Mapping[str, str] = {}
    synced = "*__share_group_state-*.log"  # what a sync fails of now and then

    def __init__(self, chance: random.Random, clock: FakeClock) -> None:
        super().__init__(chance, clock, SETTINGS)
        self.records: dict[Place, Known] = {}
        self.ends = [0] * PARTITIONS  # behind what was acknowledged to whoever produced it
        self.topic_id: Uuid
        self.members = [Member(name, group) for group in self.groups for name in ("ann", "bob", "cid")]
        self.is_draining = False

    async def begin(self) -> None:
        configs = [CreatableTopicConfig(name=name, value=value) for name, value in self.topic_settings.items()]
        wanted = CreatableTopic(name=TOPIC, num_partitions=PARTITIONS, replication_factor=1, configs=configs)
        assert (await self.ask(CreateTopicsRequest(topics=[wanted]), 7)).topics[0].error_code == 0
        for group in self.groups:
            changes = [
                AlterableConfig(name=each, config_operation=0, value=to) for each, to in self.group_settings.items()
            ]
            resource = AlterConfigsResource(resource_type=32, resource_name=group, configs=changes)
            (altered,) = (await self.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1)).responses
            assert altered.error_code == 0, altered
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
        records = [self.make_record(number) for number in range(count)]
        batch = build_batch(records)
        data = [TopicProduceData(name=TOPIC, partition_data=[PartitionProduceData(index=partition, records=batch)])]
        answer = await self.ask(ProduceRequest(acks=-1, timeout_ms=30000, topic_data=data), 12)
        (outcome,) = answer.responses[0].partition_responses
        if not outcome.error_code:
            assert outcome.base_offset >= self.ends[partition], "the offset of another record"
            self.ends[partition] = outcome.base_offset + count
            for offset, record in enumerate(records, outcome.base_offset):
                for group in self.groups if self.is_wanted(record) else ():
                    self.records.setdefault(Place(group, partition, offset), Known())
                self.steps["produced"] += 1

    def make_record(self, number: int) -> Record:
        return Record(number, self.clock.now_ms(), None, b"v")

    def is_wanted(self, record: Record) -> bool:
        return True

    async def beat(self, member: Member) -> None:
        asked = ShareGroupHeartbeatRequest(
            group_id=member.group, member_id=member.name, member_epoch=0, subscribed_topic_names=[TOPIC]
        )
        assert (await self.ask(asked, 1)).error_code == 0

    # --- fetching

    async def fetch(self, member: Member) -> None:
        life, chance = self.broker, self.chance
        asked = ShareFetchRequest(
            group_id=member.group,
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
        data = memoryview(partition.records or b"")
        there = {
            record.offset: record
            for position, header in headers_in(data)
            for record in records_of(data[position : position + header.size])
        }
        for run in partition.acquired_records:
            assert run.delivery_count <= LIMIT
            for offset in range(run.first_offset, run.last_offset + 1):
                assert offset in there, "acquired, and not sent"
                place = Place(member.group, partition.partition_index, offset)
                # What was appended before a crash, and not acknowledged, may be there all the same.
                record = self.records.setdefault(place, Known())
                assert record.is_finished is not True, f"{place} is finished, and {member.name} has it again"
                now_ms = self.clock.now_ms()
                is_held = record.holder and record.until_ms > now_ms and record.holder != member.name
                assert not is_held, f"{place} is held by {record.holder}, and {member.name} has it too"
                record.deliveries += 1
                record.is_accepted = False
                assert record.deliveries <= LIMIT
                self.check_delivery(place, there[offset])
                # The answer has been on its way: the lock began before it came.
                record.holder, record.until_ms = member.name, now_ms + LOCK_MS - 100
                # The last delivery ends it, if the lock lapses.
                record.is_finished = None if run.delivery_count >= LIMIT else False
                member.has[place] = run.delivery_count
                self.steps["delivered"] += 1

    def check_delivery(self, place: Place, record: Record) -> None:
        """What else must hold of a record that is delivered."""

    def look(self) -> object:
        """What has just changed when the power had better not fail."""
        return self.ends

    async def wait_for_bad_moment(self) -> None:
        """Let a while pass, up to such a change or a little longer."""
        before = copy(self.look())
        for _ in range(self.chance.randrange(200)):
            await asyncio.sleep(0.001)
            if self.look() != before:
                break
        await asyncio.sleep(self.chance.choice([0, 0, 0.003, 0.01]))

    async def check_end(self) -> None:
        """What else must hold in the end, when everything is finished or will be soon."""

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
                    AcknowledgementBatch(
                        first_offset=offset, last_offset=offset, acknowledge_types=[said[Place(group, at, offset)]]
                    )
                    for group, at, offset in places
                    if at == index
                ],
            )
            for index in sorted({place.partition for place in places})
        ]
        asked = ShareAcknowledgeRequest(
            group_id=member.group,
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
                record.is_accepted = None if said[place] == AckType.ACCEPT else record.is_accepted
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
            if place.partition != index or error:  # lapsed meanwhile, most likely, and somebody else's by now
                self.steps["refused"] += place.partition == index
                continue
            self.steps[ack.name.lower()] += 1
            record = self.records[place]
            if ack is AckType.ACCEPT:
                record.is_accepted = True
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
                world.disk.fail_sync(world.synced, times=1)
                world.steps["failed syncs"] += 1
            try:
                await world.produce(chance.randrange(PARTITIONS), chance.randrange(1, 6))
            except ConnectionError:
                world.steps["hung up on"] += 1
            await asyncio.sleep(chance.randrange(200) / 1000)
            world.disk.heal()
        await world.wait_for_bad_moment()
        for worker in workers:
            assert not worker.done(), worker.exception()
        world.crash()
    for worker in workers:
        worker.cancel()
    await asyncio.gather(*workers, return_exceptions=True)
    await drain(world)
    await world.check_end()
    world.close()
    return world.steps


async def drain(world: World) -> None:
    """One last member accepts all that is left: what it does not get was finished."""
    world.is_draining = True
    world.crash()  # and what the others had is free
    before = world.steps["delivered"]
    for group in world.groups:
        last = Member("zoe", group)
        await world.beat(last)
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
