"""The connection's core without a socket: frames, order of answers, back-pressure, and what a client may cost."""

import random
import struct
from itertools import count

import pytest

from headrace.broker.channel import (
    KEPT_BUFFER_BYTES,
    MAX_UNDER_WAY,
    MAX_UNSENT_BYTES,
    SHARED_BUFFER_BYTES,
    Channel,
)
from headrace.broker.file_views import view_of
from headrace.broker.turns import Deferred
from headrace.protocol.errors import FrameTooLarge, MalformedMessage
from headrace.storage.segment import FileSlice
from headrace.testing import MemoryFileSystem

LIMIT = 100 * 1024 * 1024


def framed(*bodies: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(body)) + body for body in bodies)


def feed(channel: Channel, data: bytes) -> list[bytes]:
    """Receive all of it, as much at a time as there is room for; the frames that were whole."""
    frames = []
    while data:
        room = channel.room()
        size = min(len(room), len(data))
        assert size
        room[:size] = data[:size]
        channel.received(size)
        data = data[size:]
        while (frame := channel.next_frame()) is not None:
            frames.append(bytes(frame))
        channel.put_away()
    return frames


def drain(channel: Channel, at_most: int = 1 << 30) -> bytes:
    out = bytearray()
    while channel.has_unsent and at_most:
        parts = channel.gather(view_of)
        joined = b"".join(parts)[:at_most]
        channel.sent(parts, len(joined))
        at_most -= len(joined)
        out += joined
    return bytes(out)


@pytest.mark.parametrize("seed", range(20))
def test_frames_come_whole_and_in_order_however_they_are_cut_and_two_clients_share_the_buffer(seed: int) -> None:
    chance = random.Random(seed)
    shared = bytearray(SHARED_BUFFER_BYTES)
    channels = [Channel(shared, LIMIT) for _ in range(2)]
    sizes = [0, 1, 3, 100, 20_000, SHARED_BUFFER_BYTES - 4, SHARED_BUFFER_BYTES, 700_000]
    sent = [[chance.randbytes(chance.choice(sizes)) for _ in range(chance.randrange(1, 12))] for _ in channels]
    streams = [framed(*bodies) for bodies in sent]
    got: list[list[bytes]] = [[], []]
    while any(streams):
        who = chance.randrange(2)
        size = chance.choice([1, 3, 4, 5, 1000, 70_000, 300_000])
        got[who] += feed(channels[who], streams[who][:size])
        streams[who] = streams[who][size:]
    assert got == sent


def test_a_length_reserves_nothing_and_the_buffer_grows_with_what_comes() -> None:
    channel = Channel(bytearray(SHARED_BUFFER_BYTES), LIMIT)
    assert feed(channel, struct.pack(">i", 90_000_000)) == []
    assert channel.buffer_bytes <= 16 * 1024
    came = 4
    for _ in range(20):
        feed(channel, bytes(100_000))
        came += 100_000
        assert channel.buffer_bytes <= 2 * came + SHARED_BUFFER_BYTES


def test_a_large_buffer_goes_with_its_frame_and_a_small_one_when_the_client_rests() -> None:
    channel = Channel(bytearray(SHARED_BUFFER_BYTES), LIMIT)
    (large,) = feed(channel, framed(bytes(2 * KEPT_BUFFER_BYTES)))
    assert len(large) == 2 * KEPT_BUFFER_BYTES
    assert channel.buffer_bytes == 0
    feed(channel, framed(bytes(SHARED_BUFFER_BYTES)))
    assert 0 < channel.buffer_bytes <= KEPT_BUFFER_BYTES
    channel.release_buffer()
    assert channel.buffer_bytes == 0
    feed(channel, framed(b"whole") + b"\x00")
    channel.release_buffer()  # not while a frame has begun
    assert feed(channel, b"\x00\x00\x01x") == [b"x"]


def test_a_size_that_cannot_be_is_refused_at_once() -> None:
    with pytest.raises(MalformedMessage):
        feed(Channel(bytearray(1000), LIMIT), struct.pack(">i", -1))
    with pytest.raises(FrameTooLarge):
        feed(Channel(bytearray(1000), 10), struct.pack(">i", 11))


def test_answers_leave_in_the_order_of_their_slots() -> None:
    channel = Channel(bytearray(1000), LIMIT)
    slots = [channel.open_slot() for _ in range(4)]
    assert not channel.fill(slots[2], [b"c"], 1.0)
    assert not channel.fill(slots[1], [b"b", b"b"], 1.0)
    assert drain(channel) == b""
    assert channel.fill(slots[0], [b"a"], 1.0)
    assert drain(channel, 2) == b"ab"  # and a socket that takes less leaves the rest in its place
    assert channel.fill(slots[3], [b"d"], 1.0)
    assert drain(channel) == b"bcd"
    assert channel.unsent_bytes == 0


def test_within_one_read_no_more_is_taken_than_answers_may_be_under_way() -> None:
    channel = Channel(bytearray(SHARED_BUFFER_BYTES), LIMIT)
    assert len(feed_without_taking(channel, framed(*[b"ask"] * 1000))) == 0
    slots = [channel.open_slot() for frame in iter(channel.next_frame, None)]
    assert len(slots) == MAX_UNDER_WAY
    channel.put_away()
    for slot in slots:
        channel.fill(slot, [b"answer"], 1.0)
    assert channel.next_frame() == b"ask"


def test_within_one_read_no_more_is_taken_than_the_client_reads() -> None:
    channel = Channel(bytearray(SHARED_BUFFER_BYTES), LIMIT)
    feed_without_taking(channel, framed(*[b"ask"] * 1000))
    answered = 0
    while channel.next_frame() is not None:
        channel.fill(channel.open_slot(), [bytes(100_000)], 1.0)
        answered += 1
    assert answered == MAX_UNSENT_BYTES // 100_000 + 1
    channel.put_away()
    drain(channel)
    assert channel.next_frame() == b"ask"


def feed_without_taking(channel: Channel, data: bytes) -> list[bytes]:
    room = channel.room()
    room[: len(data)] = data
    channel.received(len(data))
    return []


def test_a_slice_of_a_file_that_was_cut_is_an_error_and_no_endless_loop() -> None:
    filesystem = MemoryFileSystem()
    file = filesystem.open("/log", create=True)
    file.write_at([b"0123456789"], 0)
    channel = Channel(bytearray(1000), LIMIT)
    channel.fill(channel.open_slot(), [b"head", FileSlice(file, 4, 6)], 1.0)
    assert drain(channel) == b"head456789"
    channel.fill(channel.open_slot(), [b"head", FileSlice(file, 4, 6)], 1.0)
    file.truncate(4)
    with pytest.raises(OSError, match="was cut"):
        drain(channel)


def test_whoever_works_on_an_answer_is_told_that_the_client_left() -> None:
    channel = Channel(bytearray(1000), LIMIT)
    told = count()
    first, second, third = (channel.open_slot() for _ in range(3))
    promises: list[Deferred[object]] = [Deferred(), Deferred()]
    for slot, promise in zip((first, second), promises, strict=True):
        promise.on_abandon(lambda: next(told) and None)
        slot.promise = promise
    channel.fill(second, [b"answered"], 1.0)
    channel.fill(third, [b"answered"], 1.0)
    channel.close()
    assert next(told) == 1
    assert not channel.has_unsent
