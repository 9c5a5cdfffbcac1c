"""Requests for the group coordinator: what their handlers have in common."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from headrace.broker.context import Context
from headrace.broker.deferred import Deferred
from headrace.broker.turns import Steps
from headrace.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestTopic, OffsetCommitResponse
from headrace.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from headrace.protocol.schema import Message

_OFFSETS_A_STEP = 500  # the coordinator decides on so many at once, in some milliseconds


def ask_groups(ctx: Context, request: Message) -> Deferred[Message | None]:
    """Ask the group coordinator; its answer may wait for other members, for a time, or for the disk."""
    return ctx.broker.groups.ask(request, ctx.version, ctx.client_id, ctx.client_host)


def commit_offsets(
    ctx: Context, request: OffsetCommitRequest | TxnOffsetCommitRequest
) -> Steps[Deferred[Message | None]]:
    """Ask the group coordinator to store offsets, many of them in several pieces; one answer for all."""
    if sum(len(topic.partitions) for topic in request.topics) <= _OFFSETS_A_STEP:
        return ask_groups(ctx, request)
    pieces = list(_pieces(request.topics))
    whole: Deferred[Message | None] = Deferred()
    answers: dict[int, OffsetCommitResponse | TxnOffsetCommitResponse] = {}

    def gather(number: int, answer: Message | None) -> None:
        if not isinstance(answer, OffsetCommitResponse | TxnOffsetCommitResponse):
            whole.set(None)
            return
        answers[number] = answer
        if len(answers) == len(pieces):
            for further in range(1, len(pieces)):
                answers[0].topics += answers[further].topics  # type: ignore[operator]
            whole.set(answers[0])

    for number, piece in enumerate(pieces):
        asked = ask_groups(ctx, replace(request, topics=piece))  # type: ignore[arg-type]  # of its own kind
        asked.then(lambda answer, number=number: gather(number, answer), whole.fail)  # type: ignore[misc]
        yield
    return whole


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
