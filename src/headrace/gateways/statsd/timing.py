"""What is said of a timer's values in an interval, in the reference daemon's words and by its arithmetic. Pure.

The percentile 90 is of the values in order: of n, `upper_90` is the one at place round(0.9 n), a half upwards, and
`count_90`, `mean_90`, `sum_90` and `sum_squares_90` are of it and all below. A negative one, -10, is of so many from
the top: `lower_top10`. A percentile that takes in no value is left out. `std` is of the whole population; `count` is
how many values there were before they were sampled; all else is of those that came.

Where more came than are kept, those that are kept were chosen by chance, each as likely; then `sampled` says how many,
what is in order is of them and scaled, and `sum`, `sum_squares`, `mean`, `std`, `lower`, `upper` and `count` are still
of all.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import pairwise
from math import floor, inf, sqrt
from typing import Any, Final, NamedTuple

from headrace.gateways.errors import GatewayError

Facts = dict[str, Any]
WHOLE: Final = ("std", "upper", "lower", "count", "count_ps", "sum", "sum_squares", "mean", "median")


@dataclass(frozen=True, slots=True)
class TimerRule:
    """What is asked of timers, histograms and distributions."""

    percentiles: tuple[float, ...] = (90.0,)
    buckets: tuple[float, ...] = ()  # upper ends, not part of the bucket; infinity takes in the rest

    @property
    def names(self) -> tuple[tuple[str, str, str, str, str], ...]:
        """By percentile what its five facts are called."""
        return tuple(
            (f"count_{name}", f"mean_{name}", f"{bound}_{name}", f"sum_{name}", f"sum_squares_{name}")
            for name, bound in (
                (percentile_name(share), "upper" if share > 0 else "lower") for share in self.percentiles
            )
        )

    @property
    def bucket_names(self) -> tuple[str, ...]:
        return tuple(f"bin_{_plain(end).replace('.', '_')}" for end in self.buckets)


@dataclass(frozen=True, slots=True)
class TimerRules:
    """Which rule is a name's: the first whose pattern fits."""

    usual: TimerRule = TimerRule()
    by_pattern: tuple[tuple[str, TimerRule], ...] = ()

    def of(self, name: str) -> TimerRule:
        return next((rule for pattern, rule in self.by_pattern if fnmatchcase(name, pattern)), self.usual)


class Running(NamedTuple):
    """What is known of all values, also of those that are not kept."""

    seen: int
    weight: float  # how many they were before they were sampled
    total: float
    squares: float
    low: float
    high: float


def read_rule(text: str, usual: TimerRule) -> tuple[str, TimerRule]:
    """`api.*: percentiles 50 95 99.9; buckets 10 100 inf`"""
    pattern, colon, rest = text.partition(":")
    percentiles, buckets = usual.percentiles, usual.buckets
    for part in rest.split(";"):
        word, *numbers = part.split() or [""]
        if word == "percentiles":
            percentiles = tuple(check_percentile(number) for number in numbers)
        elif word == "buckets":
            buckets = check_buckets(numbers)
        else:
            colon = ""
    if not colon or not pattern.strip():
        raise GatewayError(f"the rule {text!r} is not one: write 'api.*: percentiles 50 95 99.9; buckets 10 100 inf'")
    return pattern.strip(), TimerRule(percentiles, buckets)


def check_percentile(written: str) -> float:
    try:
        share = float(written)
    except ValueError:
        share = 0.0
    if not 0 < abs(share) <= 100:
        raise GatewayError(f"percentiles has {written!r}: a percentile is a number up to 100, below 0 from the top")
    return share


def check_buckets(written: Sequence[str]) -> tuple[float, ...]:
    try:
        ends = tuple(float(number) for number in written)
    except ValueError:
        ends = (0.0, 0.0)
    if any(end != end for end in ends) or any(not low < high for low, high in pairwise(ends)):
        raise GatewayError(
            f"buckets has {' '.join(written)!r}: their upper ends are numbers that grow, at the end perhaps inf"
        )
    return ends


def timer_facts(ordered: Sequence[float], running: Running, seconds: float, rule: TimerRule) -> Facts:
    """Of values in order; with fewer than there were, they are a sample."""
    kept = len(ordered)
    if not kept:
        return {"count": 0, "count_ps": 0}
    facts: Facts = {}
    scale = running.seen / kept
    sums, squares = [ordered[0]], [ordered[0] * ordered[0]]
    for value in ordered[1:]:
        sums.append(value + sums[-1])
        squares.append(value * value + squares[-1])
    for share, names in zip(rule.percentiles, rule.names, strict=True):
        inside = 1 if kept == 1 else floor(abs(share) / 100 * kept + 0.5)
        if not inside:
            continue
        if share > 0 or kept == 1:
            bound, total, square = ordered[inside - 1], sums[inside - 1], squares[inside - 1]
        else:
            outside = kept - inside
            bound, total, square = ordered[outside], sums[-1], squares[-1]
            if outside:
                total, square = total - sums[outside - 1], square - squares[outside - 1]
        mean = total / inside
        facts |= zip(names, (inside * scale, mean, bound, total * scale, square * scale), strict=True)
    is_whole = running.seen == kept
    total, square = (sums[-1], squares[-1]) if is_whole else (running.total, running.squares)
    mean = total / running.seen
    if is_whole:
        differences = 0.0
        for value in ordered:
            differences += (value - mean) * (value - mean)
        std = sqrt(differences / kept)
    else:
        std = sqrt(max(square / running.seen - mean * mean, 0.0))
    middle = kept // 2
    median = ordered[middle] if kept % 2 else (ordered[middle - 1] + ordered[middle]) / 2
    values = (std, running.high, running.low, running.weight, running.weight / seconds, total, square, mean, median)
    facts |= zip(WHOLE, values, strict=True)
    facts["samples"] = running.seen
    if not is_whole:
        facts["sampled"] = kept
    if rule.buckets:
        facts["histogram"] = dict(zip(rule.bucket_names, _counted(ordered, rule.buckets, scale), strict=True))
    return facts


def _counted(ordered: Sequence[float], ends: tuple[float, ...], scale: float) -> list[float]:
    found, at = [], 0
    for end in ends:
        before = at
        while at < len(ordered) and (end == inf or ordered[at] < end):
            at += 1
        found.append((at - before) * scale)
    return found


def percentile_name(share: float) -> str:
    return _plain(share).replace(".", "_", 1).replace("-", "top", 1)


def _plain(number: float) -> str:
    return f"{number:.0f}" if number.is_integer() else repr(number)
