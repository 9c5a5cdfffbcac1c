"""What topics and share groups can ask for besides, over power cuts and failed syncs, in virtual time.

What always holds, whatever happens to the broker: a record that a group with a topic for dead letters gave up has its
letter, and whatever has a letter is neither delivered again nor accepted; space is freed of what every group has
finished only, and no offset is ever another record's; what a filter leaves out is never delivered, and of a key no
record is delivered while one before it is unfinished.
"""

import asyncio
import os
import random
from collections import Counter
from collections.abc import Callable, Mapping

import pytest

from headrace.broker import shares
from headrace.broker.queues import finished
from headrace.delivery.letters import Letter
from headrace.records import Header, Record, headers_in, records_of
from headrace.storage.log import Log
from headrace.testing.clock import FakeClock
from tests.simulation.simulated_broker import run_simulation
from tests.simulation.test_share_simulation import GROUP, TOPIC, Place, World, live

LETTERS = "dlq.work"
SEEDS = [int(os.environ["HEADRACE_SEED"])] if "HEADRACE_SEED" in os.environ else range(10)


def records_in(log: Log) -> list[Record]:
    records: list[Record] = []
    offset = log.start_offset
    while offset < log.end_offset:
        piece, _ = log.read(offset, 1 << 20)
        data = memoryview(piece.read() if piece is not None else b"")
        for position, header in headers_in(data):
            records += records_of(data[position : position + header.size])
            offset = header.next_offset
    return records


class LetterWorld(World):
    group_settings: Mapping[str, str] = {"errors.deadletterqueue.topic.name": LETTERS}

    def __init__(self, chance: random.Random, clock: FakeClock) -> None:
        super().__init__(chance, clock)
        self.with_letter: set[Place] = set()  # when the broker was started

    @property
    def synced(self) -> str:  # type: ignore[override]
        return self.chance.choice(["*__share_group_state-*.log", f"*{LETTERS}-*.log"])

    def letters(self) -> Counter[Place]:
        topic = self.broker.topics.by_name.get(LETTERS)
        written = [Letter.of(record) for log in (topic.partitions if topic else ()) for record in records_in(log)]
        assert all((each.topic, each.value) == (TOPIC, b"v") for each in written)
        return Counter(Place(each.job, each.partition, each.offset) for each in written)

    def look(self) -> object:
        topic = self.broker.topics.by_name.get(LETTERS)
        return [log.end_offset for log in topic.partitions] if topic else []

    def crash(self) -> None:
        super().crash()
        self.with_letter = set(self.letters())

    def check_delivery(self, place: Place, record: Record) -> None:
        assert place not in self.with_letter, f"{place} has its dead letter, and is delivered again"

    async def check_end(self) -> None:
        while self.broker.shares.letters.waiting:  # noqa: ASYNC110 - a poll, and its time is virtual
            await asyncio.sleep(0.1)
        letters = self.letters()
        self.steps["letters"] = len(letters)
        self.steps["written twice"] = letters.total() - len(letters)
        for place, known in self.records.items():
            if known.is_accepted:
                assert place not in letters, f"{place} was accepted, and has a dead letter"
            elif known.is_accepted is False:
                assert place in letters, f"{place} was given up, and has no dead letter"


class FreedWorld(LetterWorld):
    """Two groups; segments have a record or two, so that they are freed all the time."""

    groups = (GROUP, "auditors")
    topic_settings: Mapping[str, str] = {"headrace.queue.delete.acknowledged": "true", "internal.segment.bytes": "200"}

    @property
    def synced(self) -> str:  # type: ignore[override]
        return self.chance.choice(["*__share_group_state-*.log", f"*{TOPIC}-*.log", "*checkpoint*"])

    def look(self) -> object:
        return [log.segments[0].base_offset for log in self.broker.topics.by_name[TOPIC].partitions]

    def crash(self) -> None:
        self.note_starts()
        super().crash()
        known = self.broker.shares.coordinator
        for key in known.all_keys():
            log, state = self.broker.topics.by_name[TOPIC].partitions[key.partition], known.partition(key)
            assert state is not None
            assert state.start >= log.start_offset, f"{key} has not finished, as far as is on the disk, what was freed"

    def note_starts(self) -> None:
        for index, log in enumerate(self.broker.topics.by_name[TOPIC].partitions):
            self.steps["freed"] = max(self.steps["freed"], log.start_offset)
            for place, known in self.records.items():
                if place.partition == index and place.offset < log.start_offset:
                    assert known.is_finished is not False, f"{place} is unfinished, and is freed"

    async def check_end(self) -> None:
        logs = self.broker.topics.by_name[TOPIC].partitions
        while any(log.start_offset < log.end_offset for log in logs):  # noqa: ASYNC110 - a poll in virtual time
            await asyncio.sleep(0.1)
        self.note_starts()
        await super().check_end()


class SelectiveWorld(World):
    """A group that goes by keys, and does not want some of the records."""

    group_settings: Mapping[str, str] = {"headrace.order": "key", "headrace.filter": "header.kind <> 'noise'"}

    def __init__(self, chance: random.Random, clock: FakeClock) -> None:
        super().__init__(chance, clock)
        self.keys: dict[Place, bytes | None] = {}  # of what was delivered at least once

    def make_record(self, number: int) -> Record:
        key, kind = self.chance.choice([b"a", b"b", None]), self.chance.choice([b"signal", b"signal", b"noise"])
        return Record(number, self.clock.now_ms(), key, b"v", (Header("kind", kind),))

    def is_wanted(self, record: Record) -> bool:
        return record.headers[0].value != b"noise"

    def check_delivery(self, place: Place, record: Record) -> None:
        assert self.is_wanted(record), f"{place} is not wanted"
        self.keys[place] = record.key
        if record.key is None:
            return
        for other, key in self.keys.items():
            if key == record.key and other.partition == place.partition and other.offset < place.offset:
                is_over = self.records[other].is_finished is not False
                assert is_over, f"{place} is delivered, and {other} of the same key is unfinished"
                self.steps["in order"] += 1


def simulate(seed: int, make: Callable[[random.Random, FakeClock], World]) -> Counter[str]:
    async def run(chance: random.Random, clock: FakeClock) -> Counter[str]:
        return await live(make(chance, clock), crashes=6)

    return run_simulation(seed, run)


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_given_up_has_its_dead_letter_and_what_has_one_is_not_delivered(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    _cut_often(seed, monkeypatch)
    steps = simulate(seed, LetterWorld)
    assert steps["letters"] > 5
    assert steps["accept"] > 5


@pytest.mark.parametrize("seed", SEEDS)
def test_only_what_every_group_has_finished_is_freed(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    _cut_often(seed, monkeypatch)
    monkeypatch.setattr(finished, "_FREE_S", 0.005)
    monkeypatch.setattr(finished, "_LOOK_S", 0.2)
    monkeypatch.setattr(finished, "_WORTH_BYTES", 1)
    steps = simulate(seed, FreedWorld)
    assert steps["freed"] > 5


@pytest.mark.parametrize("seed", SEEDS)
def test_keys_keep_their_order_and_what_is_not_wanted_is_not_delivered(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    _cut_often(seed, monkeypatch)
    steps = simulate(seed, SelectiveWorld)
    assert steps["in order"] > 5
    assert steps["accept"] > 5


def _cut_often(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if seed % 2 == 1:
        monkeypatch.setattr(shares, "_CHECK_CUT_S", 0.04)
        monkeypatch.setattr(shares, "_RECORDS_BEFORE_CUT", 4)
        monkeypatch.setattr(shares, "_RECORDS_PER_KEY_BEFORE_CUT", 1)
