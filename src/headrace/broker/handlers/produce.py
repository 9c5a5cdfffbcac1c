"""Produce: append record batches.

`acks=1` is answered once the bytes are in the page cache, `acks=all` once they are on the disk (decision 4; with
`durability = os` at once, as Kafka does), `acks=0` never. One sync serves every request that waits for it.

A request with many partitions, or with large batches for a compacted topic, is handled in steps; so is one for a queue,
whose records are looked into: what they ask for in their headers must have its form. So are events, which are appended
only if they are the next ones of their streams.

The first write of a transaction waits for the end of the one before it, whose markers may be on their way to the disk.
"""

from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from struct import Struct

from headrace.broker.changes import Change
from headrace.broker.channel import SHARED_BUFFER_BYTES
from headrace.broker.errors import BrokerError, code_of
from headrace.broker.handler import TOPIC, Answer, Context, Handled
from headrace.broker.queues.overflow import Blocked
from headrace.broker.topics import Topic
from headrace.broker.transactions import Asked
from headrace.broker.turns import Deferred, Steps
from headrace.coordinator.transaction.events import WriterSupport
from headrace.delivery.events import Event, InvalidEvent, read_event, type_term
from headrace.delivery.headers import InvalidHeader, read_delivery
from headrace.delivery.overflow import Policy, Verdict
from headrace.delivery.redaction import REDACTION, Told, read_redaction
from headrace.errors import HeadraceError
from headrace.protocol.api import ApiKey
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from headrace.protocol.schema import Message
from headrace.records import (
    HEADER_SIZE,
    Buffer,
    Codec,
    CorruptBatch,
    InvalidRecord,
    Record,
    header_at,
    validate,
    validate_in_steps,
)
from headrace.records.batch import CODEC_MASK, LENGTH_OVERHEAD, MAGIC, TRANSACTIONAL
from headrace.records.record import bounded_body_of, decode
from headrace.security.acl import Operation
from headrace.storage.errors import StorageError
from headrace.storage.log import Log

ALL, LEADER, NONE = -1, 1, 0
_MAY_MOVE_BYTES = SHARED_BUFFER_BYTES  # a larger frame stays where it is until its handler is through
_PARTITIONS_A_STEP = 16
_REDACTION = type_term(REDACTION)
_LOOKED_INTO_AT_ONCE_BYTES = 16 * 1024  # a compacted topic's records are looked into for their keys
BY_ID_SINCE = 13
_REFUSALS = {
    ErrorCode.CONCURRENT_TRANSACTIONS: "the transaction before this one has not ended in all partitions: send it again",
    ErrorCode.INVALID_PRODUCER_EPOCH: "another producer has taken over the transactional id: this one was fenced",
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: "the transactional id belongs to another producer id, or has expired: "
    "initialise the producer again",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "the partition could not be added to the transaction: the disk refused it",
}


_Store = Callable[[bytes, Verdict], None]


class _Produce:
    """One request on its way: its answer, and how many partitions still wait for the disk."""

    __slots__ = ("_answer", "_waiting", "response")

    def __init__(self, response: ProduceResponse) -> None:
        self.response = response
        self._waiting = 1  # for the request itself, so that no partition ends it before all are appended
        self._answer: Deferred[Message | None] = Deferred()

    def wait_for(self, partition: PartitionProduceResponse, ctx: Context, log: Log, offset: int) -> None:
        """Hold the answer until the partition's records are durable."""
        self._waiting += 1

        def done(error: StorageError | None) -> None:
            if error:
                _refuse(ctx, partition, error)
                partition.log_start_offset = -1
            self.finish_one()

        ctx.broker.appended(log, offset, done)

    def block(
        self, answer: PartitionProduceResponse, ctx: Context, log: Log, batch: bytes, timeout_ms: int, store: _Store
    ) -> None:
        """Hold the answer until there is room for a batch, and the client: nothing more is taken from it meanwhile."""
        self._waiting += 1
        let_go = ctx.peer.hold()

        def end() -> None:
            ctx.peer.when_closed.pop(blocked, None)
            let_go()
            self.finish_one()

        def append(batch: bytes, verdict: Verdict) -> None:
            try:
                store(batch, verdict)
            except HeadraceError as error:
                _refuse(ctx, answer, error)
            end()

        def fail(error: HeadraceError) -> None:
            _refuse(ctx, answer, error)
            end()

        blocked = Blocked(log, batch, append, fail)
        ctx.peer.when_closed[blocked] = lambda: ctx.broker.overflow.leave(blocked)
        ctx.broker.overflow.wait(blocked, timeout_ms)

    def finish_one(self) -> None:
        self._waiting -= 1
        if not self._waiting:
            self._answer.set(self.response)

    def answer(self) -> Message | Deferred[Message | None]:
        self.finish_one()
        return self.response if self._answer.is_set else self._answer


def handle(ctx: Context, request: ProduceRequest) -> Handled:
    """Append what there is for each partition, at once or when the producer's transaction before is over."""
    name = request.transactional_id
    if name is not None and request.acks != NONE and ctx.broker.transactions.is_ending(name):
        size_bytes = _keep_records(request)
        return ctx.broker.transactions.after_end(
            [name], lambda: ctx.broker.turns.deferred(_append_all(ctx, request)), size_bytes
        )
    steps = _append_all(ctx, request)
    try:
        next(steps)
    except StopIteration as end:  # there was nothing to pause for, as in nearly every request
        answer: Answer = end.value
        return answer
    size = sum(len(partition.records or b"") for topic in request.topic_data for partition in topic.partition_data)
    if size <= _MAY_MOVE_BYTES:
        _keep_records(request)
    return steps


def _keep_records(request: ProduceRequest) -> int:
    """Copy the batches, since a handler that returns gives its frame back; how many bytes they are."""
    size_bytes = 0
    for topic in request.topic_data:
        for partition in topic.partition_data:
            if partition.records is not None:
                partition.records = bytes(partition.records)
                size_bytes += len(partition.records)
    return size_bytes


def _append_all(ctx: Context, request: ProduceRequest) -> Steps[Asked]:
    """Append every partition's batches; one that is refused does not touch the others."""
    number = 0
    now_ms = ctx.broker.clock.now_ms()
    produce = _Produce(ProduceResponse())
    by_id = ctx.version >= BY_ID_SINCE
    refused: HeadraceError | None = None
    for data in request.topic_data:
        answers = TopicProduceResponse(name=data.name, topic_id=data.topic_id)
        produce.response.responses.append(answers)
        for partition in data.partition_data:
            number += 1
            if not number % _PARTITIONS_A_STEP:
                yield
            answer = PartitionProduceResponse(index=partition.index)
            answers.partition_responses.append(answer)
            try:
                topic = ctx.topic(data.name, data.topic_id, by_id=by_id)
                steps = _append(ctx, topic, partition, answer, request, now_ms, produce)
                if steps is not None:
                    yield from steps
            except HeadraceError as error:
                refused = error
                _refuse(ctx, answer, error)
    if request.acks == NONE:
        if refused:  # the client waits for no answer, but it will notice that it was hung up on
            raise refused
        return None
    return produce.answer()


def _append(
    ctx: Context,
    topic: Topic,
    data: PartitionProduceData,
    answer: PartitionProduceResponse,
    request: ProduceRequest,
    now_ms: int,
    produce: _Produce,
) -> Steps[None] | None:
    """Append a partition's batch; what of that is better done in steps is returned."""
    if topic.is_internal:
        raise BrokerError(
            ErrorCode.INVALID_TOPIC_EXCEPTION, f"Cannot append to internal topic {topic.name}: the broker writes it"
        )
    log = ctx.broker.log(topic, data.index)
    if request.acks not in (ALL, LEADER, NONE):
        raise BrokerError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks={request.acks} is unknown: use 0, 1 or all (-1)")
    batch = only_batch(data.records, ctx.version, has_transactional_id=request.transactional_id is not None)
    config = log.config
    if config.segment_bytes < len(batch) <= config.max_message_bytes:
        raise BrokerError(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"a batch of {len(batch)} bytes does not fit into a segment: segment.bytes={config.segment_bytes}",
        )
    if config.headrace_events:
        return _check_and_store(ctx, topic, log, bytes(batch), answer, request, now_ms, produce)
    if config.headrace_queue or (
        config.compacts and (len(batch) > _LOOKED_INTO_AT_ONCE_BYTES or header_at(batch).codec)
    ):
        return _look_and_store(ctx, log, bytes(batch), answer, request, now_ms, produce)
    try:
        _store(ctx, log, batch, answer, request, now_ms, produce)
    except InvalidRecord as error:
        return _blame(log, bytes(batch), answer, now_ms, error)
    return None


def _look_and_store(
    ctx: Context,
    log: Log,
    batch: bytes,
    answer: PartitionProduceResponse,
    request: ProduceRequest,
    now_ms: int,
    produce: _Produce,
) -> Steps[None]:
    try:
        yield from validate_in_steps(batch, log.config.rules, now_ms)
        if log.config.headrace_queue:
            yield from _check_headers(batch, log, now_ms)
        _store(ctx, log, batch, answer, request, now_ms, produce, keys_checked=True)
    except InvalidRecord as error:
        yield from _blame(log, batch, answer, now_ms, error)


def _check_and_store(
    ctx: Context,
    topic: Topic,
    log: Log,
    batch: bytes,
    answer: PartitionProduceResponse,
    request: ProduceRequest,
    now_ms: int,
    produce: _Produce,
) -> Steps[None]:
    """Append events if they are the next ones of their streams; nothing comes between that and the check."""
    partition = ctx.broker.events.of(topic, log.topic_partition.partition)
    try:
        events, redacted = yield from _read_events(batch, log, now_ms)
        if redacted and not ctx.may(Operation.DELETE, TOPIC, topic.name):
            raise ctx.deny(Operation.DELETE, TOPIC, topic.name)
        yield from partition.enter()
        try:
            repeated = yield from partition.check(header_at(batch), events)
            if repeated is None:
                _store(ctx, log, batch, answer, request, now_ms, produce, keys_checked=True)
                partition.note(answer.base_offset, events)
                if redacted:
                    partition.redact_soon()
                    change = Change(
                        "topic", topic.name, 0, {"redacted": [f"{each.stream} {each.version}" for each in redacted]}
                    )
                    ctx.record_changes(ApiKey.PRODUCE.name, [change])
                return
        finally:
            partition.leave()
    except InvalidRecord as error:
        yield from _blame(log, batch, answer, now_ms, error)
    else:
        answer.base_offset, answer.log_start_offset, answer.is_repeat = repeated, log.start_offset, True
        if request.acks == ALL:
            produce.wait_for(answer, ctx, log, repeated + 1)


def _read_events(batch: bytes, log: Log, now_ms: int) -> Steps[tuple[list[Event], list[Told]]]:
    """The events of a batch, which is an append: all or none of it; and which others its traces have redacted."""
    validate(batch, log.config.rules, now_ms)
    header = header_at(batch)
    if header.is_transactional:
        raise BrokerError(
            ErrorCode.INVALID_TXN_STATE,
            f"{log.topic_partition} keeps events, and takes no transactions: send what belongs together in one batch",
        )
    body = yield from bounded_body_of(batch, header)
    events: list[Event] = []
    redacted: list[Told] = []
    for index, record in enumerate(decode(header, body)):
        if not index % _RECORDS_A_STEP:
            yield
        try:
            events.append(read_event(record))
        except InvalidEvent as error:
            raise InvalidRecord(f"record {index} of the batch is not an event: {error}") from None
        if _REDACTION in events[-1].terms:
            told = read_redaction(record.value or b"")
            if told is None or told.stream.encode() != record.key:
                raise InvalidRecord(f"record {index} of the batch does not say which event of its stream is redacted")
            redacted.append(told)
    return events, redacted


def _check_headers(batch: bytes, log: Log, now_ms: int) -> Steps[None]:
    """Refuse records that ask for something in a form that nobody understands: they would not get it."""
    validate(batch, replace(log.config.rules, keys_required=False), now_ms)
    header = header_at(batch)
    body = yield from bounded_body_of(batch, header)
    for index, record in enumerate(decode(header, body)):
        if not index % _RECORDS_A_STEP:
            yield
        if message := _find_invalid_header(record, log, now_ms):
            raise InvalidRecord(f"record {index} of the batch: {message}")


def _find_invalid_header(record: Record, log: Log, now_ms: int) -> str | None:
    try:
        read_delivery(record if log.config.rules.create_time else record._replace(timestamp=now_ms))
    except InvalidHeader as error:
        return str(error)
    return None


def _find_invalid_event(record: Record) -> str | None:
    try:
        read_event(record)
    except InvalidEvent as error:
        return str(error)
    return None


def _blame(log: Log, batch: bytes, answer: PartitionProduceResponse, now_ms: int, error: InvalidRecord) -> Steps[None]:
    answer.record_errors = yield from refused_records(batch, log, now_ms)
    answer.log_start_offset = log.start_offset
    raise error


def _store(
    ctx: Context,
    log: Log,
    batch: Buffer,
    answer: PartitionProduceResponse,
    request: ProduceRequest,
    now_ms: int,
    produce: _Produce,
    *,
    keys_checked: bool = False,
    verdict: Verdict | None = None,
) -> None:
    if verdict is None and log.config.headrace_overflow != Policy.BUFFER:
        verdict = ctx.broker.overflow.judge(log, batch)
        if verdict is Verdict.WAIT:

            def store(batch: bytes, verdict: Verdict) -> None:
                _store(ctx, log, batch, answer, request, ctx.broker.clock.now_ms(), produce, verdict=verdict)

            produce.block(answer, ctx, log, bytes(batch), request.timeout_ms, store)
            return
    if verdict is Verdict.DROP:
        validate(batch, log.config.rules, now_ms)
        answer.base_offset, answer.log_start_offset = -1, log.start_offset
        return
    owing = _check_transaction(ctx, request, log, batch) if request.transactional_id is not None else ()
    info = log.append(batch, now_ms=now_ms, leader_epoch=ctx.broker.leader_epoch, keys_checked=keys_checked)
    if ctx.broker.disk.is_failing:
        ctx.broker.disk.wrote()
    answer.base_offset = info.base_offset
    answer.log_append_time_ms = info.append_time_ms
    answer.log_start_offset = log.start_offset
    if request.acks == ALL:
        for coordinators in owing:
            produce.wait_for(answer, ctx, coordinators, coordinators.end_offset)
        produce.wait_for(answer, ctx, log, info.last_offset + 1)
    elif not info.is_duplicate:
        ctx.broker.appended(log, info.last_offset + 1)


def _check_transaction(ctx: Context, request: ProduceRequest, log: Log, batch: Buffer) -> list[Log]:
    """Have the transaction coordinator agree to the write; the logs to be durable before it is acknowledged.

    What it agreed to before, it knows; that the log has a batch of this transaction is not enough: after a crash it may
    have one that the coordinator has not heard of.
    """
    header = header_at(batch)
    if not header.is_transactional:
        return []
    name, transactions = request.transactional_id or "", ctx.broker.transactions
    write = (name, header.producer_id, header.producer_epoch, log.topic_partition)
    if transactions.is_part(*write):
        return []
    error, owing = transactions.check_write(*write, WriterSupport.of_produce(ctx.version))
    if error is not ErrorCode.NONE:
        raise BrokerError(error, _REFUSALS.get(error, f"the write is not part of an open transaction ({error.name})"))
    return owing


def _refuse(ctx: Context, answer: PartitionProduceResponse, error: HeadraceError) -> None:
    ctx.broker.disk.failed(error)
    answer.error_code = code_of(error)
    answer.error_message = str(error)
    answer.base_offset = -1


_START = Struct(">8xi4xb")  # length, magic: all that is needed to find the next batch
_ATTRIBUTES = Struct(">h")
_ATTRIBUTES_AT = 21
_LEAST_LENGTH = 14  # of the smallest message that ever was, of format 0
_ZSTD_SINCE = 7
_MAX_BLAMED = 1000  # records of a batch that are looked at when it is refused
_RECORDS_A_STEP = 100


def only_batch(records: Buffer | None, version: int, *, has_transactional_id: bool) -> Buffer:
    """The one batch of a partition's records, or the error that Kafka answers."""
    size = _size_at(records, 0) if records is not None else None
    if records is None or size is None:
        raise InvalidRecord("a produce request holds one record batch for each partition, and there is none")
    magic = _START.unpack_from(records)[1]
    if magic != MAGIC:
        raise InvalidRecord(f"a produce request holds batches of format {MAGIC}, and this is one of format {magic}")
    if size < HEADER_SIZE:
        raise CorruptBatch(f"a batch of {size} bytes is smaller than its header")
    (attributes,) = _ATTRIBUTES.unpack_from(records, _ATTRIBUTES_AT)
    _check_codec(attributes & CODEC_MASK, version)
    if attributes & TRANSACTIONAL and not has_transactional_id:
        raise BrokerError(
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "a batch of a transaction comes with its transactional id"
        )
    if size == len(records):
        return records
    if _size_at(records, size) is not None:
        raise InvalidRecord("a produce request holds one record batch for each partition, and there are more")
    return memoryview(records)[:size]  # a piece of a batch behind it is let go, as Kafka does


def _size_at(records: Buffer, position: int) -> int | None:
    """How large the batch at a position is; None if there is no whole one."""
    left = len(records) - position
    if left < _START.size:
        return None
    length, magic = _START.unpack_from(records, position)
    if length < _LEAST_LENGTH or not 0 <= magic <= MAGIC:
        raise CorruptBatch(f"no record batch has a length of {length} bytes and format {magic}", position)
    size: int = length + LENGTH_OVERHEAD
    return size if size <= left else None


def _check_codec(codec: int, version: int) -> None:
    if codec == Codec.ZSTD and version < _ZSTD_SINCE:
        raise BrokerError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"zstd needs version {_ZSTD_SINCE} of Produce, not {version}"
        )
    if codec > Codec.ZSTD:
        raise BrokerError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"there is no codec {codec}")


def refused_records(batch: Buffer, log: Log, now_ms: int) -> Steps[list[BatchIndexAndErrorMessage]]:
    """Which of the first records of a refused batch are to blame (KIP-467); none if it is the batch as a whole."""
    config = log.config
    errors: list[BatchIndexAndErrorMessage] = []
    header = header_at(batch)
    try:
        body = yield from bounded_body_of(batch, header)
        records = list(islice(decode(header, body), _MAX_BLAMED))
    except HeadraceError:
        return []
    for index, record in enumerate(records):
        if not index % _RECORDS_A_STEP:
            yield
        message = None
        behind_ms = now_ms - record.timestamp
        if config.compacts and record.key is None:
            message = f"Compacted topic cannot accept message without key in topic partition {log.topic_partition}"
        elif config.rules.create_time and (
            behind_ms > config.message_timestamp_before_max_ms or -behind_ms > config.message_timestamp_after_max_ms
        ):
            message = f"Timestamp {record.timestamp} is out of range: the broker's clock says {now_ms}"
        elif config.headrace_queue:
            message = _find_invalid_header(record, log, now_ms)
        elif config.headrace_events:
            message = _find_invalid_event(record)
        if message:
            errors.append(BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=message))
    return errors
