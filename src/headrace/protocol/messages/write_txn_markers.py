"""WriteTxnMarkers (API 27): the transaction coordinator tells partition leaders how transactions ended.

It runs between brokers. Version 0 went with Kafka 4.0; 1 is flexible; 2 says which version of transactions the marker
belongs to (KIP-1228).
"""

from headrace.protocol.schema import INT32, Message, Struct, array, boolean, int8, int16, int32, int64, string


class WritableTxnMarkerTopic(Struct):
    """The partitions of one topic."""

    name: str = string()
    partition_indexes: list[int] = array(INT32)


class WritableTxnMarker(Struct):
    """How one transaction ended, and the partitions that have to know."""

    producer_id: int = int64()
    producer_epoch: int = int16()
    transaction_result: bool = boolean()
    topics: list[WritableTxnMarkerTopic] = array(WritableTxnMarkerTopic)
    coordinator_epoch: int = int32()
    transaction_version: int = int8(since=2, ignorable=True)


class WriteTxnMarkersRequest(Message, api_key=27, versions=range(1, 3), flexible_since=1):
    """The markers to write."""

    markers: list[WritableTxnMarker] = array(WritableTxnMarker)


class WritableTxnMarkerPartitionResult(Struct):
    """The outcome for one partition."""

    partition_index: int = int32()
    error_code: int = int16()


class WritableTxnMarkerTopicResult(Struct):
    """The outcome for one topic."""

    name: str = string()
    partitions: list[WritableTxnMarkerPartitionResult] = array(WritableTxnMarkerPartitionResult)


class WritableTxnMarkerResult(Struct):
    """The outcome for one producer."""

    producer_id: int = int64()
    topics: list[WritableTxnMarkerTopicResult] = array(WritableTxnMarkerTopicResult)


class WriteTxnMarkersResponse(Message, api_key=27, versions=range(1, 3), flexible_since=1):
    """Whether each marker was written."""

    markers: list[WritableTxnMarkerResult] = array(WritableTxnMarkerResult)
