"""Events over power cuts, failed syncs, and indexes that are lost, old or damaged, in virtual time.

What always holds: the versions of a stream are 1, 2, 3 … in the log; what was acknowledged is there, once; a command is
there once, however often it was sent; and the index finds the events of a stream, a tag and a command, and no others.
"""

import asyncio
import os
import random
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from headrace.broker import events as broker_events
from headrace.broker.events import Events
from headrace.delivery.events import COMMAND, CONDITION, TAG, TYPE, VERSION, Condition, Criterion, Selection
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from headrace.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from headrace.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from headrace.records import Header, Record, build_batch, headers_in, records_of
from headrace.storage import event_index
from headrace.storage.log import Log
from headrace.testing.clock import FakeClock
from tests.simulation.simulated_broker import SimulatedBroker, run_simulation
from tests.simulation.test_schedule_simulation import read

SEEDS = range(12)
TOPIC = "events"
STREAMS = 5
WRITERS = 3
PASSING = (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


class World(SimulatedBroker):
    def __init__(self, chance: random.Random, clock: FakeClock, folder: Path) -> None:
        self.folder = folder
        self.acknowledged: dict[tuple[bytes, int], bytes] = {}  # by stream and version, the command
        self.repeated: set[bytes] = set()  # commands that were acknowledged to have been there before
        self.sent = 0
        super().__init__(chance, clock)

    def _prepare(self) -> None:
        self.broker.events = Events(self.broker, str(self.folder))

    # --- what becomes of an index

    def files(self) -> list[Path]:
        return list(self.folder.glob("*.events*"))

    def keep(self) -> None:
        """Remember the index as it is now: a power cut may bring it back."""
        old = self.folder / "old"
        shutil.rmtree(old, ignore_errors=True)
        old.mkdir()
        for file in self.files():
            shutil.copy(file, old)

    def crash(self) -> None:
        chance = self.chance.randrange(6)
        self.close()
        if chance < 3:
            for file in self.files():
                file.unlink()
            if chance and (self.folder / "old").exists():
                for file in (self.folder / "old").iterdir():
                    shutil.copy(file, self.folder)
        if chance == 2:
            for file in self.files():
                file.write_bytes(b"damaged" * 1000)
        super().crash()
        self.steps["crashed"] += 1

    def cut(self) -> None:
        """Have the log lose what is not durable, as after a sync that failed and left the file in doubt."""
        log = self.log
        self.steps["cut"] += log.durable_offset < log.end_offset
        log.truncate_to(log.durable_offset)

    # --- what clients do

    async def make(self) -> None:
        configs = [CreatableTopicConfig(name="headrace.events", value="true")]
        wanted = CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1, configs=configs)
        while True:
            try:
                assert (await self.ask(CreateTopicsRequest(topics=[wanted]), 7)).topics[0].error_code in (0, 36)
                return
            except ConnectionError:
                continue

    @property
    def log(self) -> Log:
        return self.broker.topics.by_name[TOPIC].partitions[0]

    async def select(self, selection: Selection, offset: int = 0) -> tuple[list[Record], Any] | None:
        wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=500, select=selection.to_text())
        request = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[FetchTopic(topic=TOPIC, partitions=[wanted])])
        answer = (await self.ask(request, 12)).responses[0].partitions[0]
        if answer.error_code:
            assert answer.error_code in PASSING, answer
            return None
        data = memoryview(answer.records)
        records = [record for at, header in headers_in(data) for record in records_of(data[at : at + header.size])]
        return records, answer

    async def select_all(self, **asked: Any) -> list[Record]:
        found: list[Record] = []
        offset, first = 0, 1
        while True:
            part = await self.select(Selection(**asked, **({"first": first} if "stream" in asked else {})), offset)
            if part is None:
                await asyncio.sleep(0.1)
                continue
            found += part[0]
            if part[1].next_offset >= part[1].high_watermark:
                return found
            offset, first = part[1].next_offset, len(found) + 1

    async def append(self, streams: list[bytes]) -> None:
        """Append to some streams from the versions that the index knows, often under a command that was sent before."""
        versions = {}
        for stream in streams:
            found = await self.select(Selection(stream=stream.decode(), first=10**6))
            if found is None:
                return
            versions[stream] = max(0, found[1].stream_version - (not self.chance.randrange(8)))
        self.sent += self.chance.randrange(4) > 0
        command = b"command %d" % self.sent
        headers = [Header(TYPE, b"kind"), Header(COMMAND, command), Header(TAG, b"t%d" % (self.sent % 7))]
        if not self.chance.randrange(5):
            condition = Condition((Criterion(tags=frozenset([f"t{self.sent % 7}"])),), self.log.start_offset)
            headers.append(Header(CONDITION, condition.to_text().encode()))
        records = [
            Record(
                place, self.clock.now_ms(), stream, b"v", (Header(VERSION, b"%d" % (versions[stream] + 1)), *headers)
            )
            for place, stream in enumerate(streams)
        ]
        data = PartitionProduceData(index=0, records=build_batch(records))
        request = ProduceRequest(
            acks=-1, timeout_ms=30000, topic_data=[TopicProduceData(name=TOPIC, partition_data=[data])]
        )
        (outcome,) = (await self.ask(request, 12)).responses[0].partition_responses
        if outcome.error_code:
            self.steps[ErrorCode.of(outcome.error_code).name] += 1
            assert outcome.error_code in (*PASSING, ErrorCode.POLICY_VIOLATION), outcome
        elif outcome.is_repeat:
            self.steps["repeated"] += 1
            self.repeated.add(command)
        else:
            for stream in streams:
                at = stream, versions[stream] + 1
                assert at not in self.acknowledged, f"{at} was acknowledged twice"
                self.acknowledged[at] = command

    async def write(self) -> None:
        for _ in range(60):
            await asyncio.sleep(self.chance.randrange(40) / 1000)
            names = [b"s-%d" % number for number in range(STREAMS)]
            try:
                await self.append(self.chance.sample(names, self.chance.choice([1, 1, 2])))
            except ConnectionError:
                self.steps["hung up"] += 1


async def simulate(chance: random.Random, clock: FakeClock, folder: Path) -> Counter[str]:
    world = World(chance, clock, folder)
    await world.make()
    writers = [asyncio.ensure_future(world.write()) for _ in range(WRITERS)]
    while not all(writer.done() for writer in writers):
        await asyncio.sleep(chance.randrange(400) / 1000)
        step = chance.randrange(11)
        if step < 2:
            world.crash()
        elif step < 4:
            world.disk.fail_sync(f"*{TOPIC}-*.log", times=1)
        elif step < 6:
            world.keep()
        elif step < 9:
            world.cut()
    for writer in writers:
        writer.result()
    await asyncio.sleep(5)
    world.crash()
    await check(world)
    world.close()
    return world.steps


async def check(world: World) -> None:
    log = read(world.log)
    by_stream: dict[bytes, list[Record]] = {}
    by_tag: dict[bytes, list[Record]] = {}
    by_command: dict[bytes, list[Record]] = {}
    for record in log:
        headers = dict(record.headers)
        by_stream.setdefault(record.key or b"", []).append(record)
        by_tag.setdefault(headers[TAG] or b"", []).append(record)
        by_command.setdefault(headers[COMMAND] or b"", []).append(record)
    for stream, records in by_stream.items():
        versions = [int(dict(record.headers)[VERSION] or b"") for record in records]
        assert versions == list(range(1, len(records) + 1))
        assert await world.select_all(stream=stream.decode()) == records
    for (stream, version), command in world.acknowledged.items():
        assert (COMMAND, command) in by_stream[stream][version - 1].headers
    assert world.repeated <= by_command.keys()
    for tag, records in by_tag.items():
        query = (Criterion(tags=frozenset([tag.decode()])),)
        assert await world.select_all(query=query) == records
    for command, records in by_command.items():
        assert records[-1].offset - records[0].offset == len(records) - 1 <= 1  # one batch, and so one append
        assert await world.select_all(command=command.decode()) == records
    world.steps["events"] += len(log)


@pytest.mark.parametrize("seed", [int(os.environ["HEADRACE_SEED"])] if "HEADRACE_SEED" in os.environ else SEEDS)
def test_acknowledged_events_are_indexed_and_no_conflict_is_lost(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_index, "PORTION", 24)
    monkeypatch.setattr(broker_events, "PORTION", 24)
    steps: Any = run_simulation(seed, lambda chance, clock: simulate(chance, clock, tmp_path))
    assert steps["events"] > 20
    assert steps["crashed"]
    assert steps["POLICY_VIOLATION"]
    assert steps["repeated"]
