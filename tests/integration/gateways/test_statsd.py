"""StatsD over real sockets: what was sent is aggregated, drops are counted, clients of others are understood."""

import json
import socket
from collections.abc import Mapping, Sequence
from typing import Any

from headrace.testing.contracts.gateway import TOPIC, InwardGatewayContract, Running, read_topic


class TestStatsd(InwardGatewayContract):
    """Messages are the titles of events: they are written one by one."""

    kind = "statsd"
    is_lossy = True

    def values(self, topic: str, port: int) -> dict[str, Any]:
        return {"topic": "metrics", "events_topic": topic, "port": port, "internal": "none"}

    def send(self, section: Mapping[str, Any], messages: Sequence[bytes]) -> None:
        send(section["port"], *(b"_e{%d,1}:%s|x" % (len(message), message) for message in messages))

    def send_bad(self, section: Mapping[str, Any]) -> int:
        send(section["port"], b"no value", b"a:1", b"a:x|c", b"a:1|c|@7", b"_e{9,9}:a|b", b"_sc|a|9", b"\xff" * 9000)
        return 7

    def found(self, bootstrap: str) -> list[bytes]:
        return [json.loads(value)["title"].encode() for _, value in read_topic(bootstrap, TOPIC)]

    def is_listening(self, running: Running) -> bool:
        return bool(getattr(running.gateway, "is_listening", False))


def send(port: int, *packets: bytes) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as there:
        for packet in packets:
            there.sendto(packet, ("127.0.0.1", port))
