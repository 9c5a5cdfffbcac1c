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
from headrace.queues.overview import QueueGroup

T = TypeVar("T")

POINTS = 300
PLACES = 30  # of one partition of one group: enough to tell a pace
MAX_NAMES = 1000


class Point(NamedTuple):
    at_ms: int
    value: float


Series = tuple[Point, ...]
Places = Mapping[TopicPartition, Series]
QueueKey = tuple[str, str]  # the queue, and the group
DEPTH, AGE, IN_FLIGHT, REDELIVERIES, LETTERS = "depth", "age_s", "in_flight", "redeliveries", "letters"
QueueSeries = Mapping[str, Series]  # by these names; redeliveries are a rate


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
    queues: Mapping[QueueKey, QueueSeries] = field(default_factory=dict)

    def advance(self, now: Snapshot) -> "History":
        before = self.last
        lags = {name: _first(self.group_lags.get(name, ()), now.at_ms, group) for name, group in _some(now.groups)}
        places = {name: _places(self.places.get(name, {}), now.at_ms, group) for name, group in _some(now.groups)}
        if before is None or now.at_ms <= before.at_ms:
            queues = _queues(self.queues, now, None)
            return History(now, self.written, self.read, _sum(self.lag, now), self.topics, {}, lags, places, queues)
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
            _queues(self.queues, now, before),
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


def _queues(
    series: Mapping[QueueKey, QueueSeries], now: Snapshot, before: Snapshot | None
) -> dict[QueueKey, QueueSeries]:
    """The numbers of every group of every queue; what is not known has no point."""
    found: dict[QueueKey, QueueSeries] = {}
    for name, queue in _some(now.queues):
        for group in queue.groups[:MAX_NAMES]:
            known = series.get((name, group.name), {})
            age_ms = group.age_ms(now.at_ms) if group.depth else 0
            numbers = {
                DEPTH: group.depth,
                AGE: None if age_ms is None else age_ms / 1000,
                IN_FLIGHT: group.in_flight,
                REDELIVERIES: _rate_again(name, group, now, before),
                LETTERS: group.letters.number if group.letters else None,
            }
            found[name, group.name] = {
                fact: known.get(fact, ()) if value is None else _append(known.get(fact, ()), Point(now.at_ms, value))
                for fact, value in numbers.items()
            }
    return found


def _rate_again(name: str, group: QueueGroup, now: Snapshot, before: Snapshot | None) -> float | None:
    """How many messages a second were delivered again; a broker that was started anew begins to count from zero."""
    queue = before.queues.get(name) if before else None
    earlier = queue.group(group.name) if queue else None
    if before is None or earlier is None or earlier.redeliveries is None or group.redeliveries is None:
        return None
    growth = group.redeliveries - earlier.redeliveries
    return (growth if growth >= 0 else group.redeliveries) * 1000 / (now.at_ms - before.at_ms)


def smooth(series: Series, points: int = 5) -> float | None:
    """The mean of the last few numbers: what a person would call the rate."""
    last = series[-points:]
    return sum(point.value for point in last) / len(last) if last else None


def window(series: Series, length_ms: int) -> Series:
    return tuple(point for point in series if point.at_ms > series[-1].at_ms - length_ms) if series else ()
