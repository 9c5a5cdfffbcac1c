"""Intervals as a number of microseconds: not exact, because a month has no length of its own."""

import re

_PARTS = re.compile(
    r"(?P<sign>-?)P(?:(?P<years>-?\d+)Y)?(?:(?P<months>-?\d+)M)?(?:(?P<days>-?\d+)D)?"
    r"(?:T(?:(?P<hours>-?\d+)H)?(?:(?P<minutes>-?\d+)M)?(?:(?P<seconds>-?[\d.]+)S)?)?$"
)
_DAY_US = 86_400_000_000
_MONTH_US = _DAY_US * 487 // 16  # 30.4375 days, as Debezium has it


def interval_micros(text: str) -> str:
    """Microseconds of an ISO 8601 interval as PostgreSQL writes it; an infinite one stays text."""
    found = _PARTS.match(text)
    if found is None:
        return f'"{text}"'
    part = {name: value or "0" for name, value in found.groupdict().items()}
    months = int(part["years"]) * 12 + int(part["months"])
    clock = (int(part["hours"]) * 60 + int(part["minutes"])) * 60_000_000
    total = months * _MONTH_US + int(part["days"]) * _DAY_US + clock + _second_micros(part["seconds"])
    return str(-total if part["sign"] == "-" else total)


def _second_micros(text: str) -> int:
    whole, _, fraction = text.partition(".")
    micros = int(fraction.ljust(6, "0")) if fraction else 0
    return int(whole) * 1_000_000 + (-micros if text.startswith("-") else micros)
