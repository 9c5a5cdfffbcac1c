"""Adding up in plain Python, exactly and line by line: what the compiled way is measured by, and what there is without
it.

A set keeps 64 bits of a keyed hash for each member. Beyond its bound it keeps only those whose hash ends in a 0 bit,
then in two, and counts each of those for two, for four (M. Wegman's adaptive sampling, by P. Flajolet, 1990): so what
it keeps depends on no order and no chance, and with 10,000 kept the error is about 1 %.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

from headrace.gateways.statsd.aggregation import Aggregating, Aggregator, Summary, idle_facts
from headrace.gateways.statsd.packets import Batch
from headrace.gateways.statsd.parse import Kind, Sample, SeriesId
from headrace.gateways.statsd.timing import Running, timer_facts

_PRIME = 0x100000001B3
_MASK = 2**64 - 1


@dataclass(slots=True)
class _Timer:
    values: list[float] = field(default_factory=list)
    seen: int = 0
    weight: float = 0.0
    total: float = 0.0
    squares: float = 0.0
    low: float = inf
    high: float = -inf


@dataclass(slots=True)
class _Members:
    hashes: set[int] = field(default_factory=set)
    level: int = 0  # how many 0 bits a hash that is kept ends in


class _Interval(NamedTuple):
    """What came in one; the series are those of its end, whatever is forgotten since."""

    counters: dict[int, float]
    gauges: dict[int, float]
    timers: dict[int, _Timer]
    sets: dict[int, _Members]
    timed: list[Summary]
    series: dict[int, SeriesId]  # what has a result


class PlainAggregator(Aggregator):
    """Dictionaries by the number of the series."""

    def __init__(self, asked: Aggregating, *, seed: int = 0) -> None:
        super().__init__(asked)
        self._seed = seed
        self._random = random.Random(seed)  # noqa: S311 - which samples are kept is no secret
        self._gauges: dict[int, float] = {}
        self._idle: dict[int, int] = {}  # by number for how many intervals
        self._begin()

    def _begin(self) -> None:
        self._counters: dict[int, float] = {}
        self._timers: dict[int, _Timer] = {}
        self._sets: dict[int, _Members] = {}
        self._kept_samples = self._kept_members = 0
        self._most_samples = self.asked.samples

    def feed(self, packet: bytes) -> None:
        self.counts.packets += 1
        self.counts.bytes += len(packet)
        for line in packet.split(b"\n"):
            if line:
                for one in self._read(line):
                    self._take(one)

    def reader(self, batch: Batch) -> Callable[[int], None]:
        data = memoryview(batch.data)

        def read(count: int) -> None:
            for slot, start in zip(batch.slots[:count], batch.starts, strict=False):
                if slot.message.flags & Batch.TRUNCATED:
                    self._refuse_truncated(1)
                else:
                    self.feed(bytes(data[start : start + slot.size]))

        return read

    def _touch(self, number: int) -> None:
        self._idle[number] = 0

    def _add(self, number: int, sample: Sample) -> None:
        self._idle[number] = 0
        kind = sample.series.kind
        if kind is Kind.SET:
            self._add_member(number, hash_of(sample.member, self._seed))
        elif kind is Kind.COUNTER:
            value = self._counters.get(number, 0.0)
            for each in sample.values:
                value += each * sample.weight
            self._counters[number] = value
        elif kind is Kind.GAUGE:
            for each, is_delta in zip(sample.values, sample.deltas, strict=True):
                self._gauges[number] = self._gauges.get(number, 0.0) + each if is_delta else each
        else:
            for each in sample.values:
                self._add_sample(number, each, sample.weight)

    def _add_sample(self, number: int, value: float, weight: float) -> None:
        timer = self._timers.setdefault(number, _Timer())
        timer.seen += 1
        timer.weight += weight
        timer.total += value
        timer.squares += value * value
        timer.low, timer.high = min(timer.low, value), max(timer.high, value)
        while self._kept_samples >= self.asked.all_samples:
            self._most_samples //= 2
            for one in self._timers.values():
                if len(one.values) > self._most_samples:
                    one.values = self._random.sample(one.values, self._most_samples)
            self._kept_samples = sum(len(one.values) for one in self._timers.values())
        if len(timer.values) < self._most_samples:
            timer.values.append(value)
            self._kept_samples += 1
        elif (place := self._random.randrange(timer.seen)) < len(timer.values):
            timer.values[place] = value

    def _add_member(self, number: int, hashed: int) -> None:
        members = self._sets.setdefault(number, _Members())
        if hashed & ((1 << members.level) - 1) or hashed in members.hashes:
            return
        members.hashes.add(hashed)
        self._kept_members += 1
        while len(members.hashes) > self.asked.members:
            self._thin(members)
        while self._kept_members > self.asked.all_members:
            self._thin(max(self._sets.values(), key=lambda one: len(one.hashes)))

    def _thin(self, members: _Members) -> None:
        self._kept_members -= len(members.hashes)
        members.level += 1
        members.hashes = {each for each in members.hashes if not each & ((1 << members.level) - 1)}
        self._kept_members += len(members.hashes)

    # --- out

    def cut(self) -> _Interval:
        timed = self._cut_timed()
        shown: dict[int, SeriesId] = {}
        for number, series in enumerate(self.registry.series):
            if series is None:
                continue
            idle = self._idle.setdefault(number, 0)
            self._idle[number] = idle + 1
            is_kept = self.asked.keep_gauges if series.kind is Kind.GAUGE else self.asked.zeros
            if self.asked.forget_after and idle >= self.asked.forget_after:
                self.registry.forget(number)
                self._idle.pop(number)
                self._gauges.pop(number, None)
            elif not idle or is_kept:
                shown[number] = series
        interval = _Interval(self._counters, dict(self._gauges), self._timers, self._sets, timed, shown)
        self._begin()
        return interval

    def summaries(self, interval: _Interval, seconds: float) -> list[Summary]:
        found = list(interval.timed)
        for number, series in interval.series.items():
            kind = series.kind
            facts = None
            if kind is Kind.GAUGE:
                if number in interval.gauges:
                    facts = {"value": interval.gauges[number]}
            elif kind is Kind.COUNTER and number in interval.counters:
                value = interval.counters[number]
                facts = {"value": value, "rate": value / seconds}
            elif kind is Kind.SET and number in interval.sets:
                members = interval.sets[number]
                facts = {"count": len(members.hashes) << members.level}
                facts |= {"estimated": True} if members.level else {}
            elif number in interval.timers:
                timer = interval.timers[number]
                running = Running(timer.seen, timer.weight, timer.total, timer.squares, timer.low, timer.high)
                facts = timer_facts(sorted(timer.values), running, seconds, self.asked.rules.of(series.name))
            elif self.asked.zeros:
                facts = idle_facts(kind)
            if facts is not None:
                found.append(Summary(number, series, facts))
        return found


def hash_of(data: bytes, seed: int) -> int:
    """64 bits of a member: FNV-1a from a seed, then mixed so that its last bits are as good as any; never 0."""
    value = seed ^ 0xCBF29CE484222325
    for byte in data:
        value = ((value ^ byte) * _PRIME) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return (value ^ (value >> 31)) or 1
