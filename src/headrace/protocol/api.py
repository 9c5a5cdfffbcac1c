"""The APIs that are declared: their keys, and for each its request and its response.

One list, by hand: whoever adds an API adds a file in `messages` and a line in each of the two lists here.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from types import MappingProxyType

from headrace.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from headrace.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from headrace.protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from headrace.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from headrace.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from headrace.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from headrace.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from headrace.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from headrace.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from headrace.protocol.messages.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from headrace.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from headrace.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from headrace.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from headrace.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from headrace.protocol.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from headrace.protocol.messages.describe_producers import DescribeProducersRequest, DescribeProducersResponse
from headrace.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from headrace.protocol.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from headrace.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from headrace.protocol.messages.fetch import FetchRequest, FetchResponse
from headrace.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from headrace.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from headrace.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from headrace.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from headrace.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from headrace.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from headrace.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from headrace.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from headrace.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from headrace.protocol.messages.metadata import MetadataRequest, MetadataResponse
from headrace.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from headrace.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from headrace.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from headrace.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse
from headrace.protocol.messages.produce import ProduceRequest, ProduceResponse
from headrace.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from headrace.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from headrace.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from headrace.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from headrace.protocol.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse
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
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    DELETE_GROUPS = 42
    INCREMENTAL_ALTER_CONFIGS = 44
    OFFSET_DELETE = 47
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    DESCRIBE_TOPIC_PARTITIONS = 75


@dataclass(frozen=True, slots=True)
class Api:
    """One API: what is asked, what is answered, and in which versions."""

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


_DECLARED = (
    Api(ApiKey.PRODUCE, ProduceRequest, ProduceResponse),
    Api(ApiKey.FETCH, FetchRequest, FetchResponse),
    Api(ApiKey.LIST_OFFSETS, ListOffsetsRequest, ListOffsetsResponse),
    Api(ApiKey.METADATA, MetadataRequest, MetadataResponse),
    Api(ApiKey.OFFSET_COMMIT, OffsetCommitRequest, OffsetCommitResponse),
    Api(ApiKey.OFFSET_FETCH, OffsetFetchRequest, OffsetFetchResponse),
    Api(ApiKey.FIND_COORDINATOR, FindCoordinatorRequest, FindCoordinatorResponse),
    Api(ApiKey.JOIN_GROUP, JoinGroupRequest, JoinGroupResponse),
    Api(ApiKey.HEARTBEAT, HeartbeatRequest, HeartbeatResponse),
    Api(ApiKey.LEAVE_GROUP, LeaveGroupRequest, LeaveGroupResponse),
    Api(ApiKey.SYNC_GROUP, SyncGroupRequest, SyncGroupResponse),
    Api(ApiKey.DESCRIBE_GROUPS, DescribeGroupsRequest, DescribeGroupsResponse),
    Api(ApiKey.LIST_GROUPS, ListGroupsRequest, ListGroupsResponse),
    Api(ApiKey.SASL_HANDSHAKE, SaslHandshakeRequest, SaslHandshakeResponse),
    Api(ApiKey.API_VERSIONS, ApiVersionsRequest, ApiVersionsResponse),
    Api(ApiKey.CREATE_TOPICS, CreateTopicsRequest, CreateTopicsResponse),
    Api(ApiKey.DELETE_TOPICS, DeleteTopicsRequest, DeleteTopicsResponse),
    Api(ApiKey.DELETE_RECORDS, DeleteRecordsRequest, DeleteRecordsResponse),
    Api(ApiKey.INIT_PRODUCER_ID, InitProducerIdRequest, InitProducerIdResponse),
    Api(ApiKey.OFFSET_FOR_LEADER_EPOCH, OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse),
    Api(ApiKey.ADD_PARTITIONS_TO_TXN, AddPartitionsToTxnRequest, AddPartitionsToTxnResponse),
    Api(ApiKey.ADD_OFFSETS_TO_TXN, AddOffsetsToTxnRequest, AddOffsetsToTxnResponse),
    Api(ApiKey.END_TXN, EndTxnRequest, EndTxnResponse),
    Api(ApiKey.WRITE_TXN_MARKERS, WriteTxnMarkersRequest, WriteTxnMarkersResponse),
    Api(ApiKey.TXN_OFFSET_COMMIT, TxnOffsetCommitRequest, TxnOffsetCommitResponse),
    Api(ApiKey.DESCRIBE_CONFIGS, DescribeConfigsRequest, DescribeConfigsResponse),
    Api(ApiKey.ALTER_CONFIGS, AlterConfigsRequest, AlterConfigsResponse),
    Api(ApiKey.DESCRIBE_LOG_DIRS, DescribeLogDirsRequest, DescribeLogDirsResponse),
    Api(ApiKey.SASL_AUTHENTICATE, SaslAuthenticateRequest, SaslAuthenticateResponse),
    Api(ApiKey.CREATE_PARTITIONS, CreatePartitionsRequest, CreatePartitionsResponse),
    Api(ApiKey.DELETE_GROUPS, DeleteGroupsRequest, DeleteGroupsResponse),
    Api(ApiKey.INCREMENTAL_ALTER_CONFIGS, IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse),
    Api(ApiKey.OFFSET_DELETE, OffsetDeleteRequest, OffsetDeleteResponse),
    Api(ApiKey.DESCRIBE_CLUSTER, DescribeClusterRequest, DescribeClusterResponse),
    Api(ApiKey.DESCRIBE_PRODUCERS, DescribeProducersRequest, DescribeProducersResponse),
    Api(ApiKey.DESCRIBE_TRANSACTIONS, DescribeTransactionsRequest, DescribeTransactionsResponse),
    Api(ApiKey.LIST_TRANSACTIONS, ListTransactionsRequest, ListTransactionsResponse),
    Api(ApiKey.CONSUMER_GROUP_HEARTBEAT, ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse),
    Api(ApiKey.CONSUMER_GROUP_DESCRIBE, ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse),
    Api(ApiKey.DESCRIBE_TOPIC_PARTITIONS, DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse),
)

APIS: Mapping[int, Api] = MappingProxyType({api.key: api for api in _DECLARED})
