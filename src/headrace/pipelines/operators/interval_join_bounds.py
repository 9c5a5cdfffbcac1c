"""The interval of a join: how far the right side's time may lie from the left side's. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from headrace.pipelines.operators.errors import BadWindow
from headrace.pipelines.operators.times import Interval, microseconds

_WRITE = 'write within=("-5 minutes", "10 minutes"), or within="10 minutes" for as much before as after'


@dataclass(frozen=True)
class Bounds:
    """A pair joins if the right time is in `left time + low_us … left time + high_us`, both ends included."""

    low_us: int
    high_us: int


def bounds(within: Interval | Sequence[Interval] | None) -> Bounds:
    """What `within=` says; a join that would have to keep its rows for ever is refused."""
    if within is None:
        raise BadWindow(f"join_streams without an interval would keep every row for ever: {_WRITE}")
    if isinstance(within, str | timedelta):
        reach = microseconds(within, "within in join_streams")
        if reach < 0:
            raise BadWindow(f"within={within!r} is less than nothing: {_WRITE}")
        return Bounds(-reach, reach)
    if len(within) != 2:
        raise BadWindow(f"within has {len(within)} ends: {_WRITE}")
    if None in within:
        raise BadWindow(f"within is open at one end, and would keep the rows of one side for ever: {_WRITE}")
    low, high = (signed(end, "within in join_streams") for end in within)
    if low > high:
        raise BadWindow(f"within begins at {within[0]!r}, behind its end {within[1]!r}: write the earlier end first")
    return Bounds(low, high)


def signed(given: Interval, what: str) -> int:
    """A length of time that may lie before (`-5 minutes`) or after (`10 minutes`, `+10 minutes`)."""
    if isinstance(given, timedelta):
        return microseconds(given, what)
    text = str(given).strip()
    length = microseconds(text[1:] if text.startswith(("+", "-")) else text, what)
    return -length if text.startswith("-") else length
