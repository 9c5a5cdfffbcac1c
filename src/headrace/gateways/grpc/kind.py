"""`kind = "grpc"`."""

from collections.abc import Mapping, Sequence
from threading import Event
from typing import Any, Final

from headrace.client.address import Address
from headrace.gateways.gateway import Gateway, GatewayKind, Progress
from headrace.gateways.grpc.settings import GRPC_KEYS, GrpcSettings
from headrace.gateways.inward import inlet_of


def _make(name: str, values: Mapping[str, Any], bootstrap: Sequence[Address], stopping: Event) -> Gateway:
    from headrace.gateways.grpc.server import GrpcGateway  # what serves is wanted by whoever runs one alone

    settings = GrpcSettings.of(name, values)
    return GrpcGateway(settings, inlet_of(name, values, [], bootstrap, Progress()), bootstrap, stopping)


KIND: Final = GatewayKind(
    "grpc",
    "Producing to and consuming from topics over gRPC, with deadlines, flow control and groups.",
    GRPC_KEYS,
    GrpcSettings.of,
    _make,
    modules=("grpc", "grpc_health", "grpc_reflection"),
)
