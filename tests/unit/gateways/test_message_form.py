"""The form of messages between programs: what is written is read as it was, and no bytes do harm."""

import struct
import tracemalloc
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.gateways.messaging.endpoints import InvalidEndpoint, check_listening, parse_endpoint
from headrace.gateways.messaging.forms import DECODERS, Form, encode_plain
from headrace.gateways.messaging.losses import Losses
from headrace.gateways.messaging.message import (
    InvalidMessage,
    Message,
    decode,
    encode,
    headers_of,
    subscription,
    topic_prefix,
)

TOPICS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=60)
HEADERS = st.lists(
    st.tuples(st.text(st.characters(exclude_categories=["Cs"]), max_size=20), st.none() | st.binary(max_size=30)),
    max_size=5,
)
MESSAGES = st.builds(
    Message,
    value=st.none() | st.binary(max_size=200),
    key=st.none() | st.binary(max_size=50),
    topic=TOPICS,
    headers=HEADERS.map(tuple),
    timestamp_ms=st.integers(-(2**63), 2**63 - 1),
    session=st.integers(0, 2**64 - 1),
    sequence=st.integers(0, 2**64 - 1),
    flags=st.sampled_from([0, 4, 8, 12]),
)


def frame_of(message):
    return encode(
        message.value,
        message.key,
        topic_prefix(message.topic),
        message.headers,
        message.timestamp_ms,
        message.session,
        message.sequence,
        message.flags,
    )


@given(MESSAGES)
def test_what_was_written_is_read(message):
    frame = frame_of(message)
    assert decode(frame) == message
    assert frame.startswith(subscription(message.topic)) or message.topic.endswith("*")


def test_a_message_is_read_by_the_page_alone():
    frame = encode(b"value", b"key", topic_prefix("orders"), (("a", b"1"), ("b", None)), 1_700_000_000_000, 7, 9)
    topic, _, rest = frame.partition(b"\0")
    magic, version, flags, session, sequence, timestamp, key_bytes, header_bytes = struct.unpack_from(
        ">2sBBQQqII", rest
    )
    body = rest[36:]
    assert (topic, magic, version, flags) == (b"orders", b"HR", 1, 3)
    assert (session, sequence, timestamp) == (7, 9, 1_700_000_000_000)
    assert body[:header_bytes] == b"\0\1a\0\0\0\1" + b"1" + b"\0\1b\xff\xff\xff\xff"
    assert body[header_bytes : header_bytes + key_bytes] == b"key"
    assert body[header_bytes + key_bytes :] == b"value"


@given(st.binary(max_size=300))
def test_no_bytes_do_harm(data):
    for decoder in DECODERS.values():
        for frame in (data, [data], [data, data], [data] * 3):
            try:
                found = decoder(frame)
            except InvalidMessage:
                continue
            assert sum(len(part or b"") for part in (found.value, found.key)) <= 2 * len(data)


@given(MESSAGES, st.data())
def test_a_frame_with_lies_in_it_is_refused_or_read(message, data):
    frame = bytearray(frame_of(message))
    for _ in range(data.draw(st.integers(1, 4))):
        kind = data.draw(st.sampled_from(["flip", "cut", "grow"]))
        at = data.draw(st.integers(0, max(len(frame) - 1, 0)))
        if kind == "flip" and frame:
            frame[at] ^= data.draw(st.integers(1, 255))
        elif kind == "cut":
            del frame[at:]
        else:
            frame[at:at] = data.draw(st.binary(max_size=8))
    try:
        found = decode(bytes(frame))
    except InvalidMessage:
        return
    assert frame_of(found) == bytes(frame) or len(frame_of(found)) <= len(frame)


def test_lengths_that_lie_take_no_memory():
    head = struct.pack(">2sBBQQqII", b"HR", 1, 3, 1, 1, 1, 2**32 - 1, 0)
    headers = struct.pack(">2sBBQQqII", b"HR", 1, 2, 1, 1, 1, 0, 8) + b"\0\0\x7f\xff\xff\xff\0\0"
    tracemalloc.start()
    for frame in (b"t\0" + head, b"t\0" + headers):
        with pytest.raises(InvalidMessage):
            decode(frame)
    assert tracemalloc.get_traced_memory()[1] < 100_000
    tracemalloc.stop()


@pytest.mark.parametrize(
    ("frame", "says"),
    [
        (b"", "ends within its head"),
        (b"plain value", "form"),
        (b"x" * 400, "form"),
        (b"t\0" + struct.pack(">2sBBQQqII", b"HR", 2, 2, 1, 1, 1, 0, 0), "version 2"),
        (b"t\0" + struct.pack(">2sBBQQqII", b"HR", 1, 0, 1, 1, 1, 0, 0) + b"v", "flags deny"),
        (b"\xff\0" + struct.pack(">2sBBQQqII", b"HR", 1, 2, 1, 1, 1, 0, 0), "UTF-8"),
    ],
)
def test_what_is_wrong_is_said(frame, says):
    with pytest.raises(InvalidMessage, match=says):
        decode(frame)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("text",), "is a str"),
        ((b"v", 3), "the key to be sent is a int"),
        ((b"v", None, b"\0", (), 2**70), "timestamp"),
        ((b"v", None, b"\0", (("n", 3),)), "header 'n'"),
        ((b"v", None, b"\0", (("n" * 70_000, b""),)), "header"),
        ((b"v", None, b"\0", (("n", b""),) * 1001), "at most 1000"),
    ],
)
def test_what_cannot_be_sent_is_said(arguments, says):
    with pytest.raises(InvalidMessage, match=says):
        encode(*arguments)


@pytest.mark.parametrize("topic", ["a\0b", "x" * 256, "\ud800"])
def test_a_topic_that_cannot_be(topic):
    with pytest.raises(InvalidMessage):
        topic_prefix(topic)


def test_headers_of_text_and_a_mapping():
    assert headers_of({"a": "ü", "b": None}) == (("a", "ü".encode()), ("b", None))
    assert Message(b"", headers=headers_of([("a", b"1"), ("a", b"2")])).header("a") == b"2"
    assert Message(b"").header("a") is None


def test_plain_forms():
    assert encode_plain(Form.RAW, b"v", None, "", ()) == b"v"
    assert encode_plain(Form.TOPIC, b"v", None, "t", ()) == [b"t", b"v"]
    assert DECODERS[Form.TOPIC]([b"t", b"v"]) == Message(b"v", topic="t")
    assert DECODERS[Form.RAW]([b"v"]) == Message(b"v")
    for arguments in (
        (Form.RAW, b"v", b"k", "", ()),
        (Form.RAW, b"v", None, "t", ()),
        (Form.TOPIC, None, None, "t", ()),
    ):
        with pytest.raises(InvalidMessage):
            encode_plain(*arguments)


@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from("ab"), st.booleans()), max_size=200))
def test_losses_are_those_between_what_came(sent):
    """Against a list of what was sent and what of it came."""
    losses = Losses()
    numbers, came = {}, {}
    for session, topic, arrives in sent:
        place = (session, topic)
        number = numbers[place] = numbers.get(place, -1) + 1
        if arrives:
            came.setdefault(place, []).append(number)
            losses.see(session, topic, number)
    assert losses.missed == sum(each[-1] - each[0] + 1 - len(each) for each in came.values())
    assert losses.before == sum(each[0] for each in came.values())
    assert losses.sessions == len(came)
    assert losses.repeated == 0


def test_losses_forget_who_was_silent_longest():
    losses = Losses(most=2)
    for session in (1, 2, 1, 3, 1):
        losses.see(session, "", 5)
    assert losses.sessions == 3
    losses.see(2, "", 9)  # forgotten: nothing is known of what lies between
    assert (losses.sessions, losses.missed) == (4, 0)


@pytest.mark.parametrize(
    "text",
    ["", "127.0.0.1:5555", "udp://127.0.0.1:1", "tcp://127.0.0.1", "tcp://127.0.0.1:70000", "tcp://:5", "ipc://",
     "ipc://" + "x" * 108, "tcp://a:b:1"],
)  # fmt: skip
def test_endpoints_that_are_none(text):
    with pytest.raises(InvalidEndpoint):
        parse_endpoint(text, ("tcp", "ipc"))


@given(st.text(max_size=60))
def test_any_text_is_an_endpoint_or_refused(text):
    for given_text in (text, f"tcp://{text}", f"ipc://{text}"):
        with suppress(InvalidEndpoint):
            parse_endpoint(given_text, ("tcp", "ipc"))


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.5", "[::]", "example.org", "*"])
def test_listening_to_others_has_to_be_said(host):
    with pytest.raises(InvalidEndpoint):
        check_listening(f"tcp://{host}:5555", ("tcp",), is_protected=False, is_insecure=False, how="")
    if host != "*":
        check_listening(f"tcp://{host}:5555", ("tcp",), is_protected=True, is_insecure=False, how="")
        check_listening(f"tcp://{host}:5555", ("tcp",), is_protected=False, is_insecure=True, how="")


@pytest.mark.parametrize(
    "place", ["tcp://127.0.0.1:5", "tcp://127.9.9.9:5", "tcp://[::1]:5", "tcp://localhost:5", "ipc:///a"]
)
def test_this_machine_alone_needs_nothing(place):
    assert check_listening(place, ("tcp", "ipc"), is_protected=False, is_insecure=False, how="").is_local
