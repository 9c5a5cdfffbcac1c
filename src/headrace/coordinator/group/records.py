"""The records of `__consumer_offsets` to bytes and back, in Kafka's own formats."""

from struct import Struct as Layout
from struct import error as struct_error

from headrace.coordinator.decision import CoordinatorRecord
from headrace.coordinator.group import record_formats as formats
from headrace.coordinator.group.share import group as share
from headrace.coordinator.group.streams import formats as streams
from headrace.coordinator.record_types import RecordType, RecordTypes
from headrace.protocol.schema import ZERO_UUID, RawTag

# What Kafka wrote before 0.9 kept offsets by; its key and value look like the first versions of today's.
_LEGACY_OFFSET_COMMIT = RecordType(0, formats.OffsetCommitKey, formats.OffsetCommitValue, 0)

RECORD_TYPES = (
    RecordType(1, formats.OffsetCommitKey, formats.OffsetCommitValue, 4),
    # Not the newest, 4, which is flexible: Kafka does not write it either, so that older brokers can read it.
    RecordType(2, formats.GroupMetadataKey, formats.GroupMetadataValue, 3),
    RecordType(3, formats.ConsumerGroupMetadataKey, formats.ConsumerGroupMetadataValue, 0),
    RecordType(4, formats.ConsumerGroupPartitionMetadataKey, formats.ConsumerGroupPartitionMetadataValue, 0),
    RecordType(5, formats.ConsumerGroupMemberMetadataKey, formats.ConsumerGroupMemberMetadataValue, 0),
    RecordType(
        6, formats.ConsumerGroupTargetAssignmentMetadataKey, formats.ConsumerGroupTargetAssignmentMetadataValue, 0
    ),
    RecordType(7, formats.ConsumerGroupTargetAssignmentMemberKey, formats.ConsumerGroupTargetAssignmentMemberValue, 0),
    RecordType(
        8, formats.ConsumerGroupCurrentMemberAssignmentKey, formats.ConsumerGroupCurrentMemberAssignmentValue, 0
    ),
    RecordType(10, share.ShareGroupMemberMetadataKey, share.ShareGroupMemberMetadataValue, 0),
    RecordType(11, share.ShareGroupMetadataKey, share.ShareGroupMetadataValue, 0),
    RecordType(12, share.ShareGroupTargetAssignmentMetadataKey, share.ShareGroupTargetAssignmentMetadataValue, 0),
    RecordType(13, share.ShareGroupTargetAssignmentMemberKey, share.ShareGroupTargetAssignmentMemberValue, 0),
    RecordType(14, share.ShareGroupCurrentMemberAssignmentKey, share.ShareGroupCurrentMemberAssignmentValue, 0),
    RecordType(15, share.ShareGroupStatePartitionMetadataKey, share.ShareGroupStatePartitionMetadataValue, 0),
    RecordType(16, formats.ConsumerGroupRegularExpressionKey, formats.ConsumerGroupRegularExpressionValue, 0),
    RecordType(17, streams.StreamsGroupMetadataKey, streams.StreamsGroupMetadataValue, 0),
    RecordType(19, streams.StreamsGroupMemberMetadataKey, streams.StreamsGroupMemberMetadataValue, 0),
    RecordType(
        20, streams.StreamsGroupTargetAssignmentMetadataKey, streams.StreamsGroupTargetAssignmentMetadataValue, 0
    ),
    RecordType(21, streams.StreamsGroupTargetAssignmentMemberKey, streams.StreamsGroupTargetAssignmentMemberValue, 0),
    RecordType(22, streams.StreamsGroupCurrentMemberAssignmentKey, streams.StreamsGroupCurrentMemberAssignmentValue, 0),
    RecordType(23, streams.StreamsGroupTopologyKey, streams.StreamsGroupTopologyValue, 0),
)

_TYPES = RecordTypes("__consumer_offsets", RECORD_TYPES, only_read=[_LEGACY_OFFSET_COMMIT])

_VERSION_WITH_EXPIRY = 1

# Kafka's default for a member's classic metadata is not null but an empty struct, and null is what it always writes for
# a member of the new protocol: left out, it would be read as a member that speaks the classic one. In a tagged struct
# null is a varint 0, and not the -1 of other structs, which earlier versions wrote here and which is still read.
_NULL_CLASSIC_METADATA = RawTag(0, b"\x00")


_LENGTH = Layout(">h")
_OFFSET_KEY_START = Layout(">hh")  # its type, and the length of the group's name
_PARTITION = Layout(">i")
_OFFSET_VALUE_START = Layout(">hqiB")  # its version, offset, leader epoch, and the length of the metadata and one more
_OFFSET_VALUE_END = Layout(">q")
_TOPIC_ID = b"\x01\x00\x10"  # one tagged field: its number and its size
_MOST_METADATA = 126  # bytes whose length is one byte


def encode(record: CoordinatorRecord) -> tuple[bytes, bytes | None]:
    """The key and the value as they are written; the value of a tombstone is None."""
    value = record.value
    if isinstance(value, formats.OffsetCommitValue):
        if value.expire_timestamp != -1:
            return _TYPES.encode(record, _VERSION_WITH_EXPIRY)
        if isinstance(record.key, formats.OffsetCommitKey):
            return _encode_offset(record.key, value) or _TYPES.encode(record)
    if isinstance(value, formats.ConsumerGroupMemberMetadataValue) and value.classic_member_metadata is None:
        value = value.replaced(unknown_tags=(_NULL_CLASSIC_METADATA, *value.unknown_tags))
        return _TYPES.encode(record._replace(value=value))
    return _TYPES.encode(record)


def _encode_offset(key: formats.OffsetCommitKey, value: formats.OffsetCommitValue) -> tuple[bytes, bytes] | None:
    """The same at a third of the cost, for what is written thousands of times a second; None if it is not as usual."""
    group, topic, metadata = key.group.encode(), key.topic.encode(), value.metadata.encode()
    if len(metadata) > _MOST_METADATA or key.unknown_tags or value.unknown_tags or value.topic_id == ZERO_UUID:
        return None
    try:
        return (
            b"".join(
                (
                    _OFFSET_KEY_START.pack(1, len(group)),
                    group,
                    _LENGTH.pack(len(topic)),
                    topic,
                    _PARTITION.pack(key.partition),
                )
            ),
            b"".join(
                (
                    _OFFSET_VALUE_START.pack(4, value.offset, value.leader_epoch, len(metadata) + 1),
                    metadata,
                    _OFFSET_VALUE_END.pack(value.commit_timestamp),
                    _TOPIC_ID,
                    value.topic_id,
                )
            ),
        )
    except struct_error:
        return None


decode = _TYPES.decode
