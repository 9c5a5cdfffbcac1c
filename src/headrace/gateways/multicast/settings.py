"""What a section of `kind = "multicast"` says, checked."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from headrace.gateways.errors import GatewayError
from headrace.gateways.gateway import Overload
from headrace.gateways.inward import inward_keys
from headrace.gateways.multicast.group import LOOPBACK, Group, seal_of
from headrace.gateways.multicast.sending import SendingSettings
from headrace.gateways.multicast.stream import ReceivingSettings
from headrace.gateways.multicast.wire import MOST_DATAGRAM_BYTES, MOST_NAME_BYTES
from headrace.model import check_topic_name
from headrace.records import Codec
from headrace.secret_files import check_private
from headrace.section_keys import Key

IN, OUT = "in", "out"
_MEBIBYTE: Final = 1024 * 1024
_MOST_QUEUED_BYTES: Final = 4 * _MEBIBYTE

MULTICAST_KEYS: Final = (
    Key("direction", str, "in (messages of the group go into the topic) or out (the topic is published to the group).",
        is_needed=True, choices=(IN, OUT)),
    Key("group", str, "The group and its port, as 239.255.0.1:7400; the port above is for requests of repair.",
        is_needed=True, check=Group.parse),
    Key("topic", str, "The topic; by default one with the section's name.", check=check_topic_name),
    Key("interface", str, "The interface: its name, or an IPv4 address that it has.", LOOPBACK),
    Key("ttl", int, "How many networks datagrams may cross: 0 none, 1 the interface's own.", 1, least=0, most=255),
    Key("key_file", str, "A file with the group's shared key, with which datagrams are sealed; without, whoever "
        "reaches the group can write in it."),
    Key("from", str, "Where the first start of all begins: out, in the topic; in, with the oldest that publishers hold "
        "(start), or with what comes next (end).", "start", choices=("start", "end")),
    Key("rate_kb", int, "Out: how many KiB a second go out, repairs included.", 32 * 1024, least=8,
        most=64 * 1024 * 1024),
    Key("datagram_bytes", int, "Out: the longest datagram; on an Ethernet at most 1472.", 1400, least=256,
        most=MOST_DATAGRAM_BYTES),
    Key("history_mb", int, "Out: how many MiB of datagrams are held for repair.", 16, least=1, most=16 * 1024),
    Key("message_mb", int, "How many MiB a message may have.", 16, least=1, most=1024),
    *inward_keys(Overload.DROP_OLDEST),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class MulticastSettings:
    name: str
    direction: str
    topic: str
    group: Group
    key_file: str | None
    from_start: bool
    overload: Overload
    buffer_bytes: int
    codec: Codec
    sending: SendingSettings
    receiving: ReceivingSettings

    @classmethod
    def of(cls, name: str, values: Mapping[str, Any]) -> Self:
        """What a section with its defaults says; raises the first thing that is wrong with it."""
        where = f"[gateways.{name}]"
        topic = values.get("topic") or name
        check_topic_name(topic)
        overload = Overload(values["overload"])
        if overload is Overload.BLOCK:
            raise GatewayError(
                f"{where} overload = 'block' cannot be: a group has no way to make its publishers wait; choose "
                "drop-oldest, drop-newest or fail"
            )
        if len(name.encode(errors="replace")) > MOST_NAME_BYTES:
            raise GatewayError(f"{where} has a name of more than {MOST_NAME_BYTES} bytes: shorten it")
        if not values["interface"] or not values["interface"].isprintable():
            raise GatewayError(f"{where} interface is empty or no name: write interface = 'eth0', or an IPv4 address")
        key_file = values.get("key_file")
        if key_file == "":
            raise GatewayError(f"{where} key_file is empty: name a file, or leave it out")
        rate_bytes_s = values["rate_kb"] * 1024
        message_bytes = values["message_mb"] * _MEBIBYTE
        from_start = values["from"] == "start"
        return cls(
            name,
            values["direction"],
            topic,
            Group.parse(values["group"], interface=values["interface"], ttl=values["ttl"]),
            key_file,
            from_start,
            overload,
            values["buffer_mb"] * _MEBIBYTE,
            Codec.named(values["compression"]),
            SendingSettings(
                datagram_bytes=values["datagram_bytes"],
                rate_bytes_s=rate_bytes_s,
                history_bytes=values["history_mb"] * _MEBIBYTE,
                message_bytes=message_bytes,
                queue_bytes=min(_MOST_QUEUED_BYTES, rate_bytes_s // 2),  # half a second: positions wait for it
            ),
            ReceivingSettings(from_history=from_start, message_bytes=message_bytes),
        )

    @property
    def place(self) -> str:
        """The group, for people."""
        return f"udp://{self.group} on {self.group.interface}"

    def read_key(self) -> bytes | None:
        """The shared key; raises if its file is not there, is too short, or others can read it."""
        if self.key_file is None:
            return None
        check_private(self.key_file, "the key of a group")
        key = Path(self.key_file).read_bytes().strip()
        seal_of(key)
        return key
