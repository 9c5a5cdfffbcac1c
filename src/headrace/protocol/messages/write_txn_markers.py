"""WriteTxnMarkers (API 27): the transaction coordinator tells partition leaders how transactions ended.

It runs between brokers. Version 0 went with Kafka 4.0; 1 is flexible; 2 says which version of transactions the marker
belongs to (KIP-1228).
"""

from headrace.protocol import schema as wire
from headrace.protocol.messages.shared import TopicIndexes, TopicOutcome


class WritableTxnMarker(wire.Struct):
    producer_id: int = wire.int64()
    producer_epoch: int = wire.int16()
    transaction_result: bool = wire.boolean()
    topics: list[TopicIndexes] = wire.array(TopicIndexes)
    coordinator_epoch: int = wire.int32()
    transaction_version: int = wire.int8(since=2, ignorable=True)


class WriteTxnMarkersRequest(wire.Message, api_key=27, versions=range(1, 3), flexible_since=1):
    markers: list[WritableTxnMarker] = wire.array(WritableTxnMarker)


class WritableTxnMarkerResult(wire.Struct):
    producer_id: int = wire.int64()
    topics: list[TopicOutcome] = wire.array(TopicOutcome)


class WriteTxnMarkersResponse(wire.Message, api_key=27, versions=range(1, 3), flexible_since=1):
    markers: list[WritableTxnMarkerResult] = wire.array(WritableTxnMarkerResult)
