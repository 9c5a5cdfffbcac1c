"""ShareAcknowledge: members of share groups say what became of the records that they have (KIP-932).

ShareFetch carries acknowledgements too; they are read, checked and carried out here for both. What always holds: an
acknowledgement is answered when it is durable; one that is refused changes nothing of its partition. One that is part
of a transaction (an extension of ours) is answered when both the group's state and the transaction know of it.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

from headrace.broker.errors import BrokerError
from headrace.broker.handler import Answer, Context
from headrace.broker.share_sessions import FINAL_EPOCH, INITIAL_EPOCH, Member, ShareSession
from headrace.broker.shares import Refusals
from headrace.broker.turns import Deferred
from headrace.coordinator.share.acknowledgement import Acknowledgement, AckType, InvalidAcknowledgement, check_form
from headrace.coordinator.share.coordinator import Acknowledged, ShareEvent
from headrace.coordinator.share.partition import Producer
from headrace.coordinator.share.records import STATE_TOPIC, ShareKey
from headrace.coordinator.transaction.events import WriterSupport
from headrace.model import TopicPartition
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.share_acknowledge import (
    PartitionData,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)
from headrace.protocol.messages.share_fetch import FetchTopic, ShareFetchRequest
from headrace.protocol.schema import Message

Outcomes = dict[ShareKey, InvalidAcknowledgement | BrokerError | None]
Respond = Callable[[Outcomes], None]
Submit = Callable[[Sequence[ShareEvent]], Deferred[Refusals | None]]


def acknowledge(ctx: Context, request: ShareAcknowledgeRequest) -> Answer:
    """Carry out what a member says of records that it has; the last request of a session ends it."""
    try:
        member = member_of(request)
        if request.share_session_epoch == INITIAL_EPOCH:
            raise BrokerError(ErrorCode.INVALID_SHARE_SESSION_EPOCH, "a session begins with a fetch")
        session = ctx.broker.shares.sessions.go_on(member, ctx.principal, request.share_session_epoch)
    except BrokerError as error:
        return ShareAcknowledgeResponse(error_code=error.code, error_message=str(error))
    answer: Deferred[Message] = Deferred()

    def respond(outcomes: Outcomes) -> None:
        response = ShareAcknowledgeResponse(
            acquisition_lock_timeout_ms=ctx.broker.shares.limits(member.group_id).lock_ms
        )
        topics: dict[bytes, ShareAcknowledgeTopicResponse] = {}
        for key, refusal in outcomes.items():
            topic = topics.get(key.topic_id)
            if topic is None:
                topic = topics[key.topic_id] = ShareAcknowledgeTopicResponse(topic_id=key.topic_id)
            topic.partitions.append(
                PartitionData(
                    partition_index=key.partition,
                    error_code=refusal.code if refusal else ErrorCode.NONE,
                    error_message=str(refusal) if refusal else None,
                )
            )
        response.responses = list(topics.values())
        answer.set(response)

    if request.transactional_id is None:
        carry_out(ctx, session, request, respond)
    else:  # the request keeps its place in the session, whose epoch has gone on, however long the last one takes to end
        asked = ctx.broker.transactions.after_end(
            [request.transactional_id],
            lambda: carry_out(ctx, session, request, respond),
        )
        if isinstance(asked, Deferred):
            asked.then(lambda _: None, answer.fail)
    return answer


def member_of(request: ShareFetchRequest | ShareAcknowledgeRequest) -> Member:
    if not request.group_id or not request.member_id:
        raise BrokerError(ErrorCode.INVALID_REQUEST, "GroupId and MemberId must be given")
    return Member(request.group_id, request.member_id)


def carry_out(
    ctx: Context,
    session: ShareSession,
    request: ShareFetchRequest | ShareAcknowledgeRequest,
    respond: Respond,
) -> None:
    """Have a request's acknowledgements carried out; `respond` is called with what came of each, once it is durable.

    If they cannot be written, each is refused with the disk's error: the client still has its records, and tells again.
    """
    shares = ctx.broker.shares
    outcomes: Outcomes = {}
    events: list[Acknowledged] = []
    limits = shares.limits(session.member.group_id)
    submit: Submit = shares.submit
    producer: Producer | None = None
    if isinstance(request, ShareAcknowledgeRequest) and request.transactional_id is not None:
        submit, producer = _submit_in(ctx, request), Producer(request.producer_id, request.producer_epoch)
    for key, batches in acknowledgements_in(session.member.group_id, request.topics):
        try:
            _check(ctx, key, batches, may_renew=request.is_renew_ack)
            if producer is not None:
                _check_undecided(batches)
        except (BrokerError, InvalidAcknowledgement) as error:
            outcomes[key] = error
            continue
        outcomes.setdefault(key)
        events.append(Acknowledged(key, session.holder, batches, limits, producer))

    def note(refusals: Refusals | None) -> None:
        for number, event in enumerate(events):
            refusal = _not_written() if refusals is None else refusals[number]
            outcomes[event.key] = outcomes[event.key] or refusal  # a partition may be named twice
        if request.share_session_epoch != FINAL_EPOCH:
            respond(outcomes)
            return
        shares.end_session(session).then(lambda _: respond(outcomes))

    if events:
        submit(events).then(note)
    else:
        note(())


def _submit_in(ctx: Context, request: ShareAcknowledgeRequest) -> Submit:
    """Make the group's state part of a transaction, and have it say what is acknowledged, in one moment."""
    shares = ctx.broker.shares

    def submit(events: Sequence[ShareEvent]) -> Deferred[Refusals | None]:
        error, owing = ctx.broker.transactions.check_writes(
            request.transactional_id or "",
            request.producer_id,
            request.producer_epoch,
            frozenset(TopicPartition(STATE_TOPIC, shares.log.partition_of(event.key.text)) for event in events),
            WriterSupport.ADDS_PARTITIONS,
        )
        done: Deferred[Refusals | None] = Deferred()
        if error is not ErrorCode.NONE:
            refusal = InvalidAcknowledgement(error, f"its transaction cannot take the acknowledgement: {error.meaning}")
            done.set([refusal] * len(events))
            return done
        left = len(owing) + 1
        outcomes: list[Refusals | None] = []

        def settle(outcome: Refusals | None) -> None:
            outcomes.append(outcome)
            if len(outcomes) == left:
                done.set(None if None in outcomes else next(filter(None, outcomes)))

        for log in owing:
            ctx.broker.appended(log, log.end_offset, lambda failure: settle(None if failure else ()))
        shares.submit_now(events).then(settle)
        return done

    return submit


def _check_undecided(batches: Iterable[Acknowledgement]) -> None:
    if any(ack in (AckType.RELEASE, AckType.RENEW) for batch in batches for ack in batch.types):
        raise BrokerError(
            ErrorCode.INVALID_REQUEST, "a transaction accepts or rejects records: release and renew them without one"
        )


def acknowledgements_in(
    group_id: str, topics: Iterable[FetchTopic]
) -> Iterator[tuple[ShareKey, list[Acknowledgement]]]:
    for topic in topics:
        for partition in topic.partitions:
            if partition.acknowledgement_batches:
                yield (
                    ShareKey(group_id, topic.topic_id, partition.partition_index),
                    [
                        Acknowledgement(
                            batch.first_offset,
                            batch.last_offset,
                            batch.acknowledge_types,
                            batch.retry_after_ms,
                            batch.reason,
                            batch.is_unseen,
                        )
                        for batch in partition.acknowledgement_batches
                    ],
                )


def _check(ctx: Context, key: ShareKey, batches: list[Acknowledgement], *, may_renew: bool) -> None:
    """Refuse what makes no sense, and what is about a partition that the client may not read."""
    topic = ctx.topic("", key.topic_id, by_id=True)
    ctx.broker.log(topic, key.partition)
    for batch in batches:
        check_form(batch)
        if AckType.RENEW in batch.types and not may_renew:
            raise BrokerError(ErrorCode.INVALID_REQUEST, "locks are renewed by requests that say so (IsRenewAck)")


def _not_written() -> BrokerError:
    return BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, "the acknowledgement could not be written: check the disk")
