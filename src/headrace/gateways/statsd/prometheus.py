"""The metrics as Prometheus reads them: counters that only grow, gauges, sets, and timers as summaries.

    api.requests:1|c|#env:prod     api_requests_total{env="prod"}
    api.latency:12|ms              api_latency{quantile="0.9"}, api_latency_sum, api_latency_count

What always holds: a name and its labels stand once. Names that differ only in letters that Prometheus does not allow
are one; a name that is of several types has the type behind it; a series that is forgotten is not told any more.
Percentiles from the top and buckets have no form here.
"""

import threading
from collections.abc import Iterable
from typing import Any, Final

from headrace.gateways.statsd.aggregation import Counts, Summary
from headrace.gateways.statsd.parse import Kind, SeriesId
from headrace.gateways.statsd.records import tags_of
from headrace.gateways.statsd.timing import TimerRules, percentile_name
from headrace.telemetry.metrics import COUNTER, GAUGE, SUMMARY, Family, Quantiles, Sample, Samples, as_name, render

_PACKETS: Final = Family("headrace_statsd_packets_total", COUNTER, "Packets that came.")
_LINES: Final = Family("headrace_statsd_lines_total", COUNTER, "Lines that came, good and bad.")
_BAD: Final = Family("headrace_statsd_bad_lines_total", COUNTER, "Lines that could not be read.")
_REFUSED: Final = Family("headrace_statsd_refused_total", COUNTER, "Values of series that there was no room for.")
_KERNEL: Final = Family(
    "headrace_statsd_kernel_drops_total",
    COUNTER,
    "Packets that the kernel dropped, because a socket's buffer was full.",
)
_SERIES: Final = Family("headrace_statsd_series", GAUGE, "Series that are known.")
_OWN: Final = "headrace_statsd_"
_WORDS: Final = {Kind.COUNTER: COUNTER, Kind.GAUGE: GAUGE, Kind.SET: GAUGE}


class Board:
    """What is told of each series; written after each interval, read at any time."""

    def __init__(self, rules: TimerRules) -> None:
        self._rules = rules
        self._lock = threading.Lock()
        self._held: dict[SeriesId, Any] = {}

    def show(self, summaries: Iterable[Summary], known: Iterable[SeriesId | None]) -> None:
        """Add an interval up; what is not known any more is left out from now on."""
        with self._lock:
            for _, series, facts, time_s in summaries:
                if time_s is not None and series.kind is not Kind.COUNTER:
                    continue  # Prometheus gives what it reads the time at which it reads
                if series.kind is Kind.COUNTER:
                    # One that falls is one that began anew, to Prometheus, and all it had would count once more.
                    self._held[series] = self._held.get(series, 0.0) + max(facts["value"], 0.0)
                elif series.kind is Kind.GAUGE:
                    self._held[series] = facts["value"]
                elif series.kind is Kind.SET:
                    self._held[series] = facts["count"]
                else:
                    self._add_timer(series, facts)
            alive = set(known)
            for gone in [series for series in self._held if series not in alive]:
                del self._held[gone]

    def _add_timer(self, series: SeriesId, facts: dict[str, Any]) -> None:
        count, total = facts["count"], 0.0
        values: dict[float, float] = {}
        if count:
            # A sum is of the values that came, the count of those that they stand for.
            total = facts["mean"] * count
            for share in self._rules.of(series.name).percentiles:
                upper = facts.get(f"upper_{percentile_name(share)}")
                if upper is not None:
                    values[round(share / 100, 12)] = upper  # 0.999, and not 0.9990000000000001
        before = self._held.get(series)
        if before is not None:
            count, total, values = count + before.number, total + before.total, values or before.values
        self._held[series] = Quantiles(values, count, total)

    def render(self, counts: Counts, kernel_drops: int, series: int) -> str:
        own = [
            (_PACKETS, counts.packets), (_LINES, counts.lines), (_BAD, counts.bad), (_REFUSED, counts.refused),
            (_KERNEL, kernel_drops), (_SERIES, series),
        ]  # fmt: skip
        with self._lock:
            held = list(self._held.items())
        return render([*(Samples(family, [((), value)]) for family, value in own), *_families(held)])


def _names(name: str, word: str) -> set[str]:
    """Those that the lines of a family begin with."""
    return (
        {f"{name}_total"} if word == COUNTER else {name, f"{name}_sum", f"{name}_count"} if word == SUMMARY else {name}
    )


def _label(key: str) -> str:
    """A tag's, which must not be one that a summary has of its own."""
    name = as_name(key)
    return f"exported_{name}" if name == "quantile" or name.startswith("__") else name


def _families(held: Iterable[tuple[SeriesId, Any]]) -> list[Samples]:
    by_name: dict[str, dict[Kind, list[tuple[dict[str, str], Any]]]] = {}
    for series, value in held:
        labels = {_label(key): text for key, text in tags_of(series.tags).items()}
        by_name.setdefault(as_name(series.name), {}).setdefault(series.kind, []).append((labels, value))
    found: list[Samples] = []
    taken: set[str] = set()
    for name, kinds in sorted(by_name.items()):
        for kind, series_of in sorted(kinds.items()):
            full = name if len(kinds) == 1 else f"{name}_{kind.label}"
            word = _WORDS.get(kind, SUMMARY)
            while taken & (names := _names(full, word)) or full.startswith(_OWN):
                full = f"{full.removeprefix(_OWN)}_{kind.label}"
            taken |= names
            keys = tuple(sorted({key for labels, _ in series_of for key in labels}))
            meaning = f"A {kind.label} that was sent as StatsD."
            family = Family(f"{full}_total" if word == COUNTER else full, word, meaning, keys)
            once: dict[tuple[str, ...], Any] = {}
            for labels, value in series_of:
                place = tuple(labels.get(key, "") for key in keys)
                once[place] = once[place] + value if kind is Kind.COUNTER and place in once else value
            samples: list[Sample] = list(once.items())
            found.append(Samples(family, samples))
    return found
