"""FindCoordinator, and the requests about groups and their members that the group coordinator answers.

A request is handed over whole, or in pieces that each take some milliseconds.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any

from headrace.broker.coordinator_log import CoordinatorLog
from headrace.broker.handler import CLUSTER, GROUP, TOPIC, TRANSACTIONAL_ID, Answer, Context, denial
from headrace.broker.turns import Deferred, Steps
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.consumer_group_describe import ConsumerGroupDescribeResponse
from headrace.protocol.messages.consumer_group_describe import DescribedGroup as DescribedConsumerGroup
from headrace.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from headrace.protocol.messages.delete_groups import DeletableGroupResult
from headrace.protocol.messages.describe_groups import DescribedGroup
from headrace.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from headrace.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from headrace.protocol.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchResponseGroup,
)
from headrace.protocol.messages.share_group_describe import DescribedGroup as DescribedShareGroup
from headrace.protocol.messages.streams_group_describe import DescribedGroup as DescribedStreamsGroup
from headrace.protocol.schema import Message

RefusedGroup = (
    DescribedGroup
    | DescribedConsumerGroup
    | DescribedShareGroup
    | DescribedStreamsGroup
    | DeletableGroupResult
    | OffsetFetchResponseGroup
)

_GROUPS_A_STEP = 4


def ask_groups(ctx: Context, request: Message) -> Deferred[Message | None]:
    """Ask the group coordinator; its answer may wait for other members, for a time, or for the disk."""
    return ctx.broker.groups.ask(request, ctx.version, ctx.client_id, ctx.client_host)


def ask_group_by_group(
    asked: str, answered: str, refuse: type[RefusedGroup]
) -> Callable[[Context, Message], Steps[Deferred[Message | None]]]:
    """A handler for a request with groups in the field `asked`, whose answer has as many in the field `answered`.

    The coordinator is asked about some groups at a time, each of which may have thousands of members or offsets, and
    about each once: an answer is in proportion to what there is, not to how often it is asked for. It is not asked
    about a group that the client may know nothing of.
    """

    def handle(ctx: Context, request: Message) -> Steps[Deferred[Message | None]]:
        groups = list({_key_of(group): group for group in getattr(request, asked)}.values())
        code = ErrorCode.GROUP_AUTHORIZATION_FAILED
        allowed, denied = [], []
        for group in groups:
            name = _name_of(group)
            if ctx.allows(GROUP, name):
                allowed.append(group)
            else:
                denied.append(name)
            yield
        starts = range(0, len(allowed), _GROUPS_A_STEP)
        parts = [{asked: allowed[start : start + _GROUPS_A_STEP]} for start in starts]
        pieces = [request.replaced(**part) for part in parts]
        if len(pieces) > 1:
            answer = yield from ask_in_pieces(ctx, pieces, answered)
        else:
            nothing: dict[str, Any] = {asked: []} if groups else {}  # or it is of a version without that field
            answer = ask_groups(ctx, pieces[0] if pieces else request.replaced(**nothing))

        def complete(response: Message | None) -> None:
            if response is None:
                return
            if getattr(request, "include_authorized_operations", False):
                for group in getattr(response, answered):
                    if not group.error_code:
                        group.authorized_operations = ctx.operations(GROUP, group.group_id)
            getattr(response, answered).extend(refuse(group_id=name, error_code=code) for name in denied)

        return answer.after(complete)

    return handle


def _name_of(group: str | OffsetFetchRequestGroup) -> str:
    return group if isinstance(group, str) else group.group_id


def _key_of(group: str | OffsetFetchRequestGroup) -> object:
    """What two of the same have in common; of some offsets of a group one may ask twice, and for others."""
    if isinstance(group, OffsetFetchRequestGroup):
        return group.group_id if group.topics is None else id(group)
    return group


def ask_in_pieces(ctx: Context, pieces: Sequence[Message], answered: str) -> Steps[Deferred[Message | None]]:
    """Ask the group coordinator for one piece of a request after the other; one answer for all."""
    whole: Deferred[Message | None] = Deferred()
    answers: dict[int, Message] = {}

    def gather(number: int, answer: Message | None) -> None:
        if answer is None:
            whole.set(None)
            return
        answers[number] = answer
        if len(answers) == len(pieces):
            for further in range(1, len(pieces)):
                getattr(answers[0], answered).extend(getattr(answers[further], answered))
            whole.set(answers[0])

    for number, piece in enumerate(pieces):
        ask_groups(ctx, piece).then(lambda answer, number=number: gather(number, answer), whole.fail)  # type: ignore[misc]
        yield
    return whole


_describe_consumer_groups = ask_group_by_group("group_ids", "groups", DescribedConsumerGroup)


def describe_consumer_groups(ctx: Context, request: Message) -> Steps[Answer]:
    """Describe the groups, but none whose members have topics that the client may know nothing of."""
    answer = yield from _describe_consumer_groups(ctx, request)

    def restrict(response: Message | None) -> None:
        if isinstance(response, ConsumerGroupDescribeResponse):
            response.groups = [group if _may_see(ctx, group) else _hide(group) for group in response.groups]

    return answer.after(restrict) if ctx.broker.authorizer else answer


def _may_see(ctx: Context, group: DescribedConsumerGroup) -> bool:
    topics = {
        topic.topic_name
        for member in group.members
        for assignment in (member.assignment, member.target_assignment)
        for topic in assignment.topic_partitions
    }
    return all(ctx.allows(TOPIC, name) for name in topics)


def _hide(group: DescribedConsumerGroup) -> DescribedConsumerGroup:
    return DescribedConsumerGroup(
        group_id=group.group_id,
        error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        error_message="The group has topics that the client is not authorized to describe.",
    )


def list_groups(ctx: Context, request: ListGroupsRequest) -> Deferred[Message | None]:
    """List the groups that the client may know of."""

    def restrict(response: Message | None) -> None:
        if isinstance(response, ListGroupsResponse):
            response.groups = [group for group in response.groups if ctx.sees(GROUP, group.group_id)]

    return ask_groups(ctx, request).after(restrict)


def heartbeat(ctx: Context, request: ConsumerGroupHeartbeatRequest) -> Answer:
    """Ask the coordinator, unless the member subscribes to a topic that it may know nothing of."""
    if not all(ctx.allows(TOPIC, name) for name in request.subscribed_topic_names or ()):
        return ConsumerGroupHeartbeatResponse(
            error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, error_message=str(denial(TOPIC))
        )
    return ctx.broker.groups.ask(
        request, ctx.version, ctx.client_id, ctx.client_host, sees=lambda name: ctx.sees(TOPIC, name)
    )


GROUPS, TRANSACTIONS, SHARES = 0, 1, 2
KEYS_SINCE = 4
_COORDINATED = {GROUPS: GROUP, TRANSACTIONS: TRANSACTIONAL_ID, SHARES: CLUSTER}
_SHARE_KEY = re.compile(r"(?s).+:[\w-]{22}:\d{1,10}")  # group, topic id and partition


def find_coordinator(ctx: Context, request: FindCoordinatorRequest) -> Steps[Answer]:
    """Name this broker; the first one to ask has the coordinator's topic made before it is answered."""
    broker = ctx.broker
    logs = {GROUPS: broker.groups.log, TRANSACTIONS: broker.transactions.log, SHARES: broker.shares.log}
    log = logs.get(request.key_type)
    keys = request.coordinator_keys if ctx.version >= KEYS_SINCE else [request.key]
    named = []
    for key in keys:
        named.append(_name_coordinator(ctx, request.key_type, key))
        yield
    response = FindCoordinatorResponse(coordinators=named)
    if ctx.version < KEYS_SINCE:
        (only,) = named
        response = FindCoordinatorResponse(
            error_code=only.error_code,
            error_message=only.error_message,
            node_id=only.node_id,
            host=only.host,
            port=only.port,
        )
    if log and not log.is_made and not all(each.error_code for each in named):
        return _make_and_answer(ctx, log, response)
    return response


async def _make_and_answer(ctx: Context, log: CoordinatorLog, response: FindCoordinatorResponse) -> Message:
    await ctx.broker.in_thread(log.make)
    return response


def _name_coordinator(ctx: Context, key_type: int, key: str) -> Coordinator:
    refused = Coordinator(key=key, node_id=-1, host="", port=-1)
    resource_type = _COORDINATED.get(key_type)
    if resource_type is None:
        refused.error_code = ErrorCode.INVALID_REQUEST
        refused.error_message = f"coordinator type {key_type} is unknown"
        return refused
    if key_type == SHARES and not _SHARE_KEY.fullmatch(key):
        refused.error_code = ErrorCode.INVALID_REQUEST
        refused.error_message = f"{key!r} is not the key of a share group's partition: give group:topicId:partition"
        return refused
    if not (ctx.allows(CLUSTER) if key_type == SHARES else ctx.allows(resource_type, key)):
        denied = denial(resource_type)
        refused.error_code = denied.code
        refused.error_message = str(denied) if ctx.version < KEYS_SINCE else ""
        return refused
    host, port = ctx.advertised
    return Coordinator(key=key, node_id=ctx.broker.node_id, host=host, port=port, error_message=None)
