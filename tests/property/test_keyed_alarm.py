"""Whatever timers are set and however the clock moves, Spark's one alarm a bucket wakes it when a timer is due."""

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from headrace.pipelines.keyed.operator import NEVER, NO_WATERMARK, Clock, Times
from headrace.pipelines.keyed.processor import alarm_ms
from tests.property.storage_model import examples

times_us = st.integers(-8_000, 12_000)
steps = st.lists(st.tuples(st.lists(times_us, max_size=3), st.lists(times_us, max_size=2), st.integers(0, 4)))


@dataclass
class Woken:
    """A bucket with timers, and Spark's part of it: all alarms that the clock has reached go off, and are then gone."""

    clock: Clock
    behind_us: int = 0
    pending: list[int] = field(default_factory=list)
    alarms: set[int] = field(default_factory=set)
    known: int | None = None

    def batch(self, now_ms: int, rows: list[int], while_woken: list[int]) -> None:
        times = self.times(now_ms)
        if rows:
            self.pending += rows
            self.closed(times, None)
        for alarm in sorted(each for each in self.alarms if each <= now_ms):
            self.pending = [at for at in self.pending if at > self.reached(times)]
            self.pending += while_woken
            self.closed(times, alarm)
            self.alarms.discard(alarm)

    def times(self, now_ms: int) -> Times:
        shown = now_ms * 1000 if now_ms > 0 else NO_WATERMARK
        shown -= self.behind_us if shown != NO_WATERMARK else 0
        return Times(watermark_us=shown) if self.clock is Clock.EVENT else Times(wall_us=shown)

    def reached(self, times: Times) -> int:
        return times.watermark_us if self.clock is Clock.EVENT else times.wall_us

    def closed(self, times: Times, expiring: int | None) -> None:
        first = min(self.pending, default=NEVER)
        timers = (first, NEVER) if self.clock is Clock.EVENT else (NEVER, first)
        wanted = alarm_ms(self.clock, *timers, times, expiring, self.behind_us)
        if wanted != self.known:
            self.alarms -= {self.known} if self.known != expiring else set()
            self.alarms |= {wanted} if wanted is not None else set()
            self.known = wanted


@examples(100)
@given(steps, st.integers(0, 3_000))
def test_no_event_timer_is_slept_through(found: list[tuple[list[int], list[int], int]], behind_us: int) -> None:
    """What was set while rows came is told in that micro-batch, what was set by a timer in the next that runs."""
    bucket = Woken(Clock.EVENT, behind_us)
    now_ms = 0
    for rows, while_woken, moved in found:
        before = list(bucket.pending)
        now_ms += moved
        bucket.batch(now_ms, rows, while_woken)
        left = [at for at in before + rows if now_ms > 0 and at <= now_ms * 1000 - behind_us]
        assert not left or bucket.pending.count(min(left)) <= while_woken.count(min(left))
    bucket.batch(now_ms + 100, [], [])
    assert bucket.pending == []


@examples(100)
@given(steps)
def test_no_wall_timer_is_slept_through(found: list[tuple[list[int], list[int], int]]) -> None:
    bucket = Woken(Clock.WALL)
    now_ms = 1
    for rows, while_woken, moved in found:
        bucket.batch(now_ms, rows, while_woken)
        now_ms += 1 + moved
    bucket.batch(now_ms + 100, [], [])
    assert bucket.pending == []
