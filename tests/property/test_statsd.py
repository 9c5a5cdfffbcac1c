"""Lines of StatsD: nothing that is sent breaks the reader, and the compiled walk adds up as the exact reader does."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from headrace.gateways.statsd.aggregation import Aggregating, Aggregator, Summary
from headrace.gateways.statsd.columnar import ColumnarAggregator
from headrace.gateways.statsd.parse import Dialect, Sanitise, read_lines
from headrace.gateways.statsd.plain import PlainAggregator
from headrace.gateways.statsd.timing import TimerRule, TimerRules

_NAMES = st.sampled_from(["a", "b.c", "a/b c", "n;x=1", "n,x=1,y=2", "n#x=1", "n,x", "é", "_sc", "a" * 300])
_ODD_NUMBERS = (
    ["1.", ".5", ".", "", "-", "+3", "-0.25", "-0", " 7 ", "1 2", "1e3", "1e999", "0x10", "nan"],
    ["9007199254740992", "9007199254740993", "123456789012345678901234567890"],
    ["0.1234567890123456789012345", "00000000000000000000000000000001"],
)
_NUMBERS = st.one_of(
    st.integers(-10, 10).map(str),
    st.floats(-1e6, 1e6).map(repr),
    st.sampled_from([number for numbers in _ODD_NUMBERS for number in numbers]),
)
_VALUES = st.lists(_NUMBERS, min_size=1, max_size=4).map(":".join)
_TYPES = st.sampled_from(["c", "g", "ms", "h", "d", "s", " c", "x", "", "c:2|c", "c|@0.5:3|g"])
_ODD_SECTIONS = (
    ["@0.5", "@0.1", "@0", "@2", "@x", "T1656581400", "T-1", "c:ci-1", "e:x", "?", ""],
    ["#a:b", "#b,a:c", "#a:c,b", "#"],
)
_SECTIONS = st.lists(st.sampled_from([section for sections in _ODD_SECTIONS for section in sections]), max_size=3).map(
    lambda sections: "".join(f"|{section}" for section in sections)
)
_METRICS = st.builds("{}:{}|{}{}".format, _NAMES, _VALUES, _TYPES, _SECTIONS)
_EVENTS = ("_e{1,1}:a|b", "_e{2,1}:é|b|#x", "_e{9,1}:a|b", "_sc|a|0|m:x", "_sc|a|7")
_OTHERS = st.sampled_from([*_EVENTS, "a", ":", "|", "a|c", "a:1", "a:1|c\r", "", "\r"])
_LINES = st.lists(st.one_of(_METRICS, _OTHERS), max_size=12).map(lambda lines: "\n".join(lines).encode())
_PACKETS = st.lists(st.one_of(_LINES, st.binary(max_size=60)), min_size=1, max_size=8)
_ASKED = st.builds(
    Aggregating,
    dialect=st.builds(
        Dialect,
        sanitise=st.sampled_from(Sanitise),
        gauge_deltas=st.booleans(),
        container_tag=st.sampled_from(["", "container"]),
        line_bytes=st.sampled_from([20, 8192]),
    ),
    rules=st.just(TimerRules(TimerRule((90.0, -10.0, 0.1), (0.0, 5.0, math.inf)), (("b*", TimerRule((50.0,))),))),
    zeros=st.booleans(),
    keep_gauges=st.booleans(),
    forget_after=st.integers(0, 2),
    series=st.sampled_from([2, 100]),
    samples=st.just(10_000),
    members=st.sampled_from([2, 10_000]),
)


@given(st.one_of(st.binary(max_size=200), _METRICS.map(str.encode)))
def test_any_line_is_read_or_refused_with_one_sentence(line: bytes) -> None:
    read, bad = read_lines(line, Dialect())
    assert read or bad
    for error in bad:
        assert "\n" not in str(error)
        assert len(str(error)) < 400


@given(_ASKED, st.lists(_PACKETS, min_size=1, max_size=3), st.integers(0, 2**64 - 1))
def test_the_compiled_walk_adds_up_as_the_exact_reader(
    asked: Aggregating, intervals: list[list[bytes]], seed: int
) -> None:
    both: list[Aggregator] = [PlainAggregator(asked, seed=seed), ColumnarAggregator(asked, seed=seed)]
    for packets in intervals:
        found = []
        for one in both:
            for packet in packets:
                one.feed(packet)
            found.append((_in_order(one.summaries(one.cut(), 10.0)), one.counts, one.fetch_happened()))
        assert found[0] == found[1]


def _in_order(summaries: list[Summary]) -> list[Summary]:
    return sorted(summaries, key=lambda one: (one.number, one.time_s or 0))
