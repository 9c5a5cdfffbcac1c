"""Fetch: read record batches, waiting for them if need be.

The batches go from the file to the socket without passing through here: an answer holds slices of segments. A fetch
that finds less than `min.bytes` waits, at most `max.wait.ms`, and is woken by the append that it waits for, or is
forgotten if its client leaves. One of many partitions is read in steps.
"""

import asyncio

from headrace.broker.errors import BrokerError, code_of
from headrace.broker.fetches import PartitionKey, Session
from headrace.broker.handler import Answer, Context, Handled
from headrace.broker.turns import Deferred, Steps, run_through
from headrace.delivery.events import Selection
from headrace.errors import HeadraceError
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from headrace.protocol.schema import Message, Uuid
from headrace.storage.event_index import IndexFailed
from headrace.storage.log import Log

BY_ID_SINCE = 13
READ_COMMITTED = 1
_PARTITIONS_A_STEP = 32


def handle(ctx: Context, request: FetchRequest) -> Handled:
    """Answer with what is there if that is enough, or else later."""
    asked: dict[PartitionKey, FetchPartition] = {}
    for topic in request.topics:
        if len(topic.partitions) + len(asked) > _PARTITIONS_A_STEP:
            return _handle_in_steps(ctx, request)
        for partition in topic.partitions:
            if partition.select:
                return _answer_selected(ctx, request)
            asked[PartitionKey(topic.topic, topic.topic_id, partition.partition)] = partition
    try:
        fetch = _Fetch(ctx, request, *ctx.broker.sessions.begin(request, asked, ctx.principal))
    except BrokerError as error:
        return FetchResponse(error_code=error.code)
    return fetch.answer_in_steps() if fetch.is_large else run_through(fetch.answer_in_steps())


def _handle_in_steps(ctx: Context, request: FetchRequest) -> Steps[Answer]:
    """The same for a request that names many partitions."""
    asked: dict[PartitionKey, FetchPartition] = {}
    for topic in request.topics:
        for partition in topic.partitions:
            asked[PartitionKey(topic.topic, topic.topic_id, partition.partition)] = partition
            if not len(asked) % _PARTITIONS_A_STEP:
                yield
    try:
        fetch = _Fetch(ctx, request, *ctx.broker.sessions.begin(request, asked, ctx.principal))
    except BrokerError as error:
        return FetchResponse(error_code=error.code)
    return (yield from fetch.answer_in_steps())


async def _answer_selected(ctx: Context, request: FetchRequest) -> FetchResponse:
    """Events that the index finds, without waiting for more; a request for them names one partition, in no session."""
    if len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
        return FetchResponse(error_code=ErrorCode.INVALID_REQUEST)
    (topic,) = request.topics
    (partition,) = topic.partitions
    data = PartitionData(partition_index=partition.partition, aborted_transactions=None, records=b"")
    response = FetchResponse(
        responses=[FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id, partitions=[data])]
    )
    limit = min(partition.partition_max_bytes, request.max_bytes, ctx.broker.fetch_max_bytes)
    if ctx.meter is not None:
        limit = int(min(limit, ctx.meter.fetch_limit))
    try:
        selection = Selection.parse(partition.select)
        found = ctx.topic(topic.topic, topic.topic_id, by_id=ctx.version >= BY_ID_SINCE)
        log = ctx.broker.log(found, partition.partition)
        events = ctx.broker.events.of(found, partition.partition)
        await events.wait()
        if not events.is_ready:
            raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{log.topic_partition} was deleted")
        data.high_watermark = data.last_stable_offset = end = ctx.broker.high_watermark(log)
        data.log_start_offset = log.start_offset
        selected = await ctx.broker.look_up(lambda: events.select(selection, partition.fetch_offset, limit, end))
    except IndexFailed as error:
        events.report(error)
        data.error_code, data.high_watermark = ErrorCode.KAFKA_STORAGE_ERROR, -1
        return response
    except (HeadraceError, OSError) as error:
        data.error_code = code_of(error) if isinstance(error, HeadraceError) else ErrorCode.KAFKA_STORAGE_ERROR
        data.high_watermark = -1
        return response
    if ctx.meter is not None and selected.records and not ctx.meter.charge_fetch(len(selected.records)):
        # An answer without events would say that there are none.
        data.error_code, data.high_watermark = ErrorCode.THROTTLING_QUOTA_EXCEEDED, -1
        return response
    data.records, data.next_offset, data.stream_version = selected
    return response


class _Fetch:
    """One request, read once or, if it waits, again at each append that may concern it."""

    def __init__(
        self,
        ctx: Context,
        request: FetchRequest,
        partitions: dict[PartitionKey, FetchPartition],
        session: Session | None,
    ) -> None:
        self._ctx = ctx
        self._request = request
        self._partitions = partitions
        self._session = session
        self._committed = request.isolation_level == READ_COMMITTED
        self._found: list[tuple[PartitionKey, PartitionData]] = []
        self._size_bytes = 0  # of that
        self._answer: Deferred[Message] = Deferred()
        self._logs: list[Log] = []
        self._timer: asyncio.TimerHandle | None = None
        self._is_reading = False  # in steps
        self._is_late = False  # something was appended, or the time was up, since that began

    @property
    def is_large(self) -> bool:
        return len(self._partitions) > _PARTITIONS_A_STEP

    def answer_in_steps(self) -> Steps[Answer]:
        is_enough = yield from self._read_in_steps()
        may_wait = not is_enough and self._request.max_wait_ms > 0 and self._partitions and self._may_wait(0)
        if may_wait and (yield from self._register_in_steps()):
            return self._wait()
        return (yield from self._respond_in_steps())

    # --- reading

    def _read_in_steps(self) -> Steps[bool]:
        """Read every partition; whether that is worth an answer now."""
        budget = min(self._request.max_bytes, self._ctx.broker.fetch_max_bytes)
        meter = self._ctx.meter
        if meter is not None:
            budget = int(min(budget, meter.fetch_limit))
        total = 0
        has_error = False
        self._found = []
        # The list is copied: another request of the same session may change it between two steps.
        for number, (key, partition) in enumerate(list(self._partitions.items()), start=1):
            if not number % _PARTITIONS_A_STEP:
                yield
            data = PartitionData(partition_index=key.partition)
            log = None
            try:
                log = self._log(key)
                total += self._read(log, partition, data, budget - total, is_first=not total)
            except HeadraceError as error:
                code = code_of(error)
                if self._timer and code == ErrorCode.UNKNOWN_TOPIC_ID:  # it went while the client waited for it
                    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                data = PartitionData(
                    partition_index=key.partition,
                    error_code=code,
                    high_watermark=-1,
                    aborted_transactions=[] if log is None and not self._timer else None,
                    records=b"",
                )
                has_error = True
            has_error = has_error or data.diverging_epoch.epoch >= 0
            self._found.append((key, data))
        self._size_bytes = total
        return total >= self._request.min_bytes or has_error

    def _read(self, log: Log, partition: FetchPartition, data: PartitionData, budget: int, *, is_first: bool) -> int:
        broker = self._ctx.broker
        broker.check_epoch(partition.current_leader_epoch)
        data.high_watermark = broker.high_watermark(log)
        data.last_stable_offset = broker.last_stable_offset(log)
        data.log_start_offset = log.start_offset
        data.records = b""
        if partition.last_fetched_epoch >= 0 and self._has_diverged(log, partition, data):
            return 0
        limit = min(partition.partition_max_bytes, budget)
        if limit <= 0 and not is_first:
            return 0
        try:
            found, aborted = log.read(
                partition.fetch_offset, limit, committed=self._committed, before=data.high_watermark
            )
        except OSError as error:  # a disk that cannot be read fails its partition, and no other
            raise BrokerError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"{log.topic_partition} cannot be read: {error.strerror}"
            ) from error
        if self._committed:
            data.aborted_transactions = [
                AbortedTransaction(producer_id=entry.producer_id, first_offset=entry.first_offset) for entry in aborted
            ]
        else:
            data.aborted_transactions = None
        # The first batch of an answer comes whole, however large, or a consumer could not get past it (KIP-74).
        if found is None or (found.size > limit and not is_first):
            return 0
        data.records = found  # type: ignore[assignment]  # stands for its bytes until they are sent
        return found.size

    def _log(self, key: PartitionKey) -> Log:
        topic = self._ctx.topic(key.topic, key.topic_id, by_id=self._ctx.version >= BY_ID_SINCE)
        return self._ctx.broker.log(topic, key.partition)

    def _has_diverged(self, log: Log, partition: FetchPartition, data: PartitionData) -> bool:
        """Whether the client read what a crash has cut off since: it is told up to where its copy is good (KIP-595)."""
        epoch, end = self._ctx.broker.end_of_epoch(log, partition.last_fetched_epoch)
        if epoch < 0:
            raise BrokerError(ErrorCode.OFFSET_OUT_OF_RANGE, "the client has read in an epoch that never was")
        if epoch == partition.last_fetched_epoch and end >= partition.fetch_offset:
            return False
        data.diverging_epoch = EpochEndOffset(epoch=epoch, end_offset=end)
        return True

    # --- waiting

    def _may_wait(self, registered: int) -> bool:
        waiting = self._ctx.broker.waiting
        return not waiting.is_over and waiting.has_room(len(self._partitions) - registered)

    def _register_in_steps(self) -> Steps[bool]:
        """Be woken by whoever appends, from now on; whether it may wait. What wakes it meanwhile is remembered."""
        self._is_reading, self._is_late = True, False
        try:
            for number, (key, data) in enumerate(self._found, start=1):
                if not number % _PARTITIONS_A_STEP:
                    yield
                    if not self._may_wait(number):  # others began to, or the broker ends
                        self._stop_waiting()
                        return False
                if data.error_code:
                    continue
                try:
                    log = self._log(key)
                except HeadraceError:  # deleted since it was read
                    self._is_late = True
                    continue
                self._logs.append(log)
                self._ctx.broker.waiting.add(log, self._woken)
                # Between two steps somebody may have appended to what was read before: nobody was there to be woken.
                if self.is_large and data.high_watermark != self._ctx.broker.high_watermark(log):
                    self._is_late = True
        except BaseException:  # the client has left between two steps
            self._stop_waiting()
            raise
        finally:
            self._is_reading = False
        return True

    def _wait(self) -> Deferred[Message]:
        self._answer.on_abandon(self._stop_waiting)
        self._timer = asyncio.get_running_loop().call_later(self._request.max_wait_ms / 1000, self._time_is_up)
        if self._is_late:
            self._look_again()
        return self._answer

    def _time_is_up(self) -> None:
        self._stop_waiting()
        self._look_again()

    def _woken(self) -> None:
        """Called by whoever appended, so nothing is raised."""
        if self._logs:  # else it does not wait any more, and is about to be forgotten
            self._look_again()

    def _look_again(self) -> None:
        """Read again, and answer if that is enough."""
        if self._is_reading:
            self._is_late = True
        elif not self._answer.is_set:
            self._ctx.broker.turns.run(self._read_again_in_steps())

    def _read_again_in_steps(self) -> Steps[None]:
        self._is_reading = self._is_late = True
        try:
            while self._is_late and not self._answer.is_set:
                self._is_late = False
                is_enough = yield from self._read_in_steps()
                # Enough, or nobody will wake it again, or nobody is to wait.
                if is_enough or not self._logs or self._ctx.broker.waiting.is_over:
                    self._stop_waiting()
                    self._answer.set((yield from self._respond_in_steps()))
        except Exception as error:  # noqa: BLE001 - the client that waits is hung up on; the one that appended is not
            self._stop_waiting()
            self._answer.fail(error)
        finally:
            self._is_reading = False

    def _stop_waiting(self) -> None:
        """Be woken no more: it is answered, or its client has left."""
        if self._timer:
            self._timer.cancel()
        if self.is_large:
            self._ctx.broker.turns.run(self._forget_in_steps())
        else:
            run_through(self._forget_in_steps())

    def _forget_in_steps(self) -> Steps[None]:
        logs, self._logs = self._logs, []
        for number, log in enumerate(logs, start=1):
            self._ctx.broker.waiting.remove(log, self._woken)
            if not number % _PARTITIONS_A_STEP:
                yield

    # --- answering

    def _respond_in_steps(self) -> Steps[FetchResponse]:
        """What was found; in a session only what is news. Nothing, if it is more than the client's quota allows."""
        meter = self._ctx.meter
        if meter is not None and self._size_bytes and not meter.charge_fetch(self._size_bytes):
            return self._respond_empty()
        response = FetchResponse(session_id=self._session.id if self._session else 0)
        topics: dict[tuple[str, bytes], FetchableTopicResponse] = {}
        is_incremental = self._session is not None and self._request.session_epoch > 0
        for number, (key, data) in enumerate(self._found, start=1):
            if not number % _PARTITIONS_A_STEP:
                yield
            size = len(data.records) if data.records is not None else 0
            if self._session and not (
                self._session.is_news(key, data.error_code, data.high_watermark, data.log_start_offset, size)
                or not is_incremental
            ):
                continue
            if self._session and size and key in self._session.partitions:
                # Whoever was served goes to the end, so that all get their turn.
                self._session.partitions[key] = self._session.partitions.pop(key)
            topic = topics.get(key[:2])
            if topic is None:
                topic = topics[key[:2]] = FetchableTopicResponse(topic=key.topic, topic_id=Uuid(key.topic_id))
                response.responses.append(topic)
            topic.partitions.append(data)
        return response

    def _respond_empty(self) -> FetchResponse:
        """As if there were nothing: a client asks for the same again, and begins its session anew if it had just begun.

        Nothing of the session has changed but its epoch, so what was news stays news.
        """
        if self._session is not None and self._request.session_epoch > 0:
            return FetchResponse(session_id=self._session.id)
        if self._session is not None:
            self._ctx.broker.sessions.end(self._ctx.principal, self._session.id)
        return FetchResponse()
