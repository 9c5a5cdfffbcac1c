"""Share groups: heartbeats and descriptions, which the group coordinator answers, and where groups are in partitions.

Deleting offsets is decided by the group coordinator, and the state of the records goes after that. What a crash leaves
in between is swept up at the next start.
"""

import asyncio
from collections.abc import Sequence

from headrace.broker.errors import BrokerError, code_of
from headrace.broker.handler import GROUP, TOPIC, Answer, Context, denial
from headrace.broker.handlers.groups import ask_group_by_group, ask_groups
from headrace.broker.turns import Steps
from headrace.coordinator.share.coordinator import Altered
from headrace.coordinator.share.records import ShareKey
from headrace.errors import HeadraceError
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)
from headrace.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from headrace.protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)
from headrace.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)
from headrace.protocol.messages.share_group_describe import DescribedGroup, ShareGroupDescribeResponse
from headrace.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from headrace.protocol.schema import ZERO_UUID, Message, Uuid

NO_OFFSET = -1


def heartbeat(ctx: Context, request: ShareGroupHeartbeatRequest) -> Answer:
    """Ask the coordinator, unless the member subscribes to a topic that it may know nothing of."""
    if not all(ctx.allows(TOPIC, name) for name in request.subscribed_topic_names or ()):
        return ShareGroupHeartbeatResponse(
            error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, error_message=str(denial(TOPIC))
        )
    return ask_groups(ctx, request)


_describe_groups = ask_group_by_group("group_ids", "groups", DescribedGroup)


def describe(ctx: Context, request: Message) -> Steps[Answer]:
    """Describe the groups, but none whose members have topics that the client may know nothing of."""
    answer = yield from _describe_groups(ctx, request)

    def restrict(response: Message | None) -> None:
        if isinstance(response, ShareGroupDescribeResponse):
            response.groups = [group if _may_see(ctx, group) else _hide(group) for group in response.groups]

    return answer.after(restrict) if ctx.broker.authorizer else answer


def _may_see(ctx: Context, group: DescribedGroup) -> bool:
    topics = {topic.topic_name for member in group.members for topic in member.assignment.topic_partitions}
    return all(ctx.allows(TOPIC, name) for name in topics)


def _hide(group: DescribedGroup) -> DescribedGroup:
    return DescribedGroup(
        group_id=group.group_id,
        error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        error_message="The group has topics that the client is not authorized to describe.",
    )


# --- where groups are


def describe_offsets(ctx: Context, request: DescribeShareGroupOffsetsRequest) -> Steps[Answer]:
    response = DescribeShareGroupOffsetsResponse()
    for group in request.groups:
        response.groups.append((yield from _describe_group_offsets(ctx, group, with_runs=request.include_runs)))
    return response


def _describe_group_offsets(
    ctx: Context, asked: DescribeShareGroupOffsetsRequestGroup, *, with_runs: bool
) -> Steps[DescribeShareGroupOffsetsResponseGroup]:
    """Of a group, a topic or a partition's state that is not there no offset is known, which is not an error."""
    described = DescribeShareGroupOffsetsResponseGroup(group_id=asked.group_id)
    group = ctx.broker.groups.share_group(asked.group_id)
    if not ctx.allows(GROUP, asked.group_id):
        denied = denial(GROUP)
        described.error_code, described.error_message = denied.code, str(denied)
        return described
    if asked.topics is None:
        shared = sorted((topic.name, sorted(topic.partitions)) for topic in (group.shared.values() if group else ()))
        wanted = [(name, partitions) for name, partitions in shared if ctx.allows(TOPIC, name)]
    else:
        wanted = [(topic.topic_name, topic.partitions) for topic in asked.topics]
    for name, partitions in wanted:
        topic = DescribeShareGroupOffsetsResponseTopic(topic_name=name)
        for index in partitions:
            topic.partitions.append(_describe_partition(ctx, asked.group_id, topic, index, with_runs=with_runs))
            yield
        described.topics.append(topic)
    return described


def _describe_partition(
    ctx: Context, group_id: str, told: DescribeShareGroupOffsetsResponseTopic, index: int, *, with_runs: bool
) -> DescribeShareGroupOffsetsResponsePartition:
    described = DescribeShareGroupOffsetsResponsePartition(partition_index=index, start_offset=NO_OFFSET)
    try:
        topic = ctx.topic(told.topic_name)
    except BrokerError as error:
        if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            described.error_code, described.error_message = error.code, str(error)
        return described
    try:
        log = ctx.broker.log(topic, index)
    except BrokerError as error:
        described.error_code, described.error_message = error.code, str(error)
        return described
    told.topic_id = Uuid(topic.id)
    key = ShareKey(group_id, told.topic_id, index)
    partition = ctx.broker.shares.coordinator.partition(key)
    if partition is not None and partition.is_started:
        partition.advance(log.start_offset)
        described.start_offset = partition.start
        described.leader_epoch = ctx.broker.leader_epoch
        described.lag = max(0, ctx.broker.high_watermark(log) - partition.start - partition.finished)
        described.in_flight = partition.in_flight()
        described.redeliveries = ctx.broker.shares.redeliveries.get(key, 0)
        if with_runs:
            described.runs = [number for run in partition.runs for number in run[:4]]
    return described


async def alter_offsets(ctx: Context, request: AlterShareGroupOffsetsRequest) -> Message | None:
    """Have a group without members begin elsewhere; it has to exist, and partitions are made its own by that."""
    response = AlterShareGroupOffsetsResponse()
    events: list[Altered] = []
    named: list[AlterShareGroupOffsetsResponsePartition] = []
    allowed = []
    for asked in request.topics:
        answered = AlterShareGroupOffsetsResponseTopic(topic_name=asked.topic_name)
        response.responses.append(answered)
        kept = []
        for each in asked.partitions:
            await asyncio.sleep(0)  # there may be many
            outcome = AlterShareGroupOffsetsResponsePartition(partition_index=each.partition_index)
            answered.partitions.append(outcome)
            try:
                topic = ctx.topic(asked.topic_name)
                answered.topic_id = Uuid(topic.id)
                log = ctx.broker.log(topic, each.partition_index)
            except HeadraceError as error:
                outcome.error_code, outcome.error_message = code_of(error), str(error)
                continue
            offset = min(max(each.start_offset, log.start_offset), ctx.broker.high_watermark(log))
            events.append(Altered(ShareKey(request.group_id, answered.topic_id, each.partition_index), offset))
            named.append(outcome)
            kept.append(each)
        if kept:
            allowed.append(asked.replaced(partitions=kept))
    try:
        _check_ended(ctx, [event.key for event in events])
        ctx.broker.shares.check_room(event.key for event in events)
    except BrokerError as error:
        return AlterShareGroupOffsetsResponse(error_code=error.code, error_message=str(error))
    decided = await ask_groups(ctx, request.replaced(topics=allowed))
    if not isinstance(decided, AlterShareGroupOffsetsResponse) or decided.error_code:
        return decided
    if not await ctx.broker.shares.submit_all(events):
        for outcome in named:
            outcome.error_code, outcome.error_message = _not_written()
    return response


async def delete_offsets(ctx: Context, request: DeleteShareGroupOffsetsRequest) -> Message | None:
    """Have a group without members forget all that it knows of topics."""
    response = DeleteShareGroupOffsetsResponse()
    group = ctx.broker.groups.share_group(request.group_id)
    shared = {topic.name: topic_id for topic_id, topic in group.shared.items()} if group else {}
    doomed: dict[Uuid, DeleteShareGroupOffsetsResponseTopic] = {}
    allowed = []
    for asked in request.topics:
        await asyncio.sleep(0)  # there may be many
        outcome = DeleteShareGroupOffsetsResponseTopic(topic_name=asked.topic_name)
        response.responses.append(outcome)
        try:
            ctx.require(TOPIC, asked.topic_name)
            outcome.topic_id = shared.get(asked.topic_name, ZERO_UUID)
            if outcome.topic_id == ZERO_UUID:
                outcome.topic_id = Uuid(ctx.topic(asked.topic_name).id)
                raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "There is no offset information to delete.")
        except HeadraceError as error:
            outcome.error_code, outcome.error_message = code_of(error), str(error)
            continue
        doomed[outcome.topic_id] = outcome
        allowed.append(asked)
    keys = [key for key in ctx.broker.shares.coordinator.keys_of(request.group_id) if key.topic_id in doomed]
    try:
        _check_ended(ctx, keys)
    except BrokerError as error:
        return DeleteShareGroupOffsetsResponse(error_code=error.code, error_message=str(error))
    decided = await ask_groups(ctx, request.replaced(topics=allowed))
    if not isinstance(decided, DeleteShareGroupOffsetsResponse) or decided.error_code:
        return decided
    if not await ctx.broker.shares.delete(keys):
        for outcome in doomed.values():
            outcome.error_code, outcome.error_message = _not_written()
    return response


_delete_groups = ask_group_by_group("groups_names", "results", DeletableGroupResult)


def delete_groups(ctx: Context, request: DeleteGroupsRequest) -> Steps[Answer]:
    """Delete groups of any kind, but no share group that a transaction, or a dead letter, has yet to be done with."""
    coordinator = ctx.broker.shares.coordinator
    busy = []
    for name in dict.fromkeys(request.groups_names):
        keys, code = coordinator.keys_of(name), ErrorCode.NONE
        if coordinator.is_pending(keys):
            code = ErrorCode.CONCURRENT_TRANSACTIONS
        elif coordinator.owes_letters(keys):
            code = ErrorCode.UNSTABLE_OFFSET_COMMIT
        if code and ctx.allows(GROUP, name):
            busy.append(DeletableGroupResult(group_id=name, error_code=code))
        yield
    names = {each.group_id for each in busy}
    others = request.replaced(groups_names=[name for name in request.groups_names if name not in names])
    answer = yield from _delete_groups(ctx, others)

    def complete(response: Message | None) -> None:
        if isinstance(response, DeleteGroupsResponse):
            response.results += busy

    return answer.after(complete) if busy else answer


def _check_ended(ctx: Context, keys: Sequence[ShareKey]) -> None:
    """Refuse to forget records whose fate a transaction has yet to decide: they would be done twice, or not at all."""
    if ctx.broker.shares.coordinator.is_pending(keys):
        raise BrokerError(
            ErrorCode.CONCURRENT_TRANSACTIONS,
            "some of the group's records are acknowledged in a transaction that is open: try again when it has ended, "
            "at the latest when its time is over",
        )


def _not_written() -> tuple[ErrorCode, str]:
    return ErrorCode.KAFKA_STORAGE_ERROR, "the change could not be written: check the disk"
