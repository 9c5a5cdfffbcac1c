"""Requests that a coordinator answers: handed over whole, or in pieces that each take some milliseconds."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from headrace.broker.context import Context
from headrace.broker.deferred import Deferred
from headrace.broker.handler import Answer
from headrace.broker.turns import Steps
from headrace.coordinator.transaction.events import TransactionRequest
from headrace.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestTopic
from headrace.protocol.messages.offset_fetch import OffsetFetchRequestGroup
from headrace.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitRequestTopic
from headrace.protocol.schema import Message

_OFFSETS_A_STEP = 500  # the coordinator decides on so many at once, in some milliseconds
_GROUPS_A_STEP = 4


def ask_groups(ctx: Context, request: Message) -> Deferred[Message | None]:
    """Ask the group coordinator; its answer may wait for other members, for a time, or for the disk."""
    return ctx.broker.groups.ask(request, ctx.version, ctx.client_id, ctx.client_host)


def ask_transactions(ctx: Context, request: TransactionRequest) -> Answer:
    """Ask the transaction coordinator; its answer waits for the disk."""
    return ctx.broker.transactions.ask(request, ctx.version)


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


def commit_offsets(
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
