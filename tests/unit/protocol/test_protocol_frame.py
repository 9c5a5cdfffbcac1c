"""Frames in a stream, and the header in front of each body."""

import pytest

from headrace.protocol.api import APIS, ApiKey
from headrace.protocol.errors import MalformedMessage, UnsupportedVersion
from headrace.protocol.frame import (
    RequestHeader,
    decode_request,
    decode_request_header,
    decode_response,
    encode_request,
    encode_response,
    encode_response_parts,
    encoding_response_parts,
    request_header_version,
    response_header_version,
)
from headrace.protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from headrace.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from headrace.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from headrace.protocol.messages.metadata import MetadataResponse, MetadataResponseTopic
from headrace.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from headrace.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData


def _framed(body):
    return len(body).to_bytes(4, "big") + body


def test_header_versions():
    assert request_header_version(EndTxnRequest, 2) == 1
    assert request_header_version(EndTxnRequest, 3) == 2
    assert response_header_version(EndTxnResponse, 2) == 0
    assert response_header_version(EndTxnResponse, 3) == 1
    assert request_header_version(OffsetDeleteRequest, 0) == 1
    assert response_header_version(OffsetDeleteResponse, 0) == 0
    assert request_header_version(ApiVersionsRequest, 3) == 2
    assert [response_header_version(ApiVersionsResponse, version) for version in range(5)] == [0] * 5


def test_the_bytes_of_a_request():
    body = EndTxnRequest(transactional_id="t", producer_id=1, producer_epoch=2, committed=True)
    rest = b"\x00\x00\x00\x00\x00\x00\x00\x01\x00\x02\x01"
    head = b"\x00\x1a\x00\x02\x00\x00\x00\x07"
    assert encode_request(body, 2, 7, "me") == _framed(head + b"\x00\x02me" + b"\x00\x01t" + rest)
    assert encode_request(body, 2, 7, None) == _framed(head + b"\xff\xff" + b"\x00\x01t" + rest)
    # Flexible, and the client id has two bytes of length all the same.
    head = b"\x00\x1a\x00\x03\x00\x00\x00\x07"
    assert encode_request(body, 3, 7, "me") == _framed(head + b"\x00\x02me\x00" + b"\x02t" + rest + b"\x00")


def test_the_bytes_of_a_response():
    body = EndTxnResponse(throttle_time_ms=1, error_code=2)
    assert encode_response(body, 2, 7) == _framed(b"\x00\x00\x00\x07" + b"\x00\x00\x00\x01\x00\x02")
    assert encode_response(body, 3, 7) == _framed(b"\x00\x00\x00\x07\x00" + b"\x00\x00\x00\x01\x00\x02\x00")
    versions = ApiVersionsResponse(api_keys=[ApiVersion(api_key=26, max_version=5)])
    assert encode_response(versions, 3, 7)[4:].startswith(b"\x00\x00\x00\x07" + b"\x00\x00" + b"\x02\x00\x1a")
    header, decoded = decode_response(ApiVersionsResponse, 3, encode_response(versions, 3, 7)[4:])
    assert header.correlation_id == 7
    assert decoded == versions


def test_a_request_comes_with_its_api_and_header():
    body = EndTxnRequest(transactional_id="t", committed=True)
    for kind in (bytes, bytearray, memoryview):
        request = decode_request(kind(encode_request(body, 3, 7, "me")[4:]))
        assert request.api is APIS[ApiKey.END_TXN]
        assert request.header == RequestHeader(
            request_api_key=26, request_api_version=3, correlation_id=7, client_id="me"
        )
        assert request.body == body


def test_bytes_after_a_request_are_let_be_and_after_a_response_are_not():
    frame = encode_request(EndTxnRequest(), 3, 7, "me")[4:]
    assert decode_request(frame + b"more").body == EndTxnRequest()
    frame = encode_response(EndTxnResponse(), 3, 7)[4:]
    with pytest.raises(MalformedMessage, match="4 bytes are left over"):
        decode_response(EndTxnResponse, 3, frame + b"more")


def test_records_in_a_request_are_views_into_its_frame():
    batch = bytes(1000)
    sent = ProduceRequest(topic_data=[TopicProduceData(partition_data=[PartitionProduceData(records=batch)])])
    buffer = bytearray(encode_request(sent, 9, 7, "me"))
    frame = memoryview(buffer)[4:]
    records = decode_request(frame).body.topic_data[0].partition_data[0].records
    buffer[-4] = 1  # the last byte of the batch: three counts of no tags stand behind it
    assert records[-1] == 1


def test_a_long_response_is_joined_as_it_is_encoded():
    response = MetadataResponse(topics=[MetadataResponseTopic(name=f"topic-{n}") for n in range(10_000)])
    parts = []
    steps = sum(1 for _ in encoding_response_parts(response, 12, 7, parts))
    assert steps >= 50
    assert len(parts) <= steps + 2
    assert decode_response(MetadataResponse, 12, b"".join(parts)[4:])[1] == response


@pytest.mark.parametrize(("size", "part_count"), [(1000, 2), (100_000, 4)])
def test_large_records_in_a_response_are_not_copied_and_small_parts_are_joined(size, part_count):
    batch = bytes(size)
    response = FetchResponse(responses=[FetchableTopicResponse(partitions=[PartitionData(records=batch)])])
    parts = encode_response_parts(response, 13, 7)
    assert len(parts) == part_count  # the size and header, what is before the batch, the batch, what is behind it
    assert any(part is batch for part in parts) == (size > 4096)
    whole = b"".join(parts)
    assert whole == encode_response(response, 13, 7)
    assert int.from_bytes(whole[:4], "big") == len(whole) - 4


def test_an_unknown_version_can_be_answered():
    frame = b"\x00\x12\x00\x63\x00\x00\x00\x07\x00\x02me\x00" + b"whatever version 99 has"
    with pytest.raises(UnsupportedVersion) as caught:
        decode_request(frame)
    assert (caught.value.api_key, caught.value.version, caught.value.correlation_id) == (18, 99, 7)
    api, header, position = decode_request_header(frame)
    assert api.key is ApiKey.API_VERSIONS
    assert (header.client_id, header.correlation_id, header.request_api_version) == ("me", 7, 99)
    assert frame[position:].startswith(b"whatever")


def test_an_unknown_api_is_refused():
    with pytest.raises(UnsupportedVersion) as caught:
        decode_request(b"\x7f\xff\x00\x01\x00\x00\x00\x07\xff\xff")
    assert (caught.value.api_key, caught.value.version, caught.value.correlation_id) == (32767, 1, 7)


@pytest.mark.parametrize("size", range(13))
def test_a_frame_that_is_too_short_for_its_header_is_malformed(size):
    frame = encode_request(EndTxnRequest(), 3, 7, "me")[4:][:size]
    with pytest.raises(MalformedMessage, match="RequestHeader"):
        decode_request(frame)


def test_only_bodies_are_framed():
    with pytest.raises(TypeError, match="RequestHeader is not the body"):
        encode_response(RequestHeader(), 1, 7)
