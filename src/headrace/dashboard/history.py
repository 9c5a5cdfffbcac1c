"""How things went over the last minutes: series of numbers, made by comparing each snapshot with the one before.

Pure, and immutable: `advanced` gives the next history, so that a page can read one while the next is being made.

What always holds: a series has at most `POINTS` points and there are series only for what exists now, at most
`MAX_NAMES` of a kind; a number that went down (a topic made anew, a group moved back) counts as no progress.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from headrace.dashboard.snapshot import GroupSample, Snapshot
from headrace.model import TopicPartition

T = TypeVar("T")

POINTS = 300
PLACES = 30  # of one partition of one group: enough to tell a pace
MAX_NAMES = 1000


class Point(NamedTuple):
    at_ms: int
    value: float


Series = tuple[Point, ...]
Places = Mapping[TopicPartition, Series]


@dataclass(frozen=True, slots=True)
class History:
    """Rates in records a second, lags in records, and how old the next record of each reader was."""

    last: Snapshot | None = None
    written: Series = ()
    read: Series = ()
    lag: Series = ()
    topics: Mapping[str, Series] = field(default_factory=dict)
    group_reads: Mapping[str, Series] = field(default_factory=dict)
    group_lags: Mapping[str, Series] = field(default_factory=dict)
    places: Mapping[str, Places] = field(default_factory=dict)  # the timestamp of what each group reads next

    def advance(self, now: Snapshot) -> "History":
        before = self.last
        lags = {name: _first(self.group_lags.get(name, ()), now.at_ms, group) for name, group in _some(now.groups)}
        places = {name: _places(self.places.get(name, {}), now.at_ms, group) for name, group in _some(now.groups)}
        if before is None or now.at_ms <= before.at_ms:
            return History(now, self.written, self.read, _sum(self.lag, now), self.topics, {}, lags, places)
        seconds = (now.at_ms - before.at_ms) / 1000
        topics = {
            name: _grown(self.topics.get(name, ()), now.at_ms, topic.written - before.topics[name].written, seconds)
            for name, topic in _some(now.topics)
            if name in before.topics
        }
        reads = {
            name: _grown(self.group_reads.get(name, ()), now.at_ms, _progress(before.groups[name], group), seconds)
            for name, group in _some(now.groups)
            if name in before.groups and not group.problem and not before.groups[name].problem
        }
        own = (series[-1].value for name, series in topics.items() if not now.topics[name].is_internal)
        return History(
            now,
            _append(self.written, Point(now.at_ms, sum(own))),
            _append(self.read, Point(now.at_ms, sum(series[-1].value for series in reads.values()))),
            _sum(self.lag, now),
            topics,
            reads,
            lags,
            places,
        )


def _some(things: Mapping[str, T]) -> Iterable[tuple[str, T]]:
    return list(things.items())[:MAX_NAMES]


def _append(series: Series, point: Point, most: int = POINTS) -> Series:
    return (*series[1 - most :], point) if len(series) >= most else (*series, point)


def _grown(series: Series, at_ms: int, growth: int, seconds: float) -> Series:
    return _append(series, Point(at_ms, max(growth, 0) / seconds))


def _progress(before: GroupSample, now: GroupSample) -> int:
    """How many records were read since; a first commit somewhere says where a group is, not what it read."""
    places = {lag.partition: lag.committed for lag in before.partitions}
    return sum(
        max(lag.committed - (places.get(lag.partition) or 0), 0)
        for lag in now.partitions
        if lag.committed is not None and places.get(lag.partition) is not None
    )


def _first(series: Series, at_ms: int, group: GroupSample) -> Series:
    return series if group.lag_records is None else _append(series, Point(at_ms, group.lag_records))


def _sum(series: Series, now: Snapshot) -> Series:
    return _append(series, Point(now.at_ms, sum(group.lag_records or 0 for group in now.groups.values())))


def _places(before: Places, at_ms: int, group: GroupSample) -> Places:
    return {
        lag.partition: _append(before.get(lag.partition, ()), Point(at_ms, lag.next_ms), PLACES)
        for lag in group.partitions[:MAX_NAMES]
        if lag.next_ms is not None
    }


def smooth(series: Series, points: int = 5) -> float | None:
    """The mean of the last few numbers: what a person would call the rate."""
    last = series[-points:]
    return sum(point.value for point in last) / len(last) if last else None


def window(series: Series, length_ms: int) -> Series:
    return tuple(point for point in series if point.at_ms > series[-1].at_ms - length_ms) if series else ()
