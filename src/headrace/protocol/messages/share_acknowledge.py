"""ShareAcknowledge (API 79): acknowledge acquired records without fetching more (KIP-932).

It is a request of the member's share session, as ShareFetch is. Since 2 locks may be renewed (KIP-1222). The tagged
fields are ours: with them what is acknowledged counts once that producer's transaction is committed, and a broker that
knows them has the feature `headrace.queue` from level 2 on.
"""

from headrace.protocol import schema as wire
from headrace.protocol.messages.share_fetch import FetchTopic, ShareLeader
from headrace.protocol.messages.shared import NodeEndpoint


class ShareAcknowledgeRequest(wire.Message, api_key=79, versions=range(1, 3), flexible_since=1):
    group_id: str | None = wire.nullable_string(default=None)
    member_id: str | None = wire.nullable_string()
    share_session_epoch: int = wire.int32()
    is_renew_ack: bool = wire.boolean(since=2)
    topics: list[FetchTopic] = wire.array(FetchTopic)
    transactional_id: str | None = wire.nullable_string(default=None, tag=10_002)
    producer_id: int = wire.int64(default=-1, tag=10_003)
    producer_epoch: int = wire.int16(default=-1, tag=10_004)


class PartitionData(wire.Struct):
    partition_index: int = wire.int32()
    error_code: int = wire.int16()
    error_message: str | None = wire.nullable_string(default=None)
    current_leader: ShareLeader = wire.struct(ShareLeader)


class ShareAcknowledgeTopicResponse(wire.Struct):
    topic_id: wire.Uuid = wire.uuid()
    partitions: list[PartitionData] = wire.array(PartitionData)


class ShareAcknowledgeResponse(wire.Message, api_key=79, versions=range(1, 3), flexible_since=1):
    throttle_time_ms: int = wire.int32()
    error_code: int = wire.int16()
    error_message: str | None = wire.nullable_string(default=None)
    acquisition_lock_timeout_ms: int = wire.int32(since=2, ignorable=True)
    responses: list[ShareAcknowledgeTopicResponse] = wire.array(ShareAcknowledgeTopicResponse)
    node_endpoints: list[NodeEndpoint] = wire.array(NodeEndpoint)
