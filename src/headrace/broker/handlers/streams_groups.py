"""StreamsGroupHeartbeat and StreamsGroupDescribe: applications of Kafka Streams whose tasks the broker assigns.

The topics that an application needs for itself, to repartition records and to keep its state, are made before its
heartbeat is answered; the next one then brings the tasks. Why a topic could not be made is told in the answer's status,
and it is tried again with every heartbeat.
"""

from collections.abc import Iterator

from headrace.broker.changes import Change
from headrace.broker.errors import BrokerError, code_of
from headrace.broker.handler import CLUSTER, TOPIC, Answer, Context
from headrace.broker.handlers.groups import ask_group_by_group
from headrace.broker.handlers.topics import make_topic
from headrace.broker.topics import HIDDEN_TOPICS, INTERNAL_TOPICS
from headrace.broker.turns import Steps
from headrace.coordinator.group.streams.topology import StatusCode, all_topics
from headrace.errors import HeadraceError
from headrace.model import check_topic_name
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig
from headrace.protocol.messages.shared import TopicInfo
from headrace.protocol.messages.streams_group_describe import DescribedGroup, StreamsGroupDescribeResponse
from headrace.protocol.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
)
from headrace.protocol.schema import Message
from headrace.security.acl import Operation


def heartbeat(ctx: Context, request: StreamsGroupHeartbeatRequest) -> Steps[Answer]:
    """Ask the coordinator, unless the topology has topics that it cannot have, or that the client may not know of."""
    names = dict.fromkeys(all_topics(request.topology)) if request.topology is not None else {}
    for name in names:
        try:
            _check_name(name)
            ctx.require(TOPIC, name)
        except HeadraceError as error:
            code = error.code if isinstance(error, BrokerError) else ErrorCode.STREAMS_INVALID_TOPOLOGY
            return StreamsGroupHeartbeatResponse(error_code=code, error_message=str(error))
        yield
    return _ask_and_make_topics(ctx, request)


def _check_name(name: str) -> None:
    check_topic_name(name)
    if name in INTERNAL_TOPICS or name in HIDDEN_TOPICS:
        raise BrokerError(
            ErrorCode.STREAMS_INVALID_TOPOLOGY, f"a topology cannot have {name}, in which the broker keeps its books"
        )


async def _ask_and_make_topics(ctx: Context, request: StreamsGroupHeartbeatRequest) -> Message | None:
    groups = ctx.broker.groups
    response = await groups.ask(request, ctx.version, ctx.client_id, ctx.client_host)
    if not isinstance(response, StreamsGroupHeartbeatResponse):
        return response
    for status in response.status or ():
        if status.status_code == StatusCode.MISSING_INTERNAL_TOPICS:
            status.status_detail += await _make_topics(ctx, groups.missing_topics(request.group_id))
    return response


async def _make_topics(ctx: Context, topics: tuple[TopicInfo, ...]) -> str:
    """Make them all; what went wrong, to be told after what is missing."""
    may_all = ctx.may(Operation.CREATE, CLUSTER)
    denied = [topic.name for topic in topics if not (may_all or ctx.may(Operation.CREATE, TOPIC, topic.name))]
    if denied:
        for name in denied:
            ctx.deny(Operation.CREATE, TOPIC, name)
        return f"; Unauthorized to CREATE on topics {', '.join(denied)}."
    failed = []
    for topic in topics:
        wanted = CreatableTopic(
            name=topic.name,
            num_partitions=topic.partitions,
            replication_factor=topic.replication_factor or -1,
            configs=[CreatableTopicConfig(name=each.key, value=each.value) for each in topic.topic_configs],
        )
        try:
            change = Change("topic", topic.name, 0, {"partitions": topic.partitions})
            await ctx.record_made(make_topic(ctx, wanted, strict=True), "STREAMS_GROUP_HEARTBEAT", change)
        except HeadraceError as error:
            if code_of(error) != ErrorCode.TOPIC_ALREADY_EXISTS:  # another member was first
                failed.append(f"{topic.name} ({error})")
    return f"; Creation failed: {', '.join(failed)}." if failed else ""


_describe_groups = ask_group_by_group("group_ids", "groups", DescribedGroup)


def describe(ctx: Context, request: Message) -> Steps[Answer]:
    """Describe the groups, but none whose topology has topics that the client may know nothing of."""
    answer = yield from _describe_groups(ctx, request)

    def restrict(response: Message | None) -> None:
        if isinstance(response, StreamsGroupDescribeResponse):
            response.groups = [
                group if all(ctx.allows(TOPIC, name) for name in _topics_of(group)) else _hide(group)
                for group in response.groups
            ]

    return answer.after(restrict) if ctx.broker.authorizer else answer


def _topics_of(group: DescribedGroup) -> Iterator[str]:
    for each in (group.topology.subtopologies if group.topology else None) or ():
        yield from (*each.source_topics, *each.repartition_sink_topics)
        yield from (topic.name for topic in (*each.state_changelog_topics, *each.repartition_source_topics))


def _hide(group: DescribedGroup) -> DescribedGroup:
    return DescribedGroup(
        group_id=group.group_id,
        error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        error_message="The group has topics that the client is not authorized to describe.",
    )
