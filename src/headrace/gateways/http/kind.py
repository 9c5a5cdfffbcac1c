"""`kind = "http"`: produce, consume and listen over HTTP, server-sent events and WebSocket."""

from collections.abc import Mapping, Sequence
from threading import Event
from typing import Any, Final

from headrace.client.address import Address
from headrace.gateways.gateway import Gateway, GatewayKind
from headrace.gateways.http.settings import DEFAULT_PORT, OVERLOADS, from_section
from headrace.records import Codec
from headrace.section_keys import Key, port
from headrace.serving.access_keys import ACCESS_KEYS
from headrace.serving.record_feed import Slow


def _make(name: str, section: Mapping[str, Any], bootstrap: Sequence[Address], stopping: Event) -> Gateway:
    from headrace.gateways.http.server import HttpGateway  # what serves is wanted by whoever runs one alone
    from headrace.serving.access_keys import access_of

    return HttpGateway(from_section(name, section), access_of(section, bootstrap), bootstrap, stopping)


KIND: Final = GatewayKind(
    "http",
    "HTTP for programs and browsers: produce, long polls, server-sent events, WebSocket, and the paths of Kafka's REST "
    "proxy (v2).",
    (
        port("port", "Where it listens; 0 takes a free one.", DEFAULT_PORT),
        Key("produce", list, "The topics that may be written to: names, or patterns with * and ?.", ["*"]),
        Key("consume", list, "The topics that may be read.", ["*"]),
        Key("origins", list, "Origins of other sites whose pages may ask, such as https://shop.example."),
        Key("overload", str, "When more comes than the broker takes: fail (503 at once), or block (requests wait).",
            "fail", choices=tuple(str(each) for each in OVERLOADS)),
        Key("limit_mib", int, "How many MiB of records may wait for the broker, and as many of requests that come in.",
            64, least=1, most=16_384),
        Key("body_mib", int, "How many MiB a request or a message may have.", 8, least=1, most=1_024),
        Key("connections", int, "How many may be open at once.", 2_000, least=1, most=1_000_000),
        Key("timeout_s", float, "How long a request waits for its records to be durable.", 10.0, least=0.1, most=300),
        Key("idempotency_hours", int, "For how long an Idempotency-Key is remembered; 0 takes none.", 24, least=0,
            most=8_760),
        Key("slow", str, "What becomes of a listener who falls behind, unless it asks for something else: replay (read "
            "on from the log), skip (go on, told how many it missed) or drop.", "replay",
            choices=tuple(str(each) for each in Slow)),
        Key("followed", int, "How many topics are listened to at once.", 32, least=1, most=10_000),
        Key("kept_mib", int, "How many MiB of each of them are kept for those who are a little behind.", 16, least=1,
            most=16_384),
        Key("instances", int, "How many consumers of the REST proxy's kind there may be at once.", 100, least=0,
            most=10_000),
        Key("instance_s", float, "After how long one that is not asked for anything is removed.", 300.0, least=1,
            most=86_400),
        Key("registry", str, "The URL of a schema registry, for Avro over the REST proxy's paths."),
        Key("compression", str, "How batches are compressed.", "none",
            choices=tuple(codec.name.lower() for codec in Codec)),
        Key("changes", dict, "Changes of databases, topics and views that may be listened to, by name: URLs."),
        *ACCESS_KEYS,
    ),
    from_section,
    _make,
    modules=("starlette", "uvicorn", "websockets"),
)  # fmt: skip
