"""The protocol's one table of error codes, and what this package raises.

The table is Kafka's: its codes and names, whether a client may simply try again, and what each means, in a sentence.
Only the broker turns an error of ours into one of these codes.
"""

from enum import IntEnum
from typing import Self

from headrace.errors import HeadraceError


class ProtocolError(HeadraceError):
    """Something about bytes on the wire, or about a message that should become such bytes."""


class MalformedMessage(ProtocolError):
    """Bytes that are no message of the kind that was expected: `what` is wrong, at `position` in the buffer."""

    def __init__(self, what: str, position: int) -> None:
        super().__init__(f"{what}, at byte {position}")
        self.what = what
        self.position = position


class NotRepresentable(ProtocolError):
    """A message holds a value that the version it should be written in cannot carry: `what` names both."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what


class UnsupportedVersion(ProtocolError):
    """An API, or a version of it, that is not declared; `correlation_id` is that of the request, if there is one."""

    def __init__(self, api_key: int, version: int, correlation_id: int | None = None) -> None:
        super().__init__(f"API {api_key} is not known in version {version}")
        self.api_key = api_key
        self.version = version
        self.correlation_id = correlation_id


class FrameTooLarge(ProtocolError):
    """A frame announces more bytes than the limit allows; nothing after it can be read."""

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(f"a frame of {size} bytes is over the limit of {limit} (socket.request.max.bytes)")
        self.size = size
        self.limit = limit


_RETRY = True
_FINAL = False


class ErrorCode(IntEnum):
    """Every error code of Kafka 4.3: its number, whether trying again may help, and its meaning."""

    retriable: bool
    meaning: str

    def __new__(cls, code: int, retriable: bool, meaning: str) -> Self:
        row = int.__new__(cls, code)
        row._value_ = code
        row.retriable = retriable
        row.meaning = meaning
        return row

    @classmethod
    def of(cls, code: int) -> "ErrorCode":
        """The row of a code; a code from a newer Kafka reads as an unknown server error, as it does there."""
        return _ROWS.get(code, cls.UNKNOWN_SERVER_ERROR)

    UNKNOWN_SERVER_ERROR = -1, _FINAL, "the server failed in a way that it did not foresee"
    NONE = 0, _FINAL, "no error"
    OFFSET_OUT_OF_RANGE = 1, _FINAL, "the log does not hold the offset asked for"
    CORRUPT_MESSAGE = 2, _RETRY, "a batch has a wrong checksum or size, or no key where the topic needs one"
    UNKNOWN_TOPIC_OR_PARTITION = 3, _RETRY, "this broker has no such topic or partition"
    INVALID_FETCH_SIZE = 4, _FINAL, "the number of bytes to fetch makes no sense"
    LEADER_NOT_AVAILABLE = 5, _RETRY, "the partition has no leader just now: one is being elected"
    NOT_LEADER_OR_FOLLOWER = 6, _RETRY, "this broker does not lead the partition, or holds no copy of it"
    REQUEST_TIMED_OUT = 7, _RETRY, "the request was not done within its time"
    BROKER_NOT_AVAILABLE = 8, _FINAL, "the broker cannot be reached"
    REPLICA_NOT_AVAILABLE = 9, _RETRY, "the copy of the partition cannot be read just now"
    MESSAGE_TOO_LARGE = 10, _FINAL, "a batch is larger than the topic takes"
    STALE_CONTROLLER_EPOCH = 11, _FINAL, "the sender follows a controller that has been replaced"
    OFFSET_METADATA_TOO_LARGE = 12, _FINAL, "the text stored beside a committed offset is too long"
    NETWORK_EXCEPTION = 13, _RETRY, "the connection broke before the answer came"
    COORDINATOR_LOAD_IN_PROGRESS = 14, _RETRY, "the coordinator is still reading its state"
    COORDINATOR_NOT_AVAILABLE = 15, _RETRY, "there is no coordinator just now"
    NOT_COORDINATOR = 16, _RETRY, "another broker coordinates this group or transaction"
    INVALID_TOPIC_EXCEPTION = 17, _FINAL, "the topic's name is not allowed, or the topic does not take this operation"
    RECORD_LIST_TOO_LARGE = 18, _FINAL, "the batches together are larger than a segment"
    NOT_ENOUGH_REPLICAS = 19, _RETRY, "refused: too few copies are in sync"
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20, _RETRY, "written, but to fewer copies than required"
    INVALID_REQUIRED_ACKS = 21, _FINAL, "acks is none of 0, 1 and all"
    ILLEGAL_GENERATION = 22, _FINAL, "the member speaks of another generation of its group"
    INCONSISTENT_GROUP_PROTOCOL = 23, _FINAL, "the member and its group have no protocol in common"
    INVALID_GROUP_ID = 24, _FINAL, "the group's name is not allowed"
    UNKNOWN_MEMBER_ID = 25, _FINAL, "the group has no such member"
    INVALID_SESSION_TIMEOUT = 26, _FINAL, "the session timeout is outside what the broker allows"
    REBALANCE_IN_PROGRESS = 27, _FINAL, "the group is rebalancing: the member has to join again"
    INVALID_COMMIT_OFFSET_SIZE = 28, _FINAL, "the commit is too large to be stored"
    TOPIC_AUTHORIZATION_FAILED = 29, _FINAL, "not allowed on this topic"
    GROUP_AUTHORIZATION_FAILED = 30, _FINAL, "not allowed on this group"
    CLUSTER_AUTHORIZATION_FAILED = 31, _FINAL, "not allowed on this cluster"
    INVALID_TIMESTAMP = 32, _FINAL, "a record's timestamp is too far from the broker's time"
    UNSUPPORTED_SASL_MECHANISM = 33, _FINAL, "the broker does not offer this SASL mechanism"
    ILLEGAL_SASL_STATE = 34, _FINAL, "the request has no place at this point of the authentication"
    UNSUPPORTED_VERSION = 35, _FINAL, "the broker does not speak this version of the API"
    TOPIC_ALREADY_EXISTS = 36, _FINAL, "a topic of this name exists"
    INVALID_PARTITIONS = 37, _FINAL, "the number of partitions is not allowed"
    INVALID_REPLICATION_FACTOR = 38, _FINAL, "the replication factor is below one or above the number of brokers"
    INVALID_REPLICA_ASSIGNMENT = 39, _FINAL, "the replicas named for the partitions make no sense"
    INVALID_CONFIG = 40, _FINAL, "a setting is unknown or has a value that is not allowed"
    NOT_CONTROLLER = 41, _RETRY, "this node is not the controller"
    INVALID_REQUEST = 42, _FINAL, "the request contradicts itself or cannot be read"
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43, _FINAL, "the topic's message format is too old for this"
    POLICY_VIOLATION = 44, _FINAL, "a policy of the broker forbids these parameters"
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45, _FINAL, "a producer's batch does not follow its last one"
    DUPLICATE_SEQUENCE_NUMBER = 46, _FINAL, "a producer's batch was written before"
    INVALID_PRODUCER_EPOCH = 47, _FINAL, "the producer writes with an epoch that is past"
    INVALID_TXN_STATE = 48, _FINAL, "the transaction is in no state to do this"
    INVALID_PRODUCER_ID_MAPPING = 49, _FINAL, "the transactional id belongs to another producer id"
    INVALID_TRANSACTION_TIMEOUT = 50, _FINAL, "the transaction timeout is above what the broker allows"
    CONCURRENT_TRANSACTIONS = 51, _RETRY, "the transaction is still busy with an earlier operation"
    TRANSACTION_COORDINATOR_FENCED = 52, _FINAL, "the markers come from a coordinator that has been replaced"
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53, _FINAL, "not allowed with this transactional id"
    SECURITY_DISABLED = 54, _FINAL, "the broker runs without security features"
    OPERATION_NOT_ATTEMPTED = 55, _FINAL, "not tried, because another operation of the same request failed"
    KAFKA_STORAGE_ERROR = 56, _RETRY, "the disk failed under the log"
    LOG_DIR_NOT_FOUND = 57, _FINAL, "the broker has no such log directory"
    SASL_AUTHENTICATION_FAILED = 58, _FINAL, "the credentials were refused"
    UNKNOWN_PRODUCER_ID = 59, _FINAL, "the broker remembers nothing of this producer"
    REASSIGNMENT_IN_PROGRESS = 60, _FINAL, "the partition is being moved"
    DELEGATION_TOKEN_AUTH_DISABLED = 61, _FINAL, "the broker does not take delegation tokens"
    DELEGATION_TOKEN_NOT_FOUND = 62, _FINAL, "there is no such delegation token"
    DELEGATION_TOKEN_OWNER_MISMATCH = 63, _FINAL, "the delegation token is somebody else's"
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64, _FINAL, "this connection may not handle delegation tokens"
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65, _FINAL, "not allowed on this delegation token"
    DELEGATION_TOKEN_EXPIRED = 66, _FINAL, "the delegation token's time is over"
    INVALID_PRINCIPAL_TYPE = 67, _FINAL, "the broker knows no such type of principal"
    NON_EMPTY_GROUP = 68, _FINAL, "the group still has members"
    GROUP_ID_NOT_FOUND = 69, _FINAL, "there is no such group"
    FETCH_SESSION_ID_NOT_FOUND = 70, _RETRY, "the broker has forgotten the fetch session"
    INVALID_FETCH_SESSION_EPOCH = 71, _RETRY, "the fetch does not follow the session's last one"
    LISTENER_NOT_FOUND = 72, _RETRY, "the leader has no listener like the one that was asked"
    TOPIC_DELETION_DISABLED = 73, _FINAL, "the broker does not delete topics"
    FENCED_LEADER_EPOCH = 74, _RETRY, "the request names an older leader epoch than the broker's"
    UNKNOWN_LEADER_EPOCH = 75, _RETRY, "the request names a newer leader epoch than the broker's"
    UNSUPPORTED_COMPRESSION_TYPE = 76, _FINAL, "the partition holds a compression that this version cannot carry"
    STALE_BROKER_EPOCH = 77, _FINAL, "the broker has registered anew since"
    OFFSET_NOT_AVAILABLE = 78, _RETRY, "a new leader does not know its high watermark yet"
    MEMBER_ID_REQUIRED = 79, _FINAL, "join again with the member id of this answer"
    PREFERRED_LEADER_NOT_AVAILABLE = 80, _RETRY, "the preferred leader is away"
    GROUP_MAX_SIZE_REACHED = 81, _FINAL, "the group is full"
    FENCED_INSTANCE_ID = 82, _FINAL, "another consumer has taken this group.instance.id"
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83, _RETRY, "nobody who may lead the partition is there"
    ELECTION_NOT_NEEDED = 84, _RETRY, "the partition has the leader that it should have"
    NO_REASSIGNMENT_IN_PROGRESS = 85, _FINAL, "the partition is not being moved"
    GROUP_SUBSCRIBED_TO_TOPIC = 86, _FINAL, "the group is subscribed to the topic whose offsets should go"
    INVALID_RECORD = 87, _FINAL, "a record was refused by validation"
    UNSTABLE_OFFSET_COMMIT = 88, _RETRY, "a transaction that commits these offsets is still open"
    THROTTLING_QUOTA_EXCEEDED = 89, _RETRY, "a quota is used up for now"
    PRODUCER_FENCED = 90, _FINAL, "a newer producer has taken the transactional id"
    RESOURCE_NOT_FOUND = 91, _FINAL, "the request names something that does not exist"
    DUPLICATE_RESOURCE = 92, _FINAL, "the request names the same thing twice"
    UNACCEPTABLE_CREDENTIAL = 93, _FINAL, "the new credential is too weak or malformed"
    INCONSISTENT_VOTER_SET = 94, _FINAL, "one of the two is not among the voters that the other expects"
    INVALID_UPDATE_VERSION = 95, _FINAL, "the update was made from another version"
    FEATURE_UPDATE_FAILED = 96, _FINAL, "the cluster's features could not be changed"
    PRINCIPAL_DESERIALIZATION_FAILURE = 97, _FINAL, "the principal of a forwarded request cannot be read"
    SNAPSHOT_NOT_FOUND = 98, _FINAL, "there is no such snapshot"
    POSITION_OUT_OF_RANGE = 99, _FINAL, "the position is not inside the snapshot"
    UNKNOWN_TOPIC_ID = 100, _RETRY, "this broker has no topic of this id"
    DUPLICATE_BROKER_REGISTRATION = 101, _FINAL, "another broker runs under this id"
    BROKER_ID_NOT_REGISTERED = 102, _FINAL, "no broker has registered under this id"
    INCONSISTENT_TOPIC_ID = 103, _RETRY, "the log belongs to a topic of the same name with another id"
    INCONSISTENT_CLUSTER_ID = 104, _FINAL, "the request was meant for another cluster"
    TRANSACTIONAL_ID_NOT_FOUND = 105, _FINAL, "there is no such transactional id"
    FETCH_SESSION_TOPIC_ID_ERROR = 106, _RETRY, "the fetch session mixes topic names and ids"
    INELIGIBLE_REPLICA = 107, _FINAL, "a replica may not become in-sync"
    NEW_LEADER_ELECTED = 108, _FINAL, "done, and the partition has a new leader"
    OFFSET_MOVED_TO_TIERED_STORAGE = 109, _FINAL, "the offset is in tiered storage now"
    FENCED_MEMBER_EPOCH = 110, _FINAL, "the member must give up its partitions and join again"
    UNRELEASED_INSTANCE_ID = 111, _FINAL, "the previous member of this group.instance.id has not left"
    UNSUPPORTED_ASSIGNOR = 112, _FINAL, "the broker has no such assignor"
    STALE_MEMBER_EPOCH = 113, _FINAL, "the member speaks of an older epoch: its next heartbeat tells the new one"
    MISMATCHED_ENDPOINT_TYPE = 114, _FINAL, "a broker was asked for what controllers do, or the other way round"
    UNSUPPORTED_ENDPOINT_TYPE = 115, _FINAL, "this type of endpoint cannot be described"
    UNKNOWN_CONTROLLER_ID = 116, _FINAL, "there is no controller of this id"
    UNKNOWN_SUBSCRIPTION_ID = 117, _FINAL, "the client's telemetry follows a subscription that is past"
    TELEMETRY_TOO_LARGE = 118, _FINAL, "the client's telemetry is larger than the broker takes"
    INVALID_REGISTRATION = 119, _FINAL, "the controller refused the broker's registration"
    TRANSACTION_ABORTABLE = 120, _FINAL, "the transaction must be aborted; the producer can go on after that"
    INVALID_RECORD_STATE = 121, _FINAL, "the record is in no state to be acknowledged so"
    SHARE_SESSION_NOT_FOUND = 122, _RETRY, "the broker has forgotten the share session"
    INVALID_SHARE_SESSION_EPOCH = 123, _RETRY, "the share fetch does not follow the session's last one"
    FENCED_STATE_EPOCH = 124, _FINAL, "the share group's state has a newer epoch"
    INVALID_VOTER_KEY = 125, _FINAL, "the voter's key is not that of the receiver"
    DUPLICATE_VOTER = 126, _FINAL, "the voter is in the set already"
    VOTER_NOT_FOUND = 127, _FINAL, "the voter is not in the set"
    INVALID_REGULAR_EXPRESSION = 128, _FINAL, "the regular expression cannot be compiled"
    REBOOTSTRAP_REQUIRED = 129, _FINAL, "the client should start over from its bootstrap servers"
    STREAMS_INVALID_TOPOLOGY = 130, _FINAL, "the streams topology makes no sense"
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131, _FINAL, "the streams topology's epoch makes no sense"
    STREAMS_TOPOLOGY_FENCED = 132, _FINAL, "the streams topology is older than the group's"
    SHARE_SESSION_LIMIT_REACHED = 133, _RETRY, "the broker holds as many share sessions as it may"


_ROWS = {int(row): row for row in ErrorCode}
