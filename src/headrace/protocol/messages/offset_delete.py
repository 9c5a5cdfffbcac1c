"""OffsetDelete (API 47): forget a group's offsets for topics that it is not subscribed to (KIP-496).

There is one version, and it is not flexible.
"""

from headrace.protocol.messages.shared import TopicOutcome
from headrace.protocol.schema import Message, Struct, array, int16, int32, string


class OffsetDeleteRequestPartition(Struct):
    partition_index: int = int32()


class OffsetDeleteRequestTopic(Struct):
    name: str = string()
    partitions: list[OffsetDeleteRequestPartition] = array(OffsetDeleteRequestPartition)


class OffsetDeleteRequest(Message, api_key=47, versions=range(1)):
    group_id: str = string()
    topics: list[OffsetDeleteRequestTopic] = array(OffsetDeleteRequestTopic)


class OffsetDeleteResponse(Message, api_key=47, versions=range(1)):
    error_code: int = int16()
    throttle_time_ms: int = int32()
    topics: list[TopicOutcome] = array(TopicOutcome)
