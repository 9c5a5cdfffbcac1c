"""Offsets that are committed in one turn of the event loop go together: one batch a partition, and nobody is answered
otherwise than alone. In virtual time, with the broker's own handlers, on a disk that fails when told to."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from errno import ENOSPC
from random import Random
from typing import Any

import pytest

from headrace.broker.config import LOOPBACK
from headrace.broker.coordinator_log import batches_of
from headrace.broker.coordinator_shell import GATHERED
from headrace.broker.handler import Context
from headrace.broker.registry import HANDLERS
from headrace.broker.turns import run_through
from headrace.coordinator.group.classic.state import SessionTimer
from headrace.model import TopicPartition
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from headrace.protocol.messages.delete_groups import DeleteGroupsRequest
from headrace.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from headrace.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from headrace.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from headrace.protocol.schema import Message
from headrace.testing.clock import FakeClock
from tests.simulation.simulated_broker import SETTINGS, SimulatedBroker, run_simulation

OFFSETS = "*__consumer_offsets-*.log"
PARTITIONS = int(SETTINGS["offsets.topic.num.partitions"])
GROUPS = [f"group-{number}" for number in range(20)]
LONG_ENOUGH_S = 0.1  # for any sync


class World(SimulatedBroker):
    """A broker that can be asked many things in one turn of the loop."""

    def send(self, request: Message, version: int = 9) -> list[Any]:
        """Ask, and do not let the loop come round: the answer will be in the list; None is to be hung up on."""
        context = Context(self.broker, version, "test", {}, "127.0.0.1", LOOPBACK)
        answer: Any = HANDLERS[type(request).__schema__.api_key or 0].run(context, request)
        if hasattr(answer, "send"):
            answer = run_through(answer)
        answers: list[Any] = []
        answer.then(answers.append) if hasattr(answer, "then") else answers.append(answer)
        return answers

    def commit(self, group: str, *offsets: int, **claim: Any) -> list[Any]:
        """Commit offsets of the partitions from 0 on."""
        partitions = [
            OffsetCommitRequestPartition(partition_index=index, committed_offset=offset, committed_metadata="")
            for index, offset in enumerate(offsets)
        ]
        topics = [OffsetCommitRequestTopic(name="out", partitions=partitions)]
        return self.send(OffsetCommitRequest(group_id=group, topics=topics, **claim))

    def committed(self, group: str, partition: int = 0) -> int | None:
        """What is known to be committed."""
        found = self.broker.groups.coordinator._offsets.committed(group).get(TopicPartition("out", partition))
        return found.offset if found else None

    def batches(self) -> int:
        """How many there are in the coordinator's topic."""
        return sum(1 for log in self.broker.groups.log.partitions() for _ in batches_of(log))

    async def make_groups(self) -> None:
        """Have groups that know offsets."""
        answers = [self.commit(group, 1) for group in GROUPS]
        await asyncio.sleep(LONG_ENOUGH_S)
        assert [outcome(each) for each in answers] == [0] * len(GROUPS)


def outcome(answers: list[Any]) -> int | None:
    (answer,) = answers
    return None if answer is None else answer.topics[0].partitions[0].error_code


def run(story: Callable[[World], Awaitable[None]]) -> None:
    async def simulate(chance: Random, clock: FakeClock) -> Counter[str]:
        world = World(chance, clock, SETTINGS)
        world.broker.topics.create("out", GATHERED, {})
        await story(world)
        world.close()
        return world.steps

    run_simulation(1, simulate)


def test_what_comes_together_is_one_batch_a_partition_and_is_durable_once_it_is_answered():
    async def story(world: World) -> None:
        await world.make_groups()
        before = world.batches()
        answers = [world.commit(group, offset) for offset in (2, 3) for group in GROUPS]
        assert not any(answers), "nobody is answered before it is durable"
        await asyncio.sleep(0)
        assert world.batches() - before == PARTITIONS
        await asyncio.sleep(LONG_ENOUGH_S)
        assert [outcome(each) for each in answers] == [0] * len(answers)
        world.crash()
        assert {world.committed(group) for group in GROUPS} == {3}

    run(story)


def test_much_is_not_gathered_for_longer_than_it_takes_to_be_much():
    async def story(world: World) -> None:
        await world.make_groups()
        before = world.batches()
        world.commit(GROUPS[0], 2)
        world.commit(GROUPS[1], *range(GATHERED))
        assert world.batches() > before

    run(story)


def test_what_is_lost_before_it_is_durable_was_acknowledged_to_nobody():
    async def story(world: World) -> None:
        await world.make_groups()
        world.disk.fail_sync(OFFSETS, times=None)
        answers = [world.commit(group, 2) for group in GROUPS]
        await asyncio.sleep(LONG_ENOUGH_S)
        assert [outcome(each) for each in answers] == [None] * len(GROUPS)
        world.disk.heal()
        assert outcome(await _commit(world, GROUPS[0], 2)) == 0
        world.crash()
        assert world.committed(GROUPS[0]) == 2

    run(story)


async def _commit(world: World, group: str, offset: int) -> list[Any]:
    answer = world.commit(group, offset)
    await asyncio.sleep(LONG_ENOUGH_S)
    return answer


def test_what_cannot_be_written_has_not_happened():
    async def story(world: World) -> None:
        await world.make_groups()
        world.disk.fail_write(OFFSETS, error=ENOSPC, times=None)
        answers = [world.commit(group, 2) for group in GROUPS]
        await asyncio.sleep(LONG_ENOUGH_S)
        assert [outcome(each) for each in answers] == [None] * len(GROUPS)
        assert {world.committed(group) for group in GROUPS} == {1}
        world.disk.heal()
        assert outcome(await _commit(world, GROUPS[0], 2)) == 0

    run(story)


def test_a_batch_that_cannot_be_written_whole_is_written_piece_by_piece():
    async def story(world: World) -> None:
        await world.make_groups()
        world.disk.fail_write(OFFSETS, error=ENOSPC)
        answers = [world.commit(group, 2) for group in GROUPS]
        await asyncio.sleep(LONG_ENOUGH_S)
        assert [outcome(each) for each in answers] == [0] * len(GROUPS)
        world.crash()
        assert {world.committed(group) for group in GROUPS} == {2}

    run(story)


def test_one_whom_nobody_can_decide_about_harms_no_other(monkeypatch):
    async def story(world: World) -> None:
        await world.make_groups()
        shell = world.broker.groups._shell
        decide = shell._decide

        def fail(event: Any, now_ms: int) -> Any:
            if getattr(event.message, "group_id", "") == GROUPS[3]:
                raise ValueError("a mistake of ours")
            return decide(event, now_ms)

        monkeypatch.setattr(shell, "_decide", fail)
        answers = {group: world.commit(group, 2) for group in GROUPS}
        await asyncio.sleep(LONG_ENOUGH_S)
        assert answers.pop(GROUPS[3]) == []
        assert {outcome(each) for each in answers.values()} == {0}

    run(story)


def test_a_request_in_between_finds_what_came_before_it_and_not_what_comes_after():
    async def story(world: World) -> None:
        await world.make_groups()
        group = GROUPS[0]
        first = world.commit(group, 2)
        deleted = world.send(DeleteGroupsRequest(groups_names=[group]), 2)
        second = world.commit(group, 3)
        third = world.commit(group, 4)
        await asyncio.sleep(LONG_ENOUGH_S)
        assert [outcome(each) for each in (first, second, third)] == [0, 0, 0]
        assert deleted[0].results[0].error_code == 0
        assert world.committed(group) == 4
        world.crash()
        assert world.committed(group) == 4

    run(story)


def test_a_member_that_leaves_may_commit_before_and_not_after():
    async def story(world: World) -> None:
        await world.make_groups()
        everything = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": ["out"], "topic_partitions": []}

        def beat(epoch: int) -> ConsumerGroupHeartbeatRequest:
            return ConsumerGroupHeartbeatRequest(group_id="new", member_id="m", member_epoch=epoch, **everything)

        epoch = (await world.ask(beat(0), 1)).member_epoch
        mine = {"member_id": "m", "generation_id_or_member_epoch": epoch}
        other = world.commit(GROUPS[0], 5)
        early = world.commit("new", 2, **mine)
        stale = world.commit("new", 3, **{**mine, "generation_id_or_member_epoch": epoch + 1})
        left = world.send(beat(-1), 1)
        late = world.commit("new", 4, **mine)
        behind = world.commit(GROUPS[0], 6)
        await asyncio.sleep(LONG_ENOUGH_S)
        assert left[0].error_code == 0
        assert [outcome(each) for each in (other, early, behind)] == [0, 0, 0]
        assert outcome(stale) == ErrorCode.STALE_MEMBER_EPOCH
        assert outcome(late) == ErrorCode.UNKNOWN_MEMBER_ID
        assert (world.committed("new"), world.committed(GROUPS[0])) == (2, 6)
        world.crash()
        assert (world.committed("new"), world.committed(GROUPS[0])) == (2, 6)

    run(story)


def test_a_commit_that_is_there_when_the_session_ends_keeps_it_alive():
    async def story(world: World) -> None:
        await world.make_groups()
        protocols = [JoinGroupRequestProtocol(name="range", metadata=b"\0\0\0\0\0\0\0\0\0\0")]
        join = {"session_timeout_ms": 10_000, "rebalance_timeout_ms": 10_000, "protocol_type": "consumer"}
        joined = await world.ask(JoinGroupRequest(group_id="old", protocols=protocols, **join), 3)
        member, generation = joined.member_id, joined.generation_id
        assigned = [SyncGroupRequestAssignment(member_id=member, assignment=b"")]
        sync = SyncGroupRequest(group_id="old", generation_id=generation, member_id=member, assignments=assigned)
        assert (await world.ask(sync, 3)).error_code == 0
        mine = {"member_id": member, "generation_id_or_member_epoch": generation}
        key, shell = SessionTimer("old", member), world.broker.groups._shell

        async def commit() -> int | None:
            answer = world.commit("old", 7, **mine)
            await asyncio.sleep(LONG_ENOUGH_S)
            return outcome(answer)

        timed = world.commit("old", 6, **mine)
        shell._fire(key)  # the loop serves timers before it comes to what was gathered
        await asyncio.sleep(LONG_ENOUGH_S)
        assert outcome(timed) == 0
        assert await commit() == 0, "the member was taken for silent"
        shell._fire(key)
        assert await commit() == ErrorCode.UNKNOWN_MEMBER_ID

    run(story)


def test_nothing_is_decided_any_more_once_the_broker_ends():
    async def story(world: World) -> None:
        await world.make_groups()
        before = world.batches()
        gathered = world.commit(GROUPS[0], 2)
        world.close()
        late = world.commit(GROUPS[0], 3)
        await asyncio.sleep(LONG_ENOUGH_S)
        assert world.batches() == before
        assert (gathered, late) == ([], [None])

    run(story)


@pytest.mark.parametrize("size", [1, 499, 500, 501, 1200])
def test_a_commit_of_any_size_keeps_its_order_among_others(size):
    async def story(world: World) -> None:
        await world.make_groups()
        world.broker.topics.add_partitions("out", 1200)
        answers = [world.commit(GROUPS[0], *([offset] * count)) for offset, count in ((2, 1), (3, size), (4, 1))]
        await asyncio.sleep(LONG_ENOUGH_S)
        assert [{each.error_code for each in answer[0].topics[0].partitions} for answer in answers] == [{0}] * 3
        world.crash()
        assert [world.committed(GROUPS[0], index) for index in range(size)] == [4] + [3] * (size - 1)

    run(story)
