"""The records of `__consumer_offsets` to bytes and back, in Kafka's own formats.

A key starts with two bytes that say its type, a value with two that say its version. What always holds: a record that
is decoded and encoded again means the same, and a type that is not known here is passed over, as Kafka does, so that a
topic written by a newer broker can be read.
"""

from dataclasses import replace
from typing import NamedTuple

from headrace.coordinator.decision import CoordinatorRecord
from headrace.coordinator.group import record_formats as formats
from headrace.protocol import codec
from headrace.protocol.errors import MalformedMessage
from headrace.protocol.schema import Buffer, Message, RawTag


class RecordType(NamedTuple):
    """One type of record: the number in front of its key, and the version in which its value is written."""

    number: int
    key: type[Message]
    value: type[Message]
    written_version: int


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
    RecordType(16, formats.ConsumerGroupRegularExpressionKey, formats.ConsumerGroupRegularExpressionValue, 0),
)

_BY_NUMBER = {kind.number: kind for kind in (_LEGACY_OFFSET_COMMIT, *RECORD_TYPES)}
_BY_KEY = {kind.key: kind for kind in RECORD_TYPES}

_KEY_VERSION = 0  # the two bytes in front of a key used to be its version, and are its type today
_VERSION_WITH_EXPIRY = 1

# Kafka's default for a member's classic metadata is not null but an empty struct, and null is what it always writes for
# a member of the new protocol: left out, it would be read as a member that speaks the classic one. In a tagged struct
# null is a varint 0, and not the -1 of other structs, which earlier versions wrote here and which is still read.
_NULL_CLASSIC_METADATA = RawTag(0, b"\x00")


def encode(record: CoordinatorRecord) -> tuple[bytes, bytes | None]:
    """The key and the value as they are written; the value of a tombstone is None."""
    key, value = record.key, record.value
    if not isinstance(key, Message) or type(key) not in _BY_KEY:
        raise TypeError(f"{type(key).__name__} is not the key of a record of __consumer_offsets")
    kind = _BY_KEY[type(key)]
    key_bytes = kind.number.to_bytes(2, "big") + codec.encode(key, _KEY_VERSION)
    if value is None:
        return key_bytes, None
    if not isinstance(value, kind.value):
        raise TypeError(f"{type(value).__name__} is not the value of a {type(key).__name__}")
    version = kind.written_version
    if isinstance(value, formats.OffsetCommitValue) and value.expire_timestamp != -1:
        version = _VERSION_WITH_EXPIRY
    if isinstance(value, formats.ConsumerGroupMemberMetadataValue) and value.classic_member_metadata is None:
        value = replace(value, unknown_tags=(_NULL_CLASSIC_METADATA, *value.unknown_tags))
    return key_bytes, version.to_bytes(2, "big") + codec.encode(value, version)


def decode(key: Buffer, value: Buffer | None) -> CoordinatorRecord | None:
    """The record; None if its type is not known here."""
    kind = _BY_NUMBER.get(_leading_number(key))
    if kind is None:
        return None
    decoded_key = codec.decode(kind.key, _KEY_VERSION, bytes(key[2:]))
    if value is None:
        return CoordinatorRecord(decoded_key, None)
    return CoordinatorRecord(decoded_key, codec.decode(kind.value, _leading_number(value), bytes(value[2:])))


def _leading_number(data: Buffer) -> int:
    if len(data) < 2:
        raise MalformedMessage("a record of __consumer_offsets is shorter than the two bytes it starts with", 0)
    return int.from_bytes(data[:2], "big", signed=True)
