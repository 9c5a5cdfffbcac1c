"""Internal topics filled with garbage: the broker starts, says what it cannot use, and serves everybody else.

What is put there is random bytes, real records with bytes changed, cut or added, and real keys with other records'
values, as a client, a damaged copy of a directory or another program may have written it. Groups and transactions whose
records were left alone are as they were.
"""

import asyncio
import os
import random
from collections import Counter

import pytest

from headrace.records import Record, build_batch, crc_of
from headrace.testing.clock import FakeClock
from tests.simulation.filled_broker import FilledBroker, acl_for
from tests.simulation.simulated_broker import run_simulation

SEEDS = range(25)


@pytest.mark.parametrize("seed", [int(os.environ["HEADRACE_SEED"])] if "HEADRACE_SEED" in os.environ else SEEDS)
def test_garbage_in_an_internal_topic_stops_neither_the_start_nor_anybody_else(seed: int) -> None:
    async def simulate(chance: random.Random, clock: FakeClock) -> Counter[str]:
        world = FilledBroker(chance, clock)
        world.broker.topics.create("out", 1, {})
        for who in ("good", "fuzz"):
            await world.fill(who)
        world.tamper()
        for _ in range(2):  # what was kept is read again
            world.crash()
            assert await world.committed("good-offsets") == 5
            assert acl_for("good") in world.broker.metadata.image.acls
            coordinator = world.broker.groups.coordinator
            assert coordinator._classic.group("good-old").generation == 1
            assert coordinator._consumer is not None
            assert set(coordinator._consumer.group("good-new").members) == {"good-m"}
            transactions = world.broker.transactions.coordinator.transactions
            assert transactions["good-open"].is_ongoing
            assert not transactions["good-ended"].is_ongoing
        await asyncio.sleep(30)  # every timer of whatever was read has fired, and what failed was tried again
        assert await world.commit("new-offsets", 8) == 0
        await world.transact("good-open", ends=True)
        await world.transact("new-transaction", ends=True)
        assert await world.committed("new-offsets") == 8
        world.close()
        return world.steps

    run_simulation(seed, simulate)


def test_a_marker_that_cannot_be_read_stops_no_start() -> None:
    async def simulate(chance: random.Random, clock: FakeClock) -> Counter[str]:
        world = FilledBroker(chance, clock)
        world.broker.topics.create("out", 1, {})
        await world.fill("good")
        topic = world.broker.topics.owned("__consumer_offsets")
        assert topic is not None
        for log in topic.partitions:
            batch = build_batch([Record(0, clock.now_ms(), b"key", b"value")])
            size = log.segments[-1].size
            log.append(batch, now_ms=clock.now_ms(), from_client=False)
            log.flush()
            written = bytearray(log.segments[-1].file.read_at(len(batch), size))
            written[22] = 0x27  # a marker, in a codec that there is not, under a checksum that fits
            written[17:21] = crc_of(written).to_bytes(4, "big")
            world.disk.corrupt(log.segments[-1].path, size, bytes(written))
        world.crash()
        assert await world.committed("good-offsets") == 5
        world.close()
        return world.steps

    run_simulation(1, simulate)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1000, 2000))
def test_a_lot_of_garbage_in_internal_topics(seed: int) -> None:
    test_garbage_in_an_internal_topic_stops_neither_the_start_nor_anybody_else(seed)
