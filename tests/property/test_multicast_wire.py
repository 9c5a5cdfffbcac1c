"""What datagrams and messages mean: read as they were written, and anything else is refused in one sentence."""

import contextlib
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.gateways.multicast.message import (
    Content,
    InvalidMessage,
    Origin,
    check_content,
    read_content,
    write_content,
)
from headrace.gateways.multicast.receiving import Receiving
from headrace.gateways.multicast.stream import ReceivingSettings
from headrace.gateways.multicast.wire import (
    BEGIN,
    END,
    Data,
    Heartbeat,
    InvalidDatagram,
    Nak,
    Piece,
    Seal,
    Session,
    read_datagram,
    write_data,
    write_heartbeat,
    write_nak,
    write_piece,
)
from tests.property.storage_model import count_examples

NOW_MS = 1_700_000_000_000
numbers = st.integers(0, 2**62 - 1)
sessions = st.builds(Session, st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
seals = st.sampled_from([None, Seal(b"a" * 16), Seal(b"b" * 32)])


@st.composite
def pieces(draw):
    many = draw(st.integers(1, 5))
    found = [Piece(BEGIN | END, draw(st.binary(min_size=1, max_size=50))) for _ in range(many)]
    if draw(st.booleans()):
        found[0] = found[0]._replace(flags=found[0].flags & ~BEGIN)
    if draw(st.booleans()):
        found[-1] = found[-1]._replace(flags=found[-1].flags & ~END)
    return tuple(found)


@st.composite
def datagrams(draw, seal=None):
    session = draw(sessions)
    kind = draw(st.sampled_from(["data", "heartbeat", "nak"]))
    if kind == "data":
        sequence = draw(numbers)
        said = Data(
            session, draw(st.booleans()), sequence, draw(st.integers(0, min(sequence, 2**32 - 1))), draw(numbers),
            draw(st.integers(0, 2**32 - 1)), draw(pieces()), 0,
        )  # fmt: skip
        written = write_data(
            session, is_repair=said.is_repair, sequence=sequence, held=said.held, message=said.message,
            age_ms=said.age_ms, pieces=b"".join(write_piece(*each) for each in said.pieces), wall_ms=NOW_MS, seal=seal,
        )  # fmt: skip
        return said._replace(size=len(written)), written
    if kind == "heartbeat":
        sequence = draw(numbers)
        held = draw(st.integers(0, min(sequence, 2**32 - 1)))
        name = draw(st.text(max_size=40))
        beat = Heartbeat(
            session, sequence, held, draw(numbers), draw(st.integers(0, 2**32 - 1)), draw(st.integers(0, 3)), name
        )
        return beat, write_heartbeat(beat, NOW_MS, seal)
    ranges = draw(st.lists(st.tuples(numbers, st.integers(1, 2**32 - 1)), min_size=1, max_size=96))
    nak = Nak(session, draw(st.integers(0, 2**64 - 1)), draw(st.integers(0, 2**64 - 1)), tuple(ranges))
    return nak, write_nak(nak, NOW_MS, seal)


@settings(max_examples=count_examples(300))
@given(st.data(), seals)
def test_a_datagram_is_read_as_it_was_written(data, seal):
    said, written = data.draw(datagrams(seal))
    assert read_datagram(written, NOW_MS + 29_000, seal) == said


@settings(max_examples=count_examples(300))
@given(st.data(), st.integers(0, 2_000), st.integers(1, 255))
def test_one_changed_byte_of_a_sealed_datagram_is_refused(data, place, change):
    seal = Seal(b"a" * 16)
    _, written = data.draw(datagrams(seal))
    changed = bytearray(written)
    changed[place % len(changed)] ^= change
    for bad in (bytes(changed), written[: place % len(written)], written + b"x"):
        with pytest.raises(InvalidDatagram, match=r"^[^\n]*$"):
            read_datagram(bad, NOW_MS, seal)


@settings(max_examples=count_examples(200))
@given(st.data(), st.sampled_from([-31_000, 31_000]))
def test_a_sealed_datagram_that_was_recorded_is_refused_later(data, later_ms):
    seal = Seal(b"a" * 16)
    _, written = data.draw(datagrams(seal))
    with pytest.raises(InvalidDatagram, match="31 s away"):
        read_datagram(written, NOW_MS + later_ms, seal)


def test_with_and_without_a_key_do_not_mix():
    nak = Nak(Session(1, 2), 3, 4, ((5, 6),))
    seal, other = Seal(b"a" * 16), Seal(b"b" * 16)
    for mine, theirs, said in [(None, seal, "no key is set"), (seal, None, "not sealed"), (seal, other, "another key")]:
        with pytest.raises(InvalidDatagram, match=said):
            read_datagram(write_nak(nak, NOW_MS, theirs), NOW_MS, mine)


@settings(max_examples=count_examples(300))
@given(st.data(), st.binary(max_size=200), st.integers(0, 2_000), st.integers(0, 255))
def test_no_bytes_harm_a_receiver(data, noise, place, change):
    """Noise, damaged datagrams, and datagrams that lie: nothing is raised, and memory stays within its bounds."""
    reading = ReceivingSettings(window_bytes=65_536, window_datagrams=64, sessions=4, on_arrival=change % 2 == 0)
    machine = Receiving(reading, 1, Random(1), 0.0)
    for step in range(30):
        _, written = data.draw(datagrams())
        damaged = bytearray(written)
        damaged[place % len(damaged)] ^= change
        for each in (noise, written, bytes(damaged), written[:place], b"HM\x01\x01" + noise):
            machine.receive(each, step * 0.01, NOW_MS)
        naks, _ = machine.poll(step * 0.01, NOW_MS)
        assert len(naks) <= 4
        assert all(len(nak) <= 1_400 for nak in naks)
        assert machine.held_bytes <= reading.window_bytes
        assert len(machine.streams) <= 4
        assert all(stream.holes <= reading.window_datagrams for stream in machine.streams.values())
    assert machine.counts.datagrams == 150


contents = st.builds(
    Content,
    st.none() | st.binary(max_size=100),
    st.none() | st.binary(max_size=20),
    st.lists(st.tuples(st.text(max_size=10), st.none() | st.binary(max_size=10)), max_size=4).map(tuple),
    st.integers(-(2**63), 2**63 - 1),
    st.none()
    | st.builds(
        lambda topic, partition, after, more, topic_id: Origin(topic, partition, after + more, after, topic_id),
        st.from_regex(r"[a-z.-]{1,249}", fullmatch=True), st.integers(0, 2**31 - 1), st.integers(-1, 2**61),
        st.integers(1, 2**61), st.binary(min_size=16, max_size=16),
    ),
)  # fmt: skip


@settings(max_examples=count_examples(300))
@given(contents)
def test_a_message_is_read_as_it_was_written(content):
    check_content(content)
    assert read_content(write_content(content)) == content


@settings(max_examples=count_examples(500))
@given(st.binary(max_size=200), contents, st.integers(0, 400), st.integers(0, 255))
def test_any_other_bytes_are_a_message_or_refused(noise, content, place, change):
    damaged = bytearray(write_content(content))
    damaged[place % len(damaged)] ^= change
    for data in (noise, bytes(damaged), bytes(damaged[:place])):
        with contextlib.suppress(InvalidMessage):  # and no other error
            read_content(data)
