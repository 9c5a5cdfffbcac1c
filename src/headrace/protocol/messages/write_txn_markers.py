"""WriteTxnMarkers (API 27): the transaction coordinator tells partition leaders how transactions ended.

It runs between brokers. Version 0 went with Kafka 4.0; 1 is flexible; 2 says which version of transactions the marker
belongs to (KIP-1228).
"""

from headrace.protocol.messages.shared import TopicIndexes, TopicOutcome
from headrace.protocol.schema import Message, Struct, array, boolean, int8, int16, int32, int64


class WritableTxnMarker(Struct):
    producer_id: int = int64()
    producer_epoch: int = int16()
    transaction_result: bool = boolean()
    topics: list[TopicIndexes] = array(TopicIndexes)
    coordinator_epoch: int = int32()
    transaction_version: int = int8(since=2, ignorable=True)


class WriteTxnMarkersRequest(Message, api_key=27, versions=range(1, 3), flexible_since=1):
    markers: list[WritableTxnMarker] = array(WritableTxnMarker)


class WritableTxnMarkerResult(Struct):
    producer_id: int = int64()
    topics: list[TopicOutcome] = array(TopicOutcome)


class WriteTxnMarkersResponse(Message, api_key=27, versions=range(1, 3), flexible_since=1):
    markers: list[WritableTxnMarkerResult] = array(WritableTxnMarkerResult)
