"""What bounds keep out is counted, and what they keep a sample of is still near the truth; both ways of adding up."""

import statistics
from collections.abc import Iterator

import numpy as np
import pytest

from headrace.gateways.statsd.aggregation import Aggregating, Aggregator, Summary
from headrace.gateways.statsd.columnar import ColumnarAggregator
from headrace.gateways.statsd.plain import PlainAggregator
from headrace.gateways.statsd.streams import PacketFramer

BOTH = pytest.mark.parametrize("make", [PlainAggregator, ColumnarAggregator])


def summaries(of: Aggregator) -> dict[str, Summary]:
    return {f"{one.series.kind.label} {one.series.key}": one for one in of.summaries(of.cut(), 10.0)}


@BOTH
def test_more_values_than_are_kept(make: type[Aggregator]) -> None:
    of = make(Aggregating(samples=1_000))
    values = np.random.default_rng(5).normal(500, 100, 50_000).round(3).tolist()
    for at in range(0, len(values), 500):
        of.feed(b"\n".join(b"t:%r|ms" % value for value in values[at : at + 500]))
    facts = summaries(of)["timer t"].facts
    assert (facts["count"], facts["samples"], facts["sampled"]) == (50_000, 50_000, 1_000)
    assert facts["sum"] == pytest.approx(sum(values))
    assert (facts["lower"], facts["upper"]) == (min(values), max(values))
    assert facts["std"] == pytest.approx(statistics.pstdev(values))
    # Of 1,000 chosen values the median is within 4 standard errors of about 4 of that of all.
    assert facts["median"] == pytest.approx(statistics.median(values), abs=16)
    assert facts["upper_90"] == pytest.approx(sorted(values)[45_000], abs=28)
    assert facts["count_90"] == 45_000
    assert facts["sum_90"] == pytest.approx(sum(sorted(values)[:45_000]), rel=0.03)


@BOTH
def test_every_value_is_as_likely_to_be_kept(make: type[Aggregator]) -> None:
    kept_early = 0
    for seed in range(60):
        of = make(Aggregating(samples=50), seed=seed)  # type: ignore[call-arg]
        of.feed(b"\n".join(b"t:%d|ms" % value for value in range(1_000)))
        median = summaries(of)["timer t"].facts["median"]
        kept_early += median < 500
    assert 15 <= kept_early <= 45  # of 60; beyond that is less likely than one in ten thousand


@BOTH
def test_more_values_with_a_time_than_are_kept(make: type[Aggregator]) -> None:
    of = make(Aggregating(series=10_000))
    of.feed(b"\n".join(b"a:1|c|T%d" % time_s for time_s in range(10_001)))
    assert of.counts.refused == 1
    of.feed(b"\n".join(b"n%d:1|c|T1" % number for number in range(8_000)))
    assert (of.counts.refused, len(of.registry)) == (8_001, 1)
    of.feed(b"live:1|c\na:2|c|T7")  # what is known already has room
    found = of.summaries(of.cut(), 10.0)
    assert len(found) == 10_001
    assert [one.facts["value"] for one in found if one.time_s == 7] == [3]
    assert [one.facts["value"] for one in found if one.series.name == "live"] == [1]


class _Small(Aggregating):
    """With bounds of all series that a test can reach."""

    all_samples = 4_000
    all_members = 4_000


@BOTH
def test_more_values_than_are_kept_of_all_series(make: type[Aggregator]) -> None:
    of = make(_Small(series=100, samples=1_000))
    for turn in range(300):
        of.feed(b"\n".join(b"t%d:%d|ms" % (number, turn) for number in range(100)))
    found = summaries(of)
    assert len(found) == 100
    for one in found.values():
        assert (one.facts["count"], one.facts["upper"], one.facts["lower"]) == (300, 299, 0)
        assert one.facts["sum"] == sum(range(300))
        assert 8 <= one.facts["sampled"] <= 40
    of.feed(b"t1:5:6:7|ms")
    assert summaries(of)["timer t1"].facts["median"] == 6


@BOTH
def test_more_values_in_a_line_than_there_is_room_for(make: type[Aggregator]) -> None:
    of = make(_Small(series=100, samples=2_000))
    for _ in range(3):
        of.feed(b"t:" + b":".join(b"%d" % (value % 100) for value in range(1_900)) + b"|ms")
        of.feed(b"u:1|ms")
    found = summaries(of)
    assert (found["timer t"].facts["count"], found["timer t"].facts["upper"]) == (5_700, 99)
    assert found["timer u"].facts["samples"] == 3


@BOTH
def test_more_members_than_are_kept(make: type[Aggregator]) -> None:
    of = make(Aggregating(members=1_000))
    for at in range(0, 20_000, 500):
        numbers = range(at, at + 500)
        of.feed(b"\n".join(b"s:member-%d|s\nfew:%d|s" % (number % 10_000, number % 10) for number in numbers))
    found = summaries(of)
    assert found["set s"].facts["estimated"] is True
    assert found["set s"].facts["count"] == pytest.approx(10_000, rel=0.15)
    assert found["set few"].facts == {"count": 10}


@BOTH
def test_more_members_than_are_kept_of_all_sets(make: type[Aggregator]) -> None:
    of = make(_Small(series=100))
    for at in range(0, 20_000, 500):
        lines = [b"large:%d|s\nsmall%d:%d|s" % (each, each % 10, each % 100) for each in range(at, at + 500)]
        of.feed(b"\n".join(lines))
    found = summaries(of)
    assert found["set large"].facts["count"] == pytest.approx(20_000, rel=0.1)
    assert [found[f"set small{number}"].facts for number in range(10)] == [{"count": 10}] * 10


@BOTH
def test_more_series_than_there_may_be(make: type[Aggregator]) -> None:
    of = make(Aggregating(series=10, forget_after=1))
    for _ in range(3):
        for number in range(30):
            of.feed(b"a%d:1|c" % number)
    assert of.counts.refused == 60
    assert len(summaries(of)) == 10
    assert summaries(of) == {}  # nothing came, and what is idle is forgotten
    for number in range(30, 40):
        of.feed(b"a%d:1|c" % number)
    assert len(summaries(of)) == 10
    assert of.counts.refused == 60


@BOTH
def test_events_that_nobody_fetches(make: type[Aggregator]) -> None:
    of = make(Aggregating())
    for _ in range(10_100):
        of.feed(b"_sc|a|0")
    assert len(of.fetch_happened()) == 10_000
    assert of.counts.missed == 100


@pytest.mark.parametrize("names", [5_000, 20_000, 80_000])
def test_memory_does_not_grow_with_names_that_are_refused(names: int) -> None:
    of = ColumnarAggregator(Aggregating(series=1_000, samples=10, members=10))
    for at in range(0, names, 500):
        of.feed(b"\n".join(b"name-%d:1|ms\nset-%d:x|s" % (each, each % 2_000) for each in range(at, at + 500)))
    assert len(of.registry) == 1_000
    assert sum(array.nbytes for array in arrays(of)) < 16 * 1024 * 1024
    assert len(of.registry.series) == 1_000


@pytest.mark.parametrize("values", [10_000, 100_000, 1_000_000])
def test_memory_does_not_grow_with_values(values: int) -> None:
    of = ColumnarAggregator(Aggregating(series=100, samples=1_000, members=1_000))
    packet = b":".join([b"t", *(b"%d" % (number % 997) for number in range(1_000))]) + b"|ms"
    for number in range(values // 1_000):
        of.feed(packet)
        of.feed(b"\n".join(b"s:%d|s" % (1_000 * number + each) for each in range(1_000)))
    assert summaries(of)["timer t"].facts["samples"] == values
    assert sum(array.nbytes for array in arrays(of)) < 16 * 1024 * 1024


def arrays(of: ColumnarAggregator) -> Iterator[np.ndarray]:
    for value in vars(of).values():
        for one in value if isinstance(value, tuple) else [value]:
            if isinstance(one, np.ndarray):
                yield one


def test_a_line_is_learned_once_however_often_its_values_are_not_simple() -> None:
    of = ColumnarAggregator(Aggregating())
    for _ in range(100):
        of.feed(b"a:1e2|c")
    assert of._spelled == 1
    assert summaries(of)["counter a"].facts["value"] == 10_000


# --- streams


def test_lines_are_the_same_however_they_are_cut() -> None:
    sent = b"a:1|c\nb:2|c\n" + b"x" * 50 + b"\nc:3|c\n" + b"d:4|c"
    for size in (1, 2, 3, 7, 100):
        framer = PacketFramer(20)
        found = b""
        for at in range(0, len(sent), size):
            found += b"".join(framer.feed(sent[at : at + size]).frames)
        lines = [line for line in found.split(b"\n") if line and len(line) <= 20]
        assert lines == [b"a:1|c", b"b:2|c", b"c:3|c"]
        assert framer.finish().problem == "a connection ended within a line"


def test_packets_with_their_lengths_before_them() -> None:
    packets = [b"aa:1234|ms", b"", b"b:2|c\nc:3|c"]  # the first length begins with the number of a line feed
    sent = b"".join(len(packet).to_bytes(4, "little") + packet for packet in packets)
    for size in (1, 3, 100):
        framer = PacketFramer(8192)
        found = [frame for at in range(0, len(sent), size) for frame in framer.feed(sent[at : at + size]).frames]
        assert found == packets
        assert framer.finish().problem == ""
    framer = PacketFramer(8192)
    assert framer.feed(b"\1\0\0\0a").frames == [b"a"]
    assert "announced" in framer.feed(b"\0\0\0\7").problem
