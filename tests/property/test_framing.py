"""Framing: the same frames however the bytes were cut, equal to a plain reading, bounded whatever comes."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.gateways.framing import DelimiterFramer, Framer, LengthFramer, OctetFramer
from tests.property.storage_model import count_examples

LIMIT = 9
Found = list[tuple[bytes, bool] | str]

FRAMERS: dict[str, Callable[[], Framer]] = {
    "lines": lambda: DelimiterFramer(LIMIT),
    "crlf": lambda: DelimiterFramer(LIMIT, b"\r\n"),
    "nul": lambda: DelimiterFramer(LIMIT, b"\0"),
    "aab": lambda: DelimiterFramer(LIMIT, b"aa"),
    "octets": lambda: OctetFramer(LIMIT),
    "octets or lines": lambda: OctetFramer(LIMIT, also_lines=True),
    "length 1": lambda: LengthFramer(LIMIT, 1),
    "length 2": lambda: LengthFramer(LIMIT, 2),
    "length 4": lambda: LengthFramer(LIMIT, 4),
}
# What is likely to matter: ends, counts, and lengths that are small.
stream = st.lists(
    st.one_of(
        st.sampled_from([b"\n", b"\r\n", b"\r", b"\0", b"a", b"aa", b" ", b"0 ", b"00", b"3 abc", b"10 0123456789"]),
        st.sampled_from([b"\0\0\0\2hi", b"\0\2hi", b"\2hi", b"12", b"<13>x\n", b"99999999999", b"x" * 12]),
        st.binary(max_size=6),
    ),
    max_size=14,
).map(b"".join)


def read(framer: Framer, pieces: list[bytes]) -> Found:
    found: Found = []
    for frames in (*map(framer.feed, pieces), framer.finish()):
        found += [(frame, place in frames.cut) for place, frame in enumerate(frames.frames)]
        found += [frames.problem] * bool(frames.problem)
    return found


def cut(data: bytes, places: list[int]) -> list[bytes]:
    ends = sorted({place % (len(data) + 1) for place in places})
    return [data[a:b] for a, b in zip([0, *ends], [*ends, len(data)], strict=True)]


@pytest.mark.parametrize("name", FRAMERS)
@settings(max_examples=count_examples(400))
@given(data=stream, places=st.lists(st.integers(0, 200), max_size=8))
def test_the_frames_do_not_depend_on_how_the_bytes_were_cut(name: str, data: bytes, places: list[int]) -> None:
    whole = read(FRAMERS[name](), [data])
    assert read(FRAMERS[name](), cut(data, places)) == whole
    assert read(FRAMERS[name](), [data[i : i + 1] for i in range(len(data))]) == whole
    assert all(len(frame[0]) <= LIMIT for frame in whole if not isinstance(frame, str))


@settings(max_examples=count_examples(400))
@given(data=stream, delimiter=st.sampled_from([b"\n", b"\r\n", b"\0", b"aa"]))
def test_delimited_frames_are_what_split_says(data: bytes, delimiter: bytes) -> None:
    parts = data.split(delimiter)
    if not parts[-1]:
        parts.pop()
    if delimiter == b"\n":
        parts = [part.removesuffix(b"\r") for part in parts]
    expected = [(part[:LIMIT], len(part) > LIMIT) for part in parts]
    assert read(DelimiterFramer(LIMIT, delimiter), [data]) == expected


@settings(max_examples=count_examples(300))
@given(frames=st.lists(st.binary(max_size=20), max_size=8), length=st.sampled_from([1, 2, 4]))
def test_what_was_framed_by_length_or_count_is_read_back(frames: list[bytes], length: int) -> None:
    expected = [(frame[:LIMIT], len(frame) > LIMIT) for frame in frames]
    framed = b"".join(len(frame).to_bytes(length, "big") + frame for frame in frames)
    assert read(LengthFramer(LIMIT, length), [framed]) == expected
    counted = b"".join(b"%d %s" % (len(frame), frame) for frame in frames)
    assert read(OctetFramer(LIMIT), [counted]) == expected
    assert read(OctetFramer(LIMIT, also_lines=True), [counted]) == expected
    broken = b"".join(b"%d %s\n" % (len(frame), frame) for frame in frames)
    assert read(OctetFramer(LIMIT, also_lines=True), [broken]) == expected


def test_counts_and_lines_may_be_mixed() -> None:
    sent = b"<13>one\n5 <13>2<13>three\r\n\n2026-11-18 four\0\n3 abc12 <13>cut sho"
    framer = OctetFramer(64, also_lines=True)
    assert read(framer, [sent]) == [
        (b"<13>one", False), (b"<13>2", False), (b"<13>three", False), (b"2026-11-18 four", False), (b"abc", False),
        "the stream ended within a frame",
    ]  # fmt: skip


def test_a_framing_that_is_lost_says_so_once_and_keeps_what_was_before() -> None:
    framer = OctetFramer(64)
    found = framer.feed(b"3 abcxyz 3 def")
    assert found.frames == [b"abc"]
    assert found.problem == "a count and a space were to stand before the frame, where b'x' stands"
    assert framer.feed(b"3 abc").frames == framer.finish().frames == []


@pytest.mark.parametrize("name", FRAMERS)
def test_a_frame_without_an_end_takes_no_more_memory_than_its_limit(name: str) -> None:
    framer = FRAMERS[name]()
    framer.feed({"octets": b"9999999999 ", "octets or lines": b"<13>"}.get(name, b"\x7f"))
    for _ in range(1_000):
        framer.feed(b"x" * 10_000)
        held = framer._held  # type: ignore[attr-defined]
        assert len(held) <= LIMIT + 16
