"""`kind = "otlp"`."""

from collections.abc import Mapping, Sequence
from threading import Event
from typing import Any, Final

from headrace.client.address import Address
from headrace.gateways.gateway import Gateway, GatewayKind, Progress
from headrace.gateways.inward import inlet_of
from headrace.gateways.otlp.settings import OTLP_KEYS, OtlpSettings


def _make(name: str, values: Mapping[str, Any], bootstrap: Sequence[Address], stopping: Event) -> Gateway:
    from headrace.gateways.otlp.server import OtlpGateway  # what serves is wanted by whoever runs one alone
    from headrace.serving.access_keys import access_of

    settings = OtlpSettings.of(name, values)
    inlet = inlet_of(name, values, list(settings.topics.values()), bootstrap, Progress())
    return OtlpGateway(settings, access_of(values, bootstrap), inlet, bootstrap, stopping)


KIND: Final = GatewayKind(
    "otlp",
    "Logs, metrics and traces from OpenTelemetry, OTLP over HTTP, into topics.",
    OTLP_KEYS,
    OtlpSettings.of,
    _make,
    modules=("starlette", "uvicorn", "opentelemetry"),
)
