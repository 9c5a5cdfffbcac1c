"""Adding up in arrays, by the compiled walk; what the walk leaves is read exactly, and taught to it where it can be.

What always holds: the result is that of `plain.PlainAggregator`, but for which samples a bound keeps, which is by
chance. The arrays grow with the series that there are. What the walk was taught is no more than a copy of what the
exact reader said: it is thrown away when it takes up too much room, and learned again.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace.gateways.statsd import walk
from headrace.gateways.statsd.aggregation import Aggregating, Aggregator, Summary, idle_facts
from headrace.gateways.statsd.packets import Batch
from headrace.gateways.statsd.parse import Kind, Sample, SeriesId
from headrace.gateways.statsd.timing import WHOLE, Facts, TimerRule
from headrace.gateways.statsd.walk import Bytes, Doubles, Interval, Longs, Spellings

_SERIES: Final = 1_024  # that there is room for at first
_MOST_TEXT: Final = 64 * 1024 * 1024  # bytes of all spellings
_SPELLINGS_A_SERIES: Final = 4
_LOOK: Final = 512  # bytes in which most lines end


class _Cut(NamedTuple):
    """An interval that is over."""

    interval: Interval
    gauges: Doubles
    known: NDArray[np.bool_]  # gauges that have a value
    shown: Longs  # numbers of series that have a result
    series: list[SeriesId | None]
    timed: list[Summary]


class ColumnarAggregator(Aggregator):
    """Arrays by the number of the series."""

    def __init__(self, asked: Aggregating, *, seed: int = 0) -> None:
        super().__init__(asked)
        self._seed = np.uint64(seed)
        self._most_spellings = _SPELLINGS_A_SERIES * asked.series + _SERIES
        self._spellings = _no_spellings(_SERIES)
        self._spelled = self._text_size = 0
        self._room = _SERIES
        self._gauges = np.zeros(self._room)
        self._known = np.zeros(self._room, np.bool_)  # gauges that have a value
        self._kinds = np.zeros(self._room, np.uint8)
        self._idle = np.zeros(self._room, np.int32)
        self._pool_size = self._marks_size = _SERIES
        self._state = np.zeros(walk.STATE, np.int64)
        self._state[walk.RANDOM] = seed & 0xFFFFFFFF
        self._interval = self._new_interval()
        self._packet = np.empty(_LOOK, np.uint8)
        self._places = np.zeros(1, np.int64), np.zeros(1, np.int64)

    def _new_interval(self) -> Interval:
        self._state[[walk.POOL_TOP, walk.MARKS]] = 0
        self._state[walk.MOST] = self.asked.samples
        return Interval(
            np.zeros((self._room, walk.WIDTH)),
            np.zeros((self._room, 4), np.int64),
            np.empty(self._pool_size),
            np.zeros(self._marks_size, np.uint64),
            np.zeros(self._marks_size, np.int32),
        )

    # --- in

    def feed(self, packet: bytes) -> None:
        size = len(packet)
        if size > len(self._packet):
            self._packet = np.empty(2 * size, np.uint8)
        self._packet[:size] = np.frombuffer(packet, np.uint8)
        self._places[1][0] = size
        self.feed_packets(self._packet, *self._places)

    def warm_up(self) -> None:
        warm_up(self.asked)

    def reader(self, batch: Batch) -> Callable[[int], None]:
        data = np.frombuffer(batch.data, np.uint8)
        starts = np.array(batch.starts, np.int64)
        form = np.dtype(
            {
                "names": ["flags", "size"],
                "formats": [np.int32, np.uint32],
                "offsets": [Batch.FLAGS_AT, Batch.SIZE_AT],
                "itemsize": Batch.SLOT,
            }
        )
        slots = np.frombuffer(memoryview(batch.slots).cast("B"), form)
        flags, all_sizes = slots["flags"], slots["size"]

        def read(count: int) -> None:
            sizes = all_sizes[:count].astype(np.int64)
            truncated = (flags[:count] & Batch.TRUNCATED) != 0
            if truncated.any():
                self._refuse_truncated(int(truncated.sum()))
                sizes[truncated] = 0
            self.feed_packets(data, starts[:count], sizes)

        return read

    def feed_packets(self, data: Bytes, starts: Longs, sizes: Longs) -> None:
        """Take packets, each a piece of the data."""
        if not len(starts):
            return
        self.counts.packets += len(starts)
        self.counts.bytes += int(sizes.sum())
        state = self._state
        state[walk.PACKET], state[walk.AT] = 0, starts[0]
        state[walk.LINES] = state[walk.REFUSALS] = 0
        asked = self.asked
        while True:
            code = walk.walk(
                data, starts, sizes, self._spellings, self._interval, self._gauges, state, self._seed,
                asked.dialect.line_bytes, asked.members, asked.dialect.gauge_deltas,
            )  # fmt: skip
            if code == walk.DONE:
                break
            if code == walk.POOL_FULL:
                self._make_pool_room()
            elif code == walk.MARKS_FULL:
                self._make_marks_room(self._number_at(data, starts, sizes))
            else:
                line = _line_at(data, int(state[walk.AT]), _end(state, starts, sizes))
                self._read_left(line)
                state[walk.AT] += len(line) + 1
        self.counts.lines += int(state[walk.LINES])
        self.counts.refused += int(state[walk.REFUSALS])

    def _read_left(self, line: bytes) -> None:
        """A line that the walk left."""
        if not line:
            return
        read = self._read(line)
        for one in read:
            number = self._take(one)
            if isinstance(one, Sample) and one.is_plain:
                self._learn(line, one, number)

    def _learn(self, line: bytes, sample: Sample, number: int | None) -> None:
        """Let the walk read lines like this."""
        if number is None and 2 * self._spelled > self._most_spellings:
            return  # names that there is no room for must not drive out those that there is
        before, _, rest = line.partition(b":")
        behind = rest[rest.index(b"|") :]
        size = len(before) + len(behind)
        both = np.frombuffer(before + behind, np.uint8).copy()
        cut = len(before)
        hashed = walk.hash_spelling(both[:cut], both[cut:], self._seed)
        if walk.find_spelling(self._spellings, both, hashed, 0, cut, cut, size) >= 0:
            return  # it was left for its values
        if self._spelled >= self._most_spellings or self._text_size + size > _MOST_TEXT:
            self._spellings, self._spelled, self._text_size = _no_spellings(_SERIES), 0, 0
        held = self._spellings
        if self._spelled >= len(held.rows) or self._text_size + size > len(held.text):
            held = self._spellings = self._more_spellings(size)
        row, at = self._spelled, self._text_size
        held.text[at : at + size] = both
        named = walk.REFUSED if number is None else number
        held.rows[row] = hashed, at, cut, size - cut, named, int(sample.series.kind)
        held.weights[row] = sample.weight
        self._spelled += 1
        self._text_size += size
        walk.file_spellings(held, row, row + 1)

    def _more_spellings(self, size: int) -> Spellings:
        old = self._spellings
        text = old.text
        if self._text_size + size > len(text):
            text = np.concatenate([text, np.empty(len(text) + size, np.uint8)])
        rows, weights, slots = old.rows, old.weights, old.slots
        if self._spelled < len(rows):
            return Spellings(slots, rows, weights, text)
        grown = Spellings(
            np.full(2 * len(slots), -1, np.int32),
            np.concatenate([rows, np.zeros_like(rows)]),
            np.concatenate([weights, np.zeros_like(weights)]),
            text,
        )
        walk.file_spellings(grown, 0, self._spelled)
        return grown

    def _keep_spellings(self, is_kept: NDArray[np.bool_]) -> None:
        """Forget those that are not; their bytes stay until all are thrown away."""
        held, count = self._spellings, self._spelled
        rows = np.flatnonzero(is_kept)
        fresh = Spellings(np.full_like(held.slots, -1), held.rows.copy(), held.weights.copy(), held.text)
        fresh.rows[: len(rows)] = held.rows[:count][rows]
        fresh.weights[: len(rows)] = held.weights[:count][rows]
        self._spellings, self._spelled = fresh, len(rows)
        walk.file_spellings(fresh, 0, len(rows))

    def _touch(self, number: int) -> None:
        self._make_room(number)
        self._idle[number] = 0

    def _add(self, number: int, sample: Sample) -> None:
        self._touch(number)
        kind = sample.series.kind
        self._kinds[number] = kind
        sums = self._interval.sums
        if kind is Kind.SET:
            member = np.frombuffer(sample.member, np.uint8).copy()
            hashed = np.uint64(walk.hash_bytes(member, 0, len(member), self._seed))
            while not walk.add_member(self._interval, self._state, number, hashed, self.asked.members):
                self._make_marks_room(number)
        elif kind is Kind.COUNTER:
            for value in sample.values:
                sums[number, walk.VALUE] += value * sample.weight
                sums[number, walk.COUNT] += 1
        elif kind is Kind.GAUGE:
            for value, is_delta in zip(sample.values, sample.deltas, strict=True):
                self._gauges[number] = self._gauges[number] + value if is_delta else value
                sums[number, walk.COUNT] += 1
        else:
            for value in sample.values:
                while not walk.add_sample(self._interval, self._state, number, value, sample.weight):
                    self._make_pool_room()

    # --- room

    def _make_room(self, number: int) -> None:
        if number < self._room:
            return
        more = self._room
        self._room += more
        self._gauges = np.concatenate([self._gauges, np.zeros(more)])
        self._known = np.concatenate([self._known, np.zeros(more, np.bool_)])
        self._kinds = np.concatenate([self._kinds, np.zeros(more, np.uint8)])
        self._idle = np.concatenate([self._idle, np.zeros(more, np.int32)])
        sums, places = self._interval.sums, self._interval.places
        self._interval = self._interval._replace(
            sums=np.concatenate([sums, np.zeros_like(sums)]), places=np.concatenate([places, np.zeros_like(places)])
        )

    def _make_pool_room(self) -> None:
        """A larger pool, or samples side by side, or fewer of each series."""
        if self._pool_size < self.asked.all_samples:
            self._pool_size = min(2 * self._pool_size, self.asked.all_samples)
        self._move_samples()
        # Half of the pool stays free, or rooms would be moved for every few samples, and what one line may need.
        while self._state[walk.POOL_TOP] + max(self._state[walk.POOL_TOP], self._line_room()) > self.asked.all_samples:
            self._state[walk.MOST] //= 2
            self._move_samples()

    def _line_room(self) -> int:
        return 4 * int(self._state[walk.MOST]) + walk.FEW

    def _move_samples(self) -> None:
        pool = np.empty(self._pool_size)
        walk.move_samples(self._interval, pool, self._state)
        self._interval = self._interval._replace(pool=pool)

    def _make_marks_room(self, number: int) -> None:
        """A larger table, or fewer members of the set at its bound, or of the largest."""
        places = self._interval.places
        if places[number, walk.KEPT] >= self.asked.members:
            places[number, walk.LEVEL] += 1
        elif self._marks_size < 2 * self.asked.all_members:
            self._marks_size *= 2
        else:
            members = np.where(places[:, walk.ROOM] == 0, places[:, walk.KEPT], 0)
            places[np.argmax(members), walk.LEVEL] += 1
        fresh = self._interval._replace(
            marks=np.zeros(self._marks_size, np.uint64), owners=np.zeros(self._marks_size, np.int32)
        )
        walk.move_marks(self._interval, fresh, self._state)
        self._interval = fresh

    def _number_at(self, data: Bytes, starts: Longs, sizes: Longs) -> int:
        """The set that the walk stopped at."""
        line = _line_at(data, int(self._state[walk.AT]), _end(self._state, starts, sizes))
        before, _, rest = line.partition(b":")
        behind = rest[rest.index(b"|") :]
        both = np.frombuffer(before + behind, np.uint8).copy()
        size = len(before)
        hashed = walk.hash_spelling(both[:size], both[size:], self._seed)
        row = walk.find_spelling(self._spellings, both, hashed, 0, size, size, len(both))
        return int(self._spellings.rows[row, walk.NUMBER])

    # --- out

    def cut(self) -> _Cut:
        timed = self._cut_timed()
        count = len(self.registry.series)
        if count:
            self._make_room(count - 1)
        series = list(self.registry.series)
        idle, kinds = self._idle[:count], self._kinds[:count]
        came = self._interval.sums[:count, walk.COUNT] > 0
        idle[came] = 0
        known = self._known[:count] | (came & (kinds == Kind.GAUGE))
        self._known[:count] = known
        is_there = np.array([one is not None for one in series], np.bool_)
        is_kept = np.where(kinds == Kind.GAUGE, self.asked.keep_gauges, self.asked.zeros)
        is_over = is_there & (idle >= self.asked.forget_after) if self.asked.forget_after else np.zeros(count, np.bool_)
        is_shown = is_there & ~is_over & ((idle == 0) | is_kept)
        cut = _Cut(self._interval, self._gauges[:count].copy(), known, np.flatnonzero(is_shown), series, timed)
        idle += 1
        if is_over.any():
            self._forget(np.flatnonzero(is_over))
        self._pool_size = max(_SERIES, min(self._pool_size, 4 * int(self._state[walk.POOL_TOP])))
        self._interval = self._new_interval()
        return cut

    def _forget(self, numbers: Longs) -> None:
        for number in numbers.tolist():
            self.registry.forget(number)
        self._gauges[numbers] = 0
        self._known[numbers] = False
        self._idle[numbers] = 0
        named = self._spellings.rows[: self._spelled, walk.NUMBER]
        # Those that there was no room for are looked at again.
        self._keep_spellings((named != walk.REFUSED) & ~np.isin(named, numbers))

    def summaries(self, interval: _Cut, seconds: float) -> list[Summary]:
        found = list(interval.timed)
        sums, places = interval.interval.sums, interval.interval.places
        timers: dict[TimerRule, list[int]] = {}
        numbers = interval.shown.tolist()
        for number, count, value, members, level in zip(
            numbers,
            sums[interval.shown, walk.COUNT].tolist(),
            sums[interval.shown, walk.VALUE].tolist(),
            places[interval.shown, walk.KEPT].tolist(),
            places[interval.shown, walk.LEVEL].tolist(),
            strict=True,
        ):
            series = interval.series[number]
            assert series is not None
            kind = series.kind
            if kind is Kind.GAUGE:
                if interval.known[number]:
                    found.append(Summary(number, series, {"value": float(interval.gauges[number])}))
            elif not count:
                if self.asked.zeros:
                    found.append(Summary(number, series, idle_facts(kind)))
            elif kind is Kind.COUNTER:
                found.append(Summary(number, series, {"value": value, "rate": value / seconds}))
            elif kind is Kind.SET:
                facts: Facts = {"count": members << level}
                found.append(Summary(number, series, facts | {"estimated": True} if level else facts))
            else:
                timers.setdefault(self.asked.rules.of(series.name), []).append(number)
        for rule, of_rule in timers.items():
            found += self._timers(interval, of_rule, seconds, rule)
        return found

    def _timers(self, cut: _Cut, numbers: Sequence[int], seconds: float, rule: TimerRule) -> list[Summary]:
        rows = np.empty((len(numbers), 5 * len(rule.percentiles) + len(WHOLE) + len(rule.buckets)))
        array = np.array(numbers, np.int64)
        walk.timer_rows(
            cut.interval, array, seconds, np.array(rule.percentiles, float), np.array(rule.buckets, float), rows
        )
        seen = cut.interval.sums[array, walk.COUNT].astype(np.int64).tolist()
        kept = cut.interval.places[array, walk.KEPT].tolist()
        names = [name for five in rule.names for name in five] + list(WHOLE)
        bucket_names = rule.bucket_names
        found = []
        for number, row, of_all, of_kept in zip(numbers, rows.tolist(), seen, kept, strict=True):
            facts: Facts = {name: value for name, value in zip(names, row, strict=False) if value == value}
            facts["samples"] = of_all
            if of_all != of_kept:
                facts["sampled"] = of_kept
            if bucket_names:
                facts["histogram"] = dict(zip(bucket_names, row[len(names) :], strict=True))
            series = cut.series[number]
            assert series is not None
            found.append(Summary(number, series, facts))
        return found


def _no_spellings(room: int) -> Spellings:
    return Spellings(
        np.full(4 * room, -1, np.int32), np.zeros((room, 6), np.int64), np.ones(room), np.zeros(64 * room, np.uint8)
    )


def _end(state: Longs, starts: Longs, sizes: Longs) -> int:
    packet = state[walk.PACKET]
    return int(starts[packet] + sizes[packet])


def _line_at(data: Bytes, at: int, end: int) -> bytes:
    """The line that begins here, without its end."""
    head = data[at : min(end, at + _LOOK)].tobytes()
    if (found := head.find(b"\n")) >= 0:
        return head[:found]
    whole = data[at:end].tobytes()
    found = whole.find(b"\n")
    return whole if found < 0 else whole[:found]


def warm_up(asked: Aggregating) -> None:
    """Have all loops compiled, or loaded, before the first packet comes."""
    one = ColumnarAggregator(asked)
    for packet in (b"a:1|c\na:1:2|c", b"b:1:2|ms\nc:1|s\nd:+1|g\na:1|c", b"b:1:2|ms\nb:1|ms\nc:1|s"):
        one.feed(packet)
    one._make_pool_room()  # noqa: SLF001 - its own
    one._make_marks_room(0)  # noqa: SLF001
    one.summaries(one.cut(), 1.0)
