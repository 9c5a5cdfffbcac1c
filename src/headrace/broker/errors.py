"""What a broker refuses, and the one place where an error of ours becomes a code of Kafka's."""

from headrace.broker.settings.setting import InvalidSetting
from headrace.delivery.events import EventConflict, InvalidEvent
from headrace.errors import HeadraceError
from headrace.model import InvalidTopicName
from headrace.protocol.errors import ErrorCode
from headrace.records import BatchTooLarge, CorruptBatch, InvalidRecord, InvalidTimestamp, UnsupportedFormat
from headrace.security.acl import InvalidAcl
from headrace.security.principal import InvalidPrincipal
from headrace.storage import errors as storage


class BrokerError(HeadraceError):
    """A request that cannot be served; carries the code that the client is told."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


# The first class that fits, from the most special on.
_CODES: tuple[tuple[type[HeadraceError], ErrorCode], ...] = (
    (UnsupportedFormat, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT),
    (CorruptBatch, ErrorCode.CORRUPT_MESSAGE),
    (BatchTooLarge, ErrorCode.MESSAGE_TOO_LARGE),
    (InvalidTimestamp, ErrorCode.INVALID_TIMESTAMP),
    (InvalidRecord, ErrorCode.INVALID_RECORD),
    (InvalidEvent, ErrorCode.INVALID_REQUEST),
    (EventConflict, ErrorCode.POLICY_VIOLATION),
    (storage.OffsetOutOfRange, ErrorCode.OFFSET_OUT_OF_RANGE),
    (storage.OutOfOrderSequence, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
    (storage.UnknownProducer, ErrorCode.UNKNOWN_PRODUCER_ID),
    (storage.StaleProducerEpoch, ErrorCode.INVALID_PRODUCER_EPOCH),
    (storage.StaleCoordinatorEpoch, ErrorCode.TRANSACTION_COORDINATOR_FENCED),
    (storage.InvalidTransactionState, ErrorCode.INVALID_TXN_STATE),
    (storage.TransactionStillOpen, ErrorCode.CONCURRENT_TRANSACTIONS),
    (storage.DamagedLog, ErrorCode.CORRUPT_MESSAGE),
    (storage.InvalidLogConfig, ErrorCode.INVALID_CONFIG),
    (storage.UnknownLog, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    (storage.StorageError, ErrorCode.KAFKA_STORAGE_ERROR),
    (InvalidSetting, ErrorCode.INVALID_CONFIG),
    (InvalidAcl, ErrorCode.INVALID_REQUEST),
    (InvalidPrincipal, ErrorCode.INVALID_REQUEST),
    (InvalidTopicName, ErrorCode.INVALID_TOPIC_EXCEPTION),
)


def code_of(error: HeadraceError) -> ErrorCode:
    if isinstance(error, BrokerError):
        return error.code
    for kind, code in _CODES:
        if isinstance(error, kind):
            return code
    return ErrorCode.UNKNOWN_SERVER_ERROR
