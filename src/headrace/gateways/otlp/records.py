"""Telemetry as records: a log record, a data point of a metric, a span is one each, whole in itself. Pure.

A record is a JSON object whose names are OTLP's own, in lower case with underscores. `resource` and `scope` stand in
each record as objects; attributes are objects of plain JSON values; times are whole nanoseconds since 1970, or null
where none was given; ids are lower-case hex, or null; a number that JSON cannot write is `"NaN"`, `"Infinity"` or
`"-Infinity"`, and bytes are base64.

What always holds: no two records share anything, so a topic of them can be read from anywhere; what cannot be a record
(a span without ids, one that is too large) is rejected alone and counted. As each has the resource of all, few bytes
can stand for very many: a request whose records would have more than may be is refused before they are made.
"""

import base64
import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from headrace.gateways.otlp.messages import Rejected, Signal, TooLarge

Entry = tuple[bytes | None, bytes | None, int, tuple[tuple[str, bytes], ...]]
_ENCODE: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode
_NANOS: Final = 1_000_000
_AHEAD_MS: Final = 30 * 60_000  # a broker refuses records that are an hour ahead of its clock
_LEVELS: Final = ("trace", "debug", "info", "warning", "error", "critical")  # four numbers of severity each
_KINDS: Final = ("unspecified", "internal", "server", "client", "producer", "consumer")
_STATUS: Final = ("unset", "ok", "error")
_TEMPORALITY: Final = (None, "delta", "cumulative")
_TRACE_ID, _SPAN_ID = 16, 8
_SERVICE: Final = "service.name"
_DEEPEST: Final = 64


@dataclass(slots=True)
class Made:
    """The records of one request, and what of it is none."""

    most_bytes: int  # that are made of it
    entries: list[Entry] = field(default_factory=list)
    rejected: int = 0
    reason: str = ""
    _bytes: int = 0

    @property
    def rejection(self) -> Rejected:
        return Rejected(self.rejected, self.reason)

    def count(self, size: int) -> None:
        """What is made, whether it is taken or not; raises `TooLarge`."""
        self._bytes += size
        if self._bytes > self.most_bytes:
            raise TooLarge(
                f"its records would have more than {self.most_bytes // 2**20} MiB, as each has its resource: "
                "send smaller batches"
            )

    def reject(self, reason: str) -> None:
        self.rejected += 1
        self.reason = self.reason or reason


def records_of(signal: Signal, request: Any, now_ms: int, most_bytes: int, most_in_all: int) -> Made:
    """The records of a request; their timestamps are when things happened, or now. Raises `TooLarge`."""
    made = Made(most_in_all)
    groups, scopes, read = _PARTS[signal]
    for group in getattr(request, groups):
        resource = attributes(group.resource.attributes)
        service = resource.get(_SERVICE)
        key = service.encode(errors="replace") if isinstance(service, str) and service else None
        for scope in getattr(group, scopes):
            tail = f',"resource":{_ENCODE(resource)},"scope":{_ENCODE(_scope(scope.scope))}'
            tail += f',"schema_url":{_ENCODE(scope.schema_url or group.schema_url or None)}}}'
            made.count(len(tail))
            _add(made, read(scope, made), tail, key, now_ms, most_bytes)
    return made


def _add(made: Made, found: "Iterator[_Found]", tail: str, key: bytes | None, now_ms: int, most_bytes: int) -> None:
    for own_key, nanos, said in found:
        value = (_ENCODE(said)[:-1] + tail).encode(errors="backslashreplace")
        size = len(value) + len(own_key or key or b"")
        made.count(size)
        if size > most_bytes:
            made.reject(f"a record has {size:,} bytes: at most {most_bytes:,} are taken")
            continue
        at_ms = nanos // _NANOS
        made.entries.append((own_key or key, value, at_ms if 0 < at_ms <= now_ms + _AHEAD_MS else now_ms, ()))


_Found = tuple[bytes | None, int, dict[str, Any]]


def _scope(scope: Any) -> dict[str, Any]:
    return {"name": scope.name, "version": scope.version, "attributes": attributes(scope.attributes)}


# --- signals


def _logs(scope: Any, _: Made) -> Iterator[_Found]:
    for each in scope.log_records:
        yield (
            None,
            each.time_unix_nano or each.observed_time_unix_nano,
            {
                "time_unix_nano": each.time_unix_nano or None,
                "observed_time_unix_nano": each.observed_time_unix_nano or None,
                "severity_number": each.severity_number or None,
                "severity_text": each.severity_text or None,
                "level": _level(each.severity_number),
                "event_name": each.event_name or None,
                "body": value_of(each.body),
                "attributes": attributes(each.attributes),
                "dropped_attributes_count": each.dropped_attributes_count,
                "flags": each.flags,
                "trace_id": each.trace_id.hex() or None,
                "span_id": each.span_id.hex() or None,
            },
        )


def _level(severity: int) -> str | None:
    return _LEVELS[(severity - 1) // 4] if 1 <= severity <= 24 else None


def _spans(scope: Any, made: Made) -> Iterator[_Found]:
    for each in scope.spans:
        if len(each.trace_id) != _TRACE_ID or len(each.span_id) != _SPAN_ID:
            made.reject("a span has no trace_id of 16 bytes, or no span_id of 8")
            continue
        yield (
            each.trace_id.hex().encode(),
            each.start_time_unix_nano,
            {
                "trace_id": each.trace_id.hex(),
                "span_id": each.span_id.hex(),
                "parent_span_id": each.parent_span_id.hex() or None,
                "trace_state": each.trace_state or None,
                "flags": each.flags,
                "name": each.name,
                "kind": _named(_KINDS, each.kind),
                "start_time_unix_nano": each.start_time_unix_nano or None,
                "end_time_unix_nano": each.end_time_unix_nano or None,
                "duration_nano": max(0, each.end_time_unix_nano - each.start_time_unix_nano),
                "status": {"code": _named(_STATUS, each.status.code), "message": each.status.message or None},
                "attributes": attributes(each.attributes),
                "dropped_attributes_count": each.dropped_attributes_count,
                "events": [
                    {
                        "time_unix_nano": one.time_unix_nano or None,
                        "name": one.name,
                        "attributes": attributes(one.attributes),
                    }
                    for one in each.events
                ],
                "dropped_events_count": each.dropped_events_count,
                "links": [
                    {
                        "trace_id": one.trace_id.hex() or None,
                        "span_id": one.span_id.hex() or None,
                        "trace_state": one.trace_state or None,
                        "attributes": attributes(one.attributes),
                    }
                    for one in each.links
                ],
                "dropped_links_count": each.dropped_links_count,
            },
        )


def _named(names: tuple[str | None, ...], number: int) -> str | int | None:
    return names[number] if 0 <= number < len(names) else number


def _metrics(scope: Any, made: Made) -> Iterator[_Found]:
    for metric in scope.metrics:
        kind = metric.WhichOneof("data")
        if kind is None:
            made.reject(f"metric {metric.name[:80]!r} has no data that is known here")
            continue
        data = getattr(metric, kind)
        about = {
            "name": metric.name,
            "description": metric.description or None,
            "unit": metric.unit or None,
            "type": kind,
            "temporality": _named(_TEMPORALITY, getattr(data, "aggregation_temporality", 0)),
            "is_monotonic": data.is_monotonic if kind == "sum" else None,
        }
        read = _POINTS[kind]
        for point in data.data_points:
            yield (
                None,
                point.time_unix_nano,
                {
                    **about,
                    "time_unix_nano": point.time_unix_nano or None,
                    "start_time_unix_nano": point.start_time_unix_nano or None,
                    "attributes": attributes(point.attributes),
                    "flags": point.flags,
                    **read(point),
                },
            )


def _number(point: Any) -> dict[str, Any]:
    kind = point.WhichOneof("value")
    value = None if kind is None else getattr(point, kind)
    return {"value": _plain(value), "exemplars": _exemplars(point)}


def _spread(point: Any) -> dict[str, Any]:
    found = {name: _plain(getattr(point, name)) if point.HasField(name) else None for name in ("sum", "min", "max")}
    return {"count": point.count, **found}


def _histogram(point: Any) -> dict[str, Any]:
    return {
        **_spread(point),
        "explicit_bounds": [_plain(bound) for bound in point.explicit_bounds],
        "bucket_counts": list(point.bucket_counts),
        "exemplars": _exemplars(point),
    }


def _exponential(point: Any) -> dict[str, Any]:
    return {
        **_spread(point),
        "scale": point.scale,
        "zero_count": point.zero_count,
        "zero_threshold": _plain(point.zero_threshold),
        "positive": {"offset": point.positive.offset, "bucket_counts": list(point.positive.bucket_counts)},
        "negative": {"offset": point.negative.offset, "bucket_counts": list(point.negative.bucket_counts)},
        "exemplars": _exemplars(point),
    }


def _summary(point: Any) -> dict[str, Any]:
    quantiles = [{"quantile": _plain(one.quantile), "value": _plain(one.value)} for one in point.quantile_values]
    return {"count": point.count, "sum": _plain(point.sum), "quantile_values": quantiles}


_POINTS: Final[Mapping[str, Callable[[Any], dict[str, Any]]]] = {
    "gauge": _number,
    "sum": _number,
    "histogram": _histogram,
    "exponential_histogram": _exponential,
    "summary": _summary,
}


def _exemplars(point: Any) -> list[dict[str, Any]]:
    return [
        {
            "time_unix_nano": one.time_unix_nano or None,
            "value": _plain(getattr(one, one.WhichOneof("value") or "as_double")),
            "trace_id": one.trace_id.hex() or None,
            "span_id": one.span_id.hex() or None,
            "attributes": attributes(one.filtered_attributes),
        }
        for one in point.exemplars
    ]


_Read = Callable[[Any, Made], Iterator[_Found]]
_PARTS: Final[Mapping[Signal, tuple[str, str, _Read]]] = {
    Signal.LOGS: ("resource_logs", "scope_logs", _logs),
    Signal.METRICS: ("resource_metrics", "scope_metrics", _metrics),
    Signal.TRACES: ("resource_spans", "scope_spans", _spans),
}


# --- values


def attributes(pairs: Any, depth: int = 0) -> dict[str, Any]:
    """Attributes as an object; of a name that stands twice the last counts."""
    return {pair.key: value_of(pair.value, depth) for pair in pairs}


def value_of(value: Any, depth: int = 0) -> Any:
    """An `AnyValue` as plain JSON; null for none."""
    kind = value.WhichOneof("value")
    match kind:
        case "string_value" | "bool_value" | "int_value":
            return getattr(value, kind)
        case "double_value":
            return _plain(value.double_value)
        case "bytes_value":
            return base64.b64encode(value.bytes_value).decode()
        case "array_value":
            return None if depth > _DEEPEST else [value_of(one, depth + 1) for one in value.array_value.values]
        case "kvlist_value":
            return None if depth > _DEEPEST else attributes(value.kvlist_value.values, depth + 1)
    return None


def _plain(number: Any) -> Any:
    if isinstance(number, float) and not math.isfinite(number):
        return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"
    return number
