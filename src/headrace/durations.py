"""Lengths of time as people write them: `10 minutes`, `1 hour 30 seconds`; microseconds for those who compute."""

import re
from datetime import timedelta
from typing import Final

from headrace.errors import HeadraceError

Interval = str | timedelta

UNITS_US: Final = {
    "microsecond": 1,
    "us": 1,
    "millisecond": 1_000,
    "ms": 1_000,
    "second": 1_000_000,
    "s": 1_000_000,
    "minute": 60_000_000,
    "min": 60_000_000,
    "m": 60_000_000,
    "hour": 3_600_000_000,
    "h": 3_600_000_000,
    "day": 86_400_000_000,
    "d": 86_400_000_000,
    "week": 604_800_000_000,
    "w": 604_800_000_000,
}
# So that no time, with such a length added to it, leaves 64 bits.
_LONGEST_US: Final = 3_652_500 * 86_400_000_000
_PART: Final = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*,?", re.IGNORECASE)


class InvalidDuration(HeadraceError):
    """A text that is not a length of time, or not one that will do."""


def microseconds(given: Interval, what: str) -> int:
    """An interval's length; `what` says in an error whose it is."""
    if isinstance(given, timedelta):
        return _no_longer(given / timedelta(microseconds=1), given, what)
    at, total = 0, 0.0
    text = str(given)
    while at < len(text):
        part = _PART.match(text, at)
        unit = part and (part[2].lower() if part[2].lower() in UNITS_US else part[2].lower().removesuffix("s"))
        if not part or unit not in UNITS_US:
            if re.search(r"month|year", text, re.IGNORECASE):
                raise InvalidDuration(
                    f"{what} is {text!r}, and months and years differ in length: write days, as in '30 days'"
                )
            raise InvalidDuration(
                f"{what} is {text!r}, which is not a length of time: write for example '10 minutes' or '1 hour'"
            )
        total += float(part[1]) * UNITS_US[unit]
        at = part.end()
    if not text.strip():
        raise InvalidDuration(f"{what} is empty: write a length of time, for example '10 minutes'")
    return _no_longer(total, given, what)


def _no_longer(total: float, given: Interval, what: str) -> int:
    if abs(total) > _LONGEST_US:
        raise InvalidDuration(f"{what} is '{given!s:.50}', which is longer than 10,000 years")
    return round(total)


def positive(given: Interval, what: str) -> int:
    """An interval that is longer than nothing."""
    found = microseconds(given, what)
    if found <= 0:
        raise InvalidDuration(f"{what} is {given!r}, and has to be longer than nothing: write for example '1 minute'")
    return found


def in_words(length_us: int) -> str:
    """An interval as people write it, in the largest unit that it is a multiple of."""
    for unit in ("week", "day", "hour", "minute", "second", "millisecond", "microsecond"):
        count, rest = divmod(length_us, UNITS_US[unit])
        if not rest and count:
            return f"{count} {unit}{'s' * (abs(count) != 1)}"
    return "0 seconds"
