"""The cluster of one node: its quorum, the levels of its features, and who belongs to it.

The metadata has one voter, this broker, for ever: as in a Kafka whose quorum is configured statically, none joins and
none leaves. A feature has the one level that is built in, so that only an update to that level succeeds.
"""

from headrace.broker.errors import BrokerError
from headrace.broker.handler import Context
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from headrace.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    QuorumNode,
    QuorumPartitionState,
    QuorumTopic,
    QuorumTopicState,
    ReplicaState,
)
from headrace.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from headrace.protocol.messages.shared import Listener
from headrace.protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from headrace.protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from headrace.protocol.schema import ZERO_UUID

# What a client may count on beyond single APIs: groups by KIP-848, KIP-932 and KIP-1071, transactions by KIP-890.
FEATURES = {"group.version": 1, "share.version": 1, "streams.version": 1, "transaction.version": 2}
# What no Kafka has: a client that asks for more than a share group of Kafka's can do looks for it first.
OWN_FEATURES = {"headrace.events": 1, "headrace.queue": 2}  # 2: acknowledgements may be part of a transaction
UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3
_CHOOSES_TYPE_SINCE = 1

_NAMES_NODES_SINCE = 2
CLUSTER_METADATA = "__cluster_metadata"  # the name under which every client asks, whatever the log is called here


def describe_quorum(ctx: Context, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    """Describe the one partition of the metadata log; as in Kafka, nothing if anything else is asked for too."""
    asked = [(topic.topic_name, each.partition_index) for topic in request.topics for each in topic.partitions]
    if asked != [(CLUSTER_METADATA, 0)]:
        return DescribeQuorumResponse(error_message=None, topics=[_unknown(topic) for topic in request.topics])
    names_nodes = ctx.version >= _NAMES_NODES_SINCE
    now_ms = ctx.broker.now_ms()
    end_offset = max((log.end_offset for log in ctx.broker.metadata.log.partitions()), default=0)
    voter = ReplicaState(
        replica_id=ctx.broker.node_id,
        replica_directory_id=ctx.broker.identity.directory_id if names_nodes else ZERO_UUID,
        log_end_offset=end_offset,
        last_fetch_timestamp=now_ms,
        last_caught_up_timestamp=now_ms,
    )
    state = QuorumPartitionState(
        partition_index=0,
        error_message=None,
        leader_id=ctx.broker.node_id,
        leader_epoch=ctx.broker.leader_epoch,
        high_watermark=end_offset,
        current_voters=[voter],
    )
    listener = Listener(name=ctx.listener, host=ctx.advertised.host, port=ctx.advertised.port)
    return DescribeQuorumResponse(
        error_message=None,
        topics=[QuorumTopicState(topic_name=CLUSTER_METADATA, partitions=[state])],
        nodes=[QuorumNode(node_id=ctx.broker.node_id, listeners=[listener])] if names_nodes else [],
    )


def _unknown(topic: QuorumTopic) -> QuorumTopicState:
    states = [
        QuorumPartitionState(
            partition_index=each.partition_index, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, error_message=None
        )
        for each in topic.partitions
    ]
    return QuorumTopicState(topic_name=topic.topic_name, partitions=states)


def update_features(ctx: Context, request: UpdateFeaturesRequest) -> UpdateFeaturesResponse:
    """Check each update; none changes anything, since a feature has one level. One that fails fails all of them."""
    try:
        for update in request.feature_updates:
            _check_update(update, chooses_type=ctx.version >= _CHOOSES_TYPE_SINCE)
    except BrokerError as error:
        return UpdateFeaturesResponse(error_code=error.code, error_message=str(error))
    return UpdateFeaturesResponse(
        error_message=None,
        results=[
            UpdatableFeatureResult(feature=update.feature, error_message=None) for update in request.feature_updates
        ],
    )


def _check_update(update: FeatureUpdateKey, *, chooses_type: bool) -> None:
    name, level, built_in = update.feature, update.max_version_level, FEATURES.get(update.feature)
    if built_in is None:
        reason = f"there is no feature {name!r}: {', '.join(FEATURES)} are known"
    elif chooses_type and update.upgrade_type not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        reason = f"{update.upgrade_type} is not a type of update: give 1 to upgrade, 2 or 3 to downgrade"
    elif level != built_in:
        reason = f"{name} has level {built_in}, the only one that this broker has: {level} is not possible"
    else:
        return
    raise BrokerError(ErrorCode.INVALID_UPDATE_VERSION, reason)


def unregister_broker(ctx: Context, request: UnregisterBrokerRequest) -> UnregisterBrokerResponse:
    if request.broker_id != ctx.broker.node_id:
        error, reason = ErrorCode.BROKER_ID_NOT_REGISTERED, f"there is no broker {request.broker_id}"
    else:
        error, reason = ErrorCode.INVALID_REQUEST, f"broker {request.broker_id} is the only one, and serves: stop it"
    return UnregisterBrokerResponse(error_code=error, error_message=reason)


def add_voter(ctx: Context, request: AddRaftVoterRequest) -> AddRaftVoterResponse:
    error, reason = _refuse_voter(ctx, request)
    return AddRaftVoterResponse(error_code=error, error_message=reason)


def remove_voter(ctx: Context, request: RemoveRaftVoterRequest) -> RemoveRaftVoterResponse:
    error, reason = _refuse_voter(ctx, request)
    return RemoveRaftVoterResponse(error_code=error, error_message=reason)


def _refuse_voter(ctx: Context, request: AddRaftVoterRequest | RemoveRaftVoterRequest) -> tuple[ErrorCode, str]:
    if request.cluster_id not in (None, ctx.broker.identity.cluster_id):
        return ErrorCode.INCONSISTENT_CLUSTER_ID, f"this is cluster {ctx.broker.identity.cluster_id}"
    if request.voter_id < 0 or request.voter_directory_id == ZERO_UUID:
        return ErrorCode.INVALID_REQUEST, f"node {request.voter_id} needs an id from 0 on, and its directory's id"
    return (
        ErrorCode.UNSUPPORTED_VERSION,
        f"node {ctx.broker.node_id} keeps the metadata alone: its voters do not change",
    )
