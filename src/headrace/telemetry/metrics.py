"""Numbers about the running system, and the text in which Prometheus and everything that understands it reads them.

What a number is called, what it counts and which labels it has stands in its `Family`, once; the reference is made from
it. A family is rendered together with its samples, whatever they are kept in. Names follow Prometheus' conventions:
units in full and in the plural (`_seconds`, `_bytes`), `_total` for what only grows.

What always holds: the text of a label cannot break out of it, and a family has no more series than whoever collects it
lets through (`most`), so that whoever chooses names cannot choose how much is sent.
"""

import math
import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from heapq import nlargest
from typing import Final, NamedTuple, TypeVar

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
COUNTER, GAUGE, HISTOGRAM, SUMMARY = "counter", "gauge", "histogram", "summary"

# In seconds; from what an answer out of memory takes to what a client gives up after.
BOUNDS_S: Final = (
    0.0001,
    0.00025,
    0.0005,
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
)


class Family(NamedTuple):
    name: str
    kind: str
    meaning: str
    labels: tuple[str, ...] = ()


# What a broker and whoever looks at it from outside both tell.
TOPIC_BYTES: Final = Family("headrace_topic_size_bytes", GAUGE, "The size of a topic's logs.", ("topic",))
TOPIC_OFFSETS: Final = Family(
    "headrace_topic_offsets_total",
    COUNTER,
    "Offsets that were given out in a topic: its rate is that of writing.",
    ("topic",),
)
GROUP_LAG: Final = Family(
    "headrace_group_lag_records",
    GAUGE,
    "How many records lie behind the offsets that a group has committed; of a share group, what it has yet to finish.",
    ("group", "topic"),
)
SHARE_IN_FLIGHT: Final = Family(
    "headrace_share_in_flight_records", GAUGE, "Records that members of a share group hold now.", ("group", "topic")
)
SHARE_REDELIVERIES: Final = Family(
    "headrace_share_redeliveries_total",
    COUNTER,
    "Records that a share group was given again, since the broker started.",
    ("group", "topic"),
)


class Histogram:
    """How many values fell between which bounds, and what they add up to. Not for several threads at a time."""

    __slots__ = ("counts", "sum_s")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_S) + 1)
        self.sum_s = 0.0

    def observe(self, seconds: float) -> None:
        self.counts[bisect_left(BOUNDS_S, seconds)] += 1
        self.sum_s += seconds

    def plus(self, count: int, seconds: float) -> "Histogram":
        """The same with so many more below the first bound, which add up to so much."""
        whole = Histogram()
        whole.counts = [self.counts[0] + count, *self.counts[1:]]
        whole.sum_s = self.sum_s + seconds
        return whole

    @property
    def count(self) -> int:
        return sum(self.counts)


class Quantiles(NamedTuple):
    """What is known of values that somebody else has put in order: a few of them by their share, from 0 to 1."""

    values: Mapping[float, float]
    number: float  # how many all are
    total: float


Labels = tuple[str, ...]  # values, in the order of the family's names
Sample = tuple[Labels, float | Histogram | Quantiles]

T = TypeVar("T")


class Samples(NamedTuple):
    """A family, and what is known of it now."""

    family: Family
    samples: Iterable[Sample]


def keep_largest(samples: Iterable[tuple[T, float]], most: int) -> tuple[list[tuple[T, float]], int]:
    """Those with the largest values, and how many were left out."""
    known = list(samples)
    return nlargest(most, known, key=lambda sample: sample[1]), max(0, len(known) - most)


def render(collected: Iterable[Samples]) -> str:
    """The text; a family without samples is left out."""
    return "".join(line for family, samples in collected for line in _lines(family, samples))


def _lines(family: Family, samples: Iterable[Sample]) -> Iterator[str]:
    is_first = True
    for values, value in samples:
        if is_first:
            yield f"# HELP {family.name} {family.meaning}\n# TYPE {family.name} {family.kind}\n"
            is_first = False
        labels = [f'{name}="{_escape(text)}"' for name, text in zip(family.labels, values, strict=True)]
        if isinstance(value, Histogram):
            yield from _buckets(family.name, labels, value)
        elif isinstance(value, Quantiles):
            yield from _quantiles(family.name, labels, value)
        else:
            yield f"{family.name}{_braces(labels)} {_number(value)}\n"


def _buckets(name: str, labels: list[str], histogram: Histogram) -> Iterator[str]:
    below = 0
    for bound, count in zip((*BOUNDS_S, math.inf), tuple(histogram.counts), strict=True):
        below += count
        bucket = _braces([*labels, f'le="{_number(bound)}"'])
        yield f"{name}_bucket{bucket} {below}\n"
    yield f"{name}_sum{_braces(labels)} {_number(histogram.sum_s)}\n"
    yield f"{name}_count{_braces(labels)} {below}\n"


def _quantiles(name: str, labels: list[str], found: Quantiles) -> Iterator[str]:
    for share, value in found.values.items():
        quantile = f'quantile="{_number(share)}"'
        yield f"{name}{_braces([*labels, quantile])} {_number(value)}\n"
    yield f"{name}_sum{_braces(labels)} {_number(found.total)}\n"
    yield f"{name}_count{_braces(labels)} {_number(found.number)}\n"


def _braces(labels: list[str]) -> str:
    return f"{{{','.join(labels)}}}" if labels else ""


def _number(value: float) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
    return repr(value)


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def as_name(text: str) -> str:
    """What somebody else called a metric or a label, in the letters that Prometheus allows."""
    return re.sub(r"^(?=[0-9]|$)|[^a-zA-Z0-9_]", "_", text)
