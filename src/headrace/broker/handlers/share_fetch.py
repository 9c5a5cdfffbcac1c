"""ShareFetch: members of share groups acquire records, and say what became of those before (KIP-932).

A request's acknowledgements come first, and are answered when they are durable; then what is available is acquired, or
waited for.
"""

import asyncio
from collections.abc import Callable
from functools import partial

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
    """One request: its acknowledgements, then reading once or, if it waits, again whenever there may be something."""

    def __init__(self, ctx: Context, request: ShareFetchRequest, session: ShareSession) -> None:
        self._ctx = ctx
        self._request = request
        self._session = session
        self._outcomes: Outcomes = {}
        self._errors: dict[ShareKey, HeadraceError] = {}
        self._found: dict[ShareKey, Acquired] = {}
        self._paused: set[ShareKey] = set()  # partitions of which there may be more than was looked at
        self._timer: asyncio.TimerHandle | None = None
        self._wakes: list[tuple[ShareKey, Log, Callable[[], None]]] = []
        settings = ctx.broker.groups.settings_of(session.member.group_id)
        is_committed = settings.share_isolation_level == "read_committed"
        self._acquirer = Acquirer(ctx.broker, request, session.holder, committed=is_committed)
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
            self._ctx.broker.turns.run(self._begin_in_steps())

    def _begin_in_steps(self) -> Steps[None]:
        try:
            if self._has_enough():
                yield from self._acquire_in_steps()
            waiting = self._ctx.broker.waiting
            may_wait = not waiting.is_over and waiting.has_room(2 * len(self._session.partitions))
            if self._errors or self._found or self._request.max_wait_ms <= 0 or not may_wait:
                self._respond()
            else:
                self._wait()
        except Exception as error:  # noqa: BLE001 - whoever waits for the answer is hung up on
            self._stop_waiting()
            self.answer.fail(error)

    # --- acquiring

    def _acquire_in_steps(self) -> Steps[None]:
        """Acquire what is available of every partition, as much as is wanted."""
        for number, key in enumerate(self._ctx.broker.shares.by_level(self._session.partitions), start=1):
            if not number % _PARTITIONS_A_STEP:
                yield
            if self._acquirer.is_full:
                break
            self._try(key)

    def _try(self, key: ShareKey) -> None:
        """Acquire what is available of a partition, and keep it for the answer, or the error."""
        self._errors.pop(key, None)
        try:
            if not self._ctx.broker.shares.sessions.holds(self._session):  # its connection is closed, or it began anew
                raise BrokerError(ErrorCode.SHARE_SESSION_NOT_FOUND, "the session ended while the fetch waited")
            found = self._acquirer.acquire(key, self._log(key))
            if self._acquirer.is_paused:
                self._paused.add(key)
        except HeadraceError as error:
            self._errors[key] = error
            return
        if found is not None:
            self._found[key] = found
            self._session.had.add(key)
            if key in self._session.partitions:  # others are served first next time
                self._session.partitions[key] = self._session.partitions.pop(key)

    def _log(self, key: ShareKey) -> Log:
        return self._ctx.broker.log(self._ctx.topic("", key.topic_id, by_id=True), key.partition)

    def _has_enough(self) -> bool:
        """Whether there is as much as the client wants to wait for; nothing is acquired before."""
        least = self._request.min_bytes
        if least <= 1 or self._request.max_wait_ms <= 0:
            return True
        shares, size = self._ctx.broker.shares, 0
        for key in self._session.partitions:
            try:
                log = self._log(key)
                partition = shares.partition(key, log)
                if partition is not None and shares.can_acquire(key, partition, self._session.holder):
                    found, _ = log.read(
                        partition.next_offset(), least, before=self._ctx.broker.queues.end_for_groups(log)
                    )
                    size += found.size if found else 0
            except HeadraceError:  # which is an answer, too
                return True
            if size >= least:
                return True
        return False

    # --- waiting

    def _wait(self) -> None:
        """Be woken by what is appended, and by what is released, one partition at a time."""
        broker = self._ctx.broker
        self.answer.on_abandon(self._stop_waiting)
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._request.max_wait_ms / 1000, self._time_is_up)
        is_large = len(self._session.partitions) >= _PARTITIONS_A_STEP
        for key in self._session.partitions:
            wake = partial(self._woken, key)
            try:
                log = self._log(key)
            except HeadraceError:  # deleted since it was read
                loop.call_soon(wake)
                continue
            self._wakes.append((key, log, wake))
            broker.waiting.add(log, wake)
            broker.shares.waiting.add(key, wake)
            if is_large:  # between two steps there may have been news of what was read before
                loop.call_soon(wake)
        self._go_on()

    def _go_on(self) -> None:
        """Look at more of where there may be more, when others had their turn."""
        for key in self._paused:
            self._ctx.broker.turns.later(partial(self._woken, key))
        self._paused.clear()

    def _time_is_up(self) -> None:
        if self._request.min_bytes > 1:  # then what there is has to do
            self._try_all()
        self._stop_waiting()
        self._respond()

    def _try_all(self) -> None:
        for key in self._ctx.broker.shares.by_level(key for key, _, _ in self._wakes):
            if self._acquirer.is_full:
                break
            self._try(key)

    def _woken(self, key: ShareKey) -> None:
        """Acquire what there is now; called by whoever appended or acknowledged, so nothing is raised."""
        if self._timer is None or self.answer.is_set:
            return
        try:
            if self._has_enough():
                self._try_all() if self._request.min_bytes > 1 else self._try(key)
            if self._errors or self._found or self._ctx.broker.waiting.is_over:
                self._stop_waiting()
                self._respond()
            else:
                self._go_on()
        except Exception as error:  # noqa: BLE001 - the client that waits is hung up on; the one that appended is not
            self._stop_waiting()
            self.answer.fail(error)

    def _stop_waiting(self) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None
        wakes, self._wakes = self._wakes, []
        for key, log, wake in wakes:
            self._ctx.broker.waiting.remove(log, wake)
            self._ctx.broker.shares.waiting.remove(key, wake)

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
