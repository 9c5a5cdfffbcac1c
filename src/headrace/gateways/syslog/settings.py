"""What `kind = "syslog"` can be told: where to listen, and what of a message becomes a record."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from zoneinfo import ZoneInfo

from headrace.gateways.errors import GatewayError
from headrace.gateways.inward import inward_keys
from headrace.gateways.streams import StreamSettings, stream_keys
from headrace.gateways.syslog.message import Keyed, Recording, Value
from headrace.model import check_topic_name
from headrace.section_keys import Key, port

MESSAGE_BYTES: Final = 64 * 1024
DEFAULT_PORT: Final = 5514
_KEEP: Final = "keep"

SYSLOG_KEYS: Final = (
    Key("topic", str, "Where messages go; by default a topic with the gateway's name.", check=check_topic_name),
    port("udp_port", "The UDP port; 0 takes a free one, and without it UDP is not listened to.", transports=("udp",)),
    *stream_keys(
        f"The TCP port; 0 takes a free one. Where no port and no path is given, UDP and TCP have {DEFAULT_PORT}.",
        "The path of a Unix datagram socket to listen on, such as /dev/log is.",
    ),
    Key("value", str, "What a record holds: json, the fields of the message, or raw, the message as it came.",
        Value.JSON.value, choices=tuple(each.value for each in Value)),
    Key("key", str, "The key of a record: none, the host or the app that the message names, or the client's address.",
        Keyed.NONE.value, choices=tuple(each.value for each in Keyed)),
    Key("header", str, "The name of a header with the client's address, if one is wanted."),
    Key("zone", str, "The time zone of times that name none (RFC 3164).", "UTC"),
    Key("unreadable", str, "What becomes of a message that is not one of syslog: drop, or keep it whole in message; it "
        "is counted either way.", "drop", choices=("drop", _KEEP)),
    Key("max_message", int, "How many bytes of a message are kept; the rest is cut, and counted.", MESSAGE_BYTES,
        least=480, most=1024 * 1024),
    *inward_keys(),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class SyslogSettings:
    """One listener for syslog."""

    name: str
    topic: str
    streams: StreamSettings
    udp_port: int | None
    unix: str
    message_bytes: int
    recording: Recording

    @classmethod
    def of(cls, name: str, values: Mapping[str, Any]) -> "SyslogSettings":
        """From a section with its defaults; raises the first thing that is wrong."""
        topic = values.get("topic") or name
        check_topic_name(topic)
        where = f"gateways.{name}"
        given = dict(values)
        udp_port, unix = given.get("udp_port"), given.pop("unix", None) or ""
        if udp_port is None and given.get("port") is None and not unix:
            udp_port = None if given.get("certificate") else DEFAULT_PORT
            given["port"] = DEFAULT_PORT
        streams = StreamSettings.of(where, given)
        if streams.clients and udp_port is not None:
            raise GatewayError(f"[{where}] clients lets in by certificates, and UDP has none: leave out one of them")
        return cls(
            name,
            topic,
            streams,
            udp_port,
            unix,
            values["max_message"],
            Recording(
                Value(values["value"]),
                Keyed(values["key"]),
                _zone(values["zone"], where),
                values.get("header"),
                keeps_unreadable=values["unreadable"] == _KEEP,
            ),
        )


def _zone(name: str, where: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, LookupError):
        raise GatewayError(f"[{where}] zone is {name!r}: give a time zone such as Europe/Berlin, or UTC") from None
