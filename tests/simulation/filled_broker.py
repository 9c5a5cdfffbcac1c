"""A broker that has everything in it: offsets, groups of both kinds, transactions in several states, ACLs.

Some of it is of those who are left alone (`good`), some of those whose records are tampered with (`fuzz`): a client, a
damaged copy of a directory or another program may have written anything into an internal topic.
"""

import asyncio
from typing import Any

from headrace.broker.coordinator_log import batches_of
from headrace.coordinator.metadata import METADATA_TOPIC, MetadataChange, record_of
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from headrace.protocol.messages.create_acls import CreateAclsResponse
from headrace.protocol.messages.end_txn import EndTxnRequest
from headrace.protocol.messages.init_producer_id import InitProducerIdRequest
from headrace.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
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
from headrace.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from headrace.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from headrace.records import Record, build_batch, header_at, records_of
from headrace.security.acl import Acl, Operation, PatternType, Permission, ResourceType
from tests.simulation.simulated_broker import SimulatedBroker

INTERNAL = ("__consumer_offsets", "__transaction_state", METADATA_TOPIC)


def acl_for(who: str) -> Acl:
    topic = (ResourceType.TOPIC, who, PatternType.LITERAL)
    return Acl(*topic, f"User:{who}", "*", Operation.READ, Permission.DENY)


class FilledBroker(SimulatedBroker):
    """A broker in use, by some who are left alone (`good`) and some whose records are tampered with (`fuzz`)."""

    async def fill(self, who: str) -> None:
        """Every kind of record: offsets, a classic and a new-style group, and transactions in several states."""
        assert await self.commit(f"{who}-offsets", 5) == 0
        beat = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": ["out"], "topic_partitions": []}
        joined = ConsumerGroupHeartbeatRequest(group_id=f"{who}-new", member_id=f"{who}-m", member_epoch=0, **beat)
        assert (await self.ask(joined, 1)).error_code == 0
        protocols = [JoinGroupRequestProtocol(name="range", metadata=b"\0\0\0\0\0\0\0\0\0\0")]
        join = JoinGroupRequest(
            group_id=f"{who}-old",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            protocol_type="consumer",
            protocols=protocols,
        )
        member = (await self.ask(join, 3)).member_id
        assigned = [SyncGroupRequestAssignment(member_id=member, assignment=b"x")]
        sync = SyncGroupRequest(group_id=f"{who}-old", generation_id=1, member_id=member, assignments=assigned)
        assert (await self.ask(sync, 3)).error_code == 0
        change = MetadataChange(CreateAclsResponse(), [record_of(acl_for(who))])
        assert await self.broker.metadata.change(lambda _: change)
        for name, ends in (("open", False), ("ended", True)):
            await self.transact(f"{who}-{name}", ends=ends)

    async def commit(self, group: str, offset: int) -> int:
        stored = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
        topics = [OffsetCommitRequestTopic(name="out", partitions=[stored])]
        answer = await self.ask(OffsetCommitRequest(group_id=group, topics=topics), 9)
        return int(answer.topics[0].partitions[0].error_code)

    async def committed(self, group: str) -> int:
        topics = [OffsetFetchRequestTopics(name="out", partition_indexes=[0])]
        asked = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=topics)])
        return int((await self.ask(asked, 8)).groups[0].topics[0].partitions[0].committed_offset)

    async def transact(self, name: str, *, ends: bool) -> None:
        init = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
        producer: Any = await self.ask(init, 4)
        if producer.error_code == ErrorCode.CONCURRENT_TRANSACTIONS:  # one of before the crash is being ended
            await asyncio.sleep(1)
            producer = await self.ask(init, 4)
        assert producer.error_code == 0
        batch = build_batch(
            [Record(0, self.broker.now_ms(), None, name.encode())],
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            base_sequence=0,
            transactional=True,
        )
        topics = [
            TopicProduceData(name="out", partition_data=[PartitionProduceData(index=0, records=bytearray(batch))])
        ]
        request = ProduceRequest(transactional_id=name, acks=-1, timeout_ms=1000, topic_data=topics)
        answer: Any = await self.ask(request, 12)
        assert answer.responses[0].partition_responses[0].error_code == 0
        if ends:
            end = EndTxnRequest(
                transactional_id=name,
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                committed=True,
            )
            assert (await self.ask(end, 5)).error_code == 0

    def tamper(self) -> None:
        """Write garbage behind what is there, in every partition."""
        for topic in INTERNAL:
            known = self.broker.topics.owned(topic)
            assert known is not None
            logs = known.partitions
            real = [
                (record.key or b"", record.value)
                for log in logs
                for batch in batches_of(log)
                if not header_at(batch).is_control
                for record in records_of(batch)
                if b"fuzz" in (record.key or b"")
            ]
            values = [value for _, value in real if value is not None]
            for log in logs:
                for _ in range(40):
                    key, value = self._garbage(real, values)
                    batch = build_batch([Record(0, self.broker.now_ms(), key, value)])
                    log.append(batch, now_ms=self.broker.now_ms(), from_client=False)
                log.flush()

    def _garbage(
        self, real: list[tuple[bytes, bytes | None]], values: list[bytes]
    ) -> tuple[bytes | None, bytes | None]:
        chance = self.chance
        key, value = chance.choice(real)
        match chance.randrange(6):
            case 0:
                return chance.randbytes(chance.randrange(20)), chance.randbytes(chance.randrange(60))
            case 1:
                return None, value
            case 2:
                return key, chance.choice(values)
            case 3:
                return self._changed(key), value
            case 4:
                return key[: chance.randrange(len(key))], value
            case _:
                return key, self._changed(value or b"\0\0")

    def _changed(self, data: bytes) -> bytes:
        chance = self.chance
        changed = bytearray(data)
        for _ in range(chance.randrange(1, 4)):
            place = chance.randrange(len(changed) + 1)
            if chance.random() < 0.7 and place < len(changed):
                changed[place] = chance.choice([0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)])
            else:
                changed[place : place + chance.randrange(3)] = chance.randbytes(chance.randrange(4))
        return bytes(changed)
