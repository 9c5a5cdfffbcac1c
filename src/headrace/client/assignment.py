"""What members of a classic consumer group are assigned, as their leader wrote it.

To the broker the bytes are opaque; consumers of all kinds agree on Kafka's ConsumerProtocolAssignment, of which every
version starts in the same way.
"""

from headrace.model import TopicPartition
from headrace.protocol import codec
from headrace.protocol.errors import ProtocolError
from headrace.protocol.schema import INT32, Message, Struct, array, int16, string


class AssignedTopic(Struct):
    """Partitions of one topic."""

    topic: str = string()
    partitions: list[int] = array(INT32)


class AssignmentPrefix(Message, versions=range(1)):
    """How an assignment starts in every version of it."""

    version: int = int16()
    topics: list[AssignedTopic] = array(AssignedTopic)


def assigned_partitions(data: bytes) -> tuple[TopicPartition, ...]:
    """The partitions in an assignment, in order; none if it is empty, or is not one."""
    try:
        prefix, _ = codec.decode_prefix(AssignmentPrefix, 0, data)
    except ProtocolError:
        return ()
    return tuple(sorted(TopicPartition(topic.topic, index) for topic in prefix.topics for index in topic.partitions))
