"""Offsets as a member commits them, by themselves or in a transaction, and what it may be answered."""

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple

from headrace.model import TopicPartition
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.end_txn import EndTxnRequest
from headrace.protocol.messages.init_producer_id import InitProducerIdRequest
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
from headrace.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from headrace.protocol.schema import Message
from tests.simulation.group_commits import Commit
from tests.simulation.group_world import GroupWorld

REFUSALS = (
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.STALE_MEMBER_EPOCH,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.GROUP_ID_NOT_FOUND,
)
FENCED = (
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
)
_TEMPORARY = {ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_NOT_AVAILABLE}


class Claim(NamedTuple):
    """As whom a member commits."""

    member_id: str
    generation: int
    instance_id: str | None


class OffsetCommitter:
    """The part of a member that commits; its transactional id is its own."""

    def __init__(self, world: GroupWorld, group: str, name: str) -> None:
        self._world, self._group, self._name = world, group, name

    async def commit(self, claim: Claim, partition: TopicPartition) -> None:
        """Commit, as whom the claim says."""
        world = self._world
        commit = world.commits.new(self._group, partition, is_transactional=False)
        is_ousted = False

        def on_sent() -> None:
            nonlocal is_ousted
            is_ousted = world.is_ousted(self._group, claim.member_id, claim.generation, partition)
            world.commits.sent(commit)

        asked = OffsetCommitRequestPartition(
            partition_index=partition.partition,
            committed_offset=world.chance.randrange(1000),
            committed_metadata=str(commit.number),
        )
        request = OffsetCommitRequest(
            group_id=self._group,
            generation_id_or_member_epoch=claim.generation,
            member_id=claim.member_id,
            group_instance_id=claim.instance_id,
            topics=[OffsetCommitRequestTopic(name=partition.topic, partitions=[asked])],
        )
        answer = await world.ask(request, 9, on_sent=on_sent)
        error = answer.topics[0].partitions[0].error_code
        if error:
            assert error in REFUSALS, ErrorCode(error)
            commit.may_count = False
            world.steps[f"OffsetCommit {ErrorCode(error).name}"] += 1
        else:
            assert not is_ousted, f"{claim} of {self._group} was ousted, and could commit"
            world.commits.promise(commit)
            world.steps["committed"] += 1

    async def commit_in_transaction(self, claim: Claim, partition: TopicPartition) -> None:
        """Commit in a transaction of its own, which may be aborted, or left alone until it times out."""
        world = self._world
        begun = await self._ask(InitProducerIdRequest(transactional_id=self._name, transaction_timeout_ms=2000), 4)
        assert begun.error_code == 0, ErrorCode(begun.error_code)
        commit = world.commits.new(self._group, partition, is_transactional=True)
        is_ousted = False

        def on_sent() -> None:
            nonlocal is_ousted
            is_ousted = world.is_ousted(self._group, claim.member_id, claim.generation, partition)
            world.commits.sent(commit)

        asked = TxnOffsetCommitRequestPartition(
            partition_index=partition.partition,
            committed_offset=world.chance.randrange(1000),
            committed_metadata=str(commit.number),
        )
        request = TxnOffsetCommitRequest(
            transactional_id=self._name,
            group_id=self._group,
            producer_id=begun.producer_id,
            producer_epoch=begun.producer_epoch,
            generation_id=claim.generation,
            member_id=claim.member_id,
            group_instance_id=claim.instance_id,
            topics=[TxnOffsetCommitRequestTopic(name=partition.topic, partitions=[asked])],
        )
        error = (await self._ask(request, 5, on_sent=on_sent)).topics[0].partitions[0].error_code
        if error:
            assert error in REFUSALS + FENCED, ErrorCode(error)
            world.steps[f"TxnOffsetCommit {ErrorCode(error).name}"] += 1
        else:
            assert not is_ousted, f"{claim} of {self._group} was ousted, and could commit in a transaction"
        if world.chance.random() < 0.3:  # of the two, the later in the log counts, whatever becomes of the transaction
            await self.commit(claim, partition)
        if world.chance.random() < 0.15:
            world.steps["transaction left alone"] += 1
            return
        is_committed = not error and world.chance.random() < 0.8
        end = EndTxnRequest(
            transactional_id=self._name,
            producer_id=begun.producer_id,
            producer_epoch=begun.producer_epoch,
            committed=is_committed,
        )
        await self._end(commit, end)

    async def _end(self, commit: Commit, end: EndTxnRequest) -> None:
        sent = 0

        def on_sent() -> None:
            nonlocal sent
            sent += 1
            commit.may_count = end.committed

        answer = await self._ask(end, 5, on_sent=on_sent)
        if answer.error_code:
            assert answer.error_code in FENCED, ErrorCode(answer.error_code)
            commit.may_count = sent > 1 and end.committed  # an earlier request may have been heard
            self._world.steps[f"EndTxn {ErrorCode(answer.error_code).name}"] += 1
        elif end.committed:
            self._world.commits.promise(commit)
            self._world.steps["committed in a transaction"] += 1
        else:
            self._world.steps["aborted"] += 1

    async def fetch(self, partition: TopicPartition) -> None:
        """Ask for the offset: it is the last that was acknowledged, or a later one."""
        promised = self._world.commits.promised(self._group, partition)
        topics = [OffsetFetchRequestTopics(name=partition.topic, partition_indexes=[partition.partition])]
        request = OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id=self._group, topics=topics)], require_stable=True
        )
        (found,) = (await self._world.ask(request, 8)).groups[0].topics[0].partitions
        if found.error_code != ErrorCode.UNSTABLE_OFFSET_COMMIT:
            assert found.error_code == 0, ErrorCode(found.error_code)
            self._world.commits.check_told(self._group, partition, found.metadata, promised)
            self._world.steps["fetched"] += 1

    async def _ask(self, request: Message, version: int, *, on_sent: Callable[[], None] = lambda: None) -> Any:
        """Ask until there is an answer that is no reason to ask again."""
        while True:
            try:
                answer = await self._world.ask(request, version, on_sent=on_sent)
            except ConnectionError:
                continue
            errors = [answer.error_code] if hasattr(answer, "error_code") else []
            errors += [p.error_code for t in getattr(answer, "topics", ()) for p in t.partitions]
            if not _TEMPORARY.intersection(errors):
                return answer
            await asyncio.sleep(0.01)
