"""Server-sent events are the same however the answer was cut."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.connect.changes.sent_events import Event, parse_events

EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["state", "change", "live"]),
        st.sampled_from(["", "7", "123"]),
        st.dictionaries(st.text(max_size=4), st.text(max_size=6) | st.integers() | st.none(), max_size=3),
    ),
    max_size=5,
)


@given(EVENTS, st.lists(st.integers(0, 400), max_size=20), st.sampled_from(["\n", "\r\n", "\r"]), st.booleans())
def test_events_come_whole_however_they_were_cut(
    events: list[tuple[str, str, dict[str, Any]]], cuts: list[int], end: str, with_comments: bool
) -> None:
    text, expected, last = "", [], ""
    for kind, id_, data in events:
        if with_comments:
            text += f": still here{end}{end}"
        text += f"event: {kind}{end}" + (f"id: {id_}{end}" if id_ else "") + f"data: {json.dumps(data)}{end}{end}"
        last = id_ or last
        expected.append(Event(kind, last, data))
    data_bytes = text.encode() + b"event: cut off" + end.encode()
    places = sorted({min(cut, len(data_bytes)) for cut in cuts})
    pieces = [data_bytes[a:b] for a, b in zip([0, *places], [*places, len(data_bytes)], strict=True)]
    assert list(parse_events(pieces)) == expected


@given(st.lists(st.binary(max_size=60), max_size=8))
def test_no_bytes_harm_a_reader(pieces: list[bytes]) -> None:
    try:
        for event in parse_events(pieces):
            assert isinstance(event.data, dict)
    except ValueError:
        pass


def test_what_is_too_large_is_refused_before_it_is_held() -> None:
    taken = 0

    def endless() -> Any:
        nonlocal taken
        while True:
            taken += 1
            yield b"x" * 1000

    with pytest.raises(ValueError, match="more than"):
        list(parse_events(endless(), most_bytes=10_000))
    assert taken <= 11
    lines = (b"data: 1234567890\n" for _ in range(10**9))
    with pytest.raises(ValueError, match="more than"):
        list(parse_events(lines, most_bytes=10_000))
