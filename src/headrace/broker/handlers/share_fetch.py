"""ShareFetch and ShareAcknowledge: members of share groups acquire records, and say what became of them (KIP-932).

A request's acknowledgements come first, and are answered when they are durable; then what is available is acquired, or
waited for. Unlike a fetch this looks at the headers of batches: what is acquired goes by offsets, a batch that begins
is taken whole unless the client wants exactly so many records (KIP-1206), and markers and aborted transactions are
passed over. Only batches with something acquired are answered.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import NamedTuple

from headrace.broker.errors import BrokerError, code_of
from headrace.broker.handler import Answer, Context
from headrace.broker.share_sessions import FINAL_EPOCH, INITIAL_EPOCH, Member, ShareSession
from headrace.broker.shares import Refusals
from headrace.broker.turns import Deferred, Steps
from headrace.coordinator.share.coordinator import Acknowledged
from headrace.coordinator.share.partition import (
    Acknowledgement,
    AckType,
    Acquisition,
    InvalidAcknowledgement,
    Run,
    Span,
    check_form,
)
from headrace.coordinator.share.records import ShareKey
from headrace.errors import HeadraceError
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages import share_acknowledge as acknowledging
from headrace.protocol.messages.share_acknowledge import ShareAcknowledgeRequest, ShareAcknowledgeResponse
from headrace.protocol.messages.share_fetch import (
    AcquiredRecords,
    FetchTopic,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)
from headrace.protocol.schema import Message
from headrace.records import headers_in
from headrace.storage.log import Log

RECORD_LIMIT = 1  # the acquire mode in which there are exactly so many records
_CHUNK_BYTES = 64 * 1024
_LEAST_READ_BYTES = 4 * 1024
_RECORD_BYTES = 1024  # what a record takes, at a guess: what is read is about as much as is wanted
_PARTITIONS_A_STEP = 16
_CHUNKS_A_FETCH = 16  # of one partition: what is scattered over more is left for the next fetch

Outcomes = dict[ShareKey, InvalidAcknowledgement | BrokerError | None]
Respond = Callable[[Outcomes], None]


# --- acknowledging


def acknowledge(ctx: Context, request: ShareAcknowledgeRequest) -> Answer:
    """Carry out what a member says of records that it has; the last request of a session ends it."""
    try:
        member = _member_of(request)
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
        topics: dict[bytes, acknowledging.ShareAcknowledgeTopicResponse] = {}
        for key, refusal in outcomes.items():
            topic = topics.get(key.topic_id)
            if topic is None:
                topic = topics[key.topic_id] = acknowledging.ShareAcknowledgeTopicResponse(topic_id=key.topic_id)
            topic.partitions.append(
                acknowledging.PartitionData(
                    partition_index=key.partition,
                    error_code=refusal.code if refusal else ErrorCode.NONE,
                    error_message=str(refusal) if refusal else None,
                )
            )
        response.responses = list(topics.values())
        answer.set(response)

    _carry_out(ctx, session, request, respond)
    return answer


def _member_of(request: ShareFetchRequest | ShareAcknowledgeRequest) -> Member:
    if not request.group_id or not request.member_id:
        raise BrokerError(ErrorCode.INVALID_REQUEST, "GroupId and MemberId must be given")
    return Member(request.group_id, request.member_id)


def _carry_out(
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
    for key, batches in _acknowledgements(session.member.group_id, request.topics):
        try:
            _check(ctx, key, batches, may_renew=request.is_renew_ack)
        except (BrokerError, InvalidAcknowledgement) as error:
            outcomes[key] = error
            continue
        outcomes[key] = None
        events.append(Acknowledged(key, session.holder, batches, limits))

    def note(refusals: Refusals | None) -> None:
        for number, event in enumerate(events):
            outcomes[event.key] = _not_written() if refusals is None else refusals[number]
        if request.share_session_epoch != FINAL_EPOCH:
            respond(outcomes)
            return
        shares.end_session(session).then(lambda _: respond(outcomes))

    if events:
        shares.submit(events).then(note)
    else:
        note(())


def _acknowledgements(group_id: str, topics: Iterable[FetchTopic]) -> Iterator[tuple[ShareKey, list[Acknowledgement]]]:
    for topic in topics:
        for partition in topic.partitions:
            if partition.acknowledgement_batches:
                yield (
                    ShareKey(group_id, topic.topic_id, partition.partition_index),
                    [
                        Acknowledgement(batch.first_offset, batch.last_offset, batch.acknowledge_types)
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


# --- fetching


def fetch(ctx: Context, request: ShareFetchRequest) -> Answer:
    try:
        member = _member_of(request)
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
        if any(_acknowledgements(member.group_id, request.topics)):
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
    return session


class _Batch(NamedTuple):
    """A batch that was read, and where its bytes are."""

    span: Span
    start: int
    end: int


class _Found(NamedTuple):
    """What was acquired of one partition."""

    runs: list[AcquiredRecords]
    data: bytes


class _ShareFetch:
    """One request: its acknowledgements, then reading once or, if it waits, again whenever there may be something."""

    def __init__(self, ctx: Context, request: ShareFetchRequest, session: ShareSession) -> None:
        self._ctx = ctx
        self._request = request
        self._session = session
        self._outcomes: Outcomes = {}
        self._errors: dict[ShareKey, HeadraceError] = {}
        self._found: dict[ShareKey, _Found] = {}
        self._left_records = request.max_records
        self._left_bytes = min(request.max_bytes, ctx.broker.config.number("fetch.max.bytes"))
        self._timer: asyncio.TimerHandle | None = None
        self._wakes: list[tuple[ShareKey, Log, Callable[[], None]]] = []
        settings = ctx.broker.groups.settings_of(session.member.group_id)
        self._is_committed = settings.share_isolation_level == "read_committed"
        self.answer: Deferred[Message] = Deferred()
        _carry_out(ctx, session, request, self._acknowledged)

    def _acknowledged(self, outcomes: Outcomes) -> None:
        self._outcomes = outcomes
        meter = self._ctx.meter
        if meter is not None:  # what is acquired has to be sent, so a quota that is used up is noticed before
            self._left_bytes = int(min(self._left_bytes, meter.fetch_limit)) if meter.charge_fetch(1) else 0
        if self._request.share_session_epoch == FINAL_EPOCH or self._is_full:
            self._respond()
        else:
            self._ctx.broker.turns.run(self._begin_in_steps())

    @property
    def _is_full(self) -> bool:
        return self._left_records <= 0 or self._left_bytes <= 0

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
        for number, key in enumerate(list(self._session.partitions), start=1):
            if not number % _PARTITIONS_A_STEP:
                yield
            if self._is_full:
                break
            self._try(key)

    def _try(self, key: ShareKey) -> None:
        """Acquire what is available of a partition, and keep it for the answer, or the error."""
        self._errors.pop(key, None)
        try:
            if not self._ctx.broker.shares.sessions.holds(self._session):  # its connection is closed, or it began anew
                raise BrokerError(ErrorCode.SHARE_SESSION_NOT_FOUND, "the session ended while the fetch waited")
            found = self._acquire(key, self._log(key))
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

    def _acquire(self, key: ShareKey, log: Log) -> _Found | None:
        shares = self._ctx.broker.shares
        partition = shares.partition(key, log)
        if partition is None:
            return None
        is_exact = self._request.share_acquire_mode == RECORD_LIMIT
        acquired: list[AcquiredRecords] = []
        pieces: list[bytes] = []
        reached = -1
        for _ in range(_CHUNKS_A_FETCH):
            if self._is_full or not shares.can_acquire(key, partition):
                break
            offset = partition.next_offset()
            if offset <= reached:  # what is available here is kept back for others
                break
            reached = offset
            data, batches = self._read(log, offset)
            if not batches:
                break
            wanted = Acquisition(self._session.holder, self._left_records, is_exact)
            runs = shares.acquire(key, partition, wanted, [batch.span for batch in batches])
            for piece in _cut_to(data, batches, runs):
                pieces.append(piece)
                self._left_bytes -= len(piece)
            self._left_records -= sum(run.size for run in runs)
            acquired += _name_runs(runs, batches, self._request.batch_size)
        return _Found(acquired, b"".join(pieces)) if acquired else None

    def _read(self, log: Log, offset: int) -> tuple[bytes, list[_Batch]]:
        """As many batches from an offset on as may be wanted, and between them what is never delivered."""
        wanted = self._left_records
        limit = min(self._left_bytes, _CHUNK_BYTES, max(_LEAST_READ_BYTES, wanted * _RECORD_BYTES))
        before = self._ctx.broker.high_watermark(log)
        try:
            found, aborted = log.read(offset, limit, committed=self._is_committed, before=before)
            data = found.read() if found is not None else b""
        except OSError as error:  # a disk that cannot be read fails its partition, and no other
            raise BrokerError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"{log.topic_partition} cannot be read: {error.strerror}"
            ) from error
        batches: list[_Batch] = []
        starts = sorted((each.first_offset, each.producer_id) for each in aborted)
        open_aborted: set[int] = set()
        reached = offset
        for position, header in headers_in(data):
            first, last = header.base_offset, header.last_offset
            if first > reached:  # compaction took what was here
                batches.append(_Batch(Span(reached, first - 1, is_deliverable=False), position, position))
            while starts and starts[0][0] <= last:
                open_aborted.add(starts.pop(0)[1])
            is_aborted = header.is_transactional and header.producer_id in open_aborted
            if header.is_control:
                open_aborted.discard(header.producer_id)
            is_deliverable = not (header.is_control or is_aborted)
            batches.append(_Batch(Span(first, last, is_deliverable), position, position + header.size))
            wanted -= last - max(first, reached) + 1 if is_deliverable else 0
            reached = last + 1
            if wanted <= 0:
                break
        return data, batches

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
                if partition is not None and shares.can_acquire(key, partition):
                    found, _ = log.read(partition.next_offset(), least, before=self._ctx.broker.high_watermark(log))
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

    def _time_is_up(self) -> None:
        if self._request.min_bytes > 1:  # then what there is has to do
            for key, _, _ in self._wakes:
                self._try(key)
        self._stop_waiting()
        self._respond()

    def _woken(self, key: ShareKey) -> None:
        """Acquire what there is now; called by whoever appended or acknowledged, so nothing is raised."""
        if self._timer is None or self.answer.is_set:
            return
        try:
            if self._has_enough():
                self._try(key)
            if self._errors or self._found or self._ctx.broker.waiting.is_over:
                self._stop_waiting()
                self._respond()
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
            self._ctx.meter.charge_fetch(sum(len(found.data) for found in self._found.values()))
        self.answer.set(response)


def _cut_to(data: bytes, batches: list[_Batch], runs: list[Run]) -> Iterator[bytes]:
    """The bytes of the batches in which something was acquired, those that follow each other in one piece."""
    start = end = -1
    wanted = iter(runs)
    run = next(wanted, None)
    for batch in batches:
        while run is not None and run.last < batch.span.first:
            run = next(wanted, None)
        if run is None:
            break
        if run.first > batch.span.last:
            continue
        if batch.start != end:
            if start >= 0:
                yield data[start:end]
            start = batch.start
        end = batch.end
    if start >= 0:
        yield data[start:end]


def _name_runs(runs: list[Run], batches: list[_Batch], batch_size: int) -> list[AcquiredRecords]:
    """The runs as they are answered, in pieces of about so many records that end where batches do."""
    named = []
    for run in runs:
        first = run.first
        if batch_size > 0 and run.size > batch_size:
            for batch in batches:
                if first + batch_size - 1 <= batch.span.last < run.last:
                    named.append(_name_run(first, batch.span.last, run))
                    first = batch.span.last + 1
        named.append(_name_run(first, run.last, run))
    return named


def _name_run(first: int, last: int, run: Run) -> AcquiredRecords:
    return AcquiredRecords(first_offset=first, last_offset=last, delivery_count=run.deliveries)
