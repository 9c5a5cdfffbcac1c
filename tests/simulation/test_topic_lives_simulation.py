"""Topics that are deleted and made again over power cuts, in virtual time, and what their groups have committed.

A topic's lives follow each other under one name, and groups commit offsets that say of which life they are. Whatever
is deleted, made again, cut off or fails to be written: a group never sees an offset of another life, and an offset that
was acknowledged stays for as long as its topic lives.
"""

import asyncio
import os
import random
from collections import Counter

import pytest

from headrace.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from headrace.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
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
from headrace.testing.clock import FakeClock
from tests.simulation.simulated_broker import SimulatedBroker, run_simulation

NAMES = ("orders", "payments")
GROUPS = ("g0", "g1", "g2")
PARTITIONS = 2
LIFE = 1000  # an offset is the number of the topic's life times this, and a count
SEEDS = range(12)
UNKNOWN_TOPIC_OR_PARTITION, TOPIC_ALREADY_EXISTS, KAFKA_STORAGE_ERROR = 3, 36, 56


class World(SimulatedBroker):
    """The broker, and what is known to be true; `None` where an answer was lost, so that either may be."""

    def __init__(self, chance: random.Random, clock: FakeClock) -> None:
        super().__init__(chance, clock)
        self.life = dict.fromkeys(NAMES, 0)
        self.is_there: dict[str, bool | None] = dict.fromkeys(NAMES, False)
        self.committed: dict[tuple[str, str, int], int] = {}  # what was acknowledged, in this life
        self.tried: Counter[tuple[str, str, int]] = Counter()  # the highest that was sent, in this life

    async def create(self, name: str) -> None:
        topic = CreatableTopic(name=name, num_partitions=PARTITIONS, replication_factor=1)
        before, self.is_there[name] = self.is_there[name], None
        answer = await self.ask(CreateTopicsRequest(topics=[topic], timeout_ms=1000), 5)
        error = answer.topics[0].error_code
        assert error == 0 or (error == TOPIC_ALREADY_EXISTS and before is not False), (
            f"error {error} for a topic that was {before}"
        )
        self.is_there[name] = True
        if error == 0:
            self._begin_life(name)
            self.steps["created"] += 1

    def _begin_life(self, name: str) -> None:
        self.life[name] += 1
        for key in [key for key in self.tried if key[1] == name]:
            del self.tried[key]
            self.committed.pop(key, None)

    async def delete(self, name: str) -> None:
        self.is_there[name] = None
        answer = await self.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=1000), 6)
        error = answer.responses[0].error_code
        if error == KAFKA_STORAGE_ERROR:
            raise ConnectionError
        assert error in (0, UNKNOWN_TOPIC_OR_PARTITION), error
        self.is_there[name] = False
        self.steps["deleted"] += 1

    async def commit(self, group: str, name: str, partition: int) -> None:
        key, life = (group, name, partition), self.life[name]
        self.tried[key] = max(self.tried[key], life * LIFE) + 1
        offset = self.tried[key]
        stored = OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset, committed_metadata="")
        topics = [OffsetCommitRequestTopic(name=name, partitions=[stored])]
        answer = await self.ask(OffsetCommitRequest(group_id=group, topics=topics), 9)
        error = answer.topics[0].partitions[0].error_code
        assert error in (0, UNKNOWN_TOPIC_OR_PARTITION), error
        if error == 0 and self.is_there[name] and self.life[name] == life:
            self.committed[key] = offset
            self.steps["committed"] += 1

    async def fetch(self, group: str, name: str, partition: int) -> None:
        topics = [OffsetFetchRequestTopics(name=name, partition_indexes=[partition])]
        asked = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=topics)])
        life, was_there = self.life[name], self.is_there[name]
        answer = await self.ask(asked, 8)
        found = answer.groups[0].topics[0].partitions[0].committed_offset
        if was_there and self.is_there[name] and self.life[name] == life:
            key = (group, name, partition)
            assert found == -1 or found // LIFE == life, f"an offset of life {found // LIFE} in life {life} of {name}"
            assert found >= self.committed.get(key, -1), "an acknowledged offset is gone"
            self.steps["fetched" if found >= 0 else "fetched none"] += 1

    async def recover(self) -> None:
        """Find out what became of topics whose deletion or creation was not answered: those are deleted now."""
        for name in NAMES:
            while self.is_there[name] is None:
                try:
                    await self.delete(name)
                except ConnectionError:
                    self.steps["asked again"] += 1


async def live(world: World, crashes: int) -> Counter[str]:
    chance = world.chance
    for _ in range(crashes):
        for _ in range(chance.randrange(5, 40)):
            if chance.random() < 0.05:
                world.disk.fail_sync("*__consumer_offsets-*.log", times=1)
            try:
                await _step(world)
            except ConnectionError:
                world.steps["hung up on"] += 1
            world.disk.heal()
            await world.recover()
        pending = [asyncio.ensure_future(_step(world)) for _ in range(chance.randrange(3))]
        await asyncio.sleep(chance.randrange(20) / 1000)
        world.crash()
        world.steps["crashed"] += 1
        await asyncio.gather(*pending, return_exceptions=True)
        for name in NAMES:
            if any(task.exception() for task in pending):
                world.is_there[name] = None
        await world.recover()
        for name in NAMES:
            for group in GROUPS:
                for partition in range(PARTITIONS):
                    await world.fetch(group, name, partition)
    world.close()
    return world.steps


async def _step(world: World) -> None:
    chance = world.chance
    name, group, partition = chance.choice(NAMES), chance.choice(GROUPS), chance.randrange(PARTITIONS)
    if not world.is_there[name]:
        await world.create(name)
    elif chance.random() < 0.15:
        await world.delete(name)
        if chance.random() < 0.7:
            await world.create(name)
    elif chance.random() < 0.5:
        await world.commit(group, name, partition)
    else:
        await world.fetch(group, name, partition)


@pytest.mark.parametrize("seed", [int(os.environ["HEADRACE_SEED"])] if "HEADRACE_SEED" in os.environ else SEEDS)
def test_no_offset_outlives_its_topic_and_none_is_lost_before(seed: int) -> None:
    async def simulate(chance: random.Random, clock: FakeClock) -> Counter[str]:
        return await live(World(chance, clock), crashes=12)

    steps = run_simulation(seed, simulate)
    assert steps["crashed"] == 12
    assert steps["committed"]
