"""Copies for bindings, over power cuts and failed syncs of every topic that has a part in it, in virtual time.

What always holds: of every record of a bound topic there is one copy wherever its bindings send it, and none elsewhere,
in the order of the partition that it came from.
"""

import asyncio
import json
import os
import random
from collections import Counter
from typing import Any

import pytest

from headrace.delivery.headers import ORIGIN, Origin, parse_origin
from headrace.delivery.schedule import SCHEDULE_TOPIC
from headrace.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from headrace.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from headrace.records import Record, build_batch
from headrace.records.partitioning import partition_of_key
from headrace.storage.log import Log
from headrace.testing.clock import FakeClock
from tests.simulation.simulated_broker import SimulatedBroker, run_simulation
from tests.simulation.test_schedule_simulation import read

SEEDS = range(10)
SOURCE, ALL, SOME, LATER = "source", "all", "some", "later"
PARTITIONS = {SOURCE: 2, ALL: 3, SOME: 1, LATER: 1}
BINDINGS = [{"to": ALL}, {"to": SOME, "key": "a.*"}, {"to": LATER, "key": "*.z"}]
KEYS = (None, b"a.x", b"a.y", b"a.z", b"b.x", b"b.z")


class World(SimulatedBroker):
    def __init__(self, chance: random.Random, clock: FakeClock) -> None:
        super().__init__(chance, clock)
        self.acknowledged: set[tuple[int, int]] = set()

    async def make(self, name: str) -> None:
        configs = [CreatableTopicConfig(name="headrace.bindings", value=json.dumps(BINDINGS))]
        wanted = CreatableTopic(
            name=name,
            num_partitions=PARTITIONS[name],
            replication_factor=1,
            configs=configs if name == SOURCE else [],
        )
        while True:
            try:
                assert (await self.ask(CreateTopicsRequest(topics=[wanted]), 7)).topics[0].error_code in (0, 36)
                return
            except ConnectionError:
                continue

    def logs(self, topic: str) -> tuple[Log, ...]:
        return self.broker.topics.by_name[topic].partitions

    async def produce(self, topic: str) -> None:
        chance = self.chance
        records = [
            Record(place, self.clock.now_ms(), chance.choice(KEYS), b"v") for place in range(chance.randrange(1, 8))
        ]
        partition = chance.randrange(PARTITIONS[topic])
        data = TopicProduceData(
            name=topic, partition_data=[PartitionProduceData(index=partition, records=build_batch(records))]
        )
        answer = await self.ask(ProduceRequest(acks=-1, timeout_ms=30000, topic_data=[data]), 12)
        (outcome,) = answer.responses[0].partition_responses
        if topic == SOURCE and not outcome.error_code:
            self.acknowledged |= {(partition, outcome.base_offset + each.offset) for each in records}


async def simulate(chance: random.Random, clock: FakeClock) -> Counter[str]:
    world = World(chance, clock)
    for name in (ALL, SOME, SOURCE):
        await world.make(name)
    for number in range(150):
        await asyncio.sleep(chance.randrange(60) / 1000)
        step = chance.randrange(30)
        try:
            if number == 75:
                await world.make(LATER)
            if step < 2:
                world.crash()
                world.steps["crashed"] += 1
            elif step < 5:
                world.disk.fail_sync(f"*{chance.choice([*PARTITIONS, SCHEDULE_TOPIC])}-*.log", times=1)
            elif step < 9:
                await world.produce(chance.choice([ALL, SOME]))  # others write there as well
            else:
                await world.produce(SOURCE)
        except ConnectionError:
            world.steps["hung up"] += 1
    await asyncio.sleep(10)
    world.crash()
    await asyncio.sleep(5)
    check(world)
    world.close()
    return world.steps


def check(world: World) -> None:
    expected: dict[tuple[str, int], dict[int, list[int]]] = {}
    for partition, log in enumerate(world.logs(SOURCE)):
        records = read(log)
        offsets = {record.offset for record in records}
        assert {offset for at, offset in world.acknowledged if at == partition} <= offsets
        for record in records:
            for target in targets_of(record.key):
                at = target, choose(record.key, partition, PARTITIONS[target])
                expected.setdefault(at, {}).setdefault(partition, []).append(record.offset)
    found: dict[tuple[str, int], dict[int, list[int]]] = {}
    for name in (ALL, SOME, LATER):
        for partition, log in enumerate(world.logs(name)):
            for origin in filter(None, map(origin_of, read(log))):
                assert (origin.topic, origin.number) == (SOURCE, None)
                found.setdefault((name, partition), {}).setdefault(origin.partition, []).append(origin.offset)
                world.steps["copied"] += 1
    assert found == expected


def origin_of(record: Record) -> Origin | None:
    return next((parse_origin(each.value or b"") for each in record.headers if each.key == ORIGIN), None)


def targets_of(key: bytes | None) -> list[str]:
    is_some, is_later = (key or b"").startswith(b"a."), (key or b"").endswith(b".z")
    return [ALL, *([SOME] if is_some else []), *([LATER] if is_later else [])]


def choose(key: bytes | None, partition: int, partitions: int) -> int:
    return partition % partitions if key is None else partition_of_key(key, partitions)


@pytest.mark.parametrize("seed", [int(os.environ["HEADRACE_SEED"])] if "HEADRACE_SEED" in os.environ else SEEDS)
def test_every_record_is_copied_once_and_in_order(seed: int) -> None:
    steps: Any = run_simulation(seed, simulate)
    assert steps["copied"]
    assert steps["crashed"] > 1
