"""ShareFetch: members of share groups acquire records, and say what became of those before (KIP-932).

A request's acknowledgements come first, and are answered when they are durable; then what is available is acquired, or
waited for.
"""

import asyncio
from collections.abc import Iterable

from headrace.broker.errors import BrokerError, code_of
from headrace.broker.handler import Answer, Context
from headrace.broker.handlers.share_acknowledge import Outcomes, acknowledgements_in, carry_out, member_of
from headrace.broker.share_acquisition import Acquired, Acquirer
from headrace.broker.share_sessions import FINAL_EPOCH, INITIAL_EPOCH, Member, ShareSession
from headrace.broker.turns import Deferred, Steps
from headrace.coordinator.share.records import ShareKey
from headrace.errors import HeadraceError
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.share_fetch import (
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)
from headrace.protocol.schema import Message
from headrace.storage.log import Log

_PARTITIONS_A_STEP = 16


def fetch(ctx: Context, request: ShareFetchRequest) -> Answer:
    try:
        member = member_of(request)
        if request.is_renew_ack and (
            request.max_records or request.max_bytes or request.min_bytes or request.max_wait_ms
        ):
            raise BrokerError(ErrorCode.INVALID_REQUEST, "a request that renews locks must fetch nothing")
        session = _session_of(ctx, member, request)
    except BrokerError as error:
        return ShareFetchResponse(error_code=error.code, error_message=str(error))
    return _ShareFetch(ctx, request, session).answer


def _session_of(ctx: Context, member: Member, request: ShareFetchRequest) -> ShareSession:
    """The session of a fetch, begun or with the partitions that are new, and without those to be forgotten."""
    shares = ctx.broker.shares
    named = [
        ShareKey(member.group_id, topic.topic_id, partition.partition_index)
        for topic in request.topics
        for partition in topic.partitions
    ]
    if request.share_session_epoch == INITIAL_EPOCH:
        if any(acknowledgements_in(member.group_id, request.topics)):
            raise BrokerError(ErrorCode.INVALID_REQUEST, "a session begins with nothing that could be acknowledged")
        if ctx.broker.groups.share_group(member.group_id) is None:  # and nothing would be left of what was accepted
            raise BrokerError(
                ErrorCode.GROUP_ID_NOT_FOUND, f"there is no share group {member.group_id!r}: join it first"
            )
        session = shares.sessions.open(member, ctx.principal, named, ctx.peer.when_closed)
        ctx.peer.when_closed[session] = lambda: shares.end_session(session)
        return session
    session = shares.sessions.go_on(member, ctx.principal, request.share_session_epoch)
    if request.share_session_epoch != FINAL_EPOCH:
        forgotten = [
            ShareKey(member.group_id, topic.topic_id, partition)
            for topic in request.forgotten_topics_data
            for partition in topic.partitions
        ]
        shares.sessions.change(session, named, forgotten)
        shares.forget(session, forgotten)
    return session


class _ShareFetch:
    """One request: its acknowledgements, then what is available, at once or, if it waits, when there is news of it."""

    def __init__(self, ctx: Context, request: ShareFetchRequest, session: ShareSession) -> None:
        self._ctx = ctx
        self._request = request
        self._session = session
        self._outcomes: Outcomes = {}
        self._errors: dict[ShareKey, HeadraceError] = {}
        self._found: dict[ShareKey, Acquired] = {}
        self._news: dict[ShareKey, None] = {}  # what is to be looked at
        self._least_bytes = request.min_bytes if request.max_wait_ms > 0 else 0  # before that nothing is acquired
        self._sizes: dict[ShareKey, int] = {}  # how much there is, as long as that is not enough
        self._size = 0  # all of them together
        self._may_wait = request.max_wait_ms > 0
        self._is_looking = False
        self._timer: asyncio.TimerHandle | None = None
        self._acquirer = Acquirer(ctx.broker, request, session.holder)
        self.answer: Deferred[Message] = Deferred()
        carry_out(ctx, session, request, self._acknowledged)

    def _acknowledged(self, outcomes: Outcomes) -> None:
        self._outcomes = outcomes
        meter = self._ctx.meter
        if meter is not None:  # what is acquired has to be sent, so a quota that is used up is noticed before
            limit = meter.fetch_limit if meter.charge_fetch(1) else 0
            self._acquirer.left_bytes = int(min(self._acquirer.left_bytes, limit))
        if self._request.share_session_epoch == FINAL_EPOCH or self._acquirer.is_full:
            self._respond()
        else:
            self._look_at(self._session.ready)

    # --- looking

    def _look_at(self, keys: Iterable[ShareKey]) -> None:
        self._news.update(dict.fromkeys(self._ctx.broker.shares.by_level(keys)))
        if not self._is_looking:
            self._ctx.broker.turns.run(self._look_in_steps())

    def _look_in_steps(self) -> Steps[None]:
        """Acquire what there is, if that is enough, and answer; or wait for more."""
        self._is_looking = True
        number = 0
        try:
            while self._news and not self._acquirer.is_full:  # between two steps there may be more of it
                number += 1
                if not number % _PARTITIONS_A_STEP:
                    yield
                key = next(iter(self._news))
                del self._news[key]
                if self._least_bytes > 1:
                    self._measure(key)
                elif self._try(key):
                    yield
            if self._errors or self._found or not self._may_wait or self._ctx.broker.waiting.is_over:
                self._stop_waiting()
                self._respond()
            else:
                self._wait()
        except Exception as error:  # noqa: BLE001 - whoever waits for the answer is hung up on, whoever appended is not
            self._stop_waiting()
            self.answer.fail(error)
        self._is_looking = False

    def _measure(self, key: ShareKey) -> None:
        """See how much there is of a partition; if that makes enough, all that is ready is acquired."""
        try:
            size = self._size_of(key)
        except HeadraceError:  # which is an answer, too
            size = self._least_bytes
        self._size += size - self._sizes.get(key, 0)
        self._sizes[key] = size
        if self._size >= self._least_bytes:
            self._least_bytes = 0
            self._news = dict.fromkeys(self._ctx.broker.shares.by_level(self._session.ready))

    def _size_of(self, key: ShareKey) -> int:
        """How many bytes there are, up to as many as the client wants to wait for."""
        shares, log = self._ctx.broker.shares, self._log(key)
        partition = shares.partition(key, log)
        if partition is not None and shares.can_acquire(key, partition, self._session.holder):
            before = self._ctx.broker.queues.end_for_groups(log)
            found, _ = log.read(partition.next_offset(), self._least_bytes, before=before)
            if found is not None and found.size:
                self._watch(key, log)  # there may be more
                return found.size
        self._set_aside(key, log)
        return 0

    def _try(self, key: ShareKey) -> bool:
        """Acquire what is available of a partition, and keep it for the answer, or the error.

        True if others are to have their turn before it is looked at again: there may be more than was looked at.
        """
        session = self._session
        self._errors.pop(key, None)
        try:
            log = self._log(key)
            found = self._acquirer.acquire(key, log)
        except HeadraceError as error:
            self._errors[key] = error
            return False
        if found is not None:
            self._found[key] = found
            session.had.add(key)
            if key in session.ready:  # others are served first next time
                session.ready[key] = session.ready.pop(key)
        elif not self._acquirer.is_paused:
            self._set_aside(key, log)
        elif self._may_wait:
            self._wait()
            self._news[key] = None
        return self._acquirer.is_paused

    def _set_aside(self, key: ShareKey, log: Log) -> None:
        """Look at a partition again only when there is news of it."""
        if self._watch(key, log) and self._ctx.broker.shares.is_watched_whole(key, log):
            self._session.ready.pop(key, None)

    def _log(self, key: ShareKey) -> Log:
        if not self._ctx.broker.shares.sessions.holds(self._session):  # its connection is closed, or it began anew
            raise BrokerError(ErrorCode.SHARE_SESSION_NOT_FOUND, "the session ended while the fetch waited")
        return self._ctx.broker.log(self._ctx.topic("", key.topic_id, by_id=True), key.partition)

    def _watch(self, key: ShareKey, log: Log) -> bool:
        broker = self._ctx.broker
        is_watched = self._session.watch(key, log, broker.waiting, broker.shares.waiting)
        self._may_wait = self._may_wait and is_watched
        return is_watched

    # --- waiting

    def _wait(self) -> None:
        """Be told of what is appended, and of what is released."""
        if self._timer is None:
            self.answer.on_abandon(self._stop_waiting)
            wait_s = self._request.max_wait_ms / 1000
            self._timer = asyncio.get_running_loop().call_later(wait_s, self._time_is_up)
            self._session.waiting[self._woken] = None

    def _woken(self, key: ShareKey) -> None:
        if not self.answer.is_set:
            self._look_at((key,))

    def _time_is_up(self) -> None:
        self._may_wait = False
        has_enough, self._least_bytes = self._least_bytes <= 1, 0
        self._look_at(() if has_enough else self._session.ready)  # then what there is has to do

    def _stop_waiting(self) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None
        self._session.waiting.pop(self._woken, None)

    # --- answering

    def _respond(self) -> None:
        response = ShareFetchResponse(
            acquisition_lock_timeout_ms=self._ctx.broker.shares.limits(self._session.member.group_id).lock_ms
        )
        topics: dict[bytes, ShareFetchableTopicResponse] = {}
        for key in dict.fromkeys((*self._outcomes, *self._errors, *self._found)):
            data = PartitionData(partition_index=key.partition, records=b"")
            if refusal := self._outcomes.get(key):
                data.acknowledge_error_code, data.acknowledge_error_message = refusal.code, str(refusal)
            if error := self._errors.get(key):
                data.error_code, data.error_message = code_of(error), str(error)
            if found := self._found.get(key):
                data.records, data.acquired_records = found.data, found.runs
            topic = topics.get(key.topic_id)
            if topic is None:
                topic = topics[key.topic_id] = ShareFetchableTopicResponse(topic_id=key.topic_id)
            topic.partitions.append(data)
        response.responses = list(topics.values())
        if self._ctx.meter is not None and self._found:
            size = sum(len(found.data) for found in self._found.values())
            self._ctx.meter.charge_fetch(size, must_send=True)  # it is acquired
        self.answer.set(response)
