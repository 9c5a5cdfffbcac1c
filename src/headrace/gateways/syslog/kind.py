"""`kind = "syslog"`."""

from collections.abc import Mapping, Sequence
from threading import Event
from typing import Any, Final

from headrace.client.address import Address
from headrace.gateways.gateway import Gateway, GatewayKind, Progress
from headrace.gateways.inward import inlet_of
from headrace.gateways.syslog.server import SyslogGateway
from headrace.gateways.syslog.settings import SYSLOG_KEYS, SyslogSettings


def _make(name: str, values: Mapping[str, Any], bootstrap: Sequence[Address], stopping: Event) -> Gateway:
    settings = SyslogSettings.of(name, values)
    return SyslogGateway(settings, inlet_of(name, values, [settings.topic], bootstrap, Progress()), stopping)


KIND: Final = GatewayKind(
    "syslog",
    "Messages of syslog, RFC 5424 and 3164, by UDP, TCP, TLS and Unix sockets, into a topic.",
    SYSLOG_KEYS,
    SyslogSettings.of,
    _make,
)
