"""FindCoordinator, OffsetCommit, OffsetFetch, and every other request that the group coordinator answers.

A request is handed over whole, or in pieces that each take some milliseconds. Offsets of topics or partitions that do
not exist are refused here; the coordinator sees the rest, by name.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from headrace.broker.coordinator_log import CoordinatorLog
from headrace.broker.handler import Answer, Context
from headrace.broker.turns import Deferred, Steps
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from headrace.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponseTopic,
)
from headrace.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchResponse
from headrace.protocol.messages.shared import PartitionOutcome
from headrace.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitRequestTopic
from headrace.protocol.schema import ZERO_UUID, Message, Uuid

_OFFSETS_A_STEP = 500  # the coordinator decides on so many at once, in some milliseconds
_GROUPS_A_STEP = 4


def ask_groups(ctx: Context, request: Message) -> Deferred[Message | None]:
    """Ask the group coordinator; its answer may wait for other members, for a time, or for the disk."""
    return ctx.broker.groups.ask(request, ctx.version, ctx.client_id, ctx.client_host)


def ask_group_by_group(asked: str, answered: str) -> Callable[[Context, Message], Steps[Deferred[Message | None]]]:
    """A handler for a request with groups in the field `asked`, whose answer has as many in the field `answered`.

    The coordinator is asked about some groups at a time, each of which may have thousands of members or offsets, and
    about each once: an answer is in proportion to what there is, not to how often it is asked for.
    """

    def handle(ctx: Context, request: Message) -> Steps[Deferred[Message | None]]:
        groups = list({_key_of(group): group for group in getattr(request, asked)}.values())
        starts = range(0, len(groups), _GROUPS_A_STEP)
        parts = [{asked: groups[start : start + _GROUPS_A_STEP]} for start in starts]
        pieces = [replace(request, **part) for part in parts]  # type: ignore[arg-type]  # of the field's own kind
        if len(pieces) <= 1:
            return ask_groups(ctx, pieces[0] if pieces else request)
        return (yield from _ask_in_pieces(ctx, pieces, answered))

    return handle


def _key_of(group: str | OffsetFetchRequestGroup) -> object:
    """What two of the same have in common; of some offsets of a group one may ask twice, and for others."""
    if isinstance(group, OffsetFetchRequestGroup):
        return group.group_id if group.topics is None else id(group)
    return group


def _ask_in_pieces(ctx: Context, pieces: Sequence[Message], answered: str) -> Steps[Deferred[Message | None]]:
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


def store_offsets(
    ctx: Context, request: OffsetCommitRequest | TxnOffsetCommitRequest
) -> Steps[Deferred[Message | None]]:
    """Ask the group coordinator to store offsets, many of them in several pieces; one answer for all."""
    if sum(len(topic.partitions) for topic in request.topics) <= _OFFSETS_A_STEP:
        return ask_groups(ctx, request)
    pieces = [replace(request, topics=piece) for piece in _pieces(request.topics)]  # type: ignore[arg-type]
    return (yield from _ask_in_pieces(ctx, pieces, "topics"))


def _pieces(topics: Sequence[OffsetCommitRequestTopic | TxnOffsetCommitRequestTopic]) -> Iterator[list[Any]]:
    piece: list[Any] = []
    room = _OFFSETS_A_STEP
    for topic in topics:
        for start in range(0, len(topic.partitions), _OFFSETS_A_STEP):
            partitions = topic.partitions[start : start + _OFFSETS_A_STEP]
            if len(partitions) > room:
                yield piece
                piece, room = [], _OFFSETS_A_STEP
            piece.append(replace(topic, partitions=partitions))  # type: ignore[arg-type]
            room -= len(partitions)
    if piece:
        yield piece


GROUP, TRANSACTION = 0, 1
KEYS_SINCE = 4


def find_coordinator(ctx: Context, request: FindCoordinatorRequest) -> Answer:
    """Name this broker; the first one to ask has the coordinator's topic made before it is answered."""
    log = {GROUP: ctx.broker.groups.log, TRANSACTION: ctx.broker.transactions.log}.get(request.key_type)
    return _make_and_name(ctx, request, log) if log and not log.is_made else _name_coordinator(ctx, request)


async def _make_and_name(ctx: Context, request: FindCoordinatorRequest, log: CoordinatorLog) -> FindCoordinatorResponse:
    await ctx.broker.in_thread(log.make)
    return _name_coordinator(ctx, request)


def _name_coordinator(ctx: Context, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    is_known = request.key_type in (GROUP, TRANSACTION)
    host, port = ctx.advertised if is_known else ("", -1)
    node_id = ctx.broker.node_id if is_known else -1
    error = ErrorCode.NONE if is_known else ErrorCode.INVALID_REQUEST
    message = None if is_known else f"coordinator type {request.key_type} is unknown"
    if ctx.version < KEYS_SINCE:
        return FindCoordinatorResponse(error_code=error, error_message=message, node_id=node_id, host=host, port=port)
    return FindCoordinatorResponse(
        coordinators=[
            Coordinator(key=key, node_id=node_id, host=host, port=port, error_code=error, error_message=message)
            for key in request.coordinator_keys
        ]
    )


BY_ID_SINCE = 10


def commit_offsets(ctx: Context, request: OffsetCommitRequest) -> Steps[Answer]:
    """Have the coordinator store what there is to store, and add what was refused to its answer."""
    refused: list[OffsetCommitResponseTopic] = []
    kept = []
    for topic in request.topics:
        known = _split_known(ctx, topic, refused)
        if known:
            kept.append(known)
        yield
    request.topics = kept
    if not kept and refused:
        return OffsetCommitResponse(topics=refused)
    answer = yield from store_offsets(ctx, request)

    def add_refused(response: Message | None) -> None:
        if isinstance(response, OffsetCommitResponse):
            response.topics += refused

    return answer.after(add_refused) if refused else answer


def _split_known(
    ctx: Context, topic: OffsetCommitRequestTopic, refused: list[OffsetCommitResponseTopic]
) -> OffsetCommitRequestTopic | None:
    """What of this topic can be stored; what cannot is added to `refused`."""
    by_id = ctx.version >= BY_ID_SINCE
    topics = ctx.broker.topics
    found = topics.by_id.get(topic.topic_id) if by_id else topics.by_name.get(topic.name)
    count = len(found.partitions) if found else 0
    known = [partition for partition in topic.partitions if 0 <= partition.partition_index < count]
    unknown = [partition for partition in topic.partitions if not 0 <= partition.partition_index < count]
    if unknown:
        code = ErrorCode.UNKNOWN_TOPIC_ID if by_id and not found else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        refused.append(
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    PartitionOutcome(partition_index=partition.partition_index, error_code=code)
                    for partition in unknown
                ],
            )
        )
    topic.partitions = known
    if found:
        topic.name = found.name
    return topic if topic.partitions else None


_ask_for_offsets = ask_group_by_group("groups", "groups")


def fetch_offsets(ctx: Context, request: OffsetFetchRequest) -> Steps[Answer]:
    """Give topics that came by id their names, ask the coordinator, and give what it found its ids."""
    if ctx.version < BY_ID_SINCE:
        return (yield from _ask_for_offsets(ctx, request))
    topics = ctx.broker.topics
    for group in request.groups:
        yield
        for topic in group.topics or ():
            known = topics.by_id.get(topic.topic_id)
            topic.name = known.name if known else ""

    def fill_in_ids(response: Message | None) -> None:
        if isinstance(response, OffsetFetchResponse):
            for group in response.groups:
                for topic in group.topics:
                    known = topics.by_name.get(topic.name)
                    if topic.topic_id == ZERO_UUID and known:
                        topic.topic_id = Uuid(known.id)

    answer = yield from _ask_for_offsets(ctx, request)
    return answer.after(fill_in_ids)
