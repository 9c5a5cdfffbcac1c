"""Whatever a version can carry comes back from its bytes; and no bytes at all raise anything but `MalformedMessage`."""

import struct
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.protocol.api import APIS
from headrace.protocol.codec import decode, decode_prefix, encode
from headrace.protocol.errors import MalformedMessage, UnsupportedVersion
from headrace.protocol.frame import decode_request, decode_response, encode_request, encode_response
from headrace.protocol.messages.produce import ProduceRequest
from tests.property.message_strategies import messages
from tests.property.storage_model import examples

MESSAGES = [message for api in APIS.values() for message in (api.request, api.response)]
MESSAGE_IDS = [message.__name__ for message in MESSAGES]
API_IDS = [api.key.name.lower() for api in APIS.values()]


def _settings(count):
    return examples(count, derandomize=True, database=None)


@pytest.mark.parametrize("message", MESSAGES, ids=MESSAGE_IDS)
def test_every_version_keeps_what_it_carries_and_the_tags_it_does_not_know(message):
    for version in message.__schema__.versions:
        _check_roundtrip(message, version)


def _check_roundtrip(message, version):
    @_settings(4)
    @given(messages(message, version, unknown_tags=True))
    def check(sent):
        data = encode(sent, version)
        kept = decode(message, version, data)
        assert kept == sent
        assert encode(kept, version) == data

    check()


@pytest.mark.parametrize("api", APIS.values(), ids=API_IDS)
def test_a_request_and_its_response_travel_in_frames(api):
    @_settings(10)
    @given(st.data(), st.sampled_from(api.versions), st.integers(-(2**31), 2**31 - 1), st.none() | st.text(max_size=9))
    def check(data, version, correlation_id, client_id):
        asked = data.draw(messages(api.request, version, unknown_tags=True))
        answered = data.draw(messages(api.response, version, unknown_tags=True))

        frame = memoryview(encode_request(asked, version, correlation_id, client_id))[4:]
        request = decode_request(frame)
        assert request.api is api
        assert request.header.correlation_id == correlation_id
        assert request.header.client_id == client_id
        assert request.header.request_api_version == version
        assert request.body == asked

        frame = memoryview(encode_response(answered, version, correlation_id))[4:]
        header, body = decode_response(api.response, version, frame)
        assert header.correlation_id == correlation_id
        assert body == answered

    check()


@pytest.mark.parametrize("message", MESSAGES, ids=MESSAGE_IDS)
def test_a_cut_message_is_malformed_wherever_it_is_cut(message):
    @_settings(8)
    @given(st.data(), st.sampled_from(message.__schema__.versions))
    def check(data, version):
        whole = encode(data.draw(messages(message, version, unknown_tags=True)), version)
        if not whole:
            return
        # The ends and the middle always; of a long message some places in between.
        for cut in {0, len(whole) // 2, len(whole) - 1, *range(0, len(whole), max(1, len(whole) // 20))}:
            with pytest.raises(MalformedMessage) as caught:
                decode(message, version, whole[:cut])
            assert 0 <= caught.value.position <= cut

    check()


@pytest.mark.parametrize("message", MESSAGES, ids=MESSAGE_IDS)
def test_flipped_bits_are_read_or_refused(message):
    @_settings(12)
    @given(st.data(), st.sampled_from(message.__schema__.versions))
    def check(data, version):
        damaged = bytearray(encode(data.draw(messages(message, version, unknown_tags=True)), version))
        if not damaged:
            return
        for _ in range(8):
            place = data.draw(st.integers(0, len(damaged) - 1))
            damaged[place] ^= 1 << data.draw(st.integers(0, 7))
            _read_or_refuse(message, version, bytes(damaged))

    check()


@pytest.mark.parametrize("message", MESSAGES, ids=MESSAGE_IDS)
def test_random_bytes_are_read_or_refused(message):
    @_settings(60)
    @given(st.sampled_from(message.__schema__.versions), st.binary(max_size=64))
    def check(version, data):
        _read_or_refuse(message, version, data)

    check()


def _read_or_refuse(message, version, data):
    """Anything but `MalformedMessage` fails the test by itself; what is read must be a message that can be written."""
    try:
        read, end = decode_prefix(message, version, data)
    except MalformedMessage as error:
        refused = error
    else:
        assert end <= len(data)
        # Not `data` again: tags come out in order, and a default that was spelled out in a tag is left out.
        again = encode(read, version)
        assert encode(decode(message, version, again), version) == again
        return
    assert refused.what.startswith(message.__name__)
    assert 0 <= refused.position <= len(data)


@_settings(500)
@given(st.sampled_from(list(APIS)) | st.integers(-(2**15), 2**15 - 1), st.integers(-1, 20), st.binary(max_size=60))
def test_any_frame_is_a_request_or_refused(key, version, rest):
    key_and_version = struct.pack(">hh", key, version)
    frame = key_and_version + rest
    try:
        request = decode_request(frame)
    except (MalformedMessage, UnsupportedVersion):
        return
    assert encode_request(request.body, request.header.request_api_version, 0, None)[4:8] == key_and_version


PATTERNS = [
    b"\x00",
    b"\x01",
    b"\x02",
    b"\x7f",
    b"\xff",
    b"\xff\xff\xff\xff\x0f",
    b"\x7f\xff\xff\xff",
    b"\x00\x00\xff\xff",
]


@pytest.mark.parametrize("message", MESSAGES, ids=MESSAGE_IDS)
def test_memory_is_in_proportion_to_the_bytes(message):
    """A count of two thousand million must not make a list of that many, whatever stands behind it."""
    size = 4096
    tracemalloc.start()
    try:
        for version in {message.__schema__.versions[0], message.__schema__.versions[-1]}:
            _read_or_refuse(message, version, b"")  # compiled before it is measured
            for pattern in PATTERNS:
                data = (pattern * size)[:size]
                tracemalloc.reset_peak()
                before, _ = tracemalloc.get_traced_memory()
                _read_or_refuse(message, version, data)
                _, peak = tracemalloc.get_traced_memory()
                assert peak - before < 200 * size
    finally:
        tracemalloc.stop()


def test_the_most_items_that_fit_stay_in_proportion():
    """The densest message there is: topics of three bytes each, as many as the count may honestly say."""
    topics = 20_000
    count = topics + 1
    varint = bytes((count & 0x7F | 0x80, count >> 7 & 0x7F | 0x80, count >> 14))
    data = b"\x00" + b"\x00\x01" + b"\x00\x00\x00\x00" + varint + b"\x01\x01\x00" * topics + b"\x00"
    assert len(decode(ProduceRequest, 9, data).topic_data) == topics
    tracemalloc.start()
    try:
        decode(ProduceRequest, 9, data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 100 * len(data)
