"""`kind = "lines"`."""

from collections.abc import Mapping, Sequence
from threading import Event
from typing import Any, Final

from headrace.client.address import Address
from headrace.gateways.gateway import Gateway, GatewayKind, Progress
from headrace.gateways.inward import inlet_of
from headrace.gateways.lines.server import LinesGateway
from headrace.gateways.lines.settings import LINES_KEYS, LinesSettings


def _make(name: str, values: Mapping[str, Any], bootstrap: Sequence[Address], stopping: Event) -> Gateway:
    settings = LinesSettings.of(name, values)
    return LinesGateway(settings, inlet_of(name, values, [settings.topic], bootstrap, Progress()), stopping)


KIND: Final = GatewayKind(
    "lines",
    "Lines, or frames with a length, from TCP and Unix sockets into a topic, acknowledged if that is asked for.",
    LINES_KEYS,
    LinesSettings.of,
    _make,
)
