"""The broker's metadata over power cuts and failed syncs, in virtual time.

ACLs are added and removed, one at a time and many at once. What was acknowledged is there after every crash; of what
was not, all of a request or nothing.
"""

import asyncio
import os
import random
from collections import Counter

import pytest

from headrace.coordinator.metadata import METADATA_TOPIC, MetadataChange, MetadataImage, record_of
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.create_acls import CreateAclsResponse
from headrace.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from headrace.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from headrace.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from headrace.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from headrace.protocol.messages.incremental_alter_configs import AlterConfigsResource, IncrementalAlterConfigsRequest
from headrace.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from headrace.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from headrace.protocol.schema import Uuid
from headrace.records import Record, build_batch
from headrace.security.acl import Acl, Operation, PatternType, Permission, ResourceType
from headrace.testing.clock import FakeClock
from tests.simulation.simulated_broker import SimulatedBroker, run_simulation

SEEDS = range(12)
TOPICS = [f"t{number}" for number in range(6)]


def acls_of(topic: str) -> list[Acl]:
    """The ACLs of a topic, which come and go together."""
    pattern = (ResourceType.TOPIC, topic, PatternType.LITERAL, "User:alice", "*")
    return [Acl(*pattern, operation, Permission.ALLOW) for operation in (Operation.READ, Operation.WRITE)]


class World(SimulatedBroker):
    """The broker, and which topics' ACLs are known to be there; `None` where an answer was lost."""

    def __init__(self, chance: random.Random, clock: FakeClock) -> None:
        super().__init__(chance, clock)
        self.known: dict[str, bool | None] = dict.fromkeys(TOPICS, False)

    async def change(self, topic: str, *, is_there: bool) -> None:
        records = [record_of(acl, is_removed=not is_there) for acl in acls_of(topic)]
        self.known[topic] = None

        def decide(image: MetadataImage) -> MetadataChange:
            return MetadataChange(CreateAclsResponse(), records)

        answer = await self.broker.metadata.change(decide)
        if answer is None:
            self.steps["hung up on"] += 1
        else:
            self.known[topic] = is_there
            self.steps["changed"] += 1

    def check(self) -> None:
        acls = self.broker.metadata.image.acls
        for topic, is_there in self.known.items():
            present = [acl in acls for acl in acls_of(topic)]
            assert present[0] == present[1], f"half of what was decided about {topic}"
            if is_there is None:
                self.known[topic] = present[0]
                self.steps["learned"] += 1
            else:
                assert present[0] is is_there, f"{topic}: {present[0]}, and {is_there} was acknowledged"


async def live(world: World, crashes: int) -> Counter[str]:
    chance = world.chance
    for _ in range(crashes):
        for _ in range(chance.randrange(3, 20)):
            if chance.random() < 0.15:
                world.disk.fail_sync(f"*{METADATA_TOPIC}-*.log", times=1)
            await world.change(chance.choice(TOPICS), is_there=chance.random() < 0.6)
            world.disk.heal()
        broker = world.broker
        chosen = chance.sample(TOPICS, 3)
        pending = [asyncio.ensure_future(world.change(topic, is_there=chance.random() < 0.5)) for topic in chosen]
        await asyncio.sleep(chance.randrange(20) / 1000)
        assert broker is world.broker
        world.crash()
        world.steps["crashed"] += 1
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)
        world.check()
    world.close()
    return world.steps


@pytest.mark.parametrize("seed", [int(os.environ["HEADRACE_SEED"])] if "HEADRACE_SEED" in os.environ else SEEDS)
def test_metadata_that_was_acknowledged_outlives_every_crash(seed: int) -> None:
    async def simulate(chance: random.Random, clock: FakeClock) -> Counter[str]:
        return await live(World(chance, clock), crashes=12)

    steps = run_simulation(seed, simulate)
    assert steps["crashed"] == 12
    assert steps["changed"]


def test_no_api_reaches_the_topic() -> None:
    async def simulate(chance: random.Random, clock: FakeClock) -> Counter[str]:
        world = World(chance, clock)
        await world.change("t0", is_there=True)
        topic = world.broker.topics.owned(METADATA_TOPIC)
        assert topic is not None
        (log,) = topic.partitions
        before = log.end_offset
        assert before
        every = await world.ask(MetadataRequest(topics=None), 12)
        assert METADATA_TOPIC not in [each.name for each in every.topics]
        by_name = await world.ask(MetadataRequest(topics=[MetadataRequestTopic(name=METADATA_TOPIC)]), 12)
        assert by_name.topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        by_id = [MetadataRequestTopic(name=None, topic_id=Uuid(topic.id))]
        assert (await world.ask(MetadataRequest(topics=by_id), 12)).topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
        create = CreateTopicsRequest(
            topics=[CreatableTopic(name=METADATA_TOPIC, num_partitions=1, replication_factor=1)]
        )
        assert (await world.ask(create, 7)).topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        for named, code in (
            (DeleteTopicState(name=METADATA_TOPIC), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            (DeleteTopicState(name=None, topic_id=Uuid(topic.id)), ErrorCode.UNKNOWN_TOPIC_ID),
        ):
            assert (await world.ask(DeleteTopicsRequest(topics=[named]), 6)).responses[0].error_code == code
        fetched = [FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)]
        for version, asked, code in (
            (12, FetchTopic(topic=METADATA_TOPIC, partitions=fetched), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            (13, FetchTopic(topic_id=Uuid(topic.id), partitions=fetched), ErrorCode.UNKNOWN_TOPIC_ID),
        ):
            fetch = FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1000, topics=[asked])
            assert (await world.ask(fetch, version)).responses[0].partitions[0].error_code == code
        batch = build_batch([Record(0, clock.now_ms(), b"k", b"v")])
        data = [TopicProduceData(name=METADATA_TOPIC, partition_data=[PartitionProduceData(index=0, records=batch)])]
        produced = await world.ask(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=data), 12)
        assert produced.responses[0].partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        resource = AlterConfigsResource(resource_type=2, resource_name=METADATA_TOPIC, configs=[])
        altered = await world.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1)
        assert altered.responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        cut = [DeleteRecordsPartition(partition_index=0, offset=-1)]
        deletion = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=METADATA_TOPIC, partitions=cut)])
        deleted = (await world.ask(deletion, 2)).topics[0].partitions[0]
        assert deleted.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert (log.start_offset, log.end_offset) == (0, before)
        world.crash()
        world.check()
        assert METADATA_TOPIC not in world.broker.topics.by_name
        world.close()
        return world.steps

    run_simulation(0, simulate)
