"""What a series, an event or a check is as a record. Pure.

    key    api.latency;env=prod
    value  {"name": "api.latency", "tags": {"env": "prod"}, "type": "timer", "start_ms": …, "end_ms": …, "count": 3, …}

The key is a metric's name and tags as Graphite writes them. A tag without a value has an empty one, a key that stands
several times has its values with commas between them. A number that JSON has no word for is null. A value with a time
of its own has `time_ms` and no interval.
"""

import json
from collections.abc import Iterable
from math import isfinite
from typing import Any, Final

from headrace.connect.delivery import Entry
from headrace.gateways.statsd.aggregation import Summary
from headrace.gateways.statsd.parse import CHECK_STATES, Check, Event, SeriesId

_MOST_WHOLE: Final = 2.0**53


class SummaryForm:
    """Remembers how the records of a series begin."""

    __slots__ = ("_heads",)

    def __init__(self) -> None:
        self._heads: dict[int, tuple[SeriesId, bytes, str]] = {}

    def entries(self, summaries: Iterable[Summary], start_ms: int, end_ms: int) -> list[Entry]:
        when = f', "start_ms": {start_ms}, "end_ms": {end_ms}, '
        found: list[Entry] = []
        for number, series, facts, time_s in summaries:
            known = self._heads.get(number)
            if known is None or known[0] is not series:
                known = self._heads[number] = (series, series.key.encode(), _head(series))
            own = when if time_s is None else f', "time_ms": {time_s * 1000}, '
            found.append((known[1], f"{known[2]}{own}{_body(facts)}}}".encode(), end_ms, ()))
        return found


def event_entry(event: Event, now_ms: int) -> Entry:
    about = {
        "title": event.title, "text": event.text, "host": event.host, "priority": event.priority,
        "alert_type": event.alert_type, "aggregation_key": event.aggregation_key, "source_type": event.source_type,
    }  # fmt: skip
    return _entry(event.aggregation_key or event.title, about, event, now_ms)


def check_entry(check: Check, now_ms: int) -> Entry:
    about = {
        "name": check.name, "status": check.status, "state": CHECK_STATES[check.status], "host": check.host,
        "message": check.message,
    }  # fmt: skip
    return _entry(
        ";".join((check.name, *([f"host={check.host}"] if check.host else []), *check.tags)), about, check, now_ms
    )


def _entry(key: str, about: dict[str, Any], line: Event | Check, now_ms: int) -> Entry:
    time_ms = now_ms if line.time_s is None else line.time_s * 1000
    value = {**about, "tags": tags_of(line.tags), "container": line.container, "time_ms": time_ms}
    # When it came, and not when it says it was: a topic keeps its records by their timestamps.
    return key.encode(errors="replace"), json.dumps(value, ensure_ascii=False).encode(errors="replace"), now_ms, ()


def tags_of(tags: Iterable[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for tag in tags:
        key, _, value = tag.partition("=")
        found[key] = f"{found[key]},{value}" if key in found else value
    return found


def _head(series: SeriesId) -> str:
    about = {"name": series.name, "tags": tags_of(series.tags), "type": series.kind.label}
    return json.dumps(about, ensure_ascii=False)[:-1]


def _body(facts: dict[str, Any]) -> str:
    return ", ".join(f'"{name}": {_value(value)}' for name, value in facts.items())


def _value(value: Any) -> str:
    if isinstance(value, float):
        if value.is_integer() and abs(value) < _MOST_WHOLE:
            return str(int(value))
        return repr(value) if isfinite(value) else "null"
    if isinstance(value, dict):
        return f"{{{_body(value)}}}"
    return "true" if value is True else str(value)
