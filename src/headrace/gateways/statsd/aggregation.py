"""What metrics add up to in an interval: what is asked, what comes out, and what every way of adding up has in common.

What always holds: all lines of a packet are taken in their order; a line that cannot be read changes nothing but a
count; and there are bounds for series, for samples and members of each and of all, for values with a time of their own,
and for events that nobody fetches. What a bound keeps out is counted, or makes a result one of a sample, which says so.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from headrace.gateways.statsd.packets import Batch
from headrace.gateways.statsd.parse import BadLine, Check, Dialect, Event, Kind, Line, Sample, SeriesId, read_lines
from headrace.gateways.statsd.series import Registry
from headrace.gateways.statsd.timing import Facts, TimerRules

_HAPPENED: Final = 10_000  # events and checks that wait to be fetched
_FEWEST_SAMPLES: Final = 8  # of a series, however many series there are


@dataclass(frozen=True, slots=True)
class Aggregating:
    """What is asked."""

    dialect: Dialect = field(default_factory=Dialect)
    rules: TimerRules = field(default_factory=TimerRules)
    zeros: bool = False  # series without a value in an interval have a result of nothing
    keep_gauges: bool = True  # a gauge without a value in an interval has the last one
    forget_after: int = 360  # intervals without a value, after which a series is none; 0 for never
    series: int = 100_000
    samples: int = 10_000  # of a series in an interval
    members: int = 10_000  # likewise

    @property
    def all_samples(self) -> int:
        return max(4 * 1024 * 1024, 2 * _FEWEST_SAMPLES * self.series, 8 * self.samples)

    @property
    def all_members(self) -> int:
        return max(1024 * 1024, 2 * self.series)


class Summary(NamedTuple):
    """A series in an interval."""

    number: int
    series: SeriesId
    facts: Facts
    time_s: int | None = None  # of a value that had its own


@dataclass(slots=True)
class Counts:
    """What came, since the start."""

    packets: int = 0
    bytes: int = 0
    lines: int = 0
    bad: int = 0
    refused: int = 0  # values of series that there was no room for
    missed: int = 0  # events and checks that there was no room for
    last_bad: str = ""


@dataclass(slots=True)
class _Timed:
    """Values with a time of their own, which belong to no interval."""

    value: float = 0.0


class Aggregator(ABC):
    """One thread at a time."""

    def __init__(self, asked: Aggregating) -> None:
        self.asked = asked
        self.counts = Counts()
        self.registry = Registry(asked.series)
        self._timed: dict[tuple[int, int], _Timed] = {}
        self._happened: list[Event | Check] = []

    # --- in

    def warm_up(self) -> None:  # noqa: B027 - there may be nothing
        """Do what would take long at the first packet."""

    @abstractmethod
    def feed(self, packet: bytes) -> None:
        """Take a packet: lines, the last with or without its end."""

    @abstractmethod
    def reader(self, batch: Batch) -> Callable[[int], None]:
        """What takes the first so many datagrams of a batch."""

    def add(self, kind: Kind, name: str, value: float) -> None:
        """A value of our own."""
        self._take(Sample(SeriesId(kind, name), (value,), (False,)))

    def _read(self, line: bytes) -> list[Line]:
        """A line with something in it, which is counted."""
        self.counts.lines += 1
        read, bad = read_lines(line, self.asked.dialect)
        for error in bad:
            self._refuse(error)
        return read

    def _refuse_truncated(self, count: int) -> None:
        self.counts.bad += count
        self.counts.last_bad = "a datagram has more than 65,536 bytes"

    def _refuse(self, error: BadLine) -> None:
        self.counts.bad += 1
        self.counts.last_bad = str(error)

    def _take(self, line: Line) -> int | None:
        """What a line says; the number of its series, if it is a value of an interval."""
        if not isinstance(line, Sample):
            if len(self._happened) < _HAPPENED:
                self._happened.append(line)
            else:
                self.counts.missed += 1
            return None
        if line.time_s is not None:
            self._take_timed(line, line.time_s)
            return None
        number = self.registry.number(line.series)
        if number is None:
            self.counts.refused += 1
        else:
            self._add(number, line)
        return number

    def _take_timed(self, line: Sample, time_s: int) -> None:
        is_full = len(self._timed) >= self.asked.series
        # A value that is refused makes no series: each that has a number was added to.
        number = self.registry.find(line.series) if is_full else self.registry.number(line.series)
        if number is None or (is_full and (number, time_s) not in self._timed):
            self.counts.refused += 1
            return
        timed = self._timed.setdefault((number, time_s), _Timed())
        if line.series.kind is Kind.COUNTER:
            timed.value += sum(value * line.weight for value in line.values)
        else:
            timed.value = line.values[-1]
        self._touch(number)

    @abstractmethod
    def _add(self, number: int, sample: Sample) -> None: ...

    @abstractmethod
    def _touch(self, number: int) -> None:
        """The series is not idle, though it has no value of this interval."""

    # --- out

    def fetch_happened(self) -> list[Event | Check]:
        """Events and service checks since the last call."""
        happened, self._happened = self._happened, []
        return happened

    @abstractmethod
    def cut(self) -> Any:
        """End the interval and begin the next, at once; what it was is for `summaries`."""

    @abstractmethod
    def summaries(self, interval: Any, seconds: float) -> list[Summary]:
        """What an interval of so many seconds added up to. It may take its time, beside what feeds the next."""

    def _cut_timed(self) -> list[Summary]:
        timed, self._timed = self._timed, {}
        found = []
        for (number, time_s), one in timed.items():
            series = self.registry.series[number]
            assert series is not None
            found.append(Summary(number, series, {"value": one.value}, time_s))
        return found


def idle_facts(kind: Kind) -> Facts:
    """A counter, a timer or a set without a value."""
    if kind is Kind.COUNTER:
        return {"value": 0, "rate": 0}
    return {"count": 0} if kind is Kind.SET else {"count": 0, "count_ps": 0}
