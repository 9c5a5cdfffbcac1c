"""Requests and answers of OTLP, in protobuf and in JSON: pure.

What always holds: the same telemetry in either encoding is the same message; fields that are not known are passed over,
as the specification asks; and any bytes are a message or `InvalidTelemetry`, in memory bounded by their number.
"""

import base64
import binascii
import json
import zlib
from dataclasses import dataclass
from enum import Enum
from functools import cache
from importlib import import_module
from typing import Any, Final

from headrace.gateways.errors import GatewayError

PROTOBUF: Final = "application/x-protobuf"
JSON: Final = "application/json"
# Codes of gRPC, which OTLP's errors are written with.
INVALID_ARGUMENT, RESOURCE_EXHAUSTED, UNIMPLEMENTED, UNAVAILABLE, UNAUTHENTICATED = 3, 8, 12, 14, 16
# Of an object or a list of JSON, if a body is as large as it may be. Empty ones have three, and a few kilobytes of gzip
# would be millions of them, which take protobuf's reader of JSON minutes and gigabytes.
_BYTES_OF_ONE: Final = 16
_IDS: Final = frozenset({"traceId", "spanId", "parentSpanId", "trace_id", "span_id", "parent_span_id"})


class InvalidTelemetry(GatewayError):
    """Bytes that are not what they are said to be."""


class TooLarge(InvalidTelemetry):
    """More than may be in one request."""


class Signal(Enum):
    """What OpenTelemetry sends: the path, the package of messages, and the field of what was rejected."""

    LOGS = ("logs", "Logs", "rejected_log_records")
    METRICS = ("metrics", "Metrics", "rejected_data_points")
    TRACES = ("traces", "Trace", "rejected_spans")

    def __init__(self, path: str, word: str, rejected: str) -> None:
        self.path = path
        self.word = word
        self.rejected = rejected

    def message(self, kind: str) -> Any:
        """The class of its request or its response."""
        return _class_of(self.word, kind)


@cache
def _class_of(word: str, kind: str) -> Any:
    name = word.lower()
    module = import_module(f"opentelemetry.proto.collector.{name}.v1.{name}_service_pb2")
    return getattr(module, f"Export{word}Service{kind}")


def read_request(signal: Signal, body: bytes, encoding: str, most_bytes: int = 2**24) -> Any:
    """The message in a body of so many bytes at the most; raises `InvalidTelemetry`."""
    from google.protobuf.message import DecodeError

    kind = signal.message("Request")
    if encoding == JSON:
        if body.count(b"{") + body.count(b"[") > most_bytes // _BYTES_OF_ONE:
            raise TooLarge("the body has too many objects and lists for one request: send smaller batches")
        return _read_json(kind, body)
    try:
        return kind.FromString(body)
    except DecodeError:
        raise InvalidTelemetry(
            f"the body is not protobuf of {kind.DESCRIPTOR.full_name}: look at the exporter's encoding and path"
        ) from None


def _read_json(kind: Any, body: bytes) -> Any:
    from google.protobuf import json_format

    try:
        given = json.loads(body)
        if not isinstance(given, dict):
            raise InvalidTelemetry("the body is not a JSON object: see the exporter's encoding")
        return json_format.ParseDict(_with_ids(given), kind(), ignore_unknown_fields=True)
    except RecursionError:
        raise InvalidTelemetry("the body is nested too deeply to be read") from None
    except (json_format.ParseError, ValueError, TypeError, AttributeError) as error:
        sentence = " ".join(str(error).split())[:200]
        raise InvalidTelemetry(f"the body is not OTLP's JSON: {sentence}") from None


def _with_ids(value: Any) -> Any:
    """With ids as protobuf's JSON has bytes: OTLP writes them as hex."""
    if isinstance(value, dict):
        return {name: _bytes_of(each) if name in _IDS else _with_ids(each) for name, each in value.items()}
    return [_with_ids(each) for each in value] if isinstance(value, list) else value


def _bytes_of(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return base64.b64encode(binascii.unhexlify(value)).decode()
    except (binascii.Error, ValueError):
        raise InvalidTelemetry(f"{value[:40]!r} is not an id: write it in hex") from None


def inflate(body: bytes, limit: int) -> bytes:
    """What gzip has compressed, in one part or several, of no more than so many bytes; raises `InvalidTelemetry`."""
    parts: list[bytes] = []
    left = limit
    while body or not parts:
        inflating = zlib.decompressobj(16 + zlib.MAX_WBITS)
        try:
            parts.append(inflating.decompress(body, left + 1))
        except zlib.error:
            raise InvalidTelemetry("the body is not gzip, as its content-encoding says") from None
        left -= len(parts[-1])
        if left < 0:
            raise TooLarge(f"the body has more than {limit // 2**20} MiB when it is inflated: send smaller batches")
        if not inflating.eof:
            raise InvalidTelemetry("the gzip of the body is cut short")
        body = inflating.unused_data
    return b"".join(parts)


@dataclass(frozen=True, slots=True)
class Rejected:
    """What of a request is not taken, and why."""

    count: int = 0
    reason: str = ""


def answer(signal: Signal, rejected: Rejected, encoding: str) -> bytes:
    """All that is not rejected is durable."""
    message = signal.message("Response")()
    if rejected.count:
        setattr(message.partial_success, signal.rejected, rejected.count)
        message.partial_success.error_message = rejected.reason
    if encoding == PROTOBUF:
        return bytes(message.SerializeToString())
    from google.protobuf import json_format

    return str(json_format.MessageToJson(message, indent=None)).encode()


def refusal(code: int, sentence: str, encoding: str) -> bytes:
    """A `google.rpc.Status`."""
    if encoding == JSON:
        return json.dumps({"code": code, "message": sentence}).encode()
    text = sentence.encode(errors="replace")
    return b"\x08" + _varint(code) + b"\x12" + _varint(len(text)) + text


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)
