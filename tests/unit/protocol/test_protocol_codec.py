"""Messages to bytes and back: the bytes themselves, what is kept, what is refused, and with which words."""

import linecache
import traceback

import pytest

from headrace.protocol.codec import decode, decode_prefix, decoder_of, encode, encode_parts, releasing
from headrace.protocol.errors import MalformedMessage, NotRepresentable, UnsupportedVersion
from headrace.protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from headrace.protocol.messages.delete_topics import DeleteTopicsRequest
from headrace.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from headrace.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
    ReplicaState,
)
from headrace.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from headrace.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from headrace.protocol.messages.offset_fetch import OffsetFetchRequest
from headrace.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from headrace.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from headrace.protocol.schema import BOOLEAN, INT16, UUID, Message, RawTag, Struct, Uuid, array, int8

END_TXN = EndTxnRequest(transactional_id="tid", producer_id=258, producer_epoch=3, committed=True)
END_TXN_V0 = b"\x00\x03tid" + b"\x00\x00\x00\x00\x00\x00\x01\x02" + b"\x00\x03" + b"\x01"
END_TXN_V3 = b"\x04tid" + b"\x00\x00\x00\x00\x00\x00\x01\x02" + b"\x00\x03" + b"\x01" + b"\x00"


def test_the_bytes_of_a_version_that_is_not_flexible():
    assert encode(END_TXN, 0) == END_TXN_V0
    assert decode(EndTxnRequest, 0, END_TXN_V0) == END_TXN


def test_the_bytes_of_a_flexible_version():
    assert encode(END_TXN, 3) == END_TXN_V3
    assert decode(EndTxnRequest, 3, END_TXN_V3) == END_TXN


def test_any_kind_of_buffer_is_read():
    for kind in (bytes, bytearray, memoryview):
        assert decode(EndTxnRequest, 3, kind(END_TXN_V3)) == END_TXN
        assert decode(ProduceRequest, 9, kind(encode(ProduceRequest(acks=1), 9))) == ProduceRequest(acks=1)


def test_null_and_empty_are_told_apart():
    assert encode(MetadataRequest(topics=None), 1) == b"\xff\xff\xff\xff"
    assert encode(MetadataRequest(topics=[]), 1) == b"\x00\x00\x00\x00"
    assert decode(MetadataRequest, 1, b"\xff\xff\xff\xff").topics is None
    assert decode(MetadataRequest, 1, b"\x00\x00\x00\x00").topics == []
    assert encode(MetadataRequest(topics=None), 12) == b"\x00\x01\x00\x00"
    assert encode(MetadataRequest(topics=[]), 12) == b"\x01\x01\x00\x00"


def test_a_nullable_struct_has_a_byte_in_front():
    without = ConsumerGroupHeartbeatResponse(member_id="m")
    assert encode(without, 0)[-2:] == b"\xff\x00"
    assigned = Assignment(topic_partitions=[TopicPartitions(topic_id=b"t" * 16, partitions=[1, 2])])
    data = encode(ConsumerGroupHeartbeatResponse(member_id="m", assignment=assigned), 0)
    partitions = b"\x03\x00\x00\x00\x01\x00\x00\x00\x02"
    assert data.endswith(b"\x01" + b"\x02" + b"t" * 16 + partitions + b"\x00" + b"\x00" + b"\x00")
    assert decode(ConsumerGroupHeartbeatResponse, 0, data).assignment == assigned


def test_a_tagged_field_is_written_only_when_set():
    assert encode(FetchRequest(), 15)[-1:] == b"\x00"
    state = ReplicaState(replica_id=1, replica_epoch=2)
    data = encode(FetchRequest(replica_state=state, cluster_id="c"), 15)
    tags = b"\x02" + b"\x00\x02\x02c" + b"\x01\x0d" + b"\x00\x00\x00\x01" + b"\x00" * 7 + b"\x02" + b"\x00"
    assert data.endswith(tags)
    decoded = decode(FetchRequest, 15, data)
    assert decoded.replica_state == state
    assert decoded.cluster_id == "c"


class Unusual(Message, api_key=999, versions=range(1), flexible_since=0):
    """What no API of today has, and the language allows: tags out of order, and arrays of any fixed-size type."""

    second: int = int8(tag=2)
    first: list[int] = array(INT16, tag=1)
    flags: list[bool] = array(BOOLEAN)
    ids: list[Uuid] = array(UUID)


def test_tags_are_written_in_order_however_they_are_declared():
    message = Unusual(second=5, first=[1, 2], flags=[True, False], ids=[b"a" * 16, b"b" * 16])
    data = encode(message, 0)
    fixed = b"\x03\x01\x00" + b"\x03" + b"a" * 16 + b"b" * 16
    assert data == fixed + b"\x02" + b"\x01\x05\x03\x00\x01\x00\x02" + b"\x02\x01\x05"
    assert decode(Unusual, 0, data) == message
    assert decode(Unusual, 0, fixed + b"\x02" + b"\x02\x01\x05" + b"\x01\x05\x03\x00\x01\x00\x02") == message


def test_unknown_tags_are_kept_in_every_struct_and_written_in_order():
    plain = encode(EndTxnRequest(), 3)
    tagged = plain[:-1] + b"\x02" + b"\x05\x02hi" + b"\x80\x01\x00"
    decoded = decode(EndTxnRequest, 3, tagged)
    assert decoded.unknown_tags == (RawTag(5, b"hi"), RawTag(128, b""))
    assert encode(decoded, 3) == tagged

    topic = FetchTopic(unknown_tags=(RawTag(7, b"in"),))
    message = FetchRequest(topics=[topic], cluster_id="c", unknown_tags=(RawTag(9, b"out"), RawTag(4, b"of order")))
    decoded = decode(FetchRequest, 13, encode(message, 13))
    assert decoded.topics == [topic]
    assert decoded.cluster_id == "c"
    assert decoded.unknown_tags == (RawTag(4, b"of order"), RawTag(9, b"out"))


def test_a_tag_of_a_later_version_is_kept_as_unknown():
    newer = decode(FetchRequest, 15, encode(FetchRequest(replica_state=ReplicaState(replica_id=1)), 15))
    assert newer.unknown_tags == ()
    assert newer.replica_state.replica_id == 1
    older = decode(FetchRequest, 14, encode(FetchRequest(unknown_tags=(RawTag(1, b"whatever"),)), 14))
    assert older.unknown_tags == (RawTag(1, b"whatever"),)
    assert older.replica_state == ReplicaState()


def test_record_batches_are_views_and_other_bytes_are_copies():
    records = bytes(range(256)) * 4
    sent = ProduceRequest(topic_data=[TopicProduceData(partition_data=[PartitionProduceData(records=records)])])
    for version in (3, 9):
        assert any(part is records for part in encode_parts(sent, version))
        frame = bytearray(encode(sent, version))
        view = decode(ProduceRequest, version, frame).topic_data[0].partition_data[0].records
        assert isinstance(view, memoryview)
        assert view == records
        frame[frame.index(records)] ^= 0xFF
        assert view != records

    sync = SyncGroupRequest(assignments=[SyncGroupRequestAssignment(member_id="m", assignment=b"mine")])
    frame = bytearray(encode(sync, 4))
    [assignment] = decode(SyncGroupRequest, 4, memoryview(frame)).assignments
    frame[:] = bytes(len(frame))
    assert assignment.assignment == b"mine"


def test_a_message_is_found_at_a_position_and_what_follows_is_let_be():
    decoded, end = decode_prefix(EndTxnRequest, 3, b"before" + END_TXN_V3 + b"after", 6)
    assert decoded == END_TXN
    assert end == 6 + len(END_TXN_V3)


def test_an_undeclared_version_is_refused():
    for version in (-1, 6):
        with pytest.raises(UnsupportedVersion) as caught:
            decode(EndTxnRequest, version, END_TXN_V0)
        assert (caught.value.api_key, caught.value.version) == (26, version)
        with pytest.raises(UnsupportedVersion):
            encode(END_TXN, version)


def test_compiled_code_is_there_for_tracebacks():
    decoder = decoder_of(EndTxnRequest, 3)
    assert decoder is decoder_of(EndTxnRequest, 3)
    assert "def decode(data, position):" in linecache.getline(decoder.__code__.co_filename, 1)
    with pytest.raises(MalformedMessage) as caught:
        decode(EndTxnRequest, 3, b"")
    assert any("EndTxnRequest v3 decoder" in line for line in traceback.format_tb(caught.value.__traceback__))


# Malformed bytes, one case for each way to be wrong: what is said, and at which byte.

LONG_STRING = b"\x81\x80\x02" + b"x" * 32768
MALFORMED = {
    "nothing at all": (EndTxnRequest, 0, b"", "EndTxnRequest v0, transactional_id: the bytes end here", 0),
    "cut inside numbers": (EndTxnRequest, 0, END_TXN_V0[:9], "EndTxnRequest v0, producer_id: the bytes end here", 5),
    "cut before the tags": (EndTxnRequest, 3, END_TXN_V3[:-1], "EndTxnRequest v3, producer_id: the bytes end here", 4),
    "null string": (EndTxnRequest, 0, b"\xff\xff", "transactional_id: it is null, which it may not be", 2),
    "null compact string": (EndTxnRequest, 3, b"\x00", "transactional_id: it is null, which it may not be", 1),
    "negative string": (EndTxnRequest, 0, b"\xff\xfe", "transactional_id: its length is -2", 2),
    "overlong string": (EndTxnRequest, 0, b"\x00\x05abc", "its length is 5, and 3 bytes are left", 2),
    "overlong compact string": (EndTxnRequest, 3, b"\x06abc", "its length is 5, and 3 bytes are left", 1),
    "string over the limit": (EndTxnRequest, 3, LONG_STRING, "a string of 32768 bytes is over the limit of 32767", 1),
    "not UTF-8": (EndTxnRequest, 3, b"\x03\xc3\x28" + bytes(12), "transactional_id: it is not UTF-8", 1),
    "endless varint": (EndTxnRequest, 3, b"\xff" * 12, "a varint does not end", 1),
    "varint of 33 bits": (EndTxnRequest, 3, b"\xff\xff\xff\xff\x1f", "a varint has more than 32 bits", 1),
    "cut varint": (EndTxnRequest, 3, b"\xff", "transactional_id: the bytes end here", 1),
    "null array": (MetadataRequest, 0, b"\xff\xff\xff\xff", "topics: it is null, which it may not be", 4),
    "null compact array": (FetchResponse, 12, bytes(10) + b"\x00", "responses: it is null, which it may not be", 11),
    "negative array": (MetadataRequest, 1, b"\xff\xff\xff\xfe", "topics: its count is -2", 4),
    "overlong array": (MetadataRequest, 1, b"\x7f\xff\xff\xff\x00\x00", "count is 2147483647, and 2 bytes are left", 4),
    "overlong compact array": (MetadataRequest, 12, b"\xff\xff\xff\xff\x0f", "its count is 4294967294, and 0 bytes", 5),
    "overlong numbers": (
        OffsetFetchRequest,
        1,
        b"\0\0\0\0\0\1\0\0\0\0\0\2" + bytes(4),
        "its count is 2, and 4 bytes",
        12,
    ),
    "null inside an array": (MetadataRequest, 9, b"\x02\x00\x00\x00\x00", "topics.name: it is null", 2),
    "negative bytes": (
        SyncGroupRequest,
        0,
        bytes(8) + b"\0\0\0\1\0\0\xff\xff\xff\xfe",
        "assignment: its length is -2",
        18,
    ),
    "overlong records": (
        ProduceRequest,
        3,
        bytes(8) + b"\0\0\0\1\0\0\0\0\0\1" + bytes(4) + b"\0\0\0\2.",
        "length is 2",
        26,
    ),
    "too many tags": (EndTxnRequest, 3, END_TXN_V3[:-1] + b"\x02\x05\x00", "tagged fields: its count is 2", 16),
    "overlong tag": (EndTxnRequest, 3, END_TXN_V3[:-1] + b"\x01\x05\x03ab", "tagged fields: its length is 3", 16),
    "wrong size of a known tag": (
        FetchRequest,
        12,
        encode(FetchRequest(), 12)[:-1] + b"\x01\x00\x04\x02c..",
        "cluster_id: its size is not that of its tag",
        33,
    ),
    "bytes left over": (EndTxnRequest, 3, END_TXN_V3 + b"\x00\x00", "EndTxnRequest v3: 2 bytes are left over", 16),
}


@pytest.mark.parametrize("case", MALFORMED)
def test_malformed_bytes_are_refused_with_what_and_where(case):
    message, version, data, what, position = MALFORMED[case]
    with pytest.raises(MalformedMessage) as caught:
        decode(message, version, data)
    assert what in caught.value.what
    assert caught.value.position == position
    assert f"at byte {position}" in str(caught.value)


# Values that a version cannot carry.


def test_a_field_that_the_version_lacks_is_refused_when_it_is_set():
    assert encode(MetadataRequest(), 3) == encode(MetadataRequest(allow_auto_topic_creation=True), 3)
    with pytest.raises(NotRepresentable, match="MetadataRequest v3, allow_auto_topic_creation: it is set"):
        encode(MetadataRequest(allow_auto_topic_creation=False), 3)
    with pytest.raises(NotRepresentable, match="OffsetFetchRequest v8, group_id: it is set"):
        encode(OffsetFetchRequest(group_id="g"), 8)
    with pytest.raises(NotRepresentable, match="FetchRequest v14, replica_state: it is set"):
        encode(FetchRequest(replica_state=ReplicaState(replica_id=3)), 14)
    topic = FetchableTopicResponse(partitions=[PartitionData(preferred_read_replica=1)])
    with pytest.raises(NotRepresentable, match=r"FetchResponse v4, responses.partitions.preferred_read_replica: it is"):
        encode(FetchResponse(responses=[topic]), 4)


def test_an_ignorable_field_that_the_version_lacks_is_dropped():
    told = EndTxnResponse(error_code=1, producer_id=5, producer_epoch=6)
    assert encode(told, 4) == encode(EndTxnResponse(error_code=1), 4)
    assert decode(EndTxnResponse, 5, encode(told, 5)) == told


def test_null_is_refused_where_the_version_has_none():
    with pytest.raises(NotRepresentable, match="MetadataRequest v0, topics: it is null"):
        encode(MetadataRequest(topics=None), 0)
    with pytest.raises(NotRepresentable, match=r"MetadataRequest v9, topics\.name: it is null"):
        encode(MetadataRequest(topics=[MetadataRequestTopic(name=None)]), 9)
    with pytest.raises(NotRepresentable, match="EndTxnRequest v3, transactional_id"):
        encode(EndTxnRequest(transactional_id=None), 3)


def test_values_that_do_not_fit_are_refused():
    with pytest.raises(NotRepresentable, match=r"EndTxnRequest v0, producer_id, producer_epoch, committed: 'h' format"):
        encode(EndTxnRequest(producer_epoch=32768), 0)
    with pytest.raises(NotRepresentable, match=r"topics\.topic_id: a uuid is 16 bytes, not b'short'"):
        encode(MetadataRequest(topics=[MetadataRequestTopic(topic_id=b"short")]), 12)
    with pytest.raises(NotRepresentable, match=r"transactional_id.*surrogates not allowed"):
        encode(EndTxnRequest(transactional_id="\ud800"), 3)
    longest = EndTxnRequest(transactional_id="x" * 32767)
    for version in (0, 3):
        assert decode(EndTxnRequest, version, encode(longest, version)) == longest
        with pytest.raises(NotRepresentable, match="transactional_id"):
            encode(EndTxnRequest(transactional_id="x" * 32768), version)


def test_tags_are_refused_where_they_cannot_be():
    with pytest.raises(NotRepresentable, match="EndTxnRequest v2, tagged fields: this version has no tagged fields"):
        encode(EndTxnRequest(unknown_tags=(RawTag(1, b""),)), 2)
    with pytest.raises(NotRepresentable, match="tag 0, which is a field of this version"):
        encode(FetchRequest(cluster_id="c", unknown_tags=(RawTag(0, b""),)), 12)
    with pytest.raises(NotRepresentable, match="does not fit a varint"):
        encode(EndTxnRequest(unknown_tags=(RawTag(2**32, b""),)), 3)


def test_large_arrays_have_counts_of_more_than_one_byte():
    topics = [MetadataResponseTopic(name=f"topic-{number}") for number in range(300)]
    for version in (8, 12):
        data = encode(MetadataResponse(topics=topics), version)
        assert decode(MetadataResponse, version, data).topics == topics
    names = [f"topic-{number}" for number in range(20_000)]
    for version in (3, 5):
        data = encode(DeleteTopicsRequest(topic_names=names), version)
        assert decode(DeleteTopicsRequest, version, data).topic_names == names


# --- letting go


class Counted(str):
    """A name that is counted when it goes."""

    __slots__ = ()
    gone = 0

    def __del__(self) -> None:
        Counted.gone += 1


@pytest.mark.parametrize(("topics", "partitions"), [(1, 5_000), (5_000, 1), (70, 70)])
def test_a_large_message_goes_a_few_entries_at_a_time(topics: int, partitions: int) -> None:
    request = OffsetCommitRequest()
    request.topics = [
        OffsetCommitRequestTopic(
            name=Counted("topic"),
            partitions=[OffsetCommitRequestPartition(committed_metadata=Counted("entry")) for _ in range(partitions)],
        )
        for _ in range(topics)
    ]
    kept = request.topics[0].partitions[0]
    held: list[Struct] = [request]
    del request
    Counted.gone = 0
    most = before = 0
    for _ in releasing(held):
        most, before = max(most, Counted.gone - before), Counted.gone
    assert not held
    assert 0 < most <= 128
    assert Counted.gone == topics + topics * partitions - 1
    assert kept.committed_metadata == "entry"  # what others hold stays as it is
