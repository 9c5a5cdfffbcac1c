"""The APIs that are declared: their keys, and for each its request and its response.

One list, by hand, of names: an API called `END_TXN` has its messages `EndTxnRequest` and `EndTxnResponse` in the file
`messages/end_txn.py`. A file is imported when its API is first asked for: a client needs few of them, and all of them
take longer to load than most commands take to run.
"""

import importlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum

from headrace.protocol.schema import Message


class ApiKey(IntEnum):
    """The number of an API, as the header of a request names it."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    DESCRIBE_QUORUM = 55
    UPDATE_FEATURES = 57
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    ADD_RAFT_VOTER = 80
    REMOVE_RAFT_VOTER = 81
    STREAMS_GROUP_HEARTBEAT = 88
    STREAMS_GROUP_DESCRIBE = 89
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91
    DELETE_SHARE_GROUP_OFFSETS = 92


@dataclass(frozen=True, slots=True)
class Api:
    key: ApiKey
    request: type[Message]
    response: type[Message]

    @property
    def versions(self) -> range:
        """The versions that are declared, the same for request and response."""
        return self.request.__schema__.versions

    @property
    def flexible_since(self) -> int | None:
        """The first version with compact types and tagged fields; none if there is no such version."""
        return self.request.__schema__.flexible_since


class _Apis(Mapping[int, Api]):
    """Every API by its key, loaded at first use."""

    def __init__(self) -> None:
        self._loaded: dict[int, Api] = {}

    def __getitem__(self, key: int) -> Api:
        return self._loaded.get(key) or self._load(key)

    def __iter__(self) -> Iterator[int]:
        return iter(ApiKey)

    def __len__(self) -> int:
        return len(ApiKey)

    def _load(self, key: int) -> Api:
        try:
            named = ApiKey(key)
        except ValueError:
            raise KeyError(key) from None
        module = importlib.import_module(f"headrace.protocol.messages.{named.name.lower()}")
        name = "".join(word.capitalize() for word in named.name.split("_"))
        api = Api(named, getattr(module, f"{name}Request"), getattr(module, f"{name}Response"))
        self._loaded[key] = api
        return api


APIS: Mapping[int, Api] = _Apis()
