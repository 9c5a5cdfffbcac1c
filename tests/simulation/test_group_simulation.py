"""Consumer groups over power cuts, in virtual time: members come, go, vanish, stall and time out, and all commit.

Classic groups, those of KIP-848, one that is both, and one of Kafka Streams, side by side, on a disk that fails at
times; each seat is taken by one member after the other. What always holds is checked after every decision of the
coordinator (`group_world`); in the end, when nobody disturbs any more, every group settles. The seed is printed, and
replays a run: `HEADRACE_SEED=… pytest tests/simulation/test_group_simulation.py`.
"""

import asyncio
import os
import random
from collections import Counter

import pytest

from headrace.testing.clock import FakeClock
from tests.simulation.group_members import ClassicMember, ConsumerMember, Member, StreamsMember, sit
from tests.simulation.group_world import PARTITIONS, GroupWorld
from tests.simulation.offset_committer import OffsetCommitter
from tests.simulation.simulated_broker import run_simulation

KINDS: dict[str, list[type[Member]]] = {
    "classic-a": [ClassicMember] * 3,
    "classic-b": [ClassicMember] * 3,
    "consumer-a": [ConsumerMember] * 3,
    "consumer-b": [ConsumerMember] * 3,
    "streams": [StreamsMember] * 3,
    "mixed": [ConsumerMember, ClassicMember, ConsumerMember, ClassicMember],
}
CRASHES = 24
SEEDS = range(6)


async def simulate(chance: random.Random, clock: FakeClock) -> Counter[str]:
    world = GroupWorld(chance, clock, list(KINDS), frozenset(["mixed"]))
    seats = [
        asyncio.ensure_future(sit(world, group, seat, kind))
        for group, kinds in KINDS.items()
        for seat, kind in enumerate(kinds)
    ]

    async def pass_time(seconds: float) -> None:
        done, _ = await asyncio.wait(seats, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        for seat in done:
            seat.result()

    for _ in range(CRASHES):
        await pass_time(chance.choice([0.05, 0.5, 3.0, 8.0]) * chance.random())
        world.crash()
        if chance.random() < 0.4:
            fail = chance.choice([world.disk.fail_write, world.disk.fail_sync])
            fail("*.log", times=chance.randrange(1, 6), skip=chance.randrange(20))
    world.disk.heal()
    world.is_quiet = True
    await pass_time(30)
    world.check_settled()
    for group in KINDS:
        for partition in PARTITIONS:
            await OffsetCommitter(world, group, "nobody").fetch(partition)
    for seat in seats:
        seat.cancel()
    await asyncio.wait(seats)
    world.close()
    return world.steps


@pytest.mark.parametrize("seed", [int(os.environ["HEADRACE_SEED"])] if "HEADRACE_SEED" in os.environ else SEEDS)
def test_groups_survive_power_cuts(seed: int) -> None:
    steps = run_simulation(seed, simulate)
    for what in (
        "synced",
        "beaten",
        "committed",
        "committed in a transaction",
        "left",
        "vanished",
        "stalled",
        "worked",
    ):
        assert steps[what], f"nobody has {what}"
