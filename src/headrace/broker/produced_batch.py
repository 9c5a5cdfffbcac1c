"""What a produce request may hold for a partition: one batch of format 2, and who is to blame when it is refused.

Only the first bytes of the batch are looked at; the log looks at the rest of its header and at its checksum.
"""

from itertools import islice
from struct import Struct

from headrace.broker.errors import BrokerError
from headrace.broker.turns import Steps
from headrace.errors import HeadraceError
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.produce import BatchIndexAndErrorMessage
from headrace.records import HEADER_SIZE, Buffer, Codec, CorruptBatch, InvalidRecord, header_at
from headrace.records.batch import CODEC_MASK, LENGTH_OVERHEAD, MAGIC, TRANSACTIONAL
from headrace.records.record import bounded_body_of, decode
from headrace.storage.log import Log

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
        if message:
            errors.append(BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=message))
    return errors
