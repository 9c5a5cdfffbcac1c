"""Points in time and places in a log, as people write them."""

import re
from datetime import UTC, datetime

from headrace.client.offsets import Start, StartKind
from headrace.client.resets import Shift
from headrace.errors import HeadraceError

_AGO = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(ms|s|m|h|d|w)(?:\s+ago)?")
_UNIT_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_LONGEST_MS = 2**62


class InvalidMoment(HeadraceError):
    """A text that is no point in time, or no place in a log."""


def parse_time(text: str, now_ms: int) -> int:
    """Milliseconds since the epoch, from ISO-8601 or from how long ago; without a zone it is UTC, as what we show."""
    text = text.strip()
    if ago := _AGO.fullmatch(text):
        past_ms = min(float(ago[1]) * _UNIT_MS[ago[2]], _LONGEST_MS)
        return max(now_ms - int(past_ms), 0)
    try:
        moment = datetime.fromisoformat(text)
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return max(int(moment.timestamp() * 1000), 0)
    except (ValueError, OverflowError):
        raise InvalidMoment(
            f"{text!r} is not a time: write it as in 2026-05-01, 2026-05-01T12:30:00Z or 2026-05-01T14:30+02:00, "
            "or how long ago as in 30s, 10m, 2h, 1d"
        ) from None


def parse_timestamp(text: str, now_ms: int) -> int:
    """A record's timestamp: a time as above, or milliseconds since the epoch as Kafka keeps it."""
    if re.fullmatch(r"[0-9]{1,18}", text.strip()):
        return int(text)
    return parse_time(text, now_ms)


def parse_start(text: str, now_ms: int) -> Start:
    """Where to begin: earliest, latest, an offset, the last so many (negative), or a time."""
    text = text.strip()
    if text in ("earliest", "latest"):
        return Start(StartKind.EARLIEST if text == "earliest" else StartKind.LATEST)
    if re.fullmatch(r"-?[0-9]{1,18}", text):
        number = int(text)
        return Start(StartKind.LAST, -number) if text.startswith("-") else Start(StartKind.OFFSET, number)
    try:
        return Start(StartKind.TIME, parse_time(text, now_ms))
    except InvalidMoment:
        raise InvalidMoment(
            f"{text!r} is not a place to start: write earliest, latest, an offset as in 1200, the last N as in -10, "
            "a time as in 2026-05-01T12:30:00Z, or how long ago as in 10m, 2h, 1d"
        ) from None


def parse_target(text: str, now_ms: int) -> Start | Shift:
    """Where a group shall go on: earliest, latest, an offset, so many on or back from where it is, or a time."""
    text = text.strip()
    if re.fullmatch(r"[+-][0-9]{1,18}", text):
        return Shift(int(text))
    try:
        return parse_start(text, now_ms)
    except InvalidMoment:
        raise InvalidMoment(
            f"{text!r} is not a place to continue from: write earliest, latest, an offset as in 1200, "
            "N back or on as in -10 or +10, a time as in 2026-05-01T12:30:00Z, or how long ago as in 10m, 2h, 1d"
        ) from None
