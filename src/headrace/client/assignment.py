"""What members of a classic consumer group are assigned, as their leader wrote it.

To the broker the bytes are opaque; consumers of all kinds agree on Kafka's ConsumerProtocolAssignment: a version, the
topics with their partitions, and bytes of the assignor's own. Later versions only add at the end.
"""

import struct

from headrace.model import TopicPartition


def assigned_partitions(data: bytes) -> tuple[TopicPartition, ...]:
    """The partitions in an assignment, in order; none if it is empty, or in a language of its own."""
    try:
        return tuple(sorted(_partitions(data)))
    except (struct.error, UnicodeDecodeError):
        return ()


def _partitions(data: bytes) -> list[TopicPartition]:
    found = []
    _, topics = struct.unpack_from(">hi", data)
    position = 6
    for _ in range(topics):
        (length,) = struct.unpack_from(">h", data, position)
        (name,) = struct.unpack_from(f">{max(length, 0)}s", data, position + 2)
        position += 2 + len(name)
        (count,) = struct.unpack_from(">i", data, position)
        indexes = struct.unpack_from(f">{max(count, 0)}i", data, position + 4)
        position += 4 + 4 * len(indexes)
        found += [TopicPartition(name.decode(), index) for index in indexes]
    return found
