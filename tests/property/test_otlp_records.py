"""Telemetry as records: alike from protobuf and JSON, plain JSON whatever comes, and any bytes harm nothing."""

import base64
import gzip
import json
from typing import Any

import pytest
from google.protobuf import json_format
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.gateways.otlp.messages import (
    JSON,
    PROTOBUF,
    InvalidTelemetry,
    Rejected,
    Signal,
    TooLarge,
    answer,
    inflate,
    read_request,
    refusal,
)  # fmt: skip
from headrace.gateways.otlp.records import records_of
from tests.property.storage_model import count_examples

NOW_MS = 1_794_000_000_000
NOW_NS = NOW_MS * 1_000_000

text = st.text(max_size=6)
number = st.floats() | st.integers(-(2**63), 2**63 - 1)
nanos = st.sampled_from([0, 1, NOW_NS, 2**64 - 1])
value = st.recursive(
    st.one_of(
        text.map(lambda it: {"stringValue": it}),
        st.booleans().map(lambda it: {"boolValue": it}),
        st.integers(-(2**63), 2**63 - 1).map(lambda it: {"intValue": str(it)}),
        st.sampled_from([1.5, "NaN", "Infinity", "-Infinity"]).map(lambda it: {"doubleValue": it}),
        st.binary(max_size=5).map(lambda it: {"bytesValue": base64.b64encode(it).decode()}),
        st.just({}),
    ),
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda it: {"arrayValue": {"values": it}})
        | st.lists(st.tuples(text, inner), max_size=3).map(
            lambda it: {"kvlistValue": {"values": [{"key": key, "value": each} for key, each in it]}}
        )
    ),
    max_leaves=5,
)
attributes = st.lists(st.builds(lambda key, each: {"key": key, "value": each}, text, value), max_size=3)
trace_id, span_id = st.binary(min_size=16, max_size=16), st.binary(min_size=8, max_size=8)


def hexed(found: st.SearchStrategy[bytes]) -> st.SearchStrategy[str]:
    return found.map(bytes.hex)


log = st.fixed_dictionaries(
    {},
    optional={
        "timeUnixNano": nanos.map(str), "observedTimeUnixNano": nanos.map(str), "severityNumber": st.integers(0, 30),
        "severityText": text, "body": value, "attributes": attributes, "traceId": hexed(trace_id),
        "spanId": hexed(span_id), "flags": st.integers(0, 2**32 - 1), "eventName": text, "notKnown": value,
    },
)  # fmt: skip
span = st.fixed_dictionaries(
    {"traceId": hexed(trace_id), "spanId": hexed(span_id)},
    optional={
        "parentSpanId": hexed(span_id), "name": text, "kind": st.integers(0, 5), "startTimeUnixNano": nanos.map(str),
        "endTimeUnixNano": nanos.map(str), "attributes": attributes, "status": st.just({"code": 2, "message": "no"}),
        "events": st.lists(st.fixed_dictionaries({"name": text, "attributes": attributes}), max_size=2),
        "links": st.lists(st.fixed_dictionaries({"traceId": hexed(trace_id), "spanId": hexed(span_id)}), max_size=2),
    },
)  # fmt: skip
point = {"timeUnixNano": nanos.map(str), "startTimeUnixNano": nanos.map(str), "attributes": attributes}
plain_point = st.one_of(
    st.fixed_dictionaries({**point, "asInt": st.integers(-(2**63), 2**63 - 1).map(str)}),
    st.fixed_dictionaries({**point, "asDouble": st.sampled_from([0.0, -1.5, "NaN", "Infinity"])}),
)
histogram_point = st.fixed_dictionaries(
    {**point, "count": st.just("3"), "bucketCounts": st.just(["1", "2"]), "explicitBounds": st.just([0.5])},
    optional={"sum": st.just(2.5), "min": st.just(0.1), "max": st.just(2.0)},
)
exponential_point = st.fixed_dictionaries(
    {**point, "count": st.just("3"), "scale": st.integers(-10, 20), "zeroCount": st.just("1"),
     "positive": st.just({"offset": -2, "bucketCounts": ["1", "1"]})},
)  # fmt: skip
summary_point = st.fixed_dictionaries(
    {**point, "count": st.just("3"), "sum": st.just(2.5), "quantileValues": st.just([{"quantile": 0.5, "value": 1.0}])}
)
metric = st.one_of(
    st.builds(
        lambda name, kind, points, more: {"name": name, "unit": "s", kind: {"dataPoints": points, **more}},
        text, st.just(kind), st.lists(points, max_size=2), st.just(more),
    )
    for kind, points, more in (
        ("gauge", plain_point, {}),
        ("sum", plain_point, {"aggregationTemporality": 2, "isMonotonic": True}),
        ("histogram", histogram_point, {"aggregationTemporality": 1}),
        ("exponentialHistogram", exponential_point, {"aggregationTemporality": 1}),
        ("summary", summary_point, {}),
    )
)  # fmt: skip


NAMES = {
    Signal.LOGS: ("resourceLogs", "scopeLogs", "logRecords"),
    Signal.METRICS: ("resourceMetrics", "scopeMetrics", "metrics"),
    Signal.TRACES: ("resourceSpans", "scopeSpans", "spans"),
}


def request(signal: Signal, inner: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    groups, scopes, parts = NAMES[signal]
    about = st.fixed_dictionaries({"name": text, "attributes": attributes})
    scope = st.fixed_dictionaries({"scope": about, parts: st.lists(inner, max_size=3)})
    resource = st.fixed_dictionaries({"attributes": attributes})
    group = st.fixed_dictionaries({"resource": resource, scopes: st.lists(scope, max_size=2)})
    return st.fixed_dictionaries({groups: st.lists(group, max_size=2)})


requests = st.one_of(
    st.tuples(st.just(signal), request(signal, inner))
    for signal, inner in ((Signal.LOGS, log), (Signal.METRICS, metric), (Signal.TRACES, span))
)


@settings(max_examples=count_examples(150))
@given(requests)
def test_json_and_protobuf_give_the_same_records(given: tuple[Signal, dict[str, Any]]) -> None:
    signal, said = given
    from_json = read_request(signal, json.dumps(said).encode(), JSON)
    from_protobuf = read_request(signal, from_json.SerializeToString(), PROTOBUF)
    made = records_of(signal, from_json, NOW_MS, 1_000_000, 2**30)
    assert made == records_of(signal, from_protobuf, NOW_MS, 1_000_000, 2**30)
    assert made.rejected == 0
    groups, scopes, parts = NAMES[signal]
    inner = [one for group in said[groups] for scope in group[scopes] for one in scope[parts]]
    if signal is Signal.METRICS:
        kinds = [data for each in inner for data in each.values() if isinstance(data, dict)]
        inner = [one for data in kinds for one in data["dataPoints"]]
    assert len(made.entries) == len(inner)
    for (_, found, at_ms, _), one in zip(made.entries, inner, strict=True):
        record = json.loads(found or b"", parse_constant=lambda it: pytest.fail(f"{it} is no JSON"))
        assert at_ms == NOW_MS  # what has no time, or one that cannot be, has that of now
        for ours, theirs in (("trace_id", "traceId"), ("span_id", "spanId"), ("parent_span_id", "parentSpanId")):
            if theirs in one:
                assert record[ours] == one[theirs]
        for ours, theirs in (("time_unix_nano", "timeUnixNano"), ("start_time_unix_nano", "startTimeUnixNano")):
            if theirs in one:
                assert record[ours] == (int(one[theirs]) or None)
        assert set(record["attributes"]) == {each["key"] for each in one.get("attributes", ())}
        assert isinstance(record["resource"], dict)
        assert set(record["scope"]) == {"name", "version", "attributes"}


@settings(max_examples=count_examples(500))
@given(
    signal=st.sampled_from(list(Signal)),
    body=st.binary(max_size=60) | st.recursive(
        st.none() | st.booleans() | st.integers() | text | st.just("zz"),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
            st.sampled_from(["resourceLogs", "scopeLogs", "logRecords", "traceId", "body", "resource", "attributes",
                             "resourceMetrics", "resourceSpans", "scopeSpans", "spans", "x"]), inner, max_size=3),
        max_leaves=8,
    ).map(lambda it: json.dumps(it).encode()),
    encoding=st.sampled_from([JSON, PROTOBUF]),
)  # fmt: skip
def test_any_bytes_are_a_request_or_a_sentence(signal: Signal, body: bytes, encoding: str) -> None:
    try:
        found = read_request(signal, body, encoding)
    except InvalidTelemetry:
        return
    for _, value, _, _ in records_of(signal, found, NOW_MS, 1_000_000, 2**30).entries:
        json.loads(value or b"")


@settings(max_examples=count_examples(200))
@given(st.binary(max_size=100) | st.binary(max_size=3000).map(gzip.compress))
def test_gzip_is_read_up_to_its_limit(body: bytes) -> None:
    try:
        expected = gzip.decompress(body)
    except (OSError, EOFError):
        expected = None
    if expected is not None and len(expected) <= 1000 and body:
        assert inflate(body, 1000) == expected
    else:
        with pytest.raises(InvalidTelemetry):
            inflate(body, 1000)


def test_a_bomb_is_refused_without_being_blown_up() -> None:
    with pytest.raises(InvalidTelemetry, match="has more than 1 MiB when it is inflated"):
        inflate(gzip.compress(b"\0" * 200 * 2**20, 1), 2**20)


def test_deep_nesting_is_a_sentence() -> None:
    deep: Any = {"stringValue": "here"}
    for _ in range(150):
        deep = {"arrayValue": {"values": [deep]}}
    said = {"resourceLogs": [{"scopeLogs": [{"logRecords": [{"body": deep}]}]}]}
    with pytest.raises(InvalidTelemetry):
        read_request(Signal.LOGS, json.dumps(said).encode(), JSON)
    with pytest.raises(InvalidTelemetry, match="nested too deeply"):
        read_request(Signal.LOGS, b'{"a":' * 100_000, JSON)


def test_few_bytes_of_gzip_that_are_millions_of_objects_are_refused_before_they_are_read() -> None:
    body = b'{"resourceLogs":[{"scopeLogs":[{"logRecords":[' + b"{}," * 100_000 + b"{}]}]}]}"
    with pytest.raises(TooLarge, match="too many objects"):
        read_request(Signal.LOGS, body, JSON, 2**20)
    assert read_request(Signal.LOGS, body, JSON, 2**24).resource_logs


def test_what_cannot_be_a_record_is_rejected_alone() -> None:
    said = {"resourceSpans": [{"scopeSpans": [{"spans": [
        {"name": "no ids"}, {"traceId": "00" * 16, "spanId": "11" * 8, "name": "good"},
        {"traceId": "00" * 16, "spanId": "11" * 8, "name": "x" * 5000},
    ]}]}]}  # fmt: skip
    made = records_of(Signal.TRACES, read_request(Signal.TRACES, json.dumps(said).encode(), JSON), NOW_MS, 2000, 2**30)
    assert [json.loads(value or b"")["name"] for _, value, _, _ in made.entries] == ["good"]
    assert made.entries[0][0] == b"00" * 16
    assert made.rejection == Rejected(2, "a span has no trace_id of 16 bytes, or no span_id of 8")


def test_answers_and_refusals_are_what_the_specification_has() -> None:
    from google.rpc.status_pb2 import Status

    for signal in Signal:
        response = signal.message("Response")
        for rejected in (Rejected(), Rejected(3, "too large")):
            found = response.FromString(answer(signal, rejected, PROTOBUF))
            assert found == json_format.Parse(answer(signal, rejected, JSON), response())
            assert found.HasField("partial_success") == bool(rejected.count)
            assert (getattr(found.partial_success, signal.rejected), found.partial_success.error_message) == (
                rejected.count, rejected.reason,
            )  # fmt: skip
    sentence = "ünusable: " + "x" * 200
    status = Status.FromString(refusal(3, sentence, PROTOBUF))
    assert (status.code, status.message) == (3, sentence)
    assert json.loads(refusal(3, sentence, JSON)) == {"code": 3, "message": sentence}
