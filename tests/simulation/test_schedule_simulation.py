"""Messages that wait, repeat, are cancelled and have ids, over power cuts and failed syncs, in virtual time.

What always holds: a message that was acknowledged is delivered once, not before its time, and unless it was cancelled;
one that repeats has each of its numbers once, in order; and of two with one id within the window the later one is a
duplicate, before and after each crash.
"""

import asyncio
import os
import random
from collections import Counter
from typing import Any

import pytest

from headrace.delivery.headers import (
    CANCEL,
    DEDUP_ID,
    DELAY_MS,
    REPEAT,
    SCHEDULE_ID,
    Delivery,
    parse_origin,
    read_delivery,
)
from headrace.delivery.schedule import SCHEDULE_TOPIC
from headrace.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from headrace.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from headrace.records import Header, Record, build_batch, headers_in, records_of
from headrace.storage.log import Log
from headrace.testing.clock import FakeClock
from tests.simulation.simulated_broker import SETTINGS, SimulatedBroker, run_simulation

SEEDS = range(12)
TOPIC = "jobs"
PARTITIONS = 2
WINDOW_MS = 2000
LONGEST_DELAY_MS = 4000


class World(SimulatedBroker):
    def __init__(self, chance: random.Random, clock: FakeClock) -> None:
        super().__init__(chance, clock, SETTINGS)
        self.acknowledged: set[tuple[int, int]] = set()
        self.verdicts: dict[tuple[int, int], bool] = {}  # whether it is a duplicate, once somebody may have it

    async def begin(self) -> None:
        configs = {"headrace.queue": "true", "headrace.queue.dedup.window.ms": str(WINDOW_MS)}
        wanted = CreatableTopic(
            name=TOPIC,
            num_partitions=PARTITIONS,
            replication_factor=1,
            configs=[CreatableTopicConfig(name=name, value=value) for name, value in configs.items()],
        )
        while True:
            try:
                assert (await self.ask(CreateTopicsRequest(topics=[wanted]), 7)).topics[0].error_code in (0, 36)
                return
            except ConnectionError:
                continue

    def log(self, partition: int) -> Log:
        return self.broker.topics.by_name[TOPIC].partitions[partition]

    async def produce(self) -> None:
        chance = self.chance
        records = []
        for place in range(chance.randrange(1, 5)):
            asked = {}
            kind = chance.randrange(8)
            if kind < 4:
                asked[DELAY_MS] = str(chance.randrange(LONGEST_DELAY_MS))
            if kind == 4:
                asked[REPEAT] = chance.choice(["1s", "2s"])
            if kind == 5 or (kind < 5 and not chance.randrange(3)):
                asked[CANCEL if kind == 5 else SCHEDULE_ID] = chance.choice("abc")
            elif chance.randrange(2):
                asked[DEDUP_ID] = chance.choice("uvwxyz")
            headers = tuple(Header(name, text.encode()) for name, text in asked.items())
            records.append(Record(place, self.clock.now_ms(), None, b"" if kind == 5 else b"v", headers))
        partition = chance.randrange(PARTITIONS)
        data = PartitionProduceData(index=partition, records=build_batch(records))
        request = ProduceRequest(
            acks=-1, timeout_ms=30000, topic_data=[TopicProduceData(name=TOPIC, partition_data=[data])]
        )
        (outcome,) = (await self.ask(request, 12)).responses[0].partition_responses
        if not outcome.error_code:
            self.steps["produced"] += len(records)
            self.acknowledged |= {(partition, outcome.base_offset + each.offset) for each in records}

    def look(self) -> None:
        """See what a group would see: what is a duplicate once stays one, and what is not does not become one."""
        for partition in range(PARTITIONS):
            follower = self.broker.queues.follower_of(self.log(partition))
            if follower is not None:
                for offset in range(follower.followed):
                    is_duplicate = offset in follower.duplicates
                    assert self.verdicts.setdefault((partition, offset), is_duplicate) == is_duplicate, offset

    def crash(self) -> None:
        self.look()
        super().crash()
        self.steps["crashed"] += 1


def read(log: Log) -> list[Record]:
    records, offset = [], log.start_offset
    while offset < log.end_offset:
        piece, _ = log.read(offset, 1 << 20)
        assert piece is not None
        data = piece.read()
        for position, header in headers_in(data):
            records += records_of(data[position : position + header.size])
            offset = header.next_offset
    return records


async def simulate(chance: random.Random, clock: FakeClock) -> Counter[str]:
    world = World(chance, clock)
    await world.begin()
    for _ in range(150):
        await asyncio.sleep(chance.randrange(60) / 1000)
        step = chance.randrange(30)
        try:
            if step == 0:
                world.crash()
            elif step == 1:
                name = chance.choice([TOPIC, SCHEDULE_TOPIC])
                world.disk.fail_sync(f"*{name}-*.log", times=1)
                world.steps["syncs failed"] += 1
            elif step < 20:
                await world.produce()
            else:
                world.look()
        except ConnectionError:
            world.steps["hung up"] += 1
    await asyncio.sleep((LONGEST_DELAY_MS + 5000) / 1000)  # all that waits is due by then
    world.crash()
    await asyncio.sleep(5)
    world.look()
    check(world)
    world.close()
    return world.steps


def check(world: World) -> None:
    now_ms = world.clock.now_ms()
    cancelled = {
        asked.cancels
        for partition in range(PARTITIONS)
        for record in read(world.log(partition))
        if (asked := read_delivery(record)).cancels
    }
    for partition in range(PARTITIONS):
        records = read(world.log(partition))
        asked = {record.offset: read_delivery(record) for record in records}
        by_offset = {record.offset: record for record in records}
        assert {offset for at, offset in world.acknowledged if at == partition} <= asked.keys()
        duplicates = find_duplicates(records, asked)
        follower = world.broker.queues.follower_of(world.log(partition))
        assert follower is not None
        assert {offset for offset in asked if offset in follower.duplicates} == duplicates
        world.steps["duplicates"] += len(duplicates)
        copies: dict[int, list[tuple[int, int]]] = {}
        for record in records:
            origin = parse_origin(asked[record.offset].origin or b"")
            if origin is not None:
                assert (origin.topic, origin.partition) == (TOPIC, partition)
                copies.setdefault(origin.offset, []).append((origin.number or 0, record.timestamp))
        names = [each.schedule_id for offset, each in asked.items() if each.is_delayed and offset not in duplicates]
        for offset, delivery in asked.items():
            check_copies(world, by_offset[offset], delivery, copies.pop(offset, []), offset in duplicates, now_ms)
        assert not copies, "delivered, and nobody sent it"
        world.steps["named"] += sum(name is not None for name in names)
    world.steps["cancelled"] += len(cancelled)


def check_copies(
    world: World, record: Record, delivery: Delivery, copies: list[tuple[int, int]], is_duplicate: bool, now_ms: int
) -> None:
    if delivery.due_ms is None or is_duplicate:
        assert not copies, f"{record} was not to be delivered"
        return
    assert [number for number, _ in copies] == list(range(len(copies))), f"{record}: {copies}"
    assert all(time_ms >= delivery.due_ms for _, time_ms in copies), f"{record}: {copies} is early"
    world.steps["delivered"] += len(copies)
    if delivery.repeat is not None:
        world.steps["repeated"] += len(copies)
        times = [time_ms for _, time_ms in copies]
        due_ms = delivery.due_ms
        for time_ms in times:  # each at its own time, and what was missed once
            assert time_ms >= due_ms, f"{record}: {copies} is early"
            due_ms = delivery.repeat.next_due(due_ms, time_ms)
        if delivery.schedule_id is None:
            assert due_ms > now_ms - 1000, f"{record} stopped at {times}"
        return
    assert len(copies) <= 1
    if delivery.schedule_id is None:
        assert copies, f"{record} was lost"


@pytest.mark.parametrize("seed", [int(os.environ["HEADRACE_SEED"])] if "HEADRACE_SEED" in os.environ else SEEDS)
def test_what_waits_is_delivered_once_and_not_before_its_time(seed: int) -> None:
    steps: Any = run_simulation(seed, simulate)
    assert steps["delivered"]
    assert steps["crashed"] > 1


def find_duplicates(records: list[Record], asked: dict[int, Delivery]) -> set[int]:
    first_ms: dict[bytes, int] = {}
    duplicates = set()
    for record in records:
        dedup_id = asked[record.offset].dedup_id
        if dedup_id is None:
            continue
        if dedup_id in first_ms and record.timestamp - first_ms[dedup_id] < WINDOW_MS:
            duplicates.add(record.offset)
        else:
            first_ms[dedup_id] = record.timestamp
    return duplicates
