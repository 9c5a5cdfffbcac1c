"""The topic of the share groups' state stays small, however many records are acknowledged, in virtual time."""

import asyncio
import random
from collections import Counter

import pytest

from headrace.broker.coordinator_log import replay
from headrace.coordinator.share.acknowledgement import Acknowledgement
from headrace.coordinator.share.coordinator import Acknowledged, ShareCoordinator, Started
from headrace.coordinator.share.partition import Acquisition, Span
from headrace.coordinator.share.records import ShareKey, decode
from headrace.protocol.schema import Uuid
from headrace.testing.clock import FakeClock
from tests.simulation.simulated_broker import SimulatedBroker, run_simulation

ACCEPT, RELEASE = 1, 2
SETTINGS = {"share.coordinator.state.topic.num.partitions": "1"}
KEYS = [ShareKey("workers", Uuid(bytes(15) + b"\1"), partition) for partition in range(8)]
# At most what is written until the next look, 30 s at 100 a second and key, and before there is enough to cut off.
MOST_RECORDS = 20_000 + 30 * 100 * len(KEYS) + 1000
BYTES_A_RECORD = 200


async def acknowledge(world: SimulatedBroker, count: int) -> Counter[str]:
    shares = world.broker.shares
    await asyncio.wait_for(settled(shares.submit([Started(key, 0) for key in KEYS])), 60)
    limits = shares.limits("workers")
    (log,) = shares.log.partitions()
    for number in range(count // len(KEYS)):
        events = []
        for key in KEYS:
            partition = shares.coordinator.partition(key)
            assert partition is not None
            (run, *_) = partition.acquire(Acquisition("ann", 1, True), [Span(0, number + 50)], limits, 0)
            kind = RELEASE if number % 7 == 0 and run.deliveries == 1 else ACCEPT
            events.append(Acknowledged(key, "ann", [Acknowledgement(run.first, run.first, [kind])], limits))
        done = settled(shares.submit(events))
        assert await asyncio.wait_for(done, 60) == (None,) * len(KEYS)
        world.steps["largest"] = max(world.steps["largest"], log.size_bytes)
    await asyncio.sleep(31)  # virtual: one more look
    world.steps["written"] = log.end_offset
    world.steps["left"] = log.end_offset - log.start_offset
    world.steps["bytes"] = log.size_bytes
    assert told(shares.coordinator) == told(read_again(world)), "what was cut off says something that is not known now"
    world.close()
    return world.steps


def settled(deferred: object) -> "asyncio.Future[object]":
    done: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    deferred.then(done.set_result)  # type: ignore[attr-defined]
    return done


def read_again(world: SimulatedBroker) -> ShareCoordinator:
    coordinator = ShareCoordinator()
    for log in world.broker.shares.log.partitions():
        replay(log, decode, lambda record, _: coordinator.apply(record))
    return coordinator


def told(coordinator: ShareCoordinator) -> dict[ShareKey, object]:
    partitions = {key: coordinator.partition(key) for key in coordinator.all_keys()}
    return {key: (each.start, each.kept()) for key, each in partitions.items() if each is not None}


@pytest.mark.parametrize("count", [40_000, pytest.param(1_000_000, marks=pytest.mark.long)])
def test_the_topic_is_bounded(count: int) -> None:
    async def simulate(chance: random.Random, clock: FakeClock) -> Counter[str]:
        return await acknowledge(SimulatedBroker(chance, clock, SETTINGS), count)

    steps = run_simulation(1, simulate)
    assert steps["written"] >= count
    assert steps["left"] <= MOST_RECORDS
    assert steps["largest"] <= MOST_RECORDS * BYTES_A_RECORD
