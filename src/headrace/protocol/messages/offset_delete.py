"""OffsetDelete (API 47): forget a group's offsets for topics that it is not subscribed to (KIP-496).

There is one version, and it is not flexible.
"""

from headrace.protocol import schema as wire
from headrace.protocol.messages.shared import TopicOutcome


class OffsetDeleteRequestPartition(wire.Struct):
    partition_index: int = wire.int32()


class OffsetDeleteRequestTopic(wire.Struct):
    name: str = wire.string()
    partitions: list[OffsetDeleteRequestPartition] = wire.array(OffsetDeleteRequestPartition)


class OffsetDeleteRequest(wire.Message, api_key=47, versions=range(1)):
    group_id: str = wire.string()
    topics: list[OffsetDeleteRequestTopic] = wire.array(OffsetDeleteRequestTopic)


class OffsetDeleteResponse(wire.Message, api_key=47, versions=range(1)):
    error_code: int = wire.int16()
    throttle_time_ms: int = wire.int32()
    topics: list[TopicOutcome] = wire.array(TopicOutcome)
