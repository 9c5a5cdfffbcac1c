"""The connection's core without a socket: frames, order of answers, back-pressure, and what a client may cost."""

import random
import struct
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from headrace.broker.channel import (
    KEPT_BUFFER_BYTES,
    LENT_FROM_BYTES,
    MAX_OTHER_BYTES,
    MAX_PARTS,
    MAX_UNDER_WAY,
    MAX_UNDER_WAY_BYTES,
    MAX_UNSENT_BYTES,
    SHARED_BUFFER_BYTES,
    Channel,
    Slot,
)
from headrace.broker.file_views import WINDOW, view_for_thread, view_of
from headrace.broker.load import FLOOR_BYTES, Load, Share
from headrace.broker.turns import Deferred, Steps
from headrace.protocol.errors import FrameTooLarge, MalformedMessage
from headrace.storage.filesystem import File, OsFileSystem
from headrace.storage.segment import FileSlice
from headrace.testing import MemoryFileSystem

LIMIT = 100 * 1024 * 1024


class Client:
    """What a channel's connection does for the load."""

    def __init__(self) -> None:
        self.woken = 0
        self.is_dropped = False
        self.channel: Channel

    def rest(self) -> None:
        self.channel.release_buffer()

    def wake(self) -> None:
        self.woken += 1

    def give_way(self, now_s: float, since_s: float) -> None:
        if since_s < now_s - 10:
            self.is_dropped = True
            self.channel.close()


def channel_on(shared: bytearray, limit: int, load: Load | None = None) -> Channel:
    client = Client()
    client.channel = Channel(shared, limit, Share(load or Load(-1, 2**31), client))
    return client.channel


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
        channel.take_back(len(joined))
        at_most -= len(joined)
        out += joined
    return bytes(out)


@pytest.mark.parametrize("seed", range(20))
def test_frames_come_whole_and_in_order_however_they_are_cut_and_two_clients_share_the_buffer(seed: int) -> None:
    chance = random.Random(seed)
    shared = bytearray(SHARED_BUFFER_BYTES)
    channels = [channel_on(shared, LIMIT) for _ in range(2)]
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
    channel = channel_on(bytearray(SHARED_BUFFER_BYTES), LIMIT)
    assert feed(channel, struct.pack(">i", 90_000_000)) == []
    assert channel.buffer_bytes <= 16 * 1024
    came = 4
    for _ in range(20):
        feed(channel, bytes(100_000))
        came += 100_000
        assert channel.buffer_bytes <= 2 * came + SHARED_BUFFER_BYTES


def test_a_large_buffer_goes_with_its_frame_and_a_small_one_when_the_client_rests() -> None:
    channel = channel_on(bytearray(SHARED_BUFFER_BYTES), LIMIT)
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


def test_a_large_frame_is_received_in_one_piece_of_memory_of_its_size() -> None:
    load = Load(-1, 2**31)
    channel = channel_on(bytearray(SHARED_BUFFER_BYTES), LIMIT, load)
    body = random.Random(1).randbytes(3 * KEPT_BUFFER_BYTES + 7)
    data = framed(bytes(2) + body, b"next")
    assert feed(channel, data[:9_000_000]) == []
    assert load.held_bytes < 9_000_000 + 2 * 1024 * 1024
    assert feed(channel, data[9_000_000:]) == [bytes(2) + body, b"next"]
    assert load.held_bytes == 0


def test_only_what_is_produced_may_be_larger_than_any_list_of_names() -> None:
    size = struct.pack(">i", MAX_OTHER_BYTES + 1)
    assert feed(channel_on(bytearray(1000), LIMIT), size + b"\x00\x00") == []
    with pytest.raises(FrameTooLarge):
        feed(channel_on(bytearray(1000), LIMIT), size + b"\x00\x03")


def test_a_large_request_is_under_way_alone_and_answers_count_before_it_is_their_turn() -> None:
    channel = channel_on(bytearray(SHARED_BUFFER_BYTES), LIMIT)
    large = b"\x00\x01" + bytes(MAX_UNDER_WAY_BYTES)
    assert feed(channel, framed(large)) == [large]
    slot = channel.open_slot()
    assert channel.is_full
    channel.fill(slot, [b"answer"], 1.0)
    assert not channel.is_full
    channel.next_frame()
    first, second = channel.open_slot(), channel.open_slot()
    channel.fill(second, [bytes(MAX_UNSENT_BYTES + 1)], 1.0)
    assert channel.is_full
    channel.fill(first, [b"answer"], 1.0)
    drain(channel)
    assert not channel.is_full


def half(size: int, begun: int) -> bytes:
    return struct.pack(">i", size) + bytes(begun)


def receive(channel: Channel, data: bytes) -> int:
    """Receive as much as there is room for; how much that was."""
    rest = len(data)
    while rest and (room := channel.room()):
        size = min(len(room), rest)
        begin = len(data) - rest
        room[:size] = data[begin : begin + size]
        channel.received(size)
        rest -= size
        while channel.next_frame() is not None:
            pass
        channel.put_away()
    return len(data) - rest


def test_what_all_clients_have_sent_of_their_requests_is_bounded_and_the_first_one_goes_on() -> None:
    limit = 10_000_000
    now = [0.0]
    looks: list[object] = []
    load = Load(limit, 2**31, lambda _, look: looks.append(look), lambda: now[0])
    channels = [channel_on(bytearray(SHARED_BUFFER_BYTES), LIMIT, load) for _ in range(50)]
    data = half(8_000_000, 7_900_000)
    came = [receive(channel, data) for channel in channels]
    assert came[0] == len(data)  # it has held longest
    assert sum(came) <= limit + 50 * FLOOR_BYTES
    assert load.held_bytes <= limit + 50 * FLOOR_BYTES + 8_000_000
    assert not channels[-1].room()
    small = framed(b"a small request")
    other = channel_on(bytearray(SHARED_BUFFER_BYTES), LIMIT, load)
    assert feed(other, small) == [b"a small request"]  # needs nothing of it
    owners = [channel._share.owner for channel in channels]
    before = owners[-1].woken  # type: ignore[attr-defined]
    assert receive(channels[0], bytes(100_000)) == 100_000  # whole: its memory is free again
    assert owners[-1].woken > before  # type: ignore[attr-defined]
    for channel in channels[1:]:
        receive(channel, data)
    assert load.held_bytes <= limit + 50 * FLOOR_BYTES + 8_000_000
    now[0] = 11.0
    looks.pop()()  # type: ignore[operator]
    assert any(owner.is_dropped for owner in owners)  # type: ignore[attr-defined]
    assert load.held_bytes < limit
    for channel in channels:
        channel.close()
    assert (load.held_bytes, load.under_way) == (0, 0)


def test_with_too_many_requests_in_all_each_client_has_one_at_a_time() -> None:
    load = Load(-1, 4)
    channels = [channel_on(bytearray(SHARED_BUFFER_BYTES), LIMIT, load) for _ in range(3)]
    slots = [channels[0].open_slot() for _ in range(4)]
    assert channels[0].is_full
    assert not channels[1].is_full
    slots.append(channels[1].open_slot())
    assert channels[1].is_full
    for slot in slots[:4]:
        channels[0].fill(slot, [b"a"], 1.0)
    assert not channels[1].is_full
    assert load.under_way == 1


def test_large_requests_are_few_at_a_time_and_the_smallest_goes_first() -> None:
    load = Load(-1, 1)
    began: list[int] = []
    sizes = [50, 40, 30, 20, 10, 5, 7]
    entered = [load.enter_large(size, lambda size=size: began.append(size)) for size in sizes]  # type: ignore[misc]
    assert entered == [True] * 4 + [False] * 3
    assert load.parks(20_000)
    assert not load.parks(100)  # it may be through in its first turn
    for _ in range(7):
        load.leave_large()
    assert began == [5, 7, 10]
    assert not load.parks(20_000)
    assert load.enter_large(1, lambda: None)


def test_a_size_that_cannot_be_is_refused_at_once() -> None:
    with pytest.raises(MalformedMessage):
        feed(channel_on(bytearray(1000), LIMIT), struct.pack(">i", -1))
    with pytest.raises(FrameTooLarge):
        feed(channel_on(bytearray(1000), 10), struct.pack(">i", 11))


def test_answers_leave_in_the_order_of_their_slots() -> None:
    channel = channel_on(bytearray(1000), LIMIT)
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
    channel = channel_on(bytearray(SHARED_BUFFER_BYTES), LIMIT)
    assert len(feed_without_taking(channel, framed(*[b"ask"] * 1000))) == 0
    slots = [channel.open_slot() for frame in iter(channel.next_frame, None)]
    assert len(slots) == MAX_UNDER_WAY
    channel.put_away()
    for slot in slots:
        channel.fill(slot, [b"answer"], 1.0)
    assert channel.next_frame() == b"ask"


def test_within_one_read_no_more_is_taken_than_the_client_reads() -> None:
    channel = channel_on(bytearray(SHARED_BUFFER_BYTES), LIMIT)
    feed_without_taking(channel, framed(*[b"ask"] * 1000))
    answered = 0
    while channel.next_frame() is not None:
        channel.fill(channel.open_slot(), [bytes(100_000)], 1.0)
        answered += 1
    assert answered == MAX_UNSENT_BYTES // 100_000 + 1
    channel.put_away()
    drain(channel)
    assert channel.next_frame() == b"ask"


def fill_by_a_large_request(channel: Channel, _: Load) -> list[Slot]:
    large = b"\x00\x01" + bytes(MAX_UNDER_WAY_BYTES)
    assert feed(channel, framed(large)) == [large]
    return [channel.open_slot()]


def fill_by_an_answer_that_waits_for_its_turn(channel: Channel, _: Load) -> list[Slot]:
    first, second = channel.open_slot(), channel.open_slot()
    channel.fill(second, [bytes(MAX_UNSENT_BYTES + 1)], 1.0)
    return [first]


def fill_by_requests_of_all_clients(channel: Channel, load: Load) -> list[Slot]:
    other = channel_on(bytearray(SHARED_BUFFER_BYTES), LIMIT, load)
    for _ in range(load.max_under_way):
        other.open_slot()
    return [channel.open_slot()]


@pytest.mark.parametrize(
    "fill",
    [fill_by_a_large_request, fill_by_an_answer_that_waits_for_its_turn, fill_by_requests_of_all_clients],
)
def test_no_frame_is_taken_of_a_client_that_is_full_by_any_bound(fill: Callable[[Channel, Load], list[Slot]]) -> None:
    load = Load(-1, 4)
    channel = channel_on(bytearray(SHARED_BUFFER_BYTES), LIMIT, load)
    slots = fill(channel, load)
    feed_without_taking(channel, framed(b"ask"))
    assert channel.is_full
    assert channel.next_frame() is None
    for slot in slots:
        channel.fill(slot, [b"answer"], 1.0)
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
    channel = channel_on(bytearray(1000), LIMIT)
    channel.fill(channel.open_slot(), [b"head", FileSlice(file, 4, 6)], 1.0)
    assert drain(channel) == b"head456789"
    channel.fill(channel.open_slot(), [b"head", FileSlice(file, 4, 6)], 1.0)
    file.truncate(4)
    with pytest.raises(OSError, match="was cut"):
        drain(channel)


def test_whoever_works_on_an_answer_is_told_that_the_client_left() -> None:
    channel = channel_on(bytearray(1000), LIMIT)
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


# --- what is lent


@pytest.fixture(scope="module")
def large_file(tmp_path_factory: pytest.TempPathFactory) -> tuple[File, bytes]:
    data = random.Random(1).randbytes(20 * 1024 * 1024)
    file = OsFileSystem().open(str(tmp_path_factory.mktemp("log") / "a.log"), create=True)
    file.write_at([data], 0)
    return file, data


@pytest.mark.parametrize("seed", range(30))
def test_what_is_lent_and_taken_back_in_part_goes_out_in_its_order(seed: int, large_file: tuple[File, bytes]) -> None:
    chance = random.Random(seed)
    file, data = large_file
    channel = channel_on(bytearray(1000), LIMIT)
    expected, out, lent = bytearray(), bytearray(), 0
    for number in range(60):
        if number == 0 or chance.random() < 0.4:
            slot = channel.open_slot()
            position = chance.randrange(10 * 1024 * 1024)
            size = chance.choice([1, 15_000, 90_000, 700_000, 9_000_000]) if number else 9_000_000
            head = chance.randbytes(chance.choice([4, 60, 70_000]) if number else 60)
            channel.fill(slot, [head, FileSlice(file, position, size), b"tail"], 1.0)
            expected += head + data[position : position + size] + b"tail"
        views = channel.lend(view_for_thread)
        if views:
            lent += 1
            assert channel.has_unsent
            joined = b"".join(views)
            count = chance.choice([0, 1, len(joined) // 2, len(joined) - 1, len(joined)])
            assert channel.take_back(count) == (count == len(joined))
            out += joined[:count]
        else:
            out += drain(channel, chance.choice([1, 100_000, 1_000_000]))
        assert channel.unsent_bytes == len(expected) - len(out)
    out += drain(channel)
    assert out == expected
    assert lent
    assert channel.unsent_bytes == 0


def test_what_was_not_sent_is_not_kept_mapped(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    file = OsFileSystem().open(str(path), create=True)
    data = random.Random(1).randbytes(WINDOW)
    file.write_at([data], 0)
    channel = channel_on(bytearray(1000), LIMIT)
    channel.fill(channel.open_slot(), [b"head", FileSlice(file, 0, len(data))], 1.0)
    parts = channel.gather(view_of)
    assert str(path) in Path("/proc/self/maps").read_text()
    channel.take_back(1000)
    del parts
    assert str(path) not in Path("/proc/self/maps").read_text()
    assert drain(channel) == data[996:]


def test_little_and_what_is_ours_is_not_lent(tmp_path: Path) -> None:
    file = OsFileSystem().open(str(tmp_path / "a.log"), create=True)
    file.write_at([bytes(LENT_FROM_BYTES)], 0)
    channel = channel_on(bytearray(1000), LIMIT)
    channel.fill(channel.open_slot(), [FileSlice(file, 0, LENT_FROM_BYTES - 1)], 1.0)
    assert channel.lend(view_for_thread) == []
    drain(channel)
    channel.fill(channel.open_slot(), [bytes(LENT_FROM_BYTES)], 1.0)
    assert channel.lend(view_for_thread) == []
    channel.fill(channel.open_slot(), [FileSlice(file, 0, LENT_FROM_BYTES)], 1.0)
    assert channel.lend(view_for_thread) == []  # as long as what is ours is before it
    drain(channel)
    channel.fill(channel.open_slot(), [b"head", FileSlice(file, 0, LENT_FROM_BYTES)], 1.0)
    assert sum(map(len, channel.lend(view_for_thread))) == 4 + LENT_FROM_BYTES
    channel.close()
    assert not channel.has_unsent


# --- memory that is given back


def test_the_memory_of_a_large_frame_goes_in_steps_and_not_under_somebody_who_is_at_it() -> None:
    releasing: list[Steps[None]] = []
    client = Client()
    client.channel = channel = Channel(
        bytearray(SHARED_BUFFER_BYTES), LIMIT, Share(Load(-1, 2**31), client), releasing.append
    )
    size = 20 * 1024 * 1024
    frames = []
    for position in range(0, size, 100_000):
        data = struct.pack(">i", size) if not position else b""
        frames += feed(channel, data + bytes(min(100_000, size - position)))
    assert [len(frame) for frame in frames] == [size]
    assert channel.buffer_bytes == 0
    (steps,) = releasing
    assert len(list(steps)) == size // 2**20  # a mebibyte in each

    receive(channel, half(size, size // 2))
    at_it = memoryview(channel._own)[:10]  # type: ignore[arg-type]
    channel.close()
    assert list(releasing[1]) == []
    assert bytes(at_it) == half(size, size // 2)[:10]


def test_so_much_is_lent_as_one_call_sends() -> None:
    file = MemoryFileSystem().open("a.log", create=True)
    file.write_at([bytes(20_000)], 0)
    channel = channel_on(bytearray(1000), LIMIT)
    channel.fill(channel.open_slot(), [b"head", FileSlice(file, 0, 20_000)] * 400, 1.0)
    assert len(channel.lend(view_for_thread)) == MAX_PARTS  # each may take a descriptor
