"""What a client's OTLP metrics say: numbers with names and attributes, read from the protobuf that KIP-714 has it push.

Only what is used is declared: sums and gauges. Protobuf passes over fields that are not declared, so whatever else an
exporter writes is neither read nor in the way.
"""

from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

from headrace.errors import HeadraceError

_DELTA = 1  # of AggregationTemporality: what came since the last push, not since the beginning


class InvalidMetrics(HeadraceError):
    """Bytes that are not OTLP metrics."""


class Point(NamedTuple):
    """A value of a metric, for one set of attributes."""

    name: str
    attributes: tuple[tuple[str, str], ...]
    value: float
    is_sum: bool
    is_delta: bool


def read_metrics(data: bytes) -> Iterator[Point]:
    """Every point of every sum and gauge, in the order of the message."""
    from google.protobuf.message import DecodeError

    try:
        message = _metrics_data().FromString(data)
    except DecodeError as error:
        raise InvalidMetrics(f"the metrics are not OTLP's protobuf: {error}") from None
    for resource in message.resource_metrics:
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                kind = metric.WhichOneof("data")
                if kind:
                    yield from _points(metric, getattr(metric, kind), is_sum=kind == "sum")


def _points(metric: Any, data: Any, *, is_sum: bool) -> Iterator[Point]:
    is_delta = is_sum and data.aggregation_temporality == _DELTA
    for point in data.data_points:
        attributes = sorted((each.key, _text_of(each.value)) for each in point.attributes)
        value = float(getattr(point, point.WhichOneof("value") or "as_double"))
        yield Point(metric.name, tuple(attributes), value, is_sum, is_delta)


def _text_of(value: Any) -> str:
    kind = value.WhichOneof("value")
    return str(getattr(value, kind)) if kind else ""


# Each message: its fields as (name, number, type), where a type is protobuf's, or another message; `oneof` are choices.
_MESSAGES: dict[str, tuple[str, list[tuple[str, int, str]]]] = {
    "MetricsData": ("", [("resource_metrics", 1, "*ResourceMetrics")]),
    "ResourceMetrics": ("", [("scope_metrics", 2, "*ScopeMetrics")]),
    "ScopeMetrics": ("", [("metrics", 2, "*Metric")]),
    "Metric": ("data", [("name", 1, "STRING"), ("gauge", 5, "?Gauge"), ("sum", 7, "?Sum")]),
    "Gauge": ("", [("data_points", 1, "*NumberDataPoint")]),
    "Sum": ("", [("data_points", 1, "*NumberDataPoint"), ("aggregation_temporality", 2, "INT32")]),
    "NumberDataPoint": (
        "value",
        [("as_double", 4, "?DOUBLE"), ("as_int", 6, "?SFIXED64"), ("attributes", 7, "*KeyValue")],
    ),
    "KeyValue": ("", [("key", 1, "STRING"), ("value", 2, "AnyValue")]),
    "AnyValue": (
        "value",
        [("string", 1, "?STRING"), ("bool", 2, "?BOOL"), ("int", 3, "?INT64"), ("double", 4, "?DOUBLE")],
    ),
}


@cache
def _metrics_data() -> Any:
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    types = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="headrace/otlp.proto", package="headrace.otlp", syntax="proto3")
    for name, (choice, fields) in _MESSAGES.items():
        message = file.message_type.add(name=name)
        if choice:
            message.oneof_decl.add(name=choice)
        for field_name, number, kind in fields:
            plain = kind.lstrip("*?")
            field = message.field.add(
                name=field_name,
                number=number,
                label=types.LABEL_REPEATED if kind[0] == "*" else types.LABEL_OPTIONAL,
                type=types.TYPE_MESSAGE if plain in _MESSAGES else getattr(types, f"TYPE_{plain}"),
            )
            if plain in _MESSAGES:
                field.type_name = f".headrace.otlp.{plain}"
            if kind[0] == "?":
                field.oneof_index = 0
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("headrace.otlp.MetricsData"))
