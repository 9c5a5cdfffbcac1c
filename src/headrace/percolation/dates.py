"""Dates as people write them (ISO 8601, as much of it as they know), in microseconds since 1970 in UTC.

What always holds: a text says a stretch of time, not a moment: `2030-05` is the whole of May. Without an offset it is
in UTC.
"""

import re
from datetime import UTC, date, datetime, timedelta
from typing import Final

_DATE: Final = re.compile(
    r"(\d{4})(?:-(\d\d)(?:-(\d\d)(?:[T ](\d\d)(?::(\d\d)(?::(\d\d)(?:[.,](\d{1,9}))?)?)?"
    r"\s?(Z|[+-]\d\d(?::?\d\d)?)?)?)?)?",
    re.ASCII,
)
_NOW: Final = re.compile(r"now\b|.*\|\|", re.IGNORECASE)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_US: Final = timedelta(microseconds=1)
_LENGTHS_US: Final = (86_400_000_000, 3_600_000_000, 60_000_000, 1_000_000)


def read_date(text: str) -> tuple[int, int] | None:
    """The first microsecond of what the text says, and the first after it; None if it is not a date."""
    found = _DATE.fullmatch(text)
    if found is None:
        return None
    year, month, day, hour, minute, second, fraction, offset = found.groups()
    try:
        begin = datetime(int(year), int(month or 1), int(day or 1), int(hour or 0), int(minute or 0), tzinfo=UTC)
        # A leap second is the first second of the next minute.
        first = microseconds(begin) + min(int(second or 0), 60) * 1_000_000
        if int(second or 0) > 60:
            return None
        if month is None:
            return first, microseconds(datetime(int(year), 12, 31, tzinfo=UTC)) + _LENGTHS_US[0]
        if day is None:
            ahead = (begin.replace(day=28) + timedelta(days=4)).replace(day=1) if int(month) < 12 else None
            return first, microseconds(ahead) if ahead else first + 31 * _LENGTHS_US[0]
    except (ValueError, OverflowError):
        return None
    if offset and offset != "Z":
        sign = -1 if offset[0] == "-" else 1
        first -= sign * (int(offset[1:3]) * 3_600_000_000 + int(offset[3:].lstrip(":") or 0) * 60_000_000)
    if fraction is not None:
        first += int(fraction[:6].ljust(6, "0"))
        return first, first + 10 ** max(0, 6 - len(fraction))
    known = sum(part is not None for part in (hour, minute, second))
    return first, first + _LENGTHS_US[known]


def asks_for_now(text: str) -> bool:
    """Whether a text is date arithmetic: `now-1d`, `2030-01-01||+1M`."""
    return _NOW.match(text) is not None


def microseconds(at: datetime | date) -> int:
    """A moment; a day is its first."""
    if not isinstance(at, datetime):
        at = datetime(at.year, at.month, at.day, tzinfo=UTC)
    return ((at if at.tzinfo else at.replace(tzinfo=UTC)) - _EPOCH) // _US


def date_text(at_us: int) -> str:
    """A moment as it is shown."""
    try:
        return (_EPOCH + at_us * _US).isoformat().replace("+00:00", "Z")
    except OverflowError:
        return f"{at_us} µs"
