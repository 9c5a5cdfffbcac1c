"""What is checked of a producer's batches before they are taken.

Everything here comes from the header, but for two cases that a topic's rules ask for: keys in a compacted topic, and
nothing else. A batch that passes is whole, unaltered, and of the shape that the log relies on.
"""

from collections.abc import Generator
from dataclasses import dataclass, replace

from headrace.records.batch import (
    ATTRIBUTES_AT,
    CONTROL,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    LOG_APPEND_TIME,
    MAGIC,
    BatchHeader,
    Buffer,
    check_shape,
    header_at,
)
from headrace.records.checksum import crc32c
from headrace.records.errors import BatchTooLarge, CorruptBatch, InvalidRecord, InvalidTimestamp
from headrace.records.record import bounded_body_of, walk

MAX_LONG = 2**63 - 1
_BROKERS_OWN = CONTROL | LOG_APPEND_TIME


@dataclass(frozen=True, slots=True)
class Rules:
    """The part of a topic's configuration that a batch is held against."""

    max_batch_bytes: int = 1_048_588
    timestamp_before_max_ms: int = MAX_LONG
    timestamp_after_max_ms: int = 3_600_000
    create_time: bool = True
    keys_required: bool = False


def validate_in_steps(data: Buffer, rules: Rules, now_ms: int) -> Generator[None, None, None]:
    """Check everything that `validate` checks of a client's batches, keys included, with a pause now and then.

    Looking for records without a key decompresses and walks all of them; what has passed here need not be looked into
    again: `validate` takes `keys_checked`.
    """
    if rules.keys_required:
        for position, header in validate(data, replace(rules, keys_required=False), now_ms):
            yield from _check_keys(memoryview(data)[position : position + header.size], header)


def validate(
    data: Buffer, rules: Rules, now_ms: int, *, from_client: bool = True, keys_checked: bool = False
) -> list[tuple[int, BatchHeader]]:
    """The position and header of each batch in `data`, all of them checked; raises a `RecordsError` otherwise.

    `from_client=False` is for markers and internal records, which the broker writes itself: what is decided is written
    whole, however large it is.
    """
    batches = []
    position = 0
    end = len(data)
    view = memoryview(data)
    while position < end:
        if position + HEADER_SIZE > end:
            raise CorruptBatch(f"{end - position} bytes are too few for a header", position)
        header = header_at(view, position)
        size = header.length + LENGTH_OVERHEAD
        if header.magic != MAGIC or size < HEADER_SIZE:
            check_shape(header, position)
        stop = position + size
        if stop > end:
            raise CorruptBatch(f"{size} bytes are announced, {end - position} are there", position)
        if from_client and size > rules.max_batch_bytes:
            raise BatchTooLarge(size, rules.max_batch_bytes)
        if crc32c(view[position + ATTRIBUTES_AT : stop]) != header.crc:
            raise CorruptBatch("the checksum does not match: the batch was altered on its way", position)
        count = header.record_count
        if count <= 0 or count != header.last_offset_delta + 1:
            raise InvalidRecord(
                f"batch at byte {position} counts {count} records "
                f"but its last offset delta is {header.last_offset_delta}"
            )
        if from_client:
            _check_client_batch(header, rules, now_ms)
            if rules.keys_required and not keys_checked:
                for _ in _check_keys(view[position:stop], header):
                    pass
        batches.append((position, header))
        position = stop
    if not batches:
        raise CorruptBatch("no record batch in the request")
    return batches


def _check_client_batch(header: BatchHeader, rules: Rules, now_ms: int) -> None:
    if header.attributes & _BROKERS_OWN:
        _refuse_brokers_own(header)
    if header.producer_id >= 0 and (header.base_sequence < 0 or header.producer_epoch < 0):
        raise InvalidRecord(
            f"producer {header.producer_id} sent a batch with epoch {header.producer_epoch} and sequence "
            f"{header.base_sequence}: an idempotent producer numbers its batches from 0"
        )
    if header.is_copy:
        raise InvalidRecord(f"the batch has the sequence {header.base_sequence}, which only the broker writes: send -1")
    if not rules.create_time:
        return  # the broker's own clock will replace the timestamps, so theirs do not matter
    if header.max_timestamp - now_ms > rules.timestamp_after_max_ms:
        raise InvalidTimestamp(
            f"timestamp {header.max_timestamp} is {header.max_timestamp - now_ms} ms ahead of the broker's clock, "
            f"more than message.timestamp.after.max.ms={rules.timestamp_after_max_ms}: check the producer's clock"
        )
    if header.base_timestamp >= 0 and now_ms - header.base_timestamp > rules.timestamp_before_max_ms:
        raise InvalidTimestamp(
            f"timestamp {header.base_timestamp} is {now_ms - header.base_timestamp} ms behind the broker's clock, "
            f"more than message.timestamp.before.max.ms={rules.timestamp_before_max_ms}: check the producer's clock"
        )


def _refuse_brokers_own(header: BatchHeader) -> None:
    if header.is_control:
        raise InvalidRecord("clients may not write control records: only the transaction coordinator does")
    raise InvalidTimestamp("the batch claims log-append time, which only the broker sets: send create time")


_RECORDS_A_STEP = 1000


def _check_keys(batch: Buffer, header: BatchHeader) -> Generator[None, None, None]:
    body = yield from bounded_body_of(batch, header)
    for number, raw in enumerate(walk(body, header.record_count), start=1):
        if not number % _RECORDS_A_STEP:
            yield
        if raw.key_size < 0:
            raise InvalidRecord(
                f"record {raw.offset_delta} of the batch has no key, and a compacted topic keeps the latest value per "
                "key: give each record a key, or set cleanup.policy=delete"
            )
