"""When something is to be done again and again: every so often, or at the times of a cron line, in UTC.

A cron line has five fields, minute, hour, day of the month, month and day of the week, each `*`, a number, a name
(`mon`, `jan`), a range `1-5`, a list `1,15` or every n-th of these, `*/10`. As in cron, a day is meant if either field
for days names it, unless one of them is `*`.
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final, Protocol

SHORTEST_MS: Final = 1000
_UNITS_MS: Final = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_LONGEST_MS: Final = 3660 * _UNITS_MS["d"]
_INTERVAL: Final = re.compile(r"([0-9]{1,9})([smhd])", re.ASCII)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_YEARS_SEARCHED: Final = 40  # a 29th of February that is a Sunday may be that far away, where a century has none
_MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAYS: Final = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")


class Recurrence(Protocol):
    def next_after(self, time_ms: int) -> int:
        """The first time behind `time_ms`."""
        ...

    def next_due(self, due_ms: int, now_ms: int) -> int:
        """When it is due again that was due at `due_ms` and done at `now_ms`: what was missed is not made up for."""
        ...


@dataclass(frozen=True, slots=True)
class Interval:
    every_ms: int

    def next_after(self, time_ms: int) -> int:
        return time_ms + self.every_ms

    def next_due(self, due_ms: int, now_ms: int) -> int:
        return due_ms + (max(0, now_ms - due_ms) // self.every_ms + 1) * self.every_ms


@dataclass(frozen=True, slots=True)
class Cron:
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]  # 0 is Sunday
    either_day: bool  # both fields for days are given, and one of them is enough

    def next_after(self, time_ms: int) -> int:
        try:
            found = self._find_after(_EPOCH + timedelta(milliseconds=time_ms))
        except OverflowError:
            raise ValueError("that is after the year 9999") from None
        return (found - _EPOCH) // timedelta(milliseconds=1)

    def _find_after(self, moment: datetime) -> datetime:
        day = moment.replace(hour=0, minute=0, second=0, microsecond=0)
        last_year = moment.year + _YEARS_SEARCHED
        while day.year <= last_year:
            if day.month not in self.months:
                day = (day.replace(day=28) + timedelta(days=4)).replace(day=1)
                continue
            if self._has_day(day):
                for hour in self.hours:
                    for minute in self.minutes:
                        found = day.replace(hour=hour, minute=minute)
                        if found > moment:
                            return found
            day += timedelta(days=1)
        raise ValueError("there is no such day")

    def next_due(self, due_ms: int, now_ms: int) -> int:
        return self.next_after(max(due_ms, now_ms))

    def _has_day(self, day: datetime) -> bool:
        by_date, by_weekday = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return by_date or by_weekday if self.either_day else by_date and by_weekday


@lru_cache(maxsize=1024)  # every message that repeats is read several times, and most have the same line
def parse_recurrence(text: str) -> Recurrence:
    """An interval or a cron line; raises ValueError with what is wrong."""
    if interval := _INTERVAL.fullmatch(text):
        every_ms = int(interval[1]) * _UNITS_MS[interval[2]]
        if not SHORTEST_MS <= every_ms <= _LONGEST_MS:
            raise ValueError("an interval has at least 1s and at most ten years")
        return Interval(every_ms)
    fields = text.split()
    if len(fields) != 5:
        raise ValueError("give an interval, such as 30s, 5m, 1h or 1d, or the five fields of a cron line")
    minute, hour, day, month, weekday = fields
    cron = Cron(
        _parse_field("minute", minute, 0, 59),
        _parse_field("hour", hour, 0, 23),
        frozenset(_parse_field("day of the month", day, 1, 31)),
        frozenset(_parse_field("month", month, 1, 12, _MONTHS)),
        frozenset(each % 7 for each in _parse_field("day of the week", weekday, 0, 7, _WEEKDAYS)),
        not day.startswith("*") and not weekday.startswith("*"),
    )
    cron.next_after(0)  # there may be no such day, as the 30th of February
    return cron


def _parse_field(what: str, text: str, least: int, most: int, names: tuple[str, ...] = ()) -> tuple[int, ...]:
    named = {name: number for number, name in enumerate(names, start=least)}
    chosen: set[int] = set()
    for part in text.lower().split(","):
        span, slash, step_text = part.partition("/")
        step = _number(what, step_text, 1, most, {}) if slash else 1
        first_text, dash, last_text = span.partition("-")
        if span == "*":
            first, last = least, most
        else:
            first = _number(what, first_text, least, most, named)
            last = _number(what, last_text, least, most, named) if dash else most if slash else first
        if first > last:
            raise ValueError(f"the {what} {span!r} goes backwards")
        chosen.update(range(first, last + 1, step))
    return tuple(sorted(chosen))


def _number(what: str, text: str, least: int, most: int, named: dict[str, int]) -> int:
    number = named.get(text, int(text) if text.isascii() and text.isdigit() and len(text) < 10 else -1)
    if not least <= number <= most:
        raise ValueError(f"the {what} {text!r} is not within {least} and {most}")
    return number
