"""Members of groups, classic and of KIP-848: they live, commit, stall, and try to commit what they no longer may."""

import asyncio
from collections.abc import Callable
from typing import Any

from headrace.coordinator.group.consumer.embedded import EmbeddedAssignment, EmbeddedSubscription, NamedPartitions
from headrace.coordinator.group.streams.tasks import NO_TASKS, list_tasks
from headrace.model import TopicPartition
from headrace.protocol import codec
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from headrace.protocol.messages.heartbeat import HeartbeatRequest
from headrace.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from headrace.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from headrace.protocol.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest, Topology
from headrace.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from headrace.protocol.schema import Message
from tests.property.test_consumer_group_simulation import REFUSED, Client
from tests.property.test_streams_group_simulation import Client as Thread
from tests.simulation.group_world import PARTITIONS, SESSION_MS, TOPICS, GroupWorld, assigned_in
from tests.simulation.offset_committer import Claim, OffsetCommitter
from tests.unit.coordinator.group_consumer.harness import reported
from tests.unit.coordinator.group_streams.harness import word_count

BEAT_S = 0.5
_STALLS_S = (0.2, 1.0, SESSION_MS / 1000 + 1.5)  # the last one is longer than a session


class Member:
    """What both kinds have in common."""

    def __init__(self, world: GroupWorld, group: str, name: str, instance_id: str | None) -> None:
        self._world, self._group, self._chance = world, group, world.chance
        self._instance_id = instance_id
        self._committer = OffsetCommitter(world, group, name)
        self._former: Claim | None = None

    async def live(self) -> None:
        """Be a member, until somebody cancels it."""
        raise NotImplementedError

    async def leave(self) -> None:
        """Say goodbye; it may go unheard."""
        raise NotImplementedError

    async def _be_busy(self, claim: Claim, partitions: list[TopicPartition]) -> None:
        """What a member does between two heartbeats."""
        world, chance = self._world, self._chance
        if not world.is_quiet and chance.random() < 0.08:
            world.steps["stalled"] += 1
            await asyncio.sleep(chance.choice(_STALLS_S))
            partitions = partitions or PARTITIONS
        elif not world.is_quiet and self._former and chance.random() < 0.3:
            await self._committer.commit(self._former, chance.choice(PARTITIONS))
        if partitions and chance.random() < 0.4:
            await self._committer.commit(claim, chance.choice(partitions))
        if partitions and chance.random() < 0.15:
            await self._committer.commit_in_transaction(claim, chance.choice(partitions))
        if partitions and chance.random() < 0.1:
            await self._committer.fetch(chance.choice(partitions))
        self._former = claim if chance.random() < 0.3 else self._former or claim


class ClassicMember(Member):
    """It joins, syncs, beats, and joins again when it is told to; it gives everything up meanwhile."""

    def __init__(self, world: GroupWorld, group: str, name: str, instance_id: str | None) -> None:
        super().__init__(world, group, name, instance_id)
        self._id = ""
        self._generation = -1
        self._synced_ids: set[str] = set()
        self._client = Client("", {}, classic="eager")  # what it has, to be seen where it is among consumers
        if group in world.mixed:
            world.consumers[group].append(self._client)

    async def live(self) -> None:
        """Be a member, until somebody cancels it."""
        try:
            while True:
                try:
                    partitions = await self._join()
                    if partitions is not None:
                        await self._stay(partitions)
                except ConnectionError:
                    self._world.steps["connected again"] += 1
                finally:
                    self._client.has = {}
        finally:
            self._client.member_id = ""

    async def _join(self) -> list[TopicPartition] | None:
        """Join and sync; what it is assigned, or None if it has to begin anew."""
        subscription = EmbeddedSubscription(topics=list(TOPICS))
        metadata = b"\0\1" + codec.encode(subscription, 1)
        request = JoinGroupRequest(
            group_id=self._group,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=4000,
            member_id=self._id,
            group_instance_id=self._instance_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=metadata)],
        )
        answer = await self._world.ask(request, 9)
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self._id = answer.member_id
            return None
        if answer.error_code == ErrorCode.FENCED_INSTANCE_ID:
            # It has taken over from its former self in a generation that a crash has undone, as it would in Kafka.
            assert self._id not in self._synced_ids, f"{self._id} was fenced, and nobody has its instance id"
            self._world.steps["fenced"] += 1
            self._id, self._generation = "", -1
            return None
        if answer.error_code:
            # Those who wait while the group becomes one of KIP-848 are asked to come again.
            upgraded = [ErrorCode.REBALANCE_IN_PROGRESS] if self._group in self._world.mixed else []
            self._refused(answer.error_code, "JoinGroup", ErrorCode.UNKNOWN_MEMBER_ID, *upgraded)
            return None
        self._id, self._generation = answer.member_id, answer.generation_id
        self._world.joined(self._group, self._generation)
        return await self._sync(self._assign(answer), answer.protocol_name)

    def _assign(self, joined: JoinGroupResponse) -> list[SyncGroupRequestAssignment]:
        """What the leader does: everybody gets something, but not always the same."""
        if joined.leader != self._id or joined.skip_assignment:
            return []
        members = sorted(member.member_id for member in joined.members)
        self._chance.shuffle(members)
        assignments = []
        for place, member_id in enumerate(members):
            mine = PARTITIONS[place :: len(members)]
            named = [
                NamedPartitions(topic=topic, partitions=[p.partition for p in mine if p.topic == topic])
                for topic in TOPICS
            ]
            encoded = b"\0\1" + codec.encode(EmbeddedAssignment(assigned_partitions=named), 1)
            assignments.append(SyncGroupRequestAssignment(member_id=member_id, assignment=encoded))
        return assignments

    async def _sync(self, assignments: list[SyncGroupRequestAssignment], protocol: str) -> list[TopicPartition] | None:
        request = SyncGroupRequest(
            group_id=self._group,
            generation_id=self._generation,
            member_id=self._id,
            group_instance_id=self._instance_id,
            protocol_type="consumer",
            protocol_name=protocol,
            assignments=assignments,
        )
        answer = await self._world.ask(request, 5)
        if answer.error_code:
            self._refused(
                answer.error_code,
                "SyncGroup",
                ErrorCode.UNKNOWN_MEMBER_ID,
                ErrorCode.ILLEGAL_GENERATION,
                ErrorCode.REBALANCE_IN_PROGRESS,
            )
            return None
        partitions = assigned_in(answer.assignment)
        self._world.synced(self._group, self._generation, self._id, self._instance_id, partitions)
        self._synced_ids.add(self._id)
        self._client.member_id, self._client.epoch = self._id, self._generation
        for topic, number in partitions:
            of_topic = self._client.has.setdefault(self._world.broker.topics.by_name[topic].id, set())
            of_topic.add(number)
        self._world.steps["synced"] += 1
        return partitions

    async def _stay(self, partitions: list[TopicPartition]) -> None:
        """Beat until something is wrong."""
        while True:
            await asyncio.sleep(BEAT_S)
            await self._be_busy(Claim(self._id, self._generation, self._instance_id), partitions)
            request = HeartbeatRequest(
                group_id=self._group,
                member_id=self._id,
                generation_id=self._generation,
                group_instance_id=self._instance_id,
            )
            error = (await self._world.ask(request, 4)).error_code
            if error:
                self._refused(
                    error,
                    "Heartbeat",
                    ErrorCode.UNKNOWN_MEMBER_ID,
                    ErrorCode.ILLEGAL_GENERATION,
                    ErrorCode.REBALANCE_IN_PROGRESS,
                )
                return

    def _refused(self, error: int, what: str, *expected: ErrorCode) -> None:
        assert error in expected, f"{what}: {ErrorCode(error)!r}"
        self._world.steps[f"{what} {ErrorCode(error).name}"] += 1
        if error == ErrorCode.UNKNOWN_MEMBER_ID:
            self._world.refused(self._group, self._id)
            self._id, self._generation = "", -1

    async def leave(self) -> None:
        """Say goodbye; it may go unheard."""
        if self._id:
            identity = MemberIdentity(member_id=self._id, group_instance_id=self._instance_id)
            await self._world.ask(LeaveGroupRequest(group_id=self._group, members=[identity]), 4)


class ConsumerMember(Member):
    """It beats, and learns from the answers what it is to have; what it is to give up it does when it comes to it."""

    def __init__(self, world: GroupWorld, group: str, name: str, instance_id: str | None) -> None:
        super().__init__(world, group, name, instance_id)
        assignor = world.chance.choice([None, "uniform", "range"])
        subscription = {"subscribed_topic_names": list(TOPICS)}
        self._client = Client(f"{name}-{len(world.consumers[group])}", subscription, instance_id, assignor)
        world.consumers[group].append(self._client)

    async def live(self) -> None:
        """Be a member, until somebody cancels it."""
        client = self._client
        try:
            while True:
                try:
                    await self._beat()
                    await asyncio.sleep(BEAT_S)
                    if client.epoch > 0:
                        await self._be_busy(Claim(client.member_id, client.epoch, None), self._partitions())
                except ConnectionError:
                    client.must_tell_all = True
                    self._world.steps["connected again"] += 1
                if self._world.is_quiet or self._chance.random() < 0.6:
                    client.give_up()
        finally:
            client.has = {}

    def _partitions(self) -> list[TopicPartition]:
        names = {topic.id: topic.name for topic in self._world.broker.topics.by_name.values()}
        return [TopicPartition(names[bytes(topic)], n) for topic, numbers in self._client.has.items() for n in numbers]

    async def _beat(self) -> None:
        client = self._client
        fields: dict[str, Any] = client.everything() if client.epoch == 0 or client.must_tell_all else {}
        request = self._request(client.epoch, topic_partitions=reported(client.has), **fields)
        answer = await self._world.ask(request, 1)
        if answer.error_code in REFUSED:
            self._world.steps[f"ConsumerGroupHeartbeat {ErrorCode(answer.error_code).name}"] += 1
            client.start_over()
            self._world.refused(self._group, client.member_id)
        elif answer.error_code != ErrorCode.UNRELEASED_INSTANCE_ID:
            assert answer.error_code == 0, (ErrorCode(answer.error_code), answer.error_message)
            client.must_tell_all = False
            client.hear(answer)
            self._world.heard(self._group, client.member_id, client.epoch, self._partitions())
            self._world.steps["beaten"] += 1

    def _request(self, epoch: int, **fields: Any) -> Message:
        return ConsumerGroupHeartbeatRequest(
            group_id=self._group,
            member_id=self._client.member_id,
            member_epoch=epoch,
            instance_id=self._instance_id,
            **fields,
        )

    async def leave(self) -> None:
        """Say goodbye; it may go unheard."""
        if self._client.epoch > 0:
            for_a_while = self._instance_id is not None and self._chance.random() < 0.5
            answer = await self._world.ask(self._request(-2 if for_a_while else -1), 1)
            if answer.error_code == 0 and not for_a_while:
                self._world.left(self._group, self._client.member_id)


class StreamsMember(Member):
    """A thread of a streams application, one of two in its process; otherwise it lives as a consumer does."""

    def __init__(self, world: GroupWorld, group: str, name: str, instance_id: str | None) -> None:
        super().__init__(world, group, name, instance_id)
        threads = world.threads[group]
        self._thread = Thread(f"{name}-{len(threads)}", f"process-{world.chance.randrange(2)}")
        threads.append(self._thread)

    async def live(self) -> None:
        """Be a member, until somebody cancels it."""
        thread = self._thread
        try:
            while True:
                try:
                    await self._beat()
                    await asyncio.sleep(BEAT_S)
                    if thread.epoch > 0:
                        await self._be_busy(Claim(thread.member_id, thread.epoch, None), self._partitions())
                except ConnectionError:
                    thread.must_tell_all = True
                    self._world.steps["connected again"] += 1
                if self._world.is_quiet or self._chance.random() < 0.6:
                    thread.has = thread.told
        finally:
            thread.has = NO_TASKS

    def _partitions(self) -> list[TopicPartition]:
        return [TopicPartition("orders", number) for name, number in sorted(self._thread.has.active) if name == "0"]

    async def _beat(self) -> None:
        thread = self._thread
        fields: dict[str, Any] = {}
        if thread.epoch == 0 or thread.must_tell_all:
            fields = {"rebalance_timeout_ms": 4000, "process_id": thread.process_id}
        if thread.epoch == 0:
            thread.has = NO_TASKS
            fields["topology"] = self._topology()
        lists = zip(("active_tasks", "standby_tasks", "warmup_tasks"), map(list_tasks, thread.has), strict=True)
        answer = await self._world.ask(self._request(thread.epoch, **dict(lists), **fields), 0)
        if answer.error_code in REFUSED:
            self._world.steps[f"StreamsGroupHeartbeat {ErrorCode(answer.error_code).name}"] += 1
            thread.start_over()
            return
        assert answer.error_code == 0, (ErrorCode(answer.error_code), answer.error_message)
        thread.must_tell_all = False
        thread.hear(answer)
        self._world.heard(self._group, thread.member_id, thread.epoch, self._partitions())
        self._world.steps["worked" if thread.has.active else "waited"] += 1

    def _topology(self) -> Topology:
        """Orders are repartitioned and counted; the topics for that are made by the broker."""
        names = {name: f"{self._group}.{name}" for name in ("words", "counts")}
        topology = word_count("orders")
        split, count = topology.subtopologies
        split.repartition_sink_topics = [names["words"]]
        count.repartition_source_topics[0].name = names["words"]
        count.state_changelog_topics[0].name = names["counts"]
        return topology

    def _request(self, epoch: int, **fields: Any) -> Message:
        ids = {"group_id": self._group, "member_id": self._thread.member_id}
        return StreamsGroupHeartbeatRequest(**ids, member_epoch=epoch, **fields)

    async def leave(self) -> None:
        """Say goodbye; it may go unheard."""
        if self._thread.epoch > 0:
            answer = await self._world.ask(self._request(-1), 0)
            if answer.error_code == 0:
                self._world.left(self._group, self._thread.member_id)


async def sit(world: GroupWorld, group: str, seat: int, kind: Callable[..., Member]) -> None:
    """Have one member after the other in a seat of a group; the last one stays."""
    chance = world.chance
    instance_id = f"{group}-{seat}" if seat == 0 else None
    while True:
        member = kind(world, group, f"{group}-{seat}", instance_id)
        life = asyncio.ensure_future(member.live())
        try:
            await asyncio.wait([life], timeout=chance.choice([0.3, 2.0, 6.0, 12.0]))
            if world.is_quiet or life.done():
                await life
        finally:
            life.cancel()
        await asyncio.wait([life])
        try:
            if chance.random() < 0.5:
                await member.leave()
                world.steps["left"] += 1
            else:
                world.steps["vanished"] += 1
        except ConnectionError:
            world.steps["left unheard"] += 1
        await asyncio.sleep(chance.choice([0.0, 0.1, 1.0, 5.0]))
