"""A line of a log: its end, its text, and why it cannot be read."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Final

from headrace.errors import HeadraceError

MONTHS: Final = {
    name: number
    for number, name in enumerate(
        (b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec"), start=1
    )
}


class InvalidLine(HeadraceError):
    """Why a line is not of the form that it should have."""


def without_end(line: bytes) -> bytes:
    """The line without the line break behind it."""
    return line.removesuffix(b"\n").removesuffix(b"\r")


def text_of(data: bytes) -> str:
    """Bytes as text; those that are not UTF-8 stand as `\\xHH`, as web servers write them."""
    return data.decode(errors="backslashreplace")


def instant(
    year: int, month: int, day: int, hour: int, minute: int, second: int, micros: int = 0, zone_s: int = 0
) -> datetime | None:
    """A moment in UTC, written at so many seconds ahead of it; None if there is no such day or time."""
    try:
        zone = timezone(timedelta(seconds=zone_s))
        return datetime(year, month, day, hour, minute, second, micros, zone).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def zone_seconds(sign: bytes, hours: bytes, minutes: bytes) -> int | None:
    """How far a zone is ahead of UTC; None if no zone is so far."""
    if int(hours) > 23 or int(minutes) > 59:
        return None
    seconds = (int(hours) * 60 + int(minutes)) * 60
    return -seconds if sign == b"-" else seconds


def shown(data: bytes, most: int = 40) -> str:
    """The beginning of a line, for a message."""
    return repr(text_of(data[:most]) + ("…" if len(data) > most else ""))
