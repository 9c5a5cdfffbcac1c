"""What `kind = "otlp"` can be told: where to listen, and which topics telemetry goes to."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from headrace.gateways.errors import GatewayError
from headrace.gateways.gateway import Overload
from headrace.gateways.inward import inward_keys
from headrace.model import check_topic_name
from headrace.section_keys import Key, port
from headrace.serving.access_keys import ACCESS_KEYS, check_access

DEFAULT_PORT: Final = 4318
_MEBIBYTE: Final = 1024 * 1024
SIGNALS: Final = ("logs", "metrics", "traces")

OTLP_KEYS: Final = (
    port("port", "Where it listens; 0 takes a free one.", DEFAULT_PORT),
    Key("logs", str, "The topic of log records; empty takes none.", "otel.logs"),
    Key("metrics", str, "The topic of data points of metrics; empty takes none.", "otel.metrics"),
    Key("traces", str, "The topic of spans; empty takes none.", "otel.traces"),
    Key("max_request", int, "How many MiB a request may have, inflated.", 16, least=1, most=1024),
    Key("max_record", int, "How many bytes a record may have; one of more is rejected alone.", 900_000, least=1_000,
        most=64 * 1024 * 1024),
    Key("connections", int, "How many may be open at once.", 500, least=1, most=100_000),
    Key("timeout_s", float, "How long a request waits for its records to be durable, before it is answered with 503.",
        8.0, least=0.1, most=300),
    *inward_keys(Overload.FAIL),
    *ACCESS_KEYS,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class OtlpSettings:
    """One receiver of telemetry."""

    name: str
    port: int
    topics: Mapping[str, str]  # by signal
    request_bytes: int
    record_bytes: int
    connections: int
    timeout_s: float

    @classmethod
    def of(cls, name: str, values: Mapping[str, Any]) -> "OtlpSettings":
        """From a section with its defaults; raises the first thing that is wrong."""
        where = f"gateways.{name}"
        topics = {signal: values[signal] for signal in SIGNALS if values[signal]}
        if not topics:
            raise GatewayError(f"[{where}] takes neither logs nor metrics nor traces: name a topic for one of them")
        for topic in topics.values():
            check_topic_name(topic)
        for _, sentence in check_access(values, where):
            raise GatewayError(sentence)
        return cls(
            name,
            values["port"],
            topics,
            values["max_request"] * _MEBIBYTE,
            values["max_record"],
            values["connections"],
            values["timeout_s"],
        )
