"""A share fetch looks only at partitions with news, and misses nothing that a look at all of them would show.

Groups of every kind (plain, by key, single active, filtered, committed only, with back-off and dead letters) share
topics while everything changes: records, transactions, delays, acknowledgements, locks that lapse, settings, queues
that opt in and out, records that are deleted, topics that are made again or grow, sessions that end, syncs that fail
and power cuts. Every now and then all partitions are looked at, in virtual time and in one step: where a session
watches for news there must be nothing to be had, and where a fetch waits there must be nothing anywhere.
"""

import asyncio
import os
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pytest

from headrace.broker import share_acquisition, turns
from headrace.broker.config_resources import ConfigResource
from headrace.broker.share_acquisition import Acquirer
from headrace.coordinator.share.acknowledgement import AckType
from headrace.coordinator.share.records import ShareKey
from headrace.errors import HeadraceError
from headrace.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from headrace.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from headrace.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from headrace.protocol.messages.delete_topics import DeleteTopicsRequest
from headrace.protocol.messages.end_txn import EndTxnRequest
from headrace.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from headrace.protocol.messages.init_producer_id import InitProducerIdRequest
from headrace.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from headrace.protocol.messages.share_fetch import AcknowledgementBatch, FetchPartition, FetchTopic, ShareFetchRequest
from headrace.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from headrace.protocol.schema import Uuid
from headrace.records import Header, Record, build_batch
from headrace.testing.clock import FakeClock
from tests.simulation.simulated_broker import SimulatedBroker, run_simulation

SEEDS = range(6)
ROUNDS = 60
TOPICS = ("plain", "queue")
LETTERS = "dlq.letters"
LOCK_MS = 300
SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "2",
    "group.share.record.lock.duration.ms": str(LOCK_MS),
    "group.share.delivery.count.limit": "4",
    "group.share.partition.max.record.locks": "12",
}
GROUPS: dict[str, dict[str, str]] = {
    "all": {},
    "by-key": {"headrace.order": "key"},
    "single": {"headrace.order": "single"},
    "some": {"headrace.filter": "key = 'a' OR key = 'b'"},
    "committed": {"share.isolation.level": "read_committed"},
    "patient": {"headrace.retry.backoff.ms": "150", "errors.deadletterqueue.topic.name": LETTERS},
}
CHANGES = [  # of any group, for a while
    {"headrace.order": "key"},
    {"headrace.order": "single"},
    {"headrace.order": "none"},
    {"share.isolation.level": "read_committed"},
    {"share.isolation.level": "read_uncommitted"},
    {"headrace.filter": "key = 'c'"},
    {"headrace.filter": ""},
]


@dataclass
class Member:
    group: str
    name: str
    epoch: int = 0  # of its session
    has: dict[tuple[Uuid, int], set[int]] = field(default_factory=dict)
    waits_for_bytes: int = 0  # of the fetch that is under way

    def begin_anew(self) -> None:
        self.epoch = 0
        self.has.clear()


class World(SimulatedBroker):
    def __init__(self, chance: random.Random, clock: FakeClock) -> None:
        super().__init__(chance, clock, SETTINGS)
        self.members = [Member(group, f"{group}-{name}") for group in GROUPS for name in ("ann", "bob", "cid")]
        self.has_failed_syncs = False  # of records: a later sync shows them, and nobody is woken by that

    def crash(self) -> None:
        super().crash()
        self.steps["crashed"] += 1
        self.has_failed_syncs = False
        for member in self.members:
            member.begin_anew()

    # --- topics, settings, records

    async def create(self, name: str) -> None:
        configs = [CreatableTopicConfig(name="headrace.queue", value="true")] if name == "queue" else []
        wanted = CreatableTopic(name=name, num_partitions=2, replication_factor=1, configs=configs)
        await self.ask(CreateTopicsRequest(topics=[wanted]), 7)

    async def alter(self, kind: ConfigResource, name: str, settings: dict[str, str]) -> None:
        configs = [AlterableConfig(name=key, config_operation=0, value=value) for key, value in settings.items()]
        resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
        (answer,) = (await self.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1)).responses
        self.steps["altered"] += not answer.error_code

    async def begin(self) -> None:
        for name in TOPICS:
            await self.create(name)
        for group, settings in GROUPS.items():
            await self.alter(ConfigResource.GROUP, group, {"share.auto.offset.reset": "earliest", **settings})

    def partitions_of(self, name: str) -> int:
        topic = self.broker.topics.by_name.get(name)
        return len(topic.partitions) if topic else 0

    def _records(self, count: int) -> list[Record]:
        asks = [(), (), (Header("headrace-ttl-ms", b"200"),), (Header("headrace-delay-ms", b"80"),)]
        now_ms = self.clock.now_ms()
        return [
            Record(number, now_ms, self.chance.choice([b"a", b"b", b"c", None]), b"v" * 20, self.chance.choice(asks))
            for number in range(count)
        ]

    async def produce(self) -> None:
        name = self.chance.choice(TOPICS)
        if count := self.partitions_of(name):
            batch = build_batch(self._records(self.chance.randrange(1, 6)))
            await self._send(name, self.chance.randrange(count), batch)

    async def _send(self, name: str, partition: int, batch: bytes, transactional_id: str | None = None) -> int:
        data = [TopicProduceData(name=name, partition_data=[PartitionProduceData(index=partition, records=batch)])]
        asked = ProduceRequest(transactional_id=transactional_id, acks=-1, timeout_ms=30000, topic_data=data)
        (outcome,) = (await self.ask(asked, 12)).responses[0].partition_responses
        self.steps["produced"] += not outcome.error_code
        return int(outcome.error_code)

    async def transact(self) -> None:
        """Write in a transaction that ends later, or is left to its successor."""
        name = self.chance.choice(TOPICS)
        begun = await self.ask(InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=2000), 4)
        if begun.error_code or not self.partitions_of(name):
            return
        batch = build_batch(
            self._records(2),
            producer_id=begun.producer_id,
            producer_epoch=begun.producer_epoch,
            base_sequence=0,
            transactional=True,
        )
        if await self._send(name, self.chance.randrange(self.partitions_of(name)), batch, "t"):
            return
        await asyncio.sleep(self.chance.randrange(400) / 1000)
        ended = EndTxnRequest(
            transactional_id="t",
            producer_id=begun.producer_id,
            producer_epoch=begun.producer_epoch,
            committed=self.chance.random() < 0.6,
        )
        self.steps["transactions"] += not (await self.ask(ended, 5)).error_code

    async def delete_records(self) -> None:
        name = self.chance.choice(TOPICS)
        if count := self.partitions_of(name):
            partitions = [DeleteRecordsPartition(partition_index=self.chance.randrange(count), offset=-1)]
            topics = [DeleteRecordsTopic(name=name, partitions=partitions)]
            await self.ask(DeleteRecordsRequest(topics=topics), 2)
            self.steps["records deleted"] += 1

    async def make_again(self) -> None:
        name = self.chance.choice(TOPICS)
        await self.ask(DeleteTopicsRequest(topic_names=[name]), 5)
        await asyncio.sleep(self.chance.randrange(200) / 1000)
        await self.create(name)
        self.steps["made again"] += 1

    async def grow(self) -> None:
        name = self.chance.choice(TOPICS)
        topics = [CreatePartitionsTopic(name=name, count=min(4, self.partitions_of(name) + 1))]
        await self.ask(CreatePartitionsRequest(topics=topics), 3)

    async def opt(self) -> None:
        settings = {"headrace.queue": self.chance.choice(["true", "false"])}
        await self.alter(ConfigResource.TOPIC, self.chance.choice(TOPICS), settings)

    async def change_group(self) -> None:
        group = self.chance.choice(list(GROUPS))
        await self.alter(ConfigResource.GROUP, group, self.chance.choice(CHANGES))

    async def put_group_back(self) -> None:
        group = self.chance.choice([group for group in GROUPS if GROUPS[group]])
        await self.alter(ConfigResource.GROUP, group, GROUPS[group])

    async def fail_syncs(self) -> None:
        pattern = self.chance.choice(["*__share_group_state-*.log", "*plain-*.log", "*queue-*.log"])
        self.has_failed_syncs |= "__" not in pattern
        self.disk.fail_sync(pattern, times=1)
        await self.produce()
        await asyncio.sleep(0.05)
        self.disk.heal()
        for topic in list(self.broker.topics.by_name.values()):  # as housekeeping does
            for log in topic.partitions:
                log.flush()

    # --- members

    async def beat(self, member: Member) -> None:
        asked = ShareGroupHeartbeatRequest(
            group_id=member.group, member_id=member.name, member_epoch=0, subscribed_topic_names=list(TOPICS)
        )
        await self.ask(asked, 1)

    async def fetch(self, member: Member) -> None:
        """Fetch from all partitions there are, and say what became of some of what it has."""
        chance, life = self.chance, self.broker
        topics: dict[Uuid, dict[int, FetchPartition]] = {}
        for name in TOPICS:
            topic = self.broker.topics.by_name.get(name)
            if topic is not None and (member.epoch == 0 or chance.random() < 0.3):
                for index in range(len(topic.partitions)):
                    topics.setdefault(Uuid(topic.id), {})[index] = FetchPartition(partition_index=index)
        for (topic_id, index), offsets in member.has.items() if member.epoch else ():
            named = topics.setdefault(topic_id, {}).setdefault(index, FetchPartition(partition_index=index))
            for offset in sorted(offsets):
                if chance.random() < 0.6:
                    kind = chance.choice([AckType.ACCEPT, AckType.ACCEPT, AckType.RELEASE, AckType.REJECT])
                    named.acknowledgement_batches.append(
                        AcknowledgementBatch(first_offset=offset, last_offset=offset, acknowledge_types=[kind])
                    )
                    offsets.discard(offset)
        member.waits_for_bytes = chance.choice([1, 1, 200])
        is_last = member.epoch and chance.random() < 0.03
        asked = ShareFetchRequest(
            group_id=member.group,
            member_id=member.name,
            share_session_epoch=-1 if is_last else member.epoch,
            max_wait_ms=0 if is_last else chance.choice([0, 30, 500]),
            min_bytes=member.waits_for_bytes,
            max_bytes=1 << 20,
            max_records=chance.choice([1, 2, 10]),
            batch_size=100,
            share_acquire_mode=chance.randrange(2),
            topics=[FetchTopic(topic_id=at, partitions=list(named.values())) for at, named in topics.items()],
        )
        answer = await self.ask(asked, 2)
        member.waits_for_bytes = 0
        if life is not self.broker:
            return
        if answer.error_code or is_last:
            member.begin_anew()
            return
        member.epoch += 1
        for topic_answer in answer.responses:
            for partition in topic_answer.partitions:
                for run in partition.acquired_records:
                    place = (Uuid(topic_answer.topic_id), partition.partition_index)
                    member.has.setdefault(place, set()).update(range(run.first_offset, run.last_offset + 1))
                    self.steps["delivered"] += run.last_offset - run.first_offset + 1
                if partition.error_code and self.broker.topics.by_id.get(topic_answer.topic_id) is None:
                    member.begin_anew()  # with the topics that there are now

    # --- looking at all

    async def settle(self) -> None:
        """Return when nobody is left who is about to be woken."""
        while len(self.broker.turns) or self.broker.queues._look is not None:  # noqa: ASYNC110 - time is virtual
            await asyncio.sleep(0.001)

    def check(self) -> None:
        """Look at every partition of every session, as a fetch would that had no news to go by."""
        request = ShareFetchRequest(max_bytes=1 << 20, max_records=1, share_acquire_mode=1)
        for member in self.members:
            session = self.broker.shares.sessions.find(member.group, member.name)
            if session is None:
                continue
            has_waiting = bool(session.waiting) and member.waits_for_bytes == 1 and not self.has_failed_syncs
            for key in sorted(session.partitions if has_waiting else session.partitions - session.ready.keys()):
                self.steps["looked at"] += 1
                found = self.look_at(Acquirer(self.broker, request, session.holder), key)
                assert found is None, f"{member.name} was not woken: {found} of {key}"

    def look_at(self, acquirer: Acquirer, key: ShareKey) -> object:
        topic = self.broker.topics.by_id.get(key.topic_id)
        if topic is None:
            return "the topic is gone"
        log = topic.partitions[key.partition]
        if self.broker.high_watermark(log) < log.end_offset:  # it is woken when the disk has what was appended
            return None
        try:
            found = acquirer.acquire(key, log)
        except HeadraceError as error:
            return error
        return found or ("more to look at" if acquirer.is_paused else None)


async def live_as(world: World, member: Member) -> None:
    while True:
        try:
            await world.beat(member)
            for _ in range(world.chance.randrange(5, 30)):
                await world.fetch(member)
                await asyncio.sleep(world.chance.choice([0.001, 0.02, LOCK_MS * 1.5 / 1000]))
        except ConnectionError:
            await asyncio.sleep(0.01)
        member.begin_anew()


async def live(world: World) -> Counter[str]:
    chance = world.chance
    await world.begin()
    tasks = [asyncio.ensure_future(live_as(world, member)) for member in world.members]
    often: list[Any] = [world.produce] * 6 + [world.transact] * 2
    seldom = [world.change_group, world.put_group_back, world.opt, world.delete_records, world.make_again, world.grow]
    for _ in range(ROUNDS):
        for act in [chance.choice(often), chance.choice([*often, *seldom, world.fail_syncs])]:
            try:
                await act()
            except ConnectionError:
                world.steps["hung up on"] += 1
        for _ in range(3):
            await asyncio.sleep(chance.randrange(1, 120) / 1000)
            await world.settle()
            world.check()
        for task in tasks:
            assert not task.done(), task.exception()
        if chance.random() < 0.03:
            await world.settle()  # what is left in turns has no disk any more afterwards
            world.crash()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    world.close()
    return world.steps


@pytest.mark.parametrize("seed", [int(os.environ["HEADRACE_SEED"])] if "HEADRACE_SEED" in os.environ else SEEDS)
def test_whoever_goes_by_news_misses_nothing_that_a_look_at_all_would_show(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn_ends = random.Random(seed)  # turns are over by chance, and not by the time that this machine takes
    monkeypatch.setattr(turns, "monotonic", lambda: turn_ends.random() * 2 * turns.TURN_S)
    monkeypatch.setattr(share_acquisition, "perf_counter", lambda: 0.0)

    async def simulate(chance: random.Random, clock: FakeClock) -> Counter[str]:
        return await live(World(chance, clock))

    steps = run_simulation(seed, simulate)
    assert steps["delivered"] > steps["produced"]
    assert steps["looked at"] > ROUNDS
    assert steps["transactions"]
    assert steps["altered"] > len(GROUPS)
