"""The records of `__consumer_offsets`: round trips, and the bytes that Kafka's formats ask for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.coordinator.decision import CoordinatorRecord
from headrace.coordinator.group.record_formats import (
    ClassicMemberMetadata,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    GroupMetadataKey,
    OffsetCommitKey,
    OffsetCommitValue,
)
from headrace.coordinator.group.records import RECORD_TYPES, decode, encode
from headrace.protocol import codec
from headrace.protocol.errors import MalformedMessage, NotRepresentable, UnsupportedVersion
from headrace.protocol.schema import ZERO_UUID, RawTag
from tests.property.message_strategies import Values
from tests.property.storage_model import examples


@pytest.mark.parametrize("kind", RECORD_TYPES, ids=lambda kind: kind.key.__name__)
@examples(20)
@given(data=st.data())
def test_a_record_comes_back_as_it_was(kind, data):
    key = data.draw(Values(0, flexible=False).struct(kind.key))
    version = kind.written_version
    value = data.draw(Values(version, flexible=kind.value.__schema__.is_flexible(version)).struct(kind.value))
    record = CoordinatorRecord(key, value)
    assert decode(*encode(record)) == record
    assert decode(*encode(CoordinatorRecord(key, None))) == CoordinatorRecord(key, None)


texts = st.text(max_size=300) | st.text("ab", min_size=120, max_size=130)
numbers = st.integers(-(2**63), 2**63 - 1)


@examples(200)
@given(data=st.data())
def test_an_offset_is_written_the_short_way_as_the_codec_writes_it(data):
    key = OffsetCommitKey(
        group=data.draw(texts), topic=data.draw(texts), partition=data.draw(st.integers(-(2**31), 2**31 - 1))
    )
    value = OffsetCommitValue(
        offset=data.draw(numbers),
        leader_epoch=data.draw(st.integers(-(2**31), 2**31 - 1)),
        metadata=data.draw(texts),
        commit_timestamp=data.draw(numbers),
        topic_id=data.draw(st.just(ZERO_UUID) | st.binary(min_size=16, max_size=16)),
        unknown_tags=data.draw(st.just(()) | st.just((RawTag(7, b"x"),))),
    )
    expected = (b"\0\1" + codec.encode(key, 0), b"\0\4" + codec.encode(value, 4))
    assert encode(CoordinatorRecord(key, value)) == expected


@pytest.mark.parametrize("what", ["group", "topic", "metadata"])
def test_an_offset_that_cannot_be_written_is_refused_as_the_codec_refuses_it(what):
    long = {what: "x" * 2**15}
    key = OffsetCommitKey(**{"group": "g", "topic": "t", "partition": 1, **long} if what != "metadata" else {})
    value = OffsetCommitValue(topic_id=b"1" * 16, **(long if what == "metadata" else {"metadata": ""}))
    with pytest.raises(NotRepresentable):
        encode(CoordinatorRecord(key, value))


def test_an_offset_is_written_as_kafka_writes_it():
    key = OffsetCommitKey(group="g", topic="t", partition=3)
    value = OffsetCommitValue(offset=7, leader_epoch=2, metadata="m", commit_timestamp=9)
    key_bytes, value_bytes = encode(CoordinatorRecord(key, value))
    assert key_bytes == b"\x00\x01\x00\x01g\x00\x01t\x00\x00\x00\x03"
    assert value_bytes == (b"\x00\x04" + bytes(7) + b"\x07\x00\x00\x00\x02\x02m" + bytes(7) + b"\x09\x00")


def test_an_offset_with_an_expiry_is_written_in_the_one_version_that_has_it():
    value = OffsetCommitValue(offset=7, metadata="", commit_timestamp=9, expire_timestamp=11)
    record = CoordinatorRecord(OffsetCommitKey(group="g", topic="t", partition=3), value)
    _, value_bytes = encode(record)
    assert value_bytes[:2] == b"\x00\x01"
    assert decode(*encode(record)) == record


def test_an_offset_of_an_older_version_is_read():
    key, _ = encode(CoordinatorRecord(OffsetCommitKey(group="g", topic="t", partition=3), None))
    for type_number in (0, 1):
        for version in range(5):
            value = OffsetCommitValue(offset=7, metadata="m", commit_timestamp=9)
            stored = version.to_bytes(2, "big") + codec.encode(value, version)
            read = decode(type_number.to_bytes(2, "big") + key[2:], stored)
            assert read == CoordinatorRecord(OffsetCommitKey(group="g", topic="t", partition=3), value)


def test_a_member_without_classic_metadata_says_so():
    """Kafka reads an absent field as an empty struct, and the member as one that speaks the classic protocol."""
    key = ConsumerGroupMemberMetadataKey(group_id="g", member_id="m")
    member = ConsumerGroupMemberMetadataValue(
        instance_id=None, rack_id=None, subscribed_topic_regex=None, server_assignor=None
    )
    _, value = encode(CoordinatorRecord(key, member))
    assert value.endswith(b"\x01\x00\x01\x00")  # one tag, number 0, one byte, null
    assert decode(*encode(CoordinatorRecord(key, member))).value == member

    member.classic_member_metadata = ClassicMemberMetadata(session_timeout_ms=5)
    assert decode(*encode(CoordinatorRecord(key, member))).value == member


def test_an_unknown_type_is_passed_over():
    assert decode(b"\x00\x63whatever", b"\x00\x00whatever") is None
    assert decode(b"\xff\xff", None) is None


def test_what_is_no_record_is_refused():
    key, _ = encode(CoordinatorRecord(GroupMetadataKey(group="g"), None))
    with pytest.raises(UnsupportedVersion):
        decode(key, b"\x00\x63")
    with pytest.raises(MalformedMessage):
        decode(b"\x00", None)
    with pytest.raises(TypeError):
        encode(CoordinatorRecord("a key of another kind", None))
    with pytest.raises(TypeError):
        encode(CoordinatorRecord(GroupMetadataKey(group="g"), OffsetCommitValue()))
