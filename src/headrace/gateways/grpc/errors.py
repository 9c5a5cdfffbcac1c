"""What a failure is in gRPC: a status, and a sentence. Pure."""

from enum import IntEnum

from headrace.client.errors import ClientError, OffsetOutOfRange, Refused, TopicReplaced, UnknownPartition, UnknownTopic
from headrace.errors import HeadraceError
from headrace.gateways.inlet import Dropped, Overloaded, Stopped
from headrace.gateways.writing import Uncertain
from headrace.protocol.errors import ErrorCode


class Code(IntEnum):
    """As gRPC numbers them; those that are used."""

    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    INTERNAL = 13
    UNAVAILABLE = 14
    UNAUTHENTICATED = 16


class CallFailed(HeadraceError):
    """A call, or a request in a stream, with the status that it ends with."""

    def __init__(self, code: Code, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code


_DENIED = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    }
)
_INVALID = frozenset(
    {
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.INVALID_GROUP_ID,
    }
)


def code_of(error: HeadraceError) -> Code:
    match error:
        case CallFailed():
            return error.code
        case Overloaded() | Dropped():
            return Code.RESOURCE_EXHAUSTED
        case Stopped() | Uncertain():
            return Code.UNAVAILABLE
        case UnknownTopic():
            return Code.NOT_FOUND
        case UnknownPartition():
            return Code.INVALID_ARGUMENT
        case OffsetOutOfRange():
            return Code.OUT_OF_RANGE
        case TopicReplaced():
            return Code.ABORTED
        case Refused() if error.code in _DENIED:
            return Code.PERMISSION_DENIED
        case Refused() if error.code in _INVALID:
            return Code.INVALID_ARGUMENT
        case Refused() if not error.code.retriable:
            return Code.FAILED_PRECONDITION
        case ClientError():
            return Code.UNAVAILABLE
    return Code.INTERNAL
