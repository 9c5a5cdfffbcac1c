"""`kind = "multicast"`: a topic published to a group, or a group's messages into a topic."""

from collections.abc import Mapping, Sequence
from threading import Event
from typing import Any, Final

from headrace.client.address import Address
from headrace.gateways.gateway import Gateway, GatewayKind
from headrace.gateways.multicast.inward import InwardGateway
from headrace.gateways.multicast.outward import OutwardGateway
from headrace.gateways.multicast.settings import IN, MULTICAST_KEYS, MulticastSettings


def _make(name: str, values: Mapping[str, Any], bootstrap: Sequence[Address], stopping: Event) -> Gateway:
    settings = MulticastSettings.of(name, values)
    if settings.direction == IN:
        return InwardGateway(settings, bootstrap, stopping)
    return OutwardGateway(settings, bootstrap, stopping)


KIND: Final = GatewayKind(
    "multicast",
    "A topic published to a UDP multicast group, with repair and without a broker between, or a group into a topic.",
    MULTICAST_KEYS,
    MulticastSettings.of,
    _make,
)
